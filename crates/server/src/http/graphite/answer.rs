//! Answers in JSON, as a script that calls a function of the caller (JSONP), or in other formats.

use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::settings::Settings;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// Longest name of a function in the parameter `jsonp`.
const CALLBACK_BYTES_MAX: usize = 256;

/// The function that the answer calls, if it is JSONP.
#[derive(Debug, Clone)]
pub(super) struct Callback(Option<String>);

impl Callback {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn of(params: &Params, settings: &Settings) -> Result<Self, ApiError> {
        let Some(name) = params.last("jsonp") else { return Ok(Self::NONE) };
        if !settings.graphite_jsonp {
            return Err(ApiError::bad_data(
                "jsonp is not allowed, because it lets web pages of any site read the answer: \
                 to allow it, set graphite_jsonp",
            ));
        }
        // anything else could be a script of somebody else, who made a user click on a link
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_$.".contains(&byte);
        if name.len() > CALLBACK_BYTES_MAX || !name.bytes().all(is_safe) {
            return Err(ApiError::bad_data(
                "Invalid value for param jsonp: it must be the name of a function",
            ));
        }
        Ok(Self(Some(name.into())))
    }

    pub(super) fn begin(&self, json: &mut Json) {
        if let Self(Some(name)) = self {
            json.raw(name);
            json.raw("(");
        }
    }

    pub(super) fn end(&self, json: &mut Json) {
        if let Self(Some(_)) = self {
            json.raw(")");
        }
    }

    pub(super) const fn content_type(&self) -> &'static str {
        match self.0 {
            Some(_) => "text/javascript",
            None => "application/json",
        }
    }
}

/// Completes an answer. Like graphite-web, tells clients not to keep it.
pub(super) fn respond(answer: Json, content_type: &'static str) -> Response {
    let mut response = answer.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Reads the parameter `limit`. Without one, or if it is 0, there is no limit.
pub(super) fn limit(params: &Params) -> Result<usize, ApiError> {
    let wrong = |text| ApiError::bad_data(format!("Invalid int value {text:?} for param limit"));
    match params.last("limit").map(|text| text.parse().map_err(|_| wrong(text))).transpose()? {
        None | Some(0) => Ok(usize::MAX),
        Some(limit) => Ok(limit),
    }
}

/// Reads a number that switches something on, such as `leavesOnly=1`.
pub(super) fn flag(params: &Params, name: &str) -> Result<bool, TextError> {
    Ok(integer(params, name)?.unwrap_or(0) != 0)
}

pub(super) fn integer(params: &Params, name: &str) -> Result<Option<i64>, TextError> {
    let parse = |text: &str| {
        text.trim()
            .parse()
            .map_err(|_| ApiError::bad_data(format!("Invalid int value {text:?} for param {name}")))
    };
    Ok(params.last(name).map(parse).transpose()?)
}
