//! Accepts connections until the node stops.
//!
//! ```text
//!   accept ─▶ connections (a place) ─▶ http1
//!   accept ─▶ handshake (bounds) ─▶ connections (a place) ─▶ handshake ─▶ http1     if connections are encrypted
//! ```
//!
//! [`lines`] has the listeners of protocols without requests, and [`statsd`] that of statsd.
//!
//! At the limit on connections, accepting waits briefly for a place: see [`connections`]. Each connection is a
//! task.

mod connections;
mod handshake;
mod http1;
pub(crate) mod lines;
pub(crate) mod patience;
mod peer;
mod rejections;
mod stall;
pub(crate) mod statsd;

pub(crate) use connections::Connection;
pub(crate) use handshake::{Context as HandshakeContext, Handshakes, PendingHandshakes};
pub use lines::GraphiteSockets;
pub(crate) use peer::Peer;

use crate::tls::ClientNames;
use axum::Router;
use connections::{Connections, Full, GRACE, Link, NEWEST, Place, Victims};
use handshake::Pending;
use http1::Http1;
use patience::Patience;
use rejections::Rejections;
use stall::StallTimeout;
use std::sync::Arc;
use std::time::Duration;
use stdx::telemetry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// Pause after accepting a connection has failed, usually because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long sending an answer may be blocked because the client does not read. Bytes that the client reads
/// give it more time.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What is known about the client of a connection. Each request carries both fields as extensions.
#[derive(Debug, Clone)]
struct Client {
    peer: Peer,
    names: Option<ClientNames>,
}

pub(crate) struct Listener {
    socket: TcpListener,
    connections: Connections,
    http1: Http1,
    handshakes: Option<Arc<Handshakes>>,
    patience: Patience,
    rejections: Rejections,
    stopping: watch::Sender<bool>,
}

impl Listener {
    /// Allows at most `connections_max` connections. A client that reads less than `transfer_rate` bytes per
    /// second is disconnected.
    pub(crate) fn new(
        socket: TcpListener,
        service: Router,
        connections_max: usize,
        transfer_rate: u64,
    ) -> Self {
        Self {
            socket,
            connections: Connections::new(connections_max, transfer_rate),
            http1: Http1::new(service),
            handshakes: None,
            patience: Patience::new(STALL_TIMEOUT, transfer_rate),
            rejections: Rejections::default(),
            stopping: watch::Sender::new(false),
        }
    }

    pub(crate) fn encrypted(self, handshakes: Option<Arc<Handshakes>>) -> Self {
        Self { handshakes, ..self }
    }

    pub(crate) fn report(&self, registry: &Registry, name: &'static str, help: &'static str) {
        let open = self.connections.clone();
        registry.gauge_fn(name, help, &[], move || open.count() as f64);
    }

    /// Serves until `stop` resolves, then lets the requests in progress finish.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()> + Send) {
        tokio::pin!(stop);
        loop {
            let (stream, peer) = tokio::select! {
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, address)) => (stream, Peer::new(address)),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            // handshakes are limited before they take a place, so that a flood of them does not displace open
            // connections
            let handshake = match &self.handshakes {
                None => None,
                Some(handshakes) => match handshakes.admit(peer) {
                    Some(pending) => Some((Arc::clone(handshakes), pending)),
                    None => continue,
                },
            };
            let entered = tokio::select! {
                entered = enter(&self.connections) => entered,
                () = &mut stop => break,
            };
            match entered {
                Some(place) => self.serve_connection(stream, peer, place, handshake),
                None if self.handshakes.is_none() => self.rejections.busy(stream),
                // close without an answer: a client that speaks TLS would not understand it
                None => drop(stream),
            }
        }
        let Self { socket, http1, stopping, .. } = self;
        drop(socket);
        stopping.send_replace(true);
        http1.drain().await;
    }

    fn serve_connection(
        &self,
        stream: TcpStream,
        peer: Peer,
        place: Place,
        handshake: Option<(Arc<Handshakes>, Pending)>,
    ) {
        let _ = stream.set_nodelay(true); // affects only latency
        let (link, session) = (place.share(), self.http1.session());
        let patience = self.patience;
        let Some((handshakes, pending)) = handshake else {
            let stream = StallTimeout::new(stream, patience, Arc::clone(&link));
            let served = session.serve(stream, Client { peer, names: None }, Arc::clone(&link));
            tokio::spawn(until_closed(served, place));
            return;
        };
        let (mut stopping, rejections) = (self.stopping.subscribe(), self.rejections.clone());
        let serve = async move {
            let accepted = tokio::select! {
                accepted = handshakes.accept(stream, peer, pending, (&link, patience), &rejections) => accepted,
                _ = stopping.wait_for(|is_stopping| *is_stopping) => None,
            };
            if let Some((stream, names)) = accepted {
                session.serve(stream, Client { peer, names }, link).await;
            }
        };
        tokio::spawn(until_closed(serve, place));
    }
}

/// Returns true if the connection was closed to make room for another one.
async fn until_closed(serve: impl Future<Output = ()> + Send, place: Place) -> bool {
    let link: Arc<Link> = place.share();
    let makes_room = tokio::select! {
        () = serve => false,
        () = link.closed() => true,
    };
    if makes_room {
        tracing::debug!("idle connection closed to make room");
    }
    drop(place);
    makes_room
}

/// Returns a place, if necessary after waiting until a connection is idle or old enough to be closed. `None` if no
/// connection can be closed.
async fn enter(connections: &Connections) -> Option<Place> {
    let patience = Instant::now() + GRACE;
    loop {
        let now = Instant::now();
        match connections.enter(Victims::AboveShare, now) {
            Ok(place) => return Some(place),
            Err(Full::Until(at)) => connections.wait(at).await,
            Err(Full::Busy) if now < patience => connections.wait(patience).await,
            Err(Full::Busy) => match connections.enter(Victims::WithSeveral, now) {
                Ok(place) => return Some(place),
                Err(Full::Until(at)) if at <= patience + NEWEST => connections.wait(at).await,
                Err(_) => return None,
            },
        }
    }
}
