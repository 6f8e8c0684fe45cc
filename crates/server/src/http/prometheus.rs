//! Prometheus' HTTP API for readers, and the export of samples.

mod cardinality;
mod export;
pub(super) mod label_queries;
mod query;

use super::App;
use axum::Router;
use axum::routing::get;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/query", get(query::instant).post(query::instant))
        .route("/api/v1/query_range", get(query::range).post(query::range))
        .route("/api/v1/query_exemplars", get(label_queries::exemplars).post(label_queries::exemplars))
        .route("/api/v1/export", get(export::export).post(export::export))
        .route("/api/v1/labels", get(label_queries::label_names).post(label_queries::label_names))
        .route("/api/v1/label/{name}/values", get(label_queries::label_values))
        .route("/api/v1/series", get(label_queries::series).post(label_queries::series))
        .route("/api/v1/metadata", get(label_queries::metadata))
        .route("/api/v1/status/buildinfo", get(label_queries::buildinfo))
        .route("/api/v1/status/tsdb", get(cardinality::tsdb))
        .route("/api/v1/cardinality/growth", get(cardinality::growth).post(cardinality::growth))
        .route(
            "/api/v1/cardinality/label_names",
            get(cardinality::label_names).post(cardinality::label_names),
        )
        .route(
            "/api/v1/cardinality/label_values",
            get(cardinality::label_values).post(cardinality::label_values),
        )
        .route(
            "/api/v1/cardinality/active_series",
            get(cardinality::active_series).post(cardinality::active_series),
        )
        .route("/api/v1/cardinality/unqueried", get(cardinality::unqueried).post(cardinality::unqueried))
}
