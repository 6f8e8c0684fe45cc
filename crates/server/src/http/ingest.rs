//! Endpoints that receive samples, one module for each protocol.
//!
//! | path | |
//! | --- | --- |
//! | POST `/api/v1/write`, `/api/v1/push`, `/api/prom/push`, `/api/v1/receive` | remote write 1.0 and 2.0 |
//! | POST `/v1/metrics` and four other paths | OpenTelemetry's metrics |
//! | POST `/v1/logs`, `/v1/traces` and three other paths each | OpenTelemetry's logs and traces, see [`otlp_records`] |
//! | `Export` of three services, over gRPC | OpenTelemetry's metrics, logs and traces |
//! | POST `/api/v1/graphite` | Graphite's plaintext protocol, pickles and protobuf messages |
//! | POST `/api/v1/import` and others, see [`import`] | lines of JSON or text, and tables |
//! | POST `/api/v1/streams/NAME` | records, see [`streams`] |
//! | POST `/_bulk` and others, see [`elastic`] | documents of Elasticsearch, as records |
//! | POST `/loki/api/v1/push` | entries of Loki, as records, see [`loki`] |
//! | POST `/write`, `/api/v2/write` and others, see [`influx`] | Influx' line protocol |
//!
//! A new protocol needs a [`Decoder`] in the crate `protocol`, a handler here that calls [`write`], decoders in
//! [`WarmDecoders`], and a route in [`routes`]. One for records calls [`records::store`] instead.

pub(super) mod elastic;
mod graphite;
mod grpc;
mod import;
pub(super) mod influx;
mod loki;
mod otlp;
mod otlp_records;
mod records;
mod remote_write;
mod streams;

pub(super) use grpc::router as grpc_router;

use super::body::{BodyError, BodyReader};
use super::error::{PARTIAL_WRITE, WriteError};
use super::principal::RequestPrincipal;
use super::{App, HttpMetrics};
use crate::listen::patience::Patience;
use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use crate::settings::LimitStatus;
use crate::write_path::{self, Decoders, Encoded, Unwritten};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use model::caps::BODY_COMPRESSED_BYTES_MAX;
use model::{ErrorKind, Principal, TenantId};
use protocol::{Decoder, Encoding};
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, Reservation};

/// Memory for a body is reserved in steps of at least this size, as its bytes arrive.
const BODY_STEP_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct WarmDecoders {
    graphite: Arc<Decoders<protocol::graphite::Decoder>>,
    graphite_pickle: Arc<Decoders<protocol::graphite::pickle::Decoder>>,
    graphite_protobuf: Arc<Decoders<protocol::graphite::protobuf::Decoder>>,
    influx: Arc<Decoders<protocol::influx::Decoder>>,
    json_lines: Arc<Decoders<protocol::jsonl::Decoder>>,
    text: Arc<Decoders<protocol::exposition::Decoder>>,
    csv: Arc<Decoders<protocol::csv::Decoder>>,
    otlp: Arc<Decoders<protocol::otlp::Decoder>>,
    remote_write: Arc<Decoders<protocol::remote_write::Decoder>>,
}

impl WarmDecoders {
    pub(super) fn of(context: &write_path::Context) -> Self {
        let (seed, account) = (context.seed, &context.decoders);
        Self {
            graphite: Arc::new(Decoders::new(seed, account.clone())),
            graphite_pickle: Arc::new(Decoders::new(seed, account.clone())),
            graphite_protobuf: Arc::new(Decoders::new(seed, account.clone())),
            influx: Arc::new(Decoders::new(seed, account.clone())),
            json_lines: Arc::new(Decoders::new(seed, account.clone())),
            text: Arc::new(Decoders::new(seed, account.clone())),
            csv: Arc::new(Decoders::new(seed, account.clone())),
            otlp: Arc::new(Decoders::new(seed, account.clone())),
            remote_write: Arc::new(Decoders::new(seed, account.clone())),
        }
    }
}

/// Routes of the write endpoints. `identified` wraps them so that only callers with the right to write get
/// through.
pub(super) fn routes(app: &App, identified: impl Fn(Router<App>) -> Router<App>) -> Router<App> {
    let graphite = Router::new().route("/api/v1/graphite", post(graphite::graphite));
    let records = Router::new()
        .route("/api/v1/streams/{name}", post(streams::records))
        .route("/loki/api/v1/push", post(loki::push));
    let plain = graphite.merge(import::routes()).merge(records);
    let remote_write = Router::new()
        .route("/api/v1/write", post(remote_write::remote_write))
        .route("/api/v1/push", post(remote_write::remote_write))
        .route("/api/prom/push", post(remote_write::remote_write))
        .route("/api/v1/receive", post(remote_write::remote_write));
    let remote_write = identified(remote_write).route_layer(from_fn(remote_write::report_nothing_written));
    let at = |routes: Router<App>, path| routes.route(path, post(otlp::metrics));
    let otlp = otlp::PATHS.into_iter().fold(Router::new(), at);
    let otlp = identified(otlp.merge(otlp_records::routes())).route_layer(from_fn(otlp::answer_in_kind));
    let metrics = Arc::clone(&app.metrics);
    let writes = identified(plain).merge(otlp).merge(remote_write).merge(influx::write_routes(&identified));
    let writes = writes.merge(elastic::write_routes(&identified));
    let writes = writes.route_layer(map_response(move |answer| {
        let metrics = Arc::clone(&metrics);
        async move { count(&metrics, answer) }
    }));
    writes.merge(elastic::start_routes(&identified)).merge(influx::query_routes(identified))
}

