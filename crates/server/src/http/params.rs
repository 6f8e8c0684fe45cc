//! Parameters of a request that reads. They are in the query string, or in the body of a POST that is a form.

use super::App;
use super::body::{BodyError, BodyReader};
use super::error::ApiError;
use super::principal::RequestPrincipal;
use super::queries::admission::answers_of;
use crate::audit::Operation;
use crate::listen::patience::Patience;
use crate::refusal::{Refusal, grow};
use axum::body::HttpBody;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use model::TimeRange;
use std::time::Duration;
use stdx::budget::Reservation;
use stdx::units;

const FORM_BYTES_MAX: usize = 1 << 20;

const FORM_STEP_BYTES: usize = 4 << 10;

/// Limit on the parameters of a request. An empty parameter is one byte in the request but takes fifty bytes
/// of memory.
const PARAMS_MAX: usize = 1000;

/// Limit on the name of a parameter in a message.
const NAME_SHOWN_BYTES_MAX: usize = 100;

/// Memory reserved for the parameters and their parsed values, per byte of the query string or form.
const TEXT_COST: usize = 3;

/// Memory reserved for each parameter in addition to its text. It is twice the size of an entry, because the
/// list grows by doubling.
const PARAM_BYTES: usize = 2 * size_of::<(String, String)>();

/// Names and values of the parameters. Those in the form precede those in the query string.
#[derive(Debug, Default)]
pub(crate) struct Params {
    all: Vec<(String, String)>,
    /// The first of them are those of the form; the others are in the URL.
    form_count: usize,
    /// For the audit log. `None` if the request is no administrative one.
    operation: Option<Operation>,
    /// True if the request has a body that is no form, so that parameters in it were not read.
    has_other_body: bool,
    _memory: Option<Reservation>,
}

impl FromRequest<App> for Params {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        if content_type.starts_with("multipart/form-data") {
            // without its parameters, the answer would be another one than was asked for
            let message = "parameters in multipart/form-data are not read: send them in the URL, or with the Content-Type \
                application/x-www-form-urlencoded (curl -d instead of -F)";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_data", message));
        }
        let is_form = content_type.starts_with("application/x-www-form-urlencoded");
        let has_other_body = !is_form && !body.is_end_stream();
        let account = &match parts.extensions.get() {
            Some(RequestPrincipal(principal)) => answers_of(app, &principal.tenant),
            None => app.node.reads().answers.clone(),
        };
        let (form, mut memory) = match is_form {
            true => {
                let settings = app.node.settings();
                let timeout = Duration::from_millis(settings.body_timeout_ms);
                let patience = Patience::new(timeout, settings.transfer_rate);
                let reader =
                    BodyReader { account, bytes_max: FORM_BYTES_MAX, step_bytes: FORM_STEP_BYTES, patience };
                reader.read(body).await.map_err(|error| unreadable(error, timeout))?
            }
            false => (Vec::new(), account.reserve(0).expect("BUG: cannot reserve 0 bytes")),
        };
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let count = 2 + form.iter().chain(query).filter(|byte| **byte == b'&').count();
        let texts = (form.len() + query.len()) * TEXT_COST;
        let bytes = form.capacity() + texts + count.min(PARAMS_MAX) * PARAM_BYTES;
        grow(&mut memory, bytes as u64)?;
        let form_count = form_urlencoded::parse(&form).count();
        let pairs = form_urlencoded::parse(&form).chain(form_urlencoded::parse(query));
        let pairs = pairs.map(|(name, value)| (name.into_owned(), value.into_owned()));
        let all: Vec<_> = pairs.take(PARAMS_MAX + 1).collect();
        let held_bytes = memory.bytes() - form.capacity() as u64;
        drop(form);
        memory.resize(held_bytes).expect("BUG: a reservation cannot shrink");
        let operation = parts.extensions.get::<Operation>().cloned();
        if let Some(operation) = &operation {
            operation.note_parameters(all.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        if all.len() > PARAMS_MAX {
            return Err(ApiError::bad_data(format!("more than {PARAMS_MAX} parameters")));
        }
        let form_count = form_count.min(all.len());
        Ok(Self { all, form_count, operation, has_other_body, _memory: Some(memory) })
    }
}

fn unreadable(error: BodyError, timeout: Duration) -> ApiError {
    match error {
        BodyError::Memory(full) => Refusal::from(full).into(),
        BodyError::TooSlow => form_too_slow(timeout),
        BodyError::TooLarge(_) => {
            let message = format!("the form is larger than {FORM_BYTES_MAX} bytes");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "bad_data", message)
        }
        BodyError::Broken(error) => ApiError::bad_data(format!("cannot read the form: {error}")),
    }
}

