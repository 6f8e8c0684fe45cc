//! Connections of HTTP/1.
//!
//! If the service answers before it has read the request's body, the connection reads and discards what is left: see
//! [`received`]. If that is too much, the connection is closed after the answer, and waits for the client first: see
//! [`lingering`].
//!
//! Targets may have quotation marks: see [`request_line`].

mod lingering;
mod received;
mod request_line;

use super::Client;
use super::answer::Answer;
use super::connections::{Connection, Link};
use crate::limits::budget::CONNECTION_BYTES;
use axum::Router;
use axum::body::Body;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use lingering::Lingering;
use received::lend;
use request_line::RequestLines;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        let is_unread = Arc::new(AtomicBool::new(false));
        let is_line_next = Arc::new(AtomicBool::new(true));
        let stream = RequestLines::new(stream, Arc::clone(&is_line_next));
        let stream = Lingering::new(stream, Arc::clone(&is_unread));
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(client.peer);
            request.extensions_mut().insert(Connection::new(Arc::clone(&link)));
            if let Some(names) = &client.names {
                request.extensions_mut().insert(names.clone());
            }
            let busy = link.begin(!request.body().is_end_stream());
            let (request, remainder) = lend(request, Arc::clone(&link), Arc::clone(&is_line_next));
            let (answer, is_unread) = (service.call(request), Arc::clone(&is_unread));
            async move {
                let mut answer: Response<Body> = answer.await?;
                if !remainder.discard().await {
                    is_unread.store(true, Ordering::Relaxed);
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer.map(|body| Answer::new(body, busy)))
            }
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
