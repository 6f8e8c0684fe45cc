//! Sources of the current time. Tests and the simulation supply their own.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall-clock time in milliseconds since the Unix epoch. It can go back.
    fn now_ms(&self) -> i64;

    fn instant(&self) -> Instant {
        Instant::now()
    }

    /// Waits for `time`. A virtual clock advances instead.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The machine's wall clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Clock that advances only by its methods, or when a caller sleeps.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: AtomicI64,
    began: Instant,
    passed_ms: AtomicU64,
}

impl ManualClock {
    /// A clock stopped at `now_ms`.
    pub fn at(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms), began: Instant::now(), passed_ms: AtomicU64::new(0) }
    }

    /// Advances wall-clock and monotonic time.
    pub fn advance(&self, by_ms: u64) {
        self.passed_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.set(by_ms.try_into().unwrap_or(i64::MAX));
    }

    /// Monotonic time since the clock's creation, in milliseconds.
    pub fn passed_ms(&self) -> u64 {
        self.passed_ms.load(Ordering::SeqCst)
    }

    /// Shifts only the wall clock by `by_ms`.
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
