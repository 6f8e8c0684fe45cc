//! Lanes of a sender whose points belong to many tenants: a lane has the bodies of a tenant whose rules take long.
//!
//! ```text
//!   body ─▶ has its tenant a lane? ─┬─ no ──▶ written at once ─ rules take long ─▶ opens a lane
//!                                   └─ yes ─▶ waits there, or is dropped if the lane is full
//! ```
//!
//! The bodies of a lane are written one after the other, so the points of each series stay in order. A lane ends once all of its
//! bodies are stored or dropped. The sender cannot be told to wait with the points of one tenant only, so points beyond the limit are
//! dropped and counted: one tenant must not stop the others.

use super::buffer::Body;
use super::drops::{Drop, Reason};
use super::intake::{Attempts, Intake, Source, messages};
use super::writer::Writer;
use crate::write_path::known::Later;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use stdx::budget::Reservation;
use tokio::task::JoinHandle;

/// Memory of a waiting body besides its bytes.
const BODY_BYTES: u64 = 512;

/// Memory of a lane: its task.
const LANE_BYTES: u64 = 16 << 10;

/// The lanes of a sender. Their memory is part of what their tenants may have for bytes that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Lanes(HashMap<TenantId, Lane>);

#[derive(Debug)]
struct Lane {
    waiting: Waiting,
    task: JoinHandle<()>,
}

/// The bodies that wait in a lane. `None` once it has ended.
type Waiting = Arc<Mutex<Option<VecDeque<Body>>>>;

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
        let Some(bodies) = waiting.as_mut().filter(|_| !lane.task.is_finished()) else {
            drop(waiting);
            self.0.remove(tenant);
            return Some(body);
        };
        // the memory that the body has so far is that of the whole connection
        if let Ok(memory) = intake.unwritten_of(tenant).reserve(body.bytes.len() as u64 + BODY_BYTES) {
            bodies.push_back(Body { _memory: memory, ..body });
            return None;
        }
        drop(waiting);
        source.ticket.lost();
        let (reason, points) = (Reason::RulesQueue, messages(source.protocol, &body.bytes));
        let message = "the rules for the tenant take long, and too many of its points wait for them";
        intake.drops.add(&Drop { reason, tenant, points, message, series: "", sender: source.sender });
        None
    }

    /// Reserves the memory of a lane. `None` if there is not enough, or if the sender's points belong to one tenant.
    pub(super) fn room(intake: &Intake, source: &Source) -> Option<Reservation> {
        if !source.has_many_tenants {
            return None;
        }
        intake.unwritten_of(&source.principal.tenant).reserve(LANE_BYTES).ok()
    }

    /// Opens a lane that begins with `body`. `writer` must have no bodies, and everything that the sender sent before for the tenant must
    /// be stored.
    pub(super) fn open(
        &mut self,
        mut writer: Writer,
        (body, attempts, later): (Body, Attempts, Later),
        memory: Reservation,
    ) {
        let waiting: Waiting = Arc::new(Mutex::new(Some(VecDeque::new())));
        let (source, bodies) = (writer.source.clone(), Arc::clone(&waiting));
        let tenant = source.principal.tenant.clone();
        let task = tokio::spawn(async move {
            writer.go_on(source.clone(), body, attempts, later).await;
            loop {
                let next = bodies.lock().as_mut().and_then(VecDeque::pop_front);
                if let Some(body) = next {
                    writer.write_in_order(source.clone(), body).await;
                    continue;
                }
                writer.settled_bodies().await;
                // the next body may be written at once only if everything before it is stored
                let mut waiting = bodies.lock();
                if waiting.as_ref().is_none_or(VecDeque::is_empty) {
                    *waiting = None;
                    break;
                }
            }
            drop(memory);
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
    /// A lane that has panicked has ended, too.
    fn has_ended(&self) -> bool {
        self.waiting.lock().is_none() || self.task.is_finished()
    }
}
