//! Client of gRPC's unary calls, with one connection of HTTP/2 that it keeps open.
//!
//! ```text
//!   call     HEADERS  :path, content-type, te     DATA  0 length message
//!   answer   HEADERS  200                         DATA  0 length message     HEADERS  grpc-status: 0
//!   refusal  HEADERS  200, grpc-status, grpc-message, grpc-status-details-bin
//! ```
//!
//! Messages are sent as they are. Sources: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>,
//! <https://opentelemetry.io/docs/specs/otlp/#otlpgrpc>.

use crate::fields::{Field, Fields};
use crate::http::{CONNECT_TIMEOUT, Endpoint, Failure, causes};
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use percent_encoding::percent_decode_str;
use std::error::Error;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The method that receives OpenTelemetry's metrics.
pub(crate) const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Limit on an answer, which says how many points were rejected, and why.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Limit on the text of a refusal that is kept.
const SHOWN_CHARS: usize = 300;

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";

/// Status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    pub(crate) const OK: Self = Self(0);
    pub(crate) const CANCELLED: Self = Self(1);
    pub(crate) const UNKNOWN: Self = Self(2);
    pub(crate) const DEADLINE_EXCEEDED: Self = Self(4);
    pub(crate) const PERMISSION_DENIED: Self = Self(7);
    pub(crate) const RESOURCE_EXHAUSTED: Self = Self(8);
    pub(crate) const ABORTED: Self = Self(10);
    pub(crate) const OUT_OF_RANGE: Self = Self(11);
    pub(crate) const UNIMPLEMENTED: Self = Self(12);
    pub(crate) const INTERNAL: Self = Self(13);
    pub(crate) const UNAVAILABLE: Self = Self(14);
    pub(crate) const DATA_LOSS: Self = Self(15);
    pub(crate) const UNAUTHENTICATED: Self = Self(16);

    /// By number.
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];

    pub(crate) fn of(number: u8) -> Self {
        if usize::from(number) < Self::NAMES.len() { Self(number) } else { Self::UNKNOWN }
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.0)]
    }

    /// True for the name of a code that is no success.
    pub(crate) fn is_refusal(name: &str) -> bool {
        name != Self::OK.name() && Self::NAMES.contains(&name)
    }

    /// The code of an answer that has none, usually of a proxy.
    fn of_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::INTERNAL,
            401 => Self::UNAUTHENTICATED,
            403 => Self::PERMISSION_DENIED,
            404 => Self::UNIMPLEMENTED,
            429 | 502..=504 => Self::UNAVAILABLE,
            _ => Self::UNKNOWN,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Code,
    /// Text of a refusal.
    pub(crate) message: String,
    /// The delay in `RetryInfo`.
    pub(crate) retry_after: Option<Duration>,
    /// The message of a success.
    pub(crate) body: Bytes,
}

#[derive(Debug)]
pub(crate) struct Client {
    endpoint: Endpoint,
    headers: HeaderMap,
    timeout: Duration,
    open: Option<Connection<Full<Bytes>>>,
}

/// An open connection of HTTP/2, which carries bodies of this type.
#[derive(Debug)]
pub(crate) struct Connection<B> {
    pub(crate) sender: SendRequest<B>,
    driver: tokio::task::JoinHandle<()>,
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint, mut headers: HeaderMap, timeout: Duration) -> Self {
        headers.remove(HOST); // HTTP/2 has it in the URI
        headers.insert(TE, HeaderValue::from_static("trailers"));
        Self { endpoint, headers, timeout, open: None }
    }

    pub(crate) fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    pub(crate) async fn connect(&mut self) -> Result<(), Failure> {
        if self.open.as_ref().is_some_and(|connection| connection.sender.is_closed()) {
            self.open = None;
        }
        if self.open.is_none() {
            self.open = Some(open(&self.endpoint).await?);
        }
        Ok(())
    }

    /// Calls the method at `path`. Its error tells whether the target may have received the message.
    pub(crate) async fn call(&mut self, path: &str, message: &[u8]) -> Result<Answer, Failure> {
        self.connect().await?;
        let (scheme, authority) = self.endpoint.origin();
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(path);
        let mut request = Request::new(Full::new(framed(message)));
        *request.uri_mut() =
            uri.build().map_err(|e| Failure::Connect(format!("the path {path:?} is invalid: {e}")))?;
        *request.method_mut() = Method::POST;
        *request.headers_mut() = self.headers.clone();
        let failure = match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(why)) => Failure::Broken(why),
            Err(_) => Failure::Timeout(self.timeout),
        };
        self.open = None;
        Err(failure)
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let connection = self.open.as_mut().expect("BUG: the client has no open connection");
        let answer = connection.sender.send_request(request).await.map_err(|e| causes(&e))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|e| causes(&*e))?;
        // a refusal has its status in the headers, if there is no message
        let status = match body.trailers().filter(|trailers| has_status(trailers)) {
            Some(trailers) => trailers.clone(),
            None => head.headers,
        };
        Ok(answer_of(head.status, &status, body.to_bytes()))
    }
}

/// Opens a connection within five seconds.
pub(crate) async fn open<B>(endpoint: &Endpoint) -> Result<Connection<B>, Failure>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let opening = async {
        let stream = TcpStream::connect(endpoint.address()).await?;
        stream.set_nodelay(true)?;
        match endpoint.tls() {
            None => speak(stream).await,
            Some((connector, name)) => speak(connector.connect(name.clone(), stream).await?).await,
        }
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, opening).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(why)) => Err(Failure::Connect(format!("{why:#}"))),
        Err(_) => Err(Failure::Connect(format!("no connection within {CONNECT_TIMEOUT:?}"))),
    }
}

