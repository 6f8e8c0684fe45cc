//! Functions that make series without reading any.

use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::at_time::within_reach;
use crate::graphite::call::{Call, Sink};
use crate::graphite::text::general;
use crate::graphite::{Aggregate, Series};
use crate::meter::VALUES_PER_CHECK;
use stdx::rng::{Rng, mix};

const NAME: Param = Param::required("name", Type::String);
const STEP: Param = Param::optional("step", Type::Integer).or(Default::Integer(60));
const LABEL: Param = Param::optional("label", Type::String);
const COLOR: Param = Param::optional("color", Type::String);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "aggregateLine",
        Group::Calculate,
        "A horizontal line for each series, at the height of its average or another aggregation.",
        &[
            SERIES_LIST,
            Param::optional("func", Type::AggFunc).or(Default::Text("average")),
            Param::optional("keepStep", Type::Boolean).or(Default::Boolean(false)),
        ],
        aggregate_line,
    ),
    Function::new(
        "constantLine",
        Group::Special,
        "A horizontal line at this height.",
        &[Param::required("value", Type::Float)],
        constant_line,
    ),
    Function::new(
        "events",
        Group::Special,
        "The number of events at each second that have all of these tags. `*` means all events.",
        &[Param::required("tags", Type::String).multiple()],
        events,
    ),
    Function::new(
        "identity",
        Group::Calculate,
        "A series whose values are their own times, in seconds since 1970, one for each minute.",
        &[NAME],
        identity,
    ),
    Function::new(
        "randomWalkFunction",
        Group::Special,
        "A series that moves by less than one half at each step, at random. The same request has the same answer.",
        &[NAME, STEP],
        random_walk,
    )
    .aliases(&["randomWalk"]),
    Function::new(
        "sinFunction",
        Group::Transform,
        "The sine of the time in seconds since 1970, multiplied by an amplitude.",
        &[NAME, Param::optional("amplitude", Type::Integer).or(Default::Integer(1)), STEP],
        sine,
    )
    .aliases(&["sin"]),
    Function::new(
        "threshold",
        Group::Graph,
        "A horizontal line at this height, under a label.",
        &[Param::required("value", Type::Float), LABEL, COLOR],
        threshold,
    ),
    Function::new(
        "timeFunction",
        Group::Transform,
        "A series whose values are their own times, in seconds since 1970, one for each step.",
        &[NAME, STEP],
        time,
    )
    .aliases(&["time"]),
    Function::new(
        "verticalLine",
        Group::Graph,
        "A vertical line at a time, which must be in the range of the request.",
        &[Param::required("ts", Type::Date), LABEL, COLOR],
        vertical_line,
    ),
];

/// Three points at the same height, over the whole request.
fn line(call: &Call<'_>, value: f64) -> Series {
    let context = call.context();
    let step_s = ((context.until_s - context.from_s) / 2).max(1);
    let name = super::legend::shown(value);
    let series = Series::computed(name, context.from_s, context.until_s, step_s, vec![value; 3]);
    let path_expression = format!("constantLine({})", series.name).into();
    Series { path_expression, x_files_factor: context.x_files_factor(), ..series }
}

fn constant_line(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    sink(line(call, call.number("value")))
}

fn threshold(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut series = line(call, call.number("value"));
    if let Some(label) = call.optional_text("label").filter(|label| !label.is_empty()) {
        series.name = String::from(&*label);
    }
    sink(series)
}

fn aggregate_line(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (aggregate, keeps_step) = (call.aggregate("func"), call.boolean("keepStep"));
    call.each("seriesList", |mut series| {
        let value = call.aggregated(&series, aggregate)?;
        let shown = if value.is_nan() { "None".into() } else { general(value) };
        let name = format!("aggregateLine({}, {shown})", series.name);
        if keeps_step {
            series.values.fill(value);
        } else {
            series = line(call, value);
        }
        series.rename(name);
        sink(series)
    })
}

fn identity(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let name = call.text("name");
    let path_expression = format!("identity(\"{name}\")").into();
    computed(call, 60, |time_s| time_s as f64, |series| sink(Series { path_expression, ..series }))
}

fn time(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    computed(call, call.integer("step"), |time_s| time_s as f64, sink)
}

fn sine(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let amplitude = call.number("amplitude");
    computed(call, call.integer("step"), |time_s| (time_s as f64).sin() * amplitude, sink)
}

fn random_walk(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let of_name = call.text("name").bytes().fold(0, |seed, byte| mix(seed ^ u64::from(byte)));
    let mut rng = Rng::new(of_name ^ call.context().from_s as u64);
    let mut place = 0.0;
    let next = |_| {
        let here = place;
        place += rng.unit() - 0.5;
        here
    };
    computed(call, call.integer("step"), next, sink)
}

/// A series with the parameter `name` as its name, and a value for each step of the request.
fn computed(
    call: &Call<'_>,
    step_s: i64,
    mut of: impl FnMut(i64) -> f64,
    sink: impl FnOnce(Series) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    if step_s < 1 {
        return Err(call.refuse("the step must be at least a second"));
    }
    let step_s = within_reach(step_s); // longer than any request, so it makes no difference
    let context = call.context();
    let count = ((context.until_s - context.from_s).max(0) as u64).div_ceil(step_s as u64) as usize;
    let mut charge = call.meter().charge();
    charge.add_bytes(count.saturating_mul(size_of::<f64>()))?;
    let value = |number: usize| of(context.from_s + number as i64 * step_s);
    let values = call.meter().collect(count, VALUES_PER_CHECK, value)?;
    let series =
        Series::computed(String::from(&*call.text("name")), context.from_s, context.until_s, step_s, values);
    sink(Series { x_files_factor: context.x_files_factor(), ..series })
}

fn vertical_line(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (time_s, context) = (call.time("ts")?, call.context());
    if !(context.from_s..=context.until_s).contains(&time_s) {
        let (from_s, until_s) = (context.from_s, context.until_s);
        return Err(call.refuse(format!("{time_s} is not between {from_s} and {until_s}")));
    }
    let name = call.optional_text("label").unwrap_or_else(|| "verticalLine".into());
    let series = Series::computed(String::from(&*name), time_s, time_s, 1, vec![1.0; 2]);
    sink(Series { x_files_factor: context.x_files_factor(), ..series })
}

fn events(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let tags = call.texts("tags");
    let mut name = call.new_name();
    name.push("events(")?;
    for (number, tag) in tags.iter().enumerate() {
        [if number > 0 { ", \"" } else { "\"" }, tag, "\""]
            .into_iter()
            .try_for_each(|part| name.push(part))?;
    }
    name.push(")")?;
    let name = name.finish();
    let wanted: Vec<&str> = tags.iter().map(|tag| &**tag).collect();
    let wanted = if wanted == ["*"] { &[] } else { &wanted[..] };
    let context = call.context();
    let count = usize::try_from(context.until_s - context.from_s).unwrap_or(0);
    let mut charge = call.meter().charge();
    charge.add_bytes(count.saturating_mul(size_of::<f64>()))?;
    let mut values = vec![f64::NAN; count];
    call.events(wanted, &mut |time_s| {
        let place = usize::try_from(time_s - context.from_s).ok();
        if let Some(value) = place.and_then(|place| values.get_mut(place)) {
            *value = if value.is_nan() { 1.0 } else { *value + 1.0 };
        }
    })?;
    let series = Series::computed(name, context.from_s, context.until_s, 1, values);
    sink(Series { consolidation: Aggregate::Sum, x_files_factor: context.x_files_factor(), ..series })
}
