//! Remote write over HTTP.

use super::App;
use super::error::WriteError;
use super::tenant::tenant_of;
use crate::pipeline::{self, Unwritten};
use crate::refusal::{Refusal, grow};
use crate::submission::Outcome;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use model::ErrorKind;
use model::caps::BODY_COMPRESSED_BYTES_MAX;
use protocol::remote_write::{Version, negotiate};
use std::time::Duration;
use stdx::budget::Reservation;

/// Bytes that are reserved at a time while a body comes in.
const BODY_STEP_BYTES: u64 = 64 << 10;

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
    // The gate guards the work, not the wait: a slow sender holds no place while its body trickles in.
    let Some(_pass) = app.writing.enter() else {
        let message = format!(
            "{} write requests are being worked on already (setting inflight_requests)",
            app.writing.limit()
        );
        return Err(Refusal::busy("inflight_requests", message).into());
    };
    pipeline::write(&app.node, tenant, version, body, memory).await
}

/// Reads a body, buying its memory as it comes.
async fn read_body(app: &App, headers: &HeaderMap, body: Body) -> Result<(Vec<u8>, Reservation), Refusal> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if let Some(bytes) = declared
        && bytes > BODY_COMPRESSED_BYTES_MAX as u64
    {
        return Err(too_large(bytes));
    }
    let memory = app.node.shared().inflight.reserve(BODY_STEP_BYTES)?;
    let timeout = Duration::from_millis(app.node.settings().body_timeout_ms);
    tokio::time::timeout(timeout, collect(body, memory)).await.map_err(|_| {
        let message =
            format!("the body did not arrive within {} s (setting body_timeout)", timeout.as_secs_f64());
        Refusal::busy("body_timeout", message)
    })?
}

async fn collect(mut body: Body, mut memory: Reservation) -> Result<(Vec<u8>, Reservation), Refusal> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Refusal::invalid("body", format!("the body cannot be read: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let len = bytes.len() + data.len();
        if len > BODY_COMPRESSED_BYTES_MAX {
            return Err(too_large(len as u64));
        }
        if len as u64 > memory.bytes() {
            grow(&mut memory, (len as u64).next_multiple_of(BODY_STEP_BYTES) * 2)?;
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, memory))
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

/// What 2.0 wants to hear with every answer: what of the request is durable.
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
