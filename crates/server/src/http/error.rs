//! Maps errors to HTTP statuses. No other module does.
//!
//! Reading paths answer with Prometheus' JSON, those of Graphite and writing paths with plain text.

pub(super) mod middleware;

use super::json::{AnswerSize, Json};
use crate::refusal::Refusal;
use admission::RETRY_AFTER;
use admission::retry::Wait;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::ErrorKind;
use query::{QueryError, QueryErrorKind};
use std::time::Duration;

/// Error of a request that reads, answered as Prometheus does: `{"status":"error","errorType":…,"error":…}`.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    reason: &'static str,
    message: String,
    retry_after: Option<Wait>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(Wait::For(RETRY_AFTER));
        Self { status, kind, reason: kind, message: message.into(), retry_after }
    }

    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_data", message)
    }

    /// 503: a retry of the same request can succeed.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// Says when a retry may succeed.
    pub(crate) fn after(self, wait: Duration) -> Self {
        self.until(Wait::For(wait))
    }

    /// Says what a retry waits for.
    pub(crate) fn until(self, wait: Wait) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    pub(crate) fn forbidden(status: StatusCode, reason: &'static str, message: String) -> Self {
        Self { status, kind: "bad_data", reason, message, retry_after: None }
    }

    pub(crate) const fn reason(&self) -> &'static str {
        self.reason
    }

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
            QueryErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            QueryErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let message = match error {
            QueryError::TooLarge => format!(
                "{error}: ask for fewer series or a shorter range, or raise the settings query_samples and query_memory, \
                 or memory, on which both depend"
            ),
            error => error.to_string(),
        };
        Self::new(status, kind, message)
    }
}

impl From<AnswerSize> for ApiError {
    fn from(AnswerSize(refusal): AnswerSize) -> Self {
        match refusal.kind {
            ErrorKind::TooLarge => {
                let message =
                    format!("the answer is too large: {refusal}; ask for less with matchers or limit");
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message)
            }
            _ => refusal.into(),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { kind, reason, message, retry_after, .. } = refusal;
        let (status, kind) = match kind {
            ErrorKind::Unavailable | ErrorKind::Limited => (status_of(kind), "unavailable"),
            ErrorKind::Internal | ErrorKind::Data => (status_of(kind), "internal"),
            // not a fault of the request: the stored data is of a kind that queries do not support
            ErrorKind::Unsupported => (StatusCode::UNPROCESSABLE_ENTITY, "execution"),
            ErrorKind::Invalid | ErrorKind::TooLarge | ErrorKind::Forbidden | ErrorKind::Unauthenticated => {
                (status_of(kind), "bad_data")
            }
        };
        Self { status, kind, reason, message, retry_after }
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
        let Self { reason, message, retry_after, .. } = self;
        response.extensions_mut().insert(RefusalDetails { reason, retry_after, message, series: None });
        response
    }
}

/// The forms in which the versions of InfluxDB report errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InfluxErrors {
    /// `{"error":…}`
    V1,
    /// `{"code":…,"message":…}`
    V2,
}

