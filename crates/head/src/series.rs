//! The hot state of one series.

use crate::chunk::{Chunk, OpenChunk};
use model::{Samples, TimeRange};

/// 64 bytes, one cache line: what an append touches besides the chunk's own bytes.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) open: OpenChunk,
    /// Boxed because most series of a churning fleet have none.
    sealed: Option<Box<Sealed>>,
    /// When a sample last came, in seconds of the caller's clock.
    pub(crate) seen_s: u32,
    /// [`ACTIVE`] and the like, in one byte, so that an append compares them all at once.
    pub(crate) state: u8,
    /// It has samples in the late store.
    pub(crate) late: bool,
    /// It has samples in the store of what was late before the last freeze.
    pub(crate) frozen_late: bool,
}

const _: () = assert!(size_of::<Series>() == 64);

/// Counted among the tenant's active series.
pub(crate) const ACTIVE: u8 = 1;
/// Alternates from freeze to freeze: where it is not the head's, nothing came since the last one, and all
/// samples of the series are frozen.
pub(crate) const EPOCH: u8 = 2;

/// Nobody finds it by its key any more (see [`crate::evict`]).
pub(crate) const UNLINKED: u8 = 4;
/// Its number belongs to nobody, or soon will.
pub(crate) const GONE: u8 = 8;

/// Tombstone of a removed series.
impl Default for Series {
    fn default() -> Self {
        Self {
            open: OpenChunk::default(),
            sealed: None,
            seen_s: 0,
            state: GONE,
            late: false,
            frozen_late: false,
        }
    }
}

/// Chunks that no longer grow.
#[derive(Debug, Default)]
struct Sealed {
    /// Oldest first.
    chunks: Vec<Chunk>,
    /// How many of them are frozen.
    frozen: u32,
}

impl Series {
    /// A series without samples in a head of this [`EPOCH`].
    pub(crate) fn new(epoch: u8) -> Self {
        Self { state: epoch, ..Self::default() }
    }

    /// Adds a sample newer than all that are held; says by how many bytes memory changed.
    #[inline]
    pub(crate) fn append(&mut self, timestamp_ms: i64, value: f64) -> isize {
        let before = self.open.heap_bytes();
        if self.open.append(timestamp_ms, value).is_ok() {
            return (self.open.heap_bytes() - before) as isize;
        }
        self.roll(timestamp_ms, value)
    }

    #[cold]
    fn roll(&mut self, timestamp_ms: i64, value: f64) -> isize {
        let before = self.heap_bytes();
        self.seal();
        self.open.append(timestamp_ms, value).expect("BUG: an empty chunk takes any sample");
        self.heap_bytes() as isize - before as isize
    }

    /// Moves the open chunk to the sealed ones.
    fn seal(&mut self) {
        let Some(chunk) = self.open.seal() else { return };
        let chunks = &mut self.sealed.get_or_insert_default().chunks;
        if chunks.len() == chunks.capacity() {
            chunks.reserve_exact((chunks.len() / 4).max(1));
        }
        chunks.push(chunk);
    }

    /// Makes a series ready for samples that come after a pause or a freeze: its state is to be `awake` then. Says
    /// by how many bytes memory changed.
    #[cold]
    pub(crate) fn wake(&mut self, awake: u8) -> isize {
        assert!(self.state & GONE == 0, "BUG: a sample for an evicted series: was it pinned?");
        let changed = if (self.state ^ awake) & EPOCH != 0 { self.set_apart() } else { 0 };
        self.state = awake;
        changed
    }

    /// Sets everything apart as frozen; says by how many bytes memory changed.
    fn set_apart(&mut self) -> isize {
        let before = self.heap_bytes();
        let newest = self.newest_value();
        self.seal();
        self.open.clear();
        newest.into_iter().for_each(|value| self.open.remember(value));
        if let Some(sealed) = &mut self.sealed {
            sealed.frozen = sealed.chunks.len() as u32;
        }
        (self.frozen_late, self.late) = (self.late, false);
        self.heap_bytes() as isize - before as isize
    }

    /// Lets go of what is frozen, which is everything where `whole`; says by how many bytes memory changed. The newest
    /// value goes too: once a sample has left, only its table knows whether it is still there.
    pub(crate) fn release(&mut self, whole: bool) -> isize {
        let before = self.heap_bytes();
        if whole {
            self.sealed = None;
            self.late = false;
        } else if let Some(sealed) = &mut self.sealed {
            sealed.chunks.drain(..sealed.frozen as usize);
            sealed.chunks.shrink_to_fit();
            sealed.frozen = 0;
            if sealed.chunks.is_empty() {
                self.sealed = None;
            }
        }
        if whole || self.open.count() == 0 {
            self.open.clear();
        }
        self.frozen_late = false;
        self.heap_bytes() as isize - before as isize
    }

