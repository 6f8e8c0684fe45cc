//! How many may be inside at once. Nobody waits at a gate: who finds it full is turned away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bounded count of those inside. Cloning gives another handle.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    inside: AtomicUsize,
    peak: AtomicUsize,
    limit: usize,
}

/// Somebody inside; dropping it is leaving.
#[derive(Debug)]
pub(crate) struct Pass(Gate);

impl Gate {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Counts { inside: AtomicUsize::new(0), peak: AtomicUsize::new(0), limit }))
    }

    /// Enters, unless it is full.
    pub(crate) fn enter(&self) -> Option<Pass> {
        let enter = |inside| (inside < self.0.limit).then_some(inside + 1);
        let before = self.0.inside.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).ok()?;
        self.0.peak.fetch_max(before + 1, Ordering::Relaxed);
        Some(Pass(self.clone()))
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.inside.load(Ordering::Relaxed)
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.limit
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.0.inside.fetch_sub(1, Ordering::AcqRel);
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
}
