//! Passes requests to the backend, and answers back, without changing them.

use super::recognize::WriteRequest;
use super::tee::{Copy, Tee};
use super::writer_thread::{Queue, QueuedRequest};
use crate::drive::stop::Stop;
use crate::http::Access;
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING, UPGRADE};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

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
    scheme: Scheme,
    authority: Authority,
    prefix: String,
    queue: Queue,
    begun: Instant,
    counts: Mutex<(u64, BTreeMap<String, u64>)>,
}

impl Proxy {
    pub(super) fn new(backend: &str, access: &Access, queue: Queue) -> Result<Self> {
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
        let graceful = GracefulShutdown::new();
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
            stream.set_nodelay(true).ok();
            let this = self.clone();
            let service = service_fn(move |request| this.clone().pass(request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                connection.await.ok(); // a sender that went away
                drop(place);
            });
        }
        drop(listener);
        tokio::time::timeout(grace, graceful.shutdown()).await.ok();
    }

    async fn pass(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Either<Incoming, Full<Bytes>>>, Infallible> {
        let arrival_us = self.0.begun.elapsed().as_micros() as i64;
        let (mut head, body) = request.into_parts();
        let write = WriteRequest::of(&head.method, &head.uri, &head.headers);
        let memory = write.as_ref().and_then(|_| self.0.queue.memory());
        let (tee, copy) = Tee::new(body, memory);
        strip(&mut head.headers);
        head.headers.remove(HOST); // the client sets the backend's host
        head.uri = self.uri(&head.uri);
        let answer = self.0.client.request(Request::from_parts(head, tee)).await;
        let (status, answer) = match answer {
            Ok(answer) => {
                let (mut head, body) = answer.into_parts();
                strip(&mut head.headers);
                (Some(head.status), Response::from_parts(head, Either::Left(body)))
            }
            Err(why) => (None, bad_gateway(&why)),
        };
        self.count(status);
        if let Some(write) = write
            && status.is_some_and(is_settled)
        {
            let copy = &mut *copy.lock().expect("BUG: copying a body panicked");
            self.keep(arrival_us, write, copy);
        }
        Ok(answer)
    }

    fn keep(&self, arrival_us: i64, write: WriteRequest, copy: &mut Copy) {
        let (Some(memory), true) = (copy.memory.take(), copy.whole) else {
            let why =
                if copy.whole { "the queue was full" } else { "answered before the whole body had arrived" };
            return self.0.queue.lost(why);
        };
        let pieces = std::mem::take(&mut copy.pieces);
        self.0.queue.put(QueuedRequest { arrival_us, write, pieces, memory });
    }

    fn count(&self, status: Option<StatusCode>) {
        let mut counts = self.0.counts.lock().expect("BUG: counting panicked");
        counts.0 += 1;
        let status = status.map_or_else(|| NO_ANSWER.to_owned(), |s| s.as_u16().to_string());
        *counts.1.entry(status).or_default() += 1;
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

fn bad_gateway(why: &hyper_util::client::legacy::Error) -> Response<Either<Incoming, Full<Bytes>>> {
    let chain = std::iter::successors(Some(why as &dyn std::error::Error), |e| e.source());
    let why = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let mut answer = Response::new(Either::Right(Full::from(format!("the backend gave no answer: {why}\n"))));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
