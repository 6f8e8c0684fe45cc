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
use crate::http::deleting::{Place, until_ended};
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::AdminTenant;
use crate::listen::Peer;
use crate::query_source::label_queries::LabelRequest;
use crate::refusal::Refusal;
use axum::extract::State;
use axum::response::Response;
use model::TimeRange;
use model::labels::METRIC_NAME;
use parking_lot::Mutex;
use query::Matcher;
use query::allowance::MATCHERS_MAX;
use std::collections::BTreeSet;
use std::sync::Arc;
use tables::tombstone::{MATCHER_BYTES, SELECTOR_BYTES_MAX};
use tables::{Delete, TableError};

const PATH: &str = "/tags/delSeries";

/// Deletes all samples of each `path`, and answers `true`.
pub(super) async fn delete_series(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<AdminTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (AdminTenant(tenant), params) = (tenant?, params?);
    params.only(&["pretty", "jsonp"], &["path", "path[]"])?;
    if let Some(operation) = params.operation() {
        operation.note_dry_run(false);
    }
    let paths = super::tags::paths_of(&params);
    if paths.is_empty() {
        return Err(ApiError::bad_data("no path specified").into());
    }
    let (mut names, mut size, mut selectors) = (BTreeSet::new(), Size::default(), Vec::new());
    for path in &paths {
        // a path is parsed into a list of tags, which takes much more memory than its text
        Size { bytes: path.len(), ..Size::default() }.check()?;
        let named = Named::parse(path)?;
        if names.insert(named.canonical()) {
            // before the matchers are made, and before the labels are looked up, because the cost of both grows with the
            // number of paths
            size.add_all(matchers_of(&named))?;
            selectors.push(matchers_of(&named).map(|(name, value)| Matcher::equal(name, value)).collect());
        }
    }
    let mut delete = Delete { selectors, range: TimeRange::ALL };
    deletes::check(&delete)?;
    let text = names.into_iter().collect::<Vec<_>>().join(", ").into();
    let ask = Ask { tenant: tenant.clone(), path: PATH, text, peer };
    let labels = labels(ask, &app, delete.selectors.clone(), size).await?;
    if !labels.is_empty() {
        for selector in &mut delete.selectors {
            let empty: Vec<_> = others(selector, labels.iter().map(String::as_str)).collect();
            selector.extend(empty.into_iter().map(|label| Matcher::equal(label, "")));
        }
        let (place, node) = (Place::of(&app, &tenant)?, app.node.clone());
        until_ended(place, async move { deletes::delete(&node, tenant, delete).await }).await?;
    }
    let mut json = Json::new();
    json.raw("true");
    Ok(respond(json, "application/json"))
}

/// Names and values of the labels of a series.
fn matchers_of<'a>(named: &'a Named<'_>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let tags = named.tags.iter().map(|(tag, value)| (*tag, *value));
    std::iter::once((METRIC_NAME, named.name)).chain(tags)
}

/// The labels that the selector does not name, and that must be empty.
fn others<'a>(selector: &[Matcher], labels: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    labels.filter(move |label| !selector.iter().any(|matcher| matcher.name == *label))
}

/// Size of all selectors of a request. It is checked before the matchers are made, because each path gets a matcher for
/// each label of the selected series.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    matchers: usize,
    bytes: usize,
}

impl Size {
    fn add_all<'a>(&mut self, mut matchers: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), Refusal> {
        matchers.try_for_each(|(name, value)| {
            self.matchers += 1;
            self.bytes += name.len() + value.len() + MATCHER_BYTES;
            self.check()
        })
    }

    fn check(&self) -> Result<(), Refusal> {
        let limit_bytes = SELECTOR_BYTES_MAX;
        let message = match (self.matchers > MATCHERS_MAX, self.bytes > limit_bytes) {
            (_, true) => TableError::TooLarge { what: "the selectors of a delete", limit_bytes }.to_string(),
            (true, _) => format!(
                "the selectors of a delete may have {MATCHERS_MAX} matchers, one for each path and each label of the \
                 selected series: name fewer paths"
            ),
            (false, false) => return Ok(()),
        };
        Err(Refusal::too_large("deletes", message))
    }
}

fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).expect("BUG: a label name is not UTF-8")
}

/// The labels of all series that match a selector. Empty if there are no such series. Fails if the selectors, of `size`,
/// would become too large with these labels.
async fn labels(
    ask: Ask,
    app: &App,
    selectors: Vec<Vec<Matcher>>,
    size: Size,
) -> Result<BTreeSet<String>, ApiError> {
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
        let mut extended = size;
        for selector in &selectors {
            extended.add_all(others(selector, names.all.iter().map(text)).map(|label| (label, "")))?;
        }
        *labels.lock() = names.all.iter().map(|name| text(name).to_owned()).collect();
        Ok(())
    });
    asked.await?;
    Ok(std::mem::take(&mut *found.lock()))
}
