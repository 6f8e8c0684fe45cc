//! How far sealing is, for those that wait until it has made room. The sealer publishes it, and any thread reads it without
//! a lock.

use super::state_machine::Schedule;
use admission::retry::{Room, Rounds};
use admission::{Head, watermarks};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Times are in milliseconds since `start`.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    /// When the present round began; [`NONE`] if there is none.
    began_ms: AtomicU64,
    /// When the next round begins if there is no present one.
    next_ms: AtomicU64,
    /// How long a round takes; [`NONE`] before the first one has ended. The longest of the last rounds, decaying by an eighth each
    /// round: a round of a full head takes longest.
    usual_ms: AtomicU64,
    /// When the tables of closed tenants are tried next; [`NONE`] if this is not known.
    reopen_ms: AtomicU64,
    /// For each of [`Room::ALL`], how many of the last rounds made none.
    in_vain: [AtomicU32; Room::ALL.len()],
}

const NONE: u64 = u64::MAX;

impl Progress {
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            began_ms: AtomicU64::new(NONE),
            next_ms: AtomicU64::new(0),
            usual_ms: AtomicU64::new(NONE),
            reopen_ms: AtomicU64::new(NONE),
            in_vain: Default::default(),
        }
    }

    pub(super) fn publish(&self, schedule: Schedule) {
        let (began_ms, next_ms) = match schedule {
            Schedule::Since(began) => (self.ms(began), 0),
            Schedule::Until(next) => (NONE, self.ms(next)),
        };
        self.next_ms.store(next_ms, Ordering::Relaxed);
        self.began_ms.store(began_ms, Ordering::Relaxed);
    }

    pub(super) fn publish_reopening(&self, at: Option<Instant>) {
        self.reopen_ms.store(at.map_or(NONE, |at| self.ms(at)), Ordering::Relaxed);
    }

    /// Time until the tables of closed tenants are tried again. `None` if this is not known.
    pub(super) fn until_reopening(&self, now: Instant) -> Option<Duration> {
        match self.reopen_ms.load(Ordering::Relaxed) {
            NONE => None,
            reopen_ms => Some(Duration::from_millis(reopen_ms.saturating_sub(self.ms(now)))),
        }
    }

    /// A round of this duration has ended without a failure, and this is the memory after it. Room for late samples is made by then.
    pub(super) fn ended(&self, duration: Duration, head: Head, late_bytes: u64) {
        let duration_ms = ms(duration);
        let usual_ms = match self.usual_ms.load(Ordering::Relaxed) {
            NONE => duration_ms,
            usual_ms => duration_ms.max(usual_ms - usual_ms / 8),
        };
        self.usual_ms.store(usual_ms, Ordering::Relaxed);
        self.count(Room::Late, head.room_for_late(late_bytes, u64::MAX).is_err());
    }

    /// The next round begins, and `least` is the least memory since the last one ended, which has not failed. Room for series and
    /// their samples is decided only now, because series leave the head some time after a round. `is_any_above` tells that some
    /// tenant has more than its share.
    pub(super) fn left(&self, least: Head, is_any_above: bool) {
        self.count(Room::Series, least.is_filled_to(watermarks::NO_NEW_SERIES));
        self.count(Room::SeriesWithinShare, least.is_filled_to(watermarks::no_new_series_from(is_any_above)));
        self.count(Room::SeriesAboveShare, least.is_filled_to(watermarks::FAIR));
        self.count(Room::Samples, least.is_full());
        self.count(Room::SamplesAboveShare, least.is_filled_to(watermarks::REFUSE_ABOVE_SHARE));
    }

    fn count(&self, room: Room, is_missing: bool) {
        let in_vain = &self.in_vain[room as usize];
        let count = if is_missing { in_vain.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        in_vain.store(count, Ordering::Relaxed);
    }

    pub(crate) fn rounds(&self, room: Room, now: Instant) -> Rounds {
        Rounds { in_vain: self.in_vain[room as usize].load(Ordering::Relaxed), ..self.next_round(now) }
    }

    /// The round whose end is next, whatever room it makes.
    pub(crate) fn next_round(&self, now: Instant) -> Rounds {
        let now_ms = self.ms(now);
        let present = match self.began_ms.load(Ordering::Relaxed) {
            NONE => Err(self.next_ms.load(Ordering::Relaxed).saturating_sub(now_ms)),
            began_ms => Ok(now_ms.saturating_sub(began_ms)),
        };
        let usual_ms = self.usual_ms.load(Ordering::Relaxed);
        Rounds {
            present: present.map(Duration::from_millis).map_err(Duration::from_millis),
            usual: (usual_ms != NONE).then(|| Duration::from_millis(usual_ms)),
            in_vain: 0,
        }
    }

    fn ms(&self, at: Instant) -> u64 {
        ms(at.saturating_duration_since(self.start))
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NONE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_the_rounds_that_made_no_room() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let progress = Progress::new(start);
        let wait = |room, now| progress.rounds(room, at(now)).wait().as_secs();
        progress.publish(Schedule::Until(at(4)));
        assert_eq!(wait(Room::Series, 2), 5, "nothing is known about rounds yet");
        progress.publish(Schedule::Since(at(10)));
        assert_eq!(wait(Room::Series, 11), 2);
        let head = |used_bytes| Head { used_bytes, limit_bytes: 100 };
        let after_round = |seconds, least_bytes, late_bytes| {
            progress.ended(Duration::from_secs(seconds), head(99), late_bytes);
            progress.left(head(least_bytes), true);
        };
        after_round(8, 10, 0);
        progress.publish(Schedule::Since(at(20)));
        assert_eq!(Room::ALL.map(|room| wait(room, 22)), [6; 6]);
        // each level is that of its own refusals
        after_round(1, 80, 25);
        assert_eq!(Room::ALL.map(|room| wait(room, 22)), [5, 12, 5, 5, 12, 5]);
        after_round(9, 90, 25);
        assert_eq!(Room::ALL.map(|room| wait(room, 22)), [16, 25, 7, 7, 25, 7]);
        after_round(1, 92, 0);
        assert_eq!(Room::ALL.map(|room| wait(room, 22)), [21, 29, 5, 13, 5, 13]);
        after_round(9, 100, 0);
        assert_eq!(Room::ALL.map(|room| wait(room, 22)), [30, 30, 16, 25, 7, 25]);
        after_round(9, 70, 0);
        assert_eq!(Room::ALL.map(|room| wait(room, 22)), [7; 6]);
        progress.publish(Schedule::Until(at(40)));
        assert_eq!(Room::ALL.map(|room| wait(room, 39)), [10; 6]);
        after_round(9, 100, 0);
        assert_eq!((wait(Room::Samples, 39), progress.next_round(at(39)).wait().as_secs()), (19, 10));
        progress.publish_reopening(Some(at(50)));
        let until = |now| progress.until_reopening(at(now)).map(|wait| wait.as_secs());
        assert_eq!([until(39), until(51)], [Some(11), Some(0)]);
        progress.publish_reopening(None);
        assert_eq!(until(51), None);
    }

    /// The head is full when a round ends, and has room a moment later, when series have left it.
    #[test]
    fn a_round_is_judged_when_the_next_one_begins() {
        let progress = Progress::new(Instant::now());
        let head = |used_bytes| Head { used_bytes, limit_bytes: 100 };
        for _ in 0..20 {
            progress.ended(Duration::from_secs(2), head(100), 0);
            progress.left(head(70), true);
        }
        let rounds = |room| progress.rounds(room, progress.start);
        assert_eq!(Room::ALL.map(|room| rounds(room).in_vain), [0; 6]);
        assert_eq!(rounds(Room::SamplesAboveShare).wait(), Duration::from_secs(2));
    }
}
