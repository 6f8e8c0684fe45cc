//! The window of a step: the samples of a series that a range selector covers at this step.

use crate::meter::Meter;
use crate::promql::QueryError;
use crate::promql::grid::{Grid, Shift};
use model::TimeRange;

#[derive(Debug, Clone, Copy)]
pub(in crate::promql) struct Spec {
    pub(in crate::promql) grid: Grid,
    pub(in crate::promql) shift: Shift,
    pub(in crate::promql) range_ms: i64,
}

impl Spec {
    pub(in crate::promql) fn part(&self, steps: &std::ops::Range<usize>) -> Self {
        let grid = Grid { start_ms: self.grid.time_ms(steps.start), count: steps.len(), ..self.grid };
        Self { grid, ..*self }
    }

    pub(in crate::promql) fn covers(&self) -> TimeRange {
        let start_ms = self.shift.apply(self.grid.start_ms).saturating_sub(self.range_ms - 1);
        TimeRange::new(start_ms, self.shift.apply(self.grid.last_ms()))
    }

    /// Calls `visit` for each step whose window has samples.
    #[inline(always)]
    pub(super) fn each(
        &self,
        meter: &Meter<'_>,
        timestamps: &[i64],
        mut visit: impl FnMut(Window),
    ) -> Result<(), QueryError> {
        let (mut ends, mut step) = ((0, 0), 0);
        while step < self.grid.count {
            meter.check()?;
            let until = self.grid.count.min(step + CHECK_STEPS);
            while step < until {
                if let Some(window) = self.window(step, &mut ends, timestamps) {
                    visit(window);
                }
                step += 1;
            }
        }
        Ok(())
    }

    /// Like [`Self::each`], for slow functions. `visit` returns its cost as a number of samples.
    #[inline(always)]
    pub(super) fn each_costly(
        &self,
        meter: &Meter<'_>,
        timestamps: &[i64],
        mut visit: impl FnMut(Window) -> usize,
    ) -> Result<(), QueryError> {
        let (mut ends, mut cost) = ((0, 0), CHECK_STEPS);
        for step in 0..self.grid.count {
            cost += 1;
            if let Some(window) = self.window(step, &mut ends, timestamps) {
                cost += visit(window);
            }
            if cost > CHECK_STEPS {
                meter.check()?;
                cost = 0;
            }
        }
        Ok(())
    }

    /// Window of a step, if it has samples. `ends` holds the positions of the previous window.
    #[inline(always)]
    fn window(&self, step: usize, ends: &mut (usize, usize), timestamps: &[i64]) -> Option<Window> {
        let (mut lo, mut hi) = *ends;
        let time_ms = self.grid.time_ms(step);
        let end_ms = self.shift.apply(time_ms);
        let start_ms = end_ms.saturating_sub(self.range_ms);
        while hi < timestamps.len() && timestamps[hi] <= end_ms {
            hi += 1;
        }
        while lo < hi && timestamps[lo] <= start_ms {
            lo += 1;
        }
        *ends = (lo, hi);
        (lo < hi).then_some(Window { step, lo, hi, end_ms, time_ms })
    }
}

/// The interrupt is checked each time that this many steps were taken, which is about every 50 µs.
const CHECK_STEPS: usize = 4096;

/// The samples `lo..hi` of a series, which are those in the window of one step. There is at least one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) step: usize,
    pub(super) lo: usize,
    pub(super) hi: usize,
    pub(super) end_ms: i64,
    pub(super) time_ms: i64,
}

impl Window {
    pub(super) const fn len(&self) -> usize {
        self.hi - self.lo
    }
}
