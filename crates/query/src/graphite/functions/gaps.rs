//! Functions that fill gaps, or remove them.

use super::each::map;
use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::intervals::{Intervals, summarized};
use crate::graphite::text::general;
use crate::graphite::{Aggregate, Series};

const LIMIT: Param = Param::optional("limit", Type::IntOrInf).or(Default::Float(f64::INFINITY));

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "compressPeriodicGaps",
        Group::Transform,
        "If a series has a value only every few steps, makes the step as long as the distance between its values. \
         The distance is guessed from the first three values.",
        &[SERIES_LIST],
        compress_periodic_gaps,
    )
    .mapping(),
    Function::new(
        "interpolate",
        Group::Transform,
        "Fills gaps along a straight line between the values around them, if a gap is at most `limit` values long.",
        &[SERIES_LIST, LIMIT],
        interpolate,
    )
    .mapping(),
    Function::new(
        "keepLastValue",
        Group::Transform,
        "Fills gaps with the value before them, if a gap is at most `limit` values long.",
        &[SERIES_LIST, LIMIT],
        keep_last_value,
    )
    .mapping(),
    Function::new(
        "transformNull",
        Group::Transform,
        "Replaces missing values by a number: all of them, or only those where at least one of the reference series \
         has a value.",
        &[
            SERIES_LIST,
            Param::optional("default", Type::Float).or(Default::Integer(0)),
            Param::optional("referenceSeries", Type::SeriesList),
        ],
        transform_null,
    ),
];

fn keep_last_value(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let limit = call.number("limit");
    map(call, sink, |series| {
        series.rename(format!("keepLastValue({})", series.name));
        fill_gaps(call, &mut series.values, limit, |gap, before, _after| {
            if !before.is_nan() {
                gap.fill(before);
            }
        })
    })
}

fn interpolate(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let limit = call.number("limit");
    map(call, sink, |series| {
        series.rename(format!("interpolate({})", series.name));
        fill_gaps(call, &mut series.values, limit, |gap, before, after| {
            if before.is_nan() || after.is_nan() {
                return;
            }
            let steps = (gap.len() + 1) as f64;
            for (i, value) in gap.iter_mut().enumerate() {
                *value = before + (i + 1) as f64 * (after - before) / steps;
            }
        })
    })
}

/// Calls `fill` with each gap that is at most `limit` values long, and the values before and after it.
fn fill_gaps(
    call: &Call<'_>,
    values: &mut [f64],
    limit: f64,
    fill: impl Fn(&mut [f64], f64, f64),
) -> Result<(), QueryError> {
    let mut next = 0;
    while next < values.len() {
        call.meter().check_at(next)?;
        if !values[next].is_nan() {
            next += 1;
            continue;
        }
        let start = next;
        next += values[start..].iter().take_while(|value| value.is_nan()).count();
        let before = start.checked_sub(1).map_or(f64::NAN, |place| values[place]);
        let after = values.get(next).copied().unwrap_or(f64::NAN);
        if (next - start) as f64 <= limit {
            fill(&mut values[start..next], before, after);
        }
    }
    Ok(())
}

fn compress_periodic_gaps(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    call.each("seriesList", |mut series| {
        series.rename(format!("compressPeriodicGaps({})", series.name));
        if let Some((first, distance)) = periodic_values(&series.values) {
            let start_s = series.start_s + first as i64 * series.step_s;
            let length_s = distance as i64 * series.step_s;
            let intervals = Intervals { start_s, end_s: series.end_s, length_s };
            let values = summarized(&series, intervals, Aggregate::Last, call.meter())?;
            let end_s = start_s + length_s * (values.len() as i64 - 1);
            series = Series { start_s, end_s, step_s: length_s, values, ..series };
        }
        sink(series)
    })
}

/// The place of the first value, and the distance to the next ones, if they seem to have gaps of equal length between
/// them. As in graphite-web, 0 counts as a gap, and the very first value does not count.
fn periodic_values(values: &[f64]) -> Option<(usize, usize)> {
    let is_seen = |place: usize| !values[place].is_nan() && values[place] != 0.0;
    let mut seen = (1..values.len()).filter(|place| is_seen(*place));
    let (first, second) = (seen.next()?, seen.next()?);
    let distance = second - first;
    let third = second + distance;
    let is_periodic = distance > 1
        && third + 2 <= values.len()
        && is_seen(third)
        && values[third - 1].is_nan()
        && values[third + 1].is_nan();
    is_periodic.then_some((first, distance))
}

fn transform_null(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (default, tag) = (call.number("default"), call.shown("default"));
    let mut charge = call.meter().charge();
    let (mut is_replaced, mut has_reference) = (Vec::new(), false);
    call.each_in_any_order("referenceSeries", |series| {
        has_reference = true;
        if series.values.len() > is_replaced.len() {
            charge.add_bytes(series.values.len() - is_replaced.len())?;
            is_replaced.resize(series.values.len(), false);
        }
        for (is_replaced, value) in is_replaced.iter_mut().zip(&series.values) {
            *is_replaced |= !value.is_nan();
        }
        Ok(())
    })?;
    let (shown, of_reference) = (general(default), if has_reference { ",referenceSeries" } else { "" });
    call.each("seriesList", |mut series| {
        series.tags.set("transformNull", tag.as_str());
        if has_reference {
            series.tags.set("referenceSeries", "1");
        }
        series.rename(format!("transformNull({},{shown}{of_reference})", series.name));
        let mut is_replaced = is_replaced.iter().copied();
        let is_everywhere = is_replaced.len() == 0;
        call.meter().change_each(&mut series.values, |value| {
            let is_replaced = is_replaced.next().unwrap_or(is_everywhere);
            if value.is_nan() && is_replaced {
                *value = default;
            }
        })?;
        sink(series)
    })
}
