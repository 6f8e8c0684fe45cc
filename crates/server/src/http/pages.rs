//! Web pages. They are embedded in the binary, need no script, and load nothing from elsewhere.
//!
//! Each page is a module in `pages/`, with its HTML beside it.

mod index;

use super::App;
use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Content security policy: nothing may be loaded or run, only inline styles apply.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Routes of the pages.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/", get(index::index))
}

/// Renders a page: replaces `{version}` in its template.
fn page(template: &str) -> Response {
    let text = template.replace("{version}", env!("CARGO_PKG_VERSION"));
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, text).into_response()
}
