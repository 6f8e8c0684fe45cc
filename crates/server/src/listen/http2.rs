//! Connections of HTTP/2, for gRPC.
//!
//! A connection has several requests at a time. Its memory is reserved when it is accepted, and these limits bound it:
//!
//! | attack | limit |
//! | --- | --- |
//! | many requests, or bodies that are sent before they are read | [`STREAMS_MAX`], [`WINDOW_BYTES`] |
//! | bodies in many small frames | the library's, which depends on [`WINDOW_BYTES`] |
//! | large headers, also in many frames, also compressed | [`HEADERS_BYTES_MAX`] |
//! | requests that are reset as soon as they were sent | [`RESETS_MAX`], then the connection is closed |
//! | answers that the client has no window for | [`UNREAD_TIMEOUT`], then the connection is closed |
//! | a client that sends nothing, or only a part of a frame | [`PREFACE_TIMEOUT`], then pings, each [`PING_INTERVAL`] |
//! | a client that does not read from its socket | [`StallTimeout`](super::stall::StallTimeout) |

mod preface;
mod streams;

use super::Client;
use super::connections::{Connection, Link};
use crate::limits::budget::TLS_BYTES;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use preface::Preface;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use streams::{Received, Streams};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Limit on the requests that a connection has at a time. Further ones wait at the client.
const STREAMS_MAX: u32 = 4;

/// Flow-control window of a request and of a connection: bytes of bodies that a client may send before they are read. HTTP/2
/// allows no smaller window for a connection.
const WINDOW_BYTES: u32 = (64 << 10) - 1;

/// Limit on the headers of a request after decompression, as HTTP/2 counts them: each with 32 bytes more than its text.
const HEADERS_BYTES_MAX: u32 = 8 << 10;

/// Limit on the state of HPACK, which is the default of HTTP/2.
const HEADER_TABLE_BYTES: u32 = 4 << 10;

/// A connection is closed if it has more requests than this that were reset before they were accepted. They hold their headers
/// until then, and do not count as requests that the connection has.
const RESETS_MAX: u32 = STREAMS_MAX;

/// A connection is closed after this many requests that were reset because of an error of the client.
const ERROR_RESETS_MAX: usize = 64;

/// Limit on the bytes of an answer that wait to be sent.
const SENT_BYTES_MAX: usize = 16 << 10;

/// Time for the first bytes of a connection, which are always the same.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection without traffic is asked for a sign of life, and closed without it.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a client to read an answer, which has at most some hundred bytes.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// When the server stops, requests in progress have this long to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// When the server stops, clients without a request in progress have at least this long to confirm that no other one is on its
/// way.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Upper bound on the memory of a request without its body. Its headers are at most 248 fields, and the map takes 104 bytes for
/// each, besides their text. The rest is for its task.
const STREAM_BYTES: usize = 40 << 10;

/// Upper bound on a connection's memory: bytes that were not read, all its requests, also those that were reset, and 128 KiB for
/// its task, buffers, HPACK and headers that are still arriving. Measured: 287 KiB with the most requests, each with 235 header fields, whose bodies were read.
const CONNECTION_BYTES: usize =
    WINDOW_BYTES as usize + (STREAMS_MAX + RESETS_MAX) as usize * STREAM_BYTES + (128 << 10);

pub(crate) const fn connection_bytes(is_encrypted: bool) -> usize {
    if is_encrypted { CONNECTION_BYTES + TLS_BYTES } else { CONNECTION_BYTES }
}

pub(super) struct Http2 {
    service: TowerToHyperService<Router>,
    graceful: GracefulShutdown,
    stopping: watch::Sender<bool>,
}

pub(super) struct Session {
    service: TowerToHyperService<Router>,
    watcher: Watcher,
    stopping: watch::Receiver<bool>,
}

impl Http2 {
    pub(super) fn new(service: Router) -> Self {
        let service = TowerToHyperService::new(service);
        Self { service, graceful: GracefulShutdown::new(), stopping: watch::Sender::new(false) }
    }

    pub(super) fn session(&self) -> Session {
        let stopping = self.stopping.subscribe();
        Session { service: self.service.clone(), watcher: self.graceful.watcher(), stopping }
    }

    pub(super) async fn drain(self) {
        self.stopping.send_replace(true);
        if timeout(DRAIN_TIMEOUT, self.graceful.shutdown()).await.is_err() {
            let seconds = DRAIN_TIMEOUT.as_secs();
            tracing::warn!(seconds, "stopping before all gRPC requests have finished");
        }
    }
}

impl Session {
    pub(super) async fn serve<S>(self, stream: S, client: Client, link: Arc<Link>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { service, watcher, mut stopping } = self;
        let streams = Arc::new(Streams::new(Arc::clone(&link)));
        let all = Arc::clone(&streams);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(client.peer);
            request.extensions_mut().insert(Connection::new(Arc::clone(&link)));
            if let Some(names) = &client.names {
                request.extensions_mut().insert(names.clone());
            }
            let open = all.begin();
            let answer = service.call(request.map(|body| Received::new(body, Arc::clone(&open))));
            async move {
                let answer: Response<Body> = answer.await?;
                Ok::<_, Infallible>(answer.map(|body| open.answer(body)))
            }
        });
        let (stream, arrived) = Preface::new(stream);
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(HEADERS_BYTES_MAX)
            .header_table_size(HEADER_TABLE_BYTES)
            .max_pending_accept_reset_streams(RESETS_MAX as usize)
            .max_local_error_reset_streams(ERROR_RESETS_MAX)
            .max_send_buf_size(SENT_BYTES_MAX)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        // before the preface has arrived, the library sends no pings, and ignores that the server stops
        let mut stops = stopping.clone();
        let without_preface = async move {
            let stops = async { _ = stops.wait_for(|is_stopping| *is_stopping).await };
            let has_arrived = tokio::select! {
                biased; // a client whose preface has arrived is told that the server stops
                arrived = arrived => arrived.is_ok(),
                () = stops => false,
                () = sleep(PREFACE_TIMEOUT) => false,
            };
            if has_arrived {
                std::future::pending::<()>().await;
            }
        };
        let unconfirmed_end = async {
            _ = stopping.wait_for(|is_stopping| *is_stopping).await;
            sleep(END_TIMEOUT).await;
            while !streams.are_none() {
                sleep(END_TIMEOUT).await;
            }
        };
        tokio::select! {
            biased; // what is ready is sent before the connection is closed
            served = watcher.watch(connection) => {
                if let Err(error) = served {
                    tracing::debug!(%error, "gRPC connection ended");
                }
            }
            () = without_preface => tracing::debug!("gRPC connection closed: it did not begin with the preface"),
            () = unconfirmed_end => tracing::debug!("gRPC connection closed: its end was not confirmed"),
            () = streams.unread(UNREAD_TIMEOUT) => {
                tracing::debug!("gRPC connection closed: an answer was not read");
            }
        }
    }
}