async fn speak<B>(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection<B>>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let driver = tokio::spawn(async move {
        // the same error is returned to the sender of the request
        connection.await.ok();
    });
    Ok(Connection { sender, driver })
}

/// True for a request over gRPC. gRPC-Web, whose status is in the body, is something else.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// The message of a body that has one whole message, and whether it is compressed.
pub(crate) fn message(body: &[u8]) -> Option<(bool, &[u8])> {
    let (prefix, message) = body.split_at_checked(PREFIX_BYTES)?;
    let (is_compressed, length) = prefix.split_first()?;
    let length = u32::from_be_bytes(length.try_into().ok()?);
    (message.len() == length as usize).then_some((*is_compressed != 0, message))
}

/// True for headers or trailers that have the status of a call.
pub(crate) fn has_status(headers: &HeaderMap) -> bool {
    headers.contains_key(STATUS)
}

fn framed(message: &[u8]) -> Bytes {
    let mut body = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    body.put_u8(0);
    body.put_u32(message.len() as u32);
    body.put_slice(message);
    body.freeze()
}

/// What the headers or trailers with the status of a call, and the message, say.
pub(crate) fn answer_of(http: StatusCode, status: &HeaderMap, body: Bytes) -> Answer {
    let text = |name: HeaderName| status.get(name).and_then(|value| value.to_str().ok());
    let code = match text(STATUS) {
        Some(number) => Code::of(number.parse().unwrap_or(u8::MAX)),
        None => Code::of_http(http),
    };
    let message = percent_decode_str(text(MESSAGE).unwrap_or_default()).decode_utf8_lossy();
    let message = message.chars().take(SHOWN_CHARS).collect::<String>().trim().replace('\n', " ");
    let retry_after = text(DETAILS).and_then(|details| {
        let details = STANDARD_NO_PAD.decode(details).or_else(|_| STANDARD.decode(details)).ok()?;
        retry_delay(&details).ok()?
    });
    Answer { code, message, retry_after, body: body.slice(PREFIX_BYTES.min(body.len())..) }
}

/// The delay of `RetryInfo` in a `google.rpc.Status`. `None` if there is none.
///
/// ```text
///   Status  3 Any*      Any  1 type  2 value      RetryInfo  1 Duration      Duration  1 seconds  2 nanoseconds
/// ```
fn retry_delay(status: &[u8]) -> Result<Option<Duration>> {
    let mut details = Fields::of(status);
    while let Some(detail) = details.next()? {
        let (3, Field::Bytes(detail)) = detail else { continue };
        let (mut kind, mut value): (&[u8], &[u8]) = (b"", b"");
        let mut fields = Fields::of(detail);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(bytes)) => kind = bytes,
                (2, Field::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        if kind == RETRY_INFO {
            return Ok(Some(delay(value)?));
        }
    }
    Ok(None)
}

fn delay(retry_info: &[u8]) -> Result<Duration> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Fields::of(retry_info);
    while let Some(field) = fields.next()? {
        let (1, Field::Bytes(duration)) = field else { continue };
        let mut fields = Fields::of(duration);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Number(n)) => seconds = n,
                (2, Field::Number(n)) => nanos = n,
                _ => {}
            }
        }
    }
    // a negative number is very large here
    let (seconds, nanos) = (u32::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
    Ok(Duration::from_secs(seconds.into()) + Duration::from_nanos(nanos.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(http: u16, headers: &[(HeaderName, &str)], body: &'static [u8]) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect();
        answer_of(StatusCode::from_u16(http).unwrap(), &headers, Bytes::from_static(body))
    }

    #[test]
    fn answers_have_a_code() {
        let answer = check(200, &[(STATUS, "0")], b"\0\0\0\0\x02ab");
        assert_eq!((answer.code, &answer.body[..]), (Code::OK, &b"ab"[..]));
        let answer = check(200, &[(STATUS, "8"), (MESSAGE, "too%20much%0A100 %25")], b"");
        assert_eq!((answer.code.name(), &*answer.message), ("RESOURCE_EXHAUSTED", "too much 100 %"));
        assert_eq!((answer.retry_after, answer.body.len()), (None, 0));
        for (http, headers, name) in [
            (200, &[][..], "UNKNOWN"),
            (503, &[], "UNAVAILABLE"),
            (404, &[], "UNIMPLEMENTED"),
            (200, &[(STATUS, "17")], "UNKNOWN"),
            (200, &[(STATUS, "-1")], "UNKNOWN"),
            (200, &[(STATUS, "16")], "UNAUTHENTICATED"),
        ] {
            assert_eq!(check(http, headers, b"").code.name(), name, "{http} {headers:?}");
        }
    }

    #[test]
    fn details_have_the_delay() {
        let field = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let any = |kind: &[u8], value: &[u8]| field(0x1a, &[field(0x0a, kind), field(0x12, value)].concat());
        let delay_of = |duration: &[u8]| any(RETRY_INFO, &field(0x0a, duration));
        let status = [vec![0x08, 8], field(0x12, b"full"), any(b"other", b"\x08\x05")].concat();
        let with = |detail: Vec<u8>| [status.clone(), detail].concat();
        for (details, expected) in [
            (status.clone(), None),
            (with(delay_of(&[0x08, 3, 0x10, 5])), Some(Duration::new(3, 5))),
            (with(delay_of(b"")), Some(Duration::ZERO)),
            // ten bytes of a varint: -1
            (with(delay_of(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")), Some(Duration::ZERO)),
            (with(vec![0x1a, 200]), None),
        ] {
            for engine in [STANDARD, STANDARD_NO_PAD] {
                let encoded = engine.encode(&details);
                assert_eq!(check(200, &[(STATUS, "8"), (DETAILS, &encoded)], b"").retry_after, expected);
            }
        }
    }
}
