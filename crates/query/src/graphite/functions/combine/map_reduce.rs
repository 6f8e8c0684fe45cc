//! Lists of series, and targets that are built for each group of series.

use super::groups::{collected, first_of};
use crate::QueryError;
use crate::graphite::Series;
use crate::graphite::bind::{Argument, ArgumentKind, Node};
use crate::graphite::call::{Call, Sink};
use crate::graphite::functions::find;
use crate::graphite::functions::key::{key, node_at, slice};
use crate::graphite::functions::table::{Function, Group, Param, SERIES_LIST, Type};
use hashbrown::HashMap;
use std::collections::BTreeSet;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "mapSeries",
        Group::Combine,
        "Splits series into a list for each value of some nodes or tags. Only reduceSeries takes such lists.",
        &[SERIES_LIST, Param::required("mapNodes", Type::NodeOrTag).multiple()],
        map,
    )
    .aliases(&["map"])
    .lists(),
    Function::new(
        "reduceSeries",
        Group::Combine,
        "Calls a function for each group of series whose names begin alike. Its arguments are the series whose node at \
         reduceNode is one of reduceMatchers, in this order. Groups in which one is missing are left out.",
        &[
            Param::required("seriesLists", Type::SeriesLists),
            Param::required("reduceFunction", Type::String),
            Param::required("reduceNode", Type::Node),
            Param::required("reduceMatchers", Type::String).multiple(),
        ],
        reduce,
    )
    .aliases(&["reduce"]),
    Function::new(
        "applyByNode",
        Group::Combine,
        "Evaluates a target for each beginning of the series' names up to a node. In the target, % stands for the \
         beginning.",
        &[
            SERIES_LIST,
            Param::required("nodeNum", Type::Node),
            Param::required("templateFunction", Type::String),
            Param::optional("newName", Type::String),
        ],
        apply_by_node,
    ),
];

/// Returns the lists one after the other, because `reduceSeries` does not distinguish them.
fn map(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let nodes = call.nodes("mapNodes");
    collected(call, |series| key(call, series, &nodes))?
        .into_iter()
        .try_for_each(|(_, held)| held.drain(&mut *sink))
}

fn reduce(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let name = call.text("reduceFunction");
    let function = find(&name).ok_or_else(|| call.refuse(format!("there is no function {name:?}")))?;
    let place = call.integer("reduceNode");
    let matchers = call.texts("reduceMatchers");
    check_arguments(call, function, matchers.len())?;
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<(String, Vec<Option<Series>>)> = Vec::new();
    let mut charge = call.meter().charge();
    call.each("seriesLists", |series| {
        let node = node_at(&series.name, place)
            .ok_or_else(|| call.refuse(format!("{:?} has no node {place}", series.name)))?;
        let Some(argument) = matchers.iter().position(|matcher| **matcher == *node) else { return Ok(()) };
        let group_name = format!("{}.reduce.{name}", slice(&series.name, 0, place));
        let group = *places.entry(group_name.clone()).or_insert(groups.len());
        if group == groups.len() {
            charge.add_bytes(3 * group_name.len() + matchers.len() * size_of::<Option<Series>>() + 128)?;
            groups.push((group_name, vec![None; matchers.len()]));
        }
        charge.add_bytes(series.bytes())?;
        groups[group].1[argument] = Some(series);
        Ok(())
    })?;
    for (group_name, series) in groups {
        let Some(series) = series.into_iter().collect::<Option<Vec<_>>>() else { continue };
        let argument = |(number, series): (usize, Series)| {
            let parameter = function.parameter_at(number)?;
            Some(Argument { parameter, kind: ArgumentKind::Series(Node::Given(vec![series])) })
        };
        let arguments = series.into_iter().enumerate().filter_map(argument).collect();
        if let Some(mut series) = first_of(call, function, arguments)? {
            series.name = group_name;
            sink(series)?;
        }
    }
    Ok(())
}

/// Checks that a function can be called with `count` arguments that are series.
fn check_arguments(call: &Call<'_>, function: &Function, count: usize) -> Result<(), QueryError> {
    let takes_series = |number| {
        let param = function.parameter_at(number).map(|parameter| &function.params[parameter]);
        param.is_some_and(|param| matches!(param.kind, Type::SeriesList | Type::Any))
    };
    let needs_more = function.params.iter().skip(count).any(|param| param.is_required);
    if !(0..count).all(takes_series) || needs_more {
        return Err(call.refuse(format!("{:?} cannot be called with {count} series", function.name)));
    }
    Ok(())
}

fn apply_by_node(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (place, template) = (call.integer("nodeNum"), call.text("templateFunction"));
    let new_name = call.optional_text("newName");
    let mut prefixes = BTreeSet::new();
    let mut charge = call.meter().charge();
    let mut last_range = None;
    call.each("seriesList", |series| {
        let prefix = slice(&series.name, 0, place.saturating_add(1));
        last_range = Some((series.start_s, series.end_s));
        if !prefixes.contains(prefix) {
            charge.add_bytes(2 * (size_of::<String>() + prefix.len()))?;
            prefixes.insert(prefix.to_owned());
        }
        Ok(())
    })?;
    let Some((start_s, end_s)) = last_range else { return Ok(()) };
    for prefix in prefixes {
        let mut target = call.new_target();
        target.push_template(&template, &prefix)?;
        call.target(&target.finish(), |mut series| {
            if let Some(template) = new_name.as_ref().filter(|name| !name.is_empty()) {
                let mut name = call.new_name();
                name.push_template(template, &prefix)?;
                series.name = name.finish();
            }
            series.path_expression = prefix.as_str().into();
            (series.start_s, series.end_s) = (start_s, end_s);
            sink(series)
        })?;
    }
    Ok(())
}
