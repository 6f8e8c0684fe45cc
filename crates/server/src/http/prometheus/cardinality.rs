//! Tells which metrics and labels of a tenant have the most series and values, through Prometheus' TSDB
//! status and Mimir's cardinality API.

use super::label_queries::{Selectors, labels_across};
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::ReadTenants;
use crate::http::queries::admission::{allowance, check_canceled, on_query_thread, wait_for_series_of_all};
use crate::http::queries::description::{Description, Times};
use crate::listen::Peer;
use crate::partition::STARTED_S;
use crate::query_source::label_queries::{
    self, Cardinality, Counts, Grown, Growth, LabelNames, LabelValues, LabelsAcross, Top, Unqueried,
};
use axum::extract::State;
use head::TenantHead;
use model::labels::METRIC_NAME;
use model::{LabelsRef, TenantSet, TimeRange};
use stdx::units::duration_ms;

/// Default and maximum of the parameter `limit` in the TSDB status, as in Prometheus.
const TSDB_LIMIT: (usize, usize) = (10, 10_000);

/// Default and maximum of the parameter `limit` in the cardinality API, as in Mimir.
const CARDINALITY_LIMIT: (usize, usize) = (20, 500);

const LABEL_NAMES_MAX: usize = 20;

pub(crate) async fn tsdb(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let limit = limit_of(&params, TSDB_LIMIT)?;
    let request = CardinalityRequest { tenants, path: "/api/v1/status/tsdb", text: String::new(), peer };
    request
        .answer(app, move |queries, json| {
            write_tsdb(json, &queries.cardinality(limit)?);
            Ok(())
        })
        .await
}

/// Lists the labels with the most values, in the format of Mimir's API.
pub(crate) async fn label_names(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let limit = limit_of(&params, CARDINALITY_LIMIT)?;
    counts_all(&params)?;
    let path = "/api/v1/cardinality/label_names";
    let request = CardinalityRequest { tenants, path, text: String::new(), peer };
    request
        .answer(app, move |queries, json| {
            let LabelNames { names, values, values_by_name } = queries.label_names_cardinality(limit)?;
            json.raw(&format!(
                r#"{{"label_values_count_total":{values},"label_names_count":{names},"cardinality":"#
            ));
            write(json, &values_by_name, ["label_name", "label_values_count"]);
            json.raw("}");
            Ok(())
        })
        .await
}

