//! Aggregation over sliding windows for aggregates that can be merged but not subtracted.
//!
//! Subtracting the oldest sample from a running sum loses precision, and an infinity can never be removed. So
//! the window is kept in two parts. For each sample of the older part, there is the aggregate from the sample
//! to the end of the part. For the newer part, there is one running aggregate. When the older part is used
//! up, the newer part becomes the older one. Each sample is merged at most twice, even if it lies in many
//! windows.
//!
//! This is the two-stack queue of Tangwongsan, Hirzel, Schneider, Wu: General Incremental Sliding-Window
//! Aggregation, VLDB 2015.

use super::window::Window;

/// Mergeable aggregate.
pub(super) trait Part: Copy {
    /// The aggregate of no samples.
    const EMPTY: Self;

    /// Adds one sample at the end.
    fn push(&mut self, time_ms: i64, value: f64);

    /// Joins this part with the part `later`, which follows it.
    fn join(self, later: Self) -> Self;
}

/// The two parts of a window.
#[derive(Debug)]
pub(super) struct Sliding<P> {
    /// `older[i - base]` aggregates the samples from `i` to before `middle`.
    older: Vec<P>,
    base: usize,
    middle: usize,
    newer: P,
    end: usize,
}

impl<P: Part> Default for Sliding<P> {
    fn default() -> Self {
        Self { older: Vec::new(), base: 0, middle: 0, newer: P::EMPTY, end: 0 }
    }
}

impl<P: Part> Sliding<P> {
    /// Clears the state for another series.
    pub(super) fn reset(&mut self) {
        (self.base, self.middle, self.end, self.newer) = (0, 0, 0, P::EMPTY);
    }

    /// Aggregate of a window. Successive windows must not move back.
    #[inline]
    pub(super) fn window(&mut self, times: &[i64], values: &[f64], window: &Window) -> P {
        let (lo, hi) = (window.lo, window.hi);
        if lo >= self.end {
            // Nothing is shared with the window before.
            (self.middle, self.end, self.newer) = (lo, lo, P::EMPTY);
        }
        for i in self.end..hi {
            self.newer.push(times[i], values[i]);
        }
        self.end = hi;
        if lo > self.middle {
            self.turn(times, values, lo);
        }
        if lo < self.middle { self.older[lo - self.base].join(self.newer) } else { self.newer }
    }

    /// Makes the newer part the older one.
    fn turn(&mut self, times: &[i64], values: &[f64], lo: usize) {
        (self.base, self.middle, self.newer) = (lo, self.end, P::EMPTY);
        self.older.clear();
        self.older.resize(self.end - lo, P::EMPTY);
        let mut suffix = P::EMPTY;
        for i in (lo..self.end).rev() {
            let mut one = P::EMPTY;
            one.push(times[i], values[i]);
            suffix = one.join(suffix);
            self.older[i - lo] = suffix;
        }
    }
}
