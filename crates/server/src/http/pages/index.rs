//! The start page.

use axum::response::Response;

pub(in crate::http) async fn index() -> Response {
    super::page(include_str!("index.html"))
}
