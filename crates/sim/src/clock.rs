use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::{Clock, ManualClock};

/// After this many sleeps in one step, the store works again, so that loops that retry come to an end.
const SLEEPS_MAX: u64 = 20;

/// The node's clock. Each step and each sleep begins a new epoch. Different requests to the store fail in
/// each epoch.
#[derive(Debug)]
pub struct SimClock {
    time: ManualClock,
    begin_ms: i64,
    epoch: AtomicU64,
    sleeps: AtomicU64,
}

impl SimClock {
    pub fn at(now_ms: i64) -> Self {
        Self {
            time: ManualClock::at(now_ms),
            begin_ms: now_ms,
            epoch: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
        }
    }

    pub fn next_step(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.sleeps.store(0, Ordering::SeqCst);
    }

    pub fn advance(&self, by_ms: u64) {
        self.time.advance(by_ms);
    }

    pub fn set(&self, by_ms: i64) {
        self.time.set(by_ms);
    }

    /// Time since the start of the run. It does not change when the clock is set.
    pub fn steady_ms(&self) -> i64 {
        self.time.passed_ms().try_into().unwrap_or(i64::MAX)
    }

    pub fn true_ms(&self) -> i64 {
        self.begin_ms + self.steady_ms()
    }

    pub fn set_wrong_by(&self, error_ms: i64) {
        self.time.set(self.true_ms() + error_ms - self.time.now_ms());
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub fn slept_too_often(&self) -> bool {
        self.sleeps.load(Ordering::SeqCst) > SLEEPS_MAX
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        self.time.now_ms()
    }

    fn instant(&self) -> Instant {
        self.time.instant()
    }

    fn sleep(&self, time: Duration) {
        self.time.sleep(time);
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.sleeps.fetch_add(1, Ordering::SeqCst);
    }
}
