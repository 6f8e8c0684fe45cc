//! Compares the answers to queries with the samples that were sent.

use super::promql::Series;
use super::queries::{Query, slot_ms};
use super::targets::{Places, Targets};
use super::{VerifyOptions, VerifyReport};
use crate::generate::fleet::{BOUND_LABEL, Histograms, Part, series_labels, target_bytes};
use crate::generate::plan::Plan;
use crate::verify::ledger::Ledger;
use model::labels::{METRIC_NAME, put_label};
use model::{LabelsRef, SeriesKey};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

/// A constant seed is sufficient, because the keys never leave this process.
const KEY_SEED: u64 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    Lost,
    Doubled,
    Wrong,
    /// A query returned a sample that was never sent.
    Unexpected,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Example {
    pub fault: Fault,
    /// The series in Prometheus' notation, such as `up{job="api"}`.
    pub series: String,
    pub timestamp_ms: i64,
    pub sent: Option<f64>,
    pub found: Option<f64>,
}

impl std::fmt::Display for Example {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fault = format!("{:?}", self.fault).to_lowercase();
        write!(f, "{fault}: {} at {}", self.series, self.timestamp_ms)?;
        if let Some(sent) = self.sent {
            write!(f, ", sent {sent}")?;
        }
        if let Some(found) = self.found {
            write!(f, ", found {found}")?;
        }
        Ok(())
    }
}

/// Checks the answers to queries. It keeps the labels of the targets from one query to the next, because they are
/// expensive to compute.
#[derive(Debug)]
pub(super) struct Checker {
    /// Finds the target and generation of a series by the hash of its labels and name without the metric's name.
    targets: HashMap<SeriesKey, (u64, u64)>,
    /// Rounds and targets for which `targets` was computed.
    targets_of: Option<(Range<u32>, Targets)>,
    /// How often the current query has returned each sample, by target, metric and round.
    seen: Vec<u8>,
    labels: Vec<u8>,
}

/// A series of the plan that a query has returned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) target: u64,
    pub(super) generation: u64,
    pub(super) metric: u32,
}

impl Checker {
    pub(super) fn new() -> Self {
        Self { targets: HashMap::new(), targets_of: None, seen: Vec::new(), labels: Vec::new() }
    }

    /// Compares `series`, the answer to `query`, with the ledger.
    pub(super) fn check(
        &mut self,
        ledger: &Ledger,
        query: &Query,
        series: &[Series<'_>],
        options: &VerifyOptions,
    ) -> VerifyReport {
        self.know_targets(&ledger.plan, query);
        let metrics = Metrics::of(&ledger.plan, query);
        let mut sheet = Sheet {
            ledger,
            query,
            places: query.targets.places(&ledger.plan),
            found: VerifyReport::default(),
            examples_max: options.examples_max,
            tolerance: options.tolerance,
            step_ms: options.step_ms,
        };
        self.seen.clear();
        let targets = query.targets.len(&ledger.plan) as usize;
        self.seen.resize(targets * query.metrics.len() * query.rounds.len(), 0);
        for series in series {
            match self.identify(&ledger.plan, &metrics, series) {
                Some(known) => sheet.series(&mut self.seen, known, series),
                None => sheet.found.foreign_series += 1,
            }
        }
        sheet.missing(&self.seen);
        sheet.found
    }

    /// The series of the plan that is one in the answer to `query`. `None` if it is foreign.
    pub(super) fn find(&mut self, plan: &Plan, query: &Query, series: &Series<'_>) -> Option<Found> {
        self.know_targets(plan, query);
        self.identify(plan, &Metrics::of(plan, query), series)
    }

    /// Computes the labels of all targets that the query may return, unless they are known from an earlier query.
    fn know_targets(&mut self, plan: &Plan, query: &Query) {
        let of = (query.rounds.clone(), query.targets.clone());
        let known = self.targets_of.as_ref().is_some_and(|(rounds, targets)| {
            *targets == query.targets && (!plan.replaces_targets() || *rounds == query.rounds)
        });
        if known {
            return;
        }
        self.targets.clear();
        for target in query.targets.iter(plan) {
            let generations =
                plan.generation(target, query.rounds.start)..=plan.generation(target, query.rounds.end - 1);
            for generation in generations {
                let key = SeriesKey::of(&plan.fleet.target_identity(target, generation), KEY_SEED);
                self.targets.insert(key, (target, generation));
            }
        }
        self.targets_of = Some(of);
    }

    fn identify(&mut self, plan: &Plan, metrics: &Metrics<'_>, series: &Series<'_>) -> Option<Found> {
        self.labels.clear();
        let (mut metric_name, mut bound) = ("", None);
        for (name, value) in &series.metric {
            match name.0.as_ref() {
                // the metric name sorts first, so that the prefix precedes all labels
                METRIC_NAME => {
                    let (prefix, name) = plan.fleet.naming.split(&value.0);
                    self.labels.extend_from_slice(prefix.as_bytes());
                    metric_name = name;
                }
                BOUND_LABEL if metrics.has_bounds() => bound = Some(value.0.as_ref()),
                name => put_label(&mut self.labels, name.as_bytes(), value.0.as_bytes()),
            }
        }
        let metric = metrics.find(metric_name, bound)?;
        let (target, generation) = *self.targets.get(&SeriesKey::of(&self.labels, KEY_SEED))?;
        Some(Found { target, generation, metric })
    }
}

#[derive(Debug)]
struct Metrics<'a> {
    first: HashMap<&'a str, u32>,
    /// Values that the label `le` can have, in ascending order. Empty if the query is not about buckets.
    bounds: Vec<String>,
    histograms: Histograms,
}

