//! Sliding windows for aggregates that can be merged but not subtracted. The window has an older part with an
//! aggregate for each sample, and a newer part with one aggregate. Each sample is merged at most twice.
//!
//! Source: Tangwongsan, Hirzel, Schneider, Wu: General Incremental Sliding-Window Aggregation, VLDB 2015.

use super::window::Window;

pub(super) trait Part: Copy {
    const EMPTY: Self;

    fn push(&mut self, time_ms: i64, value: f64);

    fn join(self, later: Self) -> Self;
}

#[derive(Debug)]
pub(super) struct Sliding<P> {
    /// `older[i - base]` aggregates the samples `i..middle`.
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
    pub(super) fn reset(&mut self) {
        (self.base, self.middle, self.end, self.newer) = (0, 0, 0, P::EMPTY);
    }

    /// Aggregate of a window. Successive windows must not move back.
    #[inline]
    pub(super) fn window(&mut self, times: &[i64], values: &[f64], window: &Window) -> P {
        let (lo, hi) = (window.lo, window.hi);
        if lo >= self.end {
            // the window shares no sample with the one before
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
