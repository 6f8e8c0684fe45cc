//! Limits of a tenant, and its current use of them.
//!
//! | path | |
//! | --- | --- |
//! | GET `/api/v1/user_limits` | the tenant's settings with their origins and use |
//! | GET `/api/v1/user_stats` | the tenant's series, memory and rate of samples, with Cortex' names |
//! | GET `/api/v1/ha_tracker` | the tenant's clusters and elected replicas |

use super::App;
use super::error::ApiError;
use super::json::Json;
use super::limit_rows;
use super::principal::ReadTenant;
use super::queries::admission::answers_of;
use admission::Waiting;
use axum::extract::State;
use std::time::Instant;

/// Lists the settings in effect for the tenant, with current and peak use where it is counted.
pub(super) async fn limits(State(app): State<App>, ReadTenant(tenant): ReadTenant) -> Result<Json, ApiError> {
    let mut json = Json::within(&answers_of(&app, &tenant));
    json.raw(r#"{"status":"success","data":{"tenant":"#);
    json.string(tenant.as_str());
    json.raw(r#","limits":"#);
    limit_rows::write(&mut json, &limit_rows::of_tenant(&app, &tenant));
    json.raw("}}");
    Ok(json.finish()?)
}

/// Limit on the clusters in an answer. They are copied under a lock that the tenant's writes take.
const CLUSTERS_MAX: usize = 1000;

pub(super) async fn ha_tracker(
    State(app): State<App>,
    ReadTenant(tenant): ReadTenant,
) -> Result<Json, ApiError> {
    let writes = app.node.writes();
    let now = writes.clock.instant();
    let state = writes.tenants.get(&tenant);
    let (mut clusters, is_cut) = state.map_or_else(Default::default, |state| {
        let replicas = state.replicas.lock();
        (replicas.copied(CLUSTERS_MAX), replicas.clusters() > CLUSTERS_MAX)
    });
    clusters.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let mut json = Json::within(&answers_of(&app, &tenant));
    let enabled = app.node.overrides().current().of(&tenant).ha_dedup;
    json.raw(&format!(
        r#"{{"status":"success","data":{{"enabled":{enabled},"truncated":{is_cut},"clusters":["#
    ));
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
    Ok(json.finish()?)
}

pub(super) async fn stats(State(app): State<App>, ReadTenant(tenant): ReadTenant) -> Result<Json, ApiError> {
    let writes = app.node.writes();
    let now = writes.clock.instant();
    let (series, bytes, rate, waiting) =
        writes.tenants.get(&tenant).map_or((0, 0, 0.0, Waiting::default()), |state| {
            (state.series(), state.bytes(), state.samples_per_s(now), state.waiting(now))
        });
    let (waiting, seconds) = (waiting.series, waiting.longest.as_secs_f64());
    let queued = app.new_series_queue.of(&tenant);
    let (points, queued_series, queued_s) = (queued.points, queued.series, queued.seconds(now));
    let mut json = Json::new();
    json.raw(&format!(
        r#"{{"status":"success","data":{{"numSeries":{series},"headBytes":{bytes},"ingestionRate":{rate:.3},"waitingSeries":{waiting},"waitingSeconds":{seconds:.3},"queuedPoints":{points},"queuedSeries":{queued_series},"queuedSeconds":{queued_s:.3}}}}}"#
    ));
    Ok(json)
}
