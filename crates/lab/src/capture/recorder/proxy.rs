//! Passes requests to the backend, and answers back, without changing them. A connection begins with the preface of HTTP/2, or
//! it speaks HTTP/1.1. Only calls of gRPC go on over HTTP/2.

use super::calls::{self, Backend, Call};
use super::recognize::WriteRequest;
use super::tee::{Copy, Tee};
use super::writer_thread::{Queue, QueuedRequest};
use crate::drive::stop::Stop;
use crate::grpc;
use crate::http::{Access, Endpoint, causes};
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING, UPGRADE};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Counted in the report in place of a status when the backend gave no answer.
pub(super) const NO_ANSWER: &str = "no answer";

/// Maximum number of open connections from senders. Further connections wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 4_096;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the backend that was idle for this long is not used again, because the backend may be about to
/// close it.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Headers that belong to one connection. They are not passed on.
const HOP_BY_HOP: [HeaderName; 4] =
    [CONNECTION, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

#[derive(Debug, Clone)]
pub(super) struct Proxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client<HttpsConnector<HttpConnector>, Tee>,
    /// The backend, for calls of gRPC.
    endpoint: Endpoint,
    scheme: Scheme,
    authority: Authority,
    prefix: String,
    queue: Queue,
    begun: Instant,
    counts: Mutex<(u64, BTreeMap<String, u64>)>,
}

