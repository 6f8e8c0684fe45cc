//! Endpoints that list labels, series, metadata, exemplars and build information.

use super::query::{CUT, expression};
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::ReadTenants;
use crate::http::queries::admission::{
    allowance, check_canceled, left_bytes, on_query_thread, wait_for_series_of_all,
};
use crate::http::queries::description::{Description, Times};
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::label_queries::{
    ExemplarsBySeries, LabelQueries, LabelRequest, LabelsAcross, Limited,
};
use axum::extract::{Path, State};
use model::{LabelsRef, Metadata, TenantId, TenantSet, TimeRange};
use query::{Allowance, Matcher, QueryErrorKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The Prometheus release whose HTTP API this server implements. Clients decide by this version which
/// features they use.
const API_VERSION: &str = "3.5.0";

pub(crate) async fn label_names(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let selectors = Selectors::of(&params, false)?;
    let (range, limit) = (params.range()?, params.limit()?);
    wait_for_series_of_all(&app, &tenants).await?;
    let description = selectors.description("/api/v1/labels", &tenants, range, peer);
    let answer = on_query_thread(&app, description, move |app, turn| {
        let mut parsed = allowance(turn);
        let selectors = selectors.parse(&mut parsed)?;
        let label_queries = labels_across(app, &tenants, turn, &parsed);
        text_list(turn, label_queries.label_names(&LabelRequest { selectors: &selectors, range, limit })?)
    });
    answer.await
}

pub(crate) async fn label_values(
    State(app): State<App>,
    Path(name): Path<String>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    if name.is_empty() {
        return Err(ApiError::bad_data("invalid label name: \"\""));
    }
    let selectors = Selectors::of(&params, false)?;
    let (range, limit) = (params.range()?, params.limit()?);
    wait_for_series_of_all(&app, &tenants).await?;
    let description = selectors.description("/api/v1/label/<name>/values", &tenants, range, peer);
    let answer = on_query_thread(&app, description, move |app, turn| {
        let mut parsed = allowance(turn);
        let selectors = selectors.parse(&mut parsed)?;
        let label_queries = labels_across(app, &tenants, turn, &parsed);
        text_list(
            turn,
            label_queries.label_values(&name, &LabelRequest { selectors: &selectors, range, limit })?,
        )
    });
    answer.await
}

/// Prepares label queries of `tenant`. Their memory is limited to the part of the request's memory that was
/// not used to parse the selectors.
pub(in crate::http) fn label_queries_of<'a>(
    app: &'a App,
    tenant: &'a TenantId,
    turn: &'a Arc<Turn>,
    parsed: &Allowance,
) -> LabelQueries<'a> {
    let (canceled, usage) = (Arc::clone(turn) as _, turn.usage());
    LabelQueries {
        context: app.node.reads(),
        tenant,
        canceled,
        memory_bytes: left_bytes(turn, parsed),
        usage,
    }
}

pub(super) fn labels_across<'a>(
    app: &'a App,
    tenants: &'a TenantSet,
    turn: &'a Arc<Turn>,
    parsed: &Allowance,
) -> LabelsAcross<'a> {
    let queries = |tenant| label_queries_of(app, tenant, turn, parsed);
    LabelsAcross(tenants.iter().map(queries).collect())
}

