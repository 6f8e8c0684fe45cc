//! Lanes of a sender whose points belong to many tenants: a lane has the bodies of a tenant whose rules take long.
//!
//! ```text
//!   body ─▶ does its tenant have a lane? ─┬─ no ──▶ written at once ─ rules take long ─▶ opens a lane
//!                                         └─ yes ─▶ waits there, or is dropped if the lane is full
//! ```
//!
//! The bodies of a lane are written one after the other, so the points of each series stay in order. A lane ends once all of its
//! bodies are stored or dropped. The sender cannot be told to wait with the points of one tenant only, so points beyond the limit are
//! dropped and counted: one tenant must not stop the others. All lanes together leave a part of the memory to bodies that do not wait
//! for rules.

use super::buffer::Body;
use super::drops::{Drop, Reason};
use super::intake::{Attempts, Intake, Protocol, Source, messages};
use super::writer::Writer;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use stdx::budget::{Account, Exhausted, Reservation};
use tokio::task::JoinHandle;

/// Memory of a waiting body besides its bytes.
const BODY_BYTES: u64 = 512;

/// Memory of a lane: its task.
const LANE_BYTES: u64 = 16 << 10;

/// Lanes leave others 1/`LANES_LEAVE` of the memory for bytes that are not durable yet. Otherwise, a few tenants whose rules
/// take long could stop all connections.
const LANES_LEAVE: u64 = 4;

/// The lanes of a sender. Their memory is part of what their tenants may have for bytes that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Lanes(HashMap<TenantId, Lane>);

#[derive(Debug)]
struct Lane {
    waiting: WaitingBodies,
    task: JoinHandle<()>,
}

/// The bodies that wait in a lane. `None` once it has ended.
type WaitingBodies = Arc<Mutex<Option<VecDeque<Body>>>>;

impl Lanes {
    /// True if nothing waits in a lane, or is being written there.
    pub(super) fn are_idle(&self) -> bool {
        self.0.values().all(Lane::has_ended)
    }

    /// Adds a body to the lane of its tenant. Returns it if the tenant has no lane. If there is no room, the body is dropped.
    pub(super) fn push(&mut self, intake: &Intake, source: &Source, body: Body) -> Option<Body> {
        let tenant = &source.principal.tenant;
        let Some(lane) = self.0.get(tenant) else { return Some(body) };
        let mut waiting = lane.waiting.lock();
        let Some(bodies) = waiting.as_mut() else {
            drop(waiting);
            self.0.remove(tenant);
            return Some(body);
        };
        if let Some(body) = charge_to_tenant(intake, source, body) {
            bodies.push_back(body);
        }
        None
    }

    /// Reserves the memory of a lane that begins with `body`. If there is not enough, the body is dropped.
    pub(super) fn room(intake: &Intake, source: &Source, body: Body) -> Option<(Body, Reservation)> {
        match reserve(&intake.unwritten_of(&source.principal.tenant), LANE_BYTES) {
            Ok(memory) => Some((charge_to_tenant(intake, source, body)?, memory)),
            Err(_) => {
                drop_body(intake, source, &body);
                None
            }
        }
    }

    /// Opens a lane that begins with `body`. `writer` must have no bodies, and everything that the sender sent before for the tenant must
    /// be stored.
    pub(super) fn open(&mut self, mut writer: Writer, body: Body, attempts: Attempts, memory: Reservation) {
        let waiting: WaitingBodies = Arc::new(Mutex::new(Some(VecDeque::new())));
        let (source, bodies) = (writer.source.clone(), Arc::clone(&waiting));
        let (tenant, mut end) = (source.principal.tenant.clone(), End::of(&writer, &waiting));
        let task = tokio::spawn(async move {
            let mut next = Some((body, attempts));
            loop {
                if let Some((body, attempts)) = next {
                    end.current = Some(Arc::clone(&body.bytes));
                    writer.write_in_order(source.clone(), body, attempts).await;
                } else {
                    writer.settled_bodies().await;
                    // the next body may be written at once only if everything before it is stored
                    let mut waiting = bodies.lock();
                    if waiting.as_ref().is_none_or(VecDeque::is_empty) {
                        *waiting = None;
                        break;
                    }
                }
                next = bodies
                    .lock()
                    .as_mut()
                    .and_then(VecDeque::pop_front)
                    .map(|body| (body, Attempts::default()));
            }
            drop((end, memory));
        });
        self.0.insert(tenant, Lane { waiting, task });
    }

    /// Returns once all lanes have ended.
    pub(super) async fn ended(&mut self) {
        for (_, lane) in self.0.drain() {
            let _ = lane.task.await; // a panic is in the log
        }
    }

