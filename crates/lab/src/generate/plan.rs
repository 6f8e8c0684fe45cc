//! Samples of a run as a pure function: series × rounds.
//!
//! ```text
//!   writer ── targets ── metrics          a writer's series, target by target, each with all metrics
//!     └ slots of `batch` series           a slot is one request in every round
//!
//!   round r ── tick = first_tick + r      ticks count intervals since 1970, not since the start
//!           └─ time = tick × interval + the target's offset within the interval
//! ```
//!
//! Labels and times depend only on absolute ticks, so a restarted run continues the same series. Values also depend on a
//! seed of their own, so that samples of an earlier run cannot be mistaken for those of this run.

use crate::generate::fleet::{BUCKETS_MAX, Fleet, Part};
use crate::generate::values::{self, ValueModel};
use anyhow::{Result, ensure};
use model::caps::SERIES_LABELS_MAX;
use serde::{Deserialize, Serialize};
use stdx::rng::mix;

/// Determines all samples of a run, but not when they are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub fleet: Fleet,
    pub metrics: u32,
    pub targets: u64,
    /// Number of senders. Each sends the series of its own targets.
    pub writers: u32,
    /// Number of the first writer, counted over all machines. It differs between machines that share a fleet.
    pub first_writer: u32,
    pub batch: u32,
    pub values: ValueModel,
    pub interval_ms: u32,
    pub first_tick: u64,
    pub rounds_max: u32,
    /// After this number of ticks, each target is replaced by a new target with new series.
    pub series_churn_ticks: Option<u64>,
    /// True if the targets are replaced one after the other instead of all at once.
    pub series_churn_staggered: bool,
    /// After this number of ticks, all metrics get new names.
    pub metric_churn_ticks: Option<u64>,
    /// Number of ticks over which the replacement of all targets is spread. If it is 0, `series_churn_staggered`
    /// applies.
    #[serde(default)]
    pub series_churn_spread: u64,
    /// Number of ticks for which a value stays the same. With 0 or 1, it changes at each tick.
    #[serde(default)]
    pub value_ticks: u64,
    /// Ticks at which every target gets new labels, in ascending order.
    #[serde(default)]
    pub relabel_ticks: Vec<u64>,
    /// Timestamps are multiples of this many milliseconds since 1970.
    #[serde(default = "one")]
    pub resolution_ms: u32,
    /// Plans that differ only in this seed have the same series and times, but other values. With 0, as in ledgers
    /// before format 3, values depend only on the seed of the fleet.
    #[serde(default)]
    pub value_seed: u64,
}

