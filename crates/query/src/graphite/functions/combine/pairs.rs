//! Functions of two lists of series.

use super::fold::{Fold, common_multiple, joined};
use super::{FUNC, NODES, X_FILES_FACTOR};
use crate::QueryError;
use crate::graphite::bind::Node;
use crate::graphite::call::{Call, Sink};
use crate::graphite::functions::key::key;
use crate::graphite::functions::table::{Function, Group, Param, Type};
use crate::graphite::{Aggregate, Series};
use hashbrown::HashMap;
use std::collections::BTreeSet;

const FIRST: Param = Param::required("seriesListFirstPos", Type::SeriesList);
const SECOND: Param = Param::required("seriesListSecondPos", Type::SeriesList);

macro_rules! of_pairs {
    ($name:literal, $description:literal, $label:literal, $method:ident) => {
        Function::new($name, Group::Combine, $description, &[FIRST, SECOND], |call, sink| {
            of_pairs(call, $label, Aggregate::$method, None, sink)
        })
        .aggregator()
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "aggregateSeriesLists",
        Group::Combine,
        "Aggregates the first series of both lists, the second of both, and so on. The lists must be of equal length.",
        &[FIRST, SECOND, FUNC, X_FILES_FACTOR],
        by_name,
    ),
    of_pairs!(
        "sumSeriesLists",
        "Adds the first series of both lists, the second of both, and so on. The lists must be of equal length.",
        "sum",
        Sum
    ),
    of_pairs!(
        "diffSeriesLists",
        "Subtracts the second list from the first, series by series. The lists must be of equal length.",
        "diff",
        Diff
    ),
    of_pairs!(
        "multiplySeriesLists",
        "Multiplies the lists, series by series. The lists must be of equal length.",
        "multiply",
        Multiply
    ),
    Function::new(
        "divideSeries",
        Group::Combine,
        "Divides each series by another one.",
        &[
            Param::required("dividendSeriesList", Type::SeriesList),
            Param::required("divisorSeries", Type::SeriesList),
        ],
        divide,
    ),
    Function::new(
        "divideSeriesLists",
        Group::Combine,
        "Divides the first list by the second, series by series. The lists must be of equal length.",
        &[
            Param::required("dividendSeriesList", Type::SeriesList),
            Param::required("divisorSeriesList", Type::SeriesList),
        ],
        divide_lists,
    ),
    Function::new(
        "weightedAverage",
        Group::Combine,
        "The average of a list of averages, each weighted by a series with the same nodes or tags.",
        &[
            Param::required("seriesListAvg", Type::SeriesList),
            Param::required("seriesListWeight", Type::SeriesList),
            NODES,
        ],
        weighted_average,
    ),
];

fn by_name(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let name = call.text("func");
    let label = name.strip_suffix("Series").unwrap_or(&name);
    let method =
        Aggregate::of_function(label).ok_or_else(|| call.refuse(format!("no aggregation {name:?}")))?;
    of_pairs(call, label, method, call.optional_number("xFilesFactor"), sink)
}

fn of_pairs(
    call: &Call<'_>,
    label: &str,
    method: Aggregate,
    x_files_factor: Option<f64>,
    sink: &mut Sink<'_>,
) -> Result<(), QueryError> {
    let (firsts, seconds) = (call.all(FIRST.name)?, call.all(SECOND.name)?);
    if firsts.len() != seconds.len() {
        return Err(unequal(call, firsts.len(), seconds.len()));
    }
    for (first, second) in firsts.iter().zip(seconds.iter()) {
        call.meter().check()?;
        let mut fold = Fold::new(call.meter(), method);
        fold.add_held(&[first, second])?;
        let x_files_factor = x_files_factor.unwrap_or(call.context().x_files_factor());
        if let Some(mut series) = fold.finish(label, x_files_factor)? {
            series.name = format!("{label}Series({},{})", first.name, second.name);
            sink(series)?;
        }
    }
    Ok(())
}

fn unequal(call: &Call<'_>, first: usize, second: usize) -> QueryError {
    call.refuse(format!("the lists must have equal lengths, but have {first} and {second} series"))
}

fn divide(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    // evaluating the dividends may change settings of the request, such as xFilesFactor, so this comes before the divisor
    let must_wait = !call.nodes_of("dividendSeriesList").all(Node::is_in_order_of_storage);
    let dividends = if must_wait { Some(call.all("dividendSeriesList")?) } else { None };
    let divisors = call.all("divisorSeries")?;
    let result = |mut dividend: Series| match &divisors[..] {
        [divisor] => sink(quotient(call, "divideSeries", dividend, divisor, 1.0)?),
        _ => {
            dividend.rename(format!("divideSeries({},MISSING)", dividend.name));
            dividend.values.fill(f64::NAN);
            sink(dividend)
        }
    };
    match dividends {
        _ if divisors.len() > 1 => {
            Err(call.refuse(format!("the divisor must be one series, but is {}", divisors.len())))
        }
        Some(dividends) => dividends.drain(result),
        None => call.each("dividendSeriesList", result),
    }
}

fn divide_lists(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (dividends, divisors) = (call.all("dividendSeriesList")?, call.all("divisorSeriesList")?);
    if dividends.len() != divisors.len() {
        return Err(unequal(call, dividends.len(), divisors.len()));
    }
    let mut divisors = divisors.iter();
    dividends.drain(|dividend| match divisors.next() {
        Some(divisor) => sink(quotient(call, "divideSeries", dividend, divisor, 1.0)?),
        None => Ok(()),
    })
}

