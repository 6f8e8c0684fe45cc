//! Routes, and the only place where errors become statuses.
//!
//! | path | |
//! | --- | --- |
//! | POST, see [`ingest`] | samples, by any protocol |
//! | GET POST `/api/v1/query`, `/api/v1/query_range` | PromQL |
//! | GET POST `/api/v1/labels`, `/api/v1/series`, `/api/v1/query_exemplars` | labels, series, exemplars |
//! | GET `/api/v1/label/<name>/values`, `/api/v1/metadata`, `/api/v1/status/buildinfo` | label values, metadata, version |
//! | GET `/api/v1/status/active_queries` | queries of the tenant that run or wait |
//! | GET `/api/v1/status/tsdb`, GET POST `/api/v1/cardinality/…` | what takes the most series and label values |
//! | GET POST `/api/v1/export` | all samples of selected series |
//! | GET `/api/v1/user_limits`, `/api/v1/user_stats` | limits of the tenant, and what it uses |
//! | GET `/api/v1/refusals` | what of the tenant was refused of late |
//! | GET `/api/v1/ha_tracker` | the tenant's clusters of replicas |
//! | POST, see [`admin`] | operations |
//! | GET `/metrics`, `/-/healthy`, `/-/ready` (also `/ready`, `/health`) | metrics and health of the node |
//! | GET `/` | the start page, see [`pages`] |
//!
//! The reading paths exist also under `/prometheus` and `/api/prom`.

mod admin;
mod body;
mod browser_guard;
mod error;
mod ingest;
mod json;
mod pages;
mod params;
mod principal;
mod prometheus;
mod recent_refusals;
mod status;
mod tenants;

use crate::limits::gate::Gate;
use crate::listen;
use crate::node::Node;
use crate::refusal::Jitter;
use crate::refusal::{OTHER, REASONS};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use browser_guard::BrowserGuard;
use error::ApiError;
use ingest::WarmDecoders;
use prometheus::query_log::QueryLog;
use prometheus::query_threads::Queries;
use prometheus::running_queries::RunningQueries;
use prometheus::{active_queries, cardinality, export, metadata, query};
use recent_refusals::RecentRefusals;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use stdx::telemetry::{Counter, Histogram, LATENCY_BUCKETS_S, Registry};
use tokio::net::TcpListener;

/// State shared by all handlers.
#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) node: Node,
    /// Thread pool for queries, with its queue.
    pub(crate) queries: Arc<Queries>,
    /// Queries and exports that have passed their gates.
    pub(crate) running: Arc<RunningQueries>,
    /// Where queries are logged when they end.
    pub(crate) query_log: Arc<QueryLog>,
    pub(crate) recent_refusals: Arc<RecentRefusals>,
    /// Gate of running and waiting queries.
    pub(crate) waiting: Gate,
    /// Gate of running exports.
    pub(crate) exporting: Gate,
    /// Held while `/metrics` is rendered.
    pub(crate) rendering: Arc<tokio::sync::Mutex<()>>,
    pub(crate) metrics: Arc<HttpMetrics>,
    pub(crate) decoders: Arc<WarmDecoders>,
}

/// Metrics of the HTTP endpoints.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    pub(crate) writes_ok: Counter,
    pub(crate) writes_invalid: Counter,
    pub(crate) writes_limited: Counter,
    pub(crate) writes_busy: Counter,
    pub(crate) writes_failed: Counter,
    pub(crate) query_seconds: Histogram,
    pub(crate) queries_failed: Counter,
    pub(crate) refusals: Refusals,
    pub(crate) jitter: Jitter,
}

