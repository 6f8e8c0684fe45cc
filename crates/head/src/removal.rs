//! State of what leaves a head over several turns: evicted series ([`crate::evict`]) and frozen samples
//! ([`crate::freeze`]).

use crate::series::{EPOCH, Series};
use roaring::RoaringBitmap;

/// Eviction state kept between turns.
#[derive(Debug, Default)]
pub(crate) struct Evicting {
    /// Page of the index at which the current step continues.
    pub(crate) page: usize,
    /// True if pages were merged in this pass over the index.
    pub(crate) merged: bool,
    /// Series no longer in the index and not yet removed.
    pub(crate) removing: RoaringBitmap,
    /// Series before this one are already unlisted.
    pub(crate) unlisted: u32,
}

impl Evicting {
    /// Memory in bytes, at most: one bit for each series number below `series_end`.
    pub(crate) fn memory_bytes(&self, series_end: usize) -> usize {
        if self.removing.is_empty() { 0 } else { series_end / 8 }
    }
}

/// State between a freeze and the end of the release.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    /// The [`EPOCH`] bit of series that got samples since the last freeze.
    pub(crate) epoch: u8,
    /// Upper bound of the number of frozen samples; 0 if no freeze is outstanding.
    pub(crate) samples: u64,
    /// Series before this one are released.
    pub(crate) released: usize,
    /// Series before this one were visited by the pass that adds newer samples.
    pub(crate) visited: usize,
}

impl Frozen {
    /// True if the series got no sample since the freeze, so that all its samples are frozen.
    pub(crate) const fn is_whole(&self, series: &Series) -> bool {
        series.state & EPOCH != self.epoch
    }
}
