use super::counts;
use super::delete_series::{count_samples, is_dry_run};
use crate::deletes::tenant::{Removed, delete_tenant as delete, exists, files, has_files};
use crate::http::App;
use crate::http::deleting::{Place, panicked, until_ended};
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::{AdminReach, AdminTenant};
use crate::http::queries::admission::{on_query_thread, wait_for_series_of};
use crate::http::queries::description::{Description, Times};
use crate::listen::Peer;
use axum::extract::State;
use model::TenantId;
use tables::{Delete, TableError};
use tokio::task::JoinError;

const PATH: &str = "/api/v1/admin/delete_tenant";

/// Deletes all data of the tenant in the parameter `tenant`, and answers with the number and size of the removed files.
/// With `dry_run=true`, only counts them, and says whether there is such a tenant: its name may be misspelled.
pub(super) async fn delete_tenant(
    State(app): State<App>,
    peer: Peer,
    AdminReach(reach): AdminReach,
    params: Params,
) -> Result<Json, ApiError> {
    let named = params.get("tenant").map(TenantId::parse);
    if let (Some(operation), Some(Ok(tenant))) = (params.operation(), &named) {
        operation.note_tenant(tenant);
    }
    let is_dry = is_dry_run(&params, &["tenant"], &[])?;
    let named = named.ok_or_else(|| ApiError::bad_data("no tenant parameter provided"))?;
    let tenant = named.map_err(|error| ApiError::bad_param("tenant", error))?;
    reach.check(&tenant)?;
    delete_or_count(&app, peer, tenant, is_dry).await
}

/// Deletes the tenant that the request's header names, as in Mimir and Cortex. Answers after the tenant is deleted.
pub(super) async fn delete_own(
    State(app): State<App>,
    peer: Peer,
    AdminTenant(tenant): AdminTenant,
    params: Params,
) -> Result<Json, ApiError> {
    delete_or_count(&app, peer, tenant, is_dry_run(&params, &[], &[])?).await
}

/// Tells, in the format of Mimir and Cortex, whether the deletion of the request's tenant is complete. It is
/// complete if the tenant's tables have no files.
pub(super) async fn status(
    State(app): State<App>,
    AdminTenant(tenant): AdminTenant,
) -> Result<Json, ApiError> {
    let (place, node, of) = (Place::of(&app, &tenant)?, app.node.clone(), tenant.clone());
    let looking = tokio::task::spawn_blocking(move || {
        let found = has_files(&node.reads().lake, &of);
        drop(place); // the place is held until the thread is free, also if the client goes away
        found
    });
    status_of(&tenant, looking.await)
}

fn status_of(
    tenant: &TenantId,
    has_files: Result<Result<bool, TableError>, JoinError>,
) -> Result<Json, ApiError> {
    let has_files = has_files.map_err(panicked)?.map_err(unreadable)?;
    let mut json = Json::new();
    json.raw(r#"{"tenant_id":"#);
    json.string(tenant.as_str());
    json.raw(r#","blocks_deleted":"#);
    json.raw(if has_files { "false}" } else { "true}" });
    Ok(json)
}

async fn delete_or_count(app: &App, peer: Peer, tenant: TenantId, is_dry: bool) -> Result<Json, ApiError> {
    wait_for_series_of(app, &tenant).await?;
    if !is_dry {
        let (place, node) = (Place::of(app, &tenant)?, app.node.clone());
        let Removed { files, bytes } =
            until_ended(place, async move { delete(&node, &tenant).await }).await?;
        return Ok(counts(&[("files", files), ("bytes", bytes)]));
    }
    let delete = Delete::everything();
    let text = delete.to_string().into();
    let times = Times::of(delete.range);
    let description = Description { tenants: tenant.clone().into(), path: PATH, text, times, peer };
    on_query_thread(app, description, move |app, turn| {
        let samples_max = turn.limits.memory_bytes / 16;
        let (series, samples) = count_samples(app, turn, &tenant, &delete, samples_max)?;
        let Removed { files, bytes } = files(&app.node.reads().lake, &tenant).map_err(unreadable)?;
        let exists = exists(&app.node, &tenant).map_err(unreadable)?;
        let mut json = Json::new();
        json.raw(&format!(
            r#"{{"status":"success","data":{{"series":{series},"samples":{samples},"files":{files},"bytes":{bytes},"exists":{exists}}}}}"#
        ));
        Ok(json)
    })
    .await
}

pub(super) fn unreadable(error: TableError) -> ApiError {
    ApiError::unavailable(format!("tables cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_not_reported_as_a_complete_deletion() {
        let of = TenantId::anonymous();
        let files = tokio::task::spawn_blocking(|| Ok(true)).await;
        assert!(status_of(&of, files).unwrap().text().contains(r#""blocks_deleted":false"#));
        let none = tokio::task::spawn_blocking(|| Ok(false)).await;
        assert!(status_of(&of, none).unwrap().text().contains(r#""blocks_deleted":true"#));
        let panicked = tokio::task::spawn_blocking(|| panic!("on purpose")).await;
        let error = format!("{:?}", status_of(&of, panicked).unwrap_err());
        assert!(error.contains("500"), "{error}");
    }
}
