//! Creates the series of queued points: one task for each tenant that has queued points.
//!
//! The write path decides how fast series are created. While the tenant's limit `new_series_per_second` does not allow
//! a series, its task waits.

use super::allowance::Allowance;
use super::drops::{Drop, Drops, Reason};
use super::intake::Source;
use super::new_series_queue::{
    CHUNK_SERIES_MAX, Chunk, ChunkLimits, Dropped, Expected, NewSeriesQueue, Pushed,
};
use super::telemetry::Metrics;
use crate::refusal::Refusal;
use crate::write_path::known::{NewSamples, WaitingSeries};
use crate::write_path::{self, Unwritten, write_counted};
use model::{ErrorKind, Principal, TenantId};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Pause after a refusal without `retry_after`.
const RETRY_WAIT: Duration = Duration::from_secs(3);

/// Pause after a panic, so that one which repeats does not fill the log.
const PANIC_WAIT: Duration = Duration::from_secs(1);

/// After a refusal, only this many series are tried at a time, until one attempt succeeds. Points of series that
/// were created by an attempt which failed in part are written again by the next attempt.
const CAUTIOUS_SERIES_MAX: usize = 64;

/// A chunk takes at most 1/`CHUNK_PART` of the memory of the tenant's requests, because it takes several times as much
/// while it is written.
const CHUNK_PART: u64 = 16;

/// Longest single wait of a body until queued points of known series are stored. A commit is faster, so after
/// a longer wait the points cannot be stored now, and other known series must not wait for them. So on a
/// connection of many tenants, these waits take at most 1/`CATCH_UP_PART` of the time.
const CATCH_UP_WAIT: Duration = Duration::from_millis(50);
const CATCH_UP_PART: u32 = 4;

/// Why points are dropped when the server stops.
const STOPPED: &str = "the server stopped before the series of these points were created";

const DRAIN_POLL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Creation {
    context: Arc<write_path::Context>,
    queue: Arc<NewSeriesQueue>,
    drops: Arc<Drops>,
    metrics: Arc<Metrics>,
    /// True once the server no longer waits for the queue. Points that are queued then, or come later, are counted as dropped.
    has_ended: AtomicBool,
}

impl Creation {
    pub(super) const fn new(
        context: Arc<write_path::Context>,
        queue: Arc<NewSeriesQueue>,
        drops: Arc<Drops>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { context, queue, drops, metrics, has_ended: AtomicBool::new(false) }
    }

    /// Queues points of series that do not exist yet, or that are `expected` to exist but cannot be written now. If there is no
    /// room, the points are dropped.
    pub(super) fn queue(self: &Arc<Self>, source: &Source, new: &NewSamples, expected: Expected) {
        let Source { principal, sender, ticket, .. } = source;
        let settings = self.context.overrides.current();
        let (tenant, now) = (&principal.tenant, self.context.clock.instant());
        if self.has_ended() {
            ticket.lost();
            let points = new.parts.iter().map(|part| part.timestamps.len() as u64).sum();
            let (reason, message) = (Reason::Stopping, format_args!("{STOPPED}"));
            return self.drops.add(&Drop { reason, tenant, points, message, series: "", sender: *sender });
        }
        let weight = settings.of(tenant).share_weight as u64;
        let (pushed, dropped) = self.queue.push(tenant, weight, (new, expected), ticket, now);
        if let Some(Dropped { points, series }) = dropped {
            let message =
                format_args!("the queue of new series is full; raise new_series_per_second or --memory");
            let reason = Reason::NewSeriesQueue;
            self.drops.add(&Drop { reason, tenant, points, message, series: &series, sender: *sender });
        }
        if matches!(pushed, Pushed::First) {
            tokio::spawn(Arc::clone(self).serve(principal.clone()));
        }
    }

