//! Estimates when a retry may succeed, from the work that must be done before.

use crate::write_refusal::{RETRY_AFTER, RETRY_AFTER_REPAIR};
use std::time::{Duration, Instant};

/// What the retry of a refused request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The time is known.
    For(Duration),
    /// The gate of write requests is full: some of them must end.
    Requests,
    /// The tenant has used up its limit or share of write requests: some of its own must end.
    OwnRequests,
    /// The gate of requests that create series is full: some of them must end.
    CreatingRequests,
    /// The tenant has used up its limit or share of requests that create series: some of its own must end.
    OwnCreatingRequests,
    /// An account of the memory budget is full: some of its bytes must be given back. The account has a number, and the bytes are
    /// counted in KiB, because refusals have to be small.
    Memory { account: u8, asked_kib: u32 },
    /// The process holds too much memory: it must give some back.
    ProcessMemory,
    /// The journal is being replayed.
    Replay,
    /// Sealing must make room in the head.
    Sealing(Room),
    /// A round of sealing must end.
    Round,
    /// The tenant's table could not be read or written: the node tries again.
    Table,
    /// Idle series, or tenants without series, must leave memory.
    Eviction,
    /// The tenant's clusters of replicas that are silent must be forgotten.
    Clusters,
}

impl Wait {
    /// The delay if nothing is known about the backlog.
    pub const fn by_default(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::Table => RETRY_AFTER_REPAIR,
            Self::Requests
            | Self::OwnRequests
            | Self::CreatingRequests
            | Self::OwnCreatingRequests
            | Self::Memory { .. }
            | Self::ProcessMemory
            | Self::Replay
            | Self::Sealing(_)
            | Self::Round
            | Self::Eviction
            | Self::Clusters => RETRY_AFTER,
        }
    }
}

/// Which room in the head is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// For new series of tenants that are not in memory: the head is filled to [`crate::watermarks::NO_NEW_SERIES`] or more.
    Series,
    /// For new series of tenants above their share: the head is filled to [`crate::watermarks::FAIR`] or more.
    SeriesAboveShare,
    /// For any samples: the head is full.
    Samples,
    /// For any samples of tenants above their share: the head is filled to [`crate::watermarks::REFUSE_ABOVE_SHARE`] or more.
    SamplesAboveShare,
    /// For out-of-order samples.
    Late,
    /// For new series of tenants within their share: the head is filled to [`crate::watermarks::no_new_series_from`] or more.
    SeriesWithinShare,
}

impl Room {
    pub const ALL: [Self; 6] = [
        Self::Series,
        Self::SeriesAboveShare,
        Self::Samples,
        Self::SamplesAboveShare,
        Self::Late,
        Self::SeriesWithinShare,
    ];
}

/// Bounds of all estimates. A retry each second costs little, and after half a minute any estimate is a guess.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(30);

// a shortage must not be over just because senders wait, with jitter
const _: () = assert!(MOST.as_secs() * 3 / 2 < crate::postponed::CALM.as_secs());

fn bounded(wait: Duration) -> Duration {
    wait.clamp(LEAST, MOST)
}

/// What is known about rounds of sealing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// For how long the present round has been running; or, if there is none, the time until the next one may begin.
    pub present: Result<Duration, Duration>,
    /// How long a round usually takes. `None` before the first one has ended.
    pub usual: Option<Duration>,
    /// How many rounds in succession have ended without making room.
    pub in_vain: u32,
}

impl Rounds {
    /// Time until a round has made room. If the last rounds made none, as many more are expected to be necessary: so senders do
    /// not return after each of many short rounds.
    pub fn wait(self) -> Duration {
        let usual = self.usual.unwrap_or(RETRY_AFTER);
        let rest = match self.present {
            Ok(running) if running < usual => usual - running,
            // it takes longer than usual: assume that it is at two thirds
            Ok(running) => running / 2,
            Err(pause) => pause.saturating_add(usual),
        };
        bounded(rest.saturating_add(usual.saturating_mul(self.in_vain)))
    }
}

/// Limits a wait to [`RETRY_AFTER`] to 30 s. For events after which a retry may still fail.
pub fn until_attempt(wait: Duration) -> Duration {
    wait.clamp(RETRY_AFTER, MOST)
}

