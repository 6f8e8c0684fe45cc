//! OpenTelemetry over gRPC: the method `Export` of the services for metrics, logs and traces.
//!
//! ```text
//!   request   HEADERS  :path, grpc-encoding, …   DATA  0|1 length message
//!   answer    HEADERS  200                       DATA  0 length message     HEADERS  grpc-status: 0
//!   refusal   HEADERS  200, grpc-status, grpc-message, grpc-status-details-bin
//! ```
//!
//! The framing is of our own, because each service has one method, whose request and answer are one message each. Sources:
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, <https://opentelemetry.io/docs/specs/otlp/#otlpgrpc>.

use super::records::{Options, Received};
use super::{count, otlp, otlp_records, receive, store};
use crate::auth::Access;
use crate::http::error::{WriteError, middleware, rpc_code};
use crate::http::principal::RequestPrincipal;
use crate::http::{App, for_access};
use crate::refusal::Refusal;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Frame};
use model::caps::BODY_COMPRESSED_BYTES_MAX;
use protocol::Encoding;
use protocol::otlp::{ENCODINGS, Format, Media, answer};
use protocol::records::otlp::Signal;
use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

const METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

const CONTENT_TYPE: &str = "application/grpc";
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// A message has these bytes before it: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Limit on the text of a refusal. Clients limit the headers that they read.
const MESSAGE_BYTES_MAX: usize = 1 << 10;

const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;

pub(crate) fn router(app: App) -> Router {
    let metrics = Arc::clone(&app.metrics);
    let of = |signal: Option<Signal>| {
        post(move |State(app): State<App>, principal: RequestPrincipal, request: Request| async move {
            let answer = exported(&app, principal, signal, request).await;
            answer.unwrap_or_else(|refusal| WriteError(refusal).into_response())
        })
    };
    let export = Router::new()
        .route(METRICS, of(None))
        .route(LOGS, of(Some(Signal::Logs)))
        .route(TRACES, of(Some(Signal::Traces)));
    for_access(&app, Access::Write, export)
        .route_layer(map_response(move |answer| {
            let metrics = Arc::clone(&metrics);
            async move { count(&metrics, answer) }
        }))
        .fallback(no_such_method)
        .layer(from_fn_with_state(app.clone(), middleware::finish))
        .layer(from_fn(in_trailers))
        .with_state(app)
}

async fn no_such_method() -> Response {
    StatusCode::NOT_FOUND.into_response()
}

/// Stores what a request has: metrics, unless it has a signal that is stored as records.
async fn exported(
    app: &App,
    RequestPrincipal(principal): RequestPrincipal,
    signal: Option<Signal>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let named = parts.headers.get(&ENCODING).and_then(|value| value.to_str().ok());
    let named = Encoding::negotiate(named, ENCODINGS)?;
    let is_compressed = Arc::new(AtomicBool::new(false));
    let body = Body::new(Message::new(body, Arc::clone(&is_compressed)));
    let for_records = match signal {
        Some(signal) => {
            app.node.streams().wait_until_ready().await?;
            Some((signal, Options::of(&parts.headers)?))
        }
        None => None,
    };
    let received = receive(app, &principal.tenant, None, body).await?;
    let encoding = if is_compressed.load(Ordering::Relaxed) { named } else { Encoding::Identity };
    if let Some((signal, options)) = for_records {
        let (bytes, memory) = received;
        let received = Received { encoding, bytes, memory };
        let stored = otlp_records::store(app, &principal, signal, Media::Protobuf, options, received);
        return Ok(otlp_records::success(Media::Protobuf, signal, &stored.await?, framed));
    }
    let settings = app.node.overrides().current();
    let translation = Arc::clone(&settings.of(&principal.tenant).otlp);
    let format = Format::new(Media::Protobuf, translation);
    let stored = store(app, &app.decoders.otlp, format, encoding, principal, received).await;
    let outcome = stored.map_err(|unwritten| unwritten.refusal)?;
    app.node.writes().metrics.converted_points.add(outcome.converted_points);
    Ok(otlp::success(Media::Protobuf, &outcome, framed))
}

