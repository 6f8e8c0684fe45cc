//! Forgets the sums of series that got no increment for a long time. If such a series comes back, its sum begins with 0.
//!
//! This takes two passes through all sums: the first notes which ends of increments are forgotten, the second removes the sums.
//! In between, requests that do not know of it come to an end (see [`super::shared`]).

use super::super::Owner;
use super::super::time_share::TimeShare;
use super::shared::filled_percent;
use super::{Place, Sums};
use crate::limits::head_memory::HeadMemory;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(30);

/// Number of sums that are visited between two groups.
const SLICE: usize = 500;

/// While the accounts of sums and pieces are both filled to less than this percentage, sums may be idle for this many seconds.
const IDLE_S: [(u64, u32); 2] = [(50, 24 * 3600), (75, 3600)];
/// Even when memory is short, sums may be idle for this many seconds.
const IDLE_MIN_S: u32 = 900;

/// A request is added to all of its sums within this many seconds after its parts got their stamp.
pub(super) const GRACE_S: u32 = 300;

#[derive(Debug)]
pub(super) struct Forgetting {
    pub(super) time_share: TimeShare,
    last: Option<Place>,
    phase: Phase,
}

/// What happens to sums that were last seen before a time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// First pass: notes when their newest increments ended.
    Noting(u32),
    /// Pause until the second of these times, so that requests that do not know of the first pass have ended.
    Waiting(u32, u32),
    /// Second pass: removes them.
    Removing(u32),
}

impl Forgetting {
    pub(super) const fn new(now: Instant) -> Self {
        let time_share = TimeShare::from(now);
        Self { time_share, last: None, phase: Phase::Idle }
    }
}

impl Sums {
    fn idle_s(&self) -> u32 {
        let HeadMemory { sums, pieces, .. } = &*self.heads;
        let percent = filled_percent(sums).max(filled_percent(pieces));
        IDLE_S.iter().find(|(below, _)| percent < *below).map_or(IDLE_MIN_S, |(_, idle_s)| *idle_s)
    }

    /// Does a slice of the work. Returns true if there is nothing more to do for some time.
    pub(super) fn forget_some(&mut self, now_s: u32) -> bool {
        match self.forgetting.phase {
            Phase::Idle => {
                let before_s = self.heads.shared_sums.announce(now_s.saturating_sub(self.idle_s()));
                self.forgetting.phase = Phase::Noting(before_s);
            }
            Phase::Waiting(before_s, until_s) if now_s >= until_s => {
                self.void_before_s = self.void_before_s.max(before_s);
                self.forgetting.phase = Phase::Removing(before_s);
            }
            Phase::Waiting(..) => return true,
            Phase::Noting(_) | Phase::Removing(_) => {}
        }
        let last = self.forgetting.last.take();
        let Some((tenant, keys)) = self.after(last.as_ref(), SLICE) else {
            self.tenants.retain(|_, own| !own.of.is_empty());
            self.forgetting.phase = match self.forgetting.phase {
                Phase::Noting(before_s) => Phase::Waiting(before_s, now_s.saturating_add(GRACE_S)),
                _ => Phase::Idle,
            };
            return true;
        };
        let tenant = tenant.clone();
        let own = self.tenants.get_mut(&tenant).expect("BUG: a listed tenant is missing");
        let mut forgotten_ns = 0;
        for key in &keys {
            let (before_s, removes) = match self.forgetting.phase {
                Phase::Noting(before_s) => (before_s, false),
                Phase::Removing(before_s) => (before_s, true),
                Phase::Idle | Phase::Waiting(..) => continue,
            };
            let entry = &own.of[key];
            if entry.seen_s >= before_s {
                continue;
            }
            forgotten_ns = forgotten_ns.max(entry.accumulator.newest_ns());
            if removes {
                own.remove(*key);
                self.count -= 1;
            }
        }
        own.settle();
        if forgotten_ns > 0 {
            self.note_forgotten(&tenant, forgotten_ns);
        }
        self.forgetting.last = keys.last().map(|key| (tenant, *key));
        false
    }
}

impl Owner {
    pub(super) fn forget_slice(&mut self, began: Instant) {
        let is_done = self.sums.forget_some(self.context.steady_s());
        let now = self.context.clock.instant();
        let time_share = &mut self.sums.forgetting.time_share;
        match is_done {
            true => time_share.suspend(now + EVERY),
            false => time_share.record_slice(began, now),
        }
        self.publish_stats();
    }
}