impl<'a> Metrics<'a> {
    fn of(plan: &Plan, query: &'a Query) -> Self {
        let histograms = plan.fleet.histograms;
        let firsts = query.metrics.clone().filter(|metric| histograms.first_alike(*metric) == *metric);
        let first = query.names.iter().map(String::as_str).zip(firsts).collect();
        let bounds = (0..plan.metrics).map_while(|metric| histograms.le(metric)).collect();
        Self { first, bounds, histograms }
    }

    fn has_bounds(&self) -> bool {
        !self.bounds.is_empty()
    }

    fn find(&self, name: &str, bound: Option<&str>) -> Option<u32> {
        let first = *self.first.get(name)?;
        let is_bucket = matches!(self.histograms.part(first), (_, Part::Bucket(_)));
        match bound {
            None => (!is_bucket).then_some(first),
            Some(bound) if is_bucket => {
                let at = self.bounds.iter().position(|b| b == bound)?;
                Some(first + at as u32)
            }
            Some(_) => None,
        }
    }
}

struct Sheet<'a> {
    ledger: &'a Ledger,
    query: &'a Query,
    places: Places,
    found: VerifyReport,
    examples_max: usize,
    tolerance: f64,
    step_ms: u64,
}

impl Sheet<'_> {
    fn plan(&self) -> &Plan {
        &self.ledger.plan
    }

    /// Index in `seen` of the counter that belongs to a sample.
    fn cell(&self, target: u64, metric: u32, round: u32) -> usize {
        let query = self.query;
        let row = self.places.of(target) * query.metrics.len() + (metric - query.metrics.start) as usize;
        row * query.rounds.len() + (round - query.rounds.start) as usize
    }

    fn series(&mut self, seen: &mut [u8], known: Found, series: &Series<'_>) {
        let ledger = self.ledger;
        let plan = &ledger.plan;
        let Found { target, generation, metric } = known;
        let (first_ms, last_ms) = self.query.times(plan);
        let key = plan.target_key(target, generation);
        let slot = plan.slot_of(target, metric).expect("BUG: a target of the plan has a slot");
        let slot = &ledger.slots[slot];
        for &(seconds, text) in &series.values {
            let timestamp_ms = (seconds * 1000.0).round() as i64;
            if !(first_ms..=last_ms).contains(&timestamp_ms) {
                continue; // belongs to the neighbouring query
            }
            let Ok(value) = text.parse::<f64>() else {
                self.found.unexpected += 1;
                self.example(Fault::Unexpected, known, timestamp_ms, None, None);
                continue;
            };
            let rounds = self.rounds_at(target, generation, timestamp_ms);
            let sent = || rounds.clone().filter(|round| slot.sent.contains(*round));
            let Some(last) = sent().next_back() else {
                if self.is_at_edge(timestamp_ms) {
                    continue; // may belong to another run
                }
                self.found.unexpected += 1;
                self.example(Fault::Unexpected, known, timestamp_ms, None, Some(value));
                continue;
            };
            // a sample that was not acknowledged may have replaced the last acknowledged one, or not
            let acknowledged = rounds.clone().rfind(|round| slot.acknowledged.contains(*round));
            let possible = sent().filter(|round| acknowledged.is_none_or(|a| *round >= a));
            let expected = plan.value(key, metric, acknowledged.unwrap_or(last));
            let cell = &mut seen[self.cell(target, metric, rounds.end - 1)];
            *cell = cell.saturating_add(1);
            if *cell > 1 {
                self.found.doubled += 1;
                self.example(Fault::Doubled, known, timestamp_ms, Some(expected), Some(value));
            } else if acknowledged.is_some() {
                let owed = rounds.clone().filter(|round| slot.acknowledged.contains(*round)).count() as u64;
                self.found.read_back += owed;
                self.found.superseded += owed - 1;
            } else {
                self.found.unacknowledged += 1;
            }
            let values = || possible.clone().map(|round| plan.value(key, metric, round));
            if values().any(|sent| sent.to_bits() == value.to_bits()) {
                continue;
            }
            if values().any(|sent| (value - sent).abs() <= sent.abs() * self.tolerance) {
                self.found.rounded += 1;
            } else {
                self.found.wrong += 1;
                self.example(Fault::Wrong, known, timestamp_ms, Some(expected), Some(value));
            }
        }
    }

    /// True if a slot begins before the first round that was sent, or ends after the last. It may then hold a sample of an
    /// earlier or a later run.
    fn is_at_edge(&self, begin_ms: i64) -> bool {
        let plan = self.plan();
        slot_ms(begin_ms, self.step_ms) == begin_ms
            && (begin_ms < plan.round_ms(0)
                || begin_ms + self.step_ms as i64 > plan.round_ms(self.ledger.rounds()))
    }

    /// Rounds of the query in which a target's samples are in the slot that begins at `begin_ms`. Empty if no slot
    /// begins then.
    fn rounds_at(&self, target: u64, generation: u64, begin_ms: i64) -> Range<u32> {
        let plan = self.plan();
        if slot_ms(begin_ms, self.step_ms) != begin_ms {
            return 0..0;
        }
        let Range { start, end } = self.query.rounds;
        let first_ms = plan.timestamp_ms(target, start);
        // index of the first round, counted from `start`, whose samples are not before a time
        let index = |time_ms: i64| {
            let intervals = (time_ms - first_ms).max(0) as u64;
            u32::try_from(intervals.div_ceil(u64::from(plan.interval_ms))).unwrap_or(u32::MAX)
        };
        let clip = |time_ms| start.saturating_add(index(time_ms)).min(end);
        let (mut first, mut last) = (clip(begin_ms), clip(begin_ms + self.step_ms as i64));
        while first < last && plan.generation(target, first) != generation {
            first += 1;
        }
        while first < last && plan.generation(target, last - 1) != generation {
            last -= 1;
        }
        first..last
    }

    /// The cell of a sample's slot.
    fn cell_of_slot(&self, target: u64, metric: u32, round: u32) -> usize {
        let plan = self.plan();
        if self.step_ms == 1 {
            return self.cell(target, metric, round);
        }
        let begin_ms = slot_ms(plan.timestamp_ms(target, round), self.step_ms);
        let rounds = self.rounds_at(target, plan.generation(target, round), begin_ms);
        self.cell(target, metric, rounds.end - 1)
    }

    fn missing(&mut self, seen: &[u8]) {
        let query = self.query;
        for target in query.targets.iter(&self.ledger.plan) {
            for metric in query.metrics.clone() {
                self.missing_of(seen, target, metric);
            }
        }
    }

    fn missing_of(&mut self, seen: &[u8], target: u64, metric: u32) {
        let ledger = self.ledger;
        let plan = &ledger.plan;
        let slot = plan.slot_of(target, metric).expect("BUG: a target of the plan has a slot");
        for round in self.query.rounds.clone() {
            if !ledger.slots[slot].acknowledged.contains(round)
                || seen[self.cell_of_slot(target, metric, round)] > 0
            {
                continue;
            }
            self.found.lost += 1;
            if self.found.lost <= self.examples_max as u64 {
                let known = Found { target, generation: plan.generation(target, round), metric };
                let sent = plan.value(plan.target_key(target, known.generation), metric, round);
                self.example(Fault::Lost, known, plan.timestamp_ms(target, round), Some(sent), None);
            }
        }
    }

    fn example(
        &mut self,
        fault: Fault,
        known: Found,
        timestamp_ms: i64,
        sent: Option<f64>,
        found: Option<f64>,
    ) {
        let alike = self.found.examples.iter().filter(|e| e.fault == fault).count();
        if alike >= self.examples_max {
            return;
        }
        let series = name_of(self.plan(), known, self.query.rounds.start);
        self.found.examples.push(Example { fault, series, timestamp_ms, sent, found });
    }
}

/// A series in Prometheus' notation, with its name in a round.
pub(super) fn name_of(plan: &Plan, series: Found, round: u32) -> String {
    let Found { target, generation, metric } = series;
    let name = plan.fleet.metric_name(metric, plan.metric_generation(round));
    let name = plan.fleet.series_name(target, generation, &name);
    let le = plan.fleet.histograms.le(metric);
    let mut labels = Vec::new();
    let target = target_bytes(&plan.fleet.target_labels(target, generation));
    series_labels(&mut labels, &name, le.as_deref(), &target);
    format!("{:?}", LabelsRef::from_canonical(&labels))
}