    /// Forgets lanes that have ended.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|_, lane| !lane.has_ended());
    }
}

impl Lane {
    fn has_ended(&self) -> bool {
        self.waiting.lock().is_none()
    }
}

/// Moves a body's reservation from the connection's account to its tenant's. Drops the body if the tenant has
/// too little memory.
fn charge_to_tenant(intake: &Intake, source: &Source, body: Body) -> Option<Body> {
    let bytes = body.bytes.len() as u64 + BODY_BYTES;
    if let Ok(memory) = reserve(&intake.unwritten_of(&source.principal.tenant), bytes) {
        return Some(Body { _memory: memory, ..body });
    }
    drop_body(intake, source, &body);
    None
}

fn reserve(account: &Account, bytes: u64) -> Result<Reservation, Exhausted> {
    account.whole().leave_room(bytes, 0, LANES_LEAVE)?;
    account.reserve(bytes)
}

fn drop_body(intake: &Intake, source: &Source, body: &Body) {
    source.ticket.lost();
    let (reason, points) = (Reason::RulesQueue, messages(source.protocol, &body.bytes));
    let message =
        format_args!("the rules for the tenant take long, and too many of its points wait for them");
    let (tenant, sender) = (&source.principal.tenant, source.sender.or_else(|| body.senders.only()));
    intake.drops.add(&Drop { reason, tenant, points, message, series: "", sender });
}

/// Counts what is left in a lane when its task ends, even by a panic.
struct End {
    waiting: WaitingBodies,
    /// Bytes of the body that is being written.
    current: Option<Arc<Vec<u8>>>,
    protocol: Protocol,
    /// Is told of the points that are lost.
    lost: Box<dyn Fn(u64) + Send + Sync>,
}

impl End {
    fn of(writer: &Writer, waiting: &WaitingBodies) -> Self {
        let (intake, source) = (Arc::clone(&writer.intake), writer.source.clone());
        let protocol = source.protocol;
        let lost = Box::new(move |points| {
            source.ticket.lost();
            let (reason, message) =
                (Reason::Refused, format_args!("writing them failed; the log has the error"));
            let (tenant, sender) = (&source.principal.tenant, source.sender);
            intake.drops.add(&Drop { reason, tenant, points, message, series: "", sender });
        });
        Self { waiting: Arc::clone(waiting), current: None, protocol, lost }
    }
}

impl std::ops::Drop for End {
    fn drop(&mut self) {
        let Some(left) = self.waiting.lock().take() else { return }; // it has ended in order
        let bodies = self.current.iter().chain(left.iter().map(|body| &body.bytes));
        (self.lost)(bodies.map(|bytes| messages(self.protocol, bytes)).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::super::senders::Senders;
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn lanes_leave_memory_to_others() {
        let whole = Account::new("unwritten", 1 << 20);
        let mut held = Vec::new();
        for _ in 0..10 {
            let part = whole.part();
            part.share(u64::MAX, 1 << 20);
            held.extend(std::iter::from_fn(|| reserve(&part, 1 << 10).ok()));
        }
        assert_eq!(whole.used_bytes(), 3 << 18);
        assert!(whole.reserve(1 << 18).is_ok());
        held.pop();
        assert!(reserve(&whole.part(), 1 << 10).is_ok());
    }

    #[test]
    fn what_a_lane_has_when_it_panics_is_counted() {
        let account = Account::new("unwritten", 1000);
        let body = |lines: &str| Body {
            bytes: Arc::new(lines.as_bytes().to_vec()),
            senders: Senders::unknown(),
            since: tokio::time::Instant::now(),
            arrived_ms: 0,
            _memory: account.reserve(10).unwrap(),
            _of_datagrams: None,
        };
        for (is_over, expected) in [(false, 6), (true, 0)] {
            let bodies = (!is_over).then(|| VecDeque::from([body("a 1 2\na 2 3\n"), body("b 1 2\n")]));
            let (waiting, points) = (Arc::new(Mutex::new(bodies)), Arc::<AtomicU64>::default());
            let count = Arc::clone(&points);
            let end = End {
                waiting: Arc::clone(&waiting),
                current: Some(body("a 1 2\na 2 3\na 3 4\n").bytes),
                protocol: Protocol::Lines,
                lost: Box::new(move |lost| _ = count.fetch_add(lost, Ordering::Relaxed)),
            };
            drop(end);
            assert_eq!(points.load(Ordering::Relaxed), expected);
            assert!(waiting.lock().is_none());
            assert_eq!(account.used_bytes(), 0);
        }
    }
}
