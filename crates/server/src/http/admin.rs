//! Operations for operators and tests, one module each.
//!
//! | path | |
//! | --- | --- |
//! | POST `/api/v1/admin/flush` | seal everything now |
//! | POST `/api/v1/admin/compact` | compact until nothing is left to do |
//! | GET `/api/v1/admin/queries` | queries that run or wait, of all tenants |
//! | POST `/api/v1/admin/queries/<id>/cancel` | cancel one |
//! | GET `/api/v1/admin/refusals` | what was refused of late, of all tenants |
//! | GET `/api/v1/admin/tenants` | tenants in memory, and what each holds |
//! | GET `/config`, `/runtime_config` | settings in effect; those of tenants, which can change at run time |

mod compact;
mod config;
mod flush;
mod tenants;

use super::App;
use super::json::Json;
use super::prometheus::active_queries;
use super::recent_refusals;
use axum::Router;
use axum::routing::{get, post};

/// Routes of the operations. Almost all of them change the node.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/admin/flush", post(flush::flush))
        .route("/api/v1/admin/compact", post(compact::compact))
        .route("/api/v1/admin/queries", get(active_queries::of_all))
        .route("/api/v1/admin/queries/{id}/cancel", post(active_queries::cancel))
        .route("/api/v1/admin/refusals", get(recent_refusals::of_all))
        .route("/api/v1/admin/tenants", get(tenants::list))
        .route("/config", get(config::all))
        .route("/runtime_config", get(config::of_tenants))
}

/// Answer with the totals of an operation.
fn counts(counts: &[(&str, u64)]) -> Json {
    let mut json = Json::new();
    json.raw(r#"{"status":"success","data":{"#);
    for (i, (name, count)) in counts.iter().enumerate() {
        json.comma(i);
        json.string(name);
        json.raw(":");
        json.raw(&count.to_string());
    }
    json.raw("}}");
    json
}
