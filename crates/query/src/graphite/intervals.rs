//! Values of a series to values of longer intervals.

use super::{Aggregate, Series};
use crate::QueryError;
use crate::meter::{Charge, Meter, VALUES_PER_CHECK};

/// Intervals that do not have the length of a step: where they begin, and how long they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    pub(super) start_s: i64,
    /// Exclusive. The last interval may end later.
    pub(super) end_s: i64,
    /// At least 1.
    pub(super) length_s: i64,
}

impl Intervals {
    pub(super) const fn count(&self) -> usize {
        if self.end_s <= self.start_s {
            0
        } else {
            ((self.end_s - self.start_s - 1) / self.length_s + 1) as usize
        }
    }

    /// End of the last interval.
    pub(super) const fn aligned_end_s(&self) -> i64 {
        self.start_s + self.count() as i64 * self.length_s
    }
}

/// Charges an evaluation for `count` values of intervals. There may be more of them than the series has values: it may end
/// long after these, because `timeShift` gives all series the end of the first.
fn charge_for<'m>(count: usize, meter: &'m Meter<'_>) -> Result<Charge<'m>, QueryError> {
    let mut charge = meter.charge();
    charge.add_bytes(count.saturating_mul(size_of::<f64>()))?;
    Ok(charge)
}

/// Aggregates the values of each interval. The result is NaN if too few of them are present. It is charged until it is returned.
pub(super) fn summarized(
    series: &Series,
    intervals: Intervals,
    aggregate: Aggregate,
    meter: &Meter<'_>,
) -> Result<Vec<f64>, QueryError> {
    let mut charge = charge_for(intervals.count(), meter)?;
    // the first value may be one from before the interval
    let most = usize::try_from((intervals.length_s / series.step_s).saturating_add(2)).unwrap_or(usize::MAX);
    charge.add_bytes(aggregate.copy_bytes(series.values.len().min(most)))?;
    let steps = ((series.end_s - series.start_s).max(0) as u64).div_ceil(series.step_s as u64) as usize;
    let values = &series.values[..steps.min(series.values.len())];
    let time_s = |i: usize| series.start_s + i as i64 * series.step_s;
    let in_interval = intervals.length_s as f64 / series.step_s as f64;
    let mut out = Vec::with_capacity(intervals.count());
    let mut next = 0;
    for number in 0..intervals.count() {
        meter.check()?;
        let start_s = intervals.start_s + number as i64 * intervals.length_s;
        let (mut first, mut present) = (next, 0_usize);
        while next < values.len() && time_s(next) < start_s + intervals.length_s {
            if next % VALUES_PER_CHECK == VALUES_PER_CHECK - 1 {
                meter.check()?;
            }
            // values before the first interval are skipped
            if time_s(next) <= start_s {
                first = next;
            }
            if time_s(next) >= start_s && !values[next].is_nan() {
                present += 1;
            }
            next += 1;
        }
        let is_enough = present > 0 && present as f64 / in_interval >= series.x_files_factor;
        out.push(if is_enough { aggregate.of(&values[first..next]) } else { f64::NAN });
    }
    Ok(out)
}

/// Adds up values per second, each multiplied by the seconds that it covers in an interval. The intervals end
/// with the series, and each has `length_s` seconds. Returns the start of the first one too. The result is charged until it is
/// returned.
pub(super) fn hits(series: &Series, length_s: i64, meter: &Meter<'_>) -> Result<(i64, Vec<f64>), QueryError> {
    let (count, start_s) = hit_intervals(series, length_s);
    let _charge = charge_for(count, meter)?;
    let mut out = vec![f64::NAN; count];
    let mut add = |number: i64, hits: f64| {
        if let Some(sum) = usize::try_from(number).ok().and_then(|number| out.get_mut(number)) {
            *sum = if sum.is_nan() { hits } else { *sum + hits };
        }
    };
    for (i, &value) in series.values.iter().enumerate() {
        meter.check()?;
        if value.is_nan() {
            continue;
        }
        let from_s = series.start_s + i as i64 * series.step_s - start_s;
        let until_s = from_s + series.step_s;
        let (first, from_s) = (from_s.div_euclid(length_s), from_s.rem_euclid(length_s));
        let (mut last, mut until_s) = (until_s.div_euclid(length_s), until_s.rem_euclid(length_s));
        if last >= count as i64 {
            (last, until_s) = (count as i64 - 1, length_s);
        }
        if first == last {
            add(first, value * (until_s - from_s) as f64);
            continue;
        }
        add(first, value * (length_s - from_s) as f64);
        for number in first + 1..last {
            add(number, value * length_s as f64);
        }
        if until_s > 0 && last > first {
            add(last, value * until_s as f64);
        }
    }
    Ok((start_s, out))
}

/// Number of intervals that cover a series, and the start of the first one.
fn hit_intervals(series: &Series, length_s: i64) -> (usize, i64) {
    let count = ((series.end_s - series.start_s).max(0) as u64).div_ceil(length_s as u64);
    (count as usize, series.end_s - count as i64 * length_s)
}
