//! Functions of the values in a moving window.

use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink, Window};
use crate::graphite::moving;
use crate::graphite::rounding::round;
use crate::graphite::{Aggregate, Series};
use crate::meter::VALUES_PER_CHECK;

const WINDOW: Param = Param::required("windowSize", Type::IntOrInterval)
    .suggest(&["5", "7", "10", "1min", "5min", "10min", "30min", "1hour"]);

const WINDOW_S_MAX: i64 = 1000 * 365 * 86_400;

const X_FILES_FACTOR: Param = Param::optional("xFilesFactor", Type::Float);

const PARAMS: &[Param] = &[SERIES_LIST, WINDOW, X_FILES_FACTOR];

pub(super) const FUNCTIONS: &[Function] = &[
    calculate(
        "exponentialMovingAverage",
        "An average in which the weight of a value shrinks with its age. The window says how fast.",
        &[SERIES_LIST, WINDOW],
        exponential_moving_average,
    ),
    calculate("movingAverage", "The average of the window before each point.", PARAMS, moving_average),
    calculate("movingMax", "The largest value of the window before each point.", PARAMS, moving_max),
    calculate("movingMedian", "The median of the window before each point.", PARAMS, moving_median),
    calculate("movingMin", "The smallest value of the window before each point.", PARAMS, moving_min),
    calculate("movingSum", "The sum of the window before each point.", PARAMS, moving_sum),
    calculate(
        "movingWindow",
        "Aggregates the window before each point. The window is a number of points, or an interval. Values before the \
         start of the request are read too.",
        &[
            SERIES_LIST,
            WINDOW,
            Param::optional("func", Type::AggFunc).or(Default::Text("average")),
            X_FILES_FACTOR,
        ],
        moving_window,
    ),
    calculate(
        "stdev",
        "The standard deviation of this many values up to each point, if the share of them that is present is at least \
         `windowTolerance`.",
        &[
            SERIES_LIST,
            Param::required("points", Type::Integer),
            Param::optional("windowTolerance", Type::Float).or(Default::Float(0.1)),
        ],
        stdev,
    ),
];

const fn calculate(
    name: &'static str,
    description: &'static str,
    params: &'static [Param],
    run: super::table::Run,
) -> Function {
    Function::new(name, Group::Calculate, description, params, run).mapping()
}

fn moving_average(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    apply(call, sink, "movingAverage", Aggregate::Average)
}

fn moving_max(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    apply(call, sink, "movingMax", Aggregate::Max)
}

fn moving_median(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    apply(call, sink, "movingMedian", Aggregate::Median)
}

fn moving_min(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    apply(call, sink, "movingMin", Aggregate::Min)
}

fn moving_sum(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    apply(call, sink, "movingSum", Aggregate::Sum)
}

fn moving_window(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let function = call.text("func");
    let (first, rest) = function.split_at(function.chars().next().map_or(0, char::len_utf8));
    let name = format!("moving{}{}", first.to_uppercase(), rest.to_lowercase());
    apply(call, sink, &name, call.aggregate("func"))
}

fn apply(call: &Call<'_>, sink: &mut Sink<'_>, name: &str, aggregate: Aggregate) -> Result<(), QueryError> {
    let x_files_factor = call.optional_number("xFilesFactor");
    with_earlier(call, name, |mut series, points| {
        let mut charge = call.meter().charge();
        let work_bytes = moving::work_bytes(series.values.len(), points, aggregate);
        charge.add_bytes(size_of_val(series.values.as_slice()) + work_bytes)?;
        let x_files_factor = x_files_factor.unwrap_or(series.x_files_factor);
        let values =
            moving::aggregated(&series.values, points, aggregate, x_files_factor, &|| call.meter().check())?;
        series.values = values;
        sink(series)
    })
}

