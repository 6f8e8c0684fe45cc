//! Imports of any length, as lines of text. They are stored in slices, one after the other ([`slices`]).
//!
//! | path | lines |
//! | --- | --- |
//! | POST `/api/v1/import` | VictoriaMetrics' JSON |
//! | POST `/api/v1/import/prometheus` | the text formats of Prometheus and OpenMetrics |
//! | POST PUT `/metrics/job/…`, `/api/v1/import/prometheus/metrics/job/…` | the same, with labels in the path, as the Pushgateway receives them |
//! | POST `/api/v1/import/csv` | tables of comma-separated values |
//!
//! Every answer after a slice was read tells how much is durable, so that an interrupted import can be resumed.

mod grouping;
mod slices;

use crate::http::App;
use crate::http::error::WriteError;
use crate::http::principal::RequestPrincipal;
use crate::refusal::Refusal;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use model::ErrorKind;
use model::caps::SERIES_LABELS_MAX;
use protocol::csv::Columns;
use protocol::exposition::{Dialect, TextLabels};
use protocol::{SharedLabels, csv, exposition, jsonl};
use slices::{Import, Imported};
use std::sync::Arc;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/import", post(json_lines))
        .route("/api/v1/import/prometheus", post(text))
        .route("/api/v1/import/csv", post(table))
        .route("/api/v1/import/prometheus/metrics/{*labels}", post(pushed).put(pushed))
        .route("/metrics/job/{*labels}", post(pushed).put(pushed))
        .route("/metrics/job@base64/{*labels}", post(pushed).put(pushed))
}

/// Number of bytes of the decompressed body that are durable.
const DURABLE_BYTES: &str = "x-floodmark-durable-bytes";

const DURABLE_LINES: &str = "x-floodmark-durable-lines";

/// Parameters that all imports have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters {
    /// Number of bytes at the start of the decompressed body that are not read.
    skip_bytes: u64,
    labels: Vec<(String, String)>,
    has_header: bool,
    timestamp_ms: Option<i64>,
    columns: Option<String>,
}

