//! Functions that sort series, and those that choose the first of a sorted list.

use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::held::Held;
use crate::graphite::{Aggregate, Series};
use std::cmp::Ordering;

const N: Param = Param::required("n", Type::Integer);
const N_OR_ONE: Param = Param::optional("n", Type::Integer).or(Default::Integer(1));
const FUNC: Param = Param::optional("func", Type::AggFunc).or(Default::Text("average"));
const REVERSE: Param = Param::optional("reverse", Type::Boolean).or(Default::Boolean(false));

pub(super) const FUNCTIONS: &[Function] = &[
    top(
        "highest",
        "The n series with the largest average, or another aggregation.",
        &[SERIES_LIST, N_OR_ONE, FUNC],
        highest,
    ),
    top("highestAverage", "The n series with the largest average.", &[SERIES_LIST, N], highest_average),
    top("highestCurrent", "The n series with the largest last value.", &[SERIES_LIST, N], highest_current),
    top("highestMax", "The n series with the largest maximum.", &[SERIES_LIST, N], highest_max),
    top("limit", "The first n series. If n is negative, all but the last n.", &[SERIES_LIST, N], limit),
    top(
        "lowest",
        "The n series with the smallest average, or another aggregation.",
        &[SERIES_LIST, N_OR_ONE, FUNC],
        lowest,
    ),
    top("lowestAverage", "The n series with the smallest average.", &[SERIES_LIST, N], lowest_average),
    top("lowestCurrent", "The n series with the smallest last value.", &[SERIES_LIST, N], lowest_current),
    top("mostDeviant", "The n series with the largest standard deviation.", &[SERIES_LIST, N], most_deviant),
    sort(
        "sortBy",
        "Sorts series by their average, or another aggregation.",
        &[SERIES_LIST, FUNC, REVERSE],
        sort_by,
    ),
    sort("sortByMaxima", "Sorts series by their maximum, the largest first.", &[SERIES_LIST], sort_by_maxima),
    sort(
        "sortByMinima",
        "Sorts series by their minimum, the smallest first. Leaves out series without positive values.",
        &[SERIES_LIST],
        sort_by_minima,
    ),
    sort(
        "sortByName",
        "Sorts series by their names. In natural order, numbers in names are compared as numbers.",
        &[SERIES_LIST, Param::optional("natural", Type::Boolean).or(Default::Boolean(false)), REVERSE],
        sort_by_name,
    ),
    sort("sortByTotal", "Sorts series by their sums, the largest first.", &[SERIES_LIST], sort_by_total),
];

const fn top(
    name: &'static str,
    description: &'static str,
    params: &'static [Param],
    run: super::table::Run,
) -> Function {
    Function::new(name, Group::FilterSeries, description, params, run)
}

const fn sort(
    name: &'static str,
    description: &'static str,
    params: &'static [Param],
    run: super::table::Run,
) -> Function {
    Function::new(name, Group::Sorting, description, params, run)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// A number by which series are sorted. Without one, a series is the smallest.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Key(f64, Direction);

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let plain = |key: &Self| if key.0.is_nan() { f64::NEG_INFINITY } else { key.0 };
        // adding 0 makes both zeros equal
        let up = (plain(self) + 0.0).total_cmp(&(plain(other) + 0.0));
        if self.1 == Direction::Up { up } else { up.reverse() }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the first `n` series by key. Series with equal keys keep their order. A negative `n` returns all
/// but the last `-n`. Holds at most 2 `n` + 64 series, or all of them if `n` is negative.
fn first(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    n: i64,
    direction: Direction,
    key: impl Fn(&Series) -> Result<f64, QueryError>,
) -> Result<(), QueryError> {
    // sorting less often costs memory, and sorting more often costs time
    const MARGIN: usize = 64;
    let most = usize::try_from(n).ok();
    let mut held = Held::new(call.meter());
    let sort = |held: &mut Held<'_>| sort_by_key(call, held, direction, &key);
    call.each("seriesList", |series| {
        held.push(series)?;
        if let Some(most) = most.filter(|most| held.len() >= most.saturating_mul(2).saturating_add(MARGIN)) {
            sort(&mut held)?;
            held.truncate(most);
        }
        Ok(())
    })?;
    sort(&mut held)?;
    let len = prefix_len(held.len(), n);
    held.truncate(len);
    held.drain(sink)
}

/// Sorts series by a number, which is computed once for each. Fails in between once the query is canceled.
fn sort_by_key(
    call: &Call<'_>,
    held: &mut Held<'_>,
    direction: Direction,
    key: impl Fn(&Series) -> Result<f64, QueryError>,
) -> Result<(), QueryError> {
    // a sort cannot fail, so the keys are without meaning after an error
    let mut failed = None;
    let mut key_of = |series: &Series| {
        if failed.is_none() {
            match call.meter().check().and_then(|()| key(series)) {
                Ok(key) => return key,
                Err(error) => failed = Some(error),
            }
        }
        f64::NAN
    };
    held.sort_by_cached_key(|series| Key(key_of(series), direction));
    failed.map_or_else(|| call.meter().check(), Err)
}

/// Length of `list[:n]` in Python: a negative `n` counts from the end.
fn prefix_len(len: usize, n: i64) -> usize {
    match usize::try_from(n) {
        Ok(n) => n.min(len),
        Err(_) => len.saturating_sub(usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX)),
    }
}

