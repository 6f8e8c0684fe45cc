use super::Client;
use super::connections::{Busy, Connection, Link};
use crate::limits::budget::CONNECTION_BYTES;
use axum::Router;
use axum::body::{Body, Bytes};
use hyper::Request;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// When the server stops, requests in progress have this long to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Limit on the buffer of a connection. A request's headers must fit into it. The library's default is 400
/// KiB.
const CONNECTION_BUFFER_BYTES: usize = 64 << 10;

const _: () = assert!(CONNECTION_BUFFER_BYTES < CONNECTION_BYTES);

pub(super) struct Http1 {
    service: TowerToHyperService<Router>,
    graceful: GracefulShutdown,
}

pub(super) struct Session {
    service: TowerToHyperService<Router>,
    watcher: Watcher,
}

impl Http1 {
    pub(super) fn new(service: Router) -> Self {
        Self { service: TowerToHyperService::new(service), graceful: GracefulShutdown::new() }
    }

    pub(super) fn session(&self) -> Session {
        Session { service: self.service.clone(), watcher: self.graceful.watcher() }
    }

    pub(super) async fn drain(self) {
        if timeout(DRAIN_TIMEOUT, self.graceful.shutdown()).await.is_err() {
            tracing::warn!(seconds = DRAIN_TIMEOUT.as_secs(), "stopping before all requests have finished");
        }
    }
}

impl Session {
    pub(super) async fn serve<S>(self, stream: S, client: Client, link: Arc<Link>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { service, watcher } = self;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(client.peer);
            request.extensions_mut().insert(Connection::new(Arc::clone(&link)));
            if let Some(names) = &client.names {
                request.extensions_mut().insert(names.clone());
            }
            let busy = link.begin(!request.body().is_end_stream());
            let answer = service.call(request.map(|body| Received { body, link: Arc::clone(&link) }));
            async move { Ok::<_, Infallible>(answer.await?.map(|body| Answer { body, _busy: busy })) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "connection ended");
        }
    }
}

/// Body of a request. Tells the connection's [`Link`] about each read.
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

/// Body of an answer. The connection counts as busy until hyper has taken all of it.
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
