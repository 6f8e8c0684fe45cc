//! Graphite's plaintext protocol over HTTP.

use super::{count, outcome_response, write};
use crate::http::App;
use crate::http::error::WriteError;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use protocol::graphite::ENCODINGS;

/// 204, or 400 where lines were left out: the text names the first of them, and the rest is stored.
pub(super) async fn graphite(State(app): State<App>, headers: HeaderMap, body: Body) -> Response {
    let answer = write(&app, &app.decoders.graphite, (), ENCODINGS, &headers, body).await;
    let response = match answer {
        Ok(outcome) => outcome_response(&outcome),
        Err(unwritten) => WriteError(unwritten.refusal).into_response(),
    };
    count(&app.metrics, &response);
    response
}
