//! Graphite's socket protocols, which have no answers: lines over TCP, UDP and TLS, and pickles and protobuf payloads in
//! frames.
//!
//! ```text
//!   TCP ─▶ connection ─┐                     ┌─▶ points of known series ─▶ owners: durable
//!                      ├─▶ body ─▶ intake ───┤
//!   UDP ─▶ datagrams ──┘    ▲    write path  └─▶ points of new series ─▶ queue ─▶ creation ─▶ owners
//!                           └─ again, while known series cannot be stored
//! ```
//!
//! - Points of known series that cannot be stored for now are kept and written again, and their connection is not read
//!   meanwhile. They are dropped only if they can never be stored, if the server's clock is in doubt, or, on a connection of
//!   many tenants, if only their tenant cannot store them ([`intake`]).
//! - Points of new series wait in a queue that is not durable ([`new_series_queue`]). When it is full, the newest are
//!   dropped.
//! - A connection is closed once everything that was read from it is durable.

mod aggregates;
mod allowance;
mod buffer;
mod connection;
mod creation;
mod datagrams;
mod drain;
mod drops;
mod encryption;
mod framing;
mod intake;
mod lanes;
pub(crate) mod new_series_queue;
mod senders;
mod stream;
mod telemetry;
mod ticket;
mod unfinished;
mod writer;

use super::connections::{Connections, Link};
use super::handshake::Pending;
use super::{ACCEPT_PAUSE, Handshakes, Peer, enter, until_closed};
use crate::http::App;
use crate::limits::budget::TLS_BYTES;
use crate::settings::TenantAddress;
use crate::write_path;
use aggregates::Aggregates;
use connection::{Connection, Shared, stopped};
use creation::Creation;
use drain::{Deadlines, Drain};
use drops::Drops;
use encryption::Encryption;
use intake::{Intake, Protocol};
use model::{Principal, Rights, TenantId};
use new_series_queue::{NewSeriesQueue, Queued};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, Exhausted, Reservation};
use stdx::telemetry::Registry;
use stream::Stream;
use telemetry::Metrics;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

/// When the server stops, points of requests by HTTP that are not durable after this time do not count in computed series.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(1);

/// Upper bound on the memory of an idle connection: its task. A buffer for bytes is reserved when bytes arrive.
const CONNECTION_BYTES: u64 = 4 << 10;

/// Encrypted connections may take 1/`ENCRYPTED_PART` of the memory for bytes that are not durable yet. At this limit, a new
/// one replaces an idle one.
const ENCRYPTED_PART: u64 = 2;

const ENCRYPTED_CONNECTION_BYTES: u64 = CONNECTION_BYTES + (TLS_BYTES + stream::ENCRYPTED_BYTES) as u64;

/// A new connection that needs memory has another one closed, and then waits this long for its memory. It does this at most
/// [`MEMORY_ATTEMPTS`] times.
const CLOSE_WAIT: Duration = Duration::from_millis(5);
const MEMORY_ATTEMPTS: usize = 10;

/// Sockets of Graphite's protocols, of those that are served.
#[derive(Debug, Default)]
pub struct GraphiteSockets {
    /// Receives plaintext lines.
    pub plaintext: Option<TcpListener>,
    /// Receives plaintext lines over UDP.
    pub datagrams: Option<UdpSocket>,
    pub pickle: Option<TcpListener>,
    pub protobuf: Option<TcpListener>,
    /// Receives plaintext lines over TLS.
    pub encrypted: Option<TcpListener>,
    pub of_tenants: Vec<TenantSockets>,
}

/// Sockets of an address with a tenant of its own.
#[derive(Debug)]
pub struct TenantSockets {
    pub address: TenantAddress,
    pub socket: TcpListener,
    /// Receives plaintext lines over UDP.
    pub datagrams: Option<UdpSocket>,
}

/// Serves all line listeners.
pub(crate) struct Lines {
    sockets: GraphiteSockets,
    connections: Connections,
    encrypted_connections: Connections,
    shared: Shared,
    /// What datagrams of all addresses may take.
    datagrams: Account,
    encryption: Option<Encryption>,
    creation: Arc<Creation>,
    aggregates: Arc<Aggregates>,
    drops: Arc<Drops>,
}