/// Routes that are open to everyone.
pub(super) fn open_routes() -> Router<App> {
    influx::open_routes().merge(elastic::open_routes())
}

async fn write<D: Decoder>(
    app: &App,
    decoders: &Arc<Decoders<D>>,
    format: D::Format,
    encodings: &'static [Encoding],
    RequestPrincipal(principal): RequestPrincipal,
    headers: &HeaderMap,
    body: Body,
) -> Result<Outcome, Unwritten> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let encoding = Encoding::negotiate(text(header::CONTENT_ENCODING), encodings).map_err(Refusal::from)?;
    let declared = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let received = receive(app, &principal.tenant, declared, body).await?;
    store(app, decoders, format, encoding, principal, received).await
}

/// The bytes of a body, and the reservation for them.
type Received = (Vec<u8>, Reservation);

/// Reads a compressed body. `declared` is its length according to the client, if the client gave one.
async fn receive(
    app: &App,
    tenant: &TenantId,
    declared: Option<u64>,
    body: Body,
) -> Result<Received, Refusal> {
    let settings = app.node.overrides().current();
    let state = app.node.writes().tenant(tenant);
    read_body(app, state.inflight(settings.of(tenant)), declared, body).await
}

async fn store<D: Decoder>(
    app: &App,
    decoders: &Arc<Decoders<D>>,
    format: D::Format,
    encoding: Encoding,
    principal: Principal,
    (bytes, memory): Received,
) -> Result<Outcome, Unwritten> {
    // the gates are entered after the body has arrived, so that slow senders do not occupy places in them
    let limit_status = app.node.overrides().current().of(&principal.tenant).limit_status;
    let request = Encoded { principal, format, encoding, bytes: bytes.into(), memory };
    let mut answer = write_path::write(app.node.writes(), decoders, request).await;
    if let Err(Unwritten { refusal, .. }) = &mut answer {
        apply_limit_status(refusal, limit_status);
    }
    answer
}

/// Lets a refusal that is due to a limit of the tenant have the status that the tenant wants.
pub(super) fn apply_limit_status(refusal: &mut Refusal, limit_status: LimitStatus) {
    if refusal.kind == ErrorKind::Limited && limit_status == LimitStatus::Unavailable {
        refusal.kind = ErrorKind::Unavailable;
    }
}

/// Answers 204, or 400 if some samples were refused. The others are stored, so the sender must not send the
/// request again.
fn outcome_response(outcome: &Outcome) -> Response {
    if outcome.refused_series == 0 {
        return StatusCode::NO_CONTENT.into_response();
    }
    let refusal = Refusal::invalid(PARTIAL_WRITE, outcome.report().trim_end());
    WriteError(refusal.with_series(outcome.first_refused())).into_response()
}

fn count(metrics: &HttpMetrics, answer: Response) -> Response {
    let counter = match answer.status() {
        StatusCode::SERVICE_UNAVAILABLE => &metrics.writes_busy,
        StatusCode::TOO_MANY_REQUESTS => &metrics.writes_limited,
        status if status.is_success() => &metrics.writes_ok,
        status if status.is_server_error() => &metrics.writes_failed,
        _ => &metrics.writes_invalid,
    };
    counter.inc();
    answer
}

async fn read_body(
    app: &App,
    account: &Account,
    declared: Option<u64>,
    body: Body,
) -> Result<(Vec<u8>, Reservation), Refusal> {
    let settings = app.node.settings();
    let timeout = Duration::from_millis(settings.body_timeout_ms);
    let reader = BodyReader {
        account,
        bytes_max: BODY_COMPRESSED_BYTES_MAX,
        step_bytes: BODY_STEP_BYTES,
        patience: Patience::new(timeout, settings.transfer_rate),
    };
    let read = match declared {
        Some(bytes) if bytes > BODY_COMPRESSED_BYTES_MAX as u64 => Err(BodyError::TooLarge(bytes)),
        _ => reader.read(body).await,
    };
    read.map_err(|error| {
        error.refusal(BODY_COMPRESSED_BYTES_MAX, timeout.as_secs_f64(), settings.transfer_rate)
    })
}