/// Estimates how long the rest of some work takes, if the first `done` of `all` parts took `passed`: 1 to 30 s, or [`RETRY_AFTER`] if no
/// part is done yet.
pub fn time_to_end(done: u64, all: u64, passed: Duration) -> Duration {
    if done == 0 {
        return RETRY_AFTER;
    }
    let seconds = passed.as_secs_f64() * all.saturating_sub(done) as f64 / done as f64;
    bounded(Duration::try_from_secs_f64(seconds).unwrap_or(MOST))
}

/// How fast places become free, measured while requests are refused. Nothing is measured at other times, so that requests that
/// are not refused cost nothing. A place is room for one request, or for one byte.
#[derive(Debug, Default)]
pub struct Drain {
    window: Option<Window>,
    refused_at: Option<Instant>,
    wait: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Instant,
    /// How many places had become free when it began.
    freed: u64,
    /// How many places were asked for and refused since it began.
    refused: u64,
}

/// Least length of a window. A pause of this length discards the window: while nothing is refused, requests leave only as fast as
/// they come.
const WINDOW: Duration = Duration::from_millis(500);

/// If nothing was refused for this time, what was measured before no longer counts.
const FORGET_AFTER: Duration = Duration::from_secs(5);

impl Drain {
    /// True if what was measured no longer counts.
    pub fn is_over(&self, now: Instant) -> bool {
        self.refused_at.is_none_or(|at| now.saturating_duration_since(at) >= FORGET_AFTER)
    }

    /// Returns how long the sender of a request that is refused now should wait. It asked for `asked` places. `taken` are in use,
    /// and `freed` have become free since the start. `freed` should not include places of requests that were admitted and refused
    /// afterwards, because such requests come back.
    pub fn refused(&mut self, asked: u64, taken: u64, freed: u64, now: Instant) -> Duration {
        let before = self.refused_at.replace(now);
        let pause = before.map_or(FORGET_AFTER, |before| now.saturating_duration_since(before));
        if pause >= FORGET_AFTER {
            self.wait = None;
        }
        if pause >= WINDOW {
            self.window = None;
        }
        let window = self.window.get_or_insert(Window { began: now, freed, refused: 0 });
        window.refused = window.refused.saturating_add(asked);
        let passed = now.saturating_duration_since(window.began);
        if passed >= WINDOW {
            let drained = freed.saturating_sub(window.freed);
            let estimate = time_to_drain(Places { taken, asked, refused: window.refused, drained }, passed);
            // senders that were told to wait long come back less often, so the next estimate is lower: the mean avoids swings
            self.wait = Some(self.wait.map_or(estimate, |wait| (wait + estimate) / 2));
            if drained > 0 {
                self.window = Some(Window { began: now, freed, refused: 0 });
            }
        }
        bounded(self.wait.unwrap_or(RETRY_AFTER))
    }
}

/// What happened to places in some time.
#[derive(Debug, Clone, Copy)]
struct Places {
    /// How many are taken now.
    taken: u64,
    /// How many the last request asked for.
    asked: u64,
    /// How many all requests asked for that were refused.
    refused: u64,
    /// How many became free.
    drained: u64,
}