impl Lines {
    pub(crate) fn new(app: &App, sockets: GraphiteSockets, handshakes: Option<Handshakes>) -> Self {
        let (context, registry) = (Arc::clone(app.node.writes()), app.node.registry());
        let settings = &context.settings.graphite;
        let metrics = Arc::new(Metrics::new(registry));
        let drops = Arc::new(Drops::new(app));
        let parts = (Arc::clone(&context), Arc::clone(&app.new_series_queue));
        let creation = Arc::new(Creation::new(parts.0, parts.1, Arc::clone(&drops), Arc::clone(&metrics)));
        let intake = Intake::new(Arc::clone(&context), Arc::clone(&creation), Arc::clone(&drops), metrics);
        let intake = Arc::new(intake);
        let aggregates = Arc::new(Aggregates::new(Arc::clone(&context), Arc::clone(&intake)));
        let rights = Rights { read: false, write: true };
        let shared = Shared {
            intake,
            principal: Principal { tenant: settings.tenant.clone(), rights },
            has_many_tenants: settings.tenant_from_path,
            gather: settings.commit_interval / 2,
            message_timeout: Duration::from_millis(context.settings.body_timeout_ms),
        };
        let rate = context.settings.transfer_rate;
        let connections = Connections::new(settings.connections_max, rate);
        let encrypted_bytes = context.settings.budget.unwritten_bytes() / ENCRYPTED_PART;
        let encrypted_max = (encrypted_bytes / ENCRYPTED_CONNECTION_BYTES).max(1) as usize;
        let encrypted_connections = Connections::new(encrypted_max.min(settings.connections_max), rate);
        report(registry, [&connections, &encrypted_connections]);
        report_queue(&context, registry, &app.new_series_queue);
        let encryption = handshakes.map(|handshakes| {
            let (auth, audit) = (Arc::clone(app.node.auth()), Arc::clone(&app.audit));
            Encryption::new(handshakes, auth, audit, context.settings.transfer_rate)
        });
        let datagrams = Account::new("datagrams", context.settings.budget.datagrams_bytes());
        Self {
            sockets,
            connections,
            encrypted_connections,
            shared,
            datagrams,
            encryption,
            creation,
            aggregates,
            drops,
        }
    }

    /// Serves until `stop` resolves, then waits until what was read is durable. `requests_ended` resolves when nothing more
    /// comes by HTTP, of which points count in computed series, too.
    pub(crate) async fn serve(
        self,
        stop: impl Future<Output = ()> + Send,
        requests_ended: impl Future<Output = ()> + Send,
    ) {
        let Self { sockets, connections, encrypted_connections, shared, encryption, .. } = self;
        let (creation, aggregates, drops, of_datagrams) =
            (self.creation, self.aggregates, self.drops, self.datagrams);
        let GraphiteSockets { plaintext, datagrams, pickle, protobuf, encrypted, of_tenants } = sockets;
        let stopping = watch::Sender::new(false);
        // each task of a connection has a clone of the sender, so that the receiver knows when all of them have ended
        let (open, mut ended) = mpsc::channel::<()>(1);
        let (served, others) = (Arc::clone(&aggregates).serve(stopping.subscribe()), open.clone());
        tokio::spawn(async move {
            served.await;
            drop(others);
        });
        let mut parts: BTreeMap<TenantId, Account> = BTreeMap::new();
        let mut receive = |socket, shared: Shared| {
            let part = parts.entry(shared.principal.tenant.clone()).or_insert_with(|| of_datagrams.part());
            let served = datagrams::serve(socket, shared, part.clone(), stopping.subscribe());
            let open = open.clone();
            tokio::spawn(async move {
                served.await;
                drop(open);
            });
        };
        if let Some(socket) = datagrams {
            receive(socket, shared.clone());
        }
        for TenantSockets { address, socket, datagrams } in of_tenants {
            let principal = Principal { tenant: address.tenant, ..shared.principal.clone() };
            let shared = Shared { principal, has_many_tenants: false, ..shared.clone() };
            if let Some(socket) = datagrams {
                receive(socket, shared.clone());
            }
            let protocol = if address.is_pickle { Protocol::Pickles } else { Protocol::Lines };
            let door = Door { socket, protocol, encryption: None };
            let (connections, stopping, open) = (connections.clone(), stopping.clone(), open.clone());
            tokio::spawn(async move {
                let mut stop = stopping.subscribe();
                tokio::select! {
                    () = accept(door, &connections, &shared, &stopping, &open) => {}
                    () = stopped(&mut stop) => {}
                }
            });
        }
        let accept =
            async |socket: Option<TcpListener>, protocol, encryption: Option<Encryption>| match socket {
                Some(socket) => {
                    let connections =
                        if encryption.is_some() { &encrypted_connections } else { &connections };
                    let door = Door { socket, protocol, encryption };
                    accept(door, connections, &shared, &stopping, &open).await;
                }
                None => std::future::pending().await,
            };
        let encrypted = encrypted.filter(|_| encryption.is_some()); // never serve it unencrypted
        tokio::select! {
            () = accept(plaintext, Protocol::Lines, None) => {}
            () = accept(pickle, Protocol::Pickles, None) => {}
            () = accept(protobuf, Protocol::Protobufs, None) => {}
            () = accept(encrypted, Protocol::Lines, encryption) => {}
            () = stop => {}
        }
        let stopped_ms = aggregates.now_ms();
        stopping.send_replace(true);
        drop(open);
        let senders = async {
            let _ = tokio::join!(ended.recv(), timeout(REQUESTS_TIMEOUT, requests_ended));
        };
        let drain = Drain { aggregates, creation, drops, stopped_ms };
        drain.run(senders, Deadlines::within(drain::TIMEOUT)).await;
    }
}

