//! Accepts connections and speaks HTTP/1.1 on them until it is told to stop.

use super::stall::StallTimeout;
use super::{App, router};
use crate::node::Node;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A connection must bring a request's head within this time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that requests in flight may take once the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// An answer must find its reader within this time, again and again.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What a connection may buffer; a request's head must fit. The defaults (400 KiB and 100 headers) let those
/// who never finish a head take more than the whole budget.
pub(crate) const CONNECTION_BUFFER_BYTES: usize = 64 << 10;

/// After an accept that failed (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` resolves; then lets requests in flight finish.
pub async fn serve(node: Node, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
    let connections = Arc::new(Semaphore::new(node.settings().connections_max));
    let service = TowerToHyperService::new(router(App::new(node)));
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&connections).acquire_owned() => permit.expect("BUG: the semaphore is never closed"),
            () = &mut stop => break,
        };
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
        let _ = stream.set_nodelay(true); // only a matter of latency
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            .serve_connection(TokioIo::new(StallTimeout::new(stream, STALL_TIMEOUT)), service.clone());
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!(seconds = DRAIN_TIMEOUT.as_secs(), "some requests did not finish in time");
    }
}
