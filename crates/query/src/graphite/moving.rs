//! Aggregations over a window that moves along a series.

use super::Aggregate;
use super::consolidate::is_enough;
use crate::QueryError;

/// Windows up to this length are aggregated value by value, in the order of graphite-web.
const SHORT: usize = 64;

/// What the aggregations need to know of some values. Missing values are left out.
#[derive(Debug, Clone, Copy)]
struct Part {
    count: usize,
    sum: f64,
    min: f64,
    max: f64,
}

impl Part {
    const EMPTY: Self = Self { count: 0, sum: 0.0, min: f64::NAN, max: f64::NAN };

    fn of(value: f64) -> Self {
        if value.is_nan() { Self::EMPTY } else { Self { count: 1, sum: value, min: value, max: value } }
    }

    fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            // the smaller or larger one, or the one that is not NaN
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    fn aggregated(self, aggregate: Aggregate) -> f64 {
        match aggregate {
            Aggregate::Average | Aggregate::AvgZero => self.sum / self.count as f64,
            Aggregate::Sum => self.sum,
            Aggregate::Min => self.min,
            Aggregate::Max => self.max,
            Aggregate::Range => self.max - self.min,
            Aggregate::Count => self.count as f64,
            _ => unreachable!("BUG: {aggregate:?} needs all values"),
        }
    }
}

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
    let mut out = Vec::with_capacity(values.len().saturating_sub(window));
    if window == 0 || window >= values.len() {
        // a window without values has no result
        out.resize(values.len().saturating_sub(window), f64::NAN);
        return Ok(out);
    }
    let mut push = |count: usize, result: f64| {
        out.push(if is_enough(count, window, x_files_factor) { result } else { f64::NAN });
    };
    match aggregate {
        Aggregate::Median => medians(values, window, check, &mut push)?,
        Aggregate::Average
        | Aggregate::AvgZero
        | Aggregate::Sum
        | Aggregate::Min
        | Aggregate::Max
        | Aggregate::Range
        | Aggregate::Count
            if window > SHORT =>
        {
            by_blocks(values, window, check, &mut |part| push(part.count, part.aggregated(aggregate)))?;
        }
        _ => {
            let mut present = Vec::with_capacity(window);
            for window in values.windows(window).skip(1) {
                check()?;
                present.clear();
                present.extend(window.iter().filter(|value| !value.is_nan()));
                push(present.len(), aggregate.of(&present));
            }
        }
    }
    Ok(out)
}

/// Splits the values into blocks as long as the window. A window is the end of one block and the begin of the next,
/// and both parts are extended by one value at a time.
fn by_blocks(
    values: &[f64],
    window: usize,
    check: &dyn Fn() -> Result<(), QueryError>,
    push: &mut dyn FnMut(Part),
) -> Result<(), QueryError> {
    let mut ends = vec![Part::EMPTY; window];
    for block in (0..values.len()).step_by(window) {
        check()?;
        let Some(values_of_block) = values.get(block..block + window) else { break };
        let mut end = Part::EMPTY;
        for (value, place) in values_of_block.iter().zip(&mut ends).rev() {
            end = Part::of(*value).and(end);
            *place = end;
        }
        if block > 0 {
            push(ends[0]);
        }
        let mut begin = Part::EMPTY;
        for (end, value) in ends[1..].iter().zip(&values[block + window..]) {
            begin = begin.and(Part::of(*value));
            push(end.and(begin));
        }
    }
    Ok(())
}

/// Keeps the values of the window in order of size.
fn medians(
    values: &[f64],
    window: usize,
    check: &dyn Fn() -> Result<(), QueryError>,
    push: &mut dyn FnMut(usize, f64),
) -> Result<(), QueryError> {
    let mut sorted: Vec<f64> = Vec::with_capacity(window + 1);
    let place = |sorted: &[f64], value: f64| sorted.partition_point(|other| other.total_cmp(&value).is_lt());
    for (i, &value) in values.iter().enumerate() {
        check()?;
        if !value.is_nan() {
            sorted.insert(place(&sorted, value), value);
        }
        let Some(oldest) = i.checked_sub(window) else { continue };
        if !values[oldest].is_nan() {
            sorted.remove(place(&sorted, values[oldest]));
        }
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        push(sorted.len(), median);
    }
    Ok(())
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
        for _ in 0..200 {
            let len = rng.below(400) as usize;
            let values: Vec<f64> = (0..len)
                .map(|_| if rng.chance(0.2) { f64::NAN } else { rng.below(100) as f64 - 30.0 })
                .collect();
            let window = 1 + rng.below(150) as usize;
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
