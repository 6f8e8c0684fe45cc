//! HTTP/1.1 client with one connection, which it keeps open. The error of a failed request tells whether the request
//! may have reached the target.
//!
//! It connects only to loopback addresses and to hosts that the user has allowed.

mod access;

pub use access::{Access, TlsFiles};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Default time limit of a request. If it passes, nobody knows whether the target has processed the request.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A resolved address.
#[derive(Clone)]
pub struct Endpoint {
    address: SocketAddr,
    scheme: Scheme,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    authority: HeaderValue,
    base: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    Tcp,
    Udp,
}

impl Scheme {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Http, "http"), (Self::Https, "https"), (Self::Tcp, "tcp"), (Self::Udp, "udp")];

    fn of(uri: &Uri) -> Option<Self> {
        let text = uri.scheme_str()?;
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(scheme, _)| *scheme)
    }

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme.name(), self.address, self.base)
    }
}

impl Endpoint {
    /// Resolves an `http://` or `https://` URL. The host must be on the loopback interface or in `access`.
    pub async fn resolve(url: &str, access: &Access) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
        let scheme = Scheme::of(&uri).filter(|scheme| matches!(scheme, Scheme::Http | Scheme::Https));
        let scheme = scheme.with_context(|| format!("{url}: the URL must begin with http:// or https://"))?;
        Self::resolve_uri(url, &uri, scheme, access).await
    }

    /// Like [`Self::resolve`], for a server of HTTP/2.
    pub(crate) async fn resolve_http2(url: &str, access: &Access) -> Result<Self> {
        let mut endpoint = Self::resolve(url, access).await?;
        if let Some((connector, _)) = &mut endpoint.tls {
            *connector = access.tls.connector(b"h2")?;
        }
        Ok(endpoint)
    }

    /// Resolves a `tcp://` or `udp://` address, like [`Self::resolve`].
    pub(crate) async fn resolve_socket(url: &str, access: &Access) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is not an address"))?;
        let scheme = Scheme::of(&uri).filter(|scheme| matches!(scheme, Scheme::Tcp | Scheme::Udp));
        let scheme =
            scheme.with_context(|| format!("{url}: the address must begin with tcp:// or udp://"))?;
        ensure!(uri.port_u16().is_some(), "{url}: the address has no port");
        ensure!(uri.path().len() < 2, "{url}: the address must end with the port");
        Self::resolve_uri(url, &uri, scheme, access).await
    }

    async fn resolve_uri(url: &str, uri: &Uri, scheme: Scheme, access: &Access) -> Result<Self> {
        let encrypted = scheme == Scheme::Https;
        let authority = uri.authority().with_context(|| format!("{url}: the URL has no host"))?;
        ensure!(
            !authority.as_str().contains('@'),
            "{url}: the URL must not contain user and password; use an Authorization header"
        );
        let host = authority.host();
        let port = authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let bare = host.trim_matches(['[', ']']);
        let found =
            tokio::net::lookup_host((bare, port)).await.with_context(|| format!("cannot resolve {host}"))?;
        let addresses: Vec<SocketAddr> = found.collect();
        let address = *addresses.first().with_context(|| format!("the host name {host} has no address"))?;
        let local = addresses.iter().all(|a| a.ip().to_canonical().is_loopback());
        ensure!(
            local || access.allows(host) || access.allows(bare),
            "{host} is not this machine: to allow it as a target, set --allow-host {bare}"
        );
        let tls = match encrypted {
            true => {
                let name = ServerName::try_from(bare.to_owned())
                    .with_context(|| format!("{bare} is not a valid host name for TLS"))?;
                Some((access.tls.connector(b"http/1.1")?, name))
            }
            false => None,
        };
        let path = uri.path_and_query().map_or("/", |p| p.as_str());
        Ok(Self {
            address,
            scheme,
            tls,
            authority: HeaderValue::from_str(authority.as_str())?,
            base: path.to_owned(),
        })
    }

    pub fn path(&self) -> &str {
        &self.base
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn tls(&self) -> Option<&(TlsConnector, ServerName<'static>)> {
        self.tls.as_ref()
    }

    /// The scheme and the host with its port, as in a URL.
    pub(crate) fn origin(&self) -> (&'static str, &[u8]) {
        (self.scheme.name(), self.authority.as_bytes())
    }

    pub(crate) fn is_datagrams(&self) -> bool {
        self.scheme == Scheme::Udp
    }
}

#[derive(Debug, Clone)]
pub enum Failure {
    /// The request was not sent, because no connection could be opened.
    Connect(String),
    /// The connection broke. The target may have processed the request.
    Broken(String),
    /// No answer within this time. The target may have processed the request.
    Timeout(Duration),
    /// The answer has more bytes than this.
    TooLarge(usize),
}

impl Failure {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Broken(_) | Self::TooLarge(_) => "broken",
            Self::Timeout(_) => "timeout",
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "cannot connect: {why}"),
            Self::Broken(why) => write!(f, "connection broken: {why}"),
            Self::Timeout(after) => write!(f, "no answer within {after:?}"),
            Self::TooLarge(bytes) => write!(f, "the answer has more than {bytes} bytes"),
        }
    }
}

impl std::error::Error for Failure {}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// Seconds in the header `Retry-After`. `None` if there is no such header or it contains a date.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds: f64 = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    pub fn text(&self) -> String {
        const SHOWN: usize = 300;
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(SHOWN)]);
        text.trim().replace('\n', " ")
    }
}

