//! State of a freeze between turns.

use crate::series::{EPOCH, Series};

#[derive(Debug, Default)]
pub(crate) struct FreezeState {
    /// The present epoch. If the [`EPOCH`] bit of a series differs from it, all samples of the series are
    /// frozen.
    pub(crate) epoch: u8,
    /// Upper bound on the number of frozen samples; 0 if none are frozen.
    pub(crate) samples: u64,
    /// The frozen samples of series below this number are released.
    pub(crate) released: usize,
    /// Series below this number were visited by `freeze_rest_some`.
    pub(crate) visited: usize,
}

impl FreezeState {
    pub(crate) const fn is_whole(&self, series: &Series) -> bool {
        series.state & EPOCH != self.epoch
    }
}
