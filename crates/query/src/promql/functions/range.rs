//! Functions over the samples of one series, for all steps in one pass.
//!
//! The window of a step is `(end - range, end]`. Both ends of the window only move forwards, so two indices
//! run along the samples. A function carries the state of its window from step to step, and does not visit a
//! sample again for each window that contains the sample.

mod extremes;
mod over_time;
mod rate;
pub(in crate::promql) mod rolled;
mod sliding;
mod trend;

use crate::promql::QueryError;
use crate::promql::eval::Shift;
use crate::promql::float::ABSENT;
use crate::promql::functions::Function;
use crate::promql::grid::Grid;
use crate::promql::matrix::{Charge, Meter};
use model::{Samples, TimeRange};

/// Range and alignment of windows.
#[derive(Debug, Clone, Copy)]
pub(in crate::promql) struct Spec {
    pub(in crate::promql) grid: Grid,
    pub(in crate::promql) shift: Shift,
    pub(in crate::promql) range_ms: i64,
}

impl Spec {
    /// The windows of some steps.
    pub(in crate::promql) fn part(&self, steps: &std::ops::Range<usize>) -> Self {
        let grid = Grid { start_ms: self.grid.time_ms(steps.start), count: steps.len(), ..self.grid };
        Self { grid, ..*self }
    }

    /// Time range that covers all windows.
    pub(in crate::promql) fn covers(&self) -> TimeRange {
        let start_ms = self.shift.apply(self.grid.start_ms).saturating_sub(self.range_ms - 1);
        TimeRange::new(start_ms, self.shift.apply(self.grid.last_ms()))
    }