pub fn headers(pairs: &[(String, String)]) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        let name =
            HeaderName::try_from(name).with_context(|| format!("{name:?} is not a valid header name"))?;
        let value = HeaderValue::try_from(value)
            .with_context(|| format!("the value of header {name} is not valid"))?;
        map.append(name, value);
    }
    Ok(map)
}

#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    headers: HeaderMap,
    timeout: Duration,
    answer_bytes_max: usize,
    open: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    pub fn new(endpoint: Endpoint, mut headers: HeaderMap, timeout: Duration) -> Self {
        if !headers.contains_key(HOST) {
            headers.insert(HOST, endpoint.authority.clone());
        }
        Self { endpoint, headers, timeout, answer_bytes_max: ANSWER_BYTES_MAX, open: None }
    }

    /// Reads only answers of at most this many bytes.
    pub fn with_answers_of(self, bytes_max: usize) -> Self {
        Self { answer_bytes_max: bytes_max.min(ANSWER_BYTES_MAX), ..self }
    }

    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    pub async fn connect(&mut self) -> Result<(), Failure> {
        if self.open.as_ref().is_some_and(|c| c.sender.is_closed()) {
            self.open = None;
        }
        if self.open.is_none() {
            let opened = tokio::time::timeout(CONNECT_TIMEOUT, open(&self.endpoint)).await;
            self.open = Some(match opened {
                Ok(Ok(connection)) => connection,
                Ok(Err(why)) => return Err(Failure::Connect(format!("{why:#}"))),
                Err(_) => return Err(Failure::Connect(format!("no connection within {CONNECT_TIMEOUT:?}"))),
            });
        }
        Ok(())
    }

    pub async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Answer, Failure> {
        self.connect().await?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() =
            path.parse().map_err(|e| Failure::Connect(format!("the path {path:?} is invalid: {e}")))?;
        *request.headers_mut() = self.headers.clone();
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(Ok(answer)) => {
                let close = answer.headers.get(CONNECTION).is_some_and(|v| v.as_bytes() == b"close");
                if close {
                    self.open = None;
                }
                Ok(answer)
            }
            Ok(Err(failure)) => {
                self.open = None;
                Err(failure)
            }
            Err(_) => {
                self.open = None;
                Err(Failure::Timeout(self.timeout))
            }
        }
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let connection = self.open.as_mut().expect("BUG: the client has no open connection");
        let answer =
            connection.sender.send_request(request).await.map_err(|e| Failure::Broken(causes(&e)))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, self.answer_bytes_max).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => Failure::TooLarge(self.answer_bytes_max),
            false => Failure::Broken(causes(&*error)),
        })?;
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

async fn open(endpoint: &Endpoint) -> Result<Connection> {
    let stream = TcpStream::connect(endpoint.address).await?;
    stream.set_nodelay(true)?;
    match &endpoint.tls {
        None => speak(stream).await,
        Some((connector, name)) => speak(connector.connect(name.clone(), stream).await?).await,
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(async move {
        // the same error is returned to the sender of the request
        connection.await.ok();
    });
    Ok(Connection { sender, driver })
}

pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |e| e.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// All characters that must be percent-encoded: those that RFC 3986 does not call unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub fn percent(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_this_machine_unless_allowed() {
        let resolve = async |url: &str, allow: &[&str]| {
            let hosts: Vec<String> = allow.iter().map(|h| h.to_string()).collect();
            Endpoint::resolve(url, &Access::to(&hosts)).await.map_err(|e| format!("{e:#}"))
        };
        let local = resolve("http://127.0.0.1:9009/api/v1/write?x=1", &[]).await.unwrap();
        assert_eq!(local.path(), "/api/v1/write?x=1");
        resolve("http://[::1]:9009/", &[]).await.unwrap();
        resolve("http://192.0.2.1/", &["192.0.2.1"]).await.unwrap();
        for (url, why) in [
            ("http://192.0.2.1/", "not this machine"),
            ("https://192.0.2.1/", "not this machine"),
            ("ftp://127.0.0.1/", "must begin with http:// or"),
            ("127.0.0.1:9009", "must begin with http:// or"),
            ("http://a:b@127.0.0.1/", "Authorization"),
            ("", "not a URL"),
        ] {
            let said = resolve(url, &["192.0.2.2"]).await.unwrap_err();
            assert!(said.contains(why), "{url}: {said}");
        }
    }

    #[tokio::test]
    async fn addresses_without_http() {
        let resolve = async |url: &str| {
            Endpoint::resolve_socket(url, &Access::default()).await.map_err(|e| format!("{e:#}"))
        };
        let tcp = resolve("tcp://127.0.0.1:2003").await.unwrap();
        assert_eq!((tcp.address().port(), tcp.is_datagrams()), (2003, false));
        assert!(resolve("udp://[::1]:2003").await.unwrap().is_datagrams());
        for (url, why) in [
            ("tcp://192.0.2.1:2003", "not this machine"),
            ("http://127.0.0.1:2003", "must begin with tcp:// or udp://"),
            ("tcp://127.0.0.1", "no port"),
            ("tcp://127.0.0.1:2003/x", "must end with the port"),
        ] {
            let said = resolve(url).await.unwrap_err();
            assert!(said.contains(why), "{url}: {said}");
        }
    }

    #[test]
    fn percent_encodes() {
        assert_eq!(percent("up{a=\"b c\"}[5m]").to_string(), "up%7Ba%3D%22b%20c%22%7D%5B5m%5D");
    }
}
