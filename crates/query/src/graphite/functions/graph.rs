//! Functions that say how graphs look. No pictures are drawn, so only their effect on names and values shows.

use super::each::map;
use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::text::general;

/// The stack of `stacked` without a name.
const DEFAULT_STACK: &str = "__DEFAULT__";

pub(super) const FUNCTIONS: &[Function] = &[
    graph(
        "alpha",
        "How transparent lines are.",
        &[SERIES_LIST, Param::required("alpha", Type::Float)],
        unchanged,
    ),
    Function::new(
        "areaBetween",
        Group::Graph,
        "The area between exactly two series.",
        &[SERIES_LIST],
        area_between,
    ),
    graph(
        "color",
        "The colour of lines.",
        &[SERIES_LIST, Param::required("theColor", Type::String)],
        unchanged,
    ),
    graph(
        "dashed",
        "Dashed lines.",
        &[SERIES_LIST, Param::optional("dashLength", Type::Integer).or(Default::Integer(5))],
        dashed,
    ),
    graph(
        "drawAsInfinite",
        "Vertical lines where values are greater than 0.",
        &[SERIES_LIST],
        draw_as_infinite,
    ),
    graph(
        "lineWidth",
        "The width of lines.",
        &[SERIES_LIST, Param::required("width", Type::Float)],
        unchanged,
    ),
    graph("secondYAxis", "Lines that belong to a second axis.", &[SERIES_LIST], second_y_axis),
    Function::new(
        "stacked",
        Group::Graph,
        "Adds each series to the ones before it in the same stack.",
        &[SERIES_LIST, Param::optional("stack", Type::String)],
        stacked,
    ),
];

const fn graph(
    name: &'static str,
    description: &'static str,
    params: &'static [Param],
    run: super::table::Run,
) -> Function {
    Function::new(name, Group::Graph, description, params, run).mapping()
}

fn unchanged(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    map(call, sink, |_| Ok(()))
}

fn dashed(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let length = call.integer("dashLength");
    let shown = general(length as f64);
    map(call, sink, |series| {
        series.tags.set("dashed", length.to_string());
        series.name = format!("dashed({}, {shown})", series.name);
        Ok(())
    })
}

fn draw_as_infinite(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    map(call, sink, |series| {
        series.tags.set("drawAsInfinite", "1");
        series.name = format!("drawAsInfinite({})", series.name);
        Ok(())
    })
}

fn second_y_axis(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    map(call, sink, |series| {
        series.tags.set("secondYAxis", "1");
        series.name = format!("secondYAxis({})", series.name);
        Ok(())
    })
}

fn area_between(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut held = call.all("seriesList")?;
    let [lower, upper] = &mut held[..] else {
        return Err(call.refuse(format!("there must be exactly two series, not {}", held.len())));
    };
    upper.tags.set("areaBetween", "1");
    upper.name = format!("areaBetween({})", upper.path_expression);
    lower.tags.clone_from(&upper.tags);
    lower.name.clone_from(&upper.name);
    held.drain(sink)
}

fn stacked(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let stack = call.optional_text("stack").unwrap_or_else(|| DEFAULT_STACK.into());
    // all are evaluated before, because they may be stacked themselves
    let held = call.all("seriesList")?;
    let mut totals = call.stack(&stack)?;
    held.drain(|mut series| {
        totals.add(&mut series.values)?;
        if *stack == *DEFAULT_STACK {
            super::rates::named(&mut series, "stacked", DEFAULT_STACK, "");
        } else {
            let name = series.name.clone();
            series.rename(name);
        }
        sink(series)
    })?;
    totals.keep();
    Ok(())
}
