use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::ReadTenants;
use crate::http::queries::admission::{
    TRIES_MAX, allowance, check_canceled, limit_of, options, wait_for_series_of_all, within,
};
use crate::http::queries::description::{Description, Times};
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::detail::Detail;
use crate::query_source::{Across, Source};
use axum::extract::State;
use model::TenantSet;
use model::caps::QUERY_POINTS_MAX;
use query::{Answer, Expr, Options, QueryError, SeriesSource, Value};
use std::sync::Arc;
use std::time::Duration;

pub(super) const CUT: &str = "results truncated due to limit";

pub(crate) async fn instant(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let at_ms = params.time("time")?.unwrap_or_else(|| app.node.reads().clock.now_ms());
    let request = QueryRequest::of(&app, tenants, &params)?;
    let description = request.description("/api/v1/query", Times::at(at_ms), peer);
    let query = move |expr: &Expr, source: &dyn SeriesSource, options: &Options<'_>| {
        query::instant(expr, at_ms, source, options)
    };
    request.answer(&app, description, None, query).await
}

pub(crate) async fn range(
    State(app): State<App>,
    peer: Peer,
    ReadTenants(tenants): ReadTenants,
    params: Params,
) -> Result<Json, ApiError> {
    let (start_ms, end_ms, step_ms) = steps_of(&params)?;
    let request = QueryRequest::of(&app, tenants, &params)?;
    let times = Times { start_ms: Some(start_ms), end_ms: Some(end_ms), step_ms: Some(step_ms) };
    let description = request.description("/api/v1/query_range", times, peer);
    let query = move |expr: &Expr, source: &dyn SeriesSource, options: &Options<'_>| {
        query::range(expr, start_ms, end_ms, step_ms, source, options)
    };
    request.answer(&app, description, Some((end_ms - start_ms, step_ms)), query).await
}

/// Returns `start`, `end` and `step` in milliseconds, after the same checks as in Prometheus.
fn steps_of(params: &Params) -> Result<(i64, i64, i64), ApiError> {
    let (start_ms, end_ms) = (params.needed_time("start")?, params.needed_time("end")?);
    if end_ms < start_ms {
        return Err(ApiError::bad_param("end", "end timestamp must not be before start time"));
    }
    let step_ms = params
        .duration("step")?
        .ok_or_else(|| ApiError::bad_param("step", "cannot parse \"\" to a valid duration"))?;
    if step_ms <= 0 {
        return Err(ApiError::bad_param(
            "step",
            "zero or negative query resolution step widths are not accepted. Try a positive integer",
        ));
    }
    if (end_ms - start_ms) / step_ms > QUERY_POINTS_MAX {
        let fits = ((end_ms - start_ms) as u64).div_ceil(QUERY_POINTS_MAX as u64 * 1000);
        return Err(ApiError::bad_data(format!(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution \
             (?step=XX): the smallest step that fits is {fits}s"
        )));
    }
    Ok((start_ms, end_ms, step_ms))
}

struct QueryRequest {
    tenants: TenantSet,
    text: Arc<str>,
    lookback_ms: Option<i64>,
    limit: usize,
    /// Timeout that the client asks for. It has no effect if it is longer than `query_timeout`.
    timeout: Option<Duration>,
    detail: Detail,
}

impl QueryRequest {
    fn of(app: &App, tenants: TenantSet, params: &Params) -> Result<Self, ApiError> {
        let timeout_ms = params.duration("timeout")?;
        Ok(Self {
            text: expression(params).into(),
            lookback_ms: params.duration("lookback_delta")?,
            limit: params.limit()?,
            timeout: timeout_ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
            detail: detail_of(app, params, &tenants)?,
            tenants,
        })
    }

    fn description(&self, path: &'static str, times: Times, peer: Peer) -> Description {
        Description { tenants: self.tenants.clone(), path, text: Arc::clone(&self.text), times, peer }
    }

