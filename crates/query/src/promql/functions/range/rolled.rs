//! Functions over buckets instead of samples, for windows of whole buckets. Results are bit-identical, with
//! two exceptions: sums and means of non-integers, and increases of non-integers in a bucket with a reset.
//! These may differ in the last digits.

use super::rate::Known;
use super::window::Spec;
use crate::meter::Meter;
use crate::promql::QueryError;
use crate::promql::float::{ABSENT, Kahan};
use crate::promql::functions::Function;
use crate::source::Bucket;
use model::Statistic;

/// Returns which statistics of each bucket are needed to compute a function. `None` if the function cannot be
/// computed from buckets.
pub(in crate::promql) const fn needs(function: Function) -> Option<&'static [Statistic]> {
    use Statistic as S;
    Some(match function {
        Function::SumOverTime => &[S::Sum],
        Function::AvgOverTime => &[S::Count, S::Sum],
        Function::CountOverTime | Function::PresentOverTime | Function::AbsentOverTime => &[S::Count],
        Function::MinOverTime => &[S::Min],
        Function::MaxOverTime => &[S::Max],
        Function::FirstOverTime | Function::TsOfFirstOverTime => &[S::First],
        Function::LastOverTime | Function::TsOfLastOverTime => &[S::Last],
        Function::Delta => &[S::Count, S::First, S::Last],
        Function::Rate | Function::Increase => &[S::Count, S::First, S::Increase, S::Last],
        _ => return None,
    })
}

/// Fills `out` with the value at each step. `ends` are the end times of the buckets.
pub(in crate::promql) fn compute(
    meter: &Meter<'_>,
    function: Function,
    buckets: &[Bucket],
    ends: &[i64],
    spec: &Spec,
    out: &mut [f64],
) -> Result<(), QueryError> {
    out.fill(ABSENT);
    let seconds = |ms: i64| ms as f64 / 1000.0;
    spec.each_costly(meter, ends, |w| {
        let (own, first, last) = (&buckets[w.lo..w.hi], &buckets[w.lo], &buckets[w.hi - 1]);
        let sum = || {
            let mut sum = Kahan { sum: 0.0, compensation: 0.0 };
            own.iter().for_each(|b| sum.add(b.sum));
            sum
        };
        let count = || own.iter().map(|b| b.count).sum::<f64>();
        out[w.step] = match function {
            Function::SumOverTime => sum().total(),
            Function::AvgOverTime => {
                let (sum, count) = (sum(), count());
                if sum.sum.is_infinite() { sum.sum } else { sum.sum / count + sum.compensation / count }
            }
            Function::CountOverTime => count(),
            Function::PresentOverTime | Function::AbsentOverTime => 1.0,
            Function::MinOverTime => best(own.iter().map(|b| b.min), |new, old| new < old),
            Function::MaxOverTime => best(own.iter().map(|b| b.max), |new, old| new > old),
            Function::FirstOverTime => first.first,
            Function::TsOfFirstOverTime => seconds(first.first_ms),
            Function::LastOverTime => last.last,
            Function::TsOfLastOverTime => seconds(last.last_ms),
            Function::Delta | Function::Rate | Function::Increase => {
                let count = count();
                if count < 2.0 {
                    return w.len();
                }
                let counter = !matches!(function, Function::Delta);
                let change = if counter { growth(own) } else { last.last - first.first };
                let (first_ms, last_ms, first) = (first.first_ms, last.last_ms, first.first);
                let known = Known { first_ms, last_ms, count, first, change };
                match function {
                    Function::Delta => known.stretched::<false>(w.end_ms, spec.range_ms, false),
                    function => {
                        let per_second = matches!(function, Function::Rate);
                        known.stretched::<true>(w.end_ms, spec.range_ms, per_second)
                    }
                }
            }
            function => panic!("BUG: {} cannot be computed from buckets", function.name()),
        };
        w.len()
    })
}

/// The first value that no later value beats, or the last value if all are NaN.
fn best(values: impl Iterator<Item = f64>, beats: impl Fn(f64, f64) -> bool) -> f64 {
    values.fold(f64::NAN, |old, new| if old.is_nan() || beats(new, old) { new } else { old })
}

/// Growth of a counter over consecutive buckets, bit-identical to the growth over samples.
fn growth(buckets: &[Bucket]) -> f64 {
    let (first, last) = (&buckets[0], &buckets[buckets.len() - 1]);
    let mut change = last.last - first.first;
    let mut before: Option<f64> = None;
    for bucket in buckets {
        if let Some(before) = before.filter(|before| bucket.first < *before) {
            change += before;
        }
        let difference = bucket.last - bucket.first;
        if bucket.increase.to_bits() != difference.to_bits() {
            change += bucket.increase - difference;
        }
        before = Some(bucket.last);
    }
    change
}
