//! Named faults. Each changes the plan of a run so that one kind of fault happens early and often.
//!
//! A fault gets a name if it needs special settings, requests or steps. The tests run seeds of its own for
//! it. Other faults are part of every plan ([`Plan::of`]).

use crate::disk::DiskFaults;
use crate::plan::{Plan, Step};
use crate::store::StoreFaults;
use clap::ValueEnum;
use journal::Durability;
use stdx::rng::Rng;

/// Memory that a tenant with a few series takes in the head of one partition.
const TENANT_BYTES: u64 = 20 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Clients repeat requests, after failures, across restarts, and concurrently.
    Resends,
    /// Samples come late, also beyond the accepted age.
    LateSamples,
    /// External programs import samples, with hours between staging and commit.
    Imports,
    /// Samples of many days, sealed in many passes for lack of memory.
    Backfills,
    /// Heads with room for a fraction of the series.
    Memory,
    /// One tenant's table fails for long while others are sealed and the process or power dies.
    BlockedTenants,
    /// A replay with too little memory, so that the node seals meanwhile.
    Replay,
    /// The node's clock is wrong by up to a year while samples expire.
    Clocks,
    /// Tables in local files, whose names may be lost unless synced.
    LocalStore,
    /// Deletes during writes, seals, merges, imports and rollups.
    Deletes,
    /// Points with delta temporality, which must count once.
    Deltas,
    /// A disk that fails often, and power losses in new data directories.
    Directories,
}

impl Fault {
    pub const ALL: &[Self] = &[
        Self::Resends,
        Self::LateSamples,
        Self::Imports,
        Self::Backfills,
        Self::Memory,
        Self::BlockedTenants,
        Self::Replay,
        Self::Clocks,
        Self::LocalStore,
        Self::Deletes,
        Self::Deltas,
        Self::Directories,
    ];

    /// Number of steps before the drain: the first number plus a random number below the second.
    const STEPS: (usize, u64) = (25, 40);

    pub fn name(self) -> String {
        self.to_possible_value().expect("BUG: a fault has no name on the command line").get_name().to_string()
    }

    /// A limit on the head that leaves room for only some series of each tenant.
    fn small_head(plan: &Plan, rng: &mut Rng) -> u64 {
        (plan.tenants * plan.partitions) as u64 * TENANT_BYTES
            + [8 << 10, 16 << 10, 48 << 10][rng.below(3) as usize]
    }

