//! First pass over a dictionary: finds the definitions that must become series.
//!
//! ```text
//!                             floodmark
//!   record      0    1    2    3  │  4    5    6
//!   defines     a    b    a'   c  │  d    -    b'       a', b': other series with the references of a and b
//!   samples of  a    b    a'   c  │  d    c    b'
//! ```
//!
//! Record 5 uses c, so c's definition in record 3 must become a series. d and b' become series at their own
//! definitions. The other definitions below the floodmark are skipped: they may be far more series than fit into
//! memory. Samples beyond the floodmark use only series that were in the head before the restart, so these series fit.

use super::buffers::ReservedMemory;
use super::references::{References, Slots};
use super::{Halt, Owner};
use head::EXEMPLARS_MAX;
use journal::{DictionaryId, Item, Offset, Outline, Reader, RecordError};
use model::{SeriesRef, TenantId};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use stdx::budget::{Exhausted, Reservation};

impl Owner {
    /// Finds the references that are used by data which is not in tables, from offset `from` to the end of the
    /// dictionary. They are noted in `into`.
    pub(super) fn survey(
        &self,
        dictionary: DictionaryId,
        from: Offset,
        into: &mut References,
        mut is_sealed: impl FnMut(&TenantId, Offset) -> bool,
    ) -> Result<(), Halt> {
        let mut reader = self.journal.read(from)?;
        let mut memory = self.context.replay.reserve(0)?;
        survey(&mut *reader, dictionary, into, &mut memory, |tenant, offset| Some(is_sealed(tenant, offset)))
    }
}

/// Reads the outlines of a dictionary's records. `is_sealed` tells whether a record is in its tenant's table, or
/// returns `None` if the record does not matter.
pub(super) fn survey(
    reader: &mut dyn Reader,
    dictionary: DictionaryId,
    into: &mut References,
    memory: &mut Reservation,
    mut is_sealed: impl FnMut(&TenantId, Offset) -> Option<bool>,
) -> Result<(), Halt> {
    let mut outline = Outline::new();
    let mut exemplars = Exemplars::default();
    let mut number = 0;
    while let Some(item) = reader.next()? {
        // replay will report damage and unreadable records
        let Item::Entry(entry) = item else { continue };
        if entry.dictionary != dictionary {
            break;
        }
        number += 1;
        match outline.decode(entry.payload, &mut ReservedMemory(memory)) {
            Ok(()) => {}
            Err(RecordError::NoRoom { .. }) => return Err(Halt::NoRoom),
            Err(_) => continue,
        }
        if outline.is_deleted {
            exemplars.remove(&outline.tenant);
            continue;
        }
        if outline.deletes_exemplars {
            exemplars.note_delete(&outline.tenant);
            continue;
        }
        let Some(sealed) = is_sealed(&outline.tenant, entry.offset) else { continue };
        let (slots, bought) = into.of(&outline.tenant)?;
        if sealed {
            for given in &outline.defined {
                slots.note_sealed(*given, number, bought)?;
            }
            exemplars.push(&outline, slots, memory);
        } else {
            for given in &outline.defined {
                slots.note_fresh(*given, bought)?;
            }
            for given in outline.sampled.iter().chain(&outline.exemplars) {
                slots.note_use(*given, bought)?;
            }
        }
    }
    for (tenant, ring) in &exemplars.rings {
        let (slots, bought) = into.of(tenant)?;
        for (given, definition) in &ring.entries {
            if slots.definition(*given) == *definition {
                slots.note_use(*given, bought)?;
            }
        }
    }
    Ok(())
}

/// Limit on what deletes add to the rings of all tenants, about half a MiB, besides the first delete of each tenant.
const ADDED_MAX: usize = 6 * EXEMPLARS_MAX;

/// A full ring drops what is not needed only if it has got a quarter of its limit since it did so, so that sorting takes little time.
const UNNEEDED_SHARE: usize = 4;

/// The newest exemplars of each tenant in records whose samples are in tables. Exemplars are not in tables, so their
/// series must be restored.
#[derive(Debug, Default)]
struct Exemplars {
    rings: HashMap<TenantId, Ring>,
    /// What deletes have added to the limits of all rings, besides the first delete of each tenant.
    added: usize,
}

#[derive(Debug)]
struct Ring {
    /// For each exemplar, the reference of its series and the number of the record that defines the series.
    entries: VecDeque<(SeriesRef, u32)>,
    /// As many exemplars as the head may have got since it got the oldest one that it keeps: as many as it keeps at a time,
    /// and as many again for each delete, which made room for them, but see [`ADDED_MAX`]. Deletes may have made room for more.
    /// So after a delete, entries that are not needed are dropped first: series that get exemplars again and again, which are
    /// deleted each time, must not drop the exemplars of others.
    limit: usize,
    /// Number of entries that were pushed since those that are not needed were dropped.
    pushed: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Self { entries: VecDeque::new(), limit: EXEMPLARS_MAX, pushed: 0 }
    }
}

