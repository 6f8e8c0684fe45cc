//! Lets a caller end work that it started.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signal to end work early. The signal is checked in every loop whose length depends on the request, with no
/// lock held.
pub trait Interrupt: Send + Sync + Debug {
    /// True once the result is no longer wanted. Never becomes false again.
    fn is_set(&self) -> bool;

    /// Called before the work blocks on a disk or an object store. If the result is false, the work must end,
    /// and its result is discarded.
    fn may_wait(&self) -> bool {
        true
    }
}

impl Interrupt for AtomicBool {
    fn is_set(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}