fn report(registry: &Registry, connections: [&Connections; 2]) {
    let open = connections.map(Clone::clone);
    let help = "Open connections to the addresses of Graphite's protocols.";
    registry.gauge_fn("floodmark_graphite_connections", help, &[], move || {
        open.iter().map(Connections::count).sum::<usize>() as f64
    });
}

fn report_queue(context: &Arc<write_path::Context>, registry: &Registry, queue: &Arc<NewSeriesQueue>) {
    let gauge = |name, help, read: fn(Queued, std::time::Instant) -> f64| {
        let (queue, clock) = (Arc::clone(queue), Arc::clone(&context.clock));
        registry.gauge_fn(name, help, &[], move || read(queue.all(), clock.instant()));
    };
    gauge(
        "floodmark_graphite_queued_points",
        "Points in the queue of new series, with those whose series are being created.",
        |queued, _| queued.points as f64,
    );
    gauge("floodmark_graphite_queued_series", "Series in the queue of new series.", |queued, _| {
        queued.series as f64
    });
    gauge(
        "floodmark_graphite_queued_seconds",
        "Time for which the oldest of the queued series has waited.",
        Queued::seconds,
    );
}

struct Door {
    socket: TcpListener,
    protocol: Protocol,
    encryption: Option<Encryption>,
}

async fn accept(
    Door { socket, protocol, encryption }: Door,
    connections: &Connections,
    shared: &Shared,
    stopping: &watch::Sender<bool>,
    open: &mpsc::Sender<()>,
) {
    loop {
        let (stream, peer) = match socket.accept().await {
            Ok((stream, address)) => (stream, Peer::new(address)),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Dropping the connection resets it from now on, unless it is closed in order: after an orderly end, a sender might believe
        // that its points are stored, and the next ones would be lost without an error.
        let _ = stream.set_zero_linger();
        let rejected = &shared.intake.metrics.rejected_connections;
        let handshake = match &encryption {
            None => None,
            Some(encryption) => match encryption.admit(peer) {
                Some(pending) => Some((encryption.clone(), pending)),
                None => {
                    rejected.inc();
                    continue;
                }
            },
        };
        let bytes = if handshake.is_some() { ENCRYPTED_CONNECTION_BYTES } else { CONNECTION_BYTES };
        let memory = memory_for(&shared.intake, bytes).await;
        match (enter(connections).await, memory) {
            (Some(place), Ok(memory)) => {
                let served = serve(
                    stream,
                    peer,
                    protocol,
                    handshake,
                    place.share(),
                    shared.clone(),
                    stopping.subscribe(),
                );
                let (open, metrics) = (open.clone(), Arc::clone(&shared.intake.metrics));
                tokio::spawn(async move {
                    if until_closed(served, place, None).await {
                        metrics.replaced_connections.inc();
                    }
                    drop((memory, open));
                });
            }
            _ => rejected.inc(),
        }
    }
}

/// Reserves memory for a connection. If there is none, closes connections with unfinished messages, and waits for theirs.
async fn memory_for(intake: &Intake, bytes: u64) -> Result<Reservation, Exhausted> {
    for _ in 0..MEMORY_ATTEMPTS {
        if let Ok(memory) = intake.unwritten.reserve(bytes) {
            return Ok(memory);
        }
        if !intake.unfinished.close_most_overdue(Instant::now()) {
            break;
        }
        tokio::time::sleep(CLOSE_WAIT).await;
    }
    intake.unwritten.reserve(bytes)
}

async fn serve(
    stream: TcpStream,
    peer: Peer,
    protocol: Protocol,
    handshake: Option<(Encryption, Pending)>,
    link: Arc<Link>,
    shared: Shared,
    mut stopping: watch::Receiver<bool>,
) {
    let (stream, shared) = match handshake {
        None => (Stream::Plain(stream), shared),
        Some((encryption, pending)) => {
            let metrics = Arc::clone(&shared.intake.metrics);
            let accepted = tokio::select! {
                accepted = encryption.accept(stream, peer, pending, &link, shared) => accepted,
                () = stopped(&mut stopping) => None,
            };
            let Some(accepted) = accepted else { return metrics.rejected_connections.inc() };
            accepted
        }
    };
    Connection::new(shared, protocol, peer.0.ip()).serve(stream, link, stopping).await;
}
