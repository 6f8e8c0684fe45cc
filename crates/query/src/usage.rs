//! Memory and samples of a query while it is evaluated.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that a query holds, and samples that the query has read. One evaluation at a time writes them, and
/// any thread may read them. The numbers are for display, so they need not be consistent with each other.
#[derive(Debug, Default)]
pub struct Usage {
    held_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    samples: AtomicU64,
}

impl Usage {
    pub fn memory_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Peak of the memory held so far.
    pub fn peak_memory_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Samples read so far; a sample that is read twice counts twice.
    pub fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    pub fn read(&self, samples: u64) {
        // there is one writer, so load and store need not be one atomic operation
        self.samples.store(self.samples() + samples, Ordering::Relaxed);
    }

    /// Sets the memory that is held now.
    pub fn hold(&self, bytes: u64) {
        self.held_bytes.store(bytes, Ordering::Relaxed);
        if bytes > self.peak_memory_bytes() {
            self.peak_bytes.store(bytes, Ordering::Relaxed);
        }
    }
}