const fn one() -> u32 {
    1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRange {
    /// Index of the writer among the writers of this plan.
    pub writer: u32,
    /// Index of the slot's first series among the series of its writer.
    pub first: u64,
    pub len: u32,
}

/// Earliest timestamp that takes [`STAMP_BYTES`] bytes as a varint: February 1971.
pub const TIMESTAMP_MS_MIN: i64 = 1 << 35;

/// First timestamp that takes more than [`STAMP_BYTES`] bytes as a varint: May 2109.
pub const TIMESTAMP_MS_END: i64 = 1 << 42;

/// Maximum number of series of all writers together.
pub const SERIES_MAX: u64 = 500_000_000;

impl Plan {
    /// Checks the limits that keep the calculations here from overflowing.
    pub fn check(&self) -> Result<()> {
        let counts = [
            ("metrics", u64::from(self.metrics)),
            ("targets", self.targets),
            ("writers", u64::from(self.writers)),
            ("batch", u64::from(self.batch)),
            ("interval", u64::from(self.interval_ms)),
            ("resolution", u64::from(self.resolution_ms)),
            ("series churn", self.series_churn_ticks.unwrap_or(1)),
            ("metric churn", self.metric_churn_ticks.unwrap_or(1)),
        ];
        for (what, count) in counts {
            ensure!(count > 0, "{what} must not be 0");
        }
        let series = u128::from(self.metrics) * u128::from(self.targets) * u128::from(self.writers);
        ensure!(series <= SERIES_MAX.into(), "the plan has {series} series, the limit is {SERIES_MAX}");
        ensure!(
            self.interval_ms.is_multiple_of(self.resolution_ms),
            "the interval of {} ms is not a multiple of {} ms, the resolution of timestamps",
            self.interval_ms,
            self.resolution_ms
        );
        let labels = self.fleet.labels;
        ensure!(
            (2..=SERIES_LABELS_MAX).contains(&labels),
            "labels: {labels} is not between 2 and {SERIES_LABELS_MAX}"
        );
        let histograms = self.fleet.histograms;
        let parts = u64::from(histograms.count) * (u64::from(histograms.buckets) + 2);
        ensure!(
            parts <= u64::from(self.metrics),
            "histograms: their series need {parts} metrics, but the plan has {}",
            self.metrics
        );
        let buckets = histograms.buckets;
        ensure!(
            histograms.count == 0 || (1..=BUCKETS_MAX).contains(&buckets),
            "histograms: the number of buckets is {buckets}, not between 1 and {BUCKETS_MAX}"
        );
        let interval_ms = u128::from(self.interval_ms);
        let start_ms = u128::from(self.first_tick) * interval_ms;
        let end_ms = start_ms + u128::from(self.rounds_max) * interval_ms;
        ensure!(
            start_ms >= TIMESTAMP_MS_MIN as u128 && end_ms < TIMESTAMP_MS_END as u128,
            "samples from {start_ms} to {end_ms} ms since 1970 are not between {TIMESTAMP_MS_MIN} and \
             {TIMESTAMP_MS_END}"
        );
        Ok(())
    }

    pub fn writer_series(&self) -> u64 {
        self.targets * u64::from(self.metrics)
    }

    pub fn series(&self) -> u64 {
        self.writer_series() * u64::from(self.writers)
    }

    /// Number of requests that one writer sends in a round.
    pub fn writer_slots(&self) -> usize {
        self.writer_series().div_ceil(u64::from(self.batch)) as usize
    }

    /// Number of requests that all writers of this plan send in a round.
    pub fn slots_count(&self) -> usize {
        self.writer_slots() * self.writers as usize
    }

    pub fn slot(&self, slot: usize) -> SlotRange {
        let (writer, within) = (slot / self.writer_slots(), slot % self.writer_slots());
        let first = within as u64 * u64::from(self.batch);
        let len = u64::from(self.batch).min(self.writer_series() - first) as u32;
        SlotRange { writer: writer as u32, first, len }
    }

    /// Number of the first target that belongs to a writer, counted over all machines.
    pub fn first_target(&self, writer: u32) -> u64 {
        (u64::from(self.first_writer) + u64::from(writer)) * self.targets
    }

    /// Number of the slot that sends a metric of a target. `None` if the target does not belong to this plan.
    pub fn slot_of(&self, target: u64, metric: u32) -> Option<usize> {
        let within = target.checked_sub(self.first_target(0))?;
        let (writer, target) = (within / self.targets, within % self.targets);
        if writer >= u64::from(self.writers) || metric >= self.metrics {
            return None;
        }
        let series = target * u64::from(self.metrics) + u64::from(metric);
        Some(writer as usize * self.writer_slots() + (series / u64::from(self.batch)) as usize)
    }

    /// Returns the target and the metric of a series, given its index in a slot.
    #[inline]
    pub fn series_at(&self, slot: SlotRange, index: u32) -> (u64, u32) {
        let series = slot.first + u64::from(index);
        let metrics = u64::from(self.metrics);
        (self.first_target(slot.writer) + series / metrics, (series % metrics) as u32)
    }

    pub fn tick(&self, round: u32) -> u64 {
        self.first_tick + u64::from(round)
    }

    /// Timestamp of the samples of `target` in `round`. Each target is scraped at a time of its own within the
    /// interval.
    #[inline]
    pub fn timestamp_ms(&self, target: u64, round: u32) -> i64 {
        let interval = u64::from(self.interval_ms);
        let offset = mix(self.fleet.seed ^ mix(target)) % interval;
        let offset = offset - offset % u64::from(self.resolution_ms);
        (self.tick(round) * interval + offset) as i64
    }

    /// Earliest timestamp of the samples in a round. The samples of earlier rounds are older.
    pub fn round_ms(&self, round: u32) -> i64 {
        (self.tick(round) * u64::from(self.interval_ms)) as i64
    }

    /// How often `target` was replaced before `round`.
    #[inline]
    pub fn generation(&self, target: u64, round: u32) -> u64 {
        let tick = self.tick(round);
        let relabels = self.relabel_ticks.iter().take_while(|at| **at <= tick).count() as u64;
        let Some(ticks) = self.series_churn_ticks else { return relabels };
        let spread = if self.series_churn_staggered { ticks } else { self.series_churn_spread.min(ticks) };
        let phase = target % spread.max(1);
        (tick + phase) / ticks + relabels
    }

    /// True if targets are replaced by others with other series.
    pub fn replaces_targets(&self) -> bool {
        self.series_churn_ticks.is_some() || !self.relabel_ticks.is_empty()
    }

    pub fn metric_generation(&self, round: u32) -> u64 {
        self.metric_churn_ticks.map_or(0, |ticks| self.tick(round) / ticks)
    }

    /// Key of the values of a target's series.
    #[inline]
    pub fn target_key(&self, target: u64, generation: u64) -> u64 {
        let values = if self.value_seed == 0 { 0 } else { mix(self.value_seed) };
        mix(self.fleet.seed.rotate_left(17) ^ mix(target) ^ generation.rotate_left(33) ^ values)
    }

    /// Value of a series in a round. The key of its target is computed by [`Self::target_key`].
    #[inline]
    pub fn value(&self, target_key: u64, metric: u32, round: u32) -> f64 {
        let tick = self.tick(round) / self.value_ticks.max(1);
        let histograms = self.fleet.histograms;
        let (first, part) = histograms.part(metric);
        let key = mix(target_key ^ u64::from(first));
        match part {
            Part::Plain => self.values.at(key, metric, tick),
            Part::Bucket(bucket) => values::observed(key, histograms.share_below(key, bucket), tick),
            Part::Count => values::observed(key, 1.0, tick),
            Part::Sum => values::observed_sum(key, tick),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::generate::fleet::Histograms;

    /// A plan of 3 writers with 7 targets each. Each target has 5 metrics, and a request has up to 8 series.
    pub(crate) fn small() -> Plan {
        Plan {
            fleet: Fleet::default(),
            metrics: 5,
            targets: 7,
            writers: 3,
            first_writer: 2,
            batch: 8,
            values: ValueModel::Mix,
            interval_ms: 15_000,
            first_tick: 119_685_600,
            rounds_max: 100,
            series_churn_ticks: None,
            series_churn_staggered: false,
            metric_churn_ticks: None,
            series_churn_spread: 0,
            value_ticks: 0,
            relabel_ticks: Vec::new(),
            resolution_ms: 1,
            value_seed: 0,
        }
    }

    #[test]
    fn slots_cover_every_series_once() {
        let plan = small();
        assert_eq!((plan.series(), plan.writer_slots(), plan.slots_count()), (105, 5, 15));
        let mut seen = std::collections::HashSet::new();
        for slot in 0..plan.slots_count() {
            let range = plan.slot(slot);
            for index in 0..range.len {
                let (target, metric) = plan.series_at(range, index);
                assert!(seen.insert((target, metric)));
                assert_eq!(plan.slot_of(target, metric), Some(slot));
                assert!((14..35).contains(&target), "writers 2, 3 and 4 own 7 targets each");
            }
        }
        assert_eq!(seen.len(), 105);
        assert_eq!(plan.slot_of(13, 0), None);
        assert_eq!(plan.slot_of(35, 0), None);
        assert_eq!(plan.slot_of(14, 5), None);
    }

    #[test]
    fn plans_from_files_are_checked() {
        assert!(small().check().is_ok());
        let changes: [fn(&mut Plan); 8] = [
            |p| p.metrics = 0,
            |p| p.batch = 0,
            |p| p.targets = u64::MAX,
            |p| p.first_tick = u64::MAX,
            |p| p.series_churn_ticks = Some(0),
            |p| p.fleet.labels = 0,
            |p| p.resolution_ms = 0,
            |p| p.resolution_ms = 7_000,
        ];
        for change in changes {
            let mut plan = small();
            change(&mut plan);
            assert!(plan.check().is_err(), "{plan:?}");
        }
    }

    #[test]
    fn samples_of_a_round_lie_between_it_and_the_next() {
        let plan = small();
        for target in 14..35 {
            for round in [0, 1, 99] {
                let at = plan.timestamp_ms(target, round);
                assert!(plan.round_ms(round) <= at && at < plan.round_ms(round + 1));
                assert_eq!(at + 15_000, plan.timestamp_ms(target, round + 1));
            }
        }
    }

    #[test]
    fn targets_are_replaced_all_at_once_or_one_after_the_other() {
        let replaced = |staggered| {
            let plan = Plan { series_churn_ticks: Some(10), series_churn_staggered: staggered, ..small() };
            let in_round =
                |r| (14..35).filter(|t| plan.generation(*t, r) != plan.generation(*t, r + 1)).count();
            (0..10).map(in_round).collect::<Vec<_>>()
        };
        assert_eq!(replaced(false).iter().max(), Some(&21));
        assert_eq!(replaced(true).iter().max(), Some(&3));
        assert_eq!(replaced(true).iter().sum::<usize>(), 21);
    }

    #[test]
    fn another_start_gives_the_same_samples_at_the_same_times() {
        let early = Plan { series_churn_ticks: Some(7), ..small() };
        let late = Plan { first_tick: early.first_tick + 40, ..early.clone() };
        for target in 14..35 {
            assert_eq!(early.timestamp_ms(target, 45), late.timestamp_ms(target, 5));
            let key = |plan: &Plan, round| plan.target_key(target, plan.generation(target, round));
            assert_eq!(early.value(key(&early, 45), 2, 45), late.value(key(&late, 5), 2, 5));
        }
    }

    #[test]
    fn another_seed_of_values_changes_nothing_but_values() {
        let histograms = Histograms { count: 2, buckets: 3 };
        let plan = Plan { fleet: Fleet { histograms, ..Fleet::default() }, metrics: 30, ..small() };
        let other = Plan { value_seed: 7, ..plan.clone() };
        let (mut equal, mut all) = (0, 0);
        for target in 14..35 {
            assert_eq!(plan.timestamp_ms(target, 5), other.timestamp_ms(target, 5));
            let value = |plan: &Plan, metric| plan.value(plan.target_key(target, 0), metric, 5).to_bits();
            equal += (0..30).filter(|metric| value(&plan, *metric) == value(&other, *metric)).count();
            all += 30;
        }
        assert!(equal * 100 < all, "{equal} of {all} values are equal");
    }
}
