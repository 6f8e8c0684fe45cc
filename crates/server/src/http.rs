//! The HTTP API: routes and the state of their handlers. Only this module knows statuses; [`error`] maps errors
//! to them.
//!
//! | path | |
//! | --- | --- |
//! | POST, see [`ingest`] | samples, by any protocol |
//! | GET POST `/api/v1/query`, `/api/v1/query_range` | PromQL |
//! | GET POST `/api/v1/labels`, `/api/v1/series`, `/api/v1/query_exemplars` | labels, series, exemplars |
//! | GET `/api/v1/label/<name>/values`, `/api/v1/metadata`, `/api/v1/status/buildinfo` | label values, metadata, version |
//! | GET POST `/api/v1/sql` | SQL |
//! | GET `/api/v1/status/active_queries` | queries of the tenant that run or wait |
//! | GET `/api/v1/status/tsdb`, GET POST `/api/v1/cardinality/…` | metrics and labels with the most series and values |
//! | GET POST `/api/v1/export` | all samples of selected series |
//! | GET `/api/v1/user_limits`, `/api/v1/user_stats` | the tenant's limits and their use |
//! | GET `/api/v1/refusals` | recently refused requests of the tenant |
//! | GET `/api/v1/ha_tracker` | the tenant's clusters and elected replicas |
//! | POST, see [`admin`] | operations |
//! | GET `/_license`, `/elasticsearch/…` and others, see [`ingest::elastic`] | what clients of Elasticsearch ask before they write |
//! | GET POST `/query`, GET `/ping`, `/influx/…`, see [`ingest::influx`] | what clients of InfluxDB ask before they write |
//! | GET POST `/render`, `/metrics/…`, `/events`, see [`graphite`] | Graphite's API for readers, and events |
//! | GET `/metrics`, `/-/healthy`, `/-/ready` (also `/ready`, `/health`) | metrics and health of the node |
//! | GET `/` | the start page, see [`pages`] |
//!
//! With the setting `admin_listen`, a separate listener serves operations.
//!
//! Prometheus' reading paths also exist under `/prometheus` and `/api/prom`, Graphite's under `/graphite`. Each group of routes requires one
//! [`Access`]. Health and the start page are open to everyone.

mod admin;
mod body;
mod browser_guard;
mod deleting;
mod error;
mod graphite;
mod ingest;
mod json;
mod limit_rows;
mod pages;
mod params;
mod principal;
mod prometheus;
mod queries;
pub(crate) mod recent_refusals;
#[cfg(feature = "sql")]
mod sql;
mod status;
mod tenant_status;

use crate::audit::Audit;
use crate::auth::Access;
use crate::limits::gate::Gate;
use crate::listen::lines::new_series_queue::NewSeriesQueue;
use crate::listen::{Connections, PendingHandshakes};
use crate::node::Node;
use crate::refusal::Jitter;
use crate::refusal::{OTHER, REASONS};
use crate::settings::AdminListen;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get};
use browser_guard::BrowserGuard;
use error::ApiError;
use ingest::WarmDecoders;
use queries::query_log::QueryLog;
use queries::query_threads::Queries;
use queries::running_queries::RunningQueries;
use recent_refusals::RecentRefusals;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use stdx::telemetry::{Counter, Histogram, LATENCY_BUCKETS_S, Registry};

/// What all requests have in common. It is cloned several times for each request, which one pointer makes cheap.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Parts>);

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) node: Node,
    pub(crate) queries: Arc<Queries>,
    pub(crate) running: Arc<RunningQueries>,
    pub(crate) query_log: Arc<QueryLog>,
    pub(crate) recent_refusals: Arc<RecentRefusals>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) new_series_queue: Arc<NewSeriesQueue>,
    /// The connections of the main listener, once it exists.
    pub(crate) connections: OnceLock<Connections>,
    pub(crate) handshakes: PendingHandshakes,
    /// Those of gRPC are bounded separately, because it has fewer connections.
    pub(crate) grpc_handshakes: PendingHandshakes,
    pub(crate) waiting: Gate,
    pub(crate) exporting: Gate,
    pub(crate) deleting: Gate,
    pub(crate) rendering: Arc<tokio::sync::Mutex<()>>,
    pub(crate) metrics: Arc<HttpMetrics>,
    pub(crate) decoders: Arc<WarmDecoders>,
}

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