/// Divides two series, and multiplies the result by `scale`. A divisor of 0 gives no value. If their steps differ,
/// both are consolidated to the least common multiple.
pub(super) fn quotient(
    call: &Call<'_>,
    function: &str,
    mut dividend: Series,
    divisor: &Series,
    scale: f64,
) -> Result<Series, QueryError> {
    call.meter().check()?;
    let step_s = common_multiple(dividend.step_s, divisor.step_s)?;
    dividend.coarsen((step_s / dividend.step_s) as usize);
    let mut charge = call.meter().charge();
    let coarser;
    let divisor = if step_s == divisor.step_s {
        divisor
    } else {
        charge.add_bytes(divisor.bytes())?;
        let mut copy = divisor.clone();
        copy.coarsen((step_s / copy.step_s) as usize);
        coarser = copy;
        &coarser
    };
    let start_s = dividend.start_s.min(divisor.start_s);
    let end_s = dividend.end_s.max(divisor.end_s);
    let end_s = end_s - (end_s - start_s) % step_s;
    charge.add_bytes(divisor.values.len().saturating_sub(dividend.values.len()) * size_of::<f64>())?;
    let values = divided(dividend.values, &divisor.values, scale);
    let name = format!("{function}({},{})", dividend.name, divisor.name);
    Ok(call.computed(name, (start_s, end_s, step_s), values))
}

/// Divides value by value. Where one has no value, or the divisor is 0, the result has none.
pub(super) fn divided(mut dividends: Vec<f64>, divisors: &[f64], scale: f64) -> Vec<f64> {
    dividends.resize(dividends.len().max(divisors.len()), f64::NAN);
    for (i, value) in dividends.iter_mut().enumerate() {
        let divisor = divisors.get(i).copied().unwrap_or(f64::NAN);
        *value = if divisor == 0.0 { f64::NAN } else { *value / divisor * scale };
    }
    dividends
}

fn weighted_average(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (averages, weights) = (call.all("seriesListAvg")?, call.all("seriesListWeight")?);
    if averages.len() != weights.len() {
        return Err(unequal(call, averages.len(), weights.len()));
    }
    let nodes = call.nodes("nodes");
    let mut charge = call.meter().charge();
    let mut of_key = HashMap::new();
    for weight in weights.iter() {
        let key = key(call, weight, &nodes)?;
        charge.add_bytes(key.len() + 2 * size_of::<(String, &Series)>())?;
        of_key.insert(key, weight);
    }
    // of several averages with the same key, the last counts
    let mut pairs: HashMap<String, (&Series, &Series)> = HashMap::new();
    let mut order = Vec::new();
    for average in averages.iter() {
        let key = key(call, average, &nodes)?;
        let Some(weight) = of_key.get(&key) else { continue };
        charge.add_bytes(2 * key.len() + 3 * size_of::<(String, &Series, &Series)>())?;
        if pairs.insert(key.clone(), (average, weight)).is_none() {
            order.push(key);
        }
    }
    if pairs.is_empty() {
        return Ok(());
    }
    let mut products = Fold::new(call.meter(), Aggregate::Sum);
    loop {
        for key in &order {
            let (average, weight) = pairs[key];
            let mut copied = call.meter().charge();
            copied.add_bytes(average.bytes() + size_of_val(weight.values.as_slice()))?;
            products.add(product(average, weight))?;
        }
        if !products.must_restart() {
            break;
        }
        products.restart();
    }
    let mut total = Fold::new(call.meter(), Aggregate::Sum);
    total.add_held(&weights.iter().collect::<Vec<_>>())?;
    let x_files_factor = call.context().x_files_factor();
    let (Some(products), Some(total)) =
        (products.finish("sum", x_files_factor)?, total.finish("sum", x_files_factor)?)
    else {
        return Ok(());
    };
    let (of_averages, of_weights) = (paths(call, &averages)?, paths(call, &weights)?);
    let mut name = call.new_name();
    ["weightedAverage(", &of_averages, ", ", &of_weights, ", "]
        .into_iter()
        .try_for_each(|part| name.push(part))?;
    for (number, node) in call.values("nodes").enumerate() {
        [if number > 0 { "," } else { "" }, &node.to_text()]
            .into_iter()
            .try_for_each(|part| name.push(part))?;
    }
    name.push(")")?;
    let name = name.finish();
    let values = divided(products.values, &total.values, 1.0);
    sink(call.computed(name, (products.start_s, products.end_s, products.step_s), values))
}

fn product(average: &Series, weight: &Series) -> Series {
    let mut product = average.clone();
    product.consolidation = Aggregate::Average;
    product.values.resize(average.values.len().max(weight.values.len()), f64::NAN);
    for (i, value) in product.values.iter_mut().enumerate() {
        *value *= weight.values.get(i).copied().unwrap_or(f64::NAN);
    }
    product
}

/// The distinct path expressions of series, in order.
fn paths(call: &Call<'_>, all: &[Series]) -> Result<String, QueryError> {
    let mut charge = call.meter().charge();
    charge.add_bytes(all.len() * 2 * size_of::<&str>())?;
    let distinct: BTreeSet<&str> = all.iter().map(|series| &*series.path_expression).collect();
    Ok(joined(distinct))
}
