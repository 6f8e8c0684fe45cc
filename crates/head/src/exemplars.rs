//! The newest exemplars of a tenant, in a ring.

use model::{Exemplar, SeriesRef};
use std::collections::VecDeque;

/// Maximum number of exemplars of one tenant in one partition.
pub const EXEMPLARS_MAX: usize = 10_000;

const ENTRY_BYTES: usize = size_of::<(SeriesRef, Exemplar)>();

#[derive(Debug, Default)]
pub(crate) struct Exemplars {
    ring: VecDeque<(SeriesRef, Exemplar)>,
    label_bytes: usize,
    /// Number of exemplars dropped so far. Exemplars are numbered from 0 in order of arrival, so this is also
    /// the number of the oldest exemplar that is still in the ring.
    left: u64,
    /// Number of exemplars stored so far.
    got: u64,
    /// Number of exemplars removed by [`Self::retain`] so far. The numbers of later exemplars have become smaller by this.
    removed: u64,
}

impl Exemplars {
    pub(crate) fn push(&mut self, series: SeriesRef, exemplar: Exemplar) {
        if self.ring.iter().rev().take(64).any(|(s, e)| *s == series && *e == exemplar) {
            return; // senders repeat an exemplar with every scrape until a newer one comes
        }
        if self.ring.len() >= EXEMPLARS_MAX {
            self.drop_oldest();
        }
        if self.ring.len() == self.ring.capacity() {
            // grows in small steps, because doubling would take memory away from other tenants
            self.ring.reserve_exact((self.ring.len() / 8).max(16));
        }
        self.label_bytes += exemplar.labels.as_bytes().len();
        self.got += 1;
        self.ring.push_back((series, exemplar));
    }

    /// Drops the oldest exemplars until the rest takes at most `bytes`. Returns the number of dropped
    /// exemplars.
    pub(crate) fn trim(&mut self, bytes: usize) -> u64 {
        let before = self.left;
        while self.ring.len() * ENTRY_BYTES + self.label_bytes > bytes {
            self.drop_oldest();
        }
        if self.memory_bytes() > bytes {
            self.ring.shrink_to_fit();
        }
        self.left - before
    }

    /// Takes all exemplars out. Later exemplars continue the numbering.
    pub(crate) fn take(&mut self) -> Self {
        let left = self.left + self.ring.len() as u64;
        std::mem::replace(self, Self { left, got: self.got, removed: self.removed, ..Self::default() })
    }

    fn drop_oldest(&mut self) {
        if let Some((_, oldest)) = self.ring.pop_front() {
            self.label_bytes -= oldest.labels.as_bytes().len();
            self.left += 1;
        }
    }

    pub(crate) fn retain(&mut self, keeps: impl Fn(SeriesRef, &Exemplar) -> bool) {
        let (label_bytes, before) = (&mut self.label_bytes, self.ring.len());
        self.ring.retain(|(series, exemplar)| {
            let keeps = keeps(*series, exemplar);
            *label_bytes -= if keeps { 0 } else { exemplar.labels.as_bytes().len() };
            keeps
        });
        self.removed += (before - self.ring.len()) as u64;
        if self.ring.len() < self.ring.capacity() / 4 {
            self.ring.shrink_to_fit();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(SeriesRef, Exemplar)> {
        self.ring.iter()
    }

    pub(crate) const fn removed(&self) -> u64 {
        self.removed
    }

    pub(crate) const fn got(&self) -> u64 {
        self.got
    }

    /// Exemplars that were stored after [`Self::got`] was `got`, and perhaps some older ones.
    pub(crate) fn newer_than(&self, got: u64) -> impl Iterator<Item = &(SeriesRef, Exemplar)> {
        let count = usize::try_from(self.got.saturating_sub(got)).unwrap_or(usize::MAX);
        self.ring.iter().rev().take(count)
    }

    /// Exemplars with the number `from` or a higher one, each with its number. They are numbered in the order
    /// of arrival.
    pub(crate) fn iter_from(&self, from: u64) -> impl Iterator<Item = (u64, &SeriesRef, &Exemplar)> {
        let skipped =
            usize::try_from(from.saturating_sub(self.left)).unwrap_or(usize::MAX).min(self.ring.len());
        let numbers = self.left + skipped as u64..;
        self.ring.range(skipped..).zip(numbers).map(|((series, exemplar), number)| (number, series, exemplar))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring.capacity() * ENTRY_BYTES + self.label_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;

    #[test]
    fn bytes_are_counted_as_they_come_and_go() {
        let mut exemplars = Exemplars::default();
        for i in 0..EXEMPLARS_MAX + 2000 {
            let labels = Labels::from_pairs(&[("trace", &"x".repeat(i % 50))]);
            exemplars.push(SeriesRef(1), Exemplar { labels, timestamp_ms: i as i64, value: 1.0 });
        }
        let held: usize = exemplars.iter().map(|(_, e)| e.labels.as_bytes().len()).sum();
        assert_eq!((exemplars.ring.len(), exemplars.label_bytes), (EXEMPLARS_MAX, held));
        let newest = exemplars.iter().last().cloned();
        let (bytes, len) = (exemplars.memory_bytes() / 3, exemplars.ring.len() as u64);
        let dropped = exemplars.trim(bytes);
        assert!(exemplars.memory_bytes() <= bytes && exemplars.memory_bytes() > bytes / 4 * 3);
        assert_eq!((exemplars.ring.len() as u64, exemplars.iter().last().cloned()), (len - dropped, newest));
        assert_eq!(exemplars.trim(0), len - dropped);
        assert_eq!((exemplars.memory_bytes(), exemplars.label_bytes), (0, 0));
    }
}
