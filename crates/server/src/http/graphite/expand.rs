//! `/metrics/expand`: paths that patterns select. `/metrics/index.json`: all names.

use super::answer::{Callback, flag};
use super::ask::{Ask, Asked};
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::ReadTenant;
use crate::http::queries::admission::check_canceled;
use crate::listen::Peer;
use crate::query_source::label_queries::{LabelQueries, NodeOrder};
use axum::extract::State;
use axum::response::Response;
use std::collections::HashSet;

/// Answers with the paths that any `query` selects or, with `groupByExpr`, with those of each query.
pub(super) async fn expand(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (ReadTenant(tenant), params) = (tenant?, params?);
    let (is_grouped, leaves_only) = (flag(&params, "groupByExpr")?, flag(&params, "leavesOnly")?);
    let callback = Callback::of(&params, app.node.settings())?;
    let mut known = HashSet::new();
    let queries: Vec<_> =
        params.all("query").filter(|query| known.insert(*query)).map(str::to_owned).collect();
    let ask = Ask { tenant, path: "/metrics/expand", text: queries.join(", ").into(), peer };
    let answer = ask.answer(&app, callback.content_type(), move |asked, json| {
        let label_queries = asked.path_queries();
        callback.begin(json);
        json.raw(r#"{"results":"#);
        if is_grouped {
            json.raw("{");
            for (i, query) in queries.iter().enumerate() {
                json.comma(i);
                json.string(query);
                json.raw(":");
                paths(asked, json, &label_queries, std::slice::from_ref(query), leaves_only)?;
            }
            json.raw("}");
        } else {
            paths(asked, json, &label_queries, &queries, leaves_only)?;
        }
        json.raw("}");
        callback.end(json);
        Ok(())
    });
    answer.await
}

/// Writes the distinct paths that any of the patterns selects.
fn paths(
    asked: &Asked<'_>,
    json: &mut Json,
    label_queries: &LabelQueries<'_>,
    queries: &[String],
    leaves_only: bool,
) -> Result<(), ApiError> {
    let nodes =
        label_queries.nodes(&mut queries.iter().map(|query| asked.parse(query)), NodeOrder::ByPath)?;
    json.warn(&nodes.left_out);
    let (mut last, mut count) = (None, 0);
    json.raw("[");
    for node in nodes.iter().filter(|node| node.is_leaf || !leaves_only) {
        if last.replace(node.path) != Some(node.path) {
            json.comma(count);
            json.string(node.path);
            count += 1;
            if count % 1_000 == 0 {
                check_canceled(asked.turn)?;
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
    let callback = Callback::of(&params, app.node.settings())?;
    let ask = Ask { tenant, path: "/metrics/index.json", text: "".into(), peer };
    let answer = ask.answer(&app, callback.content_type(), move |asked, json| {
        callback.begin(json);
        paths(asked, json, &asked.path_queries(), &["**".to_owned()], true)?;
        callback.end(json);
        Ok(())
    });
    answer.await
}
