//! Functions that make steps longer.

use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::Series;
use crate::graphite::calendar::Unit;
use crate::graphite::call::{Call, Sink};
use crate::graphite::intervals::{Intervals, hits, summarized};
use std::sync::Arc;

const INTERVAL: Param = Param::required("intervalString", Type::Interval).suggest(&["10min", "1h", "1d"]);

const UNITS: &[&str] = &["years", "months", "weeks", "days", "hours", "minutes", "seconds"];

const FUNC: Param = Param::optional("func", Type::AggFunc).or(Default::Text("sum"));

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "hitcount",
        Group::Transform,
        "The number of events in each interval, from a series of events per second.",
        &[SERIES_LIST, INTERVAL, Param::optional("alignToInterval", Type::Boolean).or(Default::Boolean(false))],
        hitcount,
    )
    .mapping(),
    Function::new(
        "smartSummarize",
        Group::Transform,
        "Aggregates the values of each interval. The intervals begin with the request, or with the unit of time \
         before it that `alignTo` names. `weeks3` means weeks that begin on Wednesday.",
        &[SERIES_LIST, INTERVAL, FUNC, Param::optional("alignTo", Type::String).suggest(UNITS)],
        smart_summarize,
    )
    .mapping(),
    Function::new(
        "summarize",
        Group::Transform,
        "Aggregates the values of each interval. The intervals begin at multiples of their length, or with the series.",
        &[SERIES_LIST, INTERVAL, FUNC, Param::optional("alignToFrom", Type::Boolean).or(Default::Boolean(false))],
        summarize,
    )
    .mapping(),
];

/// The interval as text and in seconds, which are positive.
fn interval(call: &Call<'_>) -> Result<(Arc<str>, i64), QueryError> {
    let length_s = call.interval("intervalString")?;
    match length_s {
        1.. => Ok((call.text("intervalString"), length_s)),
        _ => Err(call.refuse("the interval must be positive")),
    }
}

fn summarize(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let ((shown, length_s), function) = (interval(call)?, call.text("func"));
    let (aggregate, is_aligned_to_from) = (call.aggregate("func"), call.boolean("alignToFrom"));
    let aligned = if is_aligned_to_from { ", true" } else { "" };
    call.each("seriesList", |mut series| {
        let (mut start_s, mut end_s) = (series.start_s, series.end_s);
        if !is_aligned_to_from {
            start_s -= start_s.rem_euclid(length_s);
            end_s += length_s - end_s.rem_euclid(length_s);
        }
        let intervals = Intervals { start_s, end_s, length_s };
        series.values = summarized(&series, intervals, aggregate, call.meter())?;
        if is_aligned_to_from {
            end_s = intervals.aligned_end_s();
        }
        series.tags.set("summarize", &*shown);
        series.tags.set("summarizeFunction", &*function);
        series.rename(format!("summarize({}, \"{shown}\", \"{function}\"{aligned})", series.name));
        sink(Series { start_s, end_s, step_s: length_s, ..series })
    })
}

fn smart_summarize(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let ((shown, length_s), function) = (interval(call)?, call.text("func"));
    let aggregate = call.aggregate("func");
    let context = call.context();
    let from_s = match call.optional_text("alignTo") {
        Some(unit) => aligned_from_s(call, &unit)?,
        None => context.from_s,
    };
    call.each_within(&context.within(from_s, context.until_s), "seriesList", |mut series| {
        let intervals = Intervals { start_s: series.start_s, end_s: series.end_s, length_s };
        series.values = summarized(&series, intervals, aggregate, call.meter())?;
        series.tags.set("smartSummarize", &*shown);
        series.tags.set("smartSummarizeFunction", &*function);
        series.rename(format!("smartSummarize({}, \"{shown}\", \"{function}\")", series.name));
        sink(Series { end_s: intervals.aligned_end_s(), step_s: length_s, ..series })
    })
}

/// The start of the request, moved back to the beginning of a unit of time such as `hours` or `weeks1`.
fn aligned_from_s(call: &Call<'_>, align_to: &str) -> Result<i64, QueryError> {
    // deprecated values that graphite-web ignores
    if matches!(align_to, "True" | "False") {
        return Ok(call.context().from_s);
    }
    let unit =
        Unit::parse(align_to).ok_or_else(|| call.refuse(format!("{align_to:?} is not a unit of time")))?;
    let first_day =
        align_to.bytes().last().filter(u8::is_ascii_digit).map_or(1, |digit| i64::from(digit - b'0'));
    Ok(unit.begin_s(call.context().from_s, first_day, call.options().time_zone))
}

fn hitcount(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let ((shown, length_s), is_aligned) = (interval(call)?, call.boolean("alignToInterval"));
    let aligned = if is_aligned { ", true" } else { "" };
    let context = call.context();
    let from_s = match Unit::longest_within(length_s) {
        Some(unit) if is_aligned => unit.begin_s(context.from_s, 1, call.options().time_zone),
        _ => context.from_s,
    };
    call.each_within(&context.within(from_s, context.until_s), "seriesList", |mut series| {
        if is_aligned {
            let count = (series.end_s - series.start_s).div_euclid(length_s);
            series.end_s = series.start_s + count * length_s + length_s;
        }
        let (start_s, values) = hits(&series, length_s, call.meter())?;
        series.values = values; // the old ones are not charged any more
        series.tags.set("hitcount", &*shown);
        series.rename(format!("hitcount({}, \"{shown}\"{aligned})", series.name));
        sink(Series { start_s, step_s: length_s, ..series })
    })
}
