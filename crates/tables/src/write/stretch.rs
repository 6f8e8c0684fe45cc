//! Divides stretches of series, which are a table's input, into rows.
//!
//! A stretch is one series' samples over a period. A row is the part of a stretch on one day with values of one form:
//! decimal, or floats.

use crate::date::Date;
use crate::decimal;
use model::labels::METRIC_NAME;
use model::{LabelsRef, SeriesKey};
use std::ops::Range;

/// Maximum number of rows into which a day's values are divided so that most of them stay decimal. For example, a
/// stale marker must not turn 500 counts into floats: a row takes 40 bytes, and a float four bytes more than a
/// mantissa.
const RUNS_MAX: usize = 3;

#[derive(Debug, Clone, Copy)]
pub struct Stretch<'a> {
    pub labels: LabelsRef<'a>,
    pub key: SeriesKey,
    /// Milliseconds since the Unix epoch, ascending.
    pub timestamps: &'a [i64],
    /// Values, parallel to `timestamps`.
    pub values: &'a [f64],
}

impl<'a> Stretch<'a> {
    pub fn name(&self) -> &'a str {
        self.labels.get(METRIC_NAME).unwrap_or("")
    }

    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self { timestamps: &self.timestamps[range.clone()], values: &self.values[range], ..*self }
    }

    /// Divides the stretch into parts that lie on one day each.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Mantissas, divided by `10^exponent`.
    Decimal(u8),
    Floats,
}

/// Divides a day's values into rows whose values all have the same form, and appends the mantissas of decimal rows to
/// `mantissas`. Calls `row` for each row with its range in `values`, its form, and all of `mantissas`.
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

/// Divides values into runs that are all decimal or all floats. `None` if there are too many runs.
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
