//! Functions that choose series, or values, by what they are.

use super::each::{filter, map};
use super::table::{Default, Function, Group, Param, Run, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::Aggregate;
use crate::graphite::call::{Call, Sink};
use crate::graphite::consolidate::is_enough;
use crate::graphite::pattern::Pattern;
use crate::graphite::text::general;
use std::collections::HashSet;

const N: Param = Param::required("n", Type::Float);
const PATTERN: Param = Param::required("pattern", Type::String);
const OPERATORS: &[&str] = &["!=", "<", "<=", "=", ">", ">="];

pub(super) const FUNCTIONS: &[Function] = &[
    series("averageAbove", "Series whose average is above a number.", &[SERIES_LIST, N], average_above),
    series("averageBelow", "Series whose average is at most a number.", &[SERIES_LIST, N], average_below),
    series("currentAbove", "Series whose last value is above a number.", &[SERIES_LIST, N], current_above),
    series("currentBelow", "Series whose last value is at most a number.", &[SERIES_LIST, N], current_below),
    series(
        "exclude",
        "Series whose name does not match a regular expression.",
        &[SERIES_LIST, PATTERN],
        exclude,
    ),
    Function::new(
        "fallbackSeries",
        Group::Special,
        "The first argument, or if it has no series, the second.",
        &[SERIES_LIST, Param::required("fallback", Type::SeriesList)],
        fallback_series,
    ),
    series(
        "filterSeries",
        "Series with an aggregation, such as their maximum, that compares with a number as the operator says.",
        &[
            SERIES_LIST,
            Param::required("func", Type::AggFunc),
            Param::required("operator", Type::String).one_of(OPERATORS),
            Param::required("threshold", Type::Float),
        ],
        filter_series,
    ),
    series("grep", "Series whose name matches a regular expression.", &[SERIES_LIST, PATTERN], grep),
    series("maximumAbove", "Series whose largest value is above a number.", &[SERIES_LIST, N], maximum_above),
    series(
        "maximumBelow",
        "Series whose largest value is at most a number.",
        &[SERIES_LIST, N],
        maximum_below,
    ),
    series(
        "minimumAbove",
        "Series whose smallest value is above a number.",
        &[SERIES_LIST, N],
        minimum_above,
    ),
    series(
        "minimumBelow",
        "Series whose smallest value is at most a number.",
        &[SERIES_LIST, N],
        minimum_below,
    ),
    Function::new(
        "removeAboveValue",
        Group::FilterData,
        "Removes values above a number.",
        &[SERIES_LIST, N],
        remove_above_value,
    )
    .mapping(),
    Function::new(
        "removeBelowValue",
        Group::FilterData,
        "Removes values below a number.",
        &[SERIES_LIST, N],
        remove_below_value,
    )
    .mapping(),
    series(
        "removeEmptySeries",
        "Series with values. The share of their points that have values must be at least `xFilesFactor`.",
        &[SERIES_LIST, Param::optional("xFilesFactor", Type::Float).or(Default::Float(0.0))],
        remove_empty_series,
    ),
    Function::new(
        "unique",
        Group::FilterSeries,
        "The first series of each name.",
        &[Param::required("seriesLists", Type::SeriesList).multiple()],
        unique,
    ),
    Function::new(
        "useSeriesAbove",
        Group::FilterSeries,
        "For each series whose largest value is above a number, the series with another name: what the regular \
         expression `search` matches in the name is replaced.",
        &[
            SERIES_LIST,
            Param::required("value", Type::Float),
            Param::required("search", Type::String),
            Param::required("replace", Type::String),
        ],
        use_series_above,
    ),
];

const fn series(
    name: &'static str,
    description: &'static str,
    params: &'static [Param],
    run: Run,
) -> Function {
    Function::new(name, Group::FilterSeries, description, params, run).mapping()
}

fn average_above(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, Aggregate::Average, ">", call.number("n"))
}

fn average_below(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, Aggregate::Average, "<=", call.number("n"))
}

fn current_above(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, Aggregate::Last, ">", call.number("n"))
}

