//! The parameters of a run. Each seed draws its own mix of steps and faults.

use crate::disk::DiskFaults;
use crate::store::StoreFaults;
use journal::Durability;
use stdx::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Write,
    Turn,
    Flush,
    Seal,
    Keep,
    Compact,
    Advance,
    /// The table of one tenant fails. The samples of the others must get into tables nevertheless.
    LeaveBehind,
    /// The table of one tenant fails for many rounds while the others write.
    Block,
    SetClock,
    Crash,
    Deliver,
    /// Faults of the disk and the store are turned on or off.
    ChangeWeather,
    Check,
    Copy,
    Import,
    /// A delete is requested, requested again, or answered.
    Delete,
}

/// How often each step is taken, compared with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights([(Step, u64); 17]);

impl Weights {
    fn of(rng: &mut Rng) -> Self {
        let mut or = |weight: u64, chance: f64| if rng.chance(chance) { weight } else { 0 };
        Self([
            (Step::Write, 30),
            (Step::Turn, 30),
            (Step::Flush, or(8, 0.9)),
            (Step::Seal, 12),
            (Step::Keep, or(3, 0.6)),
            (Step::Compact, or(1, 0.4)),
            (Step::Advance, or(8, 0.9)),
            (Step::LeaveBehind, or(1, 0.3)),
            (Step::SetClock, or(1, 0.3)),
            (Step::Crash, or(4, 0.9) + or(8, 0.2)),
            (Step::Deliver, 2),
            (Step::ChangeWeather, or(4, 0.8)),
            (Step::Check, 2),
            (Step::Copy, or(2, 0.25)),
            (Step::Import, 0),
            (Step::Block, 0),
            (Step::Delete, 0),
        ])
    }

    pub fn at_least(&mut self, step: Step, weight: u64) {
        self.set(step, weight.max(self.weight(step)));
    }

    pub fn set(&mut self, step: Step, weight: u64) {
        let found = self.0.iter_mut().find(|(of, _)| *of == step);
        found.expect("BUG: a step has no weight").1 = weight;
    }

    pub fn weight(&self, step: Step) -> u64 {
        self.0.iter().find(|(of, _)| *of == step).map_or(0, |(_, weight)| *weight)
    }

    pub fn draw(&self, rng: &mut Rng) -> Step {
        let mut drawn = rng.below(self.0.iter().map(|(_, weight)| weight).sum());
        for (step, weight) in self.0 {
            if drawn < weight {
                return step;
            }
            drawn -= weight;
        }
        unreachable!("BUG: the drawn number is not less than the sum of the weights")
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// A request has at most this many samples.
    pub samples: u64,
    /// Samples are at most this old, except in backfills and if `past_ms` is set.
    pub span_ms: u64,
    /// Probability that an earlier request is sent again.
    pub resends: f64,
    /// The node refuses samples older than this. Many samples are close to this age.
    pub past_ms: Option<i64>,
    pub metadata: bool,
    /// A backfill is a request with one sample on each of several days, at most this many.
    pub backfill_days: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Number of random steps. Then all faults are turned off, and all samples must get into tables.
    pub steps: usize,
    pub tenants: usize,
    pub partitions: usize,
    pub series: usize,
    pub load: Load,
    pub retention_ms: Option<i64>,
    pub wrong_clocks: bool,
    pub segment_bytes: u64,
    /// Files are merged up to this length. If it is small, the merged samples of a day go into several files,
    /// each with a range of names.
    pub merged_file_bytes: u64,
    pub rolls_up: bool,
    /// Limit on the memory of the head. `None` stands for the default.
    pub head_bytes: Option<u64>,
    /// True if every other restart reduces the limit on the head, but not below `head_bytes`.
    pub shrinks: bool,
    /// Memory for sealing in bytes, so little that many passes are needed. `None` stands for the default.
    pub flush_bytes: Option<u64>,
    pub weights: Weights,
    pub disk: DiskFaults,
    /// Faults of the store. The tenant whose table fails is drawn anew each time they are turned on.
    pub store: StoreFaults,
    pub local_store: bool,
    pub breaks_tenants: bool,
    pub durability: Durability,
    /// True if idle series are evicted. Then no metadata is sent, because it is dropped with the last series
    /// of its metric.
    pub evicts: bool,
    /// True if the file `floodmarks.json` may be missing after a restart.
    pub loses_marks: bool,
    /// Points with delta temporality are sent, to a tenant of their own.
    pub sends_deltas: bool,
    /// True if old data directories are restored against the advice in `docs/operating.md`.
    pub forgets_advice: bool,
}

impl Plan {
    pub fn of(rng: &mut Rng) -> Self {
        let weights = Weights::of(rng);
        let mut some = |most: f64, chance: f64| if rng.chance(chance) { rng.unit() * most } else { 0.0 };
        let disk = DiskFaults { error: some(0.05, 0.3), full: some(0.1, 0.2), lie: some(0.5, 0.04) };
        let store = StoreFaults {
            refuse: some(0.5, 0.4),
            lose_answer: some(0.5, 0.4),
            delay: some(0.5, 0.25) + some(0.5, 0.1),
            unreadable: some(0.2, 0.3),
            broken: None,
            unsynced: 0.0,
            slow_ms: 0,
        };
        let evicts = rng.chance(0.5);
        // Without `floodmarks.json`, the node cannot detect that an old journal has the identity of a newer
        // one.
        let forgets_advice = rng.chance(0.4);
        Self {
            steps: 40 + rng.below(100) as usize,
            tenants: 1 + rng.below(3) as usize,
            partitions: 1 + rng.below(3) as usize,
            series: 1 + rng.below(12) as usize,
            load: Load {
                samples: 12,
                span_ms: [10_000, 3_600_000, 3 * 86_400_000][rng.below(3) as usize],
                resends: 0.0,
                past_ms: None,
                metadata: !evicts,
                backfill_days: 0,
            },
            retention_ms: rng.chance(0.3).then(|| 86_400_000 * (1 + rng.below(3) as i64)),
            wrong_clocks: false,
            segment_bytes: [2 << 10, 8 << 10, 32 << 10][rng.below(3) as usize],
            merged_file_bytes: [128 << 20, 4 << 10, 2 << 10][rng.below(3) as usize],
            rolls_up: false,
            head_bytes: None,
            shrinks: false,
            flush_bytes: None,
            weights,
            disk,
            store,
            local_store: false,
            breaks_tenants: rng.chance(0.2),
            durability: if rng.chance(0.1) { Durability::Os } else { Durability::Fsync },
            evicts,
            loses_marks: !forgets_advice && rng.chance(0.3),
            sends_deltas: false,
            forgets_advice,
        }
    }
}
