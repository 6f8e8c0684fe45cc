use crate::auth::Reach;
use crate::http::App;
use crate::http::deleting::panicked;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::limit_rows;
use crate::http::params::Params;
use crate::http::principal::AdminReach;
use axum::extract::State;
use model::TenantId;

/// Limit on the tenants in an answer, which take about 600 bytes each.
const PAGE_MAX: usize = 1000;

/// Lists the limits of tenants that are in memory or have tables, in the order of their names. The parameter `after` is the last
/// name of the previous answer.
pub(super) async fn of_tenants(
    State(app): State<App>,
    AdminReach(reach): AdminReach,
    params: Params,
) -> Result<Json, ApiError> {
    let after = params.get("after").map(TenantId::parse).transpose();
    let after = after.map_err(|error| ApiError::bad_param("after", error))?;
    let limit = params.limit()?.min(PAGE_MAX);
    // on another thread, because there may be many tenants
    let list = move || answer(&app, &page(&app, &reach, after.as_ref(), limit));
    tokio::task::spawn_blocking(list).await.map_err(panicked)?
}

/// Tenants in the order of their names.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    tenants: Vec<TenantId>,
    /// True if there are more after them.
    is_cut: bool,
}

impl Page {
    fn of(mut tenants: Vec<TenantId>, limit: usize) -> Self {
        tenants.sort_unstable();
        tenants.dedup();
        let is_cut = tenants.len() > limit;
        tenants.truncate(limit);
        Self { tenants, is_cut }
    }
}

fn page(app: &App, reach: &Reach, after: Option<&TenantId>, limit: usize) -> Page {
    let writes = app.node.writes();
    let in_memory = writes.tenants.all().into_iter().map(|tenant| tenant.id.clone());
    let all = in_memory.chain(writes.lake.tables.tenants(true));
    let is_shown = |tenant: &TenantId| after.is_none_or(|after| tenant > after) && reach.includes(tenant);
    Page::of(all.filter(is_shown).collect(), limit)
}

fn answer(app: &App, Page { tenants, is_cut }: &Page) -> Result<Json, ApiError> {
    let settings = app.node.overrides().current();
    let mut json = Json::within(&app.node.reads().answers);
    json.raw(r#"{"status":"success","data":{"tenants":["#);
    for (i, tenant) in tenants.iter().enumerate() {
        json.comma(i);
        limit_rows::write_summary(&mut json, app, &settings, tenant);
    }
    json.raw(r#"],"next":"#);
    match tenants.last().filter(|_| *is_cut) {
        Some(tenant) => json.string(tenant.as_str()),
        None => json.raw("null"),
    }
    json.raw("}}");
    Ok(json.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_in_the_order_of_names() {
        let ids =
            |names: &[&str]| -> Vec<_> { names.iter().map(|id| TenantId::parse(id).unwrap()).collect() };
        let check = |names: &[&str], limit: usize, expected: &[&str], is_cut: bool| {
            assert_eq!(Page::of(ids(names), limit), Page { tenants: ids(expected), is_cut }, "{names:?}");
        };
        check(&[], 2, &[], false);
        check(&["b", "a"], 2, &["a", "b"], false);
        check(&["b", "a", "b"], 2, &["a", "b"], false);
        check(&["c", "b", "a"], 2, &["a", "b"], true);
    }
}
