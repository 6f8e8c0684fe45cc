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
        if let Some(sealed) = &self.sealed {
            let from = sealed.partition_point(|c| c.range.end_ms < range.start_ms);
            for chunk in sealed[from..].iter().take_while(|c| c.range.start_ms <= range.end_ms) {
                chunk.read(range, out);
            }
        }
        self.open.read(range, out);
    }
}
