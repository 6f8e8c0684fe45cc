use super::counts;
use super::delete_series::is_dry_run;
use super::delete_tenant::unreadable;
use crate::deletes::tenant::Removed;
use crate::http::App;
use crate::http::deleting::{Place, panicked, until_ended};
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::AdminTenant;
use crate::streams::tasks::{Scope, files};
use axum::extract::State;
use model::StreamName;

/// Deletes all records of the stream in the parameter `stream`, and answers with the number and size of the removed files.
/// With `dry_run=true`, only counts the files that there are now.
pub(super) async fn delete_stream(
    State(app): State<App>,
    AdminTenant(tenant): AdminTenant,
    params: Params,
) -> Result<Json, ApiError> {
    let is_dry = is_dry_run(&params, &["stream"], &[])?;
    let name = params.get("stream").ok_or_else(|| ApiError::bad_data("no stream parameter provided"))?;
    let stream = StreamName::parse(name).map_err(|error| ApiError::bad_param("stream", error))?;
    let (place, node) = (Place::of(&app, &tenant)?, app.node.clone());
    let scope = Scope::Stream((tenant.clone(), stream.clone()));
    let Removed { files, bytes } = if is_dry {
        let counting = tokio::task::spawn_blocking(move || {
            let counted = files(&node.reads().lake.tables, &scope);
            drop(place); // the place is held until the thread is free, also if the client goes away
            counted
        });
        counting.await.map_err(panicked)?.map_err(unreadable)?
    } else {
        let delete = async move {
            node.reads().lake.closed.check(&tenant)?;
            let removed = node.streams().delete(scope).await?;
            let Removed { files, bytes } = removed;
            tracing::info!(target: "audit", %tenant, %stream, files, bytes, "the records of a stream are deleted");
            Ok(removed)
        };
        until_ended(place, delete).await?
    };
    Ok(counts(&[("files", files), ("bytes", bytes)]))
}
