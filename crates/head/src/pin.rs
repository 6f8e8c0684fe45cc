//! Pins and leases keep references to series valid. Each belongs to a generation, which tells whether a reader may
//! still hold old references.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Guard that keeps references to series valid ([`crate::Partition::pin`]).
#[derive(Debug, Clone)]
#[must_use]
pub struct Pin {
    _generation: Arc<()>,
}

/// Like a [`Pin`], but it can be revoked, because its holder may wait for a client
/// ([`crate::Partition::lease`]).
#[derive(Debug)]
#[must_use]
pub struct Lease {
    is_revoked: Arc<AtomicBool>,
}

impl Lease {
    /// True if the holder's references may be invalid. Ask before each use, with the partition locked.
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }
}

/// The pins and leases of a partition. There are at most two generations.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    now: Generation,
    before: Generation,
    number: u64,
}

/// All pins of a generation are clones of one `Arc`, and all leases are clones of another.
#[derive(Debug, Default)]
struct Generation {
    pins: Arc<()>,
    are_leases_revoked: Arc<AtomicBool>,
}

impl Pins {
    pub(crate) fn pin(&self) -> Pin {
        Pin { _generation: Arc::clone(&self.now.pins) }
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease { is_revoked: Arc::clone(&self.now.are_leases_revoked) }
    }

    /// Begins a generation. All pins and leases of the generation before the current one must be gone.
    pub(crate) fn turn_over(&mut self) {
        assert!(self.are_gone(), "BUG: pins of an earlier generation are still held");
        std::mem::swap(&mut self.now, &mut self.before);
        self.number += 1;
    }

    /// Number of the current generation.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// True if all pins and leases taken before the last [`Self::turn_over`] are dropped or revoked.
    pub(crate) fn are_gone(&self) -> bool {
        // nobody can take a new pin of that generation, except by cloning a held one
        Arc::strong_count(&self.before.pins) == 1 && Arc::strong_count(&self.before.are_leases_revoked) == 1
    }

    /// Revokes the leases taken before the last [`Self::turn_over`].
    pub(crate) fn revoke_leases(&mut self) {
        let revoked = std::mem::take(&mut self.before.are_leases_revoked);
        revoked.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_of_the_previous_generation_differ_from_later_ones() {
        let mut pins = Pins::default();
        let first = pins.pin();
        pins.turn_over();
        assert!(!pins.are_gone());
        let second = pins.pin();
        let again = first.clone();
        drop(first);
        assert!(!pins.are_gone());
        drop(again);
        assert!(pins.are_gone());
        pins.turn_over();
        assert!(!pins.are_gone());
        drop(second);
        assert!(pins.are_gone());
    }

    #[test]
    fn a_lease_counts_until_it_is_dropped_or_revoked() {
        let mut pins = Pins::default();
        let (first, dropped) = (pins.lease(), pins.lease());
        pins.turn_over();
        let later = pins.lease();
        drop(dropped);
        assert!(!pins.are_gone() && !first.is_revoked());
        pins.revoke_leases();
        assert!(pins.are_gone() && first.is_revoked() && !later.is_revoked());
        pins.turn_over();
        assert!(!pins.are_gone(), "the later lease counts");
        drop(later);
        assert!(pins.are_gone() && !pins.lease().is_revoked());
    }
}
