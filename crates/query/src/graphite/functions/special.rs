//! Functions that choose series by their tags, cut their names, or set how values are consolidated.

use super::each::map;
use super::key::slice;
use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
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
        "seriesByTag",
        Group::Special,
        "Series that have tags: `name=disk.used`, `dc!=east`, `host=~web.*` or `host!=~web.*`. Regular expressions must match \
         the beginning of a value.",
        &[Param::required("tagExpressions", Type::String).multiple()],
        series_by_tag,
    ),
    Function::new(
        "setXFilesFactor",
        Group::Special,
        "The share of the values of an interval that must be present to combine them, from 0 to 1. Also for all that is \
         evaluated after it.",
        &[SERIES_LIST, Param::required("xFilesFactor", Type::Float)],
        set_x_files_factor,
    )
    .aliases(&["xFilesFactor"]),
    Function::new(
        "substr",
        Group::Special,
        "Cuts names to the nodes from `start` up to, but without, `stop`. Negative places count from the end.",
        &[
            SERIES_LIST,
            Param::optional("start", Type::Node).or(Default::Integer(0)),
            Param::optional("stop", Type::Node).or(Default::Integer(0)),
        ],
        substr,
    )
    .mapping(),
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
        Ok(())
    })
}

fn set_x_files_factor(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (x_files_factor, tag) = (call.number("xFilesFactor"), call.shown("xFilesFactor"));
    map(call, sink, |series| {
        series.x_files_factor = x_files_factor;
        series.tags.set("xFilesFactor", tag.as_str());
        Ok(())
    })?;
    call.context().set_x_files_factor(Some(x_files_factor));
    Ok(())
}

/// In targets, `bind` replaces calls of this function by leaves. It is in the table so that lists of functions have it.
fn series_by_tag(call: &Call<'_>, _sink: &mut Sink<'_>) -> Result<(), QueryError> {
    Err(call.refuse("it cannot be called by another function"))
}

fn substr(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (start, stop) = (call.integer("start"), call.integer("stop"));
    map(call, sink, |series| {
        series.name = nodes_between(&series.name, start, stop).to_owned();
        Ok(())
    })
}

/// The nodes from `start` to `stop`, exclusive, of the path between the last opening bracket of a name and its first
/// closing one. With 0 as `stop`, all nodes from `start` on.
fn nodes_between(name: &str, start: i64, stop: i64) -> &str {
    let from = name.rfind('(').map_or(0, |at| at + 1);
    let to = name.find(')').unwrap_or(name.len());
    let stop = if stop == 0 { i64::MAX } else { stop };
    let path = slice(name.get(from..to).unwrap_or_default(), start, stop);
    path.split(',').next().unwrap_or_default()
}
