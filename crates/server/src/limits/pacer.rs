//! Slows background work down while requests need the processor.
//!
//! A lower priority alone does not protect requests: the kernel lets a running thread finish its time slice
//! of some milliseconds. So background threads yield by themselves, and only while they hold no lock.

use super::head_memory::HeadMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::Clock;

/// A background thread works for this long before it checks for requests in progress.
const TURN: Duration = Duration::from_micros(50);

/// A thread waits for requests at most this many times as long as it has worked. So background work gets at
/// least an eighth of a processor.
const WAIT_FACTOR: i64 = 7;

/// Limit on the waiting time that a thread can save up.
const SAVED_MAX: Duration = Duration::from_millis(100);

/// A thread may wait longer than it should, because a busy machine woke it late. At most this much of the
/// excess is subtracted from its later waits.
const OWED_MAX: Duration = Duration::from_millis(20);

const POLL: Duration = Duration::from_micros(200);

#[derive(Debug, Default)]
pub(crate) struct Traffic(AtomicUsize);

#[derive(Debug)]
pub(crate) struct RequestInProgress<'a>(&'a Traffic);

impl Traffic {
    pub(crate) fn enter(&self) -> RequestInProgress<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        RequestInProgress(self)
    }

    /// Waits while requests are in progress, but at most [`WAIT_FACTOR`] times `worked`. Returns the time
    /// waited.
    pub(crate) fn wait_after(&self, worked: Duration, clock: &dyn Clock) -> Duration {
        let (mut waited, most) = (Duration::ZERO, worked * WAIT_FACTOR as u32);
        while waited < most && !self.is_quiet() {
            let before = clock.instant();
            clock.sleep(POLL);
            waited += clock.instant().saturating_duration_since(before).max(POLL);
        }
        waited
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for RequestInProgress<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Pacer {
    clock: Arc<dyn Clock>,
    traffic: Arc<Traffic>,
    heads: Arc<HeadMemory>,
    balance: Balance,
}

/// How long a thread may still wait for requests. Work adds waiting time, and waiting uses it up, as in a
/// token bucket.
#[derive(Debug)]
struct Balance {
    /// Start of the present turn, and the CPU time that the thread had used by then.
    since: Instant,
    used: Duration,
    /// Waiting time left, in nanoseconds. Negative if the thread has waited longer than it had earned.
    waiting_budget_ns: i64,
}

impl Pacer {
    /// The pacer measures the CPU time of the thread that calls this.
    pub(crate) fn new(clock: Arc<dyn Clock>, traffic: Arc<Traffic>, heads: Arc<HeadMemory>) -> Self {
        let balance = Balance { since: clock.instant(), used: processor_time(), waiting_budget_ns: 0 };
        Self { clock, traffic, heads, balance }
    }

    /// Lets requests have the processor if the thread has worked long enough. Call this often, and never while
    /// holding a lock.
    pub(crate) fn yield_to_requests(&mut self) {
        let now = self.clock.instant();
        let passed = now.saturating_duration_since(self.balance.since);
        if passed < TURN {
            return;
        }
        let used = processor_time();
        self.balance.account(passed, used.saturating_sub(self.balance.used));
        if self.balance.waiting_budget_ns > 0 && !self.is_urgent() {
            // first let another thread run that waits for this processor
            std::thread::yield_now();
            self.balance.account(self.clock.instant().saturating_duration_since(now), Duration::ZERO);
            self.wait();
        }
        (self.balance.since, self.balance.used) = (self.clock.instant(), used);
    }

    /// True if memory is short. Sealing makes room for writes, so it must not wait for them.
    fn is_urgent(&self) -> bool {
        self.heads.needs_sealing()
    }

    fn wait(&mut self) {
        while self.balance.waiting_budget_ns > 0 && !self.traffic.is_quiet() && !self.is_urgent() {
            let before = self.clock.instant();
            self.clock.sleep(POLL);
            let slept = self.clock.instant().saturating_duration_since(before);
            self.balance.account(slept.max(POLL), Duration::ZERO);
        }
    }
}

impl Balance {
    fn account(&mut self, passed: Duration, worked: Duration) {
        let waited = nanos(passed.saturating_sub(worked));
        let waiting_budget_ns = self.waiting_budget_ns + nanos(worked) * WAIT_FACTOR - waited;
        self.waiting_budget_ns = waiting_budget_ns.clamp(-nanos(OWED_MAX), nanos(SAVED_MAX));
    }
}

/// Converts to nanoseconds. The result is at most a day, so that sums do not overflow.
fn nanos(time: Duration) -> i64 {
    time.min(Duration::from_secs(86_400)).as_nanos() as i64
}

pub(crate) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;
    use crate::write_path::tests::small_settings;
    use std::sync::Arc;
    use stdx::clock::ManualClock;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn work_adds_to_the_waiting_budget() {
        let mut balance = Balance { since: Instant::now(), used: Duration::ZERO, waiting_budget_ns: 0 };
        balance.account(MS, MS);
        assert_eq!(balance.waiting_budget_ns, nanos(MS * 7));
        balance.account(MS * 3, MS / 2);
        assert_eq!(
            balance.waiting_budget_ns,
            nanos(MS * 7 * 3 / 2 - MS * 5 / 2),
            "waiting for a processor counts"
        );
        balance.account(MS * 1000, MS);
        assert_eq!(balance.waiting_budget_ns, -nanos(OWED_MAX), "the debt of a long wait is limited");
        balance.account(Duration::MAX, Duration::ZERO);
        assert_eq!(balance.waiting_budget_ns, -nanos(OWED_MAX));
        balance.account(MS * 1000, MS * 1000);
        assert_eq!(balance.waiting_budget_ns, nanos(SAVED_MAX));
    }

    /// Requests are always in progress, and a thread that yields waits long. Background work still gets its
    /// eighth.
    #[test]
    fn background_work_keeps_an_eighth_of_a_processor() {
        for delay in [0, 1, 5, 15].map(|ms| MS * ms) {
            let mut balance = Balance { since: Instant::now(), used: Duration::ZERO, waiting_budget_ns: 0 };
            let (mut passed, mut worked) = (Duration::ZERO, Duration::ZERO);
            while passed < MS * 10_000 {
                balance.account(TURN, TURN);
                (passed, worked) = (passed + TURN, worked + TURN);
                while balance.waiting_budget_ns > 0 {
                    balance.account(POLL + delay, Duration::ZERO);
                    passed += POLL + delay;
                }
            }
            let parts = passed.as_secs_f64() / worked.as_secs_f64();
            assert!((7.9..8.1).contains(&parts), "one part in {parts} with {delay:?}");
        }
    }

    #[test]
    fn work_in_long_pieces_waits_for_requests_but_not_for_ever() {
        let (traffic, clock) = (Traffic::default(), ManualClock::at(0));
        assert_eq!(traffic.wait_after(MS, &clock), Duration::ZERO, "no request is in progress");
        let _passing = traffic.enter();
        assert_eq!(traffic.wait_after(MS, &clock), MS * 7);
    }

    #[test]
    fn requests_go_first_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(0));
        let node = Node::start(small_settings(dir.path()), Arc::clone(&clock) as _).unwrap();
        let writes = node.writes();
        let mut pacer =
            Pacer::new(Arc::clone(&writes.clock), Arc::clone(&writes.traffic), Arc::clone(&writes.heads));
        pacer.balance.waiting_budget_ns = nanos(MS);
        assert!(writes.traffic.is_quiet());
        pacer.wait();
        assert_eq!(pacer.balance.waiting_budget_ns, nanos(MS), "no request is in progress");
        let passing = writes.traffic.enter();
        assert!(!writes.traffic.is_quiet());
        pacer.wait();
        assert_eq!(pacer.balance.waiting_budget_ns, 0, "waits for exactly the saved time");
        drop(passing);
        assert!(writes.traffic.is_quiet());
        node.stop();
    }
}
