//! Functions that aggregate all series into one.

use super::fold::{Fold, aggregate, common_multiple, joined};
use super::{FUNC, SERIES_LISTS, X_FILES_FACTOR};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::consolidate::percentile;
use crate::graphite::functions::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::graphite::held::Held;
use crate::graphite::text::general;
use crate::graphite::{Aggregate, Tags};
use crate::meter::VALUES_PER_CHECK;

macro_rules! aggregation {
    ($name:literal, $aliases:expr, $description:literal, $label:literal, $method:ident) => {
        Function::new($name, Group::Combine, $description, &[SERIES_LISTS], |call, sink| {
            aggregate(call, "seriesLists", $label, Aggregate::$method, None)?.map_or(Ok(()), sink)
        })
        .aliases($aliases)
        .aggregator()
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "aggregate",
        Group::Combine,
        "Aggregates all series by an aggregation that is given by its name.",
        &[SERIES_LIST, FUNC, X_FILES_FACTOR],
        aggregate_by_name,
    ),
    aggregation!("sumSeries", &["sum"], "The sum of all series at each point.", "sum", Sum),
    aggregation!("averageSeries", &["avg"], "The average of all series at each point.", "average", Average),
    aggregation!("minSeries", &[], "The smallest value of all series at each point.", "min", Min),
    aggregation!("maxSeries", &[], "The largest value of all series at each point.", "max", Max),
    aggregation!("diffSeries", &[], "The first series minus all others at each point.", "diff", Diff),
    aggregation!(
        "rangeOfSeries",
        &[],
        "The largest value minus the smallest one at each point.",
        "rangeOf",
        Range
    ),
    aggregation!(
        "stddevSeries",
        &[],
        "The standard deviation of all series at each point.",
        "stddev",
        Stddev
    ),
    Function::new(
        "multiplySeries",
        Group::Combine,
        "The product of all series at each point. A single series stays as it is.",
        &[SERIES_LISTS],
        multiply,
    )
    .aggregator(),
    Function::new(
        "countSeries",
        Group::Combine,
        "The number of series.",
        &[Param::optional("seriesLists", Type::SeriesList).multiple()],
        count,
    )
    .aggregator()
    .counting(),
    Function::new(
        "percentileOfSeries",
        Group::Combine,
        "A percentile of the values of all series at each point. Without interpolation it is one of the values.",
        &[
            SERIES_LIST,
            Param::required("n", Type::Float),
            Param::optional("interpolate", Type::Boolean).or(Default::Boolean(false)),
        ],
        percentile_of,
    ),
    Function::new(
        "powSeries",
        Group::Combine,
        "The first series raised to the power of the second, the result to the power of the third, and so on.",
        &[Param::required("seriesList", Type::SeriesList).multiple()],
        pow,
    )
    .aggregator(),
    Function::new(
        "group",
        Group::Combine,
        "All series of several lists as one list.",
        &[Param::optional("seriesLists", Type::SeriesList).multiple()],
        |call, sink| call.each("seriesLists", sink),
    ),
];

fn aggregate_by_name(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let name = call.text("func");
    let label = name.strip_suffix("Series").unwrap_or(&name);
    let method =
        Aggregate::of_function(label).ok_or_else(|| call.refuse(format!("no aggregation {name:?}")))?;
    let x_files_factor = call.optional_number("xFilesFactor");
    aggregate(call, "seriesList", label, method, x_files_factor)?.map_or(Ok(()), sink)
}

fn multiply(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    // a single series is passed on as it is only if it comes from a single argument
    let is_single_list = call.nodes_of("seriesLists").count() == 1;
    let (mut first, mut fold) = (None, Fold::new(call.meter(), Aggregate::Multiply));
    let mut copied = call.meter().charge();
    fold.add_all(call, "seriesLists", |series| {
        if is_single_list && first.is_none() {
            copied.add_bytes(series.bytes())?;
            first = Some(series.clone());
        }
        Ok(())
    })?;
    match first {
        Some(only) if fold.series_count() == 1 => sink(only),
        _ => fold.finish("multiply", call.context().x_files_factor())?.map_or(Ok(()), sink),
    }
}

