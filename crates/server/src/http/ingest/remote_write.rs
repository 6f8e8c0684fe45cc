//! Remote write over HTTP.

use crate::http::App;
use crate::http::error::WriteError;
use crate::http::tenant::tenant_of;
use crate::ingest::submission::Outcome;
use crate::ingest::{self, Unwritten};
use crate::listen::patience::Patience;
use crate::refusal::{Refusal, grow};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use model::ErrorKind;
use model::caps::BODY_COMPRESSED_BYTES_MAX;
use protocol::remote_write::{Version, negotiate};
use std::time::Duration;
use stdx::budget::{Account, Exhausted, Reservation};
use tokio::time::{Instant, timeout_at};

#[cfg(test)]
mod tests;

/// The least that is reserved at a time while a body comes in.
const BODY_STEP_BYTES: usize = 64 << 10;

pub(crate) async fn remote_write(State(app): State<App>, headers: HeaderMap, body: Body) -> Response {
    let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    let version =
        negotiate(text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING)).map_err(Refusal::from);
    let answer = match &version {
        Ok(version) => accept(&app, &headers, *version, body).await,
        Err(refusal) => Err(refusal.clone().into()),
    };
    let counter = match &answer {
        Ok(outcome) if outcome.refused_series == 0 => &app.metrics.writes_ok,
        Ok(_) => &app.metrics.writes_invalid,
        Err(unwritten) => match unwritten.refusal.kind {
            ErrorKind::Unavailable => &app.metrics.writes_busy,
            ErrorKind::Internal | ErrorKind::Data => &app.metrics.writes_failed,
            _ => &app.metrics.writes_invalid,
        },
    };
    counter.inc();
    let (mut response, samples, exemplars) = match answer {
        Ok(outcome) => (outcome_response(&outcome), outcome.samples, outcome.exemplars),
        Err(Unwritten { refusal, samples, exemplars }) => {
            (WriteError(refusal).into_response(), samples, exemplars)
        }
    };
    if version.is_ok_and(|version| version == Version::V2) {
        put_written(&mut response, samples, exemplars);
    }
    response
}

async fn accept(app: &App, headers: &HeaderMap, version: Version, body: Body) -> Result<Outcome, Unwritten> {
    let tenant = tenant_of(headers)?;
    let (body, memory) = read_body(app, headers, body).await?;
    let arrived = ingest::arrive(&app.node, tenant, version, body, memory).await?;
    // Decoding a large body takes a thread: there is one for each core, whoever asks. Small ones are quick.
    let decoding = match arrived.is_large() {
        true => Some(app.decoding.acquire().await.expect("BUG: the semaphore is never closed")),
        false => None,
    };
    // The gate guards the work, not the wait: a slow sender holds no place while its body trickles in.
    let known = app.writing.enter().ok_or_else(|| too_many("inflight_requests", app.writing.limit()))?;
    let resolved = ingest::resolve(&app.node, arrived).await?;
    drop(decoding);
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

/// Reads a body, buying its memory as it comes.
async fn read_body(app: &App, headers: &HeaderMap, body: Body) -> Result<(Vec<u8>, Reservation), Refusal> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if let Some(bytes) = declared
        && bytes > BODY_COMPRESSED_BYTES_MAX as u64
    {
        return Err(too_large(bytes));
    }
    let settings = app.node.settings();
    let timeout = Duration::from_millis(settings.body_timeout_ms);
    let patience = Patience::new(timeout, settings.transfer_rate);
    collect(body, &app.node.shared().inflight, patience).await.map_err(|error| match error {
        Broken::Refused(refusal) => refusal,
        Broken::TooSlow => {
            let message = format!(
                "the body did not arrive within {} s (setting body_timeout) plus the time that its size takes at \
                 {} KiB/s (setting transfer_rate)",
                timeout.as_secs_f64(),
                settings.transfer_rate >> 10
            );
            Refusal::busy("body_timeout", message)
        }
    })
}

/// Why a body was not read to its end.
#[derive(Debug)]
enum Broken {
    Refused(Refusal),
    TooSlow,
}

async fn collect(
    mut body: Body,
    account: &Account,
    mut patience: Patience,
) -> Result<(Vec<u8>, Reservation), Broken> {
    let refused = |full: Exhausted| Broken::Refused(full.into());
    let mut memory = account.reserve(BODY_STEP_BYTES as u64).map_err(refused)?;
    let mut bytes = Vec::new();
    loop {
        let deadline = patience.waits(Instant::now());
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| Broken::TooSlow)?;
        let Some(frame) = frame else { return Ok((bytes, memory)) };
        let frame = frame.map_err(|e| {
            Broken::Refused(Refusal::invalid("body", format!("the body cannot be read: {e}")))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        patience.moved(data.len(), Instant::now());
        make_room(&mut bytes, data.len(), account, &mut memory).map_err(Broken::Refused)?;
        bytes.extend_from_slice(&data);
    }
}

/// Reserves memory for `more` bytes of a body, growing it by at least a quarter.
///
/// Beyond its first step a body leaves a third of the account free: large bodies that never end must not keep small
/// ones out.
fn make_room(
    bytes: &mut Vec<u8>,
    more: usize,
    account: &Account,
    memory: &mut Reservation,
) -> Result<(), Refusal> {
    let len = bytes.len() + more;
    if len > BODY_COMPRESSED_BYTES_MAX {
        return Err(too_large(len as u64));
    }
    if len <= bytes.capacity() {
        return Ok(());
    }
    let old = bytes.capacity();
    let new = len.max(old + old / 4).next_multiple_of(BODY_STEP_BYTES).min(BODY_COMPRESSED_BYTES_MAX);
    // while they move, the old ones and the new ones are there at once
    let held = (old + new) as u64;
    if old > 0 && account.used_bytes() + (held - memory.bytes().min(held)) > account.limit_bytes() / 3 * 2 {
        let full = Exhausted {
            account: account.name(),
            asked_bytes: held,
            used_bytes: account.used_bytes() - memory.bytes(),
            limit_bytes: account.limit_bytes() / 3 * 2,
        };
        return Err(full.into());
    }
    grow(memory, held)?;
    bytes.reserve_exact(new - bytes.len());
    grow(memory, new as u64)
}

fn too_large(bytes: u64) -> Refusal {
    let message =
        format!("body of {bytes} bytes or more is too large, the limit is {BODY_COMPRESSED_BYTES_MAX}");
    Refusal::too_large("body_size", message)
}

/// 204, or 400 where parts were left out: the sender must not send those again, and the rest is stored.
fn outcome_response(outcome: &Outcome) -> Response {
    if outcome.refused_series == 0 {
        return StatusCode::NO_CONTENT.into_response();
    }
    WriteError(Refusal::invalid("partial_write", outcome.report().trim_end())).into_response()
}

/// Headers that remote write 2.0 requires in every answer: how much of the request is durable.
fn put_written(response: &mut Response, samples: u64, exemplars: u64) {
    let written = [
        ("x-prometheus-remote-write-samples-written", samples),
        ("x-prometheus-remote-write-histograms-written", 0),
        ("x-prometheus-remote-write-exemplars-written", exemplars),
    ];
    for (name, count) in written {
        response.headers_mut().insert(name, HeaderValue::from(count));
    }
}
