//! Remembers queries that were not small, by fingerprint. When they are repeated, they skip the small-query
//! thread.

use std::collections::VecDeque;

/// Limit on the fingerprints. Searching all of them takes less than 100 ns.
const KEPT_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct KnownLarge(VecDeque<u64>);

impl KnownLarge {
    pub(super) fn contains(&self, fingerprint: u64) -> bool {
        self.0.contains(&fingerprint)
    }

    pub(super) fn insert(&mut self, fingerprint: u64) {
        self.remove(fingerprint);
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(fingerprint);
    }

    pub(super) fn remove(&mut self, fingerprint: u64) {
        self.0.retain(|known| *known != fingerprint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_none_is_kept_twice() {
        let mut known = KnownLarge::default();
        (0..KEPT_MAX as u64).for_each(|fingerprint| known.insert(fingerprint));
        known.insert(0);
        assert_eq!(known.0.len(), KEPT_MAX);
        known.insert(1 << 32);
        assert_eq!(known.0.len(), KEPT_MAX);
        assert!(known.contains(0) && known.contains(1 << 32) && !known.contains(1), "1 was the oldest");
        known.remove(0);
        assert!(!known.contains(0));
    }
}