/// Counters of refused requests, by reason.
#[derive(Debug)]
pub(crate) struct Refusals(BTreeMap<&'static str, Counter>);

impl Refusals {
    fn new(r: &Registry) -> Self {
        let counter = |reason| {
            let help = "Requests that were refused, by reason; a partial write counts as one.";
            (reason, r.counter_with("floodmark_refusals_total", help, &[("reason", reason)]))
        };
        Self(REASONS.iter().copied().map(counter).collect())
    }

    pub(crate) fn count(&self, reason: &'static str) {
        let counter = self.0.get(reason);
        debug_assert!(counter.is_some(), "BUG: {reason:?} is not in REASONS");
        counter.unwrap_or(&self.0[OTHER]).inc();
    }
}

/// Limit on waiting queries per query thread.
const QUERIES_WAITING: usize = 64;

impl App {
    fn new(node: Node) -> Self {
        let r = node.registry();
        let answers = |status| {
            r.counter_with(
                "floodmark_http_write_answers_total",
                "Write requests by the class of their answer.",
                &[("status", status)],
            )
        };
        let metrics = HttpMetrics {
            writes_ok: answers("2xx"),
            writes_invalid: answers("4xx"),
            writes_limited: answers("429"),
            writes_busy: answers("503"),
            writes_failed: answers("500"),
            query_seconds: r.histogram(
                "floodmark_query_duration_seconds",
                "Time to evaluate a query, waiting included.",
                &[],
                LATENCY_BUCKETS_S,
            ),
            queries_failed: r.counter("floodmark_query_failures_total", "Queries that ended in an error."),
            refusals: Refusals::new(r),
            jitter: Jitter::default(),
        };
        let concurrency = node.settings().query_concurrency;
        let (settings, clock) = (node.settings(), &node.reads().clock);
        let queries = Arc::new(Queries::start(concurrency));
        let of_queries = |name, help, count: fn(&Queries) -> f64| {
            let queries = Arc::downgrade(&queries);
            r.gauge_fn(name, help, &[], move || queries.upgrade().map_or(0.0, |queries| count(&queries)));
        };
        of_queries("floodmark_queries_waiting", "Queries that wait for a thread.", |queries| {
            queries.waiting_and_running().0 as f64
        });
        of_queries("floodmark_queries_running", "Queries being evaluated.", |queries| {
            queries.waiting_and_running().1 as f64
        });
        of_queries(
            "floodmark_queries_set_back",
            "Queries that the thread for small queries put back into the queue, since the start.",
            |queries| queries.set_back() as f64,
        );
        Self {
            queries,
            running: Arc::new(RunningQueries::new(Arc::clone(clock))),
            query_log: Arc::new(QueryLog::new(settings, Arc::clone(clock), r)),
            recent_refusals: Arc::new(RecentRefusals::new(Arc::clone(clock))),
            waiting: Gate::new(concurrency * QUERIES_WAITING),
            exporting: Gate::new(settings.budget.exports_max(concurrency)),
            rendering: Arc::default(),
            metrics: Arc::new(metrics),
            decoders: Arc::new(WarmDecoders::of(node.writes())),
            node,
        }
    }
}

/// Serves until `stop` resolves; then lets requests in flight finish.
pub async fn serve(node: Node, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
    // if the address is unknown, assume that other machines can reach it
    let address = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    let guard = BrowserGuard::new(address, &node.settings().allow_host);
    let service = router(App::new(node.clone()), guard);
    listen::serve(listener, service, node.settings(), node.registry(), stop).await;
}

fn router(app: App, guard: BrowserGuard) -> Router {
    let changes = ingest::routes()
        .merge(admin::routes())
        .layer(from_fn_with_state(guard.clone(), browser_guard::origin));
    let node = Router::new()
        .route("/", get(pages::index))
        .route("/metrics", get(status::metrics))
        .route("/-/healthy", get(status::healthy))
        .route("/health", get(status::healthy))
        .route("/-/ready", get(status::ready))
        .route("/ready", get(status::ready));
    Router::new()
        .merge(changes)
        .merge(node)
        .merge(reads())
        .nest("/prometheus", reads())
        .nest("/api/prom", reads())
        .fallback(not_found)
        .layer(from_fn_with_state(guard, browser_guard::host))
        .layer(from_fn_with_state(app.clone(), error::finish))
        .with_state(app)
}

fn reads() -> Router<App> {
    Router::new()
        .route("/api/v1/query", get(query::instant).post(query::instant))
        .route("/api/v1/query_range", get(query::range).post(query::range))
        .route("/api/v1/query_exemplars", get(metadata::exemplars).post(metadata::exemplars))
        .route("/api/v1/export", get(export::export).post(export::export))
        .route("/api/v1/labels", get(metadata::label_names).post(metadata::label_names))
        .route("/api/v1/label/{name}/values", get(metadata::label_values))
        .route("/api/v1/series", get(metadata::series).post(metadata::series))
        .route("/api/v1/metadata", get(metadata::metadata))
        .route(
            "/api/v1/cardinality/label_names",
            get(cardinality::label_names).post(cardinality::label_names),
        )
        .route(
            "/api/v1/cardinality/label_values",
            get(cardinality::label_values).post(cardinality::label_values),
        )
        .route(
            "/api/v1/cardinality/active_series",
            get(cardinality::active_series).post(cardinality::active_series),
        )
        .route("/api/v1/status/active_queries", get(active_queries::of_tenant))
        .route("/api/v1/refusals", get(recent_refusals::of_tenant))
        .route("/api/v1/user_limits", get(tenants::limits))
        .route("/api/v1/user_stats", get(tenants::stats))
        .route("/api/v1/ha_tracker", get(tenants::ha_tracker))
        .route("/api/v1/status/buildinfo", get(metadata::buildinfo))
        .route("/api/v1/status/tsdb", get(cardinality::tsdb))
}

async fn not_found(uri: axum::http::Uri) -> ApiError {
    ApiError::new(axum::http::StatusCode::NOT_FOUND, "not_found", format!("no such path: {}", uri.path()))
}
