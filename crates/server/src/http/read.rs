//! PromQL over HTTP: instant and range queries.

use super::App;
use super::error::ApiError;
use super::json::Json;
use super::params::Params;
use super::tenant::tenant_of;
use crate::settings::Detail;
use crate::source::Source;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use model::TenantId;
use model::caps::QUERY_POINTS_MAX;
use query::{Answer, Options, QueryError, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) async fn instant(
    State(app): State<App>,
    headers: HeaderMap,
    params: Params,
) -> Result<Json, ApiError> {
    let tenant = tenant_of(&headers)?;
    let at_ms = params.time("time")?.unwrap_or_else(|| app.node.shared().clock.now_ms());
    let expr = expression(&params)?;
    let lookback_ms = params.duration("lookback_delta")?;
    let (limit, timeout) = (params.limit()?, timeout_of(&params)?);
    let detail = detail_of(&app, &params, &tenant)?;
    let answer = within(&app, timeout, move |app, cancelled| {
        let options = options(app, cancelled, lookback_ms);
        let answer = evaluate(app, &tenant, detail, &options, |source| {
            query::instant(&expr, at_ms, source, &options)
        })?;
        answer_json(app, answer, limit)
    });
    answer.await
}

pub(crate) async fn range(
    State(app): State<App>,
    headers: HeaderMap,
    params: Params,
) -> Result<Json, ApiError> {
    let tenant = tenant_of(&headers)?;
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
    let expr = expression(&params)?;
    let lookback_ms = params.duration("lookback_delta")?;
    let (limit, timeout) = (params.limit()?, timeout_of(&params)?);
    let detail = detail_of(&app, &params, &tenant)?;
    let answer = within(&app, timeout, move |app, cancelled| {
        let options = options(app, cancelled, lookback_ms);
        let answer = evaluate(app, &tenant, detail, &options, |source| {
            query::range(&expr, start_ms, end_ms, step_ms, source, &options)
        })?;
        answer_json(app, answer, limit)
    });
    answer.await
}

/// How often a query begins again that ran for so long that its samples moved on.
pub(super) const TRIES_MAX: usize = 4;

fn evaluate(
    app: &App,
    tenant: &TenantId,
    detail: Detail,
    options: &Options<'_>,
    query: impl Fn(&Source<'_>) -> Result<Answer, QueryError>,
) -> Result<Answer, QueryError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let source = Source::new(&app.node, tenant.clone(), options.samples_max, options.cancelled);
        let source = source.answering_from(detail);
        match query(&source) {
            Err(_) if source.is_outlived() && tries < TRIES_MAX => {}
            Ok(mut answer) => {
                answer.warnings.extend(source.left_out());
                return Ok(answer);
            }
            failed => return failed,
        }
    }
}

pub(super) fn expression(params: &Params) -> Result<query::Expr, ApiError> {
    let text = params.all("query").next().unwrap_or_default();
    query::parse(text).map_err(|e| ApiError::bad_param("query", e))
}

/// `resolution`: from what to answer.
fn detail_of(app: &App, params: &Params, tenant: &TenantId) -> Result<Detail, ApiError> {
    match params.get("resolution") {
        None => Ok(app.node.settings().query_resolution_of(tenant)),
        Some(text) => Detail::parse(text)
            .ok_or_else(|| ApiError::bad_param("resolution", format!("{text:?} is not {}", Detail::WORDS))),
    }
}

/// `timeout`: what the client allows, below what the server does.
fn timeout_of(params: &Params) -> Result<Option<Duration>, ApiError> {
    let allowed_ms = params.duration("timeout")?;
    Ok(allowed_ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())))
}

/// What one query may use: its share of the query account. Sixteen bytes hold a sample.
pub(super) fn options<'a>(app: &App, cancelled: &'a AtomicBool, lookback_ms: Option<i64>) -> Options<'a> {
    let settings = app.node.settings();
    let share = settings.budget.evaluation_bytes() / settings.query_concurrency as u64;
    Options {
        lookback_delta_ms: lookback_ms.filter(|ms| *ms > 0).unwrap_or(settings.query_lookback_ms),
        samples_max: share / 16,
        ..Options::new(cancelled)
    }
}

