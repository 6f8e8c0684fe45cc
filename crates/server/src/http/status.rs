//! Liveness, readiness and metrics of the node.

use super::App;
use super::error::WriteError;
use super::ingest::influx;
use super::json::Json;
use super::principal::AdminReach;
use crate::auth::Reach;
use crate::refusal::Refusal;
use crate::telemetry::tenants::METRICS_OF_TENANTS;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use model::TenantId;
use stdx::telemetry::Reading;

pub(super) const READY_PATHS: [&str; 6] =
    ["/-/ready", "/ready", "/lb_check", "/lb_check/", "/graphite/lb_check", "/graphite/lb_check/"];

/// Liveness check: succeeds as long as the process answers.
pub(crate) async fn healthy() -> &'static str {
    "Floodmark is healthy.\n"
}

/// Like [`healthy`]. Clients of InfluxDB ask for JSON on this path.
pub(crate) async fn health(headers: HeaderMap) -> Response {
    if influx::wants_json(&headers) { influx::health().await } else { healthy().await.into_response() }
}

/// Readiness check: succeeds after replay has ended, until the node is stopped.
pub(crate) async fn ready(State(app): State<App>) -> Response {
    match (app.node.is_ready(), app.node.readiness().is_stopping()) {
        (true, _) => "Floodmark is ready.\n".into_response(),
        (_, true) => WriteError(Refusal::stopping()).into_response(),
        _ => WriteError(app.node.reads().partitions.replaying()).into_response(),
    }
}

/// Renders the node's metrics, without the rows of tenants that the caller does not reach.
pub(super) async fn metrics(State(app): State<App>, AdminReach(reach): AdminReach) -> Response {
    // A client may send hundreds of requests at once on one connection, and hyper would answer all of them
    // without a pause. Other tasks run while this one yields. Because of the lock, only one client at a time
    // can keep a worker busy.
    let _one_at_a_time = app.rendering.lock().await;
    tokio::task::yield_now().await;
    let render = |is_shown: &dyn Fn(&Reading<'_>) -> bool| {
        app.node.registry().render_if(|reading| is_within(&reach, reading) && is_shown(reading))
    };
    // A client may read slowly, and with a thousand tenants, the text has hundreds of kilobytes. So these answers have the share of
    // all tenants without data. Without their rows, the text is small, and monitoring must not end when memory is short.
    let mut answer = Json::within(app.node.writes().tenants.answers_without_data());
    answer.raw(&render(&|_| true));
    let mut response = match answer.finish() {
        Ok(answer) => answer.into_response(),
        Err(_) => render(&|reading| !reading.name.starts_with(METRICS_OF_TENANTS)).into_response(),
    };
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, format);
    response
}

/// True unless the row is that of a tenant that the caller does not reach.
fn is_within(reach: &Reach, reading: &Reading<'_>) -> bool {
    let fixed = reading.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut tenant = fixed.chain(reading.extra).filter(|(name, _)| *name == "tenant");
    // the rows of all other tenants together have no name in the label
    let is_other = |name: &str| TenantId::parse(name).is_ok_and(|tenant| !reach.includes(&tenant));
    reach.is_everything() || !tenant.any(|(_, name)| is_other(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_path::tests::small_node;
    use std::cell::Cell;

    #[tokio::test(flavor = "current_thread")]
    async fn scrapes_of_metrics_yield_to_other_tasks() {
        const REQUESTS: usize = 20;
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        let app = App::new(node.clone());
        let turns = Cell::new(0);
        let reach = Reach::everything(&"anyone".into());
        let scrapes = async {
            for _ in 0..REQUESTS {
                let answer = metrics(State(app.clone()), AdminReach(reach.clone())).await;
                assert_eq!(answer.status(), 200);
            }
            turns.get()
        };
        let other = async {
            loop {
                tokio::task::yield_now().await;
                turns.set(turns.get() + 1);
            }
        };
        tokio::select! {
            biased;
            others_turns = scrapes => assert!(others_turns >= REQUESTS - 1, "{others_turns} turns"),
            () = other => {}
        }
        node.stop();
    }
}
