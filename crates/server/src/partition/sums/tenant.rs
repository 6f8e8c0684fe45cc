//! The sums of a tenant in one partition, and their memory.
//!
//! Sums have an account, and their pieces have another. A tenant has a share of each, so it cannot use up what others need.

use super::Entry;
use crate::limits::head_memory::HeadMemory;
use admission::gate::MULTIPLE;
use model::accumulator::Piece;
use model::{Accumulator, SeriesKey, SeriesRef};
use std::collections::BTreeMap;
use stdx::budget::{Account, Exhausted, Reservation};

/// Upper bound on the memory of a sum without pieces. The nodes of a map are at least half full.
pub(super) const SUM_BYTES: usize = 2 * size_of::<(SeriesKey, Entry)>() + 16;

/// Memory of a tenant without sums.
const TENANT_BYTES: usize = 1024;

/// Memory of a sample from when its increment is added until the end of the group.
pub(super) const SAMPLE_BYTES: usize = size_of::<SeriesRef>() + size_of::<i64>() + size_of::<f64>();

/// The share of a tenant in an account, as a multiple of the bytes that are free in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share(u64);

impl Share {
    /// For sums that had memory before, in whatever order they are restored.
    pub(super) const ALL: Self = Self(u64::MAX);

    /// For a tenant of this weight. It has sums in all partitions.
    pub(super) fn of(heads: &HeadMemory, weight: usize) -> Self {
        Self((MULTIPLE * weight as u64 / heads.partition_count() as u64).max(1))
    }
}

#[derive(Debug)]
struct Room {
    account: Account,
    memory: Reservation,
}

impl Room {
    fn within(whole: &Account) -> Self {
        let account = whole.part();
        let memory = account.reserve(0).expect("BUG: no memory was asked for");
        Self { account, memory }
    }

    fn resize(&mut self, bytes: usize, share: Share) -> Result<(), Exhausted> {
        let limit_bytes = self.account.whole().limit_bytes();
        // the only tenant, too, must leave something
        self.account.share(share.0, limit_bytes - limit_bytes / share.0.saturating_add(1));
        self.memory.resize(bytes as u64)
    }

    fn shrink(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        if bytes < self.memory.bytes() {
            self.memory.resize(bytes).expect("BUG: a reservation cannot shrink");
        }
    }
}

#[derive(Debug)]
pub(super) struct TenantSums {
    pub(super) of: BTreeMap<SeriesKey, Entry>,
    pieces: usize,
    /// Number of samples that late increments of the group became, besides one for each increment.
    late_samples: usize,
    /// Restored sums were removed whose newest increment ended at this time or before.
    removed_ns: u64,
    room: Room,
    room_for_pieces: Room,
}

impl TenantSums {
    pub(super) fn new(heads: &HeadMemory) -> Self {
        let (room, room_for_pieces) = (Room::within(&heads.sums), Room::within(&heads.pieces));
        Self { of: BTreeMap::new(), pieces: 0, late_samples: 0, removed_ns: 0, room, room_for_pieces }
    }

    /// Reserves memory for one more sum.
    pub(super) fn make_room(&mut self, share: Share) -> Result<(), Exhausted> {
        self.room.resize(self.bytes(1), share)
    }

    /// Puts a sum. On failure, nothing has changed.
    ///
    /// `late_samples` is the number of samples that its increment became, besides one. Memory that the sum does not need any more is
    /// kept until the end of the group, which may be undone.
    pub(super) fn put(
        &mut self,
        key: SeriesKey,
        entry: Entry,
        late_samples: usize,
        share: Share,
    ) -> Result<(), Exhausted> {
        let pieces_of = |entry: &Entry| entry.accumulator.pieces.len();
        let pieces = self.pieces + pieces_of(&entry) - self.of.get(&key).map_or(0, pieces_of);
        let late_samples = self.late_samples + late_samples;
        let bytes = pieces * size_of::<Piece>() + late_samples * SAMPLE_BYTES;
        if bytes as u64 > self.room_for_pieces.memory.bytes() {
            self.room_for_pieces.resize(bytes, share)?;
        }
        (self.pieces, self.late_samples) = (pieces, late_samples);
        self.of.insert(key, entry);
        Ok(())
    }

    fn bytes(&self, more_sums: usize) -> usize {
        TENANT_BYTES + (self.of.len() + more_sums) * SUM_BYTES
    }

    fn pieces_bytes(&self) -> usize {
        self.pieces * size_of::<Piece>()
    }

    /// Undoes a change of the group. The memory that the sum had before is still reserved.
    pub(super) fn undo(&mut self, key: SeriesKey, before: Option<Entry>) {
        self.remove(key);
        if let Some(entry) = before {
            self.pieces += entry.accumulator.pieces.len();
            self.of.insert(key, entry);
        }
    }

    pub(super) fn remove(&mut self, key: SeriesKey) -> Option<Entry> {
        let removed = self.of.remove(&key)?;
        self.pieces -= removed.accumulator.pieces.len();
        Some(removed)
    }

    /// Removes restored sums that may have been removed before, because all up to `forgotten_ns` may have been. Returns their number.
    pub(super) fn forget_restored(&mut self, forgotten_ns: u64) -> usize {
        // as long as nothing more is forgotten, none of those that remain can be removed
        if forgotten_ns <= self.removed_ns {
            return 0;
        }
        self.removed_ns = forgotten_ns;
        let before = self.of.len();
        self.of.retain(|_, entry| entry.accumulator.newest_ns() > forgotten_ns);
        self.pieces = self.of.values().map(|entry| entry.accumulator.pieces.len()).sum();
        self.settle();
        before - self.of.len()
    }

    /// True if such a sum would have been removed.
    pub(super) fn is_forgotten(&self, accumulator: &Accumulator) -> bool {
        accumulator.newest_ns() <= self.removed_ns
    }

    /// Gives back memory that is not needed any more. Must be called between two groups.
    pub(super) fn settle(&mut self) {
        self.late_samples = 0;
        self.room.shrink(self.bytes(0));
        self.room_for_pieces.shrink(self.pieces_bytes());
    }

    /// Memory of sums, and of pieces. Must be called between two groups.
    #[cfg(test)]
    pub(super) fn checked_bytes(&self) -> [u64; 2] {
        let pieces = self.of.values().map(|entry| entry.accumulator.pieces.len()).sum::<usize>();
        assert_eq!((self.pieces, self.late_samples), (pieces, 0));
        let bytes = [&self.room, &self.room_for_pieces].map(|room| room.memory.bytes());
        assert_eq!(bytes, [self.bytes(0), self.pieces_bytes()].map(|bytes| bytes as u64));
        bytes
    }
}
