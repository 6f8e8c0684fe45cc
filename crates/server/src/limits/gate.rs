//! A gate (concurrency limiter) that requests enter and leave on any thread.

use parking_lot::Mutex;
use std::sync::Arc;

/// Bounded count of requests. Cloning gives another handle.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Mutex<admission::Gate>>);

/// A request's place inside; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    bytes: u64,
}

impl Gate {
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_bytes(limit, u64::MAX)
    }

    /// Gate that also limits the bytes of all requests inside to `bytes_limit`, which a single request may exceed while it is
    /// alone.
    pub(crate) fn with_bytes(limit: usize, bytes_limit: u64) -> Self {
        Self(Arc::new(Mutex::new(admission::Gate::with_bytes(limit, bytes_limit))))
    }

    /// Enters; `None` if the gate is full.
    pub(crate) fn enter(&self) -> Option<Pass> {
        self.enter_with(0)
    }

    /// Enters with `bytes`; `None` if the gate is full.
    pub(crate) fn enter_with(&self, bytes: u64) -> Option<Pass> {
        self.0.lock().enter(bytes).then(|| Pass { gate: self.clone(), bytes })
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.lock().inside()
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.lock().peak()
    }

    pub(crate) fn limit(&self) -> usize {
        self.0.lock().limit()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.0.lock().leave(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_pass_makes_room() {
        let gate = Gate::with_bytes(2, 100);
        let (a, _b) = (gate.enter_with(60).unwrap(), gate.enter_with(40).unwrap());
        assert!(gate.enter().is_none());
        drop(a);
        assert!(gate.enter_with(60).is_some());
        assert_eq!((gate.inside(), gate.peak(), gate.limit()), (1, 2, 2));
    }
}
