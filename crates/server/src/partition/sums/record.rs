//! Puts the sums of a submission into the same records as its samples.
//!
//! A record has the sum of each of its series as it is after the last of its samples, even if the submission goes on in other
//! records: a crash may keep only the first of them.

use super::{Change, Sums};
use crate::partition::submission::Changed;
use journal::RecordEncoder;
use model::{Accumulator, SeriesKey, TenantId};

/// A record gets at most this many sums, so that its replay needs little memory.
const SUMS_MAX: usize = 16 << 10;

/// Which sums of a submission are in the current record.
#[derive(Debug)]
pub(in crate::partition) struct Progress<'a> {
    changed: &'a [Changed],
    /// The first that belongs to the current record.
    first: usize,
    /// The first that belongs to a later record.
    next: usize,
    /// All of them, sorted by key. Only made if the submission takes several records.
    by_key: Option<Vec<u32>>,
}

impl<'a> Progress<'a> {
    pub(in crate::partition) const fn new(changed: &'a [Changed]) -> Self {
        Self { changed, first: 0, next: 0, by_key: None }
    }

    /// True if a record may end before this sample: the samples of one increment belong together.
    pub(in crate::partition) fn may_end_before(&self, sample: usize) -> bool {
        self.changed.get(self.next).is_none_or(|changed| sample <= changed.first)
    }

    pub(in crate::partition) const fn is_full(&self) -> bool {
        self.next - self.first >= SUMS_MAX
    }

    /// Must be called after each sample.
    pub(in crate::partition) fn passed(&mut self, sample: usize) {
        while self.changed.get(self.next).is_some_and(|changed| changed.last == sample) {
            self.next += 1;
        }
    }

    /// Writes the sums of the current record. Must be called before it is finished.
    pub(in crate::partition) fn finish(
        &mut self,
        tenant: &TenantId,
        sums: &Sums,
        encoder: &mut RecordEncoder,
    ) {
        if self.first == self.next {
            return;
        }
        encoder.forgotten(sums.forgotten_ns(tenant));
        if self.next < self.changed.len() && self.by_key.is_none() {
            let mut by_key: Vec<_> = (0..self.changed.len() as u32).collect();
            by_key.sort_by_key(|number| (self.changed[*number as usize].key, *number));
            self.by_key = Some(by_key);
        }
        for changed in &self.changed[self.first..self.next] {
            let sum = self
                .later(changed.key)
                .map_or_else(|| sums.get(tenant, changed.key), |later| sums.before(later.change));
            encoder.sum(changed.key, sum.expect("BUG: a sum that was changed is missing"));
        }
        self.first = self.next;
    }

    /// The first change of a sum that is not in this record or in earlier ones.
    fn later(&self, key: SeriesKey) -> Option<&Changed> {
        let by_key = self.by_key.as_ref()?;
        let place = |number: &u32| (self.changed[*number as usize].key, *number) < (key, self.next as u32);
        let found = by_key.get(by_key.partition_point(place))?;
        Some(&self.changed[*found as usize]).filter(|changed| changed.key == key)
    }
}

impl Sums {
    /// A sum as it was before a change of the group that is being written.
    fn before(&self, change: u32) -> Option<&Accumulator> {
        let Change { before, .. } = self.changes.get(change as usize)?;
        before.as_ref().map(|entry| &entry.accumulator)
    }
}
