//! State of partitions that other threads may read.

use super::replay_progress::ReplayProgress;
use crate::refusal::Refusal;
use crate::seal::blocked::BlockedTenants;
use admission::retry::until_attempt;
use admission::{RETRY_AFTER, WriteRefusal};
use head::Partition;
use parking_lot::{Mutex, RwLock};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct PartitionShared {
    /// The owner is the only writer.
    pub(crate) head: RwLock<Partition>,
    pub(crate) ready: AtomicBool,
    pub(crate) can_freeze: AtomicBool,
    pub(super) replay: ReplayProgress,
    /// Says why replay waits or why the partition stays closed. Empty if neither is the case.
    pub(crate) trouble: Mutex<String>,
    pub(crate) head_bytes: AtomicU64,
    /// Memory that late samples in the head took when they were last counted.
    pub(crate) late_bytes: AtomicU64,
    pub(crate) journal_bytes: AtomicU64,
    pub(crate) journal_segments: AtomicU64,
    pub(crate) creating: AtomicU64,
    pub(crate) unsealed_bytes: AtomicU64,
    /// Number of series whose samples are sums of increments.
    pub(crate) sums: AtomicU64,
    /// Arrival time of the oldest sample that was not frozen for sealing yet, in Unix milliseconds; 0 if there is
    /// none.
    pub(crate) unsealed_since_ms: AtomicI64,
    /// When the next eviction for all tenants is expected to begin, if the pressure on memory stays as it is. `None` before the first
    /// one has ended.
    pub(super) next_eviction: Mutex<Option<Instant>>,
}

impl PartitionShared {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            head: RwLock::new(Partition::new(seed)),
            ready: AtomicBool::new(false),
            can_freeze: AtomicBool::new(false),
            replay: ReplayProgress::default(),
            trouble: Mutex::default(),
            head_bytes: AtomicU64::new(0),
            late_bytes: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(0),
            journal_segments: AtomicU64::new(0),
            creating: AtomicU64::new(0),
            unsealed_bytes: AtomicU64::new(0),
            sums: AtomicU64::new(0),
            unsealed_since_ms: AtomicI64::new(0),
            next_eviction: Mutex::default(),
        }
    }

    pub(super) fn grew(&self, bytes: isize) {
        self.head_bytes.fetch_add(bytes as u64, Ordering::Relaxed); // a negative change wraps
    }

    /// Counts the memory of late samples. Blocked tenants do not count, because they have a separate limit.
    pub(super) fn count_late(&self, head: &Partition, blocked: &BlockedTenants) {
        let late_bytes = head.late_bytes(|tenant| blocked.head_percent(tenant).is_none());
        self.late_bytes.store(late_bytes as u64, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Partitions(Vec<Arc<PartitionShared>>);

impl Partitions {
    pub(crate) fn new(count: usize, seed: u64) -> Self {
        Self((0..count).map(|_| Arc::new(PartitionShared::new(seed))).collect())
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.iter().all(|p| p.ready.load(Ordering::Acquire))
    }

    pub(crate) fn can_freeze(&self) -> bool {
        self.iter().all(|p| p.can_freeze.load(Ordering::Acquire))
    }

    /// The answer to requests during replay. It names partitions that wait or stay closed.
    pub(crate) fn replaying(&self) -> Refusal {
        WriteRefusal::Replaying(self.trouble()).into()
    }

    /// Estimates how long the replay of the slowest partition still takes.
    pub(crate) fn time_to_replay(&self, now: Instant) -> Duration {
        let replaying = self.iter().filter(|p| !p.ready.load(Ordering::Acquire));
        replaying.map(|partition| partition.replay.rest(now)).max().unwrap_or(RETRY_AFTER)
    }

    /// Time until a partition looks for idle series and for tenants without series, which may then leave memory.
    pub(crate) fn time_to_eviction(&self, now: Instant) -> Duration {
        let next = self.iter().filter_map(|partition| *partition.next_eviction.lock()).min();
        next.map_or(RETRY_AFTER, |next| until_attempt(next.saturating_duration_since(now)))
    }

    pub(crate) fn trouble(&self) -> String {
        let mut text = String::new();
        for (number, partition) in self.iter().enumerate() {
            let trouble = partition.trouble.lock();
            if !trouble.is_empty() {
                text += &format!("; partition {number}: {trouble}");
            }
        }
        text
    }

    /// Arrival time of the oldest sample in any partition that was not frozen for sealing yet, in Unix milliseconds.
    pub(crate) fn unsealed_since_ms(&self) -> Option<i64> {
        let since = self.iter().map(|p| p.unsealed_since_ms.load(Ordering::Relaxed));
        since.filter(|ms| *ms != 0).min()
    }
}

impl Deref for Partitions {
    type Target = [Arc<PartitionShared>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_wait_for_the_first_eviction_that_is_due() {
        let (partitions, now) = (Partitions::new(3, 0), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(partitions.time_to_eviction(now), RETRY_AFTER, "none has ended yet");
        *partitions[0].next_eviction.lock() = Some(after(25));
        *partitions[2].next_eviction.lock() = Some(after(10));
        let wait = |second| partitions.time_to_eviction(after(second)).as_secs();
        assert_eq!([0, 4, 9, 60].map(wait), [10, 6, 3, 3]);
    }
}
