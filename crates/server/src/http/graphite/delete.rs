//! `/tags/delSeries`: deletes series by their names.
//!
//! A delete has selectors, and `{__name__="a",b="c"}` also selects series with more labels. So the labels that these have
//! are looked up first, and must be empty. Of a series that gets its first sample in between and has a label that no such
//! series had before, the delete may take this sample, too.

use super::answer::respond;
use super::ask::Ask;
use super::tags::Named;
use crate::deletes;
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::AdminTenant;
use crate::listen::Peer;
use crate::query_source::label_queries::LabelRequest;
use axum::extract::State;
use axum::response::Response;
use model::TimeRange;
use model::labels::METRIC_NAME;
use parking_lot::Mutex;
use query::Matcher;
use std::collections::BTreeSet;
use std::sync::Arc;
use tables::Delete;

const PATH: &str = "/tags/delSeries";

/// Deletes all samples of each `path`, and answers `true`.
pub(super) async fn delete_series(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<AdminTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (AdminTenant(tenant), params) = (tenant?, params?);
    let paths = super::tags::paths_of(&params);
    if paths.is_empty() {
        return Err(ApiError::bad_data("no path specified").into());
    }
    let selectors = paths.iter().map(|path| Ok(selector(&Named::parse(path)?)));
    let selectors = selectors.collect::<Result<Vec<_>, ApiError>>()?;
    let mut delete = Delete { selectors, range: TimeRange::ALL };
    // before the labels are looked up, because that takes time for each selector
    deletes::check(&delete)?;
    let ask = Ask { tenant: tenant.clone(), path: PATH, text: paths.join(", ").into(), peer };
    let labels = labels(ask, &app, delete.selectors.clone()).await?;
    if !labels.is_empty() {
        for selector in &mut delete.selectors {
            let own: BTreeSet<_> = selector.iter().map(|matcher| matcher.name.to_string()).collect();
            selector.extend(labels.difference(&own).map(|label| Matcher::equal(label, "")));
        }
        deletes::delete(&app.node, tenant, delete).await?;
    }
    let mut json = Json::new();
    json.raw("true");
    Ok(respond(json, "application/json"))
}

fn selector(named: &Named<'_>) -> Vec<Matcher> {
    let tags = named.tags.iter().map(|(tag, value)| Matcher::equal(tag, value));
    std::iter::once(Matcher::equal(METRIC_NAME, named.name)).chain(tags).collect()
}

/// The labels of all series that pass a selector. Empty if there are no such series.
async fn labels(ask: Ask, app: &App, selectors: Vec<Vec<Matcher>>) -> Result<BTreeSet<String>, ApiError> {
    let found = Arc::new(Mutex::new(BTreeSet::new()));
    let labels = Arc::clone(&found);
    let asked = ask.json(app, move |asked, _| {
        let queries = asked.queries(&asked.allowance());
        let request = LabelRequest { selectors: &selectors, range: TimeRange::ALL, limit: usize::MAX };
        let names = queries.label_names(&request)?;
        if let Some(left_out) = names.left_out.first() {
            // series in it may have labels that the delete must know
            return Err(ApiError::unavailable(left_out.clone()));
        }
        let text = |name| std::str::from_utf8(name).expect("BUG: a label name is not UTF-8").to_owned();
        *labels.lock() = names.all.iter().map(text).collect();
        Ok(())
    });
    asked.await?;
    Ok(std::mem::take(&mut *found.lock()))
}
