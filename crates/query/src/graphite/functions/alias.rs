//! Functions that rename series.

mod printf;

use super::each::map;
use super::key::key;
use super::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::Aggregate;
use crate::graphite::bind::Value;
use crate::graphite::call::{Call, Sink};
use crate::graphite::pattern::{Pattern, Replacement};
use std::collections::HashSet;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "alias",
        Group::Alias,
        "Shows series under another name.",
        &[SERIES_LIST, Param::required("newName", Type::String)],
        alias,
    )
    .mapping(),
    Function::new(
        "aliasByMetric",
        Group::Alias,
        "Shows series under the last node of their path.",
        &[SERIES_LIST],
        |call, sink| {
            map(call, sink, |series| {
                series.name = last_node(&series.name).to_owned();
                Ok(())
            })
        },
    )
    .mapping(),
    Function::new(
        "aliasByNode",
        Group::Alias,
        "Shows series under some nodes of their path, or their tags.",
        &[SERIES_LIST, Param::required("nodes", Type::NodeOrTag).multiple()],
        |call, sink| by_nodes(call, "nodes", sink),
    )
    .mapping(),
    Function::new(
        "aliasByTags",
        Group::Alias,
        "Shows series under some of their tags, or nodes of their path.",
        &[SERIES_LIST, Param::required("tags", Type::NodeOrTag).multiple()],
        |call, sink| by_nodes(call, "tags", sink),
    )
    .mapping(),
    Function::new(
        "aliasQuery",
        Group::Alias,
        "Makes a target of each name with a regular expression and a replacement, and shows the last value of that target \
         as the name. The new name has a place for the value, such as `%d`.",
        &[
            SERIES_LIST,
            Param::required("search", Type::String),
            Param::required("replace", Type::String),
            Param::required("newName", Type::String),
        ],
        query,
    )
    .mapping(),
    Function::new(
        "aliasSub",
        Group::Alias,
        "Replaces what a regular expression matches in the names. In the replacement, `\\1` stands for the first group.",
        &[
            SERIES_LIST,
            Param::required("search", Type::String),
            Param::required("replace", Type::String),
        ],
        substitute,
    )
    .mapping(),
    Function::new(
        "lower",
        Group::Alias,
        "Writes names in lower case: all letters, or those at some places, which count from the end if they are negative.",
        &[SERIES_LIST, Param::optional("pos", Type::Integer).multiple()],
        |call, sink| in_case(call, |c| c.to_lowercase().collect(), sink),
    )
    .mapping(),
    Function::new(
        "upper",
        Group::Alias,
        "Writes names in upper case: all letters, or those at some places, which count from the end if they are negative.",
        &[SERIES_LIST, Param::optional("pos", Type::Integer).multiple()],
        |call, sink| in_case(call, |c| c.to_uppercase().collect(), sink),
    )
    .mapping(),
];

fn alias(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let name = call.text("newName");
    map(call, sink, |series| {
        series.name = String::from(&*name);
        Ok(())
    })
}

fn by_nodes(call: &Call<'_>, param: &str, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let nodes = call.nodes(param);
    map(call, sink, |series| {
        series.name = key(call, series, &nodes)?;
        Ok(())
    })
}

/// The last node of the path between the last opening bracket of a name and its first closing one.
fn last_node(name: &str) -> &str {
    let from = name.rfind('(').map_or(0, |at| at + 1);
    let to = name.find(')').unwrap_or(name.len());
    let inside = name.get(from..to).unwrap_or_default();
    let node = inside.rsplit('.').next().unwrap_or_default();
    node.split(',').next().unwrap_or_default()
}

fn substitute(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut names = Names::new(call);
    call.each("seriesList", |mut series| {
        call.meter().check()?;
        series.name = names.replaced(&series.name)?;
        sink(series)
    })
}

/// Replaces matches of the argument `search` with the argument `replace`. As in graphite-web, the two arguments are parsed,
/// and can be wrong, only if there is a series.
struct Names<'c> {
    call: &'c Call<'c>,
    parsed: Option<(Pattern<'c>, Replacement)>,
}

impl<'c> Names<'c> {
    const fn new(call: &'c Call<'c>) -> Self {
        Self { call, parsed: None }
    }

    fn replaced(&mut self, name: &str) -> Result<String, QueryError> {
        let (pattern, replacement) = match &mut self.parsed {
            Some(parsed) => parsed,
            none => {
                let pattern = Pattern::of(self.call, "search")?;
                let replacement = pattern.replacement(self.call, "replace")?;
                none.insert((pattern, replacement))
            }
        };
        pattern.replace(name, replacement)
    }
}

fn query(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut names = Names::new(call);
    let format = call.text("newName");
    call.each("seriesList", |mut series| {
        let target = names.replaced(&series.name)?;
        // the series is held while the target is evaluated, which may do the same
        let mut charge = call.meter().charge();
        charge.add_bytes(series.bytes())?;
        let mut last = None;
        call.target(&target, |found| {
            last.get_or_insert_with(|| Aggregate::Last.of(&found.values));
            Ok(())
        })?;
        let value = last.ok_or_else(|| call.refuse(format!("no series found for {target:?}")))?;
        if value.is_nan() {
            return Err(call.refuse(format!("{target:?} has no value")));
        }
        series.name = printf::format(&format, value).map_err(|why| call.refuse(why))?;
        drop(charge);
        sink(series)
    })
}

fn in_case(call: &Call<'_>, change: impl Fn(char) -> String, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let place = |value: &Value| if let Value::Integer(place) = value { Some(*place) } else { None };
    let places: Vec<_> = call.values("pos").filter_map(place).collect();
    map(call, sink, |series| {
        let mut name = call.new_name();
        if places.is_empty() {
            series.name.chars().try_for_each(|c| name.push(&change(c)))?;
        } else {
            let length = series.name.chars().count() as i64;
            let from_begin = |place: i64| if place < 0 { place.saturating_add(length) } else { place };
            let changed: HashSet<i64> = places.iter().map(|place| from_begin(*place)).collect();
            for (place, c) in (0..).zip(series.name.chars()) {
                let in_case = if changed.contains(&place) { change(c) } else { c.into() };
                name.push(&in_case)?;
            }
        }
        series.name = name.finish();
        Ok(())
    })
}

#[cfg(test)]
mod tests;