/// Cancels a query when the request that asked for it goes away or runs out of time.
pub(super) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// What is set then.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread for blocking work, within the bounds on concurrency and time. The answer is written
/// there too: it can be long.
pub(super) async fn on_query_thread(
    app: &App,
    work: impl FnOnce(&App, &AtomicBool) -> Result<Json, ApiError> + Send + 'static,
) -> Result<Json, ApiError> {
    within(app, None, work).await
}

/// [`on_query_thread`], ended after `timeout` where that is less than the server's own bound.
async fn within(
    app: &App,
    timeout: Option<Duration>,
    work: impl FnOnce(&App, &AtomicBool) -> Result<Json, ApiError> + Send + 'static,
) -> Result<Json, ApiError> {
    let began = Instant::now();
    let result = bounded(app, timeout, work).await;
    app.metrics.query_seconds.observe(began.elapsed().as_secs_f64());
    if result.is_err() {
        app.metrics.queries_failed.inc();
    }
    result
}

async fn bounded(
    app: &App,
    allowed: Option<Duration>,
    work: impl FnOnce(&App, &AtomicBool) -> Result<Json, ApiError> + Send + 'static,
) -> Result<Json, ApiError> {
    crate::pipeline::wait_for_replay(&app.node).await;
    if !app.node.is_ready() && !app.node.is_stopping() {
        // half of the series would be an answer that looks whole
        let message = "the journal is being replayed";
        return Err(ApiError::unavailable(message));
    }
    let most = Duration::from_millis(app.node.settings().query_timeout_ms);
    let timeout = allowed.unwrap_or(most).min(most);
    let Some(pass) = app.waiting.enter() else {
        let message = format!("too many queries: {} run or wait already", app.waiting.limit());
        return Err(ApiError::unavailable(message));
    };
    let cancelled = CancelOnDrop::new();
    let flag = cancelled.flag();
    let began = Arc::new(AtomicBool::new(false));
    let (app, begin) = (app.clone(), Arc::clone(&began));
    let run = async move {
        let permits = Arc::clone(&app.querying);
        let permit = permits.acquire_owned().await.expect("BUG: the semaphore is never closed");
        begin.store(true, Ordering::Relaxed);
        let task = tokio::task::spawn_blocking(move || {
            let result = work(&app, &flag);
            drop((pass, permit)); // only now, also where nobody waits for the result any more
            result
        });
        task.await
    };
    match tokio::time::timeout(timeout, run).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => {
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the query's thread failed"))
        }
        Err(_) => {
            let place = if began.load(Ordering::Relaxed) { "expression evaluation" } else { "query queue" };
            let bound = if timeout < most { "parameter timeout" } else { "setting query_timeout" };
            let message = format!("query timed out in {place} after {} s ({bound})", timeout.as_secs_f64());
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message))
        }
    }
}

fn answer_json(app: &App, answer: Answer, limit: usize) -> Result<Json, ApiError> {
    let mut json = Json::within(&app.node.shared().answers);
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
    json.finish()
}

fn cut_at(limit: usize, len: usize, warnings: &mut Vec<String>) {
    if len > limit {
        warnings.push("results truncated due to limit".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::tests::node_with;

    /// A store that does not answer in time: the client is answered, and the thread ends when the store does.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_query_that_waits_for_a_store_ends_with_its_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |settings| settings.query_timeout_ms = 50).await;
        let app = App::new(node.clone());
        let less = Some(Duration::from_millis(20));
        for (allowed, bound) in [(None, "setting query_timeout"), (less, "parameter timeout")] {
            let (answer, answered) = std::sync::mpsc::channel::<()>();
            let work = move |_: &App, _: &AtomicBool| {
                let _ = answered.recv(); // the store
                Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "nobody hears it"))
            };
            let error = within(&app, allowed, work).await.expect_err("the store does not answer");
            let text = format!("{error:?}");
            assert!(text.contains("503") && text.contains("query timed out in "), "{text}");
            assert!(text.contains(bound), "{text}");
            drop(answer);
        }
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
