//! Flush requests: each is answered once everything accepted before it is in tables.

use crate::seal::flushed::Flushed;
use model::TenantId;
use std::time::{Duration, Instant};

/// Time that a flush waits for blocked tenants.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rounds that may begin without a pause.
const BURST: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlushId(pub(crate) u64);

#[derive(Debug)]
struct Waiter {
    id: FlushId,
    /// The tenant whose samples must leave the heads; `None` for all tenants.
    of: Option<TenantId>,
    requested: Instant,
    /// Totals of the rounds since the request.
    flushed: Flushed,
}

pub(super) type Answer = (FlushId, Flushed);

/// Flush requests by the round they wait for.
#[derive(Debug)]
pub(super) struct Flushes {
    pace: FlushPace,
    /// Requests for the next round.
    waiting: Vec<Waiter>,
    /// Requests that wait for the commit of the current round. Requests for one tenant wait for the round's release.
    in_round: Vec<Waiter>,
    /// Requests that wait for blocked tenants.
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

    /// Forgets a request that does not wait for the current round.
    pub(super) fn abandon(&mut self, id: FlushId) {
        for waiters in [&mut self.waiting, &mut self.held] {
            waiters.retain(|waiter| waiter.id != id);
        }
    }

    /// Time until a round for the requests may begin.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        (!self.waiting.is_empty()).then(|| self.pace.wait(now))
    }

    /// Begins a round. Returns true if a request waits for this round.
    pub(super) fn begin_round(&mut self, now: Instant) -> bool {
        self.in_round = std::mem::take(&mut self.waiting);
        let is_requested = !self.in_round.is_empty();
        if is_requested {
            self.pace.begin(now);
        }
        is_requested
    }

    /// Notes the current round's commit, and answers the requests for all tenants. If the round left tenants out, these
    /// requests wait for blocked tenants instead.
    pub(super) fn commit_round(&mut self, flushed: &Flushed, is_partial: bool, closed: u64) -> Vec<Answer> {
        let mut waiters: Vec<_> = self.in_round.extract_if(.., |waiter| waiter.of.is_none()).collect();
        waiters.iter_mut().for_each(|waiter| waiter.flushed.add(flushed));
        if is_partial {
            self.held.append(&mut waiters);
        }
        waiters.into_iter().map(|w| (w.id, Flushed { blocked: closed, ..w.flushed })).collect()
    }

    /// Notes the current round's commit, and its release if `is_released`. Answers the requests for one tenant if the
    /// round left the tenant out or has released its samples.
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

    /// Adds samples of an unblocked tenant to the totals of held requests.
    pub(super) fn add_unblocked(&mut self, flushed: &Flushed) {
        self.held.iter_mut().for_each(|waiter| waiter.flushed.add(flushed));
    }

    /// Moves held requests to the next round if no tenant is blocked. Otherwise, answers requests that have waited for
    /// [`PATIENCE`].
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

/// Token bucket of rounds for flush requests. Each such round writes small files to every table.
#[derive(Debug)]
struct FlushPace {
    /// Interval at which tokens are added.
    interval: Duration,
    /// Time at which the bucket is full; `None` before the first round.
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
        // a long pause allows one burst at most
        let later = began + interval * 100;
        (0..BURST).for_each(|_| pace.begin(later));
        assert_eq!(pace.wait(later), interval, "no more than a burst is saved up");
    }
}
