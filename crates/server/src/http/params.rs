//! Parameters of a reading request: the query string and, for POST, the form, together.

use super::App;
use super::error::ApiError;
use crate::settings::parse_duration_ms;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt, Limited};
use model::TimeRange;
use std::time::Duration;

/// A form of this size holds any sensible query.
const FORM_BYTES_MAX: usize = 1 << 20;

/// Names and values, the form's first.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl FromRequest<App> for Params {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let is_form = parts
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|v| v.to_str().ok())
            .is_some_and(|v| v.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded"));
        let form = match is_form {
            true => {
                let timeout = Duration::from_millis(app.node.settings().body_timeout_ms);
                tokio::time::timeout(timeout, read_form(body)).await.map_err(|_| form_too_slow(timeout))??
            }
            false => Bytes::new(),
        };
        let query = parts.uri.query().unwrap_or_default();
        let form = form_urlencoded::parse(&form).into_owned();
        Ok(Self(form.chain(form_urlencoded::parse(query.as_bytes()).into_owned()).collect()))
    }
}

async fn read_form(body: axum::body::Body) -> Result<Bytes, ApiError> {
    let limited = Limited::new(body, FORM_BYTES_MAX).collect().await;
    limited.map(http_body_util::Collected::to_bytes).map_err(|_| {
        let message = format!("the form cannot be read or is larger than {FORM_BYTES_MAX} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "bad_data", message)
    })
}

fn form_too_slow(timeout: Duration) -> ApiError {
    let message =
        format!("the form did not arrive within {} s (setting body_timeout)", timeout.as_secs_f64());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
}

impl Params {
    /// The first value of a parameter that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A time, in milliseconds.
    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.get(name).map(|text| parse_time(text).map_err(|e| ApiError::bad_param(name, e))).transpose()
    }

    /// A time that must be there.
    pub(crate) fn needed_time(&self, name: &str) -> Result<i64, ApiError> {
        let missing = || ApiError::bad_param(name, "cannot parse \"\" to a valid timestamp");
        self.time(name)?.ok_or_else(missing)
    }

    /// A duration (seconds, or as `5m`), in milliseconds.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let parse = |text: &str| {
            seconds_to_ms(text).or_else(|| parse_duration_ms(text)).ok_or_else(|| {
                ApiError::bad_param(name, format!("cannot parse {text:?} to a valid duration"))
            })
        };
        self.get(name).map(parse).transpose()
    }

    /// `start` to `end`; open where they are missing.
    pub(crate) fn range(&self) -> Result<TimeRange, ApiError> {
        let start_ms = self.time("start")?.unwrap_or(i64::MIN);
        let end_ms = self.time("end")?.unwrap_or(i64::MAX);
        if end_ms < start_ms {
            return Err(ApiError::bad_param("end", "end timestamp must not be before start time"));
        }
        Ok(TimeRange::new(start_ms, end_ms))
    }

    /// `limit`: a count; 0 and nothing mean "no limit".
    pub(crate) fn limit(&self) -> Result<usize, ApiError> {
        match self.get("limit").map(str::parse::<usize>) {
            None | Some(Ok(0)) => Ok(usize::MAX),
            Some(Ok(n)) => Ok(n),
            Some(Err(_)) => Err(ApiError::bad_param("limit", "limit must be a number")),
        }
    }
}

/// Seconds since 1970 (with decimals) or RFC 3339: milliseconds.
fn parse_time(text: &str) -> Result<i64, String> {
    if let Some(ms) = seconds_to_ms(text) {
        return Ok(ms);
    }
    text.parse::<jiff::Timestamp>()
        .map(jiff::Timestamp::as_millisecond)
        .map_err(|_| format!("cannot parse {text:?} to a valid timestamp"))
}

/// Within ±2^53 ms, where a double still tells one from the next.
fn seconds_to_ms(text: &str) -> Option<i64> {
    let ms = (text.parse::<f64>().ok()? * 1000.0).round();
    (ms.abs() <= (1u64 << 53) as f64).then_some(ms as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_time("1795284000"), Ok(1_795_284_000_000));
        assert_eq!(parse_time("1795284000.123"), Ok(1_795_284_000_123));
        assert_eq!(parse_time("2026-11-21T18:00:00Z"), Ok(1_795_284_000_000));
        assert_eq!(parse_time("2026-11-21T19:00:00.5+01:00"), Ok(1_795_284_000_500));
        for bad in ["", "now", "1e300", "NaN", "inf", "2026-11-21"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn forms_go_before_the_query_string() {
        let p = Params(vec![("a".into(), "1".into()), ("a".into(), "2".into()), ("b".into(), String::new())]);
        assert_eq!((p.get("a"), p.get("b")), (Some("1"), None));
        assert_eq!(p.all("a").count(), 2);
    }
}
