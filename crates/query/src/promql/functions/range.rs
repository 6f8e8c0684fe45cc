//! Functions over the samples of one series, for all steps in one pass. The window of a step is `(end -
//! range, end]`. Both ends only move forwards, so a function carries the state of its window from step to
//! step.

mod extremes;
mod over_time;
mod rate;
pub(in crate::promql) mod rolled;
mod sliding;
mod trend;
pub(in crate::promql) mod window;

use crate::meter::{Charge, Meter};
use crate::promql::QueryError;
use crate::promql::float::ABSENT;
use crate::promql::functions::Function;
use model::Samples;
use window::Spec;

#[derive(Debug)]
pub(in crate::promql) struct Windows<'p> {
    function: Function,
    /// Scalar arguments, with one value for each step.
    params: Vec<&'p [f64]>,
    rate: rate::Scratch,
    sums: sliding::Sliding<crate::promql::float::Kahan>,
    moments: sliding::Sliding<over_time::Moments>,
    trend: sliding::Sliding<trend::Regression>,
    extremes: extremes::Extremes,
    sorted: over_time::Sorted,
    counts: Vec<u32>,
    meter: &'p Meter<'p>,
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

/// Scratch memory of a function per sample, doubled because lists grow by doubling.
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
