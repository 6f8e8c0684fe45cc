//! Many values to one: aggregations by name, and consolidation to the number of points that a client can show.

use super::Series;

/// Names of aggregations as functions accept them, with the aliases of graphite-web.
pub const AGGREGATES: &[&str] = &[
    "average", "avg_zero", "median", "sum", "min", "max", "diff", "stddev", "count", "range", "multiply",
    "last", "rangeOf", "avg", "total", "current",
];

/// A way to compute one value from several. A missing value is NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aggregate {
    Average,
    /// Missing values count as 0.
    AvgZero,
    Sum,
    Min,
    Max,
    First,
    Last,
    Median,
    /// Number of values that are present.
    Count,
    /// The first value minus all others.
    Diff,
    /// The largest value minus the smallest.
    Range,
    /// The product, or none if any value is missing.
    Multiply,
    /// Standard deviation of the population.
    Stddev,
    /// The value that is farthest from 0.
    AbsMax,
    /// The value that is nearest to 0.
    AbsMin,
    /// A percentile from 0 to 100, without interpolation.
    Percentile(f64),
}

impl Aggregate {
    /// Finds an aggregation by the names that graphite-web, Whisper and go-carbon use for it. A percentile is
    /// `p50` or `p999`, where digits after the second are decimals.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "average" | "avg" => Self::Average,
            "avg_zero" => Self::AvgZero,
            "sum" | "total" => Self::Sum,
            "min" => Self::Min,
            "max" => Self::Max,
            "first" => Self::First,
            "last" | "current" => Self::Last,
            "median" => Self::Median,
            "count" => Self::Count,
            "diff" => Self::Diff,
            "range" | "rangeOf" => Self::Range,
            "multiply" => Self::Multiply,
            "stddev" => Self::Stddev,
            "absmax" => Self::AbsMax,
            "absmin" => Self::AbsMin,
            _ => return percentile_name(name).map(Self::Percentile),
        })
    }

    /// The aggregation that functions such as `aggregate` accept under this name, also with `Series` behind it.
    pub(super) fn of_function(name: &str) -> Option<Self> {
        let name = name.strip_suffix("Series").unwrap_or(name);
        AGGREGATES.contains(&name).then(|| Self::parse(name)).flatten()
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Average => "average",
            Self::AvgZero => "avg_zero",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::First => "first",
            Self::Last => "last",
            Self::Median => "median",
            Self::Count => "count",
            Self::Diff => "diff",
            Self::Range => "range",
            Self::Multiply => "multiply",
            Self::Stddev => "stddev",
            Self::AbsMax => "absmax",
            Self::AbsMin => "absmin",
            Self::Percentile(_) => "percentile",
        }
    }

    /// Memory that [`Self::of`] takes for a copy of the values, which it sorts.
    pub(super) const fn copy_bytes(self, values: usize) -> usize {
        match self {
            Self::Median | Self::Percentile(_) => values.saturating_mul(size_of::<f64>()),
            _ => 0,
        }
    }

    /// Aggregates values of which some may be missing. Returns NaN if there is no result.
    pub fn of(self, values: &[f64]) -> f64 {
        let present = || values.iter().copied().filter(|value| !value.is_nan());
        match self {
            // A sum begins with a positive zero, as in Python. The sum of nothing, or of negative zeros, would be a negative zero
            // otherwise, which would be shown.
            Self::Average => (present().sum::<f64>() + 0.0) / present().count() as f64,
            Self::AvgZero => (present().sum::<f64>() + 0.0) / values.len() as f64,
            Self::Sum => present().reduce(|a, b| a + b).map_or(f64::NAN, |sum| sum + 0.0),
            Self::Min => present().reduce(f64::min).unwrap_or(f64::NAN),
            Self::Max => present().reduce(f64::max).unwrap_or(f64::NAN),
            Self::First => present().next().unwrap_or(f64::NAN),
            Self::Last => present().next_back().unwrap_or(f64::NAN),
            Self::Median => median(copied(values.len(), present())),
            Self::Count => present().count() as f64,
            Self::Diff => present().reduce(|a, b| a - b).unwrap_or(f64::NAN),
            Self::Range => Self::Max.of(values) - Self::Min.of(values),
            Self::Multiply => values.iter().copied().reduce(|a, b| a * b).unwrap_or(f64::NAN),
            Self::Stddev => stddev(present),
            Self::AbsMax => {
                present().reduce(|a, b| if b.abs() > a.abs() { b } else { a }).unwrap_or(f64::NAN)
            }
            Self::AbsMin => {
                present().reduce(|a, b| if b.abs() < a.abs() { b } else { a }).unwrap_or(f64::NAN)
            }
            Self::Percentile(percent) => percentile(&mut copied(values.len(), present()), percent, false),
        }
    }
}

