//! Accepts connections until the node stops: [`http1`] has what is spoken on them.
//!
//! At the limit of connections, accepting waits for a place for moments only: see [`connections`].

mod connections;
mod http1;
pub(crate) mod patience;
mod peer;
mod stall;

pub(crate) use peer::Peer;

use crate::settings::Settings;
use axum::Router;
use connections::{Connections, Full, Place};
use http1::Http1;
use std::time::Duration;
use stdx::telemetry::Registry;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Pause after a failed accept (usually for lack of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` resolves; then lets requests in flight finish.
pub(crate) async fn serve(
    listener: TcpListener,
    service: Router,
    settings: &Settings,
    registry: &Registry,
    stop: impl Future<Output = ()> + Send,
) {
    let connections = Connections::new(settings.connections_max, settings.transfer_rate);
    let open = connections.clone();
    let count = move || open.count() as f64;
    registry.gauge_fn("floodmark_http_connections", "Open connections.", &[], count);
    let http1 = Http1::new(service, settings.transfer_rate);
    tokio::pin!(stop);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => (stream, Peer::new(address)),
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
            Some(place) => http1.serve(stream, peer, place),
            None => http1.turn_away(stream),
        }
    }
    drop(listener);
    http1.drain().await;
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
