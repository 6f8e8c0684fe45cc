//! The power of the simulated machine: it fails in the middle of a change, and everything after it fails too.

use std::sync::Mutex;

/// Shared by the disk and the store: a crash cuts off both at one moment.
#[derive(Debug, Default)]
pub struct Power(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_off: bool,
    /// Changes until it fails.
    left: Option<u64>,
}

/// Effect of a power loss on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is made.
    Made,
    /// The power fails while it is made: it may be done, in part or not at all, and nobody hears of it.
    Cut,
    /// There is no power.
    Off,
}

impl Power {
    /// Lets it fail in the middle of the change after `changes` more.
    pub fn fail_after(&self, changes: u64) {
        self.lock().left = Some(changes);
    }

    /// Lets it fail now.
    pub fn fail(&self) {
        self.lock().is_off = true;
    }

    /// Brings it back.
    pub fn restore(&self) {
        *self.lock() = State::default();
    }

    /// True where nothing works.
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Somebody changes something.
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
        self.0.lock().expect("BUG: the power's state is plain")
    }
}
