//! Functions that set how values are consolidated.

use super::each::map;
use super::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::Aggregate;
use crate::graphite::call::{Call, Sink};

const METHODS: &[&str] = &["sum", "average", "avg", "avg_zero", "min", "max", "first", "last"];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "consolidateBy",
        Group::Special,
        "How values are combined if a graph has more points than it can show.",
        &[SERIES_LIST, Param::required("consolidationFunc", Type::String).one_of(METHODS)],
        consolidate_by,
    )
    .mapping(),
    Function::new(
        "cumulative",
        Group::Special,
        "The same as consolidateBy() with `sum`.",
        &[SERIES_LIST],
        cumulative,
    )
    .mapping(),
    Function::new(
        "setXFilesFactor",
        Group::Special,
        "The part of the values of an interval that must be present to combine them, from 0 to 1. Also for all that is \
         evaluated after it.",
        &[SERIES_LIST, Param::required("xFilesFactor", Type::Float)],
        set_x_files_factor,
    )
    .aliases(&["xFilesFactor"]),
];

fn consolidate_by(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    consolidated_by(call, sink, &call.text("consolidationFunc"))
}

fn cumulative(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    consolidated_by(call, sink, "sum")
}

fn consolidated_by(call: &Call<'_>, sink: &mut Sink<'_>, method: &str) -> Result<(), QueryError> {
    let consolidation = Aggregate::parse(method).expect("BUG: a method of consolidation is unknown");
    map(call, sink, |series| {
        series.consolidation = consolidation;
        series.tags.set("consolidateBy", method);
        series.rename(format!("consolidateBy({},\"{method}\")", series.name));
    })
}

fn set_x_files_factor(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (x_files_factor, tag) = (call.number("xFilesFactor"), call.shown("xFilesFactor"));
    map(call, sink, |series| {
        series.x_files_factor = x_files_factor;
        series.tags.set("xFilesFactor", tag.as_str());
    })?;
    call.context().set_x_files_factor(Some(x_files_factor));
    Ok(())
}
