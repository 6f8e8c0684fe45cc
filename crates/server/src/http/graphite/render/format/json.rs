//! `[{"target":"name","tags":{…},"datapoints":[[value,time],…]},…]`

use super::{RenderRequest, VALUES_PER_CHECK};
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::queries::admission::check_canceled;
use crate::http::queries::query_threads::Turn;
use query::graphite::{Series, consolidate};

pub(super) fn encode(mut all: Vec<Series>, request: &RenderRequest, turn: &Turn) -> Result<Json, ApiError> {
    if all.iter().all(|series| series.values.is_empty()) {
        all.clear();
    }
    if let Some(points_max) = request.max_data_points {
        consolidate::fit(&mut all, points_max);
    }
    let mut json = Json::within(&turn.limits.answers);
    request.callback.begin(&mut json);
    json.raw("[");
    let mut written = 0;
    for series in &all {
        check_canceled(turn)?;
        if request.no_null_points && series.points().all(|(_, value)| value.is_nan()) {
            continue;
        }
        json.comma(written);
        written += 1;
        write(&mut json, series, request.no_null_points, turn)?;
    }
    json.raw("]");
    request.callback.end(&mut json);
    Ok(json.finish()?)
}

fn write(json: &mut Json, series: &Series, no_null_points: bool, turn: &Turn) -> Result<(), ApiError> {
    json.raw(r#"{"target":"#);
    json.string(&series.name);
    json.raw(r#","tags":{"#);
    for (i, (tag, value)) in series.tags.iter().enumerate() {
        json.comma(i);
        json.string(tag);
        json.raw(":");
        json.string(value);
    }
    json.raw(r#"},"datapoints":["#);
    let points = series.points().filter(|(_, value)| !(no_null_points && value.is_nan()));
    for (i, (time_s, value)) in points.enumerate() {
        if i % VALUES_PER_CHECK == 0 {
            check_canceled(turn)?;
        }
        json.datapoint(i, value, time_s);
    }
    json.raw("]}");
    Ok(())
}