/// Time until there is place for the requests inside, and for those refused in one second (they come back). If nothing became
/// free in the time `passed`, the places that the last request asked for may become free right now. So the estimate grows with the time.
fn time_to_drain(places: Places, passed: Duration) -> Duration {
    let Places { taken, asked, refused, drained } = places;
    if drained == 0 && taken == 0 {
        return RETRY_AFTER; // something else keeps requests out
    }
    let returning = refused as f64 / passed.as_secs_f64();
    let drained = if drained == 0 { asked.max(1) } else { drained };
    let seconds = (taken as f64 + returning) * passed.as_secs_f64() / drained as f64;
    bounded(Duration::try_from_secs_f64(seconds).unwrap_or(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_sender_waits_for_the_rest_of_a_round() {
        let check = |present, usual: Option<u64>, in_vain, expected| {
            let wait = Rounds { present, usual: usual.map(s), in_vain }.wait();
            assert_eq!(wait, s(expected), "{present:?} {usual:?} {in_vain}");
        };
        check(Ok(s(0)), Some(10), 0, 10);
        check(Ok(s(4)), Some(10), 0, 6);
        check(Ok(s(10)), Some(10), 0, 5); // a round that takes longer than usual
        check(Ok(s(20)), Some(10), 0, 10);
        check(Ok(s(999)), Some(10), 0, 30);
        check(Err(s(0)), Some(10), 0, 10);
        check(Err(s(7)), Some(10), 0, 17);
        check(Err(s(30)), Some(10), 0, 30);
        // short rounds
        check(Ok(s(1)), Some(1), 0, 1);
        check(Ok(s(0)), Some(0), 0, 1);
        check(Ok(s(0)), Some(1), 4, 5);
        check(Ok(s(0)), Some(1), u32::MAX, 30);
        // the first round
        check(Ok(s(0)), None, 0, 3);
        check(Ok(s(12)), None, 0, 6);
        check(Err(Duration::MAX), None, 1, 30);
    }

    #[test]
    fn a_sender_waits_until_the_backlog_has_drained() {
        let check = |taken, refused, drained, expected| {
            let places = Places { taken, asked: 1, refused, drained };
            assert_eq!(time_to_drain(places, s(2)), s(expected), "{places:?}");
        };
        check(900, 2, 2000, 1); // 900 at 1000 a second
        check(900, 200, 200, 10); // 900 and 100 at 100 a second
        check(900, 2000, 200, 19);
        check(900, 1, 60, 30);
        check(900, 1, 0, 30);
        check(2, 2, 0, 6); // slow requests, of which none has ended yet
        check(0, 1, 0, 3);
        check(0, 0, u64::MAX, 1);
        check(u64::MAX, u64::MAX, 1, 30);
        let bytes = |drained| Places { taken: 30_000_000, asked: 1_000_000, refused: 10_000_000, drained };
        assert_eq!(time_to_drain(bytes(14_000_000), s(2)), s(5), "30 MB and 5 MB at 7 MB a second");
        assert_eq!(time_to_drain(bytes(0), s(2) / 10), s(16), "30 MB and 50 MB, if 1 MB becomes free now");
    }

    #[test]
    fn what_may_not_help_is_not_waited_for_too_briefly() {
        let check = |ms, expected| {
            assert_eq!(until_attempt(Duration::from_millis(ms)), s(expected), "{ms} ms");
        };
        check(0, 3);
        check(20_000, 20);
        check(999_000, 30);
    }

    #[test]
    fn work_is_expected_to_go_on_as_fast_as_before() {
        let check = |done, all, expected| {
            assert_eq!(time_to_end(done, all, s(4)), s(expected), "{done} {all}");
        };
        check(0, 100, 3);
        check(20, 100, 16);
        check(99, 100, 1);
        check(100, 100, 1);
        check(101, 100, 1);
        check(1, u64::MAX, 30);
    }

    /// 1000 senders repeat their requests when they are told to, with the server's jitter. 100 requests a second can be served.
    /// All are served before long, and are not refused many times.
    #[test]
    fn many_senders_are_spread() {
        let (began, mut rng) = (Instant::now(), Rng::announced());
        let (mut drain, mut left, mut refused) = (Drain::default(), 0, 0_u32);
        let mut due = vec![began; 1000];
        let mut ticks = 0;
        while !due.is_empty() {
            let now = began + Duration::from_millis(10 * ticks);
            let mut has_place = true; // one place becomes free in 10 ms
            due.retain_mut(|at| {
                if *at > now {
                    return true;
                }
                if std::mem::take(&mut has_place) {
                    left += 1;
                    return false;
                }
                refused += 1;
                *at = now + drain.refused(1, 10, left, now).mul_f64(1.0 + rng.below(500) as f64 / 1000.0);
                true
            });
            ticks += 1;
        }
        // it takes 1000 ticks at best
        assert!(ticks < 3000 && refused < 4000, "{ticks} ticks, {refused} refusals");
    }

    #[test]
    fn old_measurements_are_forgotten() {
        let (began, mut drain) = (Instant::now(), Drain::default());
        let mut refused = |left, ms| drain.refused(1, 94, left, began + Duration::from_millis(ms));
        assert_eq!([refused(0, 0), refused(2, 250)], [RETRY_AFTER; 2], "nothing is known yet");
        // 94 are inside, 6 a second are refused, 10 a second leave
        assert_eq!([refused(5, 500), refused(5, 600)], [s(10); 2]);
        assert_eq!([refused(9, 2000), refused(9, 2400)], [s(10); 2], "nothing is measured during a pause");
        assert_eq!(refused(9, 2500), s(20), "nothing leaves");
        assert_eq!(refused(9, 2900), s(25), "still nothing");
        assert_eq!(refused(9, 7900), RETRY_AFTER);
        assert_eq!(refused(9, 0), RETRY_AFTER, "a clock that goes back");
    }
}
