//! Endpoints that list queries and exports. Operators can also cancel them.

use super::admission::answers_of;
use super::description::Description;
use super::running_queries::{QueryId, RunningQueries};
use crate::audit::Operation;
use crate::auth::Reach;
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::principal::{AdminReach, ReadTenant};
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use stdx::budget::Account;

/// Lists the queries of one tenant. Queries over several tenants are left out: the reader may have no access to
/// the other tenants.
pub(crate) async fn of_tenant(
    State(app): State<App>,
    ReadTenant(tenant): ReadTenant,
) -> Result<Json, ApiError> {
    list(&app.running, &answers_of(&app, &tenant), |description| description.tenants.only() == Some(&tenant))
}

/// Lists the queries of all tenants that the operator may see.
pub(crate) async fn of_all(State(app): State<App>, AdminReach(reach): AdminReach) -> Result<Json, ApiError> {
    list(&app.running, &app.node.reads().answers, |description| is_within(&reach, description))
}

fn is_within(reach: &Reach, description: &Description) -> bool {
    description.tenants.iter().all(|tenant| reach.includes(tenant))
}

fn list(
    running: &RunningQueries,
    answers: &Account,
    wanted: impl Fn(&Description) -> bool,
) -> Result<Json, ApiError> {
    let mut json = Json::within(answers);
    json.raw(r#"{"status":"success","data":"#);
    running.write(&mut json, wanted);
    json.raw("}");
    Ok(json.finish()?)
}

/// Cancels a query or an export. The client of a query gets a 503; the connection of an export is aborted.
pub(crate) async fn cancel(
    State(app): State<App>,
    AdminReach(reach): AdminReach,
    Extension(operation): Extension<Operation>,
    Path(id): Path<String>,
) -> Result<Json, ApiError> {
    let query = QueryId::parse(&id).and_then(|id| app.running.find(id));
    let Some(query) = query.filter(|query| is_within(&reach, &query.description)) else {
        let message = format!("no running or waiting query has the id {id:?}");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
    };
    operation.note_tenants(&query.description.tenants);
    query.cancel();
    let Description { tenants, path, peer, .. } = &query.description;
    tracing::info!(id = %query.id, tenant = %tenants, path, client = %peer.0, "operator canceled a query");
    let mut json = Json::within(&app.node.reads().answers);
    json.raw(r#"{"status":"success","data":"#);
    query.write(&mut json, app.running.age(&query));
    json.raw("}");
    Ok(json.finish()?)
}
