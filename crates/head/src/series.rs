//! The hot state of one series.

use crate::chunk::{Chunk, ChunkValue, OpenChunk};
use model::{Histogram, Samples, TimeRange, ValueKind};
use std::sync::atomic::AtomicU16;

/// State that an append touches besides the chunk's bytes: 64 bytes, one cache line.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) open: OpenChunk,
    /// Boxed, because most series have no sealed chunks.
    sealed: Option<Box<Sealed>>,
    /// Arrival of the last sample, in seconds of the caller's clock.
    pub(crate) seen_s: u32,
    /// [`ACTIVE`] and other flags in one byte, so that an append checks them all with one comparison.
    pub(crate) state: u8,
    /// [`LASTING`], [`LATE`] and [`FROZEN_LATE`].
    marks: u8,
    /// The version of the caller's rules under which the series was last found to be right; 0 if never ([`crate::TenantHead::vet`]).
    pub(crate) vetted: AtomicU16,
}

const _: () = assert!(size_of::<Series>() == 64);

/// A series takes at least these bytes of its head, besides its labels and its samples.
pub const SERIES_BYTES_MIN: usize = size_of::<Series>();

/// The series counts as active, because it got a sample lately.
pub(crate) const ACTIVE: u8 = 1;
/// Flips at each freeze. If it differs from the head's epoch, all samples of the series are frozen.
pub(crate) const EPOCH: u8 = 2;

/// Lookups by key do not find the series ([`crate::evict`]).
pub(crate) const UNLINKED: u8 = 4;
/// The series is removed, or about to be.
pub(crate) const GONE: u8 = 8;
pub(crate) const HISTOGRAM: u8 = 16;
/// The series is in no postings, so that no list names it ([`crate::hide`]).
pub(crate) const HIDDEN: u8 = 32;

/// A newer sample came in a later second than the sample before it, so that the sender probably goes on with the series. A
/// staleness marker ends this.
const LASTING: u8 = 1;
/// The series has late samples.
const LATE: u8 = 2;
/// The series has late samples from before the last freeze.
const FROZEN_LATE: u8 = 4;

pub(crate) const fn state_of(kind: ValueKind) -> u8 {
    match kind {
        ValueKind::Float => 0,
        ValueKind::Histogram => HISTOGRAM,
    }
}

impl Default for Series {
    fn default() -> Self {
        Self {
            open: OpenChunk::default(),
            sealed: None,
            seen_s: 0,
            state: GONE,
            marks: 0,
            vetted: AtomicU16::new(0),
        }
    }
}

#[derive(Debug, Default)]
struct Sealed {
    /// Oldest first.
    chunks: Vec<Chunk>,
    /// Number of chunks that are frozen, counted from the oldest.
    frozen: u32,
}

impl Series {
    pub(crate) fn new(epoch: u8, kind: ValueKind) -> Self {
        Self { state: epoch | state_of(kind), ..Self::default() }
    }

    pub(crate) const fn kind(&self) -> ValueKind {
        match self.state & HISTOGRAM {
            0 => ValueKind::Float,
            _ => ValueKind::Histogram,
        }
    }

    #[inline]
    pub(crate) const fn is_lasting(&self) -> bool {
        self.marks & LASTING != 0
    }

    #[inline]
    pub(crate) const fn set_lasting(&mut self, lasting: bool) {
        self.mark(LASTING, lasting);
    }

    #[inline]
    pub(crate) const fn has_late(&self) -> bool {
        self.marks & LATE != 0
    }

    pub(crate) const fn set_late(&mut self, late: bool) {
        self.mark(LATE, late);
    }

    pub(crate) const fn has_frozen_late(&self) -> bool {
        self.marks & FROZEN_LATE != 0
    }

    pub(crate) const fn set_frozen_late(&mut self, late: bool) {
        self.mark(FROZEN_LATE, late);
    }

    #[inline]
    const fn mark(&mut self, mark: u8, is_set: bool) {
        self.marks = if is_set { self.marks | mark } else { self.marks & !mark };
    }

    /// Adds a sample newer than all others. Returns the change of memory in bytes.
    #[inline]
    pub(crate) fn append<V: ChunkValue>(&mut self, timestamp_ms: i64, value: &V) -> isize {
        let before = self.open.heap_bytes();
        if value.append(&mut self.open, timestamp_ms).is_ok() {
            return (self.open.heap_bytes() - before) as isize;
        }
        self.roll(timestamp_ms, value)
    }

    #[cold]
    fn roll<V: ChunkValue>(&mut self, timestamp_ms: i64, value: &V) -> isize {
        let before = self.heap_bytes();
        self.seal();
        value.append(&mut self.open, timestamp_ms).expect("BUG: an empty chunk has no room");
        self.heap_bytes() as isize - before as isize
    }

    fn seal(&mut self) {
        let Some(chunk) = self.open.seal() else { return };
        let chunks = &mut self.sealed.get_or_insert_default().chunks;
        if chunks.len() == chunks.capacity() {
            chunks.reserve_exact((chunks.len() / 4).max(1));
        }
        chunks.push(chunk);
    }

    /// Prepares a series for samples after a pause or a freeze. Returns the change of memory in bytes.
    #[cold]
    pub(crate) fn wake(&mut self, awake: u8) -> isize {
        assert!(self.state & GONE == 0, "BUG: a sample for an evicted series; its writer held no pin");
        assert!((self.state ^ awake) & HISTOGRAM == 0, "BUG: the sample is of the wrong kind");
        let changed = if (self.state ^ awake) & EPOCH != 0 { self.set_apart() } else { 0 };
        self.state = awake;
        changed
    }

