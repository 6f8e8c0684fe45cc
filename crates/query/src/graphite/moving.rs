//! Aggregations over a window that moves along a series. The time does not depend on the length of the window.

mod parts;
mod precise;
mod ranks;

use super::Aggregate;
use super::consolidate::is_enough;
use crate::QueryError;
use crate::meter::VALUES_PER_CHECK;
use parts::{Difference, Extremes, Latest, PartialAggregate, Product, Spread, Totals};
use ranks::Ranks;

/// Windows up to this length are aggregated value by value, in the order of graphite-web.
const SHORT: usize = 64;

/// Windows up to this length are sorted by moving values in a list.
const SHORT_SORTED: usize = 512;

/// Upper bound on the memory that aggregating a series takes, besides that of the result.
pub(super) fn work_bytes(values: usize, window: usize, aggregate: Aggregate) -> usize {
    let window = window.min(values);
    match aggregate {
        Aggregate::Median if window > SHORT_SORTED => values * Ranks::VALUE_BYTES,
        Aggregate::Multiply => window * size_of::<Product>(),
        _ => window * size_of::<Spread>(),
    }
}

const _: () = assert!(
    size_of::<Spread>() >= size_of::<Difference>()
        && size_of::<Spread>() >= size_of::<Extremes>()
        && size_of::<Spread>() >= size_of::<Latest>()
        && size_of::<Spread>() >= size_of::<Totals>()
);

/// Aggregates the values of each window that ends after the first `window` values, so that there are `window` fewer
/// results than values. Missing values are left out; if too few are present, the result is NaN. `check` is called
/// regularly, and ends the work with an error.
pub(super) fn aggregated(
    values: &[f64],
    window: usize,
    aggregate: Aggregate,
    x_files_factor: f64,
    check: &dyn Fn() -> Result<(), QueryError>,
) -> Result<Vec<f64>, QueryError> {
    let mut windows = Windows {
        values,
        window,
        x_files_factor,
        check,
        out: Vec::with_capacity(values.len().saturating_sub(window)),
    };
    match aggregate {
        // a window without values has no result
        _ if window == 0 || window >= values.len() => {
            windows.out.resize(values.len().saturating_sub(window), f64::NAN);
        }
        Aggregate::Median if window > SHORT_SORTED => windows.long_medians()?,
        Aggregate::Median => windows.medians()?,
        _ if window <= SHORT => windows.one_by_one(aggregate)?,
        Aggregate::Average | Aggregate::AvgZero => {
            windows.by_blocks(1.0, |part: Totals| part.sum / part.count as f64)?;
        }
        Aggregate::Sum => windows.by_blocks(1.0, |part: Totals| part.sum)?,
        Aggregate::Count => windows.by_blocks(1.0, |part: Totals| part.count as f64)?,
        Aggregate::Min => windows.by_blocks(1.0, |part: Extremes| part.min)?,
        Aggregate::Max => windows.by_blocks(1.0, |part: Extremes| part.max)?,
        Aggregate::Range => windows.by_blocks(1.0, |part: Extremes| part.max - part.min)?,
        Aggregate::Last => windows.by_blocks(1.0, |part: Latest| part.last)?,
        Aggregate::Diff => windows.by_blocks(1.0, |part: Difference| part.difference)?,
        Aggregate::Multiply => windows.by_blocks(1.0, Product::value)?,
        Aggregate::Stddev => {
            let scale = scale_of(values);
            windows.by_blocks(scale, |part: Spread| part.deviation() / scale)?;
        }
        Aggregate::First | Aggregate::AbsMax | Aggregate::AbsMin | Aggregate::Percentile(_) => {
            windows.one_by_one(aggregate)?;
        }
    }
    Ok(windows.out)
}

/// The windows of a series, and the results for those that were aggregated.
struct Windows<'a> {
    values: &'a [f64],
    window: usize,
    x_files_factor: f64,
    check: &'a dyn Fn() -> Result<(), QueryError>,
    out: Vec<f64>,
}

