//! The hot state of one series.

use crate::chunk::{Chunk, OpenChunk};
use model::{Samples, TimeRange};

/// 64 bytes, one cache line: what an append touches besides the chunk's own bytes.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub(crate) open: OpenChunk,
    /// Oldest first. Boxed twice because most series of a churning fleet have none.
    #[expect(clippy::box_collection, reason = "eight bytes here instead of 24, for each series")]
    sealed: Option<Box<Vec<Chunk>>>,
    /// When a sample last came, in seconds of the caller's clock.
    pub(crate) seen_s: u32,
    /// Counted among the tenant's active series.
    pub(crate) active: bool,
    /// It has samples in the late store.
    pub(crate) late: bool,
}

const _: () = assert!(size_of::<Series>() == 64);

impl Series {
    /// Adds a sample newer than all others; says by how many bytes memory grew.
    #[inline]
    pub(crate) fn append(&mut self, timestamp_ms: i64, value: f64) -> usize {
        let before = self.open.heap_bytes();
        if self.open.append(timestamp_ms, value).is_ok() {
            return self.open.heap_bytes() - before;
        }
        self.roll(timestamp_ms, value, before)
    }

    #[cold]
    fn roll(&mut self, timestamp_ms: i64, value: f64, open_before: usize) -> usize {
        let chunk = self.open.seal().expect("BUG: a full chunk is not empty");
        let sealed = self.sealed.get_or_insert_default();
        if sealed.len() == sealed.capacity() {
            sealed.reserve_exact((sealed.len() / 4).max(2));
        }
        let grown = chunk.memory_bytes();
        sealed.push(chunk);
        self.open.append(timestamp_ms, value).expect("BUG: an empty chunk takes any sample");
        (grown + self.open.heap_bytes()).saturating_sub(open_before)
    }

    /// Appends the samples in `range` that came in order.
    pub(crate) fn read(&self, range: TimeRange, out: &mut Samples) {
        self.sealed(range).iter().for_each(|chunk| chunk.read(range, out));
        self.open.read(range, out);
    }

    /// At least as many as [`Self::read`] appends, and hardly more; told without reading.
    pub(crate) fn samples_at_most(&self, range: TimeRange) -> usize {
        let sealed = self.sealed(range).iter().map(|chunk| usize::from(chunk.count())).sum::<usize>();
        sealed + usize::from(self.open.count())
    }

    /// True where a sample came in order inside `range`. Reads one sealed chunk at the most, and the open one.
    pub(crate) fn has_samples(&self, range: TimeRange) -> bool {
        let sealed = self.sealed(range);
        let ends_inside = |c: &Chunk| range.contains(c.range.start_ms) || range.contains(c.range.end_ms);
        if sealed.iter().any(ends_inside) || (self.open.count() > 0 && range.contains(self.open.last_ms())) {
            return true;
        }
        // what is left reaches over the whole range, so there is one of it
        let mut samples = Samples::default();
        sealed.iter().take(1).for_each(|chunk| chunk.read(range, &mut samples));
        self.open.read(range, &mut samples);
        !samples.is_empty()
    }

    /// The sealed chunks that overlap `range`.
    fn sealed(&self, range: TimeRange) -> &[Chunk] {
        let Some(sealed) = &self.sealed else { return &[] };
        let from = sealed.partition_point(|c| c.range.end_ms < range.start_ms);
        let count = sealed[from..].partition_point(|c| c.range.start_ms <= range.end_ms);
        &sealed[from..from + count]
    }
}
