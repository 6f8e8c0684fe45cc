//! A limit on concurrent requests, usable from any thread.

use admission::gate::{self, Entrant, Full, Inside};
use model::TenantId;
use parking_lot::Mutex;
use std::sync::Arc;

/// Lets in a limited number of requests, of which each tenant gets a fair share. Clones are handles of the
/// same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Mutex<gate::Gate>>);

#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    tenant: TenantId,
    bytes: u64,
}

impl Gate {
    /// Creates a gate for many requests at a time. For only a few, use [`Self::of_few`].
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_bytes(limit, u64::MAX)
    }

    /// Creates a gate that also limits the bytes of all requests inside. A request that is larger than this limit may
    /// enter while the gate is empty.
    pub(crate) fn with_bytes(limit: usize, bytes_limit: u64) -> Self {
        Self::of(gate::Gate::with_bytes(limit, bytes_limit, gate::MULTIPLE))
    }

    /// Creates a gate for a few requests that stay inside for long, such as exports.
    pub(crate) fn of_few(limit: usize) -> Self {
        Self::of(gate::Gate::new(limit, gate::MULTIPLE_OF_FEW))
    }

    fn of(gate: gate::Gate) -> Self {
        Self(Arc::new(Mutex::new(gate)))
    }

    pub(crate) fn enter(&self, entrant: Entrant<'_>) -> Result<Pass, Full> {
        self.0.lock().enter(entrant)?;
        Ok(Pass { gate: self.clone(), tenant: entrant.tenant.clone(), bytes: entrant.bytes })
    }

    pub(crate) fn inside(&self) -> usize {
        self.0.lock().inside()
    }

    pub(crate) fn inside_of(&self, tenant: &TenantId) -> Inside {
        self.0.lock().of(tenant)
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
        self.gate.0.lock().leave(&self.tenant, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_pass_makes_room() {
        let gate = Gate::with_bytes(2, 100);
        let (a, b) = (TenantId::parse("a").unwrap(), TenantId::parse("b").unwrap());
        let enter = |tenant, bytes| gate.enter(Entrant { tenant, weight: 1, limit: None, bytes });
        let (first, _second) = (enter(&a, 60).unwrap(), enter(&b, 40).unwrap());
        assert!(enter(&a, 0).is_err());
        drop(first);
        assert!(enter(&a, 60).is_ok());
        assert_eq!((gate.inside(), gate.peak(), gate.limit()), (1, 2, 2));
    }
}
