//! OpenTelemetry's logs and traces over HTTP (OTLP). Each log record, and each span, becomes a record of a stream.
//!
//! As for metrics, a request that could be decoded gets a 200, and the answer says what was left out. Other answers are a
//! `google.rpc.Status`.

use super::apply_limit_status;
use super::otlp::{media_of, response_in};
use super::records::{self, Options, Outcome, Overflow, Received};
use crate::http::App;
use crate::http::error::{WriteError, partly_refused};
use crate::http::principal::RequestPrincipal;
use crate::refusal::Refusal;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use model::Principal;
use protocol::Encoding;
use protocol::otlp::answer::{self, Items};
use protocol::otlp::{ENCODINGS, Media};
use protocol::records::otlp::{Signal, decode};
use protocol::records::{Refusals, StreamsRequest, stream_name};
use std::fmt::Write as _;
use stdx::budget::Reservation;

/// The paths that senders use: by default, and with the prefixes of Prometheus, Cortex, Mimir, Loki and VictoriaMetrics.
const LOGS: [&str; 4] = ["/v1/logs", "/otlp/v1/logs", "/api/v1/otlp/v1/logs", "/opentelemetry/v1/logs"];
const TRACES: [&str; 4] =
    ["/v1/traces", "/otlp/v1/traces", "/api/v1/otlp/v1/traces", "/opentelemetry/v1/traces"];

/// A body is decoded in place if it has at most this many bytes. Its records can have much more: the values of a resource are
/// copied for each of them, so that half a body of this size can be copied a thousand times.
pub(super) const INLINE_BYTES_MAX: usize = 4 << 10;

pub(super) fn routes() -> Router<App> {
    let at = |routes: Router<App>, (signal, path): (Signal, &'static str)| {
        let handler = move |State(app): State<App>,
                            RequestPrincipal(principal): RequestPrincipal,
                            headers: HeaderMap,
                            body: Body| async move {
            let stored = over_http(&app, &principal, signal, &headers, body).await;
            stored.unwrap_or_else(|refusal| WriteError(refusal).into_response())
        };
        routes.route(path, post(handler))
    };
    let logs = LOGS.map(|path| (Signal::Logs, path));
    let traces = TRACES.map(|path| (Signal::Traces, path));
    logs.into_iter().chain(traces).fold(Router::new(), at)
}

async fn over_http(
    app: &App,
    principal: &Principal,
    signal: Signal,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let media = media_of(headers)?;
    let options = Options::of(headers)?;
    let named = headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    let encoding = Encoding::negotiate(named, ENCODINGS)?;
    let received = records::read(app, &principal.tenant, encoding, headers, body).await?;
    let refused = store(app, principal, signal, media, options, received).await?;
    Ok(success(media, signal, &refused, |answer| response_in(media, answer)))
}

/// Stores the records of a body. Returns those that were left out.
pub(super) async fn store(
    app: &App,
    principal: &Principal,
    signal: Signal,
    media: Media,
    options: Options,
    received: Received,
) -> Result<Refusals, Refusal> {
    // one service too many must not hold up the records of all others that the sender has put into the same request
    let overflow = match (&options.stream, signal) {
        (None, Signal::Logs) => Overflow::Spare(stream_name(b"", signal.stream())),
        _ => options.overflow,
    };
    let options = Options { overflow, inline_bytes_max: INLINE_BYTES_MAX, ..options };
    let decode = move |request: StreamsRequest<'_>, memory: &mut Reservation| {
        Ok((decode(signal, media, request, memory)?, ()))
    };
    match records::store(app, principal, options, received, decode).await {
        Ok(Outcome { refused, .. }) => Ok(refused),
        Err(mut refusal) => {
            let limit_status = app.node.overrides().current().of(&principal.tenant).limit_status;
            apply_limit_status(&mut refusal, limit_status);
            Err(refusal)
        }
    }
}

/// Answers a request that was decoded. `response_of` puts the answer into a response.
pub(super) fn success(
    media: Media,
    signal: Signal,
    refused: &Refusals,
    response_of: impl FnOnce(Vec<u8>) -> Response,
) -> Response {
    let items = match signal {
        Signal::Logs => Items::LogRecords,
        Signal::Traces => Items::Spans,
    };
    if refused.count == 0 {
        return response_of(answer::success(media, items, 0, ""));
    }
    let message = report(refused);
    let response = response_of(answer::success(media, items, refused.count, &message));
    partly_refused(response, Refusal::invalid("partial_write", message))
}

/// Says how many records were left out, and why the first ones were.
pub(super) fn report(refused: &Refusals) -> String {
    let mut text = format!("{} records left out: ", refused.count);
    for (number, refusal) in refused.first.iter().enumerate() {
        let separator = if number == 0 { "" } else { "; " };
        write!(text, "{separator}{refusal}").expect("BUG: writing to memory failed");
    }
    if refused.count > refused.first.len() as u64 {
        text.push_str("; …");
    }
    text
}
