//! Functions that aggregate series by groups.

use super::fold::{Fold, order_for};
use super::{FUNC, NODES};
use crate::QueryError;
use crate::graphite::bind::{Argument, ArgumentKind, Invocation, Node};
use crate::graphite::call::{Call, NodeOrTag, Sink};
use crate::graphite::functions::find;
use crate::graphite::functions::key::key;
use crate::graphite::functions::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::graphite::held::Held;
use crate::graphite::source::Order;
use crate::graphite::{Aggregate, Series, Tags};
use crate::meter::Charge;
use hashbrown::{HashMap, HashSet};

const POSITION: Param = Param::optional("position", Type::Node).multiple();
const CALLBACK: Param = Param::required("callback", Type::AggOrSeriesFunc);

macro_rules! with_wildcards {
    ($name:literal, $description:literal, $label:literal, $method:ident) => {
        Function::new($name, Group::Combine, $description, &[SERIES_LIST, POSITION], |call, sink| {
            with_wildcards(call, &Callback::Fold { label: $label.into(), method: Aggregate::$method }, sink)
        })
        .aggregator()
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "aggregateWithWildcards",
        Group::Combine,
        "Groups series whose names are equal except for the nodes at these places, and aggregates each group.",
        &[SERIES_LIST, FUNC, POSITION],
        |call, sink| with_wildcards(call, &Callback::aggregation(call, &call.text("func"))?, sink),
    ),
    with_wildcards!(
        "sumSeriesWithWildcards",
        "Groups series whose names are equal except for the nodes at these places. The sum of each group.",
        "sum",
        Sum
    ),
    with_wildcards!(
        "averageSeriesWithWildcards",
        "Groups series whose names are equal except for the nodes at these places. The average of each group.",
        "average",
        Average
    ),
    with_wildcards!(
        "multiplySeriesWithWildcards",
        "Groups series whose names are equal except for the nodes at these places. The product of each group.",
        "multiply",
        Multiply
    ),
    Function::new(
        "groupByNode",
        Group::Combine,
        "Groups series by a node or tag, and combines each group by an aggregation or a function.",
        &[
            SERIES_LIST,
            Param::required("nodeNum", Type::NodeOrTag),
            Param::optional("callback", Type::AggOrSeriesFunc).or(Default::Text("average")),
        ],
        |call, sink| by_nodes(call, &call.nodes("nodeNum"), sink),
    ),
    Function::new(
        "groupByNodes",
        Group::Combine,
        "Groups series by several nodes or tags, and combines each group by an aggregation or a function.",
        &[SERIES_LIST, CALLBACK, NODES],
        |call, sink| by_nodes(call, &call.nodes("nodes"), sink),
    ),
    Function::new(
        "groupByTags",
        Group::Combine,
        "Groups series by tags, and combines each group by an aggregation or a function.",
        &[SERIES_LIST, CALLBACK, Param::required("tags", Type::Tag).multiple()],
        by_tags,
    ),
];

fn with_wildcards(call: &Call<'_>, callback: &Callback, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let positions: HashSet<i64> = call
        .nodes("position")
        .into_iter()
        .filter_map(|node| if let NodeOrTag::Node(place) = node { Some(place) } else { None })
        .collect();
    let key_of = |series: &Series| {
        let mut key = call.new_name();
        let mut separator = "";
        for (place, node) in (0..).zip(series.name.split('.')) {
            if !positions.contains(&place) {
                key.push(std::mem::replace(&mut separator, "."))?;
                key.push(node)?;
            }
        }
        Ok(key.finish())
    };
    in_groups(call, callback, key_of, |key, mut series| {
        series.name = key;
        sink(series)
    })
}

fn by_nodes(call: &Call<'_>, nodes: &[NodeOrTag], sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let callback = Callback::of(call, &call.text("callback"))?;
    in_groups(
        call,
        &callback,
        |series| key(call, series, nodes),
        |key, mut series| {
            series.name = key;
            sink(series)
        },
    )
}

