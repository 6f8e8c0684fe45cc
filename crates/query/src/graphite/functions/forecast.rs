//! Functions that forecast values: Holt-Winters, and lines through the values.

use super::table::{Default, Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::call::{Call, Sink};
use crate::graphite::held::Held;
use crate::graphite::holt_winters::{Analysis, BYTES_PER_VALUE, analyze};
use crate::graphite::{Aggregate, Series};
use std::collections::HashMap;

const DELTA: Param = Param::optional("delta", Type::Integer).or(Default::Integer(3));
const BOOTSTRAP: Param =
    Param::optional("bootstrapInterval", Type::Interval).or(Default::Text("7d")).suggest(&["7d", "30d"]);
const SEASONALITY: Param =
    Param::optional("seasonality", Type::Interval).or(Default::Text("1d")).suggest(&["1d", "7d"]);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "holtWintersAberration",
        Group::Calculate,
        "By how much each value is outside the band of holtWintersConfidenceBands(). 0 if it is inside.",
        &[SERIES_LIST, DELTA, BOOTSTRAP, SEASONALITY],
        aberration,
    ),
    Function::new(
        "holtWintersConfidenceArea",
        Group::Calculate,
        "The area between the two bands of holtWintersConfidenceBands(), for one series.",
        &[SERIES_LIST, DELTA, BOOTSTRAP, SEASONALITY],
        confidence_area,
    ),
    Function::new(
        "holtWintersConfidenceBands",
        Group::Calculate,
        "A lower and an upper band around the forecast of holtWintersForecast(). `delta` is their distance from it, in \
         expected deviations.",
        &[SERIES_LIST, DELTA, BOOTSTRAP, SEASONALITY],
        confidence_bands,
    ),
    Function::new(
        "holtWintersForecast",
        Group::Calculate,
        "Forecasts each value from those before it, by their level, trend and season (Holt and Winters). Values of the \
         bootstrap interval before the request are read too.",
        &[SERIES_LIST, BOOTSTRAP, SEASONALITY],
        forecast,
    )
    .mapping(),
    Function::new(
        "linearRegression",
        Group::Calculate,
        "The straight line with the smallest squared distance from the values. The values may be those of another time.",
        &[
            SERIES_LIST,
            Param::optional("startSourceAt", Type::Date),
            Param::optional("endSourceAt", Type::Date),
        ],
        linear_regression,
    ),
];

/// Reads the argument with its bootstrap interval. Passes on each series, in the range of the request, with its analysis.
fn analyzed(
    call: &Call<'_>,
    mut sink: impl FnMut(Series, &[f64], &[f64]) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let (bootstrap_s, season_s) = (call.interval("bootstrapInterval")?, call.interval("seasonality")?);
    if bootstrap_s < 0 || season_s <= 0 {
        return Err(call.refuse("intervals must be positive"));
    }
    let context = call.context();
    let earlier = context.within(context.from_s - bootstrap_s, context.until_s);
    call.each_within(&earlier, "seriesList", |mut series| {
        let season = usize::try_from(season_s / series.step_s).unwrap_or(usize::MAX);
        if season == 0 {
            return Err(
                call.refuse(format!("a season must have at least one step, which is {} s", series.step_s))
            );
        }
        let mut charge = call.meter().charge();
        charge.add_bytes(series.values.len() * BYTES_PER_VALUE)?;
        let Analysis { forecasts, deviations } = analyze(&series.values, season, call.meter())?;
        let skipped = usize::try_from(bootstrap_s / series.step_s).unwrap_or(usize::MAX).min(forecasts.len());
        series.start_s += bootstrap_s;
        series.values.clear();
        series.consolidation = Aggregate::Average;
        // tags of intermediate results, which graphite-web leaves
        series.tags.set("holtWintersForecast", "1");
        series.tags.set("holtWintersDeviation", "1");
        sink(series, &forecasts[skipped..], &deviations[skipped..])
    })
}

fn forecast(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    analyzed(call, |mut series, forecasts, _| {
        series.rename(format!("holtWintersForecast({})", series.name));
        series.values.extend_from_slice(forecasts);
        sink(series)
    })
}

/// Passes on the lower and the upper band of each series.
fn bands(
    call: &Call<'_>,
    mut sink: impl FnMut(Series, Series) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let delta = call.number("delta");
    analyzed(call, |mut series, forecasts, deviations| {
        series.tags.set("holtWintersConfidenceUpper", "1");
        series.tags.set("holtWintersConfidenceLower", "1");
        let mut charge = call.meter().charge();
        charge.add_bytes(2 * series.bytes() + 2 * size_of_val(forecasts))?;
        let band = |side: &str, sign: f64| {
            let values = forecasts
                .iter()
                .zip(deviations)
                .map(|(forecast, deviation)| forecast + sign * (delta * deviation));
            let name = format!("holtWintersConfidence{side}({})", series.name);
            Series { name, values: values.collect(), ..series.clone() }
        };
        sink(band("Lower", -1.0), band("Upper", 1.0))
    })
}

