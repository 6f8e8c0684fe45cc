//! How a caller ends work that it started.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asked by everything whose length a stranger decides, every few microseconds of work, with no lock held.
pub trait Interrupt: Send + Sync + Debug {
    /// True once the result is not wanted any more. It stays true.
    fn is_set(&self) -> bool;

    /// False where the work must not wait for a disk or a store, now that it is about to: then it is to end, and its
    /// result is not wanted.
    fn may_wait(&self) -> bool {
        true
    }
}

impl Interrupt for AtomicBool {
    fn is_set(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}