    /// Separates the frozen samples from later ones. Returns the change of memory in bytes.
    fn set_apart(&mut self) -> isize {
        let before = self.heap_bytes();
        let newest = self.newest();
        self.seal();
        self.open.clear();
        newest.into_iter().for_each(|fingerprint| self.open.set_newest_fingerprint(fingerprint));
        if let Some(sealed) = &mut self.sealed {
            sealed.frozen = sealed.chunks.len() as u32;
        }
        self.set_frozen_late(self.has_late());
        self.set_late(false);
        self.heap_bytes() as isize - before as isize
    }

    /// Releases the frozen samples. If the open chunk is empty afterwards, it also forgets the newest value.
    /// `whole` must be true if all samples of the series are frozen. Returns the change of memory in bytes.
    pub(crate) fn release(&mut self, whole: bool) -> isize {
        let before = self.heap_bytes();
        if whole {
            self.sealed = None;
            self.set_late(false);
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
        self.set_frozen_late(false);
        self.heap_bytes() as isize - before as isize
    }

    /// True if the series holds no samples, and the newest sample that it released was at `timestamp_ms`. If
    /// a sample arrives with this time again, it is stored like a newer one, because the released value is no
    /// longer known.
    pub(crate) const fn is_newest_released(&self, timestamp_ms: i64) -> bool {
        timestamp_ms == self.open.last_ms() && self.is_empty() && !self.has_late() && !self.has_frozen_late()
    }

    /// Fingerprint of the newest value; `None` if a late sample may have replaced it.
    fn newest(&self) -> Option<u64> {
        if self.has_late() { None } else { self.open.newest() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.open.count() == 0 && self.sealed.is_none()
    }

    /// True if frozen chunks are separated from newer ones.
    pub(crate) fn has_frozen_chunks(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.frozen > 0)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| {
            let unused = sealed.chunks.capacity() - sealed.chunks.len();
            let chunks = sealed.chunks.iter().map(Chunk::memory_bytes).sum::<usize>();
            size_of::<Sealed>() + chunks + unused * size_of::<Chunk>()
        });
        self.open.heap_bytes() + sealed
    }

    pub(crate) fn read<V: ChunkValue>(&self, range: TimeRange, out: &mut Samples<V>) {
        self.sealed_in(range).iter().for_each(|chunk| chunk.read(range, out));
        self.open.read(range, out);
    }

    /// Appends the frozen in-order samples to `out`. If `whole` is true, all samples are frozen.
    pub(crate) fn read_frozen<V: ChunkValue>(&self, whole: bool, out: &mut Samples<V>) {
        self.frozen(whole).iter().for_each(|chunk| chunk.read(TimeRange::ALL, out));
        if whole {
            self.open.read(TimeRange::ALL, out);
        }
    }

    /// A close upper bound on the number of samples that [`Self::read`] appends. It is found without
    /// decoding.
    pub(crate) fn samples_at_most(&self, range: TimeRange) -> usize {
        let sealed = self.sealed_in(range).iter().map(|chunk| usize::from(chunk.count()));
        sealed.sum::<usize>() + usize::from(self.open.count())
    }

    /// True if there is an in-order sample inside `range`. Decodes at most two chunks.
    pub(crate) fn has_samples(&self, range: TimeRange) -> bool {
        let sealed = self.sealed_in(range);
        let ends_inside = |c: &Chunk| {
            let ends = c.range();
            range.contains(ends.start_ms) || range.contains(ends.end_ms)
        };
        if sealed.iter().any(ends_inside) || (self.open.count() > 0 && range.contains(self.open.last_ms())) {
            return true;
        }
        // no chunk begins or ends inside the range, so at most one overlaps it
        let chunk = sealed.first();
        match self.kind() {
            ValueKind::Float => self.has_in::<f64>(chunk, range),
            ValueKind::Histogram => self.has_in::<Histogram>(chunk, range),
        }
    }

    fn has_in<V: ChunkValue>(&self, chunk: Option<&Chunk>, range: TimeRange) -> bool {
        let mut samples = Samples::<V>::default();
        chunk.into_iter().for_each(|chunk| chunk.read(range, &mut samples));
        self.open.read(range, &mut samples);
        !samples.is_empty()
    }

    /// Time range of the frozen in-order samples. If `whole` is true, all samples are frozen.
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

    fn sealed_in(&self, range: TimeRange) -> &[Chunk] {
        // all sealed chunks end before the open one begins
        match self.open.count() > 0 && self.open.first_ms() <= range.start_ms {
            true => &[],
            false => overlapping(self.sealed(), range),
        }
    }

    fn frozen(&self, whole: bool) -> &[Chunk] {
        let Some(sealed) = &self.sealed else { return &[] };
        if whole { &sealed.chunks } else { &sealed.chunks[..sealed.frozen as usize] }
    }
}

/// The chunks that overlap `range`. Searches from the newest chunk back, because most queries read the newest
/// samples.
fn overlapping(chunks: &[Chunk], range: TimeRange) -> &[Chunk] {
    let upto = match chunks.last() {
        Some(last) if last.range().start_ms > range.end_ms => {
            chunks.partition_point(|c| c.range().start_ms <= range.end_ms)
        }
        _ => chunks.len(),
    };
    let older = chunks[..upto].iter().rev().position(|c| c.range().end_ms < range.start_ms);
    &chunks[upto - older.unwrap_or(upto)..upto]
}
