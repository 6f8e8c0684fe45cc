//! Largest and smallest values of sliding windows.

use super::window::Spec;
use crate::meter::Meter;
use crate::promql::QueryError;
use model::Samples;

/// `(newer, older)`: true if the newer value can replace the older one.
pub(super) type Supersedes = fn(f64, f64) -> bool;

/// Maximum; the earliest of equal values wins.
pub(super) const MAX: Supersedes = |newer, older| newer > older;
/// Minimum; the earliest of equal values wins.
pub(super) const MIN: Supersedes = |newer, older| newer < older;
/// Maximum; the latest of equal values wins.
pub(super) const LAST_MAX: Supersedes = |newer, older| newer >= older;
/// Minimum; the latest of equal values wins.
pub(super) const LAST_MIN: Supersedes = |newer, older| newer <= older;

/// Queue of samples, best first. A sample becomes the best when all samples before it have left the window.
#[derive(Debug, Default)]
pub(super) struct Extremes {
    queue: Vec<usize>,
}

impl Extremes {
    /// Fills `out` with `result(i)` of each window's winning sample, or of the last sample if all are NaN.
    pub(super) fn compute(
        &mut self,
        meter: &Meter<'_>,
        samples: &Samples,
        spec: &Spec,
        supersedes: Supersedes,
        result: impl Fn(usize) -> f64,
        out: &mut [f64],
    ) -> Result<(), QueryError> {
        let values = samples.values.as_slice();
        self.queue.clear();
        let (mut front, mut next) = (0, 0);
        spec.each(meter, &samples.timestamps, |w| {
            next = next.max(w.lo);
            for i in next..w.hi {
                if values[i].is_nan() {
                    continue;
                }
                while self.queue.len() > front
                    && self.queue.last().is_some_and(|last| supersedes(values[i], values[*last]))
                {
                    self.queue.pop();
                }
                self.queue.push(i);
            }
            next = w.hi;
            while self.queue.get(front).is_some_and(|first| *first < w.lo) {
                front += 1;
            }
            out[w.step] = result(self.queue.get(front).copied().unwrap_or(w.hi - 1));
        })
    }
}
