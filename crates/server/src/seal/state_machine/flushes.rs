//! Requests for a flush. A flush of all tenants is answered once everything that was accepted before it is in tables. A
//! flush of one tenant is answered later, once the tenant's samples have also left the heads.

use crate::seal::flushed::Flushed;
use model::TenantId;
use std::time::{Duration, Instant};

/// A flush waits this long for blocked tenants before it is answered without them.
const PATIENCE: Duration = Duration::from_secs(60);

/// This many rounds for flushes may follow each other without a pause.
const BURST: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlushId(pub(crate) u64);

#[derive(Debug)]
struct Waiter {
    id: FlushId,
    /// The tenant whose samples must leave the heads; `None` for all tenants.
    of: Option<TenantId>,
    requested: Instant,
    /// What all rounds since the request have written.
    flushed: Flushed,
}

pub(super) type Answer = (FlushId, Flushed);

/// Flush requests, grouped by what they wait for.
#[derive(Debug)]
pub(super) struct Flushes {
    pace: FlushPace,
    /// Requests that came after the current round had begun. They wait for the next round.
    waiting: Vec<Waiter>,
    /// Requests that wait for the current round: for its release if they are for one tenant, and otherwise for its
    /// commit.
    in_round: Vec<Waiter>,
    /// Requests whose round could not seal all tenants. They wait until no tenant is blocked.
    held: Vec<Waiter>,
}

impl Flushes {
    pub(super) const fn new(interval: Duration) -> Self {
        let pace = FlushPace::new(interval);
        Self { pace, waiting: Vec::new(), in_round: Vec::new(), held: Vec::new() }
    }

    pub(super) fn request(&mut self, id: FlushId, of: Option<TenantId>, now: Instant) {
        self.waiting.push(Waiter { id, of, requested: now, flushed: Flushed::default() });
    }

    /// Forgets a request whose client is gone. Requests that wait for the current round stay.
    pub(super) fn abandon(&mut self, id: FlushId) {
        for waiters in [&mut self.waiting, &mut self.held] {
            waiters.retain(|waiter| waiter.id != id);
        }
    }

    /// Time until a round for the waiting requests may begin; `None` if no request waits.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        (!self.waiting.is_empty()).then(|| self.pace.wait(now))
    }

    /// Called when a round begins. Returns true if a request waits for this round.
    pub(super) fn begin_round(&mut self, now: Instant) -> bool {
        self.in_round = std::mem::take(&mut self.waiting);
        let is_requested = !self.in_round.is_empty();
        if is_requested {
            self.pace.begin(now);
        }
        is_requested
    }

    /// Called when the current round is committed. Answers the requests for all tenants or, if the round has left
    /// tenants out, keeps them until no tenant is blocked.
    pub(super) fn commit_round(&mut self, flushed: &Flushed, is_partial: bool, closed: u64) -> Vec<Answer> {
        let mut waiters: Vec<_> = self.in_round.extract_if(.., |waiter| waiter.of.is_none()).collect();
        waiters.iter_mut().for_each(|waiter| waiter.flushed.add(flushed));
        if is_partial {
            self.held.append(&mut waiters);
        }
        waiters.into_iter().map(|w| (w.id, Flushed { blocked: closed, ..w.flushed })).collect()
    }

    /// Called when the current round is committed, and again with `is_released` when it has released its samples.
    /// Answers the requests for one tenant if the round has left out this tenant or has released its samples.
    pub(super) fn answer_tenants(
        &mut self,
        flushed: &Flushed,
        leaves_out: impl Fn(&TenantId) -> bool,
        is_released: bool,
    ) -> Vec<Answer> {
        let is_left_out = |waiter: &Waiter| waiter.of.as_ref().is_some_and(&leaves_out);
        let is_answered = |waiter: &mut Waiter| waiter.of.is_some() && (is_released || is_left_out(waiter));
        let answered: Vec<_> = self.in_round.extract_if(.., is_answered).collect();
        let answer = |waiter: &Waiter| {
            let blocked = u64::from(is_left_out(waiter));
            (waiter.id, Flushed { blocked, ..*flushed })
        };
        answered.iter().map(answer).collect()
    }

    /// Called when a blocked tenant has been sealed. Adds what was written for this tenant to the result of each
    /// request that waits for blocked tenants.
    pub(super) fn add_unblocked(&mut self, flushed: &Flushed) {
        self.held.iter_mut().for_each(|waiter| waiter.flushed.add(flushed));
    }

    /// Called with the number of `blocked` tenants. If there are none, the requests that waited for them join the
    /// next round. Otherwise, those that have waited for [`PATIENCE`] are answered.
    pub(super) fn expire_held(&mut self, blocked: u64, now: Instant) -> Vec<Answer> {
        if blocked == 0 {
            self.waiting.append(&mut self.held);
            return Vec::new();
        }
        let may_wait = |waiter: &Waiter| now.saturating_duration_since(waiter.requested) < PATIENCE;
        let (patient, expired) = std::mem::take(&mut self.held).into_iter().partition(may_wait);
        self.held = patient;
        let answer = |waiter: Waiter| (waiter.id, Flushed { blocked, ..waiter.flushed });
        Vec::into_iter(expired).map(answer).collect()
    }
}

/// Limits how often rounds begin for flush requests, as a token bucket. Each of these rounds writes small files to
/// every table.
#[derive(Debug)]
struct FlushPace {
    interval: Duration,
    /// When the bucket will be full again; `None` before the first round.
    full_at: Option<Instant>,
}

impl FlushPace {
    const fn new(interval: Duration) -> Self {
        Self { interval, full_at: None }
    }

    fn wait(&self, now: Instant) -> Duration {
        let owed = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        owed.saturating_sub(self.interval.saturating_mul(BURST - 1))
    }

    fn begin(&mut self, now: Instant) {
        self.full_at = Some(self.full_at.map_or(now, |at| at.max(now)) + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_in_a_burst_and_then_at_intervals() {
        let (began, interval) = (Instant::now(), Duration::from_secs(2));
        let mut pace = FlushPace::new(interval);
        for _ in 0..BURST {
            assert_eq!(pace.wait(began), Duration::ZERO);
            pace.begin(began);
        }
        assert_eq!(pace.wait(began), interval);
        assert_eq!(pace.wait(began + interval / 2), interval / 2);
        pace.begin(began + interval);
        assert_eq!(pace.wait(began + interval), interval);
        // a long pause saves up one burst and no more
        let later = began + interval * 100;
        (0..BURST).for_each(|_| pace.begin(later));
        assert_eq!(pace.wait(later), interval, "no more than a burst is saved up");
    }
}