fn by_tags(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let callback_name = call.text("callback");
    let callback = Callback::of(call, &callback_name)?;
    let mut tags = call.texts("tags");
    // all of them are in the name of each group; longer ones would also take long to sort
    let mut names = call.new_name();
    tags.iter().try_for_each(|tag| names.push(tag))?;
    drop(names);
    tags.sort_unstable();
    let is_by_name = tags.iter().any(|tag| &**tag == "name");
    tags.retain(|tag| &**tag != "name");
    // without the tag `name`, the groups get the name that all series have, which is known only at the end
    let mut common_name = None;
    let key_of = |series: &Series| {
        let name = series.tags.get("name").unwrap_or_default();
        match &mut common_name {
            None => common_name = Some(Some(name.to_owned())),
            Some(Some(common)) if common != name => common_name = Some(None),
            Some(_) => {}
        }
        let mut key = call.new_name();
        if is_by_name {
            key.push(name)?;
        }
        for tag in &tags {
            let value = series.tags.get(tag).unwrap_or_default();
            [";", tag, "=", value].into_iter().try_for_each(|part| key.push(part))?;
        }
        Ok(key.finish())
    };
    let mut results = Held::new(call.meter());
    in_groups(call, &callback, key_of, |key, mut series| {
        series.rename(key);
        results.push(series)
    })?;
    let name = common_name.flatten().unwrap_or_else(|| String::from(&*callback_name));
    results.drain(|mut series| {
        if !is_by_name {
            series.rename(format!("{name}{}", series.name));
        }
        let mut charge = call.meter().charge();
        charge.add_bytes(Tags::bytes_of_name(&series.name))?;
        series.tags = Tags::of_name(&series.name);
        sink(series)
    })
}

/// The aggregation or function that makes one series of a group.
enum Callback {
    Fold { label: String, method: Aggregate },
    Function(&'static Function),
}

impl Callback {
    fn of(call: &Call<'_>, name: &str) -> Result<Self, QueryError> {
        let fold = |label: &str, method| Ok(Self::Fold { label: label.into(), method });
        if let Some(function) = find(name).filter(|function| function.is_aggregator) {
            return match function.name {
                "sumSeries" => fold("sum", Aggregate::Sum),
                "averageSeries" => fold("average", Aggregate::Average),
                "minSeries" => fold("min", Aggregate::Min),
                "maxSeries" => fold("max", Aggregate::Max),
                "diffSeries" => fold("diff", Aggregate::Diff),
                "rangeOfSeries" => fold("rangeOf", Aggregate::Range),
                "stddevSeries" => fold("stddev", Aggregate::Stddev),
                _ if function.params.iter().filter(|param| param.is_required).count() > 1 => {
                    Err(call.refuse(format!("{name} needs more arguments than the series of a group")))
                }
                _ => Ok(Self::Function(function)),
            };
        }
        Self::aggregation(call, name)
    }

    /// An aggregation that is not a function.
    fn aggregation(call: &Call<'_>, name: &str) -> Result<Self, QueryError> {
        let label = name.strip_suffix("Series").unwrap_or(name);
        match Aggregate::of_function(label) {
            Some(method) => Ok(Self::Fold { label: label.into(), method }),
            None => Err(call.refuse(format!("no aggregation {name:?}"))),
        }
    }
}

/// Groups series by their keys, and calls `finish` with the key and the result of each group, in the order in which
/// the groups' first series come.
fn in_groups(
    call: &Call<'_>,
    callback: &Callback,
    key_of: impl FnMut(&Series) -> Result<String, QueryError>,
    finish: impl FnMut(String, Series) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    match callback {
        Callback::Fold { label, method } => folded(call, label, *method, key_of, finish),
        Callback::Function(function) => invoked(call, function, key_of, finish),
    }
}

struct FoldedGroup<'m> {
    fold: Fold<'m>,
    rank: Rank,
    /// True if the series of the group must be added again.
    is_open: bool,
}

/// Place of a group in the result.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The smallest name of its series, if they come in any order.
    Name(String),
    /// The number of its first series.
    Arrival(usize),
}

impl Rank {
    /// Memory on the heap.
    const fn bytes(&self) -> usize {
        match self {
            Self::Name(name) => name.len(),
            Self::Arrival(_) => 0,
        }
    }
}

