//! The newest exemplars of a tenant: a ring, because they are examples and not data.

use model::{Exemplar, SeriesRef};
use std::collections::VecDeque;

/// Exemplars kept for one tenant in one partition.
const KEPT_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Exemplars {
    ring: VecDeque<(SeriesRef, Exemplar)>,
    label_bytes: usize,
}

impl Exemplars {
    pub(crate) fn push(&mut self, series: SeriesRef, exemplar: Exemplar) {
        if self.ring.iter().rev().take(64).any(|(s, e)| *s == series && *e == exemplar) {
            return; // senders repeat an exemplar with every scrape until a newer one comes
        }
        if self.ring.len() >= KEPT_MAX
            && let Some((_, oldest)) = self.ring.pop_front()
        {
            self.label_bytes -= oldest.labels.as_bytes().len();
        }
        self.label_bytes += exemplar.labels.as_bytes().len();
        self.ring.push_back((series, exemplar));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(SeriesRef, Exemplar)> {
        self.ring.iter()
    }

    /// Bytes of memory, in constant time: somebody asks with every write.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring.capacity() * size_of::<(SeriesRef, Exemplar)>() + self.label_bytes
    }
}
