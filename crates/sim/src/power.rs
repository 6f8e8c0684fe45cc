//! Power supply, which fails in the middle of a change. Later operations fail until it is restored.

use std::sync::Mutex;

/// Disk and store share one power supply and fail together.
#[derive(Debug, Default)]
pub struct Power(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_off: bool,
    /// Number of changes until the planned power failure.
    left: Option<u64>,
}

/// Effect of a power loss on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Made,
    /// The power fails meanwhile: the change is made wholly, partly or not at all.
    Cut,
    Off,
}

impl Power {
    /// Plans a power failure after `changes` complete changes.
    pub fn fail_after(&self, changes: u64) {
        self.lock().left = Some(changes);
    }

    pub fn fail(&self) {
        self.lock().is_off = true;
    }

    pub fn restore(&self) {
        *self.lock() = State::default();
    }

    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Counts a change and returns the power's effect on it.
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
