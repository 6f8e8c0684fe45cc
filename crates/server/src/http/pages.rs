//! Web pages for people. They are part of the binary, need no script, and load nothing from elsewhere.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Nothing may be loaded or run: a page is its own text and style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// The start page: version, state, and where to send and to query.
pub(super) async fn index() -> Response {
    page(include_str!("pages/index.html"))
}

/// A page with `{version}` replaced.
fn page(template: &str) -> Response {
    let text = template.replace("{version}", env!("CARGO_PKG_VERSION"));
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, text).into_response()
}