    /// Evaluates the query on a query thread and encodes the answer. For a range query, `steps` has the
    /// duration of the range and of a step in milliseconds.
    async fn answer(
        self,
        app: &App,
        description: Description,
        steps: Option<(i64, i64)>,
        query: impl Fn(&Expr, &dyn SeriesSource, &Options<'_>) -> Result<Answer, QueryError> + Send + 'static,
    ) -> Result<Json, ApiError> {
        wait_for_series_of_all(app, &self.tenants).await?;
        // without the start time, so that each refresh of a dashboard has the same fingerprint
        let fingerprint = app.queries.fingerprint(&(&self.tenants, &self.text, self.lookback_ms, steps));
        let answer = within(app, description, self.timeout, Some(fingerprint), move |app, turn| {
            let mut parsed = allowance(turn);
            let expr = query::parse_within(&self.text, &mut parsed)?;
            let options = options(app, turn, self.lookback_ms, &parsed);
            let answer = self.evaluate(app, turn, &options, |source| query(&expr, source, &options));
            let limit = limit_of(app, turn, options.samples_max);
            answer_json(turn, answer.map_err(|error| explained(error, &options, limit))?, self.limit)
        });
        answer.await
    }

    fn evaluate(
        &self,
        app: &App,
        turn: &Arc<Turn>,
        options: &Options<'_>,
        query: impl Fn(&dyn SeriesSource) -> Result<Answer, QueryError>,
    ) -> Result<Answer, QueryError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (reads, canceled, most) = (app.node.reads(), Arc::clone(turn) as _, options.samples_max);
            let (answer, is_expired, left_out) = match self.tenants.only() {
                Some(tenant) => {
                    let source = Source::new(reads, tenant.clone(), most, canceled)
                        .answering_from(self.detail)
                        .recording();
                    (query(&source), source.is_expired(), source.left_out())
                }
                None => {
                    let source = Across::new(reads, &self.tenants, most, &canceled);
                    (query(&source), source.is_expired(), source.left_out())
                }
            };
            match answer {
                Err(_) if is_expired && tries < TRIES_MAX => {}
                Ok(mut answer) => {
                    answer.warnings.extend(left_out);
                    return Ok(answer);
                }
                failed => return failed,
            }
        }
    }
}

pub(super) fn expression(params: &Params) -> &str {
    params.all("query").next().unwrap_or_default()
}

/// If the query is too large, the error names the limit and what changes it. `limit` is the setting that limits the query.
fn explained(error: QueryError, options: &Options<'_>, limit: &str) -> QueryError {
    let changes = match limit {
        "memory" => "--memory and query_concurrency".to_owned(),
        of_tenant => format!("the tenant's {of_tenant}"),
    };
    match error {
        QueryError::TooLarge => QueryError::Execution(format!(
            "{error}: one query may hold {} samples; the limit depends on {changes}",
            options.samples_max
        )),
        error => error,
    }
}

/// Reads the parameter `resolution`, which decides whether raw samples or rollups are read. It has no effect
/// on queries over several tenants.
fn detail_of(app: &App, params: &Params, tenants: &TenantSet) -> Result<Detail, ApiError> {
    match params.get("resolution") {
        None => Ok(app.node.overrides().current().of(tenants.first()).query_resolution),
        Some(text) => Detail::parse(text)
            .ok_or_else(|| ApiError::bad_param("resolution", format!("{text:?} is not {}", Detail::WORDS))),
    }
}

fn answer_json(turn: &Turn, answer: Answer, limit: usize) -> Result<Json, ApiError> {
    let mut json = Json::within(&turn.limits.answers);
    let mut warnings = answer.warnings;
    json.raw(r#"{"status":"success","data":{"resultType":"#);
    match answer.value {
        Value::Scalar { timestamp_ms, value } => {
            json.raw(r#""scalar","result":"#);
            json.scalar(timestamp_ms, value);
        }
        Value::String { timestamp_ms, value } => {
            json.raw(r#""string","result":["#);
            json.time(timestamp_ms);
            json.raw(",");
            json.string(&value);
            json.raw("]");
        }
        Value::Vector(series) => {
            json.raw(r#""vector","result":["#);
            cut_at(limit, series.len(), &mut warnings);
            for (i, (labels, timestamp_ms, value)) in series.iter().take(limit).enumerate() {
                check_canceled(turn)?;
                json.comma(i);
                json.raw(r#"{"metric":"#);
                json.labels(labels.as_ref());
                json.raw(r#","value":"#);
                json.point(*timestamp_ms, *value);
                json.raw("}");
            }
            json.raw("]");
        }
        Value::Matrix(series) => {
            json.raw(r#""matrix","result":["#);
            cut_at(limit, series.len(), &mut warnings);
            for (i, (labels, samples)) in series.iter().take(limit).enumerate() {
                check_canceled(turn)?;
                json.comma(i);
                json.raw(r#"{"metric":"#);
                json.labels(labels.as_ref());
                json.raw(r#","values":"#);
                json.points(samples);
                json.raw("}");
            }
            json.raw("]");
        }
    }
    json.raw("}");
    for (name, texts) in [("warnings", &warnings), ("infos", &answer.infos)] {
        if !texts.is_empty() {
            json.raw(",");
            json.string(name);
            json.raw(":");
            json.strings(texts);
        }
    }
    json.raw("}");
    Ok(json.finish()?)
}

fn cut_at(limit: usize, len: usize, warnings: &mut Vec<String>) {
    if len > limit {
        warnings.push(CUT.into());
    }
}