    pub fn apply(self, plan: &mut Plan, rng: &mut Rng) {
        plan.steps = Self::STEPS.0 + rng.below(Self::STEPS.1) as usize;
        match self {
            Self::Resends => {
                plan.load.resends = 0.3 + 0.4 * rng.unit();
                plan.weights.at_least(Step::Crash, 3);
                plan.weights.at_least(Step::Flush, 6);
            }
            Self::LateSamples => {
                plan.load.past_ms = Some([60_000, 3_600_000, 86_400_000][rng.below(3) as usize]);
                // in some runs, out-of-order samples use up their share of the head
                if rng.chance(0.3) {
                    plan.head_bytes = Some(Self::small_head(plan, rng));
                    plan.load.samples = 40;
                    plan.load.metadata = false;
                }
            }
            Self::Imports => {
                plan.weights.set(Step::Import, 15);
                plan.weights.at_least(Step::Keep, 4);
                plan.weights.at_least(Step::Compact, 2);
                plan.rolls_up = true;
                plan.retention_ms = None;
            }
            Self::Backfills => {
                plan.load.span_ms = [3, 8][rng.below(2) as usize] * 86_400_000;
                (plan.tenants, plan.partitions) = (plan.tenants.min(2), plan.partitions.min(2));
                // Each check reads a file per day, which takes long if there are hundreds.
                if rng.chance(0.01) {
                    (plan.steps, plan.load.backfill_days) = (15, 420);
                } else {
                    (plan.steps, plan.load.backfill_days) = (plan.steps / 3 + 5, 6);
                    plan.flush_bytes = [Some(256 << 10), None][rng.below(2) as usize];
                }
                plan.retention_ms = None;
            }
            Self::BlockedTenants => {
                plan.steps /= 4;
                plan.weights.set(Step::Block, 10);
                plan.tenants = plan.tenants.max(2);
                (plan.partitions, plan.segment_bytes) = (1, 2 << 10);
                plan.retention_ms = None;
            }
            Self::Clocks => {
                plan.wrong_clocks = true;
                plan.retention_ms = Some(86_400_000 * (1 + rng.below(3) as i64));
                plan.weights.at_least(Step::SetClock, 3);
                plan.weights.at_least(Step::Crash, 4);
                plan.weights.at_least(Step::Keep, 8);
                plan.weights.at_least(Step::Flush, 8);
                plan.weights.at_least(Step::Advance, 12);
            }
            Self::Deletes => {
                plan.weights.set(Step::Delete, 12);
                plan.weights.at_least(Step::Crash, 4);
                plan.weights.at_least(Step::Flush, 4);
                plan.weights.at_least(Step::Keep, 4);
                plan.weights.at_least(Step::Compact, 1 + rng.below(2));
                // restoring an old data directory would bring back deleted samples
                plan.weights.set(Step::Copy, 0);
                plan.disk.lie = 0.0;
                if rng.chance(0.4) {
                    plan.weights.set(Step::Import, 10);
                    (plan.rolls_up, plan.retention_ms) = (true, None);
                } else {
                    // local files have no delayed writes
                    plan.local_store = plan.store.delay == 0.0 && rng.chance(0.4);
                }
            }
            Self::Deltas => {
                plan.sends_deltas = true;
                plan.evicts = true;
                plan.load.metadata = false;
                plan.weights.set(Step::Write, 60);
                plan.weights.at_least(Step::Crash, 6);
                plan.weights.at_least(Step::Flush, 6);
                plan.weights.at_least(Step::Compact, 1);
                // an old data directory, or one whose end was lost, has old sums
                plan.weights.set(Step::Copy, 0);
                plan.disk.lie = 0.0;
                // points are dated by the clock, and all of them are needed for the check
                plan.weights.set(Step::SetClock, 0);
                plan.retention_ms = None;
            }
            Self::Directories => {
                plan.steps /= 2;
                plan.weights.at_least(Step::Crash, 20);
                plan.disk = DiskFaults { error: 0.1 * rng.unit(), ..DiskFaults::default() };
                plan.durability = Durability::Fsync;
            }
            Self::LocalStore => {
                plan.local_store = true;
                plan.durability = Durability::Fsync;
                plan.store = StoreFaults {
                    unsynced: 0.5 * rng.unit(),
                    refuse: 0.1 * rng.unit(),
                    ..StoreFaults::default()
                };
                plan.disk = DiskFaults::default();
                plan.weights.at_least(Step::Crash, 10);
                plan.weights.at_least(Step::Flush, 10);
                plan.weights.at_least(Step::Compact, 2);
                plan.weights.at_least(Step::ChangeWeather, 4);
            }
            Self::Memory => {
                plan.head_bytes = Some(Self::small_head(plan, rng));
                plan.series = 40 + rng.below(100) as usize;
                plan.load.metadata = false;
            }
            Self::Replay => {
                plan.shrinks = true;
                plan.series = 100 + rng.below(200) as usize;
                plan.load.metadata = false;
                (plan.tenants, plan.partitions) = (plan.tenants.min(2), plan.partitions.min(2));
                plan.head_bytes = Some(Self::small_head(plan, rng));
                // without `floodmarks.json`, nothing can be sealed until the replay has met all tenants
                plan.loses_marks = false;
                plan.weights.set(Step::Write, 80);
                plan.load.samples = 250;
                plan.weights.set(Step::Flush, rng.below(2));
                plan.weights.set(Step::Seal, rng.below(3));
                plan.weights.at_least(Step::Crash, 8);
            }
        }
    }
}
