//! HTTP client for the services that publish keys or decide about callers. Redirections are not followed.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::http::response;
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Limit on the headers of an answer, and on how much of its body is buffered.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

const IDLE_MAX: usize = 8;

const IDLE: Duration = Duration::from_secs(30);

/// Client for `http` and `https`. It trusts the certificate authorities that this machine trusts.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl Outgoing {
    pub(crate) fn new() -> Self {
        let mut roots = RootCertStore::empty();
        // a certificate that cannot be read is left out, and does not disable the others
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("BUG: the provider does not support the default versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(connector);
        Self(client)
    }

    /// Sends a GET. Fails if the body has more than `bytes_max` bytes, or does not arrive within `timeout`.
    /// Errors do not contain the address.
    pub(crate) async fn get(
        &self,
        uri: &Uri,
        headers: HeaderMap,
        bytes_max: usize,
        timeout: Duration,
    ) -> Result<Response<Bytes>, String> {
        let answer = async {
            let (head, body) =
                self.0.request(request(uri, headers)).await.map_err(|error| chain(&error))?.into_parts();
            let body = Limited::new(body, bytes_max).collect().await;
            Ok(Response::from_parts(head, body.map_err(|error| unreadable(&*error, bytes_max))?.to_bytes()))
        };
        tokio::time::timeout(timeout, answer).await.map_err(|_| no_answer(timeout))?
    }

    /// Like [`Self::get`], but discards the body.
    pub(crate) async fn get_head(
        &self,
        uri: &Uri,
        headers: HeaderMap,
        bytes_max: usize,
        timeout: Duration,
    ) -> Result<response::Parts, String> {
        let answer = async {
            let (head, body) =
                self.0.request(request(uri, headers)).await.map_err(|error| chain(&error))?.into_parts();
            let mut body = Limited::new(body, bytes_max);
            while let Some(frame) = body.frame().await {
                frame.map_err(|error| unreadable(&*error, bytes_max))?;
            }
            Ok(head)
        };
        tokio::time::timeout(timeout, answer).await.map_err(|_| no_answer(timeout))?
    }
}

fn request(uri: &Uri, headers: HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers;
    request.headers_mut().remove(HOST); // the client sets the host of the address
    let agent = HeaderValue::from_static(concat!("floodmark/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(agent);
    request
}

fn unreadable(error: &(dyn std::error::Error + Send + Sync), bytes_max: usize) -> String {
    format!("cannot read its answer: {error} (the limit is {bytes_max} bytes)")
}

fn no_answer(timeout: Duration) -> String {
    format!("no answer within {} s", timeout.as_secs_f64())
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

pub(crate) fn parse(text: &str) -> Result<Uri, &'static str> {
    const MUST: &str = "must be a URL such as https://example.com/keys, without user and password";
    let uri: Uri = text.parse().map_err(|_| MUST)?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    match uri.authority() {
        Some(authority) if is_http && !authority.as_str().contains('@') => Ok(uri),
        _ => Err(MUST),
    }
}

/// True if nobody between this machine and the service can read or change an answer: with TLS, or if the address is this
/// machine.
pub(crate) fn is_protected(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_here = address.map_or_else(
        |_| host.eq_ignore_ascii_case("localhost"),
        |address| address.to_canonical().is_loopback(),
    );
    is_here || uri.scheme_str() == Some("https")
}