fn confidence_bands(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    bands(call, |lower, upper| {
        sink(lower)?;
        sink(upper)
    })
}

fn confidence_area(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut is_first = true;
    bands(call, |lower, upper| {
        if !std::mem::take(&mut is_first) {
            return Err(call.refuse("there must be exactly one series"));
        }
        [lower, upper].into_iter().try_for_each(|mut series| {
            series.tags.set("holtWintersConfidenceArea", "1");
            let path = series.path_expression.replace("areaBetween", "holtWintersConfidenceArea");
            series.rename(format!("holtWintersConfidenceArea({path})"));
            sink(series)
        })
    })
}

fn aberration(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let mut all = Held::new(call.meter());
    let again = call.evaluated_twice()?;
    bands(call, |lower, upper| {
        all.push(lower)?;
        all.push(upper)
    })?;
    drop(again);
    // series are found by their names, because another range may have others
    let place_of: HashMap<&str, usize> =
        all.iter().enumerate().map(|(place, series)| (series.name.as_str(), place)).collect();
    call.each("seriesList", |mut series| {
        let band =
            |side: &str| place_of.get(format!("holtWintersConfidence{side}({})", series.name).as_str());
        let (lower, upper) = (band("Lower"), band("Upper"));
        let at = |band: Option<&usize>, place: usize| {
            band.and_then(|band| all[*band].values.get(place)).copied().unwrap_or(f64::NAN)
        };
        let mut places = 0..;
        call.meter().change_each(&mut series.values, |value| {
            let place = places.next().unwrap_or(usize::MAX);
            let (lower, upper) = (at(lower, place), at(upper, place));
            *value = match *value {
                value if value > upper => value - upper,
                value if value < lower => value - lower,
                _ => 0.0,
            };
        })?;
        super::rates::named(&mut series, "holtWintersAberration", "1", "");
        series.consolidation = Aggregate::Average;
        sink(series)
    })
}

fn linear_regression(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let context = call.context();
    let given = |param: &str| call.values(param).next().is_some();
    let from_s = if given("startSourceAt") { call.time("startSourceAt")? } else { context.from_s };
    let until_s = if given("endSourceAt") { call.time("endSourceAt")? } else { context.until_s };
    let mut charge = call.meter().charge();
    let mut regressions = Vec::new();
    let again = call.evaluated_twice()?;
    call.each_within(&context.within(from_s, until_s), "seriesList", |series| {
        charge.add_bytes(size_of::<Option<Regression>>())?;
        regressions.push(Regression::of(&series));
        Ok(())
    })?;
    drop(again);
    let mut regressions = regressions.into_iter();
    call.each("seriesList", |mut series| {
        let Some(Some(regression)) = regressions.next() else { return Ok(()) };
        series.tags.set("linearRegressions", format!("{from_s}, {until_s}"));
        series.rename(format!("linearRegression({}, {from_s}, {until_s})", series.name));
        series.consolidation = Aggregate::Average;
        let (mut time_s, step_s) = (series.start_s, series.step_s);
        call.meter().change_each(&mut series.values, |value| {
            *value = regression.at(time_s as f64);
            time_s = time_s.saturating_add(step_s);
        })?;
        sink(series)
    })
}

/// A line through the values of a series, by the method of least squares.
#[derive(Debug, Clone, Copy)]
struct Regression {
    /// Value at the beginning of 1970.
    offset: f64,
    /// Change per second.
    slope: f64,
}

impl Regression {
    /// `None` if the series has fewer than two values. The order of operations is that of graphite-web, because the
    /// offset is the small difference of large numbers.
    fn of(series: &Series) -> Option<Self> {
        let (mut count, mut places, mut squares) = (0_i128, 0_i128, 0_i128);
        let (mut sum, mut products) = (0.0, 0.0);
        for (place, value) in series.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            let whole = place as i128;
            (count, places, squares) = (count + 1, places + whole, squares + whole * whole);
            sum += value;
            products += place as f64 * value;
        }
        let denominator = (count * squares - places * places) as f64;
        if denominator == 0.0 {
            return None;
        }
        let (count, places, squares) = (count as f64, places as f64, squares as f64);
        let slope = (count * products - places * sum) / denominator / series.step_s as f64;
        let offset = (squares * sum - products * places) / denominator - slope * series.start_s as f64;
        Some(Self { offset, slope })
    }

    fn at(self, time_s: f64) -> f64 {
        self.offset + time_s * self.slope
    }
}
