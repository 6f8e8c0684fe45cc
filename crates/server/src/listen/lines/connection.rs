//! Reads one connection.
//!
//! ```text
//!   socket ─▶ buffer ─ full, or gathered long enough ─▶ body ─▶ intake
//! ```
//!
//! A few bodies may be in flight at a time. At the limit, nothing is read. An idle connection has no buffer.

use super::buffer::{Buffer, FaultyMessage, Taken};
use super::drops::{Drop, Reason};
use super::framing::{Framing, FramingFault};
use super::intake::{Intake, Protocol, Source};
use super::stream::Stream;
use super::ticket::Tickets;
use super::unfinished::Holder;
use super::writer::{MEMORY_WAIT, Writer};
use crate::listen::connections::Link;
use crate::write_path::Origin;
use model::Principal;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::Exhausted;
use stdx::excerpt::Excerpt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// After the sender has ended its stream, its connection stays open until the series of its points exist, but at most
/// this long.
const CREATION_WAIT: Duration = Duration::from_secs(5);

/// Interval at which an idle connection checks whether its points are still queued or in lanes.
const QUEUED_POLL: Duration = Duration::from_millis(200);

/// An idle connection has one ticket for the points to come.
const OWN_TICKETS: usize = 1;

/// What all connections of a listener have in common.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) intake: Arc<Intake>,
    pub(super) principal: Principal,
    /// True if the first part of each path names the tenant of its point.
    pub(super) has_many_tenants: bool,
    /// How long bytes are gathered before they are passed on.
    pub(super) gather: Duration,
    /// A message must be complete within this time.
    pub(super) message_timeout: Duration,
}

pub(super) struct Connection {
    shared: Shared,
    tickets: Tickets,
    buffer: Buffer,
    writer: Writer,
    unfinished: Holder,
    /// True if the sender has ended its stream.
    has_ended: bool,
}

/// Why reading stopped.
#[derive(Debug)]
enum Read {
    /// No further bytes have arrived yet.
    Waits,
    Full,
    NoMemory(Exhausted),
    Ended,
    Broken,
}

impl Connection {
    pub(super) fn new(shared: Shared, protocol: Protocol, sender: IpAddr) -> Self {
        let tickets = Tickets::from(Some(sender));
        let (principal, ticket) = (shared.principal.clone(), tickets.ticket().clone());
        let has_many_tenants = shared.has_many_tenants;
        let (sender, origin) = (Some(sender), Origin::Sender);
        let is_in_lane = false;
        let source = Source { protocol, principal, has_many_tenants, is_in_lane, sender, ticket, origin };
        let framing = match protocol {
            Protocol::Lines => Framing::lines(),
            Protocol::Pickles | Protocol::Protobufs => Framing::Frames,
        };
        let mut buffer = Buffer::new(shared.intake.unwritten_of(&shared.principal.tenant), framing);
        buffer.set_body_bytes(shared.intake.body_bytes(&shared.principal.tenant));
        let unfinished = shared.intake.unfinished.holder(shared.principal.tenant.clone());
        let writer = Writer::new(&shared.intake, source);
        Self { shared, tickets, buffer, writer, unfinished, has_ended: false }
    }

    /// Serves the connection until the sender ends it or the server stops, and then until everything that was read is
    /// durable. Resets the connection if something was dropped, or if the sender has not ended it: a sender that is told of
    /// an orderly end might still write, and lose what it writes.
    pub(super) async fn serve(
        mut self,
        mut stream: Stream,
        link: Arc<Link>,
        mut stopping: watch::Receiver<bool>,
    ) {
        link.identified();
        let mut busy = None;
        loop {
            let deadline = self.deadline();
            // while bodies are in flight, it may be the server that makes the rest of the message wait
            self.unfinished.set(self.buffer.unfinished_since().filter(|_| !self.writer.has_bodies()));
            tokio::select! {
                () = self.unfinished.closed() => {
                    self.shared.intake.metrics.replaced_connections.inc();
                    break;
                }
                () = stream.readable() => {
                    busy.get_or_insert_with(|| link.begin(false));
                    if !self.read(&mut stream).await {
                        break;
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    busy.get_or_insert_with(|| link.begin(false));
                    if !self.due(&mut stream).await {
                        break;
                    }
                }
                settled = self.writer.oldest_settled(), if self.writer.has_bodies() => {
                    let began = Instant::now();
                    self.writer.finish(settled).await;
                    self.buffer.was_not_read(began.elapsed());
                }
                () = sleep(QUEUED_POLL), if busy.is_some() && !self.writer.has_bodies() && self.buffer.since().is_none() => {}
                () = stopped(&mut stopping) => break,
            }
            if self.tickets.take_has_stored() {
                link.stored();
            }
            // an unfinished message does not keep the connection from making room for another one
            if self.is_idle() && !self.tickets.any_queued(OWN_TICKETS) {
                busy = None;
            }
        }
        let _busy = busy.unwrap_or_else(|| link.begin(false));
        self.end(stream).await;
    }

    /// True if what was read is durable, or waits only for its series' creation.
    fn is_idle(&self) -> bool {
        self.writer.is_idle() && self.buffer.since().is_none()
    }

    /// Returns when something has to be done even if no bytes arrive.
    fn deadline(&self) -> Option<Instant> {
        match self.buffer.since() {
            Some(since) => Some(since + self.shared.gather),
            None => self.buffer.unfinished_until(self.shared.message_timeout),
        }
    }

    /// Reads the bytes that have arrived. If the buffer is full then, passes it on. Returns false at the end of the
    /// stream.
    async fn read(&mut self, stream: &mut Stream) -> bool {
        let Shared { intake, principal, .. } = &self.shared;
        self.buffer.set_account(|| intake.unwritten_of(&principal.tenant));
        match self.read_some(stream) {
            Read::Waits => {}
            Read::Full => return self.pass_on().await,
            Read::NoMemory(refused) => {
                let goes_on = self.pass_on().await;
                let Shared { intake, principal, .. } = &self.shared;
                let began = Instant::now();
                intake.unfinished.make_room(&principal.tenant, &refused, began);
                sleep(MEMORY_WAIT).await;
                self.buffer.lacked_memory(began.elapsed());
                return goes_on;
            }
            Read::Ended => {
                self.has_ended = true;
                return false;
            }
            Read::Broken => return false,
        }
        true
    }

    fn read_some(&mut self, stream: &mut Stream) -> Read {
        loop {
            let bytes = match self.buffer.room() {
                Ok(bytes) => bytes,
                Err(refused) => return Read::NoMemory(refused),
            };
            let read = match stream.try_read(bytes) {
                Ok(0) => return Read::Ended,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Read::Waits,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::debug!(%error, "connection ended");
                    return Read::Broken;
                }
            };
            self.shared.intake.metrics.bytes.add(read as u64);
            self.buffer.was_read(Instant::now());
            if self.buffer.is_full() {
                return Read::Full;
            }
        }
    }

