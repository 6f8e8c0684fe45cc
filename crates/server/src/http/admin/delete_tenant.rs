//! Deletes of whole tenants, and a dry run that counts.

use super::counts;
use super::delete_series::{count_samples, is_dry_run};
use crate::deletes::tenant::{Removed, delete_tenant as delete, files};
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::prometheus::admission::{on_query_thread, wait_for_series_of};
use crate::http::prometheus::description::{Description, Times};
use crate::listen::Peer;
use axum::extract::State;
use model::TenantId;
use tables::Delete;

/// Path in lists and logs of queries.
const PATH: &str = "/api/v1/admin/delete_tenant";

/// Deletes all that the tenant has which the parameter `tenant` names. Answers with the number and size of the removed files. With
/// `dry_run=true` it only counts, series and samples included.
pub(super) async fn delete_tenant(
    State(app): State<App>,
    peer: Peer,
    params: Params,
) -> Result<Json, ApiError> {
    let name = params.get("tenant").ok_or_else(|| ApiError::bad_data("no tenant parameter provided"))?;
    let tenant = TenantId::parse(name).map_err(|error| ApiError::bad_param("tenant", error))?;
    let is_dry = is_dry_run(&params)?;
    wait_for_series_of(&app, &tenant).await?;
    if !is_dry {
        let Removed { files, bytes } = delete(&app.node, &tenant).await?;
        return Ok(counts(&[("files", files), ("bytes", bytes)]));
    }
    let delete = Delete::everything();
    let text = delete.to_string().into();
    let times = Times::of(delete.range);
    let description = Description { tenants: tenant.clone().into(), path: PATH, text, times, peer };
    on_query_thread(&app, description, move |app, turn| {
        let samples_max = turn.limits.memory_bytes / 16;
        let (series, samples) = count_samples(app, turn, &tenant, &delete, samples_max)?;
        match files(&app.node.reads().lake, &tenant) {
            Ok(Removed { files, bytes }) => {
                Ok(counts(&[("series", series), ("samples", samples), ("files", files), ("bytes", bytes)]))
            }
            Err(error) => Err(ApiError::unavailable(format!("tables cannot be read: {error}"))),
        }
    })
    .await
}