impl InfluxErrors {
    /// Gives a refusal the form of this version. Other answers stay as they are.
    pub(crate) fn convert(self, mut response: Response) -> Response {
        let Some(RefusalDetails { message, .. }) = response.extensions().get() else { return response };
        let mut json = Json::new();
        match self {
            Self::V1 => json.raw(r#"{"error":"#),
            Self::V2 => {
                json.raw(r#"{"code":"#);
                json.string(influx_code(response.status()));
                json.raw(r#","message":"#);
            }
        }
        json.string(message);
        json.raw("}");
        let (parts, body) = json.into_response().into_parts();
        response.headers_mut().extend(parts.headers);
        *response.body_mut() = body;
        response
    }
}

/// The codes of InfluxDB 2.
fn influx_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not found",
        StatusCode::METHOD_NOT_ALLOWED => "method not allowed",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported media type",
        StatusCode::TOO_MANY_REQUESTS => "too many requests",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        status if status.is_server_error() => "internal error",
        _ => "invalid",
    }
}

/// Gives a refusal the form of Elasticsearch. Other answers stay as they are.
pub(crate) fn in_elastic_form(mut response: Response) -> Response {
    let Some(message) = answer_of_refused(&response) else { return response };
    let status = response.status();
    let kind = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "security_exception",
        StatusCode::PAYLOAD_TOO_LARGE => "content_too_long_exception",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "es_rejected_execution_exception",
        status if status.is_server_error() => "exception",
        _ => "illegal_argument_exception",
    };
    let mut json = Json::new();
    for before in [r#"{"error":{"root_cause":[{"type":"#, r#"}],"type":"#] {
        json.raw(before);
        json.string(kind);
        json.raw(r#","reason":"#);
        json.string(message);
    }
    json.raw(r#"},"status":"#);
    json.integer(i64::from(status.as_u16()));
    json.raw("}");
    let (parts, body) = json.into_response().into_parts();
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().extend(parts.headers);
    *response.body_mut() = body;
    response
}

/// Error of a request in Graphite's API, which is answered as plain text.
#[derive(Debug)]
pub(crate) struct TextError(ApiError);

impl<E: Into<ApiError>> From<E> for TextError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for TextError {
    fn into_response(self) -> Response {
        let ApiError { status, reason, message, retry_after, .. } = self.0;
        plain(status, RefusalDetails { reason, retry_after, message, series: None })
    }
}

fn plain(status: StatusCode, details: RefusalDetails) -> Response {
    let mut response = Response::new(Body::from(format!("{}\n", details.message)));
    *response.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response.extensions_mut().insert(details);
    response
}

#[derive(Debug)]
pub(crate) struct WriteError(pub(crate) Refusal);

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for WriteError {
    fn into_response(self) -> Response {
        let Refusal { kind, reason, message, retry_after, series, .. } = self.0;
        plain(status_of(kind), RefusalDetails { reason, retry_after, message, series })
    }
}

/// Gives the answer to a partial write the status 409. vmagent takes a 400 for a refusal of its protocol: it would repeat the
/// request, and never send zstd again. After a 409, it drops what was refused, and logs why.
pub(crate) fn partial_write_for_vmagent(mut response: Response) -> Response {
    let details: Option<&RefusalDetails> = response.extensions().get();
    if details.is_some_and(|details| details.reason == PARTIAL_WRITE) {
        *response.status_mut() = StatusCode::CONFLICT;
    }
    response
}

/// Reason of the answer to a request of which a part was stored.
pub(crate) const PARTIAL_WRITE: &str = "partial_write";

/// Attaches a refusal to the answer of a request that was stored only in part, so that it is counted and recorded.
pub(crate) fn partly_refused(mut response: Response, refusal: Refusal) -> Response {
    let Refusal { reason, message, series, .. } = refusal;
    response.extensions_mut().insert(RefusalDetails { reason, retry_after: None, message, series });
    response
}

/// Whether the answer says that the request, or a part of it, was refused.
pub(crate) fn is_refused(response: &Response) -> bool {
    let status = response.status();
    status.is_client_error() || status.is_server_error() || has_details(response)
}

fn has_details(response: &Response) -> bool {
    response.extensions().get::<RefusalDetails>().is_some()
}

/// Returns the message of an answer to a request that was refused as a whole.
pub(crate) fn answer_of_refused(response: &Response) -> Option<&str> {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    let details = response.extensions().get::<RefusalDetails>();
    Some(
        details.map_or_else(
            || status.canonical_reason().unwrap_or_default(),
            |details| details.message.as_str(),
        ),
    )
}

/// Returns the code of gRPC that means the same as a status.
pub(crate) const fn rpc_code(status: StatusCode) -> u8 {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => 3, // INVALID_ARGUMENT
        StatusCode::NOT_FOUND => 5,                                        // NOT_FOUND
        StatusCode::FORBIDDEN => 7,                                        // PERMISSION_DENIED
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => 8, // RESOURCE_EXHAUSTED
        StatusCode::METHOD_NOT_ALLOWED => 12,                              // UNIMPLEMENTED
        StatusCode::INTERNAL_SERVER_ERROR => 13,                           // INTERNAL
        StatusCode::SERVICE_UNAVAILABLE => 14,                             // UNAVAILABLE
        StatusCode::UNAUTHORIZED => 16,                                    // UNAUTHENTICATED
        _ => 2,                                                            // UNKNOWN
    }
}

const fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorKind::Limited => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Data | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What operators see of a refusal instead of its message. It is attached to the response for [`middleware::finish`], and not
/// sent to the client.
#[derive(Debug, Clone)]
pub(crate) struct Cause(pub(crate) Box<str>);

/// What the response's status does not tell about a refusal. It is attached to the response for
/// [`middleware::finish`].
#[derive(Debug, Clone)]
struct RefusalDetails {
    reason: &'static str,
    retry_after: Option<Wait>,
    message: String,
    series: Option<Box<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use query::SourceError;

    #[test]
    fn a_store_that_cannot_answer_now_is_no_mistake_of_the_query() {
        let check = |kind, status, word| {
            let message = "m".to_owned();
            let query = ApiError::from(QueryError::from(SourceError { kind, message: message.clone() }));
            let catalog = ApiError::from(Refusal::new(kind, "tables", message));
            assert_eq!((query.status.as_u16(), query.kind), (status, word), "a query, {kind:?}");
            if kind != ErrorKind::TooLarge {
                assert_eq!((catalog.status.as_u16(), catalog.kind), (status, word), "a catalog, {kind:?}");
            }
        };
        // a store is unreachable, a resource is contended, or samples were sealed during the query
        check(ErrorKind::Unavailable, 503, "unavailable");
        check(ErrorKind::Unsupported, 422, "execution");
        check(ErrorKind::TooLarge, 422, "execution");
        check(ErrorKind::Data, 500, "internal");
        check(ErrorKind::Internal, 500, "internal");
    }
}
