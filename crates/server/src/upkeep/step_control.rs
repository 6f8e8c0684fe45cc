//! Things that must be done regularly during a long step: check for shutdown, yield to requests, and refresh tables.

use super::{Context, EVERY};
use crate::limits::pacer::Pacer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tables::Stop;
use tables::upkeep::Now;

#[derive(Debug)]
pub(super) struct StepControl {
    pub(super) context: Arc<Context>,
    stopping: Arc<AtomicBool>,
    began: Instant,
    /// When tables were last refreshed. A refresh shows commits of other processes to queries.
    pub(super) refreshed: Instant,
    pacer: Pacer,
}

impl StepControl {
    pub(super) fn new(context: Arc<Context>, stopping: Arc<AtomicBool>) -> Self {
        let (now, pacer) = (context.clock.instant(), context.pacer());
        Self { context, stopping, began: now, refreshed: now, pacer }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) fn instant(&self) -> Instant {
        self.context.clock.instant()
    }

    pub(super) fn since(&self, at: Instant) -> Duration {
        self.instant().saturating_duration_since(at)
    }

    pub(super) fn now(&self) -> Now {
        let steady_ms = i64::try_from(self.since(self.began).as_millis()).unwrap_or(i64::MAX);
        Now { wall_ms: self.context.clock.now_ms(), steady_ms }
    }

    /// Called regularly during a step. Yields to requests, and refreshes tables if it is time. Returns false if the
    /// step must end because the node shuts down.
    pub(super) fn go_on(&mut self) -> bool {
        if self.since(self.refreshed) >= EVERY {
            self.refresh_all();
        }
        self.pacer.yield_to_requests();
        !self.is_stopping()
    }

    pub(super) fn is_past(&self, end: Option<Instant>) -> bool {
        end.is_some_and(|end| self.instant() >= end)
    }

    /// Cancels reads when the node stops, and at `end`.
    pub(super) fn stop_at(&self, end: Option<Instant>) -> Stop {
        let (clock, stopping) = (Arc::clone(&self.context.clock), Arc::clone(&self.stopping));
        Stop::when(move || stopping.load(Ordering::Relaxed) || end.is_some_and(|end| clock.instant() >= end))
    }

    pub(super) fn refresh_all(&mut self) {
        for ((tenant, _), table) in self.context.lake.tables.all_open() {
            if self.is_stopping() {
                return;
            }
            if let Err(error) = table.refresh() {
                tracing::debug!(%tenant, %error, "cannot refresh a table");
            }
        }
        self.refreshed = self.instant();
    }
}
