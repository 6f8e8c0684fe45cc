//! Whether the wall clock can be believed.
//!
//! What retention drops is gone for good, and a sample that is refused because it lies in the future is dropped by its
//! sender. A clock that is wrong does both to everything at once, so both ask here first:
//!
//! ```text
//!   before the start:  newest commit, newest sample in the journal ─┐
//!   since the start:   wall clock − steady clock, samples that came ─┴─▶ Judge ─▶ doubt, or none
//! ```
//!
//! While there is doubt nothing expires. While the clock seems to be set back, samples from its future are answered with
//! "later" instead of "never". A clock that keeps saying the same is believed in the end, and sooner where senders say it
//! too.

mod judge;

pub(crate) use judge::Doubt;
use judge::{Judge, Word};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;
use stdx::clock::Clock;
use tables::upkeep::Now;

/// The node's wall clock, and what is known about it.
#[derive(Debug)]
pub(crate) struct WallClock {
    began: Instant,
    /// For so long after the start there is doubt in any case.
    settle_ms: i64,
    judge: Mutex<(Judge, Option<Doubt>)>,
    /// The newest sample that came since the start.
    heard_ms: AtomicI64,
}

impl WallClock {
    pub(crate) fn new(clock: &dyn Clock, settle_ms: i64) -> Self {
        let judge = Judge::new(clock.now_ms());
        Self {
            began: clock.instant(),
            settle_ms,
            judge: Mutex::new((judge, Some(Doubt::Settling))),
            heard_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// What both clocks say.
    pub(crate) fn read(&self, clock: &dyn Clock) -> Now {
        let steady = clock.instant().saturating_duration_since(self.began);
        let steady_ms = i64::try_from(steady.as_millis()).unwrap_or(i64::MAX);
        Now { wall_ms: clock.now_ms(), steady_ms }
    }

    /// A sample of this time was taken in.
    pub(crate) fn heard(&self, timestamp_ms: i64) {
        // most requests bring nothing newer than some other one: those only read
        if timestamp_ms > self.heard_ms.load(Ordering::Relaxed) {
            self.heard_ms.fetch_max(timestamp_ms, Ordering::Relaxed);
        }
    }

    /// Something was found that was written at `date_ms`, by whose clock ever.
    pub(crate) fn found(&self, date_ms: i64, clock: &dyn Clock) {
        let now = self.read(clock);
        self.judge.lock().0.found(date_ms, now);
    }

    /// Why it is not to be believed now.
    pub(crate) fn doubt(&self, clock: &dyn Clock) -> Option<Doubt> {
        let now = self.read(clock);
        let word = Word { heard_ms: self.heard_ms.load(Ordering::Relaxed), settle_ms: self.settle_ms };
        let mut judge = self.judge.lock();
        let (doubt, before) = (judge.0.doubt(now, word), judge.1);
        judge.1 = doubt;
        drop(judge);
        if doubt != before {
            tell(doubt);
        }
        doubt
    }
}

/// The log has one line for each change.
fn tell(doubt: Option<Doubt>) {
    match doubt {
        None => tracing::info!("the clock is believed: samples expire by it"),
        Some(Doubt::Settling) => {
            tracing::info!("the clock is plausible; nothing expires until it has settled")
        }
        Some(Doubt::Ahead) => tracing::warn!(
            "the clock is far ahead of what was written last, or has jumped ahead: nothing expires for a day, or for an \
             hour where senders' samples agree with it"
        ),
        Some(Doubt::Behind) => tracing::warn!(
            "the clock is behind what was written already, or was set back: samples from its future are answered with \
             503, and nothing expires, for a day, or for an hour where senders' samples agree with it"
        ),
    }
}

#[cfg(test)]
mod tests;
