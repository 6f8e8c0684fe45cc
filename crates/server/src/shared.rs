//! State shared by the threads of a node.

use crate::ingest::gates::Gates;
use crate::limits::head_memory::HeadMemory;
use crate::limits::headroom::Headroom;
use crate::limits::pacer::{Pacer, Traffic};
use crate::partition::shared::{PartitionShared, Partitions};
use crate::seal::Lake;
use crate::settings::Settings;
use crate::telemetry::WriteMetrics;
use crate::wallclock::WallClock;
use crate::world::Pause;
use admission::{NewTenants, Shortage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use stdx::budget::Account;
use stdx::clock::Clock;

/// Initial value of [`Shared::steady_s`], so that series restored by replay count as seen earlier.
const STARTED_S: u32 = 1 << 20;

/// State shared by the threads of a node. Each part of the node uses some of the fields.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) seed: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Instant,
    pub(crate) pause: Arc<dyn Pause>,
    /// Trust in the wall clock.
    pub(crate) wall: WallClock,
    pub(crate) metrics: WriteMetrics,
    /// Memory of write requests, from their first byte to their answer.
    pub(crate) inflight: Account,
    /// Limits on concurrent write requests.
    pub(crate) gates: Gates,
    /// Memory of idle decoders.
    pub(crate) decoders: Account,
    /// Memory of query forms, and of answers until they are sent.
    pub(crate) answers: Account,
    /// Memory of replay beside the heads. No query runs before replay is done, so replay has all of the queries' memory.
    pub(crate) replay: Account,
    /// Memory pressure of the whole process.
    pub(crate) headroom: Arc<Headroom>,
    pub(crate) lake: Lake,
    pub(crate) traffic: Arc<Traffic>,
    /// Shortage of memory for new series.
    pub(crate) head_shortage: parking_lot::Mutex<Shortage>,
    pub(crate) new_tenants: parking_lot::Mutex<NewTenants>,
    pub(crate) heads: Arc<HeadMemory>,
    pub(crate) partitions: Arc<Partitions>,
}

impl Shared {
    pub(crate) fn partitions(&self) -> &[Arc<PartitionShared>] {
        &self.partitions
    }

    /// Paces the background work of the calling thread.
    pub(crate) fn pacer(&self) -> Pacer {
        Pacer::new(Arc::clone(&self.clock), Arc::clone(&self.traffic), Arc::clone(&self.heads))
    }

    /// Age of the oldest sample that is in no table yet, in milliseconds; 0 if there is none.
    pub(crate) fn floodmark_lag_ms(&self) -> i64 {
        let in_rounds = self.lake.in_rounds_since_ms.load(Ordering::Relaxed);
        match self.partitions.unsealed_since_ms().unwrap_or(i64::MAX).min(in_rounds) {
            i64::MAX => 0,
            since_ms => self.clock.now_ms().saturating_sub(since_ms).max(0),
        }
    }

    /// Seconds of the steady clock, which determines idle series: the wall clock may be set.
    pub(crate) fn steady_s(&self) -> u32 {
        let since = self.clock.instant().saturating_duration_since(self.started);
        u32::try_from(since.as_secs()).map_or(u32::MAX, |s| s.saturating_add(STARTED_S))
    }
}
