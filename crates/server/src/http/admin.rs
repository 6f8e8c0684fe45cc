//! Operations for operators and tests, one module each.
//!
//! | path | |
//! | --- | --- |
//! | POST `/api/v1/admin/flush` | write everything to tables now |
//! | POST `/api/v1/admin/compact` | compact until nothing is left to do |
//! | GET `/api/v1/admin/queries` | queries that run or wait, of all tenants that the credential reaches |
//! | POST `/api/v1/admin/queries/<id>/cancel` | cancel a query or an export |
//! | GET `/api/v1/admin/refusals` | recently refused requests, of all tenants that the credential reaches |
//! | GET `/api/v1/admin/tenants` | tenants in memory, with their series and memory |
//! | GET `/api/v1/admin/limits` | limits of the node and of a tenant, with their use |
//! | GET `/api/v1/admin/tenant_limits` | limits of all tenants, with their use |
//! | GET `/distributor/all_user_stats`, `/distributor/ha_tracker` | tenants in memory, and elected replicas, as in Cortex |
//! | POST `/api/v1/admin/delete_tenant` | delete all data of a tenant |
//! | POST `/compactor/delete_tenant`, `/purger/delete_tenant` | the same for the request's tenant, as in Mimir and Cortex |
//! | GET POST `/compactor/delete_tenant_status`, `/purger/delete_tenant_status` | whether that tenant has files |
//! | POST `/api/v1/admin/delete_stream` | delete the records of a tenant's stream |
//! | POST PUT `/api/v1/admin/tsdb/delete_series` | delete samples of a tenant |
//! | GET `/config`, `/runtime_config` | settings of the node, settings of tenants |

mod compact;
mod config;
mod delete_series;
mod delete_stream;
mod delete_tenant;
mod flush;
mod limits;
mod tenant_limits;
mod tenants;
#[cfg(test)]
mod tests;

use super::App;
use super::graphite;
use super::json::Json;
use super::queries::active_queries;
use super::recent_refusals;
use axum::Router;
use axum::routing::{get, post};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/admin/flush", post(flush::flush))
        .route("/api/v1/admin/compact", post(compact::compact))
        .route("/api/v1/admin/queries", get(active_queries::of_all))
        .route("/api/v1/admin/queries/{id}/cancel", post(active_queries::cancel))
        .route("/api/v1/admin/refusals", get(recent_refusals::of_all))
        .route("/api/v1/admin/tenants", get(tenants::list))
        .route("/api/v1/admin/limits", get(limits::limits))
        .route("/api/v1/admin/tenant_limits", get(tenant_limits::of_tenants))
        .route("/api/v1/admin/delete_tenant", post(delete_tenant::delete_tenant))
        .route("/distributor/all_user_stats", get(tenants::all_user_stats))
        .route("/distributor/ha_tracker", get(tenants::ha_tracker))
        .route("/config", get(config::all))
        .route("/runtime_config", get(config::of_tenants))
}

pub(super) fn is_path(path: &str) -> bool {
    let folders = ["/api/v1/admin/", "/compactor/", "/distributor/", "/purger/"];
    folders.iter().any(|folder| path.starts_with(folder))
        || ["/config", "/runtime_config"].contains(&path)
        || graphite::DELETES.contains(&path)
}

pub(super) fn tenant_routes() -> Router<App> {
    let delete = post(delete_series::delete_series).put(delete_series::delete_series);
    let status = || get(delete_tenant::status).post(delete_tenant::status);
    Router::new()
        .route("/api/v1/admin/tsdb/delete_series", delete)
        .route("/api/v1/admin/delete_stream", post(delete_stream::delete_stream))
        .route("/compactor/delete_tenant", post(delete_tenant::delete_own))
        .route("/compactor/delete_tenant_status", status())
        .route("/purger/delete_tenant", post(delete_tenant::delete_own))
        .route("/purger/delete_tenant_status", status())
        .merge(graphite::admin_routes())
}

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
