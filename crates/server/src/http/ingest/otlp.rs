//! OpenTelemetry's metrics over HTTP (OTLP). Logs and traces are in [`super::otlp_records`].
//!
//! A request that is accepted at least in part gets a 200, and the answer says what was left out: a sender must not send
//! such a request again. All other answers are a `google.rpc.Status`. Answers are in protobuf or in JSON, like the request.

use super::write;
use crate::http::App;
use crate::http::error::{WriteError, answer_of_refused, partly_refused, rpc_code};
use crate::http::principal::RequestPrincipal;
use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use protocol::otlp::answer::Items;
use protocol::otlp::{ENCODINGS, Format, Media, answer};
use std::sync::Arc;

/// The paths that senders use: by default, and those of Prometheus, Cortex, Mimir and VictoriaMetrics.
pub(super) const PATHS: [&str; 5] = [
    "/v1/metrics",
    "/otlp/v1/metrics",
    "/api/v1/otlp/v1/metrics",
    "/opentelemetry/v1/metrics",
    "/opentelemetry/api/v1/push",
];

pub(super) async fn metrics(
    State(app): State<App>,
    principal: RequestPrincipal,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let media = match media_of(&headers) {
        Ok(media) => media,
        Err(refusal) => return WriteError(refusal).into_response(),
    };
    let settings = app.node.overrides().current();
    let translation = Arc::clone(&settings.of(&principal.0.tenant).otlp);
    let format = Format::new(media, translation);
    match write(&app, &app.decoders.otlp, format, ENCODINGS, principal, &headers, body).await {
        Ok(outcome) => {
            app.node.writes().metrics.converted_points.add(outcome.converted_points);
            success(media, &outcome, |answer| response_in(media, answer))
        }
        Err(unwritten) => WriteError(unwritten.refusal).into_response(),
    }
}

pub(super) fn media_of(headers: &HeaderMap) -> Result<Media, Refusal> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Ok(Media::of(content_type)?)
}

/// Answers a request that was stored at least in part. `response_of` puts the answer into a response.
pub(super) fn success(
    media: Media,
    outcome: &Outcome,
    response_of: impl FnOnce(Vec<u8>) -> Response,
) -> Response {
    let Outcome { refused_series, refused_exemplars, converted_points, .. } = outcome;
    let mut message = String::new();
    if *refused_series > 0 {
        message.push_str(outcome.report().trim_end());
    }
    let mut remark = |text: String| {
        if !message.is_empty() {
            message.push('\n');
        }
        message.push_str(&text);
    };
    if *refused_exemplars > 0 {
        remark(format!("{refused_exemplars} exemplars left out, because they are not valid"));
    }
    if *converted_points > 0 {
        remark(format!(
            "{converted_points} points of exponential histograms stored as classic histograms (setting otlp_buckets)"
        ));
    }
    let response = response_of(answer::success(media, Items::Points, rejected_points(outcome), &message));
    match refused_series {
        0 => response,
        _ => {
            let refusal = Refusal::invalid("partial_write", message);
            partly_refused(response, refusal.with_series(outcome.first_refused()))
        }
    }
}

/// Returns how many points were rejected. The decoder counts refused points. What was refused later is counted in samples,
/// of which a point may have several, so the result may be too large, but is never more than there were points.
fn rejected_points(outcome: &Outcome) -> u64 {
    let Outcome { points, refused_samples, unreadable_samples, .. } = outcome;
    (*refused_samples).min((*points).max(*unreadable_samples))
}

/// Gives every error the form of its request, including those from before the handler.
pub(super) async fn answer_in_kind(request: Request, next: Next) -> Response {
    let media = media_of(request.headers());
    let response = next.run(request).await;
    let Ok(media) = media else { return response };
    let Some(message) = answer_of_refused(&response) else { return response };
    let status = answer::status(media, rpc_code(response.status()), message);
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media.content_type()));
    Response::from_parts(parts, Body::from(status))
}

pub(super) fn response_in(media: Media, answer: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(answer));
    let content_type = HeaderValue::from_static(media.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
