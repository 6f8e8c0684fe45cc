//! How many requests run at once, and the bytes that they hold. A gate does not queue: a full one refuses.

/// A bounded count of requests.
#[derive(Debug)]
pub struct Gate {
    limit: usize,
    bytes_limit: u64,
    inside: usize,
    peak: usize,
    bytes: u64,
}

impl Gate {
    /// An empty gate for `limit` requests that hold up to `bytes_limit` together. A request that is alone may hold more.
    pub const fn with_bytes(limit: usize, bytes_limit: u64) -> Self {
        Self { limit, bytes_limit, inside: 0, peak: 0, bytes: 0 }
    }

    /// Lets a request in that holds `bytes`, unless it is full.
    #[must_use]
    pub fn enter(&mut self, bytes: u64) -> bool {
        let fits = self.inside < self.limit && self.bytes.saturating_add(bytes) <= self.bytes_limit;
        if self.inside > 0 && !fits {
            return false;
        }
        self.inside += 1;
        self.peak = self.peak.max(self.inside);
        self.bytes = self.bytes.saturating_add(bytes);
        true
    }

    /// A request leaves that was let in with `bytes`.
    pub const fn leave(&mut self, bytes: u64) {
        self.inside -= 1;
        self.bytes -= bytes;
    }

    /// How many may be inside.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// How many are inside.
    pub const fn inside(&self) -> usize {
        self.inside
    }

    /// The most that were ever inside.
    pub const fn peak(&self) -> usize {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_bounded_by_number() {
        let mut gate = Gate::with_bytes(2, u64::MAX);
        assert!(gate.enter(0) && gate.enter(0) && !gate.enter(0));
        gate.leave(0);
        assert!(gate.enter(0));
        assert_eq!((gate.inside(), gate.peak()), (2, 2));
    }

    #[test]
    fn requests_are_bounded_by_bytes_unless_alone() {
        let mut gate = Gate::with_bytes(3, 100);
        assert!(gate.enter(1000), "a request that is alone may bring anything");
        assert!(!gate.enter(0));
        gate.leave(1000);
        assert!(gate.enter(60) && gate.enter(40) && !gate.enter(1));
        gate.leave(40);
        assert!(gate.enter(40));
    }
}
