//! Web pages for people. They are part of the binary, need no script, and load nothing from elsewhere.
//!
//! Each page is a module of `pages/`, with its text beside it.

mod index;

use axum::http::header;
use axum::response::{IntoResponse, Response};

pub(super) use index::index;

/// Nothing may be loaded or run: a page is its own text and style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// A page with `{version}` replaced.
fn page(template: &str) -> Response {
    let text = template.replace("{version}", env!("CARGO_PKG_VERSION"));
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, text).into_response()
}
