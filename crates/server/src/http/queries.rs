//! Queries in any language: admission, threads, the list of queries, and their log.
//!
//! ```text
//!   handler ─ admission ─▶ query_threads ─▶ answer, query_log
//!                 └─ running_queries ◀─ active_queries (list, cancel)
//! ```

pub(super) mod active_queries;
pub(super) mod admission;
pub(super) mod description;
pub(super) mod query_log;
pub(super) mod query_threads;
pub(super) mod running_queries;

use super::App;
use axum::Router;
use axum::routing::get;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/api/v1/status/active_queries", get(active_queries::of_tenant))
}
