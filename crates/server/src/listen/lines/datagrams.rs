//! Reads lines from datagrams.
//!
//! ```text
//!   socket ─▶ body ─ full, or gathered long enough ─▶ a short queue ─▶ intake
//! ```
//!
//! UDP cannot tell a sender to wait. While points of known series cannot be stored, the queue fills, and datagrams are
//! then dropped and counted. The kernel drops datagrams too, if they arrive faster than they are read. They are counted as well.
//!
//! Memory is reserved twice: in the tenant's part of the account for bytes that are not durable yet, as for connections,
//! and in an account that all sockets for datagrams share. So datagrams leave memory to connections, and tenants above a
//! rate limit, whose datagrams wait for long, leave some to the datagrams of others.

use super::buffer::{BODY_BYTES, Body};
use super::connection::{Shared, stopped};
use super::drops::{Drop, Reason};
use super::intake::{Protocol, Source, messages};
use super::senders::Senders;
use super::ticket::Tickets;
use super::writer::Writer;
use crate::listen::Peer;
use crate::listen::overflow::Overflow;
use crate::write_path::Origin;
use std::io::ErrorKind;
use std::sync::Arc;
use stdx::budget::{Account, Exhausted, Reservation};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

/// Limit on the bodies that wait for the write path.
const QUEUE_MAX: usize = 8;

/// Length of the longest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Capacity with which gathering begins.
const FIRST_BYTES: usize = DATAGRAM_BYTES_MAX + (16 << 10);

/// There is room for one more datagram until a body is long enough to be passed on.
const CAPACITY_MAX: usize = BODY_BYTES + DATAGRAM_BYTES_MAX + 1;

/// Datagrams that are read before other tasks have their turn. Reading them takes less than half a millisecond. Datagrams
/// may be empty, and arrive faster than they are read, so that the socket alone would not end a turn.
const READS_MAX: usize = 128;

/// Datagrams that are gathered.
struct Gathered {
    bytes: Vec<u8>,
    senders: Senders,
    memory: Reservation,
    of_datagrams: Reservation,
    since: Option<Instant>,
}

impl Gathered {
    /// Begins with little memory, because there may be many sockets that receive little.
    fn begin(of_tenant: &Account, of_datagrams: &Account) -> Result<Self, Exhausted> {
        let reserved = (FIRST_BYTES + Senders::BYTES_MAX) as u64;
        let (memory, of_datagrams) = (of_tenant.reserve(reserved)?, of_datagrams.reserve(reserved)?);
        let (bytes, senders) = (Vec::with_capacity(FIRST_BYTES), Senders::unknown());
        Ok(Self { bytes, senders, memory, of_datagrams, since: None })
    }

    /// Makes room for a datagram and the end of its last line.
    fn make_room(&mut self) -> Result<(), Exhausted> {
        let capacity = self.bytes.capacity();
        if capacity - self.bytes.len() > DATAGRAM_BYTES_MAX {
            return Ok(());
        }
        let wanted = (2 * capacity).clamp(self.bytes.len() + DATAGRAM_BYTES_MAX + 1, CAPACITY_MAX);
        self.reserve(wanted + capacity)?; // while the bytes are moved, both allocations exist
        self.bytes.reserve_exact(wanted - self.bytes.len());
        self.reserve(wanted)
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let with_senders = |bytes: usize| (bytes + Senders::BYTES_MAX) as u64;
        self.memory.resize(with_senders(bytes))?;
        let reserved = self.of_datagrams.resize(with_senders(bytes));
        if reserved.is_err() {
            self.memory.resize(with_senders(self.bytes.capacity()))?;
        }
        reserved
    }

    /// Gives back what the bytes do not need, because they may have to wait for long.
    fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        let kept_bytes = (self.bytes.capacity() + self.senders.memory_bytes()) as u64;
        for memory in [&mut self.memory, &mut self.of_datagrams] {
            drop(memory.split(memory.bytes().saturating_sub(kept_bytes)));
        }
    }
}

