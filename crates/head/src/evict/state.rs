//! State of an eviction between turns.

use roaring::RoaringBitmap;

/// Eviction state kept between turns.
#[derive(Debug, Default)]
pub(crate) struct EvictionState {
    /// Page of the index at which the current step continues.
    pub(crate) page: usize,
    /// True if pages were merged in this pass over the index.
    pub(crate) merged: bool,
    /// Series no longer in the index and not yet removed.
    pub(crate) removing: RoaringBitmap,
    /// Series before this one are already unlisted.
    pub(crate) unlisted: u32,
}

impl EvictionState {
    /// Memory in bytes, at most: one bit for each series number below `series_end`.
    pub(crate) fn memory_bytes(&self, series_end: usize) -> usize {
        if self.removing.is_empty() { 0 } else { series_end / 8 }
    }
}
