use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::principal::AdminReach;
use axum::extract::State;

/// Lists the tenants in memory, those with the most memory first.
pub(super) async fn list(State(app): State<App>, AdminReach(reach): AdminReach) -> Result<Json, ApiError> {
    let writes = app.node.writes();
    let now = writes.clock.instant();
    let shown = writes.tenants.all().into_iter().filter(|tenant| reach.includes(&tenant.id));
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
