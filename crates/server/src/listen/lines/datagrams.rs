//! Reads lines from datagrams.
//!
//! ```text
//!   socket ─▶ body ─ full, or gathered long enough ─▶ a short queue ─▶ intake
//! ```
//!
//! UDP cannot tell a sender to wait. While points of known series cannot be stored, the queue fills, and datagrams are
//! then dropped and counted. The system drops datagrams too, if they arrive faster than they are read.

use super::buffer::{BODY_BYTES, Body};
use super::connection::{Shared, stopped};
use super::drops::{Drop, Reason};
use super::intake::{Protocol, Source, messages};
use super::ticket::Tickets;
use super::writer::Writer;
use crate::write_path::Origin;
use std::io::ErrorKind;
use std::sync::Arc;
use stdx::budget::Reservation;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

/// Limit on the bodies that wait for the write path.
const QUEUE_MAX: usize = 8;

/// Length of the longest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Datagrams that are read before other tasks have their turn. Reading them takes less than half a millisecond. Datagrams
/// may be empty, and arrive faster than they are read, so that the socket alone would not end a turn.
const READS_MAX: usize = 128;

/// Datagrams that are gathered.
struct Gathered {
    bytes: Vec<u8>,
    memory: Reservation,
    since: Option<Instant>,
}

/// Serves a socket until the server stops, and returns once what was read is durable or dropped.
pub(super) async fn serve(socket: UdpSocket, shared: Shared, mut stopping: watch::Receiver<bool>) {
    let tickets = Tickets::new();
    let source = Source {
        protocol: Protocol::Lines,
        principal: shared.principal.clone(),
        has_many_tenants: shared.has_many_tenants,
        sender: None, // a body has datagrams of many senders
        ticket: tickets.ticket().clone(),
        origin: Origin::Sender,
    };
    let (queue, waiting) = mpsc::channel(QUEUE_MAX);
    let writer = tokio::spawn(write(waiting, Writer::new(&shared.intake, source.clone())));
    let mut gathered: Option<Gathered> = None;
    loop {
        let due = gathered.as_ref().and_then(|gathered| gathered.since).map(|since| since + shared.gather);
        tokio::select! {
            ready = socket.readable() => {
                if ready.is_ok() {
                    read(&socket, &mut gathered, &shared);
                    yield_now().await;
                }
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            () = stopped(&mut stopping) => break,
        }
        let is_due = due.is_some_and(|due| due <= Instant::now());
        if is_due || gathered.as_ref().is_some_and(|gathered| gathered.bytes.len() >= BODY_BYTES) {
            pass_on(gathered.take(), &queue, &source, &shared);
        }
    }
    pass_on(gathered, &queue, &source, &shared);
    drop(queue);
    let _ = writer.await; // a panic is in the log
}

/// Reads some of the datagrams that have arrived. If there is no memory for them, they are read and dropped.
fn read(socket: &UdpSocket, gathered: &mut Option<Gathered>, shared: &Shared) {
    let capacity = BODY_BYTES + DATAGRAM_BYTES_MAX + 1;
    let intake = &shared.intake;
    if gathered.is_none()
        && let Ok(memory) = intake.unwritten.reserve(capacity as u64)
    {
        *gathered = Some(Gathered { bytes: Vec::with_capacity(capacity), memory, since: None });
    }
    let Some(Gathered { bytes, since, .. }) = gathered else {
        let mut ignored = [0; 1];
        let unread = (0..READS_MAX).take_while(|_| socket.try_recv_from(&mut ignored).is_ok()).count();
        intake.metrics.unread_datagrams.add(unread as u64);
        return;
    };
    for _ in 0..READS_MAX {
        if bytes.len() >= BODY_BYTES {
            return;
        }
        match socket.try_recv_buf_from(bytes) {
            Ok((length, _)) => {
                intake.metrics.bytes.add(length as u64);
                if bytes.last().is_some_and(|last| *last != b'\n') {
                    bytes.push(b'\n'); // the end of a datagram ends its last line
                }
                since.get_or_insert_with(Instant::now);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {} // an error of an earlier answer that this socket never sent
        }
    }
}

fn pass_on(gathered: Option<Gathered>, queue: &mpsc::Sender<Body>, source: &Source, shared: &Shared) {
    let Some(Gathered { bytes, memory, since: Some(since) }) = gathered else { return };
    let body = Body { bytes: Arc::new(bytes), since, arrived_ms: shared.intake.now_ms(), _memory: memory };
    let Err(full) = queue.try_send(body) else { return };
    let (points, tenant) = (messages(Protocol::Lines, &full.into_inner().bytes), &source.principal.tenant);
    let message = "datagrams arrive faster than their points can be stored";
    let reason = Reason::DatagramQueue;
    shared.intake.drops.add(&Drop { reason, tenant, points, message, series: "", sender: None });
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
