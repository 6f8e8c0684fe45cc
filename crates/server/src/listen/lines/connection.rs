//! Reads one connection.
//!
//! ```text
//!   socket ─▶ buffer ─ full, or gathered long enough ─▶ body ─▶ intake
//! ```
//!
//! A few bodies may be on their way at a time. While there are no more allowed, nothing is read. An idle connection has
//! no buffer.

use super::buffer::{Buffer, Taken};
use super::drops::{Drop, Reason};
use super::framing::Framing;
use super::intake::{Intake, Source};
use super::ticket::Tickets;
use crate::listen::connections::Link;
use model::Principal;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Limit on the bodies of a connection that are not durable yet.
const BODIES_MAX: usize = 4;

/// Wait before reading, if there is no memory for a buffer.
const MEMORY_WAIT: Duration = Duration::from_millis(50);

/// After the sender has ended its stream, its connection stays open until the series of its points exist, but at most
/// this long.
const CREATION_WAIT: Duration = Duration::from_secs(5);

/// What all connections of a listener have in common.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) intake: Arc<Intake>,
    pub(super) principal: Principal,
    /// How long bytes are gathered before they are passed on.
    pub(super) gather: Duration,
    /// A message must be complete within this time.
    pub(super) message_timeout: Duration,
}

pub(super) struct Connection {
    shared: Shared,
    source: Source,
    tickets: Tickets,
    buffer: Buffer,
    bodies: JoinSet<()>,
}

/// Why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    /// No further bytes have arrived yet.
    Waits,
    Full,
    NoMemory,
    Ended,
    Broken,
}

impl Connection {
    pub(super) fn new(shared: Shared, sender: IpAddr, framing: Framing) -> Self {
        let tickets = Tickets::new();
        let (principal, ticket) = (shared.principal.clone(), tickets.ticket().clone());
        let source = Source { principal, sender: Some(sender), ticket };
        let buffer = Buffer::new(shared.intake.unwritten.clone(), framing);
        Self { shared, source, tickets, buffer, bodies: JoinSet::new() }
    }

    /// Serves the connection until the sender ends it or the server stops. Closes it once everything that was read is
    /// durable. If something was dropped, resets it instead.
    pub(super) async fn serve(
        mut self,
        stream: TcpStream,
        link: Arc<Link>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut busy = None;
        loop {
            let deadline = self.deadline();
            tokio::select! {
                ready = stream.readable() => {
                    busy.get_or_insert_with(|| link.begin(false));
                    if ready.is_err() || !self.read(&stream).await {
                        break;
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    if !self.due().await {
                        break;
                    }
                }
                Some(_) = self.bodies.join_next(), if !self.bodies.is_empty() => {}
                () = stopped(&mut stopping) => break,
            }
            // an unfinished message does not keep the connection from making room for another one
            if self.bodies.is_empty() && self.buffer.since().is_none() {
                busy = None;
            }
        }
        self.end(stream).await;
    }

    /// Returns when something has to be done even if no bytes arrive.
    fn deadline(&self) -> Option<Instant> {
        match (self.buffer.since(), self.buffer.unfinished_since()) {
            (Some(since), _) => Some(since + self.shared.gather),
            (None, unfinished) => unfinished.map(|since| since + self.shared.message_timeout),
        }
    }

    /// Reads the bytes that have arrived. If the buffer is full then, passes it on. Returns false at the end of the
    /// stream.
    async fn read(&mut self, stream: &TcpStream) -> bool {
        match self.read_some(stream) {
            Read::Waits => {}
            Read::Full => self.pass_on().await,
            Read::NoMemory => {
                self.pass_on().await;
                sleep(MEMORY_WAIT).await;
            }
            Read::Ended | Read::Broken => return false,
        }
        true
    }

    fn read_some(&mut self, stream: &TcpStream) -> Read {
        loop {
            let Ok(bytes) = self.buffer.room() else { return Read::NoMemory };
            let read = match stream.try_read_buf(bytes) {
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
    async fn due(&mut self) -> bool {
        if self.buffer.since().is_some() {
            self.pass_on().await;
            return true;
        }
        false // the sender does not finish its message
    }

    /// Passes on all complete messages. Waits while too many bodies are on their way, or while points of known series
    /// cannot be stored.
    async fn pass_on(&mut self) {
        let Taken { body, is_too_long } = self.buffer.take();
        if is_too_long {
            self.drop_one(Reason::TooLong, "a line is longer than any series can be; it is skipped");
        }
        let Some(body) = body else { return };
        while self.bodies.len() >= BODIES_MAX {
            self.bodies.join_next().await;
        }
        while self.bodies.try_join_next().is_some() {}
        let (intake, source) = (Arc::clone(&self.shared.intake), self.source.clone());
        let permit = intake.permit(&source).await;
        match intake.send(&source, &body).await {
            Ok(sent) => {
                self.bodies.spawn(async move {
                    intake.settle(&source, body, Ok(sent), permit).await;
                });
            }
            // nothing else of this sender is accepted before this body
            Err(refusal) => intake.settle(&source, body, Err(refusal), permit).await,
        }
    }

    fn drop_one(&self, reason: Reason, message: &str) {
        let Source { principal, sender, .. } = &self.source;
        let (tenant, sender) = (&principal.tenant, *sender);
        self.shared.intake.drops.add(&Drop { reason, tenant, points: 1, message, series: "", sender });
    }

    async fn end(mut self, stream: TcpStream) {
        self.pass_on().await;
        if !self.buffer.is_empty() {
            self.drop_one(Reason::Unfinished, "the connection ended within a message");
        }
        while self.bodies.join_next().await.is_some() {}
        let Self { tickets, source, .. } = self;
        drop(source);
        let all_stored = timeout(CREATION_WAIT, tickets.all_stored()).await;
        if all_stored != Ok(true) {
            // the sender sees a reset instead of an end
            let _ = stream.set_zero_linger();
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await; // an error means that the listener is gone
}
