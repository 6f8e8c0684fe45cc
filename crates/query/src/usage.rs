//! Memory and samples of a running query.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that a query holds, and samples that it has read. Any thread may read these numbers, which need not
/// be consistent with each other.
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

    pub fn peak_memory_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Samples read so far. A sample read twice counts twice.
    pub fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    pub fn read(&self, samples: u64) {
        // no atomic addition is needed, because only one thread writes
        self.samples.store(self.samples() + samples, Ordering::Relaxed);
    }

    pub fn hold(&self, bytes: u64) {
        self.held_bytes.store(bytes, Ordering::Relaxed);
        if bytes > self.peak_memory_bytes() {
            self.peak_bytes.store(bytes, Ordering::Relaxed);
        }
    }
}