fn count(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut fold = Fold::new(call.meter(), Aggregate::Count);
    fold.add_all(call, "seriesLists", |_| Ok(()))?;
    if !call.has_series("seriesLists") {
        let context = call.context();
        let (from_s, until_s) = (context.from_s, context.until_s);
        let step_s = ((until_s - from_s) / 2).max(1);
        let mut line = call.computed("0".into(), (from_s, until_s, step_s), vec![0.0; 3]);
        line.path_expression = "countSeries()".into();
        return sink(line);
    }
    let series = fold.series_count() as f64;
    let Some(mut result) = fold.finish("count", 0.0)? else { return Ok(()) };
    result.values.fill(series);
    result.x_files_factor = call.context().x_files_factor();
    result.tags = Tags::named(&result.name);
    sink(result)
}

fn percentile_of(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let percent = call.number("n");
    if percent <= 0.0 {
        return Err(call.refuse("the percentile must be greater than 0"));
    }
    let is_interpolated = call.boolean("interpolate");
    let all = call.all("seriesList")?;
    let Some(first) = all.first() else { return Ok(()) };
    let name = format!("percentileOfSeries({},{})", first.path_expression, general(percent));
    let rows = Rows::of(call, all)?;
    let values = rows.map(call, |row| {
        row.retain(|value| !value.is_nan());
        percentile(row, percent, is_interpolated)
    })?;
    sink(call.computed(name, (rows.start_s, rows.end_s, rows.step_s), values))
}

fn pow(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let all = call.all("seriesList")?;
    if all.is_empty() {
        return Ok(());
    }
    let name = format!("powSeries({})", joined(all.iter().map(|series| series.name.as_str())));
    let rows = Rows::of(call, all)?;
    let power = |base: f64, exponent: f64| {
        // a missing value stays missing, even where any exponent or base gives 1
        let value = if base.is_nan() || exponent.is_nan() { f64::NAN } else { base.powf(exponent) };
        let overflows = value.is_infinite() && base.is_finite() && exponent.is_finite();
        if overflows { f64::NAN } else { value }
    };
    let values = rows.map(call, |row| row.iter().copied().reduce(power).unwrap_or(f64::NAN))?;
    sink(call.computed(name, (rows.start_s, rows.end_s, rows.step_s), values))
}

/// Series of one step, whose values are taken point by point.
struct Rows<'m> {
    all: Held<'m>,
    start_s: i64,
    end_s: i64,
    step_s: i64,
}

impl<'m> Rows<'m> {
    /// `all` is not empty.
    fn of(call: &Call<'m>, mut all: Held<'m>) -> Result<Self, QueryError> {
        let step_s =
            all.iter().try_fold(all[0].step_s, |step_s, series| common_multiple(step_s, series.step_s))?;
        for series in all.iter_mut() {
            call.meter().check()?;
            series.coarsen((step_s / series.step_s) as usize);
        }
        let start_s = all.iter().map(|series| series.start_s).min().unwrap_or_default();
        let end_s = all.iter().map(|series| series.end_s).max().unwrap_or_default();
        Ok(Self { all, start_s, end_s: end_s - (end_s - start_s) % step_s, step_s })
    }

    /// Computes a value of the values at each point.
    fn map(
        &self,
        call: &Call<'_>,
        mut compute: impl FnMut(&mut Vec<f64>) -> f64,
    ) -> Result<Vec<f64>, QueryError> {
        let len = self.all.iter().map(|series| series.values.len()).max().unwrap_or_default();
        let mut row = Vec::with_capacity(self.all.len());
        let value = |i: usize| {
            row.clear();
            row.extend(self.all.iter().map(|series| series.values.get(i).copied().unwrap_or(f64::NAN)));
            compute(&mut row)
        };
        let points_per_check = VALUES_PER_CHECK / self.all.len().clamp(1, VALUES_PER_CHECK);
        call.meter().collect(len, points_per_check, value)
    }
}
