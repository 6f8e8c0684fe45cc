//! Bounds how many requests run at once, and the bytes that they hold. A gate does not queue: a full one refuses.

use parking_lot::Mutex;
use std::sync::Arc;

/// A bounded count of those inside. Cloning gives another handle.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    bytes_limit: u64,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    inside: usize,
    peak: usize,
    bytes: u64,
}

/// Somebody inside; dropping it is leaving.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    bytes: u64,
}

impl Gate {
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_bytes(limit, u64::MAX)
    }

    /// Also bounds the bytes of all inside to `bytes_limit`, which a request that is alone may exceed.
    pub(crate) fn with_bytes(limit: usize, bytes_limit: u64) -> Self {
        Self(Arc::new(Inner { limit, bytes_limit, counts: Mutex::default() }))
    }

    /// Enters, unless it is full.
    pub(crate) fn enter(&self) -> Option<Pass> {
        self.enter_with(0)
    }

    /// Enters with so many bytes, unless it is full.
    pub(crate) fn enter_with(&self, bytes: u64) -> Option<Pass> {
        let mut counts = self.0.counts.lock();
        let fits = counts.inside == 0
            || counts.inside < self.0.limit && counts.bytes.saturating_add(bytes) <= self.0.bytes_limit;
        if !fits {
            return None;
        }
        counts.inside += 1;
        counts.peak = counts.peak.max(counts.inside);
        counts.bytes = counts.bytes.saturating_add(bytes);
        Some(Pass { gate: self.clone(), bytes })
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.counts.lock().inside
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.counts.lock().peak
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.limit
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut counts = self.gate.0.counts.lock();
        counts.inside -= 1;
        counts.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_in_as_many_as_it_says() {
        let gate = Gate::new(2);
        let (a, _b) = (gate.enter().unwrap(), gate.enter().unwrap());
        assert!(gate.enter().is_none());
        drop(a);
        assert!(gate.enter().is_some());
        assert_eq!((gate.inside(), gate.peak()), (1, 2));
    }

    #[test]
    fn lets_in_as_much_as_it_says() {
        let gate = Gate::with_bytes(3, 100);
        let large = gate.enter_with(1000).expect("who is alone may bring anything");
        assert!(gate.enter_with(0).is_none());
        drop(large);
        let (_a, b) = (gate.enter_with(60).unwrap(), gate.enter_with(40).unwrap());
        assert!(gate.enter_with(1).is_none());
        drop(b);
        assert!(gate.enter_with(40).is_some());
    }
}
