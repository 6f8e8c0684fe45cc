use crate::http::App;
use crate::http::error::ApiError;
use crate::http::graphite::iso_time;
use crate::http::json::Json;
use crate::http::principal::AdminReach;
use crate::limits::tenant_state::TenantState;
use axum::extract::State;
use std::sync::Arc;
use std::time::Instant;

/// Lists the tenants in memory, those with the most memory first.
pub(super) async fn list(State(app): State<App>, AdminReach(reach): AdminReach) -> Result<Json, ApiError> {
    let writes = app.node.writes();
    let now = writes.clock.instant();
    let shown = shown(&app, |tenant| reach.includes(&tenant.id));
    let mut tenants: Vec<_> = shown.map(|tenant| (tenant.bytes(), tenant)).collect();
    tenants.sort_by(|(a_bytes, a), (b_bytes, b)| b_bytes.cmp(a_bytes).then_with(|| a.id.cmp(&b.id)));
    let mut json = Json::within(&app.node.reads().answers);
    json.raw(r#"{"status":"success","data":["#);
    for (i, (bytes, tenant)) in tenants.iter().enumerate() {
        json.comma(i);
        json.raw(r#"{"tenant":"#);
        json.string(tenant.id.as_str());
        json.raw(&format!(
            r#","series":{},"seriesPeak":{},"waitingSeries":{},"headBytes":{bytes},"samplesPerSecond":{:.3}}}"#,
            tenant.series(),
            tenant.series_peak(),
            tenant.waiting(now).series,
            tenant.samples_per_s(now)
        ));
    }
    json.raw("]}");
    Ok(json.finish()?)
}

fn shown(app: &App, is_shown: impl Fn(&TenantState) -> bool) -> impl Iterator<Item = Arc<TenantState>> {
    app.node.writes().tenants.all().into_iter().filter(move |tenant| is_shown(tenant))
}

/// Lists the tenants in memory with Cortex' names, those with the most series first. All samples count as sent over an API.
pub(super) async fn all_user_stats(
    State(app): State<App>,
    AdminReach(reach): AdminReach,
) -> Result<Json, ApiError> {
    let now = app.node.writes().clock.instant();
    let shown = shown(&app, |tenant| reach.includes(&tenant.id));
    let mut tenants: Vec<_> = shown.map(|tenant| (tenant.series(), tenant)).collect();
    tenants.sort_by(|(a_series, a), (b_series, b)| b_series.cmp(a_series).then_with(|| a.id.cmp(&b.id)));
    let mut json = Json::within(&app.node.reads().answers);
    json.raw("[");
    for (i, (series, tenant)) in tenants.iter().enumerate() {
        json.comma(i);
        json.raw(r#"{"userID":"#);
        json.string(tenant.id.as_str());
        let rate = tenant.samples_per_s(now);
        json.raw(&format!(
            r#","ingestionRate":{rate:.3},"numSeries":{series},"APIIngestionRate":{rate:.3},"RuleIngestionRate":0,"activeSeries":{series}}}"#
        ));
    }
    json.raw("]");
    Ok(json.finish()?)
}

/// Limit on the clusters of a tenant in an answer. They are copied under a lock that the tenant's writes take.
const CLUSTERS_MAX: usize = 1000;

/// Lists the elected replicas of all tenants with Cortex' names.
pub(super) async fn ha_tracker(
    State(app): State<App>,
    AdminReach(reach): AdminReach,
) -> Result<Json, ApiError> {
    let writes = app.node.writes();
    let (now, now_ms, settings) =
        (writes.clock.instant(), writes.clock.now_ms(), app.node.overrides().current());
    let mut tenants: Vec<_> = shown(&app, |tenant| reach.includes(&tenant.id)).collect();
    tenants.sort_by(|a, b| a.id.cmp(&b.id));
    let mut json = Json::within(&app.node.reads().answers);
    json.raw(r#"{"elected":["#);
    let mut count = 0;
    for tenant in tenants {
        let mut clusters = tenant.replicas.lock().copied(CLUSTERS_MAX);
        clusters.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let failover = settings.of(&tenant.id).ha_failover();
        for (cluster, election) in clusters {
            json.comma(count);
            count += 1;
            for (before, text) in [
                (r#"{"userID":"#, tenant.id.as_str()),
                (r#","cluster":"#, &cluster),
                (r#","replica":"#, &election.replica),
            ] {
                json.raw(before);
                json.string(text);
            }
            let ago = |since: Instant| now.saturating_duration_since(since);
            let elected = iso_time(now_ms.saturating_sub_unsigned(ago(election.since).as_millis() as u64));
            let (heard, left) =
                (ago(election.heard).as_nanos(), failover.saturating_sub(ago(election.heard)).as_nanos());
            json.raw(&format!(
                r#","electedAt":"{elected}","updateDuration":{heard},"failoverDuration":{left}}}"#
            ));
        }
    }
    json.raw(&format!(r#"],"now":"{}"}}"#, iso_time(now_ms)));
    Ok(json.finish()?)
}