/// Reads `p50`, `p95`, `p999` or `p99.9`.
fn percentile_name(name: &str) -> Option<f64> {
    let digits = name.strip_prefix('p')?;
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || digits.len() > 8 {
        return None;
    }
    let percent: f64 = match digits.len() {
        3.. if !digits.contains('.') && digits != "100" => {
            format!("{}.{}", &digits[..2], &digits[2..]).parse().ok()?
        }
        _ => digits.parse().ok()?,
    };
    (0.0..=100.0).contains(&percent).then_some(percent)
}

/// A list that grows value by value would take up to twice the memory.
fn copied(len_max: usize, values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut copy = Vec::with_capacity(len_max);
    copy.extend(values);
    copy
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

fn stddev<I: Iterator<Item = f64>>(present: impl Fn() -> I) -> f64 {
    let count = present().count() as f64;
    let average = present().sum::<f64>() / count;
    (present().map(|value| (value - average) * (value - average)).sum::<f64>() / count).sqrt()
}

/// Percentile of values that are all present, by the method of the NIST handbook that graphite-web uses. Sorts
/// the values. Without interpolation, the result is one of the values.
pub(super) fn percentile(values: &mut [f64], percent: f64, interpolate: bool) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    if count == 0 {
        return f64::NAN;
    }
    let exact = percent / 100.0 * (count + 1) as f64;
    let fraction = exact.fract();
    let mut rank = exact.max(0.0) as usize;
    if !interpolate {
        rank += fraction.ceil() as usize;
    }
    let value = values[rank.clamp(1, count) - 1];
    if interpolate && rank < count { value + fraction * (values[rank] - value) } else { value }
}

/// True if enough of the values of an interval are present.
pub(super) fn is_enough(present: usize, total: usize, x_files_factor: f64) -> bool {
    present > 0 && present as f64 / total as f64 >= x_files_factor
}

/// Consolidates each run of `per_point` values into one. The last run may be shorter, but must have as many values
/// as a whole one to satisfy `x_files_factor`.
pub(super) fn consolidated(
    values: &[f64],
    per_point: usize,
    method: Aggregate,
    x_files_factor: f64,
) -> impl Iterator<Item = f64> + '_ {
    let per_point = per_point.max(1);
    values.chunks(per_point).map(move |run| match run {
        [value] if per_point == 1 => *value,
        _ => {
            let present = run.iter().filter(|value| !value.is_nan()).count();
            if is_enough(present, per_point, x_files_factor) { method.of(run) } else { f64::NAN }
        }
    })
}

/// Sets how many values make a point, so that no series has many more points than `points_max`. The first point is
/// moved so that the same points are shown when the same graph is drawn a little later.
pub fn fit(all: &mut [Series], points_max: u64) {
    let Some(start_s) = all.iter().map(|series| series.start_s).min() else { return };
    let end_s = all.iter().map(|series| series.end_s).max().unwrap_or(start_s);
    let points_max = points_max.max(1);
    for series in all {
        let points = (end_s - start_s) as f64 / series.step_s as f64;
        if points_max == 1 {
            series.values_per_point = series.values.len().max(1);
        } else if (points_max as f64) < points {
            let per_point = (points / points_max as f64).ceil() as i64;
            let point_s = per_point.saturating_mul(series.step_s);
            let shift_s =
                point_s + series.start_s.rem_euclid(series.step_s) - series.start_s.rem_euclid(point_s);
            let lost = (shift_s / series.step_s - 1).clamp(0, series.values.len() as i64);
            series.start_s += shift_s;
            series.values.drain(..lost as usize);
            series.values_per_point = per_point as usize;
        }
    }
}

#[cfg(test)]
mod tests;
