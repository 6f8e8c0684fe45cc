//! Forgets the sums of series that got no increment for a long time. If such a series comes back, its sum begins with 0.

use super::super::Owner;
use super::super::time_share::TimeShare;
use super::{Place, Sums};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(30);

/// Number of sums that are visited between two groups.
const SLICE: usize = 500;

/// While their account is filled to less than this percentage, sums may be idle for this many seconds.
const IDLE_S: [(u64, u32); 2] = [(50, 24 * 3600), (80, 3600)];
/// Even when memory is short, sums may be idle for this many seconds.
const IDLE_MIN_S: u32 = 900;

#[derive(Debug)]
pub(super) struct Forgetting {
    pub(super) time_share: TimeShare,
    last: Option<Place>,
}

impl Forgetting {
    pub(super) fn new(now: Instant) -> Self {
        Self { time_share: TimeShare::from(now + EVERY), last: None }
    }
}

impl Sums {
    fn idle_s(&self) -> u32 {
        let percent = self.account.used_bytes() * 100 / self.account.limit_bytes().max(1);
        IDLE_S.iter().find(|(below, _)| percent < *below).map_or(IDLE_MIN_S, |(_, idle_s)| *idle_s)
    }

    /// Visits the next sums, and forgets those that were last seen before `before_s`. Returns true after the last one.
    pub(super) fn forget_some(&mut self, before_s: u32) -> bool {
        let last = self.forgetting.last.take();
        let Some((tenant, keys)) = self.after(last.as_ref(), SLICE) else {
            self.tenants.retain(|_, own| !own.of.is_empty());
            return true;
        };
        let tenant = tenant.clone();
        let own = self.tenants.get_mut(&tenant).expect("BUG: a listed tenant is missing");
        for key in &keys {
            if own.of[key].seen_s < before_s {
                let forgotten = own.remove(*key).expect("BUG: a listed sum is missing");
                self.count -= 1;
                self.forgotten_ns = self.forgotten_ns.max(forgotten.accumulator.newest_ns());
            }
        }
        own.settle();
        self.forgetting.last = keys.last().map(|key| (tenant, *key));
        false
    }
}

impl Owner {
    pub(super) fn forget_slice(&mut self, began: Instant) {
        let before_s = self.context.steady_s().saturating_sub(self.sums.idle_s());
        let is_done = self.sums.forget_some(before_s);
        let now = self.context.clock.instant();
        let time_share = &mut self.sums.forgetting.time_share;
        match is_done {
            true => time_share.suspend(now + EVERY),
            false => time_share.record_slice(began, now),
        }
        self.publish_stats();
    }
}
