//! Is the node alive, is it ready, and what does it count.

use super::App;
use super::error::WriteError;
use crate::refusal::Refusal;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Answers as long as the process does.
pub(crate) async fn healthy() -> &'static str {
    "Floodmark is healthy.\n"
}

/// Depends on this node's own state only: replay is done, and it is not stopping.
pub(crate) async fn ready(State(app): State<App>) -> Response {
    match (app.node.is_ready(), app.node.is_stopping()) {
        (true, _) => "Floodmark is ready.\n".into_response(),
        (_, true) => WriteError(Refusal::stopping()).into_response(),
        _ => WriteError(app.node.shared().replaying()).into_response(),
    }
}

/// The node's own metrics as Prometheus text.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let text = app.node.registry().render();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