/// Serves a socket until the server stops, and returns once what was read is durable or dropped. `of_datagrams` is the
/// tenant's part of the memory that all datagrams may take.
pub(super) async fn serve(
    socket: UdpSocket,
    shared: Shared,
    of_datagrams: Account,
    mut stopping: watch::Receiver<bool>,
) {
    let tickets = Tickets::new();
    let source = Source {
        protocol: Protocol::Lines,
        principal: shared.principal.clone(),
        has_many_tenants: shared.has_many_tenants,
        is_in_lane: false,
        sender: None, // each body knows its senders
        ticket: tickets.ticket().clone(),
        origin: Origin::Sender,
    };
    let (queue, waiting) = mpsc::channel(QUEUE_MAX);
    let writer = tokio::spawn(write(waiting, Writer::new(&shared.intake, source.clone())));
    let mut gathered: Option<Gathered> = None;
    let mut overflow = Overflow::new(shared.intake.metrics.overflowed_datagrams.clone());
    loop {
        let mut is_full = false;
        let due = gathered.as_ref().and_then(|gathered| gathered.since).map(|since| since + shared.gather);
        tokio::select! {
            ready = socket.readable() => {
                if ready.is_ok() {
                    is_full = read(&socket, &mut gathered, &shared, &of_datagrams);
                    // the socket may be readable although there is no datagram, and then it would hold memory for long
                    gathered.take_if(|gathered| gathered.since.is_none());
                    yield_now().await;
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            () = stopped(&mut stopping) => break,
        }
        let is_due = due.is_some_and(|due| due <= Instant::now());
        if is_due || is_full {
            overflow.count(&socket);
            pass_on(gathered.take(), &queue, &source, &shared);
        }
    }
    overflow.count(&socket);
    pass_on(gathered, &queue, &source, &shared);
    drop(queue);
    let _ = writer.await; // a panic is in the log
}

/// Reads some of the datagrams that have arrived. If there is no memory for them, they are read and dropped. Returns true if
/// what was gathered must be passed on before more is read.
fn read(
    socket: &UdpSocket,
    gathered: &mut Option<Gathered>,
    shared: &Shared,
    of_datagrams: &Account,
) -> bool {
    let intake = &shared.intake;
    if gathered.is_none() {
        let of_tenant = intake.unwritten_of(&shared.principal.tenant);
        *gathered = Gathered::begin(&of_tenant, of_datagrams).ok();
    }
    let Some(gathered) = gathered else {
        let mut ignored = [0; 1];
        let unread = (0..READS_MAX).take_while(|_| socket.try_recv_from(&mut ignored).is_ok()).count();
        intake.metrics.unread_datagrams.add(unread as u64);
        return false;
    };
    for _ in 0..READS_MAX {
        // an empty buffer has room, so what is passed on is never empty
        if gathered.bytes.len() >= BODY_BYTES || gathered.make_room().is_err() {
            return true;
        }
        let Gathered { bytes, senders, since, .. } = gathered;
        let start = bytes.len();
        match socket.try_recv_buf_from(bytes) {
            Ok((length, sender)) => {
                intake.metrics.bytes.add(length as u64);
                if bytes.last().is_some_and(|last| *last != b'\n') {
                    bytes.push(b'\n'); // the end of a datagram ends its last line
                }
                if length > 0 {
                    senders.add(start, Peer::new(sender).0.ip());
                }
                since.get_or_insert_with(Instant::now);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => {} // an error of an earlier answer that this socket never sent
        }
    }
    gathered.bytes.len() >= BODY_BYTES
}

fn pass_on(gathered: Option<Gathered>, queue: &mpsc::Sender<Body>, source: &Source, shared: &Shared) {
    let Some(mut gathered @ Gathered { since: Some(since), .. }) = gathered else { return };
    gathered.shrink();
    let Gathered { bytes, senders, memory, of_datagrams, .. } = gathered;
    let (bytes, arrived_ms) = (Arc::new(bytes), shared.intake.now_ms());
    let body = Body { bytes, senders, since, arrived_ms, _memory: memory, _of_datagrams: Some(of_datagrams) };
    let Err(full) = queue.try_send(body) else { return };
    let body = full.into_inner();
    let (points, tenant) = (messages(Protocol::Lines, &body.bytes), &source.principal.tenant);
    let message = format_args!("datagrams arrive faster than their points can be stored");
    let (reason, sender) = (Reason::DatagramQueue, body.senders.only());
    shared.intake.drops.add(&Drop { reason, tenant, points, message, series: "", sender });
}

async fn write(mut waiting: mpsc::Receiver<Body>, mut writer: Writer) {
    loop {
        tokio::select! {
            body = waiting.recv() => match body {
                Some(body) => writer.write(body).await,
                None => break,
            },
            settled = writer.oldest_settled(), if writer.has_bodies() => writer.finish(settled).await,
        }
    }
    writer.settled_all().await;
}
