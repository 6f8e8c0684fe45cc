//! Accepts connections until the node stops.
//!
//! ```text
//!   accept ─▶ connections (a place) ─▶ http1
//!   accept ─▶ handshake (bounds) ─▶ connections (a place) ─▶ handshake ─▶ http1     if connections are encrypted
//! ```
//!
//! [`http2`] has the connections of gRPC, [`lines`] the listeners of protocols without requests, and [`statsd`] that of statsd.
//!
//! At the limit on connections, accepting waits briefly for a place: see [`connections`]. Each connection is a
//! task.

mod answer;
mod connections;
mod forwarding;
mod handshake;
mod http1;
pub(crate) mod http2;
pub(crate) mod lines;
mod overflow;
pub(crate) mod patience;
mod peer;
mod rejections;
mod stall;
pub(crate) mod statsd;
mod unstored;

pub(crate) use connections::{Connection, Connections};
pub(crate) use handshake::{Context as HandshakeContext, Handshakes, PendingHandshakes};
pub use lines::{GraphiteSockets, TenantSockets};
pub(crate) use peer::Peer;

use crate::tls::{Alpn, ClientNames};
use axum::Router;
use connections::{Full, GRACE, Link, NEWEST, Place, Victims};
use handshake::Pending;
use http1::Http1;
use http2::Http2;
use patience::Patience;
use rejections::Rejections;
use stall::StallTimeout;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, Reservation};
use stdx::telemetry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
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
    http: Http,
    handshakes: Option<Handshakes>,
    patience: Patience,
    rejections: Rejections,
    stopping: watch::Sender<bool>,
    /// Account for the memory of connections. `None` if it is outside of the accounts.
    memory: Option<Account>,
}

/// Version of HTTP in which connections are served.
enum Http {
    One(Http1),
    Two(Http2),
}

enum Session {
    One(http1::Session),
    Two(http2::Session),
}

impl Http {
    fn session(&self) -> Session {
        match self {
            Self::One(http) => Session::One(http.session()),
            Self::Two(http) => Session::Two(http.session()),
        }
    }

    async fn drain(self) {
        match self {
            Self::One(http) => http.drain().await,
            Self::Two(http) => http.drain().await,
        }
    }
}

impl Session {
    async fn serve<S>(self, stream: S, client: Client, link: Arc<Link>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self {
            Self::One(session) => session.serve(stream, client, link).await,
            Self::Two(session) => session.serve(stream, client, link).await,
        }
    }
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
            http: Http::One(Http1::new(service)),
            handshakes: None,
            patience: Patience::new(STALL_TIMEOUT, transfer_rate),
            rejections: Rejections::default(),
            stopping: watch::Sender::new(false),
            memory: None,
        }
    }

    /// Like [`Self::new`], for connections of HTTP/2. Their memory is reserved in `memory`.
    pub(crate) fn http2(
        socket: TcpListener,
        service: Router,
        connections_max: usize,
        transfer_rate: u64,
        memory: Account,
    ) -> Self {
        let http = Http::Two(Http2::new(service));
        let listener = Self::new(socket, Router::new(), connections_max, transfer_rate);
        Self { http, memory: Some(memory), ..listener }
    }

    pub(crate) fn encrypted(self, handshakes: Option<Handshakes>) -> Self {
        Self { handshakes, ..self }
    }

    pub(crate) fn connections(&self) -> Connections {
        self.connections.clone()
    }

    pub(crate) fn report(&self, registry: &Registry, name: &'static str, help: &'static str) {
        let open = self.connections.clone();
        registry.gauge_fn(name, help, &[], move || open.count() as f64);
    }

    /// Serves until `stop` resolves, then lets the requests in progress finish.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()> + Send) {
        tokio::pin!(stop);
        let bytes = http2::connection_bytes(self.handshakes.is_some()) as u64;
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
                    Some(pending) => Some((handshakes.clone(), pending)),
                    None => continue,
                },
            };
            let entered = tokio::select! {
                entered = enter(&self.connections) => entered,
                () = &mut stop => break,
            };
            let memory = match &self.memory {
                Some(account) => match reserve(account, bytes, &self.connections).await {
                    Some(memory) => Some(memory),
                    None => continue, // the client connects again
                },
                None => None,
            };
            let is_plain = self.handshakes.is_none() && matches!(self.http, Http::One(_));
            match entered {
                Some(place) => self.serve_connection(stream, peer, place, handshake, memory),
                None if is_plain => self.rejections.busy(stream),
                // close without an answer: a client that speaks TLS or HTTP/2 would not understand it
                None => drop(stream),
            }
        }
        let Self { socket, http, stopping, .. } = self;
        drop(socket);
        stopping.send_replace(true);
        http.drain().await;
    }

    fn serve_connection(
        &self,
        stream: TcpStream,
        peer: Peer,
        place: Place,
        handshake: Option<(Handshakes, Pending)>,
        memory: Option<Reservation>,
    ) {
        let _ = stream.set_nodelay(true); // affects only latency
        let (link, session) = (place.share(), self.http.session());
        let alpn = match self.http {
            Http::One(_) => Alpn::Http1,
            Http::Two(_) => Alpn::Http2,
        };
        let patience = self.patience;
        let Some((handshakes, pending)) = handshake else {
            let stream = StallTimeout::new(stream, patience, Arc::clone(&link));
            let served = session.serve(stream, Client { peer, names: None }, Arc::clone(&link));
            tokio::spawn(until_closed(served, place, memory));
            return;
        };
        let (mut stopping, rejections) = (self.stopping.subscribe(), self.rejections.clone());
        let serve = async move {
            let accepted = tokio::select! {
                accepted = handshakes.accept(stream, peer, pending, (&link, patience), Some(&rejections), alpn) => accepted,
                _ = stopping.wait_for(|is_stopping| *is_stopping) => None,
            };
            if let Some((stream, names)) = accepted {
                session.serve(stream, Client { peer, names }, link).await;
            }
        };
        tokio::spawn(until_closed(serve, place, memory));
    }
}

/// Returns true if the connection was closed to make room for another one.
async fn until_closed(
    serve: impl Future<Output = ()> + Send,
    place: Place,
    memory: Option<Reservation>,
) -> bool {
    let link: Arc<Link> = place.share();
    // an answer that is ready is sent before the connection is closed: the place may be wanted as soon as it is idle
    let makes_room = tokio::select! {
        biased;
        () = serve => false,
        () = link.closed() => true,
    };
    if makes_room {
        tracing::debug!("idle connection closed to make room");
    }
    drop(memory); // first, because whoever waits for memory is notified when the place is free
    drop(place);
    makes_room
}

/// Reserves the memory of a connection. The connection whose place it has may hold its own memory for a moment. `None` if
/// there is no memory.
async fn reserve(account: &Account, bytes: u64, connections: &Connections) -> Option<Reservation> {
    let patience = Instant::now() + GRACE;
    loop {
        match account.reserve(bytes) {
            Ok(memory) => return Some(memory),
            Err(_) if Instant::now() < patience => connections.wait(patience).await,
            Err(_) => return None,
        }
    }
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
