//! State of a freeze between turns.

use crate::series::{EPOCH, Series};

/// State between a freeze and the end of the release.
#[derive(Debug, Default)]
pub(crate) struct FreezeState {
    /// The [`EPOCH`] bit of series that got samples since the last freeze.
    pub(crate) epoch: u8,
    /// Upper bound of the number of frozen samples; 0 if no freeze is outstanding.
    pub(crate) samples: u64,
    /// Series before this one are released.
    pub(crate) released: usize,
    /// Series before this one were visited by the pass that adds newer samples.
    pub(crate) visited: usize,
}

impl FreezeState {
    /// True if the series got no sample since the freeze, so that all its samples are frozen.
    pub(crate) const fn is_whole(&self, series: &Series) -> bool {
        series.state & EPOCH != self.epoch
    }
}
