//! Functions of the values in a moving window.

use super::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::Aggregate;
use crate::graphite::call::{Call, Sink, Window};
use crate::graphite::consolidate::is_enough;

const WINDOW: Param = Param::required("windowSize", Type::IntOrInterval)
    .suggest(&["5", "7", "10", "1min", "5min", "10min", "30min", "1hour"]);

pub(super) const FUNCTIONS: &[Function] = &[Function::new(
    "movingAverage",
    Group::Calculate,
    "The average of the values before each point, over a number of points or an interval.",
    &[SERIES_LIST, WINDOW, Param::optional("xFilesFactor", Type::Float)],
    moving_average,
)];

fn moving_average(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    moving_window(call, "movingAverage", Aggregate::Average, sink)
}

/// Evaluates the argument again with an earlier begin, so that the first window is complete.
fn moving_window(
    call: &Call<'_>,
    name: &str,
    aggregate: Aggregate,
    sink: &mut Sink<'_>,
) -> Result<(), QueryError> {
    let window = call.window("windowSize")?;
    let (mut step_max_s, mut is_empty) = (0, true);
    call.each_in_any_order("seriesList", |series| {
        (step_max_s, is_empty) = (series.step_s.max(step_max_s), false);
        Ok(())
    })?;
    if is_empty {
        return Ok(());
    }
    let earlier_s = match window {
        Window::Seconds(seconds) => seconds,
        Window::Points(points) => step_max_s.saturating_mul(points),
    };
    let shown = match window {
        Window::Seconds(_) => format!("\"{}\"", call.shown("windowSize")),
        Window::Points(points) => points.to_string(),
    };
    let context = call.context();
    let earlier = context.within(context.from_s.saturating_sub(earlier_s), context.until_s);
    let x_files_factor = call.optional_number("xFilesFactor");
    call.each_within(&earlier, "seriesList", |mut series| {
        let points = match window {
            Window::Seconds(seconds) => seconds / series.step_s,
            Window::Points(points) => points,
        };
        let points = usize::try_from(points).unwrap_or(0);
        series.tags.set(name, call.shown("windowSize"));
        series.name = format!("{name}({},{shown})", series.name);
        series.path_expression = series.name.as_str().into();
        series.start_s += earlier_s;
        let x_files_factor = x_files_factor.unwrap_or(series.x_files_factor);
        let values = (points + 1..=series.values.len()).map(|end| {
            let window = &series.values[end - points..end];
            let present = window.iter().filter(|value| !value.is_nan()).count();
            if is_enough(present, points, x_files_factor) { aggregate.of(window) } else { f64::NAN }
        });
        series.values = values.collect();
        sink(series)
    })
}
