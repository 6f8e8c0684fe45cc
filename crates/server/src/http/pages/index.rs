//! The start page: version, state, and where to send and to query.

use axum::response::Response;

pub(in crate::http) async fn index() -> Response {
    super::page(include_str!("index.html"))
}
