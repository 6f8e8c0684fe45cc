//! Formats for programs and people: `raw` and `csv`, and `dygraph` and `rickshaw` for the libraries of these names.

use super::super::RenderRequest;
use super::write_values;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::queries::admission::check_canceled;
use crate::http::queries::query_threads::Turn;
use jiff::Timestamp;
use jiff::fmt::strtime;
use query::graphite::Series;

/// Writes a number as Python does, always with a point or an exponent. NaN, a missing value, is written as the text in
/// `none`.
fn number(out: &mut Json, value: f64, none: &str) {
    if value.is_nan() {
        return out.raw(none);
    }
    out.raw(&match value {
        f64::INFINITY => "inf".into(),
        f64::NEG_INFINITY => "-inf".into(),
        value => python(value),
    });
}

/// Writes a finite number as Python does: with an exponent from 1e16 on and below 1e-4, which has at least two digits.
fn python(value: f64) -> String {
    let text = match value.abs() {
        0.0 | 1e-4..1e16 => return format!("{value:?}"),
        _ => format!("{value:e}"),
    };
    let (digits, exponent) = text.split_once('e').expect("BUG: the exponent is missing");
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// A line for each series: `name,start,end,step|value,value,…`
pub(super) fn raw(all: &[Series], turn: &Turn) -> Result<Json, ApiError> {
    let mut out = Json::within(&turn.limits.answers);
    for series in all {
        check_canceled(turn)?;
        let Series { name, start_s, end_s, step_s, values, .. } = series;
        out.raw(name);
        out.raw(&format!(",{start_s},{end_s},{step_s}|"));
        write_values(values, turn, |i, value| {
            out.comma(i);
            number(&mut out, value, "None");
        })?;
        out.raw("\n");
    }
    Ok(out.finish()?)
}

/// A line for each value, in the time zone of the request: `name,2026-11-27 15:00:00,1.5`
pub(super) fn csv(all: &[Series], request: &RenderRequest, turn: &Turn) -> Result<Json, ApiError> {
    let mut out = Json::within(&turn.limits.answers);
    for series in all {
        let name = match series.name.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", series.name.replace('"', "\"\"")),
            false => series.name.clone(),
        };
        for (i, value) in series.values.iter().enumerate() {
            if i % 1_000 == 0 {
                check_canceled(turn)?;
            }
            let time_s = series.start_s.saturating_add(series.step_s.saturating_mul(i as i64));
            let time = Timestamp::from_second(time_s).map(|time| time.to_zoned(request.time_zone.clone()));
            let time = time.and_then(|time| strtime::format("%Y-%m-%d %H:%M:%S", &time));
            out.raw(&name);
            out.raw(",");
            out.raw(&time.unwrap_or_default());
            out.raw(",");
            number(&mut out, *value, "");
            out.raw("\r\n");
        }
    }
    Ok(out.finish()?)
}

/// `{"labels":["Time",…],"data":[[ms,value,…],…]}`, at the times of the first series
pub(super) fn dygraph(all: &[Series], request: &RenderRequest, turn: &Turn) -> Result<Json, ApiError> {
    let mut out = Json::within(&turn.limits.answers);
    request.callback.begin(&mut out);
    out.raw("{");
    if let Some(first) = all.first() {
        out.raw(r#""labels":["Time""#);
        for series in all {
            out.raw(",");
            out.string(&series.name);
        }
        out.raw(r#"],"data":["#);
        for i in 0..first.values.len() {
            check_canceled(turn)?;
            out.comma(i);
            out.raw("[");
            out.integer(first.start_s.saturating_add(first.step_s.saturating_mul(i as i64)));
            out.raw("000");
            for series in all {
                out.raw(",");
                match series.values.get(i).copied().unwrap_or(f64::NAN) {
                    f64::INFINITY => out.raw("Infinity"),
                    f64::NEG_INFINITY => out.raw("-Infinity"),
                    value => out.number(value),
                }
            }
            out.raw("]");
        }
        out.raw("]");
    }
    out.raw("}");
    request.callback.end(&mut out);
    Ok(out.finish()?)
}

/// `[{"target":"name","datapoints":[{"x":time,"y":value},…]},…]`
pub(super) fn rickshaw(all: &[Series], request: &RenderRequest, turn: &Turn) -> Result<Json, ApiError> {
    let mut out = Json::within(&turn.limits.answers);
    request.callback.begin(&mut out);
    out.raw("[");
    for (i, series) in all.iter().enumerate() {
        check_canceled(turn)?;
        out.comma(i);
        out.raw(r#"{"target":"#);
        out.string(&series.name);
        out.raw(r#","datapoints":["#);
        write_values(&series.values, turn, |i, value| {
            out.comma(i);
            out.raw(r#"{"x":"#);
            out.integer(series.start_s.saturating_add(series.step_s.saturating_mul(i as i64)));
            out.raw(r#","y":"#);
            out.number(value);
            out.raw("}");
        })?;
        out.raw("]}");
    }
    out.raw("]");
    request.callback.end(&mut out);
    Ok(out.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_python_does() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-3e-9, "-3e-09"),
            (1.5e-300, "1.5e-300"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.25e22, "1.25e+22"),
        ] {
            assert_eq!(python(value), text);
        }
    }
}
