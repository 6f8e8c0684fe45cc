//! The times at which an expression is evaluated.

use super::QueryError;

/// `count` times from `start_ms` on, `step_ms` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) start_ms: i64,
    pub(super) step_ms: i64,
    /// Number of times. Zero for a subquery without a step in its range.
    pub(super) count: usize,
}

impl Grid {
    pub(super) const fn single(at_ms: i64) -> Self {
        Self { start_ms: at_ms, step_ms: 1, count: 1 }
    }

    pub(super) fn new(start_ms: i64, end_ms: i64, step_ms: i64, count_max: u64) -> Result<Self, QueryError> {
        assert!(step_ms > 0, "BUG: a grid has a step of {step_ms} ms, which is not above 0");
        if end_ms < start_ms {
            return Ok(Self { start_ms, step_ms, count: 0 });
        }
        let count = (i128::from(end_ms) - i128::from(start_ms)) / i128::from(step_ms) + 1;
        if count > i128::from(count_max) {
            return Err(QueryError::TooLarge);
        }
        Ok(Self { start_ms, step_ms, count: count as usize })
    }

    #[inline]
    pub(super) const fn time_ms(&self, step: usize) -> i64 {
        self.start_ms + self.step_ms * step as i64
    }

    /// Time of the last step, or the start of an empty grid.
    pub(super) const fn last_ms(&self) -> i64 {
        self.time_ms(self.count.saturating_sub(1))
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shift {
    pub(super) fixed_ms: Option<i64>,
    pub(super) offset_ms: i64,
}

impl Shift {
    /// Time that a selector reads at the evaluation time `time_ms`.
    #[inline]
    pub(super) fn apply(&self, time_ms: i64) -> i64 {
        self.fixed_ms.unwrap_or(time_ms).saturating_sub(self.offset_ms)
    }
}