fn current_below(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, Aggregate::Last, "<=", call.number("n"))
}

fn maximum_above(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, Aggregate::Max, ">", call.number("n"))
}

fn maximum_below(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, Aggregate::Max, "<=", call.number("n"))
}

fn minimum_above(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, Aggregate::Min, ">", call.number("n"))
}

fn minimum_below(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, Aggregate::Min, "<=", call.number("n"))
}

fn filter_series(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    compared(call, sink, call.aggregate("func"), &call.text("operator"), call.number("threshold"))
}

/// Passes on series whose aggregate satisfies the comparison. A missing aggregate is less than every number,
/// as `None` in graphite-web.
fn compared(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    aggregate: Aggregate,
    operator: &str,
    threshold: f64,
) -> Result<(), QueryError> {
    call.each("seriesList", |series| {
        let value = call.aggregated(&series, aggregate)?;
        let is_wanted = match operator {
            "=" => value == threshold,
            "!=" => value != threshold,
            ">" => value > threshold,
            ">=" => value >= threshold,
            "<" => value.is_nan() || value < threshold,
            _ => value.is_nan() || value <= threshold,
        };
        if is_wanted { sink(series) } else { Ok(()) }
    })
}

fn grep(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    matching(call, sink, true)
}

fn exclude(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    matching(call, sink, false)
}

fn matching(call: &Call<'_>, sink: &mut Sink<'_>, is_wanted: bool) -> Result<(), QueryError> {
    let pattern = Pattern::of(call, "pattern")?;
    call.each(
        "seriesList",
        |series| {
            if pattern.is_match(&series.name)? == is_wanted { sink(series) } else { Ok(()) }
        },
    )
}

fn fallback_series(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut is_empty = true;
    call.each("seriesList", |series| {
        is_empty = false;
        sink(series)
    })?;
    if is_empty { call.each("fallback", sink) } else { Ok(()) }
}

fn remove_above_value(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    remove_values(call, sink, "removeAboveValue", |value, n| value > n)
}

fn remove_below_value(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    remove_values(call, sink, "removeBelowValue", |value, n| value < n)
}

fn remove_values(
    call: &Call<'_>,
    sink: &mut Sink<'_>,
    name: &str,
    is_removed: impl Fn(f64, f64) -> bool,
) -> Result<(), QueryError> {
    let n = call.number("n");
    let shown = general(n);
    map(call, sink, |series| {
        series.rename(format!("{name}({}, {shown})", series.name));
        call.meter().change_each(&mut series.values, |value| {
            if is_removed(*value, n) {
                *value = f64::NAN;
            }
        })
    })
}

fn remove_empty_series(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let x_files_factor = call.number("xFilesFactor");
    filter(call, sink, |series| {
        let present = series.values.iter().filter(|value| !value.is_nan()).count();
        is_enough(present, series.values.len(), x_files_factor)
    })
}

fn unique(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    // room of a name in the set, without its text
    const ENTRY_BYTES: usize = 2 * size_of::<String>();
    let mut charge = call.meter().charge();
    let mut seen: HashSet<String> = HashSet::new();
    call.each("seriesLists", |series| {
        if seen.contains(&series.name) {
            return Ok(());
        }
        charge.add_bytes(series.name.len() + ENTRY_BYTES)?;
        seen.insert(series.name.clone());
        sink(series)
    })
}

fn use_series_above(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let pattern = Pattern::of(call, "search")?;
    let replacement = pattern.replacement(call, "replace")?;
    let value = call.number("value");
    let mut charge = call.meter().charge();
    let mut names = Vec::new();
    call.each("seriesList", |series| {
        if Aggregate::Max.of(&series.values) > value {
            let name = pattern.replace(&series.name, &replacement)?;
            charge.add_bytes(name.len() + size_of::<String>())?;
            names.push(name);
        }
        Ok(())
    })?;
    names.iter().try_for_each(|name| {
        call.target(name, |series| if series.values.is_empty() { Ok(()) } else { sink(series) })
    })
}
