//! Stretches of series, which are the input of a table, and their division into rows.
//!
//! A stretch is one series' samples over a period, as held by the head. A row is the part of a stretch that lies on one day and
//! has one form of values: decimal, or floats. Most stretches are one row.

use crate::date::Date;
use crate::decimal;
use model::labels::METRIC_NAME;
use model::{LabelsRef, SeriesKey};
use std::ops::Range;

/// Maximum number of rows that a day's values are cut into to keep most of them decimal. A row takes about 40 bytes, and a float
/// takes four bytes more than a mantissa. So a stale marker at the end must not turn 500 counts into floats.
const RUNS_MAX: usize = 3;

/// One series' samples over a period.
#[derive(Debug, Clone, Copy)]
pub struct Stretch<'a> {
    /// All labels, the metric name included.
    pub labels: LabelsRef<'a>,
    /// Series key, as in the head and the journal.
    pub key: SeriesKey,
    /// Milliseconds since the Unix epoch, strictly ascending.
    pub timestamps: &'a [i64],
    /// Values, parallel to `timestamps`.
    pub values: &'a [f64],
}

impl<'a> Stretch<'a> {
    /// The metric's name; empty if there is none.
    pub fn name(&self) -> &'a str {
        self.labels.get(METRIC_NAME).unwrap_or("")
    }

    /// The part of the samples at `range`.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self { timestamps: &self.timestamps[range.clone()], values: &self.values[range], ..*self }
    }

    /// The parts that lie on one day each, in order.
    pub fn days(&self) -> impl Iterator<Item = (Date, Self)> {
        let whole = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            let date = Date::of(*whole.timestamps.get(at)?);
            let len = whole.timestamps[at..].partition_point(|t| *t <= date.end_ms());
            at += len;
            Some((date, whole.slice(at - len..at)))
        })
    }
}

/// The values of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Mantissas over `10^exponent`, appended to the output.
    Decimal(u8),
    /// Floats, unchanged.
    Floats,
}

/// Cuts a day's values into rows of one form each. Calls `row` with the range, the form, and `mantissas`, to
/// which the mantissas of decimal rows are appended.
pub(crate) fn rows(
    values: &[f64],
    mantissas: &mut Vec<i64>,
    mut row: impl FnMut(Range<usize>, Form, &mut [i64]),
) {
    if let Some(exponent) = decimal::mantissas(values, mantissas) {
        return row(0..values.len(), Form::Decimal(exponent), mantissas);
    }
    let Some(runs) = runs(values) else { return row(0..values.len(), Form::Floats, mantissas) };
    for run in runs {
        let form = match decimal::mantissas(&values[run.clone()], mantissas) {
            Some(exponent) => Form::Decimal(exponent),
            None => Form::Floats,
        };
        row(run, form, mantissas);
    }
}

/// Runs of values with or without a decimal form; `None` if there are too many runs.
fn runs(values: &[f64]) -> Option<impl Iterator<Item = Range<usize>>> {
    let mut cuts = [values.len(); RUNS_MAX + 1];
    cuts[0] = 0;
    let mut runs = 1;
    for (i, pair) in values.windows(2).enumerate() {
        if decimal::is_decimal(pair[0]) != decimal::is_decimal(pair[1]) {
            if runs == RUNS_MAX {
                return None;
            }
            cuts[runs] = i + 1;
            runs += 1;
        }
    }
    Some((0..runs).map(move |i| cuts[i]..cuts[i + 1]))
}

#[cfg(test)]
mod tests;