    /// Calls `visit` with each step whose window has samples.
    #[inline(always)]
    fn each(
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

    /// Like [`Self::each`], for functions whose steps can take long. `visit` returns its cost, as a number of
    /// samples.
    #[inline(always)]
    fn each_costly(
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

    /// Returns the window of a step, if the window has samples. `ends` has the positions of the previous
    /// window, and is updated.
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

/// Number of steps between checks of the interrupt, about 50 µs. Steps that can take long count as their cost
/// in samples.
const CHECK_STEPS: usize = 4096;

/// Samples of one step: those at `lo..hi`, at least one.
#[derive(Debug, Clone, Copy)]
struct Window {
    step: usize,
    lo: usize,
    hi: usize,
    /// The end of the window.
    end_ms: i64,
    /// The time of the step.
    time_ms: i64,
}

impl Window {
    const fn len(&self) -> usize {
        self.hi - self.lo
    }
}

/// A function, its parameters and its scratch memory.
#[derive(Debug)]
pub(in crate::promql) struct Windows<'p> {
    function: Function,
    /// Scalar arguments, one value for each step.
    params: Vec<&'p [f64]>,
    rate: rate::Scratch,
    sums: sliding::Sliding<crate::promql::float::Kahan>,
    moments: sliding::Sliding<over_time::Moments>,
    trend: sliding::Sliding<trend::Regression>,
    extremes: extremes::Extremes,
    sorted: over_time::Sorted,
    counts: Vec<u32>,
    meter: &'p Meter<'p>,
    /// Charge for the scratch memory.
    charge: Charge<'p>,
}

impl<'p> Windows<'p> {
    pub(in crate::promql) fn new(function: Function, params: Vec<&'p [f64]>, meter: &'p Meter<'p>) -> Self {
        Self {
            function,
            params,
            rate: Default::default(),
            sums: Default::default(),
            moments: Default::default(),
            trend: Default::default(),
            extremes: Default::default(),
            sorted: Default::default(),
            counts: Vec::new(),
            meter,
            charge: meter.charge(),
        }
    }

    /// Fills `out` with the function's value at each step.
    pub(in crate::promql) fn compute(
        &mut self,
        samples: &Samples,
        spec: &Spec,
        out: &mut [f64],
    ) -> Result<(), QueryError> {
        use Function as F;
        out.fill(ABSENT);
        if samples.is_empty() {
            return Ok(());
        }
        let scratch = samples.len() * scratch_bytes(self.function) / 16;
        self.charge.add(scratch.saturating_sub(self.charge.values() as usize))?;
        let meter = self.meter;
        let (times, values) = (samples.timestamps.as_slice(), samples.values.as_slice());
        let seconds = |ms: i64| ms as f64 / 1000.0;
        match self.function {
            F::Rate => rate::extrapolated::<true>(&mut self.rate, meter, samples, spec, true, out),
            F::Increase => rate::extrapolated::<true>(&mut self.rate, meter, samples, spec, false, out),
            F::Delta => rate::extrapolated::<false>(&mut self.rate, meter, samples, spec, false, out),
            F::Irate => rate::instant(meter, samples, spec, true, out),
            F::Idelta => rate::instant(meter, samples, spec, false, out),
            F::Resets => over_time::count_pairs(&mut self.counts, meter, samples, spec, |a, b| b < a, out),
            F::Changes => {
                let differ = |a: f64, b: f64| a != b && !(a.is_nan() && b.is_nan());
                over_time::count_pairs(&mut self.counts, meter, samples, spec, differ, out)
            }
            F::LastOverTime => spec.each(meter, times, |w| out[w.step] = values[w.hi - 1]),
            F::FirstOverTime => spec.each(meter, times, |w| out[w.step] = values[w.lo]),
            F::CountOverTime => spec.each(meter, times, |w| out[w.step] = w.len() as f64),
            F::PresentOverTime | F::AbsentOverTime => spec.each(meter, times, |w| out[w.step] = 1.0),
            F::TsOfFirstOverTime => spec.each(meter, times, |w| out[w.step] = seconds(times[w.lo])),
            F::TsOfLastOverTime => spec.each(meter, times, |w| out[w.step] = seconds(times[w.hi - 1])),
            F::SumOverTime => over_time::sum(&mut self.sums, meter, samples, spec, out),
            F::AvgOverTime => over_time::avg(&mut self.sums, meter, samples, spec, out),
            F::StddevOverTime => over_time::variance(&mut self.moments, meter, samples, spec, f64::sqrt, out),
            F::StdvarOverTime => over_time::variance(&mut self.moments, meter, samples, spec, |v| v, out),
            F::MaxOverTime => self.extremes.compute(meter, samples, spec, extremes::MAX, |i| values[i], out),
            F::MinOverTime => self.extremes.compute(meter, samples, spec, extremes::MIN, |i| values[i], out),
            F::TsOfMaxOverTime => {
                self.extremes.compute(meter, samples, spec, extremes::LAST_MAX, |i| seconds(times[i]), out)
            }
            F::TsOfMinOverTime => {
                self.extremes.compute(meter, samples, spec, extremes::LAST_MIN, |i| seconds(times[i]), out)
            }
            F::QuantileOverTime => self.sorted.quantile(meter, samples, spec, self.params[0], out),
            F::MadOverTime => self.sorted.mad(meter, samples, spec, out),
            F::Deriv => trend::deriv(&mut self.trend, meter, samples, spec, out),
            F::PredictLinear => trend::predict(&mut self.trend, meter, samples, spec, self.params[0], out),
            F::DoubleExponentialSmoothing => {
                trend::smooth(meter, samples, spec, self.params[0], self.params[1], out)
            }
            function => panic!("BUG: {} does not take a range vector", function.name()),
        }
    }
}

/// Scratch memory of a function per sample of a series, doubled because its lists grow by doubling.
const fn scratch_bytes(function: Function) -> usize {
    use Function as F;
    2 * match function {
        F::Rate | F::Increase => size_of::<usize>() + size_of::<f64>(),
        F::Resets | F::Changes => size_of::<u32>(),
        F::SumOverTime | F::AvgOverTime => size_of::<crate::promql::float::Kahan>(),
        F::StddevOverTime | F::StdvarOverTime => size_of::<over_time::Moments>(),
        F::Deriv | F::PredictLinear => size_of::<trend::Regression>(),
        F::MaxOverTime | F::MinOverTime | F::TsOfMaxOverTime | F::TsOfMinOverTime => size_of::<usize>(),
        F::QuantileOverTime | F::MadOverTime => size_of::<u64>(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
