//! Functions that change each value of a series on its own.

use super::each::map;
use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::rounding::round;
use crate::graphite::text::{general, truncated};

const FACTOR: Param = Param::required("factor", Type::Float);

pub(super) const FUNCTIONS: &[Function] = &[
    change("absolute", "Removes the sign of each value.", &[SERIES_LIST], absolute),
    change(
        "add",
        "Adds a number to each value. The name shows its integer part; offset() shows all of it.",
        &[SERIES_LIST, Param::required("constant", Type::Float)],
        add,
    ),
    change("exp", "Raises e to the power of each value.", &[SERIES_LIST], exp),
    change(
        "invert",
        "Replaces each value by its reciprocal. The reciprocal of 0 is missing.",
        &[SERIES_LIST],
        invert,
    ),
    change("isNonNull", "1 where there is a value, and 0 where there is none.", &[SERIES_LIST], is_non_null),
    change(
        "log",
        "The logarithm of each value to a base. Only positive values have one.",
        &[SERIES_LIST, Param::optional("base", Type::Integer).or(Default::Integer(10))],
        log,
    ),
    change("logit", "ln(v / (1 - v)) of each value v, which must be between 0 and 1.", &[SERIES_LIST], logit),
    change(
        "minMax",
        "Scales each series so that its smallest value becomes 0 and its largest 1.",
        &[SERIES_LIST],
        min_max,
    ),
    change("offset", "Adds a number to each value.", &[SERIES_LIST, FACTOR], offset),
    change(
        "offsetToZero",
        "Subtracts the smallest value of each series from all of its values.",
        &[SERIES_LIST],
        offset_to_zero,
    ),
    change("pow", "Raises each value to a power.", &[SERIES_LIST, FACTOR], pow),
    change(
        "round",
        "Rounds each value to a number of decimal places. A negative number rounds to tens, hundreds and so on.",
        &[SERIES_LIST, Param::optional("precision", Type::Integer).or(Default::Integer(0))],
        round_values,
    ),
    change("scale", "Multiplies each value by a factor.", &[SERIES_LIST, FACTOR], scale),
    change(
        "scaleToSeconds",
        "Turns amounts per step into amounts per this many seconds.",
        &[SERIES_LIST, Param::required("seconds", Type::Float)],
        scale_to_seconds,
    ),
    change("sigmoid", "1 / (1 + exp(-v)) of each value v.", &[SERIES_LIST], sigmoid),
    change(
        "squareRoot",
        "The square root of each value. Negative values have none.",
        &[SERIES_LIST],
        square_root,
    ),
];

const fn change(
    name: &'static str,
    description: &'static str,
    params: &'static [Param],
    run: super::table::Run,
) -> Function {
    Function::new(name, Group::Transform, description, params, run).mapping()
}

fn absolute(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    marked(call, sink, "absolute", "1", f64::abs)
}

fn add(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let constant = call.number("constant");
    let (shown, tag) = (truncated(constant), call.shown("constant"));
    map(call, sink, |series| {
        series.tags.set("add", tag.as_str());
        series.rename(format!("add({},{shown})", series.name));
        call.meter().change_each(&mut series.values, |value| *value += constant)
    })
}

fn exp(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    marked(call, sink, "exp", "e", |value| finite_or_none(value.exp(), value))
}

fn invert(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    marked(call, sink, "invert", "1", |value| finite_or_none(1.0 / value, value))
}

fn is_non_null(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    marked(call, sink, "isNonNull", "1", |value| if value.is_nan() { 0.0 } else { 1.0 })
}

fn logit(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    marked(call, sink, "logit", "logit", |value| finite_or_none((value / (1.0 - value)).ln(), value))
}

fn sigmoid(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    marked(call, sink, "sigmoid", "sigmoid", |value| 1.0 / (1.0 + (-value).exp()))
}

fn square_root(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    marked(call, sink, "squareRoot", "1", |value| power(value, 0.5))
}

/// Renames each series to `function(name)`, sets the tag `function`, and computes each value.
fn marked(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    function: &str,
    tag: &str,
    of: impl Fn(f64) -> f64,
) -> Result<(), QueryError> {
    map(call, sink, |series| {
        series.tags.set(function, tag);
        series.rename(format!("{function}({})", series.name));
        call.meter().change_each(&mut series.values, |value| *value = of(*value))
    })
}

fn log(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (base, shown) = (call.number("base"), call.shown("base"));
    if base <= 0.0 || base == 1.0 {
        return Err(call.refuse(format!("{shown} is not a base of a logarithm")));
    }
    map(call, sink, |series| {
        series.tags.set("log", shown.as_str());
        series.rename(format!("log({}, {shown})", series.name));
        let log = |value: f64| if value > 0.0 { value.ln() / base.ln() } else { f64::NAN };
        call.meter().change_each(&mut series.values, |value| *value = log(*value))
    })
}

fn min_max(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    map(call, sink, |series| {
        series.rename(format!("minMax({})", series.name));
        let least = series.values.iter().copied().fold(f64::NAN, f64::min);
        let range = series.values.iter().copied().fold(f64::NAN, f64::max) - least;
        let scaled = |value: f64| if range == 0.0 { 0.0 } else { (value - least) / range };
        call.meter().change_each(&mut series.values, |value| {
            if !value.is_nan() {
                *value = scaled(*value);
            }
        })
    })
}

fn offset(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_factor(call, sink, "offset", |value, factor| value + factor)
}

fn scale(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_factor(call, sink, "scale", |value, factor| value * factor)
}

fn pow(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_factor(call, sink, "pow", power)
}

fn by_factor(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    function: &str,
    of: impl Fn(f64, f64) -> f64,
) -> Result<(), QueryError> {
    let factor = call.number("factor");
    let (shown, tag) = (general(factor), call.shown("factor"));
    map(call, sink, |series| {
        series.tags.set(function, tag.as_str());
        series.rename(format!("{function}({},{shown})", series.name));
        call.meter().change_each(&mut series.values, |value| *value = of(*value, factor))
    })
}

fn offset_to_zero(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    map(call, sink, |series| {
        let least = series.values.iter().copied().fold(f64::NAN, f64::min);
        series.tags.set("offsetToZero", super::legend::shown(least));
        series.rename(format!("offsetToZero({})", series.name));
        call.meter().change_each(&mut series.values, |value| *value -= least)
    })
}

fn round_values(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let places = call.integer("precision");
    let is_given = call.values("precision").next().is_some();
    map(call, sink, |series| {
        series.tags.set("round", places.to_string());
        series.rename(match is_given {
            true => format!("round({},{})", series.name, general(places as f64)),
            false => format!("round({})", series.name),
        });
        call.meter().change_each(&mut series.values, |value| *value = round(*value, places))
    })
}

fn scale_to_seconds(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let seconds = call.number("seconds");
    let (shown, tag) = (truncated(seconds), call.shown("seconds"));
    map(call, sink, |series| {
        series.tags.set("scaleToSeconds", tag.as_str());
        series.rename(format!("scaleToSeconds({},{shown})", series.name));
        let factor = seconds / series.step_s as f64;
        call.meter().change_each(&mut series.values, |value| *value = round(*value * factor, 6))
    })
}

/// A power, or NaN where Python refuses to compute one: if it is infinite or no real number.
pub(super) fn power(value: f64, exponent: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { finite_or_none(value.powf(exponent), value) }
}

/// The result, unless it is infinite although the value that it was computed from is not.
const fn finite_or_none(result: f64, value: f64) -> f64 {
    if result.is_infinite() && value.is_finite() { f64::NAN } else { result }
}