fn highest(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_aggregate(call, sink, Direction::Down, call.aggregate("func"))
}

fn highest_average(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_aggregate(call, sink, Direction::Down, Aggregate::Average)
}

fn highest_current(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_aggregate(call, sink, Direction::Down, Aggregate::Last)
}

fn highest_max(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_aggregate(call, sink, Direction::Down, Aggregate::Max)
}

fn lowest(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_aggregate(call, sink, Direction::Up, call.aggregate("func"))
}

fn lowest_average(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_aggregate(call, sink, Direction::Up, Aggregate::Average)
}

fn lowest_current(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    by_aggregate(call, sink, Direction::Up, Aggregate::Last)
}

fn by_aggregate(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    direction: Direction,
    aggregate: Aggregate,
) -> Result<(), QueryError> {
    first(call, sink, call.integer("n"), direction, |series| call.aggregated(series, aggregate))
}

fn limit(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let n = call.integer("n");
    let Ok(most) = usize::try_from(n) else {
        let mut held = call.all("seriesList")?;
        let len = prefix_len(held.len(), n);
        held.truncate(len);
        return held.drain(sink);
    };
    let mut count = 0;
    call.each("seriesList", |series| {
        count += 1;
        if count <= most { sink(series) } else { Ok(()) }
    })
}

fn most_deviant(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let n = call.integer("n");
    let mut held = Held::new(call.meter());
    call.each("seriesList", |series| if variance(&series).is_nan() { Ok(()) } else { held.push(series) })?;
    sort_by_key(call, &mut held, Direction::Down, |series| Ok(variance(series)))?;
    let len = prefix_len(held.len(), n);
    held.truncate(len);
    held.drain(sink)
}

fn variance(series: &Series) -> f64 {
    let mean = Aggregate::Average.of(&series.values);
    let present = || series.values.iter().filter(|value| !value.is_nan());
    present().map(|value| (value - mean) * (value - mean)).sum::<f64>() / present().count() as f64
}

fn sort_by(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let direction = if call.boolean("reverse") { Direction::Down } else { Direction::Up };
    sorted(call, sink, direction, call.aggregate("func"))
}

fn sort_by_maxima(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    sorted(call, sink, Direction::Down, Aggregate::Max)
}

fn sort_by_total(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    sorted(call, sink, Direction::Down, Aggregate::Sum)
}

fn sorted(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    direction: Direction,
    aggregate: Aggregate,
) -> Result<(), QueryError> {
    let mut held = call.all("seriesList")?;
    sort_by_key(call, &mut held, direction, |series| call.aggregated(series, aggregate))?;
    held.drain(sink)
}

fn sort_by_minima(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut held = Held::new(call.meter());
    call.each("seriesList", |series| {
        if Aggregate::Max.of(&series.values) > 0.0 { held.push(series) } else { Ok(()) }
    })?;
    sort_by_key(call, &mut held, Direction::Up, |series| call.aggregated(series, Aggregate::Min))?;
    held.drain(sink)
}

fn sort_by_name(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut held = call.all("seriesList")?;
    if call.boolean("natural") {
        // the keys may be longer than the names
        let mut charge = call.meter().charge();
        let bytes: usize =
            held.iter().map(|series| natural(&series.name).len() + size_of::<(String, usize)>()).sum();
        charge.add_bytes(bytes)?;
        held.sort_by_cached_key(|series| natural(&series.name));
    } else {
        held.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if call.boolean("reverse") {
        reverse(&mut held);
    }
    held.drain(sink)
}

/// Reverses a sorted list, except that series with equal names stay in their order.
fn reverse(held: &mut Held<'_>) {
    held.reverse();
    held.chunk_by_mut(|a, b| a.name == b.name).for_each(<[Series]>::reverse);
}

/// The name with all numbers in ten digits.
fn natural(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (text, digits) = rest.split_at(at);
        let len = digits.bytes().take_while(u8::is_ascii_digit).count();
        let number = digits[..len].trim_start_matches('0');
        out.push_str(text);
        out.extend(std::iter::repeat_n('0', 10_usize.saturating_sub(number.len())));
        out.push_str(number);
        rest = &digits[len..];
    }
    out + rest
}
