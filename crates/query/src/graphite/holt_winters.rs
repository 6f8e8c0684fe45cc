//! Triple exponential smoothing, after Holt and Winters: level, trend and season are each smoothed.

use crate::QueryError;
use crate::meter::Meter;

/// Weight of a new value in the level and in the season.
const LEVEL: f64 = 0.1;
const SEASON: f64 = 0.1;

/// Weight of a new value in the trend.
const TREND: f64 = 0.0035;

/// Forecasts and expected deviations, one for each value of the input.
#[derive(Debug, PartialEq)]
pub(super) struct Analysis {
    /// NaN after a gap, because nothing is forecast there.
    pub(super) forecasts: Vec<f64>,
    pub(super) deviations: Vec<f64>,
}

/// Bytes that [`analyze`] needs for each value.
pub(super) const BYTES_PER_VALUE: usize = 3 * size_of::<f64>();

/// Forecasts each value from the values before it. NaN means that the value is missing, which restarts
/// the level. A season has `season` values, which is at least 1.
pub(super) fn analyze(values: &[f64], season: usize, meter: &Meter<'_>) -> Result<Analysis, QueryError> {
    assert!(season > 0, "BUG: a season without values");
    let mut forecasts = Vec::with_capacity(values.len());
    let mut deviations = Vec::with_capacity(values.len());
    let mut seasonals: Vec<f64> = Vec::with_capacity(values.len());
    let earlier = |list: &[f64], i: usize| i.checked_sub(season).map_or(0.0, |j| list[j]);
    let (mut last_level, mut last_trend, mut next_forecast) = (f64::NAN, 0.0, f64::NAN);
    for (i, &value) in values.iter().enumerate() {
        meter.check_at(i)?;
        if value.is_nan() {
            (last_level, last_trend) = (f64::NAN, 0.0);
            forecasts.push(next_forecast);
            seasonals.push(0.0);
            deviations.push(0.0);
            next_forecast = f64::NAN;
            continue;
        }
        if last_level.is_nan() {
            last_level = value;
        }
        let forecast = if i == 0 { value } else { next_forecast };
        let last_seasonal = earlier(&seasonals, i);
        let level = LEVEL * (value - last_seasonal) + (1.0 - LEVEL) * (last_level + last_trend);
        let trend = TREND * (level - last_level) + (1.0 - TREND) * last_trend;
        seasonals.push(SEASON * (value - level) + (1.0 - SEASON) * last_seasonal);
        let expected = if forecast.is_nan() { 0.0 } else { forecast };
        deviations.push(SEASON * (value - expected).abs() + (1.0 - SEASON) * earlier(&deviations, i));
        forecasts.push(forecast);
        // with a season of one value, the next season is the one that was just pushed
        next_forecast = level + trend + earlier(&seasonals, i + 1);
        (last_level, last_trend) = (level, trend);
    }
    Ok(Analysis { forecasts, deviations })
}