fn exponential_moving_average(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let weight = match call.window("windowSize")? {
        Window::Points(count) | Window::Seconds(count) => 2.0 / (count as f64 + 1.0),
    };
    with_earlier(call, "exponentialMovingAverage", |mut series, points| {
        let (before, after) = series.values.split_at(points.min(series.values.len()));
        let start = Aggregate::Average.of(before);
        let mut average = if start.is_nan() { 0.0 } else { start };
        let mut charge = call.meter().charge();
        charge.add_bytes((after.len() + 1) * size_of::<f64>())?;
        let mut values = Vec::with_capacity(after.len() + 1);
        values.push(round(average, 6));
        for (place, &value) in after.iter().enumerate() {
            call.meter().check_at(place)?;
            if !value.is_nan() {
                average = weight * value + (1.0 - weight) * average;
            }
            values.push(if value.is_nan() { f64::NAN } else { round(average, 6) });
        }
        series.values = values;
        sink(series)
    })
}

/// Evaluates the argument again with a start that is earlier by the window, so that the first window is complete.
/// Names the series, and passes on each with the number of its values that are in a window.
fn with_earlier(
    call: &Call<'_>,
    name: &str,
    mut sink: impl FnMut(Series, usize) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let (window, shown) = (call.window("windowSize")?, call.shown("windowSize"));
    let quoted = if matches!(window, Window::Seconds(_)) { format!("\"{shown}\"") } else { shown.clone() };
    let is_past = call.context().from_s <= call.context().now_s;
    // stored series are found whatever values they have, unless the range is in the future
    let is_there = call.is_stored("seriesList") && is_past;
    let _nested;
    let earlier_s = match window {
        Window::Points(points) if points < 0 => return Err(call.refuse("the window must not be negative")),
        Window::Seconds(seconds) if is_there => seconds,
        window => {
            _nested = call.evaluated_twice()?;
            match (longest_step_s(call)?, window) {
                (0, _) => return Ok(()),
                (_, Window::Seconds(seconds)) => seconds,
                (step_s, Window::Points(points)) => step_s.saturating_mul(points),
            }
        }
    };
    if earlier_s > WINDOW_S_MAX {
        return Err(call.refuse("the window is longer than a thousand years"));
    }
    let context = call.context();
    let earlier = context.within(context.from_s - earlier_s, context.until_s);
    call.each_within(&earlier, "seriesList", |mut series| {
        let points = match window {
            Window::Seconds(seconds) => seconds / series.step_s,
            Window::Points(points) => points,
        };
        super::rates::named(&mut series, name, &shown, &format!(",{quoted}"));
        series.start_s += earlier_s;
        sink(series, usize::try_from(points).unwrap_or(usize::MAX))
    })
}

/// The longest step of the argument's series, or 0 if there are none.
fn longest_step_s(call: &Call<'_>) -> Result<i64, QueryError> {
    let mut longest_s = 0;
    call.each_in_any_order("seriesList", |series| {
        longest_s = series.step_s.max(longest_s);
        Ok(())
    })?;
    Ok(longest_s)
}

fn stdev(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (points, tolerance) = (call.integer("points"), call.number("windowTolerance"));
    if points < 1 {
        return Err(call.refuse("the number of points must be at least 1"));
    }
    let window = usize::try_from(points).unwrap_or(usize::MAX);
    call.each("seriesList", |mut series| {
        super::rates::named(&mut series, "stdev", &points.to_string(), &format!(",{points}"));
        let mut charge = call.meter().charge();
        charge.add_bytes(size_of_val(series.values.as_slice()))?;
        series.values = deviations(call, &series.values, window, tolerance)?;
        sink(series)
    })
}

fn deviations(
    call: &Call<'_>,
    values: &[f64],
    window: usize,
    tolerance: f64,
) -> Result<Vec<f64>, QueryError> {
    let (mut count, mut sum, mut sum_of_squares) = (0.0, 0.0, 0.0);
    let deviation_at = |place: usize| {
        let value = values[place];
        if let Some(dropped) =
            place.checked_sub(window).map(|place| values[place]).filter(|value| !value.is_nan())
        {
            count -= 1.0;
            sum -= dropped;
            sum_of_squares -= dropped * dropped;
        }
        if !value.is_nan() {
            count += 1.0;
            sum += value;
            sum_of_squares += value * value;
        }
        let is_enough = count > 0.0 && count / window as f64 >= tolerance;
        // rounding can make the difference negative, whose root is NaN
        if is_enough { (count * sum_of_squares - sum * sum).sqrt() / count } else { f64::NAN }
    };
    call.meter().collect(values.len(), VALUES_PER_CHECK, deviation_at)
}
