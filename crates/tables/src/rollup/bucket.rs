//! Statistics of the samples in a bucket.

use super::Resolution;
use crate::date::Date;
use model::sample::is_stale;
use model::{Samples, Statistic};

/// Statistics in the order of [`Statistic::ALL`], and the times of the first and the last sample. `None` if there are
/// no samples apart from staleness markers.
fn statistics(samples: impl Iterator<Item = (i64, f64)>) -> Option<([f64; 7], i64, i64)> {
    let mut samples = samples.filter(|(_, value)| !is_stale(*value));
    let (first_ms, first) = samples.next()?;
    let (mut count, mut last, mut max, mut min, mut sum) = (1.0, first, first, first, first);
    let (mut last_ms, mut fallen) = (first_ms, Vec::new());
    for (time_ms, value) in samples {
        count += 1.0;
        // the counter was reset
        if value < last {
            fallen.push(last);
        }
        (last_ms, last) = (time_ms, value);
        // the first of equal values, as in PromQL
        if value > max || max.is_nan() {
            max = value;
        }
        if value < min || min.is_nan() {
            min = value;
        }
        sum += value;
    }
    // PromQL adds in this order; without a reset, the result is exactly the difference
    let increase = fallen.iter().fold(last - first, |increase, before| increase + before);
    Some(([count, first, increase, last, max, min, sum], first_ms, last_ms))
}

/// Divides samples into buckets, and appends the statistics of each bucket to `columns`, one column for each
/// statistic.
pub(super) fn bucket(samples: &Samples, resolution: Resolution, columns: &mut [Samples; 7]) {
    // a day's last bucket ends on the next day, whose rollup has the bucket's remaining samples
    let part = |t: i64| (Date::of(t), resolution.bucket_end(t));
    let mut at = 0;
    while let Some(first) = samples.timestamps.get(at) {
        let (date, end_ms) = part(*first);
        let end = at + samples.timestamps[at..].partition_point(|t| part(*t) == (date, end_ms));
        let own = samples.timestamps[at..end].iter().copied().zip(samples.values[at..end].iter().copied());
        if let Some((found, first_ms, last_ms)) = statistics(own) {
            for ((column, value), statistic) in columns.iter_mut().zip(found).zip(Statistic::ALL) {
                let time_ms = match statistic {
                    Statistic::First => first_ms,
                    Statistic::Last => last_ms,
                    _ => end_ms.min(date.end_ms()),
                };
                column.push(time_ms, value);
            }
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::DAY_MS;

    #[test]
    fn buckets() {
        let check = |samples: &[(i64, f64)], expected: &[(i64, [f64; 7])]| {
            let (timestamps, values) = samples.iter().copied().unzip();
            let mut columns: [Samples; 7] = Default::default();
            bucket(&Samples { timestamps, values }, Resolution::FiveMinutes, &mut columns);
            let found: Vec<_> = (0..columns[0].len())
                .map(|i| (columns[0].timestamps[i], std::array::from_fn(|c| columns[c].values[i])))
                .collect();
            assert_eq!(found, expected);
        };
        let stale = f64::from_bits(model::STALE_NAN_BITS);
        check(&[], &[]);
        check(&[(1, stale)], &[]);
        // count, first, increase, last, max, min, sum
        check(&[(299_999, 3.0)], &[(300_000, [1.0, 3.0, 0.0, 3.0, 3.0, 3.0, 3.0])]);
        check(
            &[
                (300_000, 5.0),
                (300_001, 9.0),
                (300_002, 2.0),
                (300_003, stale),
                (300_004, 4.0),
                (600_000, 1.0),
            ],
            &[
                (300_000, [1.0, 5.0, 0.0, 5.0, 5.0, 5.0, 5.0]),
                (600_000, [4.0, 9.0, 5.0, 1.0, 9.0, 1.0, 16.0]),
            ],
        );
        // a bucket that spans midnight has a part on each day
        check(
            &[(DAY_MS - 2, 1.0), (DAY_MS - 1, 2.0), (DAY_MS, 3.0)],
            &[
                (DAY_MS - 1, [2.0, 1.0, 1.0, 2.0, 2.0, 1.0, 3.0]),
                (DAY_MS, [1.0, 3.0, 0.0, 3.0, 3.0, 3.0, 3.0]),
            ],
        );
        let mut columns: [Samples; 7] = Default::default();
        let samples = Samples { timestamps: vec![10, 20, 30], values: vec![f64::NAN, 2.0, f64::NAN] };
        bucket(&samples, Resolution::Hour, &mut columns);
        let times = |of: Statistic| columns[of as usize].timestamps[0];
        assert_eq!(
            (times(Statistic::First), times(Statistic::Last), times(Statistic::Max)),
            (10, 30, 3_600_000)
        );
        assert_eq!(
            [columns[Statistic::Max as usize].values[0], columns[Statistic::Min as usize].values[0]],
            [2.0; 2]
        );
    }
}