/// Lists the values of the requested labels that have the most series, in the format of Mimir's API.
pub(crate) async fn label_values(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let limit = limit_of(&params, CARDINALITY_LIMIT)?;
    counts_all(&params)?;
    let names: Vec<_> = params.all("label_names[]").map(str::to_owned).collect();
    if !(1..=LABEL_NAMES_MAX).contains(&names.len()) {
        let message = format!("there must be 1 to {LABEL_NAMES_MAX} parameters label_names[]");
        return Err(ApiError::bad_data(message));
    }
    let (path, text) = ("/api/v1/cardinality/label_values", names.join(", "));
    let request = CardinalityRequest { tenants, path, text, peer };
    request
        .answer(app, move |queries, json| {
            json.raw(&format!(r#"{{"series_count_total":{},"labels":["#, queries.series_count()?));
            for (i, name) in names.iter().enumerate() {
                let found = queries.label_values_cardinality(name, limit)?;
                let LabelValues { name, values, series, series_by_value } = found;
                json.comma(i);
                json.raw(r#"{"label_name":"#);
                json.string(&name);
                json.raw(&format!(
                    r#","label_values_count":{values},"series_count":{series},"cardinality":"#
                ));
                write(json, &series_by_value, ["label_value", "series_count"]);
                json.raw("}");
            }
            json.raw("]}");
            Ok(())
        })
        .await
}

/// Lists the metrics and label pairs that gained the most new series in about the last hour.
pub(crate) async fn growth(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let limit = limit_of(&params, CARDINALITY_LIMIT)?;
    counts_all(&params)?;
    let now_s = app.node.reads().steady_s();
    let request =
        CardinalityRequest { tenants, path: "/api/v1/cardinality/growth", text: String::new(), peer };
    request
        .answer(app, move |queries, json| {
            let Growth { created, metrics, pairs } = queries.growth(limit, now_s)?;
            let seconds = now_s - TenantHead::growth_since_s(now_s).max(STARTED_S);
            json.raw(&format!(r#"{{"status":"success","data":{{"seconds":{seconds},"created":{created},"#));
            write_top(json, "metrics", &metrics);
            json.raw(",");
            write_top(json, "labelPairs", &pairs);
            json.raw("}}");
            Ok(())
        })
        .await
}

/// Writes `"KEY":[{"name":…,"createdAtLeast":…,"createdAtMost":…,"series":…},…],"KEYOthersAtMost":…`.
fn write_top(json: &mut Json, key: &str, Top { top, others_max }: &Top) {
    json.string(key);
    json.raw(":[");
    for (i, Grown { name, value, least, most, series }) in top.iter().enumerate() {
        json.comma(i);
        json.raw(r#"{"name":"#);
        match name.as_str() {
            METRIC_NAME => json.string(value),
            _ => json.string(&format!("{name}={value}")),
        }
        json.raw(&format!(r#","createdAtLeast":{least},"createdAtMost":{most},"series":{series}}}"#));
    }
    json.raw(&format!(r#"],"{key}OthersAtMost":{others_max}"#));
}

/// Lists the metrics that have series in memory but that no query selected within the time `within`.
pub(crate) async fn unqueried(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let limit = limit_of(&params, CARDINALITY_LIMIT)?;
    counts_all(&params)?;
    let now_s = app.node.reads().steady_s();
    let tracked_s = now_s - STARTED_S;
    let within_s = within_of(&params)?.map_or(tracked_s, |within_s| within_s.min(tracked_s));
    let text = params.get("within").unwrap_or_default().to_owned();
    let request = CardinalityRequest { tenants, path: "/api/v1/cardinality/unqueried", text, peer };
    request.answer(app, move |queries, json| {
        let Unqueried { series, series_by_metric, is_complete } = queries.unqueried(limit, now_s - within_s)?;
        json.raw(&format!(
            r#"{{"status":"success","data":{{"trackedSeconds":{tracked_s},"withinSeconds":{within_s},"complete":{is_complete},"series":{series},"metrics":"#
        ));
        write(json, &series_by_metric, ["name", "series"]);
        json.raw("}}");
        Ok(())
    })
    .await
}

fn within_of(params: &Params) -> Result<Option<u32>, ApiError> {
    let Some(text) = params.get("within") else { return Ok(None) };
    match duration_ms(text) {
        Some(ms) if ms >= 1_000 => Ok(Some(u32::try_from(ms / 1_000).unwrap_or(u32::MAX))),
        _ => Err(ApiError::bad_param("within", "must be a duration of at least a second, such as 30m or 7d")),
    }
}

pub(crate) async fn active_series(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let Some(selector) = params.get("selector").map(str::to_owned) else {
        return Err(ApiError::bad_param("selector", "required parameter is missing"));
    };
    wait_for_series_of_all(&app, &tenants).await?;
    let (path, text, times) =
        ("/api/v1/cardinality/active_series", selector.as_str().into(), Times::default());
    let description = Description { tenants: tenants.clone(), path, text, times, peer };
    let selectors = Selectors::one(selector);
    let answer = on_query_thread(&app, description, move |app, turn| {
        let mut parsed = allowance(turn);
        let selectors = selectors.parse(&mut parsed)?;
        let all =
            label_queries::LabelRequest { selectors: &selectors, range: TimeRange::ALL, limit: usize::MAX };
        let found = labels_across(app, &tenants, turn, &parsed).active_series(&all)?;
        let mut json = Json::within(&turn.limits.answers);
        json.raw(r#"{"data":["#);
        for (i, labels) in found.all.iter().enumerate() {
            check_canceled(turn)?;
            json.comma(i);
            json.labels(LabelsRef::from_canonical(labels));
        }
        json.raw("]}");
        Ok(json.finish()?)
    });
    answer.await
}

struct CardinalityRequest {
    tenants: TenantSet,
    path: &'static str,
    text: String,
    peer: Peer,
}

impl CardinalityRequest {
    async fn answer(
        self,
        app: App,
        write: impl Fn(&LabelsAcross<'_>, &mut Json) -> Result<(), ApiError> + Send + 'static,
    ) -> Result<Json, ApiError> {
        let Self { tenants, path, text, peer } = self;
        wait_for_series_of_all(&app, &tenants).await?;
        let description =
            Description { tenants: tenants.clone(), path, text: text.into(), times: Times::default(), peer };
        let answer = on_query_thread(&app, description, move |app, turn| {
            let parsed = allowance(turn);
            let mut json = Json::within(&turn.limits.answers);
            write(&labels_across(app, &tenants, turn, &parsed), &mut json)?;
            Ok(json.finish()?)
        });
        answer.await
    }
}

fn limit_of(params: &Params, (default, most): (usize, usize)) -> Result<usize, ApiError> {
    let Some(text) = params.get("limit") else { return Ok(default) };
    match text.parse() {
        Ok(limit) if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(ApiError::bad_param("limit", format!("limit must be a number from 1 to {most}"))),
    }
}

/// Refuses parameters that would restrict what is counted. All series in memory are counted.
fn counts_all(params: &Params) -> Result<(), ApiError> {
    if params.get("selector").is_some() {
        return Err(ApiError::bad_param("selector", "not supported: all series are counted"));
    }
    match params.get("count_method") {
        None | Some("inmemory") => Ok(()),
        Some(_) => Err(ApiError::bad_param("count_method", "only inmemory is supported")),
    }
}

fn write_tsdb(json: &mut Json, found: &Cardinality) {
    let Cardinality { series, label_pairs, .. } = found;
    json.raw(r#"{"status":"success","data":{"headStats":"#);
    json.raw(&format!(r#"{{"numSeries":{series},"numLabelPairs":{label_pairs}}}"#));
    for (name, counts) in [
        ("seriesCountByMetricName", &found.series_by_metric),
        ("labelValueCountByLabelName", &found.values_by_name),
        ("memoryInBytesByLabelName", &found.value_bytes_by_name),
        ("seriesCountByLabelValuePair", &found.series_by_pair),
    ] {
        json.raw(",");
        json.string(name);
        json.raw(":");
        write(json, counts, ["name", "value"]);
    }
    json.raw("}}");
}

/// Writes `[{"name":…,"value":…},…]`, with `keys` in place of `name` and `value`.
fn write(json: &mut Json, counts: &Counts, keys: [&str; 2]) {
    json.raw("[");
    for (i, (name, count)) in counts.iter().enumerate() {
        json.comma(i);
        json.raw("{");
        json.string(keys[0]);
        json.raw(":");
        json.string(name);
        json.raw(",");
        json.string(keys[1]);
        json.raw(&format!(":{count}}}"));
    }
    json.raw("]");
}
