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

/// Upper bound on the memory of a sum without pieces and buckets. The nodes of a map are at least half full.
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

/// What sums take besides [`SUM_BYTES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    pieces: usize,
    /// Memory of the buckets of exponential histograms.
    bucket_bytes: usize,
    /// Memory of the buckets of increments that are pieces.
    piece_bucket_bytes: usize,
}

impl Size {
    fn of(entry: &Entry) -> Self {
        let Accumulator { pieces, exponential, .. } = &entry.accumulator;
        let (bucket_bytes, piece_bucket_bytes) = exponential.as_ref().map_or((0, 0), |sum| sum.heap_bytes());
        Self { pieces: pieces.len(), bucket_bytes, piece_bucket_bytes }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            pieces: self.pieces + other.pieces,
            bucket_bytes: self.bucket_bytes + other.bucket_bytes,
            piece_bucket_bytes: self.piece_bucket_bytes + other.piece_bucket_bytes,
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            pieces: self.pieces - other.pieces,
            bucket_bytes: self.bucket_bytes - other.bucket_bytes,
            piece_bucket_bytes: self.piece_bucket_bytes - other.piece_bucket_bytes,
        }
    }

    fn of_all(of: &BTreeMap<SeriesKey, Entry>) -> Self {
        of.values().map(Self::of).fold(Self::default(), Self::plus)
    }

    const fn pieces_bytes(self) -> usize {
        self.pieces * size_of::<Piece>() + self.piece_bucket_bytes
    }
}

#[derive(Debug)]
pub(super) struct TenantSums {
    pub(super) of: BTreeMap<SeriesKey, Entry>,
    size: Size,
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
        let size = Size::default();
        Self { of: BTreeMap::new(), size, late_samples: 0, removed_ns: 0, room, room_for_pieces }
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
        let before = self.of.get(&key);
        let more_sums = usize::from(before.is_none());
        let size = self.size.minus(before.map_or_else(Size::default, Size::of)).plus(Size::of(&entry));
        let late_samples = self.late_samples + late_samples;
        let bytes = size.pieces_bytes() + late_samples * SAMPLE_BYTES;
        if bytes as u64 > self.room_for_pieces.memory.bytes() {
            self.room_for_pieces.resize(bytes, share)?;
        }
        let bytes = self.bytes(more_sums) - self.size.bucket_bytes + size.bucket_bytes;
        if bytes as u64 > self.room.memory.bytes() {
            self.room.resize(bytes, share)?;
        }
        (self.size, self.late_samples) = (size, late_samples);
        self.of.insert(key, entry);
        Ok(())
    }

    fn bytes(&self, more_sums: usize) -> usize {
        TENANT_BYTES + (self.of.len() + more_sums) * SUM_BYTES + self.size.bucket_bytes
    }

    /// Undoes a change of the group. The memory that the sum had before is still reserved.
    pub(super) fn undo(&mut self, key: SeriesKey, before: Option<Entry>) {
        self.remove(key);
        if let Some(entry) = before {
            self.size = self.size.plus(Size::of(&entry));
            self.of.insert(key, entry);
        }
    }

    pub(super) fn remove(&mut self, key: SeriesKey) -> Option<Entry> {
        let removed = self.of.remove(&key)?;
        self.size = self.size.minus(Size::of(&removed));
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
        self.size = Size::of_all(&self.of);
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
        self.room_for_pieces.shrink(self.size.pieces_bytes());
    }

    /// Memory of sums, and of pieces. Must be called between two groups.
    #[cfg(test)]
    pub(super) fn checked_bytes(&self) -> [u64; 2] {
        assert_eq!((self.size, self.late_samples), (Size::of_all(&self.of), 0));
        let bytes = [&self.room, &self.room_for_pieces].map(|room| room.memory.bytes());
        assert_eq!(bytes, [self.bytes(0), self.size.pieces_bytes()].map(|bytes| bytes as u64));
        bytes
    }
}
