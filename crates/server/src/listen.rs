//! Accepts connections and serves HTTP/1.1 on them until the node stops.
//!
//! At the limit of connections, accepting waits for a place for moments only: see [`connections`].

mod connections;
pub(crate) mod patience;
mod stall;

use crate::limits::budget::CONNECTION_BYTES;
use crate::refusal::Jitter;
use crate::settings::Settings;
use axum::Router;
use axum::body::{Body, Bytes};
use connections::{Busy, Connections, Full, Link, Place};
use hyper::Request;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use patience::Patience;
use stall::StallTimeout;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use stdx::telemetry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Timeout for receiving a request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for requests in flight once the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Time that an answer may wait for its client, beyond what its size allows at the minimum rate.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Limit on a connection's buffer; the head of a request must fit. The defaults (400 KiB and 100 headers) would let clients
/// that never finish a head take more than the whole budget.
const CONNECTION_BUFFER_BYTES: usize = 64 << 10;

const _: () = assert!(CONNECTION_BUFFER_BYTES < CONNECTION_BYTES);

/// Pause after a failed accept (usually for lack of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limit on connections being answered with a 503 at a time, each for at most [`TURNED_AWAY_TIMEOUT`]. Further ones are
/// closed without an answer.
const TURNED_AWAY_MAX: usize = 64;
const TURNED_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// Least delay before a refused connection is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Answer to a connection that is refused.
fn too_many(retry_after_s: u64) -> String {
    let text = "too many connections, none of them is idle (setting connections)";
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: {retry_after_s}\r\nconnection: close\r\n\
         content-type: text/plain\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    )
}

/// Serves until `stop` resolves; then lets requests in flight finish.
pub(crate) async fn serve(
    listener: TcpListener,
    service: Router,
    settings: &Settings,
    registry: &Registry,
    stop: impl Future<Output = ()> + Send,
) {
    let patience = Patience::new(STALL_TIMEOUT, settings.transfer_rate);
    let connections = Connections::new(settings.connections_max, settings.transfer_rate);
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    let jitter = Jitter::default();
    let open = connections.clone();
    let count = move || open.count() as f64;
    registry.gauge_fn("floodmark_http_connections", "Open connections.", &[], count);
    let service = TowerToHyperService::new(service);
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        let entered = tokio::select! {
            entered = enter(&connections) => entered,
            () = &mut stop => break,
        };
        match entered {
            Some(place) => converse(stream, place, patience, service.clone(), &graceful),
            None => {
                if let Ok(permit) = Arc::clone(&turned_away).try_acquire_owned() {
                    let answer = too_many(jitter.spread(RETRY_AFTER));
                    tokio::spawn(async move {
                        let _ = timeout(TURNED_AWAY_TIMEOUT, turn_away(stream, answer)).await;
                        drop(permit);
                    });
                }
            }
        }
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!(seconds = DRAIN_TIMEOUT.as_secs(), "some requests did not finish in time");
    }
}

/// Waits for a place while connections are young; `None` if all connections are busy.
async fn enter(connections: &Connections) -> Option<Place> {
    loop {
        match connections.enter(Instant::now()) {
            Ok(place) => return Some(place),
            Err(Full::Until(at)) => connections.wait(at).await,
            Err(Full::Busy) => return None,
        }
    }
}

/// Serves one connection, in a task of its own.
fn converse(
    stream: TcpStream,
    place: Place,
    patience: Patience,
    service: TowerToHyperService<Router>,
    graceful: &GracefulShutdown,
) {
    let _ = stream.set_nodelay(true); // affects only latency
    let link = place.share();
    let served = Arc::clone(&link);
    let service = service_fn(move |request: Request<Incoming>| {
        let busy = served.begin(!request.body().is_end_stream());
        let answer = service.call(request.map(|body| Received { body, link: Arc::clone(&served) }));
        async move { Ok::<_, Infallible>(answer.await?.map(|body| Answer { body, _busy: busy })) }
    });
    let stream = StallTimeout::new(stream, patience, Arc::clone(&link));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(CONNECTION_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            },
            () = link.closed() => tracing::debug!("idle connection closed to make room"),
        }
        drop(place);
    });
}

/// Sends the 503, then reads what the client has sent: a close with unread data may reset the connection first.
async fn turn_away(mut stream: TcpStream, answer: String) -> std::io::Result<()> {
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 1024];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}

/// A request's body, which reports its progress to the connection's [`Link`].
struct Received {
    body: Incoming,
    link: Arc<Link>,
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Pending => self.link.received(None),
            Poll::Ready(Some(Ok(frame))) => self.link.received(Some(frame.data_ref().map_or(0, Bytes::len))),
            Poll::Ready(_) => {}
        }
        if self.body.is_end_stream() {
            self.link.end_of_body();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.link.end_of_body();
    }
}

/// An answer, which marks its connection as busy until all of it is handed over.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answer {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
