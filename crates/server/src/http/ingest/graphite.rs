use super::{outcome_response, write};
use crate::http::App;
use crate::http::error::WriteError;
use crate::http::principal::RequestPrincipal;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use protocol::graphite::ENCODINGS;

/// Answers 204, or 400 with the first refused line if lines were refused. All other lines are stored.
pub(super) async fn graphite(
    State(app): State<App>,
    principal: RequestPrincipal,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answer = write(&app, &app.decoders.graphite, (), ENCODINGS, principal, &headers, body).await;
    match answer {
        Ok(outcome) => outcome_response(&outcome),
        Err(unwritten) => WriteError(unwritten.refusal).into_response(),
    }
}
