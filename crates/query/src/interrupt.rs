//! Lets a caller end work that it started.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signal to end work early. Every loop whose length depends on the request checks the signal.
pub trait Interrupt: Send + Sync + Debug {
    /// True once the result is no longer wanted.
    fn is_set(&self) -> bool;

    /// Called before the work waits for a disk or an object store. If the result is false, the work must end.
    fn may_wait(&self) -> bool {
        true
    }
}

impl Interrupt for AtomicBool {
    fn is_set(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}