/// An answer with one message.
fn framed(message: Vec<u8>) -> Response {
    let mut frame = vec![0];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    let trailers = async {
        let mut trailers = HeaderMap::new();
        trailers.insert(STATUS, HeaderValue::from_static("0"));
        Some(Ok(trailers))
    };
    let mut response = Response::new(Body::new(Full::new(Bytes::from(frame)).with_trailers(trailers)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// Gives every refusal the form of gRPC. It has no body, and its status is in the headers.
async fn in_trailers(request: Request, next: Next) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let form = content_type.and_then(|value| value.as_bytes().strip_prefix(CONTENT_TYPE.as_bytes()));
    if !form.is_some_and(|form| form.is_empty() || form == b"+proto" || form[0] == b';') {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let response = next.run(request).await;
    if response.status().is_success() {
        return response;
    }
    let code = match response.status() {
        // a sender repeats the request if it is told when
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
        StatusCode::NOT_FOUND | StatusCode::UNSUPPORTED_MEDIA_TYPE => UNIMPLEMENTED,
        status => rpc_code(status),
    };
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after_s = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let text = to_bytes(response.into_body(), BODY_COMPRESSED_BYTES_MAX).await.unwrap_or_default();
    refused(code, String::from_utf8_lossy(&text).trim_end(), retry_after_s)
}

fn refused(code: u8, message: &str, retry_after_s: Option<u64>) -> Response {
    let mut response = Response::new(Body::empty());
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let message = &message[..end];
    let details = BASE64_STANDARD_NO_PAD.encode(answer::status_with_retry(code, message, retry_after_s));
    let headers = response.headers_mut();
    let mut put = |name: HeaderName, value: &str| {
        headers.insert(name, HeaderValue::from_str(value).expect("BUG: a value is not printable ASCII"));
    };
    put(header::CONTENT_TYPE, CONTENT_TYPE);
    put(STATUS, &code.to_string());
    put(MESSAGE, &percent_encoded(message));
    put(DETAILS, &details);
    put(ACCEPT_ENCODING, "identity,gzip,zstd");
    response
}

/// Encodes a message for a header: bytes other than printable ASCII, and the percent sign.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' | 0..b' ' | 0x7f.. => write!(encoded, "%{byte:02X}").expect("BUG: writing to memory failed"),
            _ => encoded.push(char::from(byte)),
        }
    }
    encoded
}

/// The message in the body of a request, without the prefix.
struct Message {
    body: Body,
    prefix: Vec<u8>,
    /// Bytes of the message that are still to come, once the prefix was read.
    left: usize,
    is_compressed: Arc<AtomicBool>,
}

impl Message {
    const fn new(body: Body, is_compressed: Arc<AtomicBool>) -> Self {
        Self { body, prefix: Vec::new(), left: 0, is_compressed }
    }

    /// Takes the prefix off the front of `data`. Returns false if more bytes of it are to come.
    fn take_prefix(&mut self, data: &mut Bytes) -> io::Result<bool> {
        if self.prefix.len() == PREFIX_BYTES {
            return Ok(true);
        }
        let missing = (PREFIX_BYTES - self.prefix.len()).min(data.len());
        self.prefix.extend_from_slice(&data.split_to(missing));
        let [flag, a, b, c, d] = self.prefix[..] else { return Ok(false) };
        self.left = u32::from_be_bytes([a, b, c, d]) as usize;
        if self.left > BODY_COMPRESSED_BYTES_MAX {
            let limit = BODY_COMPRESSED_BYTES_MAX;
            return Err(io::Error::other(format!("a message of {} bytes, the limit is {limit}", self.left)));
        }
        match flag {
            0 | 1 => self.is_compressed.store(flag == 1, Ordering::Relaxed),
            _ => return Err(io::Error::other("the prefix of the message is not valid")),
        }
        Ok(true)
    }
}

impl HttpBody for Message {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let fail = |error: io::Error| Poll::Ready(Some(Err(axum::Error::new(error))));
        loop {
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) if self.left > 0 || self.prefix.len() < PREFIX_BYTES => {
                    return fail(io::ErrorKind::UnexpectedEof.into());
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            let Ok(mut data) = frame.into_data() else {
                continue;
            };
            match self.take_prefix(&mut data) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return fail(error),
            }
            if data.len() > self.left {
                return fail(io::Error::other("there is more than one message"));
            }
            self.left -= data.len();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
    }
}
