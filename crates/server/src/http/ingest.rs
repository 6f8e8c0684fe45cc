//! Endpoints that take samples, one module for each protocol.
//!
//! What a new protocol needs: a [`Decoder`] in the crate `protocol`, a module here whose handler calls [`write`] and words
//! the answer, its warm decoders in [`WarmDecoders`], and its route in [`routes`].

mod remote_write;

use super::App;
use super::body::{BodyError, BodyReader};
use super::principal::principal_of;
use crate::ingest::{self, Decoders, Encoded, Unwritten};
use crate::listen::patience::Patience;
use crate::node::Node;
use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::routing::post;
use model::caps::BODY_COMPRESSED_BYTES_MAX;
use protocol::{Decoder, Encoding};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::budget::Reservation;

/// The least that is reserved at a time while a body comes in.
const BODY_STEP_BYTES: usize = 64 << 10;

/// The decoders of each protocol.
#[derive(Debug)]
pub(crate) struct WarmDecoders {
    remote_write: Arc<Decoders<protocol::remote_write::Decoder>>,
}

impl WarmDecoders {
    pub(super) fn of(node: &Node) -> Self {
        let (seed, account) = (node.shared().seed, &node.shared().decoders);
        Self { remote_write: Arc::new(Decoders::new(seed, account.clone())) }
    }
}

/// The paths under which samples are taken.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/write", post(remote_write::remote_write))
        .route("/api/v1/push", post(remote_write::remote_write))
        .route("/api/prom/push", post(remote_write::remote_write))
}

/// Takes in a request of any protocol, and waits until it is durable.
async fn write<D: Decoder>(
    app: &App,
    decoders: &Arc<Decoders<D>>,
    format: D::Format,
    encodings: &'static [Encoding],
    headers: &HeaderMap,
    body: Body,
) -> Result<Outcome, Unwritten> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let encoding = Encoding::negotiate(text(header::CONTENT_ENCODING), encodings).map_err(Refusal::from)?;
    let principal = principal_of(headers)?;
    let declared = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let (bytes, memory) = read_body(app, declared, body).await?;
    let began = Instant::now();
    ingest::admit(&app.node, &principal).await?;
    let request = Encoded { principal, format, encoding, bytes, memory };
    let is_large = request.is_large().map_err(Refusal::from)?;
    app.node.shared().metrics.body_bytes.add(request.bytes.len() as u64);
    // Decoding a large body takes a thread: there is one for each core, whoever asks. Small ones are quick.
    let decoding = match is_large {
        true => {
            Some(Arc::clone(&app.decoding).acquire_owned().await.expect("BUG: the semaphore is never closed"))
        }
        false => None,
    };
    // The gate guards the work, not the wait: a slow sender holds no place while its body trickles in.
    let known = app.writing.enter().ok_or_else(|| too_many("inflight_requests", app.writing.limit()))?;
    let resolved = ingest::resolve(&app.node, decoders, request, decoding, began).await?;
    // A request that creates series may wait long: it must not occupy the gate of known series meanwhile.
    let pass = if resolved.creates() {
        drop(known);
        let pass = app.creating.enter_with(resolved.bytes());
        pass.ok_or_else(|| too_many("creating_requests", app.creating.limit()))?
    } else {
        known
    };
    let stored = ingest::store(&app.node, resolved).await;
    drop(pass);
    stored
}

fn too_many(setting: &'static str, limit: usize) -> Refusal {
    let what = match setting {
        "creating_requests" => {
            "write requests with new series are waiting already, or those waiting fill half of the inflight memory"
        }
        _ => "write requests are being worked on already",
    };
    Refusal::busy(setting, format!("{limit} {what} (setting {setting})"))
}

/// Reads a compressed body, of `declared` bytes where the client says so.
async fn read_body(app: &App, declared: Option<u64>, body: Body) -> Result<(Vec<u8>, Reservation), Refusal> {
    let settings = app.node.settings();
    let timeout = Duration::from_millis(settings.body_timeout_ms);
    let reader = BodyReader {
        account: &app.node.shared().inflight,
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