impl Exemplars {
    /// Adds the exemplars of a record. If there are as many as the limit, or memory runs out, repeats or the oldest are dropped.
    fn push(&mut self, outline: &Outline, slots: &Slots, memory: &mut Reservation) {
        if outline.exemplars.is_empty() {
            return;
        }
        let ring = self.rings.entry(outline.tenant.clone()).or_default();
        for given in &outline.exemplars {
            if ring.entries.len() == ring.entries.capacity()
                && ring.grow(slots, memory).is_err()
                && ring.entries.len() == ring.entries.capacity()
            {
                ring.entries.pop_front();
            }
            if ring.entries.len() < ring.entries.capacity() {
                ring.entries.push_back((*given, slots.definition(*given)));
                ring.pushed += 1;
            }
        }
    }

    fn remove(&mut self, tenant: &TenantId) {
        if let Some(ring) = self.rings.remove(tenant) {
            self.added -= ring.limit.saturating_sub(2 * EXEMPLARS_MAX);
        }
    }

    /// Exemplars were deleted, it is unknown which. Those of other series must be restored, even if more exemplars follow
    /// than the head keeps together with those that were deleted. Series that are then not needed are evicted after replay.
    fn note_delete(&mut self, tenant: &TenantId) {
        if let Some(ring) = self.rings.get_mut(tenant) {
            let is_first = ring.limit == EXEMPLARS_MAX;
            let more = if is_first { EXEMPLARS_MAX } else { EXEMPLARS_MAX.min(ADDED_MAX - self.added) };
            ring.limit += more;
            self.added += if is_first { 0 } else { more };
        }
    }
}

impl Ring {
    /// Doubles the capacity, up to the limit. At the limit, drops what is not needed or the oldest exemplar instead.
    fn grow(&mut self, slots: &Slots, memory: &mut Reservation) -> Result<(), Exhausted> {
        let len = self.entries.len();
        let more = len.max(64).min(self.limit.saturating_sub(len));
        if more > 0 {
            memory.resize(memory.bytes() + (more * size_of::<(SeriesRef, u32)>()) as u64)?;
            self.entries.reserve_exact(more);
            return Ok(());
        }
        // without deletes, the head has dropped the exemplars that no longer fit, whether or not later ones are repeats
        let has_deletes = self.limit > EXEMPLARS_MAX;
        if has_deletes && self.pushed >= self.limit / UNNEEDED_SHARE {
            self.drop_unneeded(slots, memory)?;
        }
        if self.entries.len() >= self.limit {
            self.entries.pop_front();
        }
        Ok(())
    }

    /// Drops entries of series whose reference was given to another one, because the head has evicted them with their exemplars.
    /// Also drops entries that are repeated by later ones, which is all that restoring their series needs.
    fn drop_unneeded(&mut self, slots: &Slots, memory: &mut Reservation) -> Result<(), Exhausted> {
        // also if memory runs out below: otherwise, each further exemplar would visit all entries again
        self.pushed = 0;
        self.entries.retain(|(given, definition)| slots.definition(*given) == *definition);
        let held_bytes = memory.bytes();
        memory.resize(held_bytes + (self.entries.len() * size_of::<((SeriesRef, u32), u32)>()) as u64)?;
        let mut newest: Vec<_> = self.entries.iter().copied().zip(0u32..).collect();
        newest.sort_unstable_by_key(|(entry, position)| (*entry, Reverse(*position)));
        newest.dedup_by_key(|(entry, _)| *entry);
        newest.sort_unstable_by_key(|(_, position)| *position);
        self.entries.clear();
        self.entries.extend(newest.into_iter().map(|(entry, _)| entry));
        memory.resize(held_bytes).expect("BUG: a reservation cannot shrink");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::budget::Account;

    #[test]
    fn exemplars_for_which_there_is_no_memory_do_not_visit_the_ring_again_and_again() {
        let (account, limit) = (Account::new("test", 1 << 20), 2 * EXEMPLARS_MAX);
        let mut references = References::new(account.reserve(0).unwrap());
        let (slots, _) = references.of(&TenantId::anonymous()).unwrap();
        let entries = (0..limit as u32).map(|given| (SeriesRef(given), slots.definition(SeriesRef(given))));
        let mut ring = Ring { entries: entries.collect(), limit, pushed: limit };
        let mut memory = account.reserve(account.limit_bytes() - account.used_bytes()).unwrap();
        assert!(ring.grow(slots, &mut memory).is_err());
        assert_eq!((ring.entries.len(), ring.pushed), (limit, 0));
        assert!(ring.grow(slots, &mut memory).is_ok(), "drops the oldest, without visiting the others");
        assert_eq!(ring.entries.len(), limit - 1);
    }
}
