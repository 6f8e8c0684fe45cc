//! Decides whether the wall clock can be trusted.
//!
//! If the clock were wrong, retention could delete all samples, and samples could be refused for good. Both therefore
//! ask first whether the clock is trusted:
//!
//! ```text
//!   before the start:  time of the last trusted clock (memory) ────────┐
//!                      newest commit, newest sample in the journal ────┤
//!   since the start:   wall clock − monotonic clock, received samples ─┴─▶ Judge ─▶ doubt, or none ─▶ memory
//! ```
//!
//! While there is doubt, nothing expires. If the clock seems to be behind, samples from its future get an error that
//! senders retry. A clock that stays consistent is trusted eventually.

mod judge;
mod memory;

use admission::age::Doubt;
use journal::Disk;
use judge::{Evidence, Judge};
use memory::Memory;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;
use stdx::clock::Clock;
use tables::upkeep::Now;

/// The last trusted time is saved at most this often.
const NOTED_EVERY_MS: i64 = 60_000;

#[derive(Debug)]
pub(crate) struct WallClock {
    began: Instant,
    /// Since the start, this much time must pass before any clock is trusted.
    settle_ms: i64,
    judge: Mutex<(Judge, Option<Doubt>)>,
    /// The largest difference between the timestamp of a sample and the monotonic clock when the sample arrived;
    /// [`UNHEARD`] before the first sample.
    sender_lead_ms: AtomicI64,
    memory: Memory,
    /// When the trusted time was last saved, by the monotonic clock.
    noted_ms: Mutex<Option<i64>>,
}

const UNHEARD: i64 = i64::MIN;

impl WallClock {
    pub(crate) fn open(clock: &dyn Clock, settle_ms: i64, disk: Arc<dyn Disk>, data_dir: &Path) -> Self {
        let (memory, last_trusted) = Memory::open(disk, data_dir);
        let judge = Judge::new(clock.now_ms(), last_trusted);
        Self {
            began: clock.instant(),
            settle_ms,
            judge: Mutex::new((judge, Some(Doubt::Settling))),
            sender_lead_ms: AtomicI64::new(UNHEARD),
            memory,
            noted_ms: Mutex::default(),
        }
    }

    pub(crate) fn read(&self, clock: &dyn Clock) -> Now {
        Now { wall_ms: clock.now_ms(), steady_ms: self.steady_ms(clock) }
    }

    fn steady_ms(&self, clock: &dyn Clock) -> i64 {
        let steady = clock.instant().saturating_duration_since(self.began);
        i64::try_from(steady.as_millis()).unwrap_or(i64::MAX)
    }

    /// Called with the timestamp of each accepted sample.
    pub(crate) fn heard(&self, timestamp_ms: i64, clock: &dyn Clock) {
        let lead_ms = timestamp_ms.saturating_sub(self.steady_ms(clock));
        // most samples do not raise the maximum
        if lead_ms > self.sender_lead_ms.load(Ordering::Relaxed) {
            self.sender_lead_ms.fetch_max(lead_ms, Ordering::Relaxed);
        }
    }

    /// Called with a date from stored data: some node's clock showed it when the data was written.
    pub(crate) fn found(&self, date_ms: i64, clock: &dyn Clock) {
        let now = self.read(clock);
        self.judge.lock().0.found(date_ms, now);
    }

    /// Returns the reason why the clock cannot be trusted now, if there is one.
    pub(crate) fn doubt(&self, clock: &dyn Clock) -> Option<Doubt> {
        let now = self.read(clock);
        let sender_lead_ms = Some(self.sender_lead_ms.load(Ordering::Relaxed))
            .filter(|sender_lead_ms| *sender_lead_ms != UNHEARD);
        let evidence = Evidence { sender_lead_ms, settle_ms: self.settle_ms };
        let mut judge = self.judge.lock();
        let (doubt, before) = (judge.0.doubt(now, evidence), judge.1);
        judge.1 = doubt;
        drop(judge);
        if doubt != before {
            log_doubt(doubt);
        }
        doubt
    }

    /// Saves the present time if the clock is trusted, but at most once per [`NOTED_EVERY_MS`].
    pub(crate) fn note(&self, clock: &dyn Clock) {
        let now = self.read(clock);
        let mut noted_ms = self.noted_ms.lock();
        let is_due = noted_ms.is_none_or(|noted_ms| now.steady_ms - noted_ms >= NOTED_EVERY_MS);
        if !is_due || self.doubt(clock).is_some() || !self.judge.lock().0.is_confirmed() {
            return;
        }
        match self.memory.store(Some(now.wall_ms)) {
            Ok(()) => *noted_ms = Some(now.steady_ms),
            Err(error) => self.memory.warn(&error.to_string(), "cannot be saved; it will be retried"),
        }
    }
}

fn log_doubt(doubt: Option<Doubt>) {
    match doubt {
        None => tracing::info!("the clock is trusted: samples expire according to it"),
        Some(Doubt::Settling) => {
            tracing::info!(
                "the clock is plausible; nothing expires until the time retention_wait has passed since the start"
            )
        }
        Some(Doubt::Ahead) => tracing::warn!(
            "the clock has jumped ahead, or is far ahead of the last time at which it was trusted; nothing expires until the \
             clock has been consistent for a day (an hour if samples agree with the clock, a week if they disagree)"
        ),
        Some(Doubt::Behind) => tracing::warn!(
            "the clock was set back, or is behind data that was already written; for a day, nothing expires, and samples \
             too far ahead of the clock are answered with 503"
        ),
    }
}

#[cfg(test)]
mod tests;
