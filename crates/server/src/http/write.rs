//! Remote write over HTTP.

use super::App;
use super::error::WriteError;
use super::tenant::tenant_of;
use crate::pipeline;
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
    let answer = accept(&app, &headers, body).await;
    let counter = match &answer {
        Ok((_, outcome)) if outcome.refused_series == 0 => &app.metrics.writes_ok,
        Ok(_) => &app.metrics.writes_invalid,
        Err(refusal) => match refusal.kind {
            ErrorKind::Unavailable => &app.metrics.writes_busy,
            ErrorKind::Internal | ErrorKind::Data => &app.metrics.writes_failed,
            _ => &app.metrics.writes_invalid,
        },
    };
    counter.inc();
    match answer {
        Ok((version, outcome)) => outcome_response(version, &outcome),
        Err(refusal) => WriteError::from(refusal).into_response(),
    }
}

async fn accept(app: &App, headers: &HeaderMap, body: Body) -> Result<(Version, Outcome), Refusal> {
    let tenant = tenant_of(headers)?;
    let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    let version = negotiate(text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING))?;
    let (body, memory) = read_body(app, headers, body).await?;
    // The gate guards the work, not the wait: a slow sender holds no place while its body trickles in.
    let Some(_pass) = app.writing.enter() else {
        let message = format!(
            "{} write requests are being worked on already (setting inflight_requests)",
            app.writing.limit()
        );
        return Err(Refusal::busy("inflight_requests", message));
    };
    let outcome = pipeline::write(&app.node, tenant, version, body, memory).await?;
    Ok((version, outcome))
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
fn outcome_response(version: Version, outcome: &Outcome) -> Response {
    let mut response = match outcome.refused_series {
        0 => StatusCode::NO_CONTENT.into_response(),
        _ => (StatusCode::BAD_REQUEST, refused_text(outcome)).into_response(),
    };
    if version == Version::V2 {
        let written = [
            ("x-prometheus-remote-write-samples-written", outcome.samples),
            ("x-prometheus-remote-write-histograms-written", 0),
            ("x-prometheus-remote-write-exemplars-written", outcome.exemplars),
        ];
        for (name, count) in written {
            response.headers_mut().insert(name, HeaderValue::from(count));
        }
    }
    response
}

fn refused_text(outcome: &Outcome) -> String {
    let mut text = format!(
        "partial write: {} samples stored; {} samples of {} series refused\n",
        outcome.samples, outcome.refused_samples, outcome.refused_series
    );
    for (error, series) in &outcome.errors {
        text.push_str(&format!("{error}: {series}\n"));
    }
    text
}
