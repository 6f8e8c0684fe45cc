//! HTTP/1.1 on one connection.

use super::connections::{Busy, Link, Place};
use super::patience::Patience;
use super::peer::Peer;
use super::stall::StallTimeout;
use crate::limits::budget::CONNECTION_BYTES;
use crate::refusal::Jitter;
use axum::Router;
use axum::body::{Body, Bytes};
use hyper::Request;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

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

/// Limit on connections being answered with a 503 at a time, each for at most [`TURNED_AWAY_TIMEOUT`]. Further ones are
/// closed without an answer.
const TURNED_AWAY_MAX: usize = 64;
const TURNED_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// Least delay before a refused connection is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Serves connections, each in a task of its own.
pub(super) struct Http1 {
    service: TowerToHyperService<Router>,
    patience: Patience,
    graceful: GracefulShutdown,
    turned_away: Arc<Semaphore>,
    jitter: Jitter,
}

impl Http1 {
    /// Serves requests with `service`. A client that takes an answer at less than `transfer_rate` bytes per second is
    /// disconnected.
    pub(super) fn new(service: Router, transfer_rate: u64) -> Self {
        Self {
            service: TowerToHyperService::new(service),
            patience: Patience::new(STALL_TIMEOUT, transfer_rate),
            graceful: GracefulShutdown::new(),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
            jitter: Jitter::default(),
        }
    }

    /// Serves one connection.
    pub(super) fn serve(&self, stream: TcpStream, peer: Peer, place: Place) {
        let _ = stream.set_nodelay(true); // affects only latency
        let link = place.share();
        let (service, served) = (self.service.clone(), Arc::clone(&link));
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            let busy = served.begin(!request.body().is_end_stream());
            let answer = service.call(request.map(|body| Received { body, link: Arc::clone(&served) }));
            async move { Ok::<_, Infallible>(answer.await?.map(|body| Answer { body, _busy: busy })) }
        });
        let stream = StallTimeout::new(stream, self.patience, Arc::clone(&link));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = self.graceful.watch(connection);
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

    /// Answers a connection beyond the limit with a 503, if not too many are being answered.
    pub(super) fn turn_away(&self, stream: TcpStream) {
        if let Ok(permit) = Arc::clone(&self.turned_away).try_acquire_owned() {
            let answer = too_many(self.jitter.spread(RETRY_AFTER));
            tokio::spawn(async move {
                let _ = timeout(TURNED_AWAY_TIMEOUT, turn_away(stream, answer)).await;
                drop(permit);
            });
        }
    }

    /// Lets requests in flight finish, for at most [`DRAIN_TIMEOUT`].
    pub(super) async fn drain(self) {
        if timeout(DRAIN_TIMEOUT, self.graceful.shutdown()).await.is_err() {
            tracing::warn!(seconds = DRAIN_TIMEOUT.as_secs(), "some requests did not finish in time");
        }
    }
}

/// Answer to a connection that is refused.
fn too_many(retry_after_s: u64) -> String {
    let text = "too many connections, none of them is idle (setting connections)";
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: {retry_after_s}\r\nconnection: close\r\n\
         content-type: text/plain\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    )
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
