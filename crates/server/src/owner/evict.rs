//! Series that nobody sends any more leave the head, once their samples are in tables.

use super::{Owner, RELEASE_PAUSE_FACTOR};
use head::Evicted;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it is looked for series to evict, with and without pressure.
const EVERY: Duration = Duration::from_secs(30);
const EVERY_UNDER_PRESSURE: Duration = Duration::from_secs(1);

/// Between two steps those who looked at the head before have to end.
const WAIT: Duration = Duration::from_millis(20);

/// How full the head is, in percent, and how long a series may be unseen then, in seconds. New series are refused from
/// 85 %: before that, room is made by letting go of all that has no samples here.
const UNDER_PRESSURE: [(u64, u32); 2] = [(75, 0), (60, 60)];

/// Where the owner is in evicting.
#[derive(Debug)]
pub(super) struct Evicting {
    /// When the next turn is.
    pub(super) turn_at: Instant,
    /// Series unseen since then go, in the eviction under way.
    idle_before_s: Option<u32>,
}

impl Evicting {
    pub(super) fn new(now: Instant) -> Self {
        Self { turn_at: now + EVERY_UNDER_PRESSURE, idle_before_s: None }
    }
}

impl Owner {
    /// One turn, where it is time for one.
    pub(super) fn evict_turn(&mut self) {
        let began = self.node.clock.instant();
        if began < self.evicting.turn_at || self.stopping {
            return;
        }
        let (idle_s, is_pressed) = self.idle_s();
        let idle_before_s = self.evicting.idle_before_s.unwrap_or(self.node.now_s().saturating_sub(idle_s));
        let evicted = {
            let Self { partition, dictionary, .. } = self;
            let mut head = partition.head.write();
            let before = head.memory_bytes() as i64;
            let evicted = head.evict_turn(idle_before_s, |tenant, series| dictionary.remove(tenant, series));
            if matches!(evicted, Evicted::Done(1..)) {
                head.remove_empty(|tenant| dictionary.remove_tenant(tenant));
            }
            let grown = head.memory_bytes() as i64 - before;
            partition.head_bytes.fetch_add(grown as u64, Ordering::Relaxed); // wraps where it shrank
            evicted
        };
        self.evicting.idle_before_s = Some(idle_before_s);
        let now = self.node.clock.instant();
        let wait = match evicted {
            Evicted::More => now.duration_since(began) * RELEASE_PAUSE_FACTOR,
            Evicted::Waits => WAIT,
            Evicted::Done(count) => {
                self.evicting.idle_before_s = None;
                self.node.metrics.series_evicted.add(count);
                if is_pressed { EVERY_UNDER_PRESSURE } else { EVERY }
            }
        };
        self.evicting.turn_at = now + wait;
    }

    /// How long a series may be unseen, in seconds, and whether that is because the head is full.
    fn idle_s(&self) -> (u32, bool) {
        let (used, limit) = (self.node.head_bytes(), self.node.settings.budget.head_bytes);
        let idle_s = self.node.settings.series_idle_s;
        let pressed = UNDER_PRESSURE.iter().find(|(percent, _)| used >= limit / 100 * percent);
        pressed.map_or((idle_s, false), |(_, pressed_s)| (idle_s.min(*pressed_s), true))
    }
}
