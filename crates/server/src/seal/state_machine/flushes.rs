//! Flush requests: each is answered once everything accepted before it is in tables.

use crate::seal::flushed::Flushed;
use model::TenantId;
use std::time::{Duration, Instant};

/// Time that a flush waits for blocked tenants.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rounds that may begin without a pause between them, so that occasional flushes of a script are not delayed.
const BURST: u32 = 10;

/// Number of a flush request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlushId(pub(crate) u64);

/// A flush that is not answered yet.
#[derive(Debug)]
struct Waiter {
    id: FlushId,
    /// The tenant to flush, whose samples must have left the heads as well; `None` for all tenants.
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
    /// Requests that wait for the next round.
    waiting: Vec<Waiter>,
    /// Requests that wait for the commit of the current round, and requests for one tenant that wait for the release.
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

    /// Forgets a request, unless the request waits for the current round.
    pub(super) fn abandon(&mut self, id: FlushId) {
        for waiters in [&mut self.waiting, &mut self.held] {
            waiters.retain(|waiter| waiter.id != id);
        }
    }

    /// Time until a round may begin for the requests; `None` if there are none.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        (!self.waiting.is_empty()).then(|| self.pace.wait(now))
    }

    /// Begins a round. Returns true if the round answers a request.
    pub(super) fn begin_round(&mut self, now: Instant) -> bool {
        self.in_round = std::mem::take(&mut self.waiting);
        let is_requested = !self.in_round.is_empty();
        if is_requested {
            self.pace.begin(now);
        }
        is_requested
    }

    /// Notes that the current round is committed. Answers the round's requests for all tenants. If the round left
    /// tenants out, these requests wait for blocked tenants instead.
    pub(super) fn commit_round(&mut self, flushed: &Flushed, is_partial: bool, closed: u64) -> Vec<Answer> {
        let mut waiters: Vec<_> = self.in_round.extract_if(.., |waiter| waiter.of.is_none()).collect();
        waiters.iter_mut().for_each(|waiter| waiter.flushed.add(flushed));
        if is_partial {
            self.held.append(&mut waiters);
        }
        waiters.into_iter().map(|w| (w.id, Flushed { blocked: closed, ..w.flushed })).collect()
    }

    /// Notes that the current round is committed, and also released if `is_released`. Answers requests for one tenant if the
    /// round left the tenant out, or if its samples have left the heads.
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

    /// Adds what was sealed of a tenant that is no longer blocked to the answers of all held requests.
    pub(super) fn add_unblocked(&mut self, flushed: &Flushed) {
        self.held.iter_mut().for_each(|waiter| waiter.flushed.add(flushed));
    }

    /// If no tenant is blocked any more, moves the held requests to the next round, which seals all tenants. Otherwise,
    /// answers the held requests that have waited for [`PATIENCE`].
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

/// Token bucket of rounds begun for flush requests, because each of these rounds commits small files to every table.
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

    /// Time until the next round may begin.
    fn wait(&self, now: Instant) -> Duration {
        let owed = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        owed.saturating_sub(self.interval.saturating_mul(BURST - 1))
    }

    /// Takes a token.
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
        // a round that is due anyway serves waiting requests and takes a token; a long pause saves up one burst at most
        let later = began + interval * 100;
        (0..BURST).for_each(|_| pace.begin(later));
        assert_eq!(pace.wait(later), interval, "no more than a burst is saved up");
    }
}
