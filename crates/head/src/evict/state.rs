//! State of an eviction between turns.

use roaring::RoaringBitmap;

#[derive(Debug, Default)]
pub(crate) struct EvictionState {
    pub(crate) page: usize,
    pub(crate) merged: bool,
    /// True while series are being taken out of the index and the postings.
    pub(crate) is_unlisting: bool,
    /// Series that left the index and are not removed yet.
    pub(crate) removing: RoaringBitmap,
    /// Of the series in `removing`, those below this number are already unlisted.
    pub(crate) unlisted: u32,
}

impl EvictionState {
    /// Upper bound on memory: one bit for each series below `series_end`.
    pub(crate) fn memory_bytes(&self, series_end: usize) -> usize {
        if self.removing.is_empty() { 0 } else { series_end / 8 }
    }
}