impl Windows<'_> {
    fn push(&mut self, count: usize, result: impl FnOnce() -> f64) {
        let is_known = is_enough(count, self.window, self.x_files_factor);
        self.out.push(if is_known { result() } else { f64::NAN });
    }

    fn one_by_one(&mut self, aggregate: Aggregate) -> Result<(), QueryError> {
        let mut present = Vec::with_capacity(self.window);
        for window in self.values.windows(self.window).skip(1) {
            (self.check)()?;
            present.clear();
            present.extend(window.iter().filter(|value| !value.is_nan()));
            self.push(present.len(), || aggregate.of(&present));
        }
        Ok(())
    }

    /// Splits the values into blocks as long as the window. A window is the end of one block and the beginning of the next,
    /// and both parts are extended by one value at a time. The values are multiplied by `scale` before.
    fn by_blocks<P: PartialAggregate>(
        &mut self,
        scale: f64,
        result: impl Fn(P) -> f64,
    ) -> Result<(), QueryError> {
        let Self { values, window, check, .. } = *self;
        let part = |value: f64| if value.is_nan() { P::EMPTY } else { P::of(value * scale) };
        let mut ends = vec![P::EMPTY; window];
        for block in (0..values.len()).step_by(window) {
            check()?;
            let Some(values_of_block) = values.get(block..block + window) else { break };
            let mut end = P::EMPTY;
            for (i, (value, place)) in values_of_block.iter().zip(&mut ends).rev().enumerate() {
                if i % VALUES_PER_CHECK == VALUES_PER_CHECK - 1 {
                    check()?;
                }
                end = part(*value).and(end);
                *place = end;
            }
            if block > 0 {
                self.push(ends[0].count(), || result(ends[0]));
            }
            let mut begin = P::EMPTY;
            for (i, (end, value)) in ends[1..].iter().zip(&values[block + window..]).enumerate() {
                if i % VALUES_PER_CHECK == VALUES_PER_CHECK - 1 {
                    check()?;
                }
                begin = begin.and(part(*value));
                let whole = end.and(begin);
                self.push(whole.count(), || result(whole));
            }
        }
        Ok(())
    }

    /// Keeps the values of the window in order of size.
    fn medians(&mut self) -> Result<(), QueryError> {
        let Self { values, window, check, .. } = *self;
        let mut sorted: Vec<f64> = Vec::with_capacity(window + 1);
        let place =
            |sorted: &[f64], value: f64| sorted.partition_point(|other| other.total_cmp(&value).is_lt());
        for (i, &value) in values.iter().enumerate() {
            check()?;
            if !value.is_nan() {
                sorted.insert(place(&sorted, value), value);
            }
            let Some(oldest) = i.checked_sub(window) else { continue };
            if !values[oldest].is_nan() {
                sorted.remove(place(&sorted, values[oldest]));
            }
            self.push(sorted.len(), || median(sorted.len(), |place| sorted[place]));
        }
        Ok(())
    }

    fn long_medians(&mut self) -> Result<(), QueryError> {
        let Self { values, window, check, .. } = *self;
        let mut ranks = Ranks::of(values);
        for (i, &value) in values.iter().enumerate() {
            check()?;
            if !value.is_nan() {
                ranks.insert(value);
            }
            let Some(oldest) = i.checked_sub(window) else { continue };
            if !values[oldest].is_nan() {
                ranks.remove(values[oldest]);
            }
            self.push(ranks.len(), || median(ranks.len(), |place| ranks.at(place)));
        }
        Ok(())
    }
}

/// The median of `count` values, of which `at` finds the one at a place in their order.
fn median(count: usize, at: impl Fn(usize) -> f64) -> f64 {
    let middle = count / 2;
    match count {
        0 => f64::NAN,
        count if count % 2 == 0 => (at(middle - 1) + at(middle)) / 2.0,
        _ => at(middle),
    }
}

/// A power of two that makes all values smaller than 1, so that their squares do not overflow.
fn scale_of(values: &[f64]) -> f64 {
    let largest = values.iter().filter(|value| value.is_finite()).fold(0.0, |a: f64, b| a.max(b.abs()));
    let exponent = (largest.to_bits() >> 52) as i32 - 1022;
    2f64.powi((-exponent).clamp(-1022, 1022))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    /// The definition, computed for each window alone.
    fn slow(values: &[f64], window: usize, aggregate: Aggregate, x_files_factor: f64) -> Vec<f64> {
        let of = |i: usize| {
            let present: Vec<f64> = values[i - window..i].iter().copied().filter(|v| !v.is_nan()).collect();
            let is_known = is_enough(present.len(), window, x_files_factor);
            if is_known { aggregate.of(&present) } else { f64::NAN }
        };
        (window + 1..=values.len()).map(of).collect()
    }

    #[test]
    fn windows_are_aggregated_as_if_each_were_alone() {
        let mut rng = Rng::announced();
        for round in 0..200 {
            let (len_max, window_max) = if round % 50 == 0 { (2500, 1200) } else { (400, 150) };
            let len = rng.below(len_max) as usize;
            // fractions whose sums are exact, and whose products are far from the limits of a float
            let value = |rng: &mut Rng| (rng.below(100) as f64 - 30.0) / 32.0;
            let values: Vec<f64> =
                (0..len).map(|_| if rng.chance(0.2) { f64::NAN } else { value(&mut rng) }).collect();
            let window = 1 + rng.below(window_max) as usize;
            let x_files_factor = rng.unit();
            for name in super::super::consolidate::AGGREGATES {
                let aggregate = Aggregate::parse(name).unwrap();
                let fast = aggregated(&values, window, aggregate, x_files_factor, &|| Ok(())).unwrap();
                let slow = slow(&values, window, aggregate, x_files_factor);
                assert_eq!(fast.len(), slow.len());
                for (i, (a, b)) in fast.iter().zip(&slow).enumerate() {
                    let is_same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() < 1e-9 * a.abs();
                    assert!(is_same, "{name} over {window} of {len}, at {i}: {a}, expected {b}");
                }
            }
        }
    }
}
