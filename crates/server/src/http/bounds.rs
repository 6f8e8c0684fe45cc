//! Bounds on work that answers a reading request: how much of it at once, for how long, with how much memory.

use super::App;
use super::error::ApiError;
use super::json::Json;
use axum::http::StatusCode;
use query::Options;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often something begins again that ran for so long that its samples moved on.
pub(super) const TRIES_MAX: usize = 4;

/// Waits for a replay to end, for a while: half of the series would be an answer that looks whole.
pub(super) async fn wait_for_all_series(app: &App) -> Result<(), ApiError> {
    crate::pipeline::wait_for_replay(&app.node).await;
    match app.node.is_ready() || app.node.is_stopping() {
        true => Ok(()),
        false => Err(ApiError::unavailable(app.node.shared().replaying().message)),
    }
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
pub(super) async fn within(
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
    wait_for_all_series(app).await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::tests::node_with;

    /// A store that does not answer in time: the client is answered, and the thread ends when the store does.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_query_that_waits_for_a_store_or_for_its_turn_ends_with_its_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |settings| settings.query_timeout_ms = 1).await;
        let app = App::new(node.clone());
        let all = app.node.settings().query_concurrency as u32;
        for is_busy in [false, true] {
            let places = is_busy.then(|| Arc::clone(&app.querying).try_acquire_many_owned(all).unwrap());
            let place = if is_busy { "query queue" } else { "expression evaluation" };
            for (allowed, bound) in
                [(None, "setting query_timeout"), (Some(Duration::ZERO), "parameter timeout")]
            {
                let (answer, answered) = std::sync::mpsc::channel::<()>();
                let work = move |_: &App, _: &AtomicBool| {
                    let _ = answered.recv(); // the store
                    Err(ApiError::unavailable("nobody hears it"))
                };
                let error = within(&app, allowed, work).await.expect_err("the store does not answer");
                let text = format!("{error:?}");
                assert!(text.contains("503") && text.contains(place) && text.contains(bound), "{text}");
                drop(answer);
                while !is_busy && app.querying.available_permits() < all as usize {
                    tokio::task::yield_now().await; // until the thread has ended
                }
            }
            drop(places);
        }
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