impl Parameters {
    fn read(uri: &Uri) -> Result<Self, Refusal> {
        let mut found = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let invalid = |why: &str| {
                let shown: String = value.chars().take(SHOWN_CHARS_MAX).collect();
                Refusal::invalid("bad_data", format!("invalid parameter {name}={shown:?}: {why}"))
            };
            match &*name {
                "skip_bytes" => {
                    found.skip_bytes = value.parse().map_err(|_| invalid("not a number of bytes"))?
                }
                "header" => found.has_header = value.parse().map_err(|_| invalid("must be true or false"))?,
                "timestamp" => {
                    found.timestamp_ms =
                        Some(value.parse().map_err(|_| invalid("not a number of milliseconds"))?);
                }
                "format" => found.columns = Some(value.into_owned()),
                "extra_label" => {
                    let label = value.split_once('=').filter(|(name, _)| !name.is_empty());
                    let (label, text) = label.ok_or_else(|| invalid("must be NAME=VALUE"))?;
                    if found.labels.len() >= SERIES_LABELS_MAX {
                        return Err(invalid("too many labels"));
                    }
                    found.labels.push((label.to_owned(), text.to_owned()));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn shared_labels(&self) -> Result<SharedLabels, Refusal> {
        let labels =
            SharedLabels::new(self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let (bytes, limit) = (labels.bytes(), SharedLabels::BYTES_MAX);
        if bytes > limit {
            let message = format!("labels in parameters and path have {bytes} bytes, the limit is {limit}");
            return Err(Refusal::invalid("bad_data", message));
        }
        Ok(labels)
    }
}

/// The limit on how many characters of a parameter are quoted in an error message.
const SHOWN_CHARS_MAX: usize = 100;

async fn json_lines(
    State(app): State<App>,
    principal: RequestPrincipal,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let read = Parameters::read(&uri).and_then(|parameters| Ok((parameters.shared_labels()?, parameters)));
    let (labels, parameters) = match read {
        Ok((labels, parameters)) => (Arc::new(labels), parameters),
        Err(refusal) => return WriteError(refusal).into_response(),
    };
    let import = Import { app: &app, principal, skip_bytes: parameters.skip_bytes, has_header: false };
    let format = |first_line| jsonl::Format { labels: Arc::clone(&labels), first_line };
    answer(import.run(&app.decoders.json_lines, format, &headers, body).await, StatusCode::NO_CONTENT)
}

async fn text(
    State(app): State<App>,
    principal: RequestPrincipal,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match Parameters::read(&uri) {
        Ok(parameters) => {
            text_with(&app, principal, parameters, &headers, body, StatusCode::NO_CONTENT).await
        }
        Err(refusal) => WriteError(refusal).into_response(),
    }
}

/// Like [`text`]. The path has labels of all lines. Clients of the Pushgateway accept only the status 200.
async fn pushed(
    State(app): State<App>,
    principal: RequestPrincipal,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let read = Parameters::read(&uri).and_then(|mut parameters| {
        parameters.labels.extend(grouping::labels(uri.path())?);
        Ok(parameters)
    });
    match read {
        Ok(parameters) => text_with(&app, principal, parameters, &headers, body, StatusCode::OK).await,
        Err(refusal) => WriteError(refusal).into_response(),
    }
}

async fn text_with(
    app: &App,
    principal: RequestPrincipal,
    parameters: Parameters,
    headers: &HeaderMap,
    body: Body,
    ok: StatusCode,
) -> Response {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let dialect = match media_type.as_str() {
        "application/openmetrics-text" => Dialect::OpenMetrics,
        "application/vnd.google.protobuf" => {
            let message = "protobuf messages of metric families are not supported; send text \
                (in Go: push.New(…).Format(expfmt.NewFormat(expfmt.TypeTextPlain)))";
            return WriteError(Refusal::new(ErrorKind::Unsupported, "decode", message)).into_response();
        }
        _ => Dialect::Prometheus,
    };
    let arrival_ms = parameters.timestamp_ms.unwrap_or_else(|| app.node.writes().clock.now_ms());
    let labels = match parameters.shared_labels() {
        Ok(labels) => Arc::new(TextLabels(labels)),
        Err(refusal) => return WriteError(refusal).into_response(),
    };
    let import = Import { app, principal, skip_bytes: parameters.skip_bytes, has_header: false };
    let format =
        |first_line| exposition::Format { dialect, labels: Arc::clone(&labels), arrival_ms, first_line };
    answer(import.run(&app.decoders.text, format, headers, body).await, ok)
}

async fn table(
    State(app): State<App>,
    principal: RequestPrincipal,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let read = Parameters::read(&uri).and_then(|parameters| {
        let map = parameters.columns.as_deref().unwrap_or_default();
        let columns = Columns::parse(map, parameters.shared_labels()?);
        let columns = columns.map_err(|error| {
            Refusal::invalid("bad_data", format!("invalid parameter \"format\": {error}"))
        })?;
        Ok((parameters, Arc::new(columns)))
    });
    let (parameters, columns) = match read {
        Ok(read) => read,
        Err(refusal) => return WriteError(refusal).into_response(),
    };
    let arrival_ms = parameters.timestamp_ms.unwrap_or_else(|| app.node.writes().clock.now_ms());
    let Parameters { skip_bytes, has_header, .. } = parameters;
    let import = Import { app: &app, principal, skip_bytes, has_header };
    let format = |first_line| csv::Format { columns: Arc::clone(&columns), arrival_ms, first_line };
    answer(import.run(&app.decoders.csv, format, &headers, body).await, StatusCode::NO_CONTENT)
}

/// Answers `ok`, or 400 if lines were refused. All other lines are stored.
fn answer(imported: Imported, ok: StatusCode) -> Response {
    let Imported { outcome, durable_bytes, durable_lines, refusal } = imported;
    let mut response = match refusal {
        Some(refusal) => WriteError(refusal.with_series(outcome.first_refused())).into_response(),
        None if outcome.refused_series == 0 => ok.into_response(),
        None => super::outcome_response(&outcome),
    };
    let headers = response.headers_mut();
    headers.insert(DURABLE_BYTES, HeaderValue::from(durable_bytes));
    headers.insert(DURABLE_LINES, HeaderValue::from(durable_lines));
    response
}
