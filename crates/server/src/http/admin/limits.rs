use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::limit_rows;
use crate::http::params::Params;
use crate::http::principal::AdminReach;
use axum::extract::State;
use model::TenantId;

/// Lists the limits of the node. With the parameter `tenant`, also lists that tenant's limits.
pub(super) async fn limits(
    State(app): State<App>,
    AdminReach(reach): AdminReach,
    params: Params,
) -> Result<Json, ApiError> {
    let tenant = params.get("tenant").map(TenantId::parse).transpose();
    let tenant = tenant.map_err(|error| ApiError::bad_param("tenant", error))?;
    tenant.iter().try_for_each(|tenant| reach.check(tenant))?;
    let mut json = Json::within(&app.node.reads().answers);
    json.raw(r#"{"status":"success","data":{"node":"#);
    limit_rows::write(&mut json, &limit_rows::of_node(&app));
    if let Some(tenant) = tenant {
        json.raw(r#","tenant":"#);
        json.string(tenant.as_str());
        json.raw(r#","limits":"#);
        limit_rows::write(&mut json, &limit_rows::of_tenant(&app, &tenant));
    }
    json.raw("}}");
    Ok(json.finish()?)
}
