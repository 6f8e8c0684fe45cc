use crate::http::ingest::elastic;
use axum::http::HeaderMap;
use axum::response::Response;

/// The start page, or what clients of Elasticsearch ask at their start.
pub(super) async fn index(headers: HeaderMap) -> Response {
    if elastic::wants_info(&headers) {
        return elastic::info().await;
    }
    super::page(include_str!("index.html"))
}