#[derive(Debug)]
pub(crate) struct Refusals(BTreeMap<&'static str, Counter>);

impl Refusals {
    fn new(r: &Registry) -> Self {
        let counter = |reason| {
            let help = "Refused requests by reason; a partial write counts as one.";
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

const QUERIES_WAITING: usize = 64;

impl App {
    pub(crate) fn new(node: Node) -> Self {
        let r = node.registry();
        let answers = |status| {
            r.counter_with(
                "floodmark_http_write_answers_total",
                "Write requests by class of HTTP status.",
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
                "Duration of queries in seconds, including waiting.",
                &[],
                LATENCY_BUCKETS_S,
            ),
            queries_failed: r.counter("floodmark_query_failures_total", "Queries that ended in an error."),
            refusals: Refusals::new(r),
            jitter: Jitter::default(),
        };
        let concurrency = node.settings().query_concurrency;
        let (settings, clock) = (node.settings(), &node.reads().clock);
        let queries = Arc::new(Queries::start(concurrency, Arc::clone(clock)));
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
        let counted = Arc::downgrade(&queries);
        r.counter_fn(
            "floodmark_query_set_back_total",
            "Queries that the small-query thread returned to the queue, because they took too long or needed to read files.",
            move || counted.upgrade().map_or(0.0, |queries| queries.set_back() as f64),
        );
        Self(Arc::new(Parts {
            queries,
            running: Arc::new(RunningQueries::new(Arc::clone(clock))),
            query_log: Arc::new(QueryLog::new(settings, Arc::clone(clock), r)),
            recent_refusals: Arc::new(RecentRefusals::new(Arc::clone(clock))),
            audit: Arc::new(Audit::new(Arc::clone(clock))),
            new_series_queue: Arc::new(NewSeriesQueue::new(&node.writes().inflight, node.budget())),
            connections: OnceLock::new(),
            handshakes: PendingHandshakes::among(settings.connections_max),
            grpc_handshakes: PendingHandshakes::among(settings.otlp_grpc.connections_max),
            waiting: Gate::new(concurrency * QUERIES_WAITING),
            exporting: Gate::of_few(settings.budget.exports_max(concurrency)),
            deleting: Gate::of_few(deleting::DELETES_MAX),
            rendering: Arc::default(),
            metrics: Arc::new(metrics),
            decoders: Arc::new(WarmDecoders::of(node.writes())),
            node,
        }))
    }
}

fn for_access(app: &App, access: Access, routes: Router<App>) -> Router<App> {
    routes.route_layer(from_fn_with_state((app.clone(), access), principal::identify))
}

fn admin_routes(app: &App) -> Router<App> {
    let of_tenants = for_access(app, Access::TenantAdmin, admin::tenant_routes());
    for_access(app, Access::Admin, admin::routes()).merge(of_tenants)
}

/// Router of the main listener at `address`. Includes administration unless a separate listener serves it.
pub(crate) fn router(app: App, address: SocketAddr) -> Router {
    let settings = app.node.settings();
    let guard = BrowserGuard::new(address, &settings.allow_host);
    let writes = ingest::routes(&app, |routes| for_access(&app, Access::Write, routes));
    let events = for_access(&app, Access::Write, graphite::write_routes());
    let writes = writes.merge(events.clone()).nest("/graphite", events);
    let changes = match settings.admin_listen {
        AdminListen::Same => writes.merge(admin_routes(&app)),
        // without these, the paths would be those of tags
        AdminListen::At(_) | AdminListen::Nowhere => {
            graphite::DELETES.into_iter().fold(writes, |routes, path| routes.route(path, any(not_found)))
        }
    };
    let changes = changes.layer(from_fn_with_state((app.clone(), guard.clone()), browser_guard::origin));
    let reads = for_access(&app, Access::Read, reads(&app));
    let graphite = for_access(&app, Access::Read, graphite::routes());
    let routes = node_routes(&app)
        .merge(pages::routes())
        .merge(ingest::open_routes())
        .merge(changes)
        .merge(reads.clone())
        .nest("/prometheus", reads.clone())
        .nest("/api/prom", reads)
        .merge(graphite.clone())
        .nest("/graphite", graphite)
        .merge(graphite::open_routes())
        .nest("/graphite", graphite::open_routes())
        .fallback(not_found);
    finished(app, guard, routes)
}

pub(crate) fn admin_router(app: App, address: SocketAddr) -> Router {
    let guard = BrowserGuard::new(address, &app.node.settings().allow_host);
    let changes = admin_routes(&app);
    let changes = changes.layer(from_fn_with_state((app.clone(), guard.clone()), browser_guard::origin));
    let routes = node_routes(&app).merge(changes).fallback(not_administration);
    finished(app, guard, routes)
}

/// Router of OpenTelemetry's gRPC.
pub(crate) fn grpc_router(app: App) -> Router {
    ingest::grpc_router(app)
}

fn node_routes(app: &App) -> Router<App> {
    let metrics = Router::new().route("/metrics", get(status::metrics));
    for_access(app, Access::Metrics, metrics)
        .route("/-/healthy", get(status::healthy))
        .route("/health", get(status::health))
        .route("/-/ready", get(status::ready))
        .route("/ready", get(status::ready))
}

fn finished(app: App, guard: BrowserGuard, routes: Router<App>) -> Router {
    routes
        .layer(from_fn_with_state((app.clone(), guard), browser_guard::host))
        .layer(from_fn_with_state(app.clone(), error::middleware::finish))
        .with_state(app)
}

fn reads(app: &App) -> Router<App> {
    prometheus::routes()
        .merge(queries::routes())
        .merge(sql_routes(app))
        .route("/api/v1/refusals", get(recent_refusals::of_tenant))
        .route("/api/v1/user_limits", get(tenant_status::limits))
        .route("/api/v1/user_stats", get(tenant_status::stats))
        .route("/api/v1/ha_tracker", get(tenant_status::ha_tracker))
}

fn sql_routes(#[cfg_attr(not(feature = "sql"), expect(unused_variables))] app: &App) -> Router<App> {
    #[cfg(feature = "sql")]
    if app.node.settings().sql {
        return sql::routes();
    }
    let message = if cfg!(feature = "sql") {
        "SQL is switched off; start with --sql true"
    } else {
        "this program was built without SQL (Cargo's feature sql, which is on by default)"
    };
    let refuse = move || std::future::ready(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
    Router::new().route("/api/v1/sql", any(refuse))
}

async fn not_found(State(app): State<App>, uri: Uri) -> ApiError {
    let path = uri.path();
    let message = match app.node.settings().admin_listen {
        AdminListen::At(address) if admin::is_path(path) => {
            format!("{path} is not served here but at {address} (setting admin_listen)")
        }
        AdminListen::Nowhere if admin::is_path(path) => {
            format!("{path} is not served (setting admin_listen)")
        }
        _ => format!("no such path: {path}"),
    };
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn not_administration(State(app): State<App>, uri: Uri) -> ApiError {
    let (path, http) = (uri.path(), app.node.settings().http);
    let message = format!(
        "no such path: {path}; this address serves only administration; all other paths are at {http}"
    );
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}
