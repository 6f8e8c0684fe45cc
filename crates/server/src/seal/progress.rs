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
    /// How long a round takes; [`NONE`] before the first one has ended. The longest of the last rounds counts most, because a
    /// round of a full head takes longer than most rounds.
    usual_ms: AtomicU64,
    in_vain: [AtomicU32; ROOMS.len()],
}

const NONE: u64 = u64::MAX;

const ROOMS: [Room; 3] = [Room::Head, Room::Share, Room::Late];

impl Progress {
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            began_ms: AtomicU64::new(NONE),
            next_ms: AtomicU64::new(0),
            usual_ms: AtomicU64::new(NONE),
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

    /// A round of this duration has ended, and this is the memory after it.
    pub(super) fn ended(&self, duration: Duration, head: Head, late_bytes: u64) {
        let duration_ms = ms(duration);
        let usual_ms = match self.usual_ms.load(Ordering::Relaxed) {
            NONE => duration_ms,
            usual_ms => duration_ms.max(usual_ms - usual_ms / 8),
        };
        self.usual_ms.store(usual_ms, Ordering::Relaxed);
        for (room, in_vain) in ROOMS.into_iter().zip(&self.in_vain) {
            let is_missing = match room {
                Room::Head => head.is_filled_to(watermarks::NO_NEW_SERIES),
                Room::Share => head.is_filled_to(watermarks::FAIR),
                Room::Late => head.room_for_late(late_bytes).is_err(),
            };
            let count = if is_missing { in_vain.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
            in_vain.store(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn rounds(&self, room: Room, now: Instant) -> Rounds {
        let now_ms = self.ms(now);
        let present = match self.began_ms.load(Ordering::Relaxed) {
            NONE => Err(self.next_ms.load(Ordering::Relaxed).saturating_sub(now_ms)),
            began_ms => Ok(now_ms.saturating_sub(began_ms)),
        };
        let usual_ms = self.usual_ms.load(Ordering::Relaxed);
        Rounds {
            present: present.map(Duration::from_millis).map_err(Duration::from_millis),
            usual: (usual_ms != NONE).then(|| Duration::from_millis(usual_ms)),
            in_vain: self.in_vain[room as usize].load(Ordering::Relaxed),
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
        assert_eq!(wait(Room::Head, 2), 5, "nothing is known about rounds yet");
        progress.publish(Schedule::Since(at(10)));
        assert_eq!(wait(Room::Head, 11), 2);
        let head = |used_bytes| Head { used_bytes, limit_bytes: 100 };
        progress.ended(Duration::from_secs(8), head(10), 0);
        progress.publish(Schedule::Since(at(20)));
        assert_eq!(ROOMS.map(|room| wait(room, 22)), [6; 3]);
        progress.ended(Duration::from_secs(1), head(80), 25);
        assert_eq!(ROOMS.map(|room| wait(room, 22)), [5, 12, 12]);
        progress.ended(Duration::from_secs(9), head(90), 25);
        assert_eq!(ROOMS.map(|room| wait(room, 22)), [16, 25, 25]);
        progress.ended(Duration::from_secs(9), head(70), 0);
        assert_eq!(ROOMS.map(|room| wait(room, 22)), [7; 3]);
        progress.publish(Schedule::Until(at(40)));
        assert_eq!(ROOMS.map(|room| wait(room, 39)), [10; 3]);
    }
}
