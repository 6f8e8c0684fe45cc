//! Named faults: each changes a plan so that every run meets one kind of fault early and often.
//!
//! The default mix of [`Plan::of`] has all faults that are cheap enough for every run. A fault that needs special
//! settings, traffic or steps is a named fault with its own seeds in the tests. So the name of a failing test says
//! where to look.

use crate::disk::DiskFaults;
use crate::plan::{Plan, Step};
use crate::store::StoreFaults;
use clap::ValueEnum;
use journal::Durability;
use stdx::rng::Rng;

/// Head memory of a tenant with a few series in one partition, in bytes.
const TENANT_BYTES: u64 = 20 << 10;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Clients repeat requests: after a refusal, after a lost answer, across restarts, beside the first copy.
    Resends,
    /// Samples come late: some within the accepted age, some beyond it.
    LateSamples,
    /// External programs import samples, with hours between staging and commit. Rollups include the imported samples.
    Imports,
    /// Samples of many days at once, with so little memory that they are sealed in many passes.
    Backfills,
    /// Heads with room for a fraction of the series.
    Memory,
    /// The table of one tenant fails for a long time while others write and are sealed, and the process or the power dies.
    BlockedTenants,
    /// A start with memory for a fraction of what the journal holds: replay seals as it goes.
    Replay,
    /// The node's clock is wrong by up to a year, also across restarts, and samples expire.
    Clocks,
    /// Tables in local files, whose names may be lost unless their folder was synced.
    LocalStore,
    /// Samples are deleted, while others are written, sealed, merged, imported and rolled up.
    Deletes,
    /// A disk that fails often, and power losses while data directories are new.
    Directories,
}

impl Fault {
    /// All faults.
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
        Self::Directories,
    ];

    /// Steps of a run before it drains: the minimum, and the bound of a random addition.
    const STEPS: (usize, u64) = (25, 40);

    /// Name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().expect("BUG: a fault has no name on the command line").get_name().to_string()
    }

    /// Head limit with room for all tenants and for a part of their series, in bytes.
    fn small_head(plan: &Plan, rng: &mut Rng) -> u64 {
        (plan.tenants * plan.partitions) as u64 * TENANT_BYTES
            + [8 << 10, 16 << 10, 48 << 10][rng.below(3) as usize]
    }

    /// Changes a plan so that its run meets this fault.
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
                // in some runs the head's share for late samples fills up soon
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
                // Every check reads a file for each day, so only a few runs have hundreds of days. These runs seal in
                // few passes.
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
                // a copy of the data directory from before a delete would bring back deleted samples
                plan.weights.set(Step::Copy, 0);
                plan.disk.lie = 0.0;
                if rng.chance(0.4) {
                    plan.weights.set(Step::Import, 10);
                    (plan.rolls_up, plan.retention_ms) = (true, None);
                } else {
                    // writes to local files are never delayed
                    plan.local_store = plan.store.delay == 0.0 && rng.chance(0.4);
                }
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
                // without `floodmarks.json`, a replay can seal nothing before it has seen all tenants
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
