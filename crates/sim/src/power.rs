//! The power supply of the node. When it fails in the middle of a change, all later operations fail until it
//! is restored.

use std::sync::Mutex;

/// The disk and the store have the same power supply, so they fail at the same time.
#[derive(Debug, Default)]
pub struct Power(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_off: bool,
    /// The power will fail after this many more changes. `None` if no failure is planned.
    left: Option<u64>,
}

/// Whether a change is made before the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Made,
    /// The power fails in the middle of the change, which may be made completely, partly or not at all.
    Cut,
    Off,
}

impl Power {
    /// Lets the power fail after `changes` more changes.
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

    /// Must be called before each change, and says whether to make it.
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
