//! Pins keep references to series valid. Each belongs to a generation, which tells whether a reader may still
//! hold old references.

use std::sync::Arc;

/// Guard that keeps references to series valid ([`crate::Partition::pin`]).
#[derive(Debug, Clone)]
#[must_use]
pub struct Pin {
    _generation: Arc<()>,
}

/// The pins of a partition. All pins of a generation are clones of one `Arc`. There are at most two
/// generations.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    now: Arc<()>,
    before: Arc<()>,
}

impl Pins {
    pub(crate) fn pin(&self) -> Pin {
        Pin { _generation: Arc::clone(&self.now) }
    }

    /// Begins a generation. All pins of the generation before the current one must be gone.
    pub(crate) fn turn_over(&mut self) {
        assert!(self.are_gone(), "BUG: pins of an earlier generation are still held");
        std::mem::swap(&mut self.now, &mut self.before);
    }

    /// True if all pins taken before the last [`Self::turn_over`] are dropped.
    pub(crate) fn are_gone(&self) -> bool {
        // nobody can take a new pin of that generation, except by cloning a held one
        Arc::strong_count(&self.before) == 1
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
}