fn form_too_slow(timeout: Duration) -> ApiError {
    let message =
        format!("the form did not arrive within {} s (setting body_timeout)", timeout.as_secs_f64());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
}

impl Params {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// Like [`Self::get`], but of several values, the last one counts, as in graphite-web. Those of a form come after those of the URL.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        let (form, url) = self.all.split_at(self.form_count);
        let mut all = form.iter().rev().chain(url.iter().rev());
        all.find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.all.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Refuses parameters other than `known`, empty ones, and further values of one that is not `repeatable`. For requests that delete: an
    /// unknown parameter may be a misspelled one, such as `dryrun`, without which more is deleted than was meant, and so may an empty one.
    pub(crate) fn only(&self, known: &[&str], repeatable: &[&str]) -> Result<(), ApiError> {
        if self.has_other_body {
            let message = "the body is no form; nothing was deleted. Send parameters in the URL, or with the Content-Type \
                application/x-www-form-urlencoded";
            return Err(ApiError::bad_data(message));
        }
        for (position, (name, value)) in self.all.iter().enumerate() {
            let is = |known: &&str| known == name;
            let is_repeated = || self.all[..position].iter().any(|(earlier, _)| earlier == name);
            let why = if !known.iter().chain(repeatable).any(is) {
                let valid = [known, repeatable].concat().join(", ");
                format!("unknown; nothing was deleted. Valid parameters are {valid}")
            } else if value.is_empty() {
                "empty; nothing was deleted".to_owned()
            } else if !repeatable.iter().any(is) && is_repeated() {
                "given more than once; nothing was deleted".to_owned()
            } else {
                continue;
            };
            return Err(ApiError::bad_param(&name[..name.floor_char_boundary(NAME_SHOWN_BYTES_MAX)], why));
        }
        Ok(())
    }

    /// What the audit log says about the request. `None` if it is no administrative one.
    pub(crate) const fn operation(&self) -> Option<&Operation> {
        self.operation.as_ref()
    }

    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.get(name).map(|text| parse_time(text).map_err(|e| ApiError::bad_param(name, e))).transpose()
    }

    pub(crate) fn needed_time(&self, name: &str) -> Result<i64, ApiError> {
        let missing = || ApiError::bad_param(name, "cannot parse \"\" to a valid timestamp");
        self.time(name)?.ok_or_else(missing)
    }

    /// Reads a duration and returns milliseconds. It is given as a number of seconds, or with a unit as in
    /// `5m`.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let parse = |text: &str| {
            let written = || units::duration_ms(text).filter(|ms| *ms < i64::MAX);
            seconds_to_ms(text).or_else(written).ok_or_else(|| {
                ApiError::bad_param(name, format!("cannot parse {text:?} to a valid duration"))
            })
        };
        self.get(name).map(parse).transpose()
    }

    pub(crate) fn range(&self) -> Result<TimeRange, ApiError> {
        let start_ms = self.time("start")?.unwrap_or(i64::MIN);
        let end_ms = self.time("end")?.unwrap_or(i64::MAX);
        if end_ms < start_ms {
            return Err(ApiError::bad_param("end", "end timestamp must not be before start time"));
        }
        Ok(TimeRange::new(start_ms, end_ms))
    }

    /// Reads the parameter `limit`. If it is 0 or missing, there is no limit.
    pub(crate) fn limit(&self) -> Result<usize, ApiError> {
        match self.get("limit").map(str::parse::<i64>) {
            None | Some(Ok(0)) => Ok(usize::MAX),
            Some(Ok(n)) => {
                usize::try_from(n).map_err(|_| ApiError::bad_param("limit", "limit must be non-negative"))
            }
            Some(Err(_)) => Err(ApiError::bad_param("limit", "limit must be a number")),
        }
    }
}

/// Parses a time, which is given as seconds since 1970 or in the format of RFC 3339. Returns milliseconds.
fn parse_time(text: &str) -> Result<i64, String> {
    if let Some(ms) = seconds_to_ms(text) {
        return Ok(ms);
    }
    text.parse::<jiff::Timestamp>()
        .map(jiff::Timestamp::as_millisecond)
        .map_err(|_| format!("cannot parse {text:?} to a valid timestamp"))
}

/// Converts seconds to milliseconds. Fails beyond ±2^53 ms.
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
        let all = vec![("a".into(), "1".into()), ("a".into(), "2".into()), ("b".into(), String::new())];
        let mut p = Params { all, form_count: 1, operation: None, has_other_body: false, _memory: None };
        assert_eq!((p.get("a"), p.get("b"), p.last("a")), (Some("1"), None, Some("1")));
        assert_eq!(p.all("a").count(), 2);
        p.form_count = 2;
        assert_eq!((p.get("a"), p.last("a"), p.last("b")), (Some("1"), Some("2"), None));
    }
}
