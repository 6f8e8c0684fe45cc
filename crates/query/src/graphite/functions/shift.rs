//! Functions that show values of other times.

use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::Series;
use crate::graphite::at_time;
use crate::graphite::call::{Call, Sink};

const SUGGESTIONS: &[&str] = &["1h", "6h", "12h", "1d", "2d", "7d", "14d", "30d"];

/// Largest number of shifts of `timeStack`. Each evaluates the argument again.
const SHIFTS_MAX: i64 = 1000;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "timeShift",
        Group::Transform,
        "Shows the values of an earlier time, or after a plus sign of a later one.",
        &[
            SERIES_LIST,
            Param::required("timeShift", Type::Interval).suggest(SUGGESTIONS),
            Param::optional("resetEnd", Type::Boolean).or(Default::Boolean(true)),
            Param::optional("alignDst", Type::Boolean).or(Default::Boolean(false)),
        ],
        time_shift,
    ),
    Function::new(
        "timeSlice",
        Group::Transform,
        "Removes all values that are outside a range of time.",
        &[
            SERIES_LIST,
            Param::required("startSliceAt", Type::Date),
            Param::optional("endSliceAt", Type::Date).or(Default::Text("now")),
        ],
        time_slice,
    )
    .mapping(),
    Function::new(
        "timeStack",
        Group::Transform,
        "Shows the values of several earlier times, each a multiple of the interval away.",
        &[
            SERIES_LIST,
            Param::optional("timeShiftUnit", Type::Interval).or(Default::Text("1d")).suggest(SUGGESTIONS),
            Param::optional("timeShiftStart", Type::Integer).or(Default::Integer(0)),
            Param::optional("timeShiftEnd", Type::Integer).or(Default::Integer(7)),
        ],
        time_stack,
    ),
];

/// An interval with its sign. Without a sign, it is negative.
fn shift(call: &Call<'_>, param: &str) -> Result<(String, i64), QueryError> {
    let mut shown = String::from(&*call.text(param));
    if shown.starts_with(|c: char| c.is_ascii_digit()) {
        shown.insert(0, '-');
    }
    let shift_s = at_time::parse_offset(&shown).map_err(|error| call.refuse(error))?;
    Ok((shown, shift_s))
}

/// Start and end of the first series of the argument, which all shifted series get. `None` if there is no such series.
fn place_s(call: &Call<'_>) -> Result<Option<(i64, i64)>, QueryError> {
    let mut place_s = None;
    let _again = call.evaluated_twice()?;
    call.each("seriesList", |series| {
        place_s.get_or_insert((series.start_s, series.end_s));
        Ok(())
    })?;
    Ok(place_s)
}

/// Start and end that a series has without the shift, at a multiple of its step.
const fn unshifted(series: &Series, shift_s: i64) -> (i64, i64) {
    let start_s = series.start_s - shift_s;
    let by_s = start_s.rem_euclid(series.step_s);
    (start_s - by_s, series.end_s - shift_s - by_s)
}

fn time_shift(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (shown, mut shift_s) = shift(call, "timeShift")?;
    let place = place_s(call)?;
    if place.is_none() && !call.is_stored("seriesList") {
        return Ok(()); // as in graphite-web
    }
    if call.boolean("alignDst") {
        shift_s += saving_s(call, shift_s);
    }
    let context = call.context();
    let shifted = context.within(context.from_s + shift_s, context.until_s + shift_s);
    let is_end_reset = call.boolean("resetEnd");
    call.each_within(&shifted, "seriesList", |mut series| {
        let (start_s, end_s) = place.unwrap_or_else(|| unshifted(&series, shift_s));
        series.tags.set("timeShift", shown.as_str());
        series.name = format!("timeShift({}, \"{shown}\")", series.name);
        series.end_s = if is_end_reset { end_s } else { series.end_s - series.start_s + start_s };
        series.start_s = start_s;
        sink(series)
    })
}

/// Correction of a shift so that times of day stay the same if clocks changed in between: an hour, or zero.
fn saving_s(call: &Call<'_>, shift_s: i64) -> i64 {
    const HOUR_S: i64 = 3600;
    let is_saving = |time_s: i64| {
        let time = jiff::Timestamp::from_second(time_s).ok();
        time.is_some_and(|time| call.options().time_zone.to_offset_info(time).dst().is_dst())
    };
    let context = call.context();
    let both = |shift_s: i64| {
        let at = [context.from_s, context.until_s].map(|time_s| is_saving(time_s + shift_s));
        (at[0] == at[1]).then_some(at[0])
    };
    match (both(0), both(shift_s)) {
        (Some(true), Some(false)) => HOUR_S,
        (Some(false), Some(true)) => -HOUR_S,
        _ => 0,
    }
}

fn time_stack(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (shown, shift_s) = shift(call, "timeShiftUnit")?;
    let (first, end) = (call.integer("timeShiftStart"), call.integer("timeShiftEnd"));
    if end.saturating_sub(first) > SHIFTS_MAX {
        return Err(call.refuse(format!("at most {SHIFTS_MAX} shifts are allowed")));
    }
    let place = place_s(call)?;
    if place.is_none() && !call.is_stored("seriesList") {
        return Ok(()); // as in graphite-web
    }
    let context = call.context();
    for number in first..end {
        let by_s = shift_s.saturating_mul(number);
        let shifted =
            context.within(context.from_s.saturating_add(by_s), context.until_s.saturating_add(by_s));
        call.each_within(&shifted, "seriesList", |mut series| {
            series.tags.set("timeShiftUnit", shown.as_str());
            series.tags.set("timeShift", number.to_string());
            series.rename(format!("timeShift({}, {shown}, {number})", series.name));
            (series.start_s, series.end_s) = place.unwrap_or_else(|| unshifted(&series, by_s));
            sink(series)
        })?;
    }
    Ok(())
}

fn time_slice(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (start_s, end_s) = (call.time("startSliceAt")?, call.time("endSliceAt")?);
    let from_s = call.context().from_s;
    call.each("seriesList", |mut series| {
        series.tags.set("timeSliceStart", start_s.to_string());
        series.tags.set("timeSliceEnd", end_s.to_string());
        series.name = format!("timeSlice({}, {start_s}, {end_s})", series.name);
        // as in graphite-web, times are counted from the start of the request instead of the series
        let mut time_s = from_s;
        call.meter().change_each(&mut series.values, |value| {
            if !(start_s..=end_s).contains(&time_s) {
                *value = f64::NAN;
            }
            time_s += series.step_s;
        })?;
        sink(series)
    })
}
