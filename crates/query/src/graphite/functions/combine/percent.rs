//! `asPercent`: parts of a total.

use super::NODES;
use super::fold::{Fold, common_multiple};
use super::pairs::{divided, quotient};
use crate::QueryError;
use crate::graphite::call::{Call, NodeOrTag, Sink};
use crate::graphite::functions::key::key;
use crate::graphite::functions::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::graphite::held::Held;
use crate::graphite::{Aggregate, Series};
use hashbrown::HashMap;

pub(super) const FUNCTIONS: &[Function] = &[Function::new(
    "asPercent",
    Group::Combine,
    "Each series as a percentage of a total: a number, another series, a series for each of them, or the sum of all. \
     With nodes or tags, each series is compared with the total of its group.",
    &[SERIES_LIST, Param::optional("total", Type::Any), NODES],
    as_percent,
)
.aliases(&["pct"])
.aggregator()];

const NAME: &str = "asPercent";

fn as_percent(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let all = call.all("seriesList")?;
    if all.is_empty() {
        return Ok(());
    }
    let nodes = call.nodes("nodes");
    let number = call.optional_number("total");
    let totals = if call.has_series("total") { Some(call.all("total")?) } else { None };
    match (totals, number) {
        (totals, None) if !nodes.is_empty() => by_group(call, all, totals, &nodes, sink),
        (_, Some(_)) if !nodes.is_empty() => Err(call.refuse("with nodes, the total must be series or None")),
        (Some(totals), _) if totals.len() == all.len() => pair_by_pair(call, all, totals, sink),
        (Some(mut totals), _) if totals.len() == 1 => of_total(call, all, totals.remove(0), sink),
        (Some(_), _) => {
            Err(call.refuse("the total must be a number, one series, or as many series as the first list"))
        }
        (None, Some(number)) => of_number(call, all, number, sink),
        (None, None) => {
            let total = sum_of(call, &all.iter().collect::<Vec<_>>())?;
            of_total(call, all, total, sink)
        }
    }
}

fn of_number(call: &Call<'_>, all: Held<'_>, number: f64, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let all = to_common_step(call, all, 1)?;
    let mut charge = call.meter().charge();
    charge.add_bytes(all[0].values.len() * size_of::<f64>())?;
    let total = vec![number; all[0].values.len()];
    let shown = call.shown("total");
    all.drain(|series| sink(percentage(call, series, &shown, &total)?))
}

fn of_total(
    call: &Call<'_>,
    all: Held<'_>,
    mut total: Series,
    sink: &mut Sink<'_>,
) -> Result<(), QueryError> {
    let all = to_common_step(call, all, total.step_s)?;
    total.coarsen((all[0].step_s / total.step_s) as usize);
    all.drain(|series| sink(percentage(call, series, &total.name, &total.values)?))
}

/// Consolidates all series to the least common multiple of their steps and `step_s`.
fn to_common_step<'c>(call: &Call<'c>, mut all: Held<'c>, step_s: i64) -> Result<Held<'c>, QueryError> {
    let step_s = all.iter().try_fold(step_s, |step_s, series| common_multiple(step_s, series.step_s))?;
    for series in all.iter_mut() {
        call.meter().check()?;
        series.coarsen((step_s / series.step_s) as usize);
    }
    Ok(all)
}

fn percentage(
    call: &Call<'_>,
    series: Series,
    total_name: &str,
    total: &[f64],
) -> Result<Series, QueryError> {
    let mut charge = call.meter().charge();
    charge.add_bytes(total.len().saturating_sub(series.values.len()) * size_of::<f64>())?;
    let name = format!("{NAME}({},{total_name})", series.name);
    let values = divided(series.values, total, 100.0);
    Ok(call.computed(name, (series.start_s, series.end_s, series.step_s), values))
}

/// Both lists are brought into the order of their names first.
fn pair_by_pair(
    call: &Call<'_>,
    mut all: Held<'_>,
    mut totals: Held<'_>,
    sink: &mut Sink<'_>,
) -> Result<(), QueryError> {
    all.sort_by(|a, b| a.name.cmp(&b.name));
    totals.sort_by(|a, b| a.name.cmp(&b.name));
    let mut totals = totals.iter();
    all.drain(|series| match totals.next() {
        Some(total) => sink(quotient(call, NAME, series, total, 100.0)?),
        None => Ok(()),
    })
}

/// Series of one key, and their totals.
#[derive(Default)]
struct PercentGroup<'a> {
    series: Vec<&'a Series>,
    totals: Vec<&'a Series>,
}

fn by_group(
    call: &Call<'_>,
    all: Held<'_>,
    totals: Option<Held<'_>>,
    nodes: &[NodeOrTag],
    sink: &mut Sink<'_>,
) -> Result<(), QueryError> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<PercentGroup<'_>> = Vec::new();
    let mut charge = call.meter().charge();
    let mut place_of = |series: &Series, groups: &mut Vec<PercentGroup<'_>>| {
        let key = key(call, series, nodes)?;
        charge.add_bytes(4 * size_of::<&Series>())?;
        if let Some(place) = places.get(&key) {
            return Ok(*place);
        }
        charge.add_bytes(2 * (size_of::<(String, usize, PercentGroup<'_>)>() + key.len()))?;
        groups.push(PercentGroup::default());
        places.insert(key, groups.len() - 1);
        Ok::<_, QueryError>(groups.len() - 1)
    };
    for series in all.iter() {
        let place = place_of(series, &mut groups)?;
        groups[place].series.push(series);
    }
    for total in totals.iter().flat_map(|totals| totals.iter()) {
        let place = place_of(total, &mut groups)?;
        groups[place].totals.push(total);
    }
    for group in &groups {
        let mut copied = call.meter().charge();
        let totals = if totals.is_none() { &group.series } else { &group.totals };
        let total = match totals[..] {
            [] => None,
            [only] => {
                copied.add_bytes(only.bytes())?;
                Some(only.clone())
            }
            _ => Some(sum_of(call, totals)?),
        };
        match &total {
            Some(total) if group.series.is_empty() => sink(missing(call, ("MISSING", &total.name), total)?)?,
            Some(total) => group.series.iter().try_for_each(|series| {
                let mut copied = call.meter().charge();
                copied.add_bytes(series.bytes())?;
                sink(quotient(call, NAME, (*series).clone(), total, 100.0)?)
            })?,
            None => group
                .series
                .iter()
                .try_for_each(|series| sink(missing(call, (&series.name, "MISSING"), series)?))?,
        }
    }
    Ok(())
}

/// The result where a series or its total is missing: as many missing values as the other has.
fn missing(call: &Call<'_>, (name, total): (&str, &str), other: &Series) -> Result<Series, QueryError> {
    let times = (other.start_s, other.end_s, other.step_s);
    let mut charge = call.meter().charge();
    charge.add_bytes(size_of_val(other.values.as_slice()))?;
    Ok(call.computed(format!("{NAME}({name},{total})"), times, vec![f64::NAN; other.values.len()]))
}

/// The sum of several series, or of one.
fn sum_of(call: &Call<'_>, all: &[&Series]) -> Result<Series, QueryError> {
    let mut fold = Fold::new(call.meter(), Aggregate::Sum);
    fold.add_held(all)?;
    fold.finish("sum", 0.0)?.ok_or_else(|| call.refuse("there are no series to add"))
}
