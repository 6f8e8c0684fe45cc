//! Sources of the current time. Tests and the simulation supply their own.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Milliseconds since the Unix epoch, by the wall clock. They can decrease when the clock is set.
    fn now_ms(&self) -> i64;

    fn instant(&self) -> Instant {
        Instant::now()
    }

    /// Waits for `time`. A virtual clock does not wait, but moves its own time forward.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock for tests that stands still, except when it is told to advance or a caller sleeps.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: AtomicI64,
    began: Instant,
    passed_ms: AtomicU64,
}

impl ManualClock {
    pub fn at(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms), began: Instant::now(), passed_ms: AtomicU64::new(0) }
    }

    pub fn advance(&self, by_ms: u64) {
        self.passed_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.set(by_ms.try_into().unwrap_or(i64::MAX));
    }

    pub fn passed_ms(&self) -> u64 {
        self.passed_ms.load(Ordering::SeqCst)
    }

    /// Sets the wall clock forward or back by `by_ms`. Monotonic time does not change.
    pub fn set(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn instant(&self) -> Instant {
        self.began + Duration::from_millis(self.passed_ms())
    }

    fn sleep(&self, time: Duration) {
        self.advance(time.as_millis().try_into().unwrap_or(u64::MAX));
    }
}
