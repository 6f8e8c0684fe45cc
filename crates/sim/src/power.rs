//! Power supply of the simulated machine. The power fails in the middle of a change. All later operations fail until
//! the power is restored.

use std::sync::Mutex;

/// Power supply, shared by the disk and the store, so that both fail at the same moment.
#[derive(Debug, Default)]
pub struct Power(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_off: bool,
    /// Changes until the power fails; `None` if no failure is planned.
    left: Option<u64>,
}

/// Effect of a power loss on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The change is made.
    Made,
    /// The power fails meanwhile: the change is made wholly, in part or not at all, and has no answer.
    Cut,
    /// The power is off; nothing changes.
    Off,
}

impl Power {
    /// Plans a power failure in the middle of a change, after `changes` complete changes.
    pub fn fail_after(&self, changes: u64) {
        self.lock().left = Some(changes);
    }

    /// Cuts the power now.
    pub fn fail(&self) {
        self.lock().is_off = true;
    }

    /// Restores the power.
    pub fn restore(&self) {
        *self.lock() = State::default();
    }

    /// True while the power is off.
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Counts a change of the disk or the store; returns the power's effect on it.
    pub fn change(&self) -> Change {
        let mut state = self.lock();
        if state.is_off {
            return Change::Off;
        }
        match &mut state.left {
            Some(0) => {
                state.is_off = true;
                Change::Cut
            }
            Some(left) => {
                *left -= 1;
                Change::Made
            }
            None => Change::Made,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("BUG: a user of the power's state panicked")
    }
}