fn text_list(turn: &Turn, found: Limited) -> Result<Json, ApiError> {
    check_canceled(turn)?;
    let mut json = Json::within(&turn.limits.answers);
    json.raw(r#"{"status":"success","data":["#);
    for (i, text) in found.all.iter().enumerate() {
        json.comma(i);
        json.string(std::str::from_utf8(text).expect("BUG: a label is not UTF-8"));
    }
    json.raw("]");
    end(&mut json, found.cut, found.left_out);
    Ok(json.finish()?)
}

pub(crate) async fn series(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let selectors = Selectors::of(&params, true)?;
    let (range, limit) = (params.range()?, params.limit()?);
    wait_for_series_of_all(&app, &tenants).await?;
    let description = selectors.description("/api/v1/series", &tenants, range, peer);
    let answer = on_query_thread(&app, description, move |app, turn| {
        let mut parsed = allowance(turn);
        let selectors = selectors.parse(&mut parsed)?;
        let label_queries = labels_across(app, &tenants, turn, &parsed);
        let found = label_queries.series(&LabelRequest { selectors: &selectors, range, limit })?;
        let mut json = Json::within(&turn.limits.answers);
        json.raw(r#"{"status":"success","data":["#);
        for (i, labels) in found.all.iter().enumerate() {
            check_canceled(turn)?;
            json.comma(i);
            json.labels(LabelsRef::from_canonical(labels));
        }
        json.raw("]");
        end(&mut json, found.cut, found.left_out);
        Ok(json.finish()?)
    });
    answer.await
}

fn end(json: &mut Json, cut: bool, mut warnings: Vec<String>) {
    if cut {
        warnings.push(CUT.into());
    }
    if !warnings.is_empty() {
        json.raw(r#","warnings":"#);
        json.strings(&warnings);
    }
    json.raw("}");
}

pub(crate) async fn metadata(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    wait_for_series_of_all(&app, &tenants).await?;
    let limit = params.limit()?;
    let metric = params.get("metric").map(String::from);
    let text = metric.as_deref().unwrap_or_default().into();
    let description = Description {
        tenants: tenants.clone(),
        path: "/api/v1/metadata",
        text,
        times: Times::default(),
        peer,
    };
    let answer = on_query_thread(&app, description, move |app, turn| {
        let label_queries = labels_across(app, &tenants, turn, &allowance(turn));
        metadata_json(turn, &label_queries.metadata(metric.as_deref(), limit)?)
    });
    answer.await
}

fn metadata_json(turn: &Turn, all: &BTreeMap<String, Vec<Metadata>>) -> Result<Json, ApiError> {
    let mut json = Json::within(&turn.limits.answers);
    json.raw(r#"{"status":"success","data":{"#);
    for (i, (metric, entries)) in all.iter().enumerate() {
        json.comma(i);
        json.string(metric);
        json.raw(":[");
        for (i, m) in entries.iter().enumerate() {
            json.comma(i);
            json.raw(r#"{"type":"#);
            json.string(m.kind.as_str());
            json.raw(r#","help":"#);
            json.string(&m.help);
            json.raw(r#","unit":"#);
            json.string(&m.unit);
            json.raw("}");
        }
        json.raw("]");
    }
    json.raw("}}");
    Ok(json.finish()?)
}

pub(crate) async fn exemplars(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    wait_for_series_of_all(&app, &tenants).await?;
    let range = params.range()?;
    let text: Arc<str> = expression(&params).into();
    let times = Times::of(range);
    let description = Description {
        tenants: tenants.clone(),
        path: "/api/v1/query_exemplars",
        text: Arc::clone(&text),
        times,
        peer,
    };
    let answer = on_query_thread(&app, description, move |app, turn| {
        let mut parsed = allowance(turn);
        let expr = query::parse_within(&text, &mut parsed)?;
        let selectors: Vec<_> = expr.selectors().into_iter().map(<[Matcher]>::to_vec).collect();
        let request = LabelRequest { selectors: &selectors, range, limit: usize::MAX };
        let label_queries = labels_across(app, &tenants, turn, &parsed);
        exemplars_json(turn, &label_queries.exemplars(&request)?)
    });
    answer.await
}

fn exemplars_json(turn: &Turn, found: &ExemplarsBySeries) -> Result<Json, ApiError> {
    let mut json = Json::within(&turn.limits.answers);
    json.raw(r#"{"status":"success","data":["#);
    for (i, (labels, exemplars)) in found.iter().enumerate() {
        json.comma(i);
        json.raw(r#"{"seriesLabels":"#);
        json.labels(labels.as_ref());
        json.raw(r#","exemplars":["#);
        for (i, e) in exemplars.iter().enumerate() {
            json.comma(i);
            json.raw(r#"{"labels":"#);
            json.labels(e.labels.as_ref());
            json.raw(r#","value":"#);
            json.value(e.value);
            json.raw(r#","timestamp":"#);
            json.time(e.timestamp_ms);
            json.raw("}");
        }
        json.raw("]}");
    }
    json.raw("]}");
    Ok(json.finish()?)
}

pub(crate) async fn buildinfo() -> Json {
    let mut json = Json::new();
    json.raw(r#"{"status":"success","data":{"version":"#);
    json.string(&format!("{API_VERSION}+floodmark.{}", env!("CARGO_PKG_VERSION")));
    json.raw(r#","revision":"","branch":"","buildUser":"","buildDate":"","goVersion":"","application":"Floodmark"}}"#);
    json
}

#[derive(Debug)]
pub(in crate::http) struct Selectors(Vec<String>);

impl Selectors {
    /// Copies the selectors from the parameters. Parsing them may take long, so it is left to a query thread.
    pub(in crate::http) fn of(params: &Params, needed: bool) -> Result<Self, ApiError> {
        let all: Vec<_> = params.all("match[]").map(str::to_owned).collect();
        match needed && all.is_empty() {
            true => Err(ApiError::bad_data("no match[] parameter provided")),
            false => Ok(Self(all)),
        }
    }

    pub(in crate::http) fn description(
        &self,
        path: &'static str,
        tenants: &TenantSet,
        range: TimeRange,
        peer: Peer,
    ) -> Description {
        Description {
            tenants: tenants.clone(),
            path,
            text: self.0.join(", ").into(),
            times: Times::of(range),
            peer,
        }
    }

    pub(super) fn one(selector: String) -> Self {
        Self(vec![selector])
    }

    pub(in crate::http) fn parse(&self, allowance: &mut Allowance) -> Result<Vec<Vec<Matcher>>, ApiError> {
        let bad = |why: &dyn std::fmt::Display| ApiError::bad_param("match[]", why);
        let parse = |text: &String| {
            let matchers = query::parse_selector_within(text, allowance).map_err(|e| match e.kind() {
                QueryErrorKind::BadData => bad(&e),
                _ => e.into(),
            })?;
            match matchers.iter().all(Matcher::matches_empty) {
                true => Err(bad(&"match[] must contain at least one non-empty matcher")),
                false => Ok(matchers),
            }
        };
        self.0.iter().map(parse).collect()
    }
}
