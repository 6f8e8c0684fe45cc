//! Functions of percentiles.

use super::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::consolidate::percentile;
use crate::graphite::text::general;
use crate::graphite::{Aggregate, Series};

const N: Param = Param::required("n", Type::Float);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "averageOutsidePercentile",
        Group::FilterSeries,
        "Series whose average is outside the middle n percent of all averages.",
        &[SERIES_LIST, N],
        average_outside,
    ),
    Function::new(
        "nPercentile",
        Group::Calculate,
        "A horizontal line for each series, at its n-th percentile.",
        &[SERIES_LIST, N],
        n_percentile,
    )
    .mapping(),
    Function::new(
        "removeAbovePercentile",
        Group::FilterData,
        "Removes the values of each series that are above its n-th percentile.",
        &[SERIES_LIST, N],
        remove_above,
    )
    .mapping(),
    Function::new(
        "removeBelowPercentile",
        Group::FilterData,
        "Removes the values of each series that are below its n-th percentile.",
        &[SERIES_LIST, N],
        remove_below,
    )
    .mapping(),
    Function::new(
        "removeBetweenPercentile",
        Group::FilterSeries,
        "Series that have at least one value outside the middle n percent of all values at that time.",
        &[SERIES_LIST, N],
        remove_between,
    ),
];

/// The percentile, which must be positive.
fn percent(call: &Call<'_>) -> Result<f64, QueryError> {
    let n = call.number("n");
    if n > 0.0 { Ok(n) } else { Err(call.refuse("the percentile must be greater than 0")) }
}

fn n_percentile(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (n, tag) = (percent(call)?, call.shown("n"));
    let shown = general(n);
    call.each("seriesList", |mut series| {
        let height = call.aggregated(&series, Aggregate::Percentile(n))?;
        if height.is_nan() {
            return Ok(());
        }
        let count = points(&series);
        let mut charge = call.meter().charge();
        charge.add_bytes(count.saturating_sub(series.values.len()).saturating_mul(size_of::<f64>()))?;
        series.tags.set("nPercentile", tag.as_str());
        series.rename(format!("nPercentile({}, {shown})", series.name));
        series.values.clear();
        series.values.resize(count, height);
        sink(series)
    })
}

/// Number of whole steps in the range of a series.
fn points(series: &Series) -> usize {
    ((series.end_s - series.start_s).max(0) / series.step_s) as usize
}

fn remove_above(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    remove(call, sink, "removeAbovePercentile", |value, limit| value > limit)
}

fn remove_below(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    remove(call, sink, "removeBelowPercentile", |value, limit| value < limit)
}

fn remove(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    name: &str,
    is_removed: impl Fn(f64, f64) -> bool,
) -> Result<(), QueryError> {
    let (n, tag) = (percent(call)?, call.shown("n"));
    let shown = general(n);
    call.each("seriesList", |mut series| {
        let limit = call.aggregated(&series, Aggregate::Percentile(n))?;
        series.rename(format!("{name}({}, {shown})", series.name));
        if !limit.is_nan() {
            series.tags.set("nPercentile", tag.as_str());
            call.meter().change_each(&mut series.values, |value| {
                if is_removed(*value, limit) {
                    *value = f64::NAN;
                }
            })?;
        }
        sink(series)
    })
}

/// The percentiles of present values between which n percent of them are.
fn middle(values: &mut [f64], n: f64) -> (f64, f64) {
    let n = if n < 50.0 { 100.0 - n } else { n };
    (percentile(values, 100.0 - n, false), percentile(values, n, false))
}

fn average_outside(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let n = call.number("n");
    let held = call.all("seriesList")?;
    let average = |series: &Series| Aggregate::Average.of(&series.values);
    call.meter().check()?;
    let mut charge = call.meter().charge();
    charge.add_bytes(held.len() * size_of::<f64>())?;
    let mut averages: Vec<f64> = held.iter().map(average).filter(|average| !average.is_nan()).collect();
    let (low, high) = middle(&mut averages, n);
    held.drain(|series| {
        let average = average(&series);
        let is_outside = average <= low || average >= high;
        if is_outside { sink(series) } else { Ok(()) }
    })
}

fn remove_between(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let n = call.number("n");
    let held = call.all("seriesList")?;
    let shortest = held.iter().map(|series| series.values.len()).min().unwrap_or(0);
    let mut charge = call.meter().charge();
    charge.add_bytes(held.len() * (size_of::<f64>() + size_of::<bool>()))?;
    let (mut is_outside, mut values) = (vec![false; held.len()], Vec::with_capacity(held.len()));
    for place in 0..shortest {
        call.meter().check()?;
        values.clear();
        values.extend(held.iter().map(|series| series.values[place]).filter(|value| !value.is_nan()));
        let (low, high) = middle(&mut values, n);
        for (series, is_outside) in held.iter().zip(&mut is_outside) {
            *is_outside |= series.values[place] <= low || series.values[place] >= high;
        }
    }
    let mut is_outside = is_outside.into_iter();
    held.drain(|series| if is_outside.next() == Some(true) { sink(series) } else { Ok(()) })
}
