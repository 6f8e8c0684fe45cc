//! Memory pressure of the process.
//!
//! Some memory is in no account. If the process comes near `--memory`, new series, exports and long queries are
//! refused. Known series and small queries continue.

use crate::refusal::Refusal;
use crate::world::Resident;
use admission::process::REASON;
use admission::retry::Wait;
use admission::{MemoryShortage, ProcessMemory, RETRY_AFTER};
use model::SeriesRefusal;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::Clock;

/// The memory of the process is read at most this often. Reading it takes about 50 µs.
const READ_EVERY_MS: u64 = 100;

const LOG_EVERY_MS: u64 = 60_000;

#[derive(Debug)]
pub(crate) struct Headroom {
    /// Measures the memory of the process. `None` if the process contains more than this node.
    resident: Option<Arc<dyn Resident>>,
    clock: Arc<dyn Clock>,
    began: Instant,
    limit_bytes: u64,
    held_bytes: AtomicU64,
    shortage: Mutex<Option<MemoryShortage>>,
    /// When to read the memory and when to log the next time, in milliseconds since `began`.
    next_reading_ms: AtomicU64,
    next_log_ms: AtomicU64,
}

impl Headroom {
    pub(crate) fn new(resident: Option<Arc<dyn Resident>>, clock: Arc<dyn Clock>, memory_bytes: u64) -> Self {
        Self {
            resident,
            began: clock.instant(),
            clock,
            limit_bytes: memory_bytes,
            held_bytes: AtomicU64::new(0),
            shortage: Mutex::default(),
            next_reading_ms: AtomicU64::new(0),
            next_log_ms: AtomicU64::new(0),
        }
    }

    /// Fails while the process is short of memory. Call this before work that can be tried again later.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let refused =
            |error: SeriesRefusal| Refusal::busy(REASON, error.to_string()).until(Wait::ProcessMemory);
        self.memory().room().map_err(refused)
    }

    /// Estimates how long the process will be short of memory.
    pub(crate) fn wait(&self) -> Duration {
        let shortage = *self.shortage.lock();
        shortage.map_or(RETRY_AFTER, MemoryShortage::wait)
    }

    pub(crate) fn memory(&self) -> ProcessMemory {
        let limit_bytes = self.limit_bytes;
        let Some(resident) = &self.resident else { return ProcessMemory { held_bytes: 0, limit_bytes } };
        let now = self.clock.instant();
        let now_ms = now.saturating_duration_since(self.began).as_millis() as u64;
        if is_due(&self.next_reading_ms, now_ms, READ_EVERY_MS) {
            let memory = ProcessMemory { held_bytes: resident.bytes(), limit_bytes };
            self.held_bytes.store(memory.held_bytes, Ordering::Relaxed);
            let mut shortage = self.shortage.lock();
            *shortage = MemoryShortage::noted(shortage.take(), memory, now);
            drop(shortage);
            if memory.room().is_err() && is_due(&self.next_log_ms, now_ms, LOG_EVERY_MS) {
                tracing::warn!(
                    held_bytes = memory.held_bytes,
                    limit_bytes,
                    "the process uses nearly all of its memory: new series, exports and long queries are refused until some is free"
                );
            }
        }
        ProcessMemory { held_bytes: self.held_bytes.load(Ordering::Relaxed), limit_bytes }
    }
}

/// Returns true if the time `next_ms` has come, and sets it to `every_ms` from now. If several threads call
/// this at once, one of them gets true.
fn is_due(next_ms: &AtomicU64, now_ms: u64, every_ms: u64) -> bool {
    let next = next_ms.load(Ordering::Relaxed);
    let then = now_ms + every_ms;
    now_ms >= next && next_ms.compare_exchange(next, then, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use model::ErrorKind;
    use stdx::clock::ManualClock;

    /// Memory use that a test sets. Counts how often it is read.
    #[derive(Debug, Default)]
    pub(crate) struct FixedResident {
        pub(crate) bytes: AtomicU64,
        pub(crate) asked: AtomicU64,
    }

    impl Resident for FixedResident {
        fn bytes(&self) -> u64 {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.bytes.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn work_is_refused_while_the_process_holds_too_much() {
        let (resident, clock) = (Arc::new(FixedResident::default()), Arc::new(ManualClock::at(0)));
        let headroom = Headroom::new(Some(Arc::clone(&resident) as _), Arc::clone(&clock) as _, 1000);
        for (held, is_refused) in [(0, false), (949, false), (950, true), (5000, true), (949, false)] {
            clock.advance(READ_EVERY_MS);
            resident.bytes.store(held, Ordering::Relaxed);
            let refused = headroom.check().err().map(|refusal| (refusal.kind, refusal.reason));
            assert_eq!(refused, is_refused.then_some((ErrorKind::Unavailable, REASON)), "{held} bytes");
        }
        let wait_at = |held| {
            clock.advance(10_000);
            resident.bytes.store(held, Ordering::Relaxed);
            let refusal = headroom.check().unwrap_err();
            assert_eq!(refusal.retry_after, Some(Wait::ProcessMemory));
            headroom.wait().as_secs()
        };
        assert_eq!([990, 990, 970].map(wait_at), [3, 10, 10], "20 of 40 bytes are gone after 10 s");
        clock.advance(READ_EVERY_MS);
        resident.bytes.store(0, Ordering::Relaxed);
        headroom.check().unwrap();
        assert_eq!(headroom.wait(), RETRY_AFTER);
        let asked = resident.asked.load(Ordering::Relaxed);
        resident.bytes.store(5000, Ordering::Relaxed);
        for _ in 0..1000 {
            headroom.check().expect("the last reading is still valid");
        }
        clock.advance(READ_EVERY_MS - 1);
        headroom.check().expect("the last reading is still valid");
        assert_eq!(resident.asked.load(Ordering::Relaxed), asked);
        clock.advance(1);
        assert!(headroom.check().is_err());
        assert!(Headroom::new(None, clock, 1000).check().is_ok(), "without readings, nothing is refused");
    }

    #[test]
    fn one_of_many_threads_reads_the_resident_memory() {
        let (resident, clock) = (Arc::new(FixedResident::default()), Arc::new(ManualClock::at(0)));
        let headroom = Headroom::new(Some(Arc::clone(&resident) as _), clock, 1000);
        std::thread::scope(|threads| {
            (0..8).for_each(|_| _ = threads.spawn(|| (0..1000).for_each(|_| headroom.check().unwrap())));
        });
        assert_eq!(resident.asked.load(Ordering::Relaxed), 1);
    }
}
