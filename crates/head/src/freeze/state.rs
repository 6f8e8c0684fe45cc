//! State of a freeze between turns.

use crate::series::{EPOCH, Series};

#[derive(Debug, Default)]
pub(crate) struct FreezeState {
    /// The [`EPOCH`] bit of series with samples since the last freeze.
    pub(crate) epoch: u8,
    /// Upper bound on the frozen samples; 0 without a freeze.
    pub(crate) samples: u64,
    /// Series below this number are released.
    pub(crate) released: usize,
    /// Series below this number were visited by `freeze_rest_some`.
    pub(crate) visited: usize,
}

impl FreezeState {
    /// True if all samples of the series are frozen.
    pub(crate) const fn is_whole(&self, series: &Series) -> bool {
        series.state & EPOCH != self.epoch
    }
}
