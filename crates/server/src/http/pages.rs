//! Web pages. They are embedded in the binary, have no script, and load nothing.

mod index;

use super::App;
use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Content security policy: browsers load and run nothing, and use no styles but those in the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<App> {
    Router::new().route("/", get(index::index))
}

fn page(template: &str) -> Response {
    let text = template.replace("{version}", env!("CARGO_PKG_VERSION"));
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, text).into_response()
}
