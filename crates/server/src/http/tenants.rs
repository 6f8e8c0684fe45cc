//! What a tenant may do, and what it does.
//!
//! | path | |
//! | --- | --- |
//! | GET `/api/v1/user_limits` | the tenant's settings with their origins, and what is in use |
//! | GET `/api/v1/user_stats` | the tenant's series, memory and rate of samples, with Cortex' names |
//! | GET `/api/v1/ha_tracker` | the tenant's clusters of replicas, with the elected ones |

use super::App;
use super::error::ApiError;
use super::json::Json;
use super::principal::readable_tenant_of;
use crate::settings::EffectiveSetting;
use axum::extract::State;
use axum::http::HeaderMap;
use model::TenantId;
use std::time::Instant;

/// Settings of the tenant in effect: value, origin, and for those that limit a number, what is in use now and was at most.
pub(super) async fn limits(State(app): State<App>, headers: HeaderMap) -> Result<Json, ApiError> {
    let tenant = readable_tenant_of(&headers)?;
    let settings = app.node.overrides().current();
    let mut json = Json::new();
    json.raw(r#"{"status":"success","data":{"tenant":"#);
    json.string(tenant.as_str());
    json.raw(r#","limits":["#);
    for (i, EffectiveSetting { key, value, origin }) in settings.explain(&tenant).enumerate() {
        json.comma(i);
        json.raw(r#"{"name":"#);
        json.string(&key);
        json.raw(r#","value":"#);
        json.raw(&value.to_string());
        json.raw(r#","origin":"#);
        json.string(origin.kind());
        if let Some(detail) = origin.detail() {
            json.raw(r#","from":"#);
            json.string(&detail);
        }
        if let Some((used, peak)) = in_use(&app, &tenant, &key) {
            json.raw(&format!(r#","used":{used}"#));
            if let Some(peak) = peak {
                json.raw(&format!(r#","peak":{peak}"#));
            }
        }
        json.raw("}");
    }
    json.raw("]}}");
    Ok(json)
}

/// What a tenant uses of a limit now, and the most that it used since it is in memory, if that is known.
fn in_use(app: &App, tenant: &TenantId, key: &str) -> Option<(u64, Option<u64>)> {
    let writes = app.node.writes();
    let state = writes.tenants.get(tenant);
    match key {
        "active_series" => {
            Some(state.map_or((0, Some(0)), |state| (state.series(), Some(state.series_peak()))))
        }
        "samples_per_second" => {
            Some((state.map_or(0, |state| state.samples_per_s(writes.clock.instant()).round() as u64), None))
        }
        "ha_clusters" => Some((state.map_or(0, |state| state.replicas.lock().clusters() as u64), None)),
        _ => None,
    }
}

/// Clusters of the tenant in the order of their names, each with its elected replica.
pub(super) async fn ha_tracker(State(app): State<App>, headers: HeaderMap) -> Result<Json, ApiError> {
    let tenant = readable_tenant_of(&headers)?;
    let writes = app.node.writes();
    let now = writes.clock.instant();
    let clusters = writes.tenants.get(&tenant).map_or_else(Vec::new, |state| state.replicas.lock().all());
    let mut json = Json::new();
    let enabled = app.node.overrides().current().of(&tenant).ha_dedup;
    json.raw(&format!(r#"{{"status":"success","data":{{"enabled":{enabled},"clusters":["#));
    for (i, (cluster, election)) in clusters.iter().enumerate() {
        json.comma(i);
        json.raw(r#"{"cluster":"#);
        json.string(cluster);
        json.raw(r#","replica":"#);
        json.string(&election.replica);
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs_f64();
        let (elected, heard) = (seconds(election.since), seconds(election.heard));
        json.raw(&format!(
            r#","electedSecondsAgo":{elected:.3},"heardSecondsAgo":{heard:.3},"failovers":{}}}"#,
            election.failovers
        ));
    }
    json.raw("]}}");
    Ok(json)
}

pub(super) async fn stats(State(app): State<App>, headers: HeaderMap) -> Result<Json, ApiError> {
    let tenant = readable_tenant_of(&headers)?;
    let writes = app.node.writes();
    let (series, bytes, rate) = writes.tenants.get(&tenant).map_or((0, 0, 0.0), |state| {
        (state.series(), state.bytes(), state.samples_per_s(writes.clock.instant()))
    });
    let mut json = Json::new();
    json.raw(&format!(
        r#"{{"status":"success","data":{{"numSeries":{series},"headBytes":{bytes},"ingestionRate":{rate:.3}}}}}"#
    ));
    Ok(json)
}