fn folded(
    call: &Call<'_>,
    label: &str,
    method: Aggregate,
    mut key_of: impl FnMut(&Series) -> Result<String, QueryError>,
    mut finish: impl FnMut(String, Series) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let mut groups: HashMap<String, FoldedGroup<'_>> = HashMap::new();
    let mut charge = call.meter().charge();
    // names give the order only while no function has changed them
    let order = match call.nodes_of("seriesList").collect::<Vec<_>>()[..] {
        [leaf @ Node::Leaf(_)] => order_for(method, leaf),
        _ => Order::ByName,
    };
    let setting = call.context().x_files_factor_setting();
    let mut again = None;
    loop {
        let mut arrivals = 0;
        for node in call.nodes_of("seriesList") {
            call.each_of(node, order, &mut |series| {
                arrivals += 1;
                let rank = match order {
                    Order::Any => Rank::Name(series.name.clone()),
                    Order::ByName => Rank::Arrival(arrivals),
                };
                let key = key_of(&series)?;
                let Some(group) = groups.get_mut(&key) else {
                    charge_group(&mut charge, &key, size_of::<FoldedGroup<'_>>() + series.name.len())?;
                    let mut fold = Fold::new(call.meter(), method);
                    fold.add(series)?;
                    groups.insert(key, FoldedGroup { fold, rank, is_open: true });
                    return Ok(());
                };
                if rank < group.rank {
                    charge.add_bytes(rank.bytes().saturating_sub(group.rank.bytes()))?;
                    group.rank = rank;
                }
                if group.is_open { group.fold.add(series) } else { Ok(()) }
            })?;
        }
        for group in groups.values_mut() {
            group.is_open = group.fold.must_restart();
            if group.is_open {
                group.fold.restart();
            }
        }
        if !groups.values().any(|group| group.is_open) {
            break;
        }
        if again.is_none() {
            again = Some(call.evaluated_twice()?);
        }
        // arguments may have set it, and are evaluated again as before
        call.context().set_x_files_factor(setting);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by(|(_, a), (_, b)| a.rank.cmp(&b.rank));
    for (key, mut group) in groups {
        call.meter().check()?;
        group.fold.end_argument(order);
        if let Some(series) = group.fold.finish(label, call.context().x_files_factor())? {
            finish(key, series)?;
        }
    }
    Ok(())
}

/// Charges a group and its key, which is stored twice at most.
fn charge_group(charge: &mut Charge<'_>, key: &str, bytes: usize) -> Result<(), QueryError> {
    charge.add_bytes(2 * (size_of::<String>() + key.len() + bytes))
}

/// Collects the series of each group, and calls a function with them. Only the first series of the result is
/// used.
fn invoked(
    call: &Call<'_>,
    function: &'static Function,
    key_of: impl FnMut(&Series) -> Result<String, QueryError>,
    mut finish: impl FnMut(String, Series) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    for (key, mut held) in collected(call, key_of)? {
        let argument = Argument { parameter: 0, kind: ArgumentKind::Series(Node::Given(held.take())) };
        if let Some(series) = first_of(call, function, vec![argument])? {
            finish(key, series)?;
        }
    }
    Ok(())
}

/// Calls a function, and returns the first series of its result.
pub(super) fn first_of(
    call: &Call<'_>,
    function: &'static Function,
    arguments: Vec<Argument>,
) -> Result<Option<Series>, QueryError> {
    let mut first = None;
    call.invoke(&Invocation { function, arguments }, &mut |series| {
        first.get_or_insert(series);
        Ok(())
    })?;
    Ok(first)
}

/// The series of each group with its key, in the order in which the groups' first series come.
pub(super) fn collected<'c>(
    call: &Call<'c>,
    mut key_of: impl FnMut(&Series) -> Result<String, QueryError>,
) -> Result<Vec<(String, Held<'c>)>, QueryError> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<(String, Held<'c>)> = Vec::new();
    let mut charge = call.meter().charge();
    call.each("seriesList", |series| {
        let key = key_of(&series)?;
        let place = match places.get(&key) {
            Some(place) => *place,
            None => {
                charge_group(&mut charge, &key, size_of::<(String, Held<'_>)>())?;
                places.insert(key.clone(), groups.len());
                groups.push((key, Held::new(call.meter())));
                groups.len() - 1
            }
        };
        groups[place].1.push(series)
    })?;
    Ok(groups)
}
