//! `/metrics/expand`: paths that patterns select. `/metrics/index.json`: all names.

use super::answer::{Callback, flag, respond};
use super::find::{describe, parse};
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::ReadTenant;
use crate::http::prometheus::label_queries::label_queries_of;
use crate::http::queries::admission::{allowance, check_canceled, on_query_thread, wait_for_series_of};
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::label_queries::{LabelQueries, NodeOrder};
use axum::extract::State;
use axum::response::Response;
use std::collections::HashSet;

/// Limit on the patterns of a request. All of them are parsed, one after the other.
const QUERIES_MAX: usize = 1_000;

/// Answers with the paths that any `query` selects or, with `groupByExpr`, with those of each query.
pub(super) async fn expand(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (ReadTenant(tenant), params) = (tenant?, params?);
    let (is_grouped, leaves_only) = (flag(&params, "groupByExpr")?, flag(&params, "leavesOnly")?);
    let callback = Callback::of(&params)?;
    let mut known = HashSet::new();
    let queries: Vec<_> =
        params.all("query").filter(|query| known.insert(*query)).map(str::to_owned).collect();
    if queries.len() > QUERIES_MAX {
        return Err(ApiError::bad_data(format!("Invalid query: more than {QUERIES_MAX} of them")).into());
    }
    wait_for_series_of(&app, &tenant).await?;
    let content_type = callback.content_type();
    let description = describe(&tenant, "/metrics/expand", queries.join(", ").into(), peer);
    let answer = on_query_thread(&app, description, move |app, turn| {
        let label_queries = label_queries_of(app, &tenant, turn, &allowance(turn));
        let mut json = Json::within(&turn.limits.answers);
        callback.begin(&mut json);
        json.raw(r#"{"results":"#);
        if is_grouped {
            json.raw("{");
            for (i, query) in queries.iter().enumerate() {
                json.comma(i);
                json.string(query);
                json.raw(":");
                paths(turn, &mut json, &label_queries, std::slice::from_ref(query), leaves_only)?;
            }
            json.raw("}");
        } else {
            paths(turn, &mut json, &label_queries, &queries, leaves_only)?;
        }
        json.raw("}");
        callback.end(&mut json);
        Ok(json.finish()?)
    });
    Ok(respond(answer.await?, content_type))
}

/// Writes the distinct paths that any of the patterns selects.
fn paths(
    turn: &Turn,
    json: &mut Json,
    label_queries: &LabelQueries<'_>,
    queries: &[String],
    leaves_only: bool,
) -> Result<(), ApiError> {
    let nodes = label_queries.nodes(&mut queries.iter().map(|query| parse(query)), NodeOrder::ByPath)?;
    json.warn(&nodes.left_out);
    let (mut last, mut count) = (None, 0);
    json.raw("[");
    for node in nodes.iter().filter(|node| node.is_leaf || !leaves_only) {
        if last.replace(node.path) != Some(node.path) {
            json.comma(count);
            json.string(node.path);
            count += 1;
            if count % 1_000 == 0 {
                check_canceled(turn)?;
            }
        }
    }
    json.raw("]");
    Ok(())
}

/// Answers with the names of all untagged metrics.
pub(super) async fn index(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (ReadTenant(tenant), params) = (tenant?, params?);
    let callback = Callback::of(&params)?;
    wait_for_series_of(&app, &tenant).await?;
    let content_type = callback.content_type();
    let description = describe(&tenant, "/metrics/index.json", "".into(), peer);
    let answer = on_query_thread(&app, description, move |app, turn| {
        let label_queries = label_queries_of(app, &tenant, turn, &allowance(turn));
        let mut json = Json::within(&turn.limits.answers);
        callback.begin(&mut json);
        paths(turn, &mut json, &label_queries, &["**".to_owned()], true)?;
        callback.end(&mut json);
        Ok(json.finish()?)
    });
    Ok(respond(answer.await?, content_type))
}