    /// Waits until nothing is queued, but not longer than until `deadline`. What is left is counted as dropped, and so is what
    /// comes later.
    pub(super) async fn drain(&self, deadline: Instant) {
        while !self.queue.is_empty() && Instant::now() < deadline {
            sleep(DRAIN_POLL).await;
        }
        self.has_ended.store(true, Ordering::Release);
        for (tenant, points) in self.queue.points() {
            let (reason, message) = (Reason::Stopping, format_args!("{STOPPED}"));
            self.drops.add(&Drop { reason, tenant: &tenant, points, message, series: "", sender: None });
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Stores the tenant's queued points until none is left. Nothing else does, so it restarts after a panic.
    async fn serve(self: Arc<Self>, principal: Principal) {
        // the log has the panic
        while tokio::spawn(Arc::clone(&self).create_all(principal.clone())).await.is_err_and(|e| e.is_panic())
        {
            sleep(PANIC_WAIT).await;
        }
    }

    async fn create_all(self: Arc<Self>, principal: Principal) {
        let (mut is_cautious, mut prefers_new) = (false, false);
        while !self.has_ended() {
            let limits = self.chunk_limits(&principal.tenant, is_cautious);
            match self.next_chunk(&principal.tenant, limits, prefers_new) {
                Ok(Some(chunk)) => is_cautious = self.create(&principal, chunk).await,
                Ok(None) if self.queue.forget(&principal.tenant) => return,
                Ok(None) => {}
                Err(wait) => sleep(wait).await,
            }
            prefers_new = !prefers_new;
        }
    }

    /// Takes the next chunk: by turns, series to be created, and points of series that exist by now, so that neither starves.
    /// If the tenant may not create a series yet and nothing else waits, fails with the time until it may.
    fn next_chunk(
        &self,
        tenant: &TenantId,
        limits: ChunkLimits,
        prefers_new: bool,
    ) -> Result<Option<Chunk>, Duration> {
        let known = || self.queue.take_known(tenant, limits);
        if !prefers_new && let Some(chunk) = known() {
            return Ok(Some(chunk));
        }
        if !self.queue.has_new(tenant) {
            return Ok(known());
        }
        match self.allowance(tenant) {
            Ok(allowed) => {
                let series = limits.series.min(allowed);
                Ok(self.queue.take(tenant, ChunkLimits { series, ..limits }))
            }
            Err(wait) => known().map_or(Err(wait), |chunk| Ok(Some(chunk))),
        }
    }

    fn chunk_limits(&self, tenant: &TenantId, is_cautious: bool) -> ChunkLimits {
        let settings = self.context.overrides.current();
        let own_bytes = settings.of(tenant).limits.inflight_bytes.unwrap_or(u64::MAX);
        let bytes = own_bytes.min(self.context.inflight.limit_bytes()) / CHUNK_PART;
        let series = if is_cautious { CAUTIOUS_SERIES_MAX } else { CHUNK_SERIES_MAX };
        ChunkLimits { series, bytes }
    }

    /// Waits until queued points of the tenant's known series are stored, but not longer than `wait` allows. Senders do this before they
    /// send more; otherwise, the points of a series could come so fast that it never leaves the queue.
    pub(super) async fn let_known_catch_up(&self, tenant: &TenantId, wait: &mut Allowance) {
        let began = Instant::now();
        let left = wait.left(began);
        if !left.is_zero() {
            self.queue.known_are_stored(tenant, began + left).await;
            let now = Instant::now();
            wait.take(now.duration_since(began), now);
        }
    }

    /// The time that a sender may spend to [let known series catch up](Self::let_known_catch_up).
    pub(super) fn catch_up_allowance() -> Allowance {
        Allowance::new(CATCH_UP_WAIT, CATCH_UP_PART)
    }

    /// The queue, by which the write path knows which series have waiting points that later ones must not overtake.
    pub(super) fn waiting(&self) -> Arc<dyn WaitingSeries> {
        Arc::clone(&self.queue) as _
    }

    /// How many series the tenant may create now, at least one; or when it may create one.
    fn allowance(&self, tenant: &TenantId) -> Result<usize, Duration> {
        let settings = self.context.overrides.current();
        let allowed = self
            .context
            .tenant(tenant)
            .new_series_allowance(settings.of(tenant), self.context.clock.instant())?;
        Ok(usize::try_from(allowed).unwrap_or(usize::MAX))
    }

    /// Writes the points of a chunk, again and again until they are stored or refused for good. Returns true if an
    /// attempt was refused.
    async fn create(&self, principal: &Principal, chunk: Chunk) -> bool {
        let mut being_written = BeingWritten { creation: self, principal, points: chunk.points(), chunk };
        let (chunk, points) = (&mut being_written.chunk, &mut being_written.points);
        let mut was_refused = false;
        loop {
            let own = self.context.overrides.current();
            let account = self.context.tenant(&principal.tenant);
            let written = match account.inflight(own.of(&principal.tenant)).reserve(0) {
                Ok(memory) => write_counted(&self.context, principal, &mut chunk.batch, memory).await,
                Err(exhausted) => Err(Refusal::from(exhausted).into()),
            };
            match written {
                Ok(outcome) => {
                    self.metrics.created_points.add(outcome.samples);
                    if outcome.refused_samples > 0 {
                        // postponed only after minutes of shortage (`worth_a_retry`): before, this is a refusal, which is retried
                        let reason = match outcome.postponed[..] {
                            [] => Reason::Invalid,
                            _ => Reason::NewSeriesLimit,
                        };
                        let (message, series) = match outcome.errors.first() {
                            Some((error, series)) => (error as &dyn Display, series.as_str()),
                            None => (&"" as &dyn Display, ""),
                        };
                        self.lost(principal, chunk, reason, outcome.refused_samples, message, series);
                    }
                    return was_refused;
                }
                Err(Unwritten { refusal, samples, .. }) => {
                    was_refused = true;
                    let may_pass = matches!(refusal.kind, ErrorKind::Unavailable | ErrorKind::Limited);
                    if may_pass && !refusal.is_lasting() {
                        sleep(refusal.pause().unwrap_or(RETRY_WAIT)).await;
                        continue;
                    }
                    self.metrics.created_points.add(samples);
                    if self.has_ended() {
                        chunk.lost();
                        return was_refused; // its points are counted as dropped already
                    }
                    *points = points.saturating_sub(samples);
                    let reason = match refusal.reason {
                        "stopping" => Reason::Stopping,
                        "active_series" | "series_per_metric" => Reason::NewSeriesLimit,
                        _ if refusal.kind == ErrorKind::Limited => Reason::NewSeriesLimit,
                        _ => Reason::Refused,
                    };
                    let series = refusal.series.as_deref().unwrap_or_default();
                    self.lost(principal, chunk, reason, *points, &refusal.cause(), series);
                    return was_refused;
                }
            }
        }
    }

    fn lost(
        &self,
        principal: &Principal,
        chunk: &Chunk,
        reason: Reason,
        points: u64,
        message: &dyn Display,
        series: &str,
    ) {
        chunk.lost();
        let (tenant, sender, message) = (&principal.tenant, chunk.main_sender(), format_args!("{message}"));
        self.drops.add(&Drop { reason, tenant, points, message, series, sender });
    }
}

/// A chunk that is being written. If this panics, its points are counted as lost.
struct BeingWritten<'c> {
    creation: &'c Creation,
    principal: &'c Principal,
    chunk: Chunk,
    points: u64,
}

impl std::ops::Drop for BeingWritten<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let message = "writing them failed; the log has the error";
            self.creation.lost(self.principal, &self.chunk, Reason::Refused, self.points, &message, "");
        }
    }
}

#[cfg(test)]
mod tests;
