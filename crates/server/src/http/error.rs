//! The one place where errors become statuses.
//!
//! Reading paths answer in Prometheus' JSON; writing paths in plain text, as Prometheus' receiver does.

use super::is_retryable;
use super::json::Json;
use crate::refusal::Refusal;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::ErrorKind;
use query::{QueryError, QueryErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::rng::mix;

/// An error of a reading path: `{"status":"error","errorType":…,"error":…}`.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into() }
    }

    /// 400 `bad_data`.
    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_data", message)
    }

    /// 503: the same request may be answered later.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// An answer for which there is no memory: not now, or never.
    pub(crate) fn answer_size(refusal: Refusal) -> Self {
        match refusal.kind {
            ErrorKind::TooLarge => {
                let message =
                    format!("the answer is too large: {refusal}; ask for less with matchers or limit");
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message)
            }
            _ => refusal.into(),
        }
    }

    /// A parameter that cannot be used, in Prometheus' words.
    pub(crate) fn bad_param(name: &str, why: impl std::fmt::Display) -> Self {
        Self::bad_data(format!("invalid parameter {name:?}: {why}"))
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let (status, kind) = match error.kind() {
            QueryErrorKind::BadData => return Self::bad_param("query", error),
            QueryErrorKind::Execution => (StatusCode::UNPROCESSABLE_ENTITY, "execution"),
            QueryErrorKind::Timeout => (StatusCode::SERVICE_UNAVAILABLE, "timeout"),
            QueryErrorKind::Canceled => (StatusCode::SERVICE_UNAVAILABLE, "canceled"),
            QueryErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Self::new(status, kind, error.to_string())
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal.kind {
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Internal | ErrorKind::Data => "internal",
            _ => "bad_data",
        };
        Self::new(status_of(refusal.kind), kind, refusal.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut json = Json::new();
        json.raw(r#"{"status":"error","errorType":"#);
        json.string(self.kind);
        json.raw(r#","error":"#);
        json.string(&self.message);
        json.raw("}");
        let mut response = json.into_response();
        *response.status_mut() = self.status;
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, retry_after());
        }
        response
    }
}

/// An error of a writing path: plain text.
#[derive(Debug)]
pub(crate) struct WriteError(pub(crate) Refusal);

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for WriteError {
    fn into_response(self) -> Response {
        let Refusal { kind, message, .. } = self.0;
        let mut response = Response::new(Body::from(message + "\n"));
        *response.status_mut() = status_of(kind);
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        if is_retryable(kind) {
            response.headers_mut().insert(header::RETRY_AFTER, retry_after());
        }
        response
    }
}

const fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Data | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// One to five seconds, spread so that those who were turned away together do not come back together.
fn retry_after() -> HeaderValue {
    static TURNED_AWAY: AtomicU64 = AtomicU64::new(0);
    let n = TURNED_AWAY.fetch_add(1, Ordering::Relaxed);
    HeaderValue::from(1 + mix(n) % 5)
}