    /// True for a sample as new as the newest, of a series that holds none any more: it is stored like a newer one.
    pub(crate) const fn is_newest_released(&self, timestamp_ms: i64) -> bool {
        timestamp_ms == self.open.last_ms() && self.is_empty() && !self.late && !self.frozen_late
    }

    /// The value of the newest sample, where that is known for sure: one that came late may have replaced it.
    fn newest_value(&self) -> Option<f64> {
        if self.late { None } else { self.open.last_value() }
    }

    /// True where nothing in order is held.
    pub(crate) const fn is_empty(&self) -> bool {
        self.open.count() == 0 && self.sealed.is_none()
    }

    /// True where chunks were set apart.
    pub(crate) fn has_frozen_chunks(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.frozen > 0)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| {
            let unused = sealed.chunks.capacity() - sealed.chunks.len();
            let chunks = sealed.chunks.iter().map(Chunk::memory_bytes).sum::<usize>();
            size_of::<Sealed>() + chunks + unused * size_of::<Chunk>()
        });
        self.open.heap_bytes() + sealed
    }

    /// Appends the samples in `range` that came in order.
    pub(crate) fn read(&self, range: TimeRange, out: &mut Samples) {
        overlapping(self.sealed(), range).iter().for_each(|chunk| chunk.read(range, out));
        self.open.read(range, out);
    }

    /// Appends the frozen samples that came in order; all are where `whole`.
    pub(crate) fn read_frozen(&self, whole: bool, out: &mut Samples) {
        self.frozen(whole).iter().for_each(|chunk| chunk.read(TimeRange::ALL, out));
        if whole {
            self.open.read(TimeRange::ALL, out);
        }
    }

    /// At least as many as [`Self::read`] appends, and hardly more; told without reading.
    pub(crate) fn samples_at_most(&self, range: TimeRange) -> usize {
        let sealed = overlapping(self.sealed(), range).iter().map(|chunk| usize::from(chunk.count()));
        sealed.sum::<usize>() + usize::from(self.open.count())
    }

    /// True where a sample came in order inside `range`. Reads one sealed chunk at the most, and the open one.
    pub(crate) fn has_samples(&self, range: TimeRange) -> bool {
        let sealed = overlapping(self.sealed(), range);
        let ends_inside = |c: &Chunk| {
            let ends = c.range();
            range.contains(ends.start_ms) || range.contains(ends.end_ms)
        };
        if sealed.iter().any(ends_inside) || (self.open.count() > 0 && range.contains(self.open.last_ms())) {
            return true;
        }
        // what is left reaches over the whole range, so there is one of it
        let mut samples = Samples::default();
        sealed.iter().take(1).for_each(|chunk| chunk.read(range, &mut samples));
        self.open.read(range, &mut samples);
        !samples.is_empty()
    }

    /// From the first to the last frozen sample that came in order; all are frozen where `whole`.
    pub(crate) fn frozen_range(&self, whole: bool) -> Option<TimeRange> {
        let open = (whole && self.open.count() > 0)
            .then(|| TimeRange::new(self.open.first_ms(), self.open.last_ms()));
        let chunks = self.frozen(whole);
        let first = chunks.first().map(Chunk::range).or(open)?;
        let last = open.or(chunks.last().map(Chunk::range))?;
        Some(TimeRange::new(first.start_ms, last.end_ms))
    }

    fn sealed(&self) -> &[Chunk] {
        self.sealed.as_ref().map_or(&[], |sealed| &sealed.chunks)
    }

    fn frozen(&self, whole: bool) -> &[Chunk] {
        let Some(sealed) = &self.sealed else { return &[] };
        if whole { &sealed.chunks } else { &sealed.chunks[..sealed.frozen as usize] }
    }
}

/// The chunks that overlap `range`.
fn overlapping(chunks: &[Chunk], range: TimeRange) -> &[Chunk] {
    let from = chunks.partition_point(|c| c.range().end_ms < range.start_ms);
    let count = chunks[from..].partition_point(|c| c.range().start_ms <= range.end_ms);
    &chunks[from..from + count]
}