    /// Called at [`Self::deadline`]. Returns false if the connection must be closed.
    async fn due(&mut self, stream: &mut Stream) -> bool {
        if self.buffer.since().is_some() {
            return self.pass_on().await;
        }
        // This is the timeout of an unfinished message. If the machine stood still, its rest may have arrived in time.
        let before = self.deadline();
        let _ = timeout(Duration::ZERO, stream.readable()).await; // decrypts what is there
        self.read(stream).await && self.pass_on().await && self.deadline() != before
    }

    /// Passes on all complete messages. Waits while too many bodies are in flight, or while points of known series
    /// cannot be stored. Returns false if what follows cannot be read.
    async fn pass_on(&mut self) -> bool {
        self.unfinished.set(None);
        let intake = &self.shared.intake;
        self.buffer.set_body_bytes(intake.body_bytes(&self.shared.principal.tenant));
        let Taken { body, fault } = self.buffer.take(intake.now_ms());
        let goes_on = fault.is_none_or(|message| self.faulty(&message));
        if let Some(body) = body {
            self.unfinished.prove();
            let began = Instant::now();
            self.writer.write(body).await;
            self.buffer.was_not_read(began.elapsed());
        }
        goes_on
    }

    /// Counts a message that cannot be read. Returns false if what follows it cannot be read either.
    fn faulty(&self, FaultyMessage { fault, beginning }: &FaultyMessage) -> bool {
        let (reason, why) = match fault {
            FramingFault::LongLine => {
                (Reason::TooLong, "a line is longer than 65 KiB, as no series can be; it is skipped")
            }
            FramingFault::LongFrame => (
                Reason::TooLong,
                "a frame is longer than 1 MiB, or this is not a frame (lines belong to another port); the connection is closed",
            ),
            FramingFault::Http => (
                Reason::Malformed,
                "this is an HTTP request, and not lines of Graphite; the connection is closed",
            ),
        };
        self.drop_one(reason, why, beginning);
        let goes_on = *fault == FramingFault::LongLine;
        if !goes_on {
            self.writer.source.ticket.lost();
        }
        goes_on
    }

    fn drop_one(&self, reason: Reason, why: &str, sent: &[u8]) {
        let Source { principal, sender, has_many_tenants, .. } = &self.writer.source;
        let (tenant, sender, series) = (&principal.tenant, *sender, "");
        let add = |message| {
            self.shared.intake.drops.add(&Drop { reason, tenant, points: 1, message, series, sender });
        };
        // readers of the address's tenant must not see what another tenant has sent
        match has_many_tenants {
            true => add(format_args!("{why}")),
            false => add(format_args!("{why}, in {}", Excerpt::of(sent))),
        }
    }

    async fn end(mut self, stream: Stream) {
        self.pass_on().await;
        if !self.buffer.bytes().is_empty() {
            self.drop_one(Reason::Unfinished, "the connection ended within a message", self.buffer.bytes());
        }
        self.writer.settled_all().await;
        let Self { shared, tickets, writer, has_ended, .. } = self;
        drop(writer); // it has a ticket
        match timeout(CREATION_WAIT, tickets.all_stored()).await {
            Ok(true) if has_ended => stream.close().await,
            Ok(_) => {}
            Err(_) => shared.intake.metrics.uncertain_connections.inc(),
        }
    }
}

pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await; // an error means that the listener is gone
}