impl Proxy {
    /// `endpoint` is that of the same backend, for gRPC.
    pub(super) fn new(backend: &str, endpoint: Endpoint, access: &Access, queue: Queue) -> Result<Self> {
        let uri: Uri = backend.parse().with_context(|| format!("{backend:?} is not a URL"))?;
        let authority =
            uri.authority().cloned().with_context(|| format!("{backend}: the URL has no host"))?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.enforce_http(false); // TLS is added below
        let scheme = uri
            .scheme()
            .cloned()
            .with_context(|| format!("{backend}: the URL must begin with http:// or https://"))?;
        let mut tls = access.tls.config()?;
        tls.alpn_protocols.clear(); // the connector sets them
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_MAX);
        Ok(Self(Arc::new(Inner {
            client: client.build(connector),
            endpoint,
            scheme,
            authority,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            queue,
            begun: Instant::now(),
            counts: Mutex::default(),
        })))
    }

    pub(super) fn counts(&self) -> (u64, BTreeMap<String, u64>) {
        self.0.counts.lock().expect("BUG: counting panicked").clone()
    }

    /// Accepts connections until `stop` is set, then waits up to `grace` for requests in progress.
    pub(super) async fn serve(self, listener: TcpListener, stop: Stop, grace: Duration) {
        let mut open = JoinSet::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = tokio::select! {
                place = Arc::clone(&places).acquire_owned() => place.expect("BUG: the semaphore of connections was closed"),
                () = stop.wait() => break,
            };
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(_) => {
                        // a retry at once would fail again: no file descriptor is left, or the sender has gone
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    }
                },
                () = stop.wait() => break,
            };
            while open.try_join_next().is_some() {}
            let (this, stop) = (self.clone(), stop.clone());
            open.spawn(async move {
                this.connection(stream, &stop).await;
                drop(place);
            });
        }
        drop(listener);
        let all = async { while open.join_next().await.is_some() {} };
        tokio::time::timeout(grace, all).await.ok();
    }

    /// Serves a connection until it ends. Once `stop` is set, only its requests in progress are finished.
    async fn connection(self, stream: TcpStream, stop: &Stop) {
        stream.set_nodelay(true).ok();
        let is_http2 = tokio::select! {
            is_http2 = begins_as_http2(&stream) => is_http2,
            () = stop.wait() => return,
        };
        let io = TokioIo::new(stream);
        if is_http2 {
            let backend = Arc::new(Backend::new(self.0.endpoint.clone()));
            let service = service_fn(move |request| self.clone().pass_any(request, Arc::clone(&backend)));
            let mut connection =
                pin!(http2::Builder::new(TokioExecutor::new()).serve_connection(io, service));
            tokio::select! {
                _ = connection.as_mut() => return, // the sender went away
                () = stop.wait() => {}
            }
            connection.as_mut().graceful_shutdown();
            connection.await.ok();
        } else {
            let service = service_fn(move |request| self.clone().pass(request));
            let mut connection = pin!(http1::Builder::new().serve_connection(io, service));
            tokio::select! {
                _ = connection.as_mut() => return,
                () = stop.wait() => {}
            }
            connection.as_mut().graceful_shutdown();
            connection.await.ok();
        }
    }

    async fn pass_any(
        self,
        request: Request<Incoming>,
        backend: Arc<Backend>,
    ) -> Result<Response<Passed>, Infallible> {
        match grpc::is_grpc(request.headers()) {
            true => Ok(self.call(request, &backend).await),
            false => self.pass(request).await,
        }
    }

    /// Passes on a call of gRPC.
    async fn call(self, request: Request<Incoming>, backend: &Backend) -> Response<Passed> {
        let arrival_us = self.0.begun.elapsed().as_micros() as i64;
        let (mut head, body) = request.into_parts();
        let write = WriteRequest::of(&head.method, &head.uri, &head.headers);
        let memory = write.as_ref().and_then(|_| self.0.queue.memory());
        let (tee, copy) = Tee::new(body, memory);
        head.headers.remove(HOST);
        head.uri = self.uri(&head.uri);
        match backend.send(Request::from_parts(head, tee)).await {
            Ok((answer, open)) => {
                let (head, body) = answer.into_parts();
                let mut call = Call::new(self, arrival_us, write, copy, head.status);
                if grpc::has_status(&head.headers) {
                    call.settle(&head.headers);
                }
                Response::from_parts(
                    head,
                    Either::Left(Either::Right(calls::Answer { body, call, _open: open })),
                )
            }
            Err(why) => {
                self.count(NO_ANSWER);
                bad_gateway(&why)
            }
        }
    }

    async fn pass(self, request: Request<Incoming>) -> Result<Response<Passed>, Infallible> {
        let arrival_us = self.0.begun.elapsed().as_micros() as i64;
        let (mut head, body) = request.into_parts();
        let write = WriteRequest::of(&head.method, &head.uri, &head.headers);
        let memory = write.as_ref().and_then(|_| self.0.queue.memory());
        let (tee, copy) = Tee::new(body, memory);
        strip(&mut head.headers);
        head.headers.remove(HOST); // the client sets the backend's host
        head.version = Version::HTTP_11;
        head.uri = self.uri(&head.uri);
        let answer = self.0.client.request(Request::from_parts(head, tee)).await;
        let (status, answer) = match answer {
            Ok(answer) => {
                let (mut head, body) = answer.into_parts();
                strip(&mut head.headers);
                (Some(head.status), Response::from_parts(head, Either::Left(Either::Left(body))))
            }
            Err(why) => (None, bad_gateway(&causes(&why))),
        };
        self.count(status.as_ref().map_or(NO_ANSWER, StatusCode::as_str));
        if let Some(write) = write
            && status.is_some_and(is_settled)
        {
            let copy = &mut *copy.lock().expect("BUG: copying a body panicked");
            self.keep(arrival_us, write, copy);
        }
        Ok(answer)
    }

    pub(super) fn keep(&self, arrival_us: i64, write: WriteRequest, copy: &mut Copy) {
        let (Some(memory), true) = (copy.memory.take(), copy.whole) else {
            let why =
                if copy.whole { "the queue was full" } else { "answered before the whole body had arrived" };
            return self.0.queue.lost(why);
        };
        let pieces = std::mem::take(&mut copy.pieces);
        self.0.queue.put(QueuedRequest { arrival_us, write, pieces, memory });
    }

    pub(super) fn count(&self, status: &str) {
        let mut counts = self.0.counts.lock().expect("BUG: counting panicked");
        counts.0 += 1;
        *counts.1.entry(status.to_owned()).or_default() += 1;
    }

    fn uri(&self, asked: &Uri) -> Uri {
        let path = asked.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = format!("{}{path}", self.0.prefix);
        let uri = Uri::builder().scheme(self.0.scheme.clone()).authority(self.0.authority.clone());
        uri.path_and_query(path).build().unwrap_or_else(|_| asked.clone())
    }
}

/// True if the sender will not send this request again.
fn is_settled(status: StatusCode) -> bool {
    status.is_success() || (status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS)
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(',').filter_map(|name| name.trim().parse().ok()))
        .collect();
    HOP_BY_HOP.into_iter().chain(named).for_each(|name| {
        headers.remove(name);
    });
}

/// The body of an answer: that of a request, of a call, or one of our own.
type Passed = Either<Either<Incoming, calls::Answer>, Full<Bytes>>;

/// True if a connection begins as one of HTTP/2 does: `PRI * HTTP/2.0`.
async fn begins_as_http2(stream: &TcpStream) -> bool {
    const BEGIN: &[u8] = b"PRI";
    let mut bytes = [0; BEGIN.len()];
    loop {
        match stream.peek(&mut bytes).await {
            Ok(len) if (1..BEGIN.len()).contains(&len) && BEGIN.starts_with(&bytes[..len]) => {
                // the rest is on its way, and nothing says when it has come
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(len) => return bytes[..len] == *BEGIN,
            Err(_) => return false,
        }
    }
}

fn bad_gateway(why: &str) -> Response<Passed> {
    let mut answer = Response::new(Either::Right(Full::from(format!("the backend gave no answer: {why}\n"))));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
