//! Series that are computed from the points of others, by carbon's `aggregation-rules.conf`.
//!
//! ```text
//!   body ─▶ decode ─▶ contributions ─▶ route, store ─ durable ─▶ add ─▶ outputs: intervals of values
//!                                                                          │ an interval has ended
//!   write path ◀─ as points of the same tenant ◀─ listen::lines::aggregates ◀──┘
//! ```
//!
//! Which outputs a point contributes to depends on the name that was sent alone, so it is remembered ([`memo`]). A body
//! counts once it is durable, so that a body that is written again after a refusal does not count twice.
//!
//! The values of open intervals are only in memory. An interval whose points may not all be known (a part of them came before
//! a restart or a change of its rule, or there was no memory) is not computed.

mod contributions;
mod memo;
mod outputs;

pub(crate) use contributions::Contributions;

use super::names::{labels_of_name, listed};
use crate::graphite_rules::Rules;
use memo::{Matched, Memo, Replaced};
use model::{Batch, Labels, LabelsBuilder, SeriesKey, TenantId};
use outputs::{NewOutput, Outputs};
use parking_lot::{Mutex, RwLock};
use protocol::labels::labels_of;
use query::graphite::label_source::write_name;
use rules::aggregations::{Aggregation, Buffer, Computed, Missed};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::budget::{Account, Exhausted, IncrementalReservation, Reservation};
use stdx::telemetry::{Counter, Registry};

/// A lock is held for at most this many contributions or outputs at a time, about 50 µs.
const SLICE: usize = 256;

#[derive(Debug)]
pub(crate) struct Aggregator {
    account: Account,
    seed: u64,
    /// Number of intervals that are kept before and after the present one.
    kept: u32,
    in_force: RwLock<Arc<InForce>>,
    memo: Memo,
    tenants: Mutex<HashMap<TenantId, Arc<Mutex<Outputs>>>>,
    metrics: Arc<Metrics>,
}

/// Rules, and since when each of them applies.
#[derive(Debug)]
struct InForce {
    rules: Arc<Rules>,
    /// Unix time in milliseconds, by [`rule_id`]. It is later than the actual time by the delay after which an interval is
    /// computed: clocks of senders may be ahead, so points of this time may have come before.
    since_ms: HashMap<SeriesKey, i64>,
}

#[derive(Debug)]
struct Metrics {
    points: Counter,
    computed: Counter,
    incomplete: Counter,
    missed: [Counter; 5],
    outputs: Arc<AtomicU64>,
    values: Arc<AtomicU64>,
}

/// Why a point does not contribute to an output of a rule that matches it. The numbers are positions in [`Metrics::missed`].
#[derive(Debug, Clone, Copy)]
enum Reason {
    Late = 0,
    Early = 1,
    Memory = 2,
    Incomplete = 3,
    /// The output's name is not valid.
    Name = 4,
}

impl Metrics {
    fn new(r: &Registry) -> Self {
        let gauge = |name, help, value: &Arc<AtomicU64>| {
            let value = Arc::clone(value);
            r.gauge_fn(name, help, &[], move || value.load(Ordering::Relaxed) as f64);
        };
        let (outputs, values) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        gauge(
            "floodmark_graphite_aggregator_outputs",
            "Series that aggregation rules compute, of which intervals are in memory.",
            &outputs,
        );
        gauge(
            "floodmark_graphite_aggregator_values",
            "Values in the intervals that are in memory. A point counts once for each of its outputs.",
            &values,
        );
        let help = "Points that aggregation rules match, but that do not count in an output, by reason.";
        let missed = |reason| {
            r.counter_with("floodmark_graphite_aggregator_missed_total", help, &[("reason", reason)])
        };
        Self {
            points: r.counter(
                "floodmark_graphite_aggregator_points_total",
                "Points that count in an output of an aggregation rule. A point counts once for each of its outputs.",
            ),
            computed: r.counter(
                "floodmark_graphite_aggregator_computed_points_total",
                "Points that aggregation rules have computed.",
            ),
            incomplete: r.counter(
                "floodmark_graphite_aggregator_incomplete_total",
                "Intervals of outputs that were not computed, because some of their points are unknown.",
            ),
            missed: ["late", "early", "memory", "incomplete", "name"].map(missed),
            outputs,
            values,
        }
    }

    fn missed(&self, reason: Reason, points: u64) {
        self.missed[reason as usize].add(points);
    }
}

impl From<Missed> for Reason {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Late => Self::Late,
            Missed::Early => Self::Early,
            Missed::Memory => Self::Memory,
            Missed::Incomplete => Self::Incomplete,
        }
    }
}

/// What the rules say about a name.
#[derive(Default)]
struct Decision {
    outputs: Vec<NewOutput>,
    replaced: Option<Replaced>,
    /// Number of outputs whose names are not valid.
    invalid: u64,
}

/// An output of which intervals have ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// With its tags, as Graphite writes it.
    pub(crate) name: String,
    /// Starts of intervals in milliseconds, and their values.
    pub(crate) points: Vec<(i64, f64)>,
}

impl Aggregator {
    pub(crate) fn new(
        account: Account,
        seed: u64,
        kept: u32,
        rules: Arc<Rules>,
        now_ms: i64,
        registry: &Registry,
    ) -> Self {
        let memo = Memo::new(account.clone());
        let in_force = RwLock::new(Arc::new(InForce::new(rules, None, now_ms)));
        let metrics = Arc::new(Metrics::new(registry));
        Self { account, seed, kept, in_force, memo, tenants: Mutex::default(), metrics }
    }

    /// Puts rules in force that were read again. Rules that have not changed go on with their open intervals. The others
    /// begin with their next whole interval.
    pub(crate) fn adopt(&self, rules: &Arc<Rules>, now_ms: i64) {
        let before = Arc::clone(&self.in_force.read());
        if before.rules.fingerprint == rules.fingerprint {
            return;
        }
        let after = Arc::new(InForce::new(Arc::clone(rules), Some(&before), now_ms));
        *self.in_force.write() = Arc::clone(&after);
        self.memo.forget();
        for (_, outputs) in self.all() {
            let forgotten = outputs.lock().retire(|rule| !after.since_ms.contains_key(&rule), now_ms);
            self.metrics.values.fetch_sub(forgotten, Ordering::Relaxed);
        }
    }

    /// Finds the points of a batch that count in outputs. Leaves out of the batch what outputs replace. Returns `None` if
    /// there are no such points. The memory is taken from `memory`.
    pub(crate) fn contributions(
        &self,
        tenant: &TenantId,
        share_weight: u64,
        batch: &mut Batch,
        labels: &mut LabelsBuilder,
        memory: &mut Reservation,
        now_ms: i64,
    ) -> Result<Option<Box<Contributions>>, Exhausted> {
        let in_force = Arc::clone(&self.in_force.read());
        if in_force.rules.aggregations.is_empty() {
            return Ok(None);
        }
        let before_bytes = memory.bytes();
        let mut reservation = IncrementalReservation::new(memory);
        let mut found = Contributions::default();
        let mut outputs: Option<Arc<Mutex<Outputs>>> = None;
        let unmatched = self.memo.unmatched();
        let Batch { bytes, floats, .. } = batch;
        for series in &mut floats.series {
            let key = SeriesKey(series.key.0 ^ in_force.rules.fingerprint.0);
            if unmatched.as_ref().is_some_and(|names| names.contains(key)) || series.samples.is_empty() {
                continue;
            }
            let outputs = outputs.get_or_insert_with(|| self.outputs_of(tenant, share_weight));
            let samples = series.samples.start as usize..series.samples.end as usize;
            let (timestamps, values) = (&floats.timestamps[samples.clone()], &floats.values[samples]);
            let mut remembered = self.memo.matched(key);
            if remembered.as_ref().is_none_or(|matched| !outputs.lock().has_all(&matched.outputs)) {
                let label_bytes = &bytes[series.labels.start as usize..series.labels.end as usize];
                let Ok(sent) = labels_of(label_bytes, labels) else { continue };
                let decision = in_force.decide(&sent, labels, self.seed);
                let names = (key, &in_force);
                remembered = self.open(outputs, names, decision, timestamps, now_ms, &mut reservation)?;
            }
            let Some(matched) = remembered else { continue };
            if let Some(replaced) = &matched.replaced
                && timestamps.iter().all(|at_ms| replaced.is_kept(*at_ms, now_ms, self.kept))
            {
                series.samples.end = series.samples.start;
            }
            let points = timestamps.iter().copied().zip(values.iter().copied());
            found.push(matched, points, &mut reservation)?;
        }
        if found.is_empty() {
            return Ok(None);
        }
        let taken_bytes = memory.bytes() - before_bytes;
        Ok(Some(Box::new(found.within(memory.split(taken_bytes)))))
    }

    /// Opens the outputs of a name, and remembers them. Returns those that are open.
    fn open(
        &self,
        outputs: &Mutex<Outputs>,
        (key, in_force): (SeriesKey, &Arc<InForce>),
        decision: Decision,
        timestamps: &[i64],
        now_ms: i64,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Option<Arc<Matched>>, Exhausted> {
        let Decision { outputs: new, mut replaced, invalid } = decision;
        let points = timestamps.len() as u64;
        self.metrics.missed(Reason::Name, invalid * points);
        if new.is_empty() && invalid == 0 {
            self.memo.put_unmatched(key);
        }
        if new.is_empty() {
            return Ok(None);
        }
        let newest_ms = timestamps.iter().copied().max().unwrap_or(now_ms);
        let (mut open, mut refused) = (Vec::with_capacity(new.len()), 0);
        {
            let mut outputs = outputs.lock();
            // rules that were replaced meanwhile may have closed their outputs already, and must not open them again
            if !Arc::ptr_eq(&self.in_force.read(), in_force) {
                return Ok(None);
            }
            let before = outputs.len();
            for output in new {
                let key = output.key;
                match outputs.open(output, self.kept, newest_ms, now_ms) {
                    Ok(()) => open.push(key),
                    Err(_) => refused += 1,
                }
            }
            self.metrics.outputs.fetch_add((outputs.len() - before) as u64, Ordering::Relaxed);
        }
        if refused > 0 {
            self.metrics.missed(Reason::Memory, refused * points);
            replaced = None; // no output would have the points
        }
        let matched = Arc::new(Matched { outputs: open.into(), replaced });
        // in case it is not remembered
        reservation.reserve(matched.bytes())?;
        if refused == 0 && invalid == 0 {
            self.memo.put_matched(key, &matched);
        }
        Ok(Some(matched))
    }

    /// Counts points that are durable now.
    pub(crate) fn add(&self, tenant: &TenantId, contributions: &Contributions, now_ms: i64) {
        let Some(outputs) = self.tenants.lock().get(tenant).map(Arc::clone) else {
            return self.metrics.missed(Reason::Late, contributions.count());
        };
        let (mut counted, mut missed) = (0, [0; 5]);
        let mut all = contributions.iter();
        loop {
            let mut outputs = outputs.lock();
            let mut is_last = true;
            for (output, points) in all.by_ref().take(SLICE) {
                is_last = false;
                for (at_ms, value) in points {
                    match outputs.add(output, *at_ms, *value, now_ms) {
                        Ok(()) => counted += 1,
                        Err(reason) => missed[Reason::from(reason) as usize] += 1,
                    }
                }
            }
            if is_last {
                break;
            }
        }
        self.metrics.points.add(counted);
        self.metrics.values.fetch_add(counted, Ordering::Relaxed);
        for (counter, points) in self.metrics.missed.iter().zip(missed) {
            counter.add(points);
        }
    }

    /// Forgets the values of a tenant, because its samples are deleted.
    pub(crate) fn delete(&self, tenant: &TenantId) {
        let Some(outputs) = self.tenants.lock().get(tenant).map(Arc::clone) else { return };
        let mut outputs = outputs.lock();
        self.metrics.outputs.fetch_sub(outputs.len() as u64, Ordering::Relaxed);
        self.metrics.values.fetch_sub(outputs.values(), Ordering::Relaxed);
        outputs.clear();
    }

    /// Tenants with outputs that are due.
    pub(crate) fn due(&self, now_ms: i64) -> Vec<TenantId> {
        let is_due = |outputs: &Outputs| outputs.len() == 0 || outputs.due_ms() <= now_ms;
        let due = self.all().into_iter().filter(|(_, outputs)| is_due(&outputs.lock()));
        due.map(|(tenant, _)| tenant).collect()
    }

    /// All tenants with outputs.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        self.tenants.lock().keys().cloned().collect()
    }

    /// Computes the next output that is due and has something to compute, and moves `position` behind it. A round begins
    /// with 0, and ends when this returns `None`. With `at_once`, intervals are computed as soon as they have ended.
    pub(crate) fn next_ended(
        &self,
        tenant: &TenantId,
        position: &mut usize,
        now_ms: i64,
        at_once: bool,
    ) -> Option<Ended> {
        let shared = self.tenants.lock().get(tenant).map(Arc::clone)?;
        loop {
            let mut outputs = shared.lock();
            for _ in 0..SLICE {
                if *position >= outputs.len() {
                    outputs.end_round();
                    drop(outputs);
                    drop(shared);
                    self.forget_if_empty(tenant);
                    return None;
                }
                if let Some(ended) = self.compute(&mut outputs, position, now_ms, at_once) {
                    return Some(ended);
                }
            }
        }
    }

    fn compute(
        &self,
        outputs: &mut Outputs,
        position: &mut usize,
        now_ms: i64,
        at_once: bool,
    ) -> Option<Ended> {
        let before_values = outputs.values();
        let Some(Computed { points, incomplete }) = outputs.compute(*position, now_ms, at_once) else {
            *position += 1;
            return None;
        };
        let ended = (!points.is_empty()).then(|| {
            let mut name = String::new();
            write_name(&mut name, outputs.labels(*position));
            Ended { name, points }
        });
        if outputs.close_if_idle(*position, now_ms) {
            self.metrics.outputs.fetch_sub(1, Ordering::Relaxed); // another output has taken its place
        } else {
            *position += 1;
        }
        self.metrics.incomplete.add(incomplete);
        self.metrics.values.fetch_sub(before_values - outputs.values(), Ordering::Relaxed);
        self.metrics.computed.add(ended.as_ref().map_or(0, |ended| ended.points.len() as u64));
        ended
    }

    fn forget_if_empty(&self, tenant: &TenantId) {
        let mut tenants = self.tenants.lock();
        // whoever has another reference may be about to open outputs
        let is_empty =
            |outputs: &Arc<Mutex<Outputs>>| Arc::strong_count(outputs) == 1 && outputs.lock().len() == 0;
        if tenants.get(tenant).is_some_and(is_empty) {
            tenants.remove(tenant);
        }
    }

    fn outputs_of(&self, tenant: &TenantId, share_weight: u64) -> Arc<Mutex<Outputs>> {
        let new = || Arc::new(Mutex::new(Outputs::new(self.account.part())));
        let outputs = Arc::clone(self.tenants.lock().entry(tenant.clone()).or_insert_with(new));
        outputs.lock().share(share_weight);
        outputs
    }

    fn all(&self) -> Vec<(TenantId, Arc<Mutex<Outputs>>)> {
        let tenants = self.tenants.lock();
        tenants.iter().map(|(tenant, outputs)| (tenant.clone(), Arc::clone(outputs))).collect()
    }
}

impl InForce {
    fn new(rules: Arc<Rules>, before: Option<&Self>, now_ms: i64) -> Self {
        let since_ms = rules.aggregations.rules().iter().map(|rule| {
            let id = rule_id(&rules, rule);
            let since_ms = before.and_then(|before| before.since_ms.get(&id)).copied();
            (id, since_ms.unwrap_or_else(|| now_ms.saturating_add(Buffer::delay_ms(rule.interval_s))))
        });
        let since_ms = since_ms.collect();
        Self { rules, since_ms }
    }

    /// As in carbon, the lists of names come first, then the rules of `[pre]`, then aggregation, then the rules of `[post]`.
    fn decide(&self, labels: &Labels, builder: &mut LabelsBuilder, seed: u64) -> Decision {
        let (rules, mut decision, mut sent) = (&self.rules, Decision::default(), String::new());
        write_name(&mut sent, labels.as_ref());
        if listed(rules, &sent).is_some() {
            return decision;
        }
        let Ok(name) = rules.rewrites.pre(&sent) else { return decision };
        for (rule, output) in rules.aggregations.of(&name) {
            let id = rule_id(rules, rule);
            let since_ms = self.since_ms.get(&id).copied().unwrap_or(i64::MAX);
            if output == *name {
                decision.replaced = Some(Replaced { since_ms, interval_s: rule.interval_s });
            }
            let labels =
                rules.rewrites.post(&output).ok().and_then(|name| labels_of_name(&name, builder).ok());
            let Some(labels) = labels else {
                decision.invalid += 1;
                continue;
            };
            decision.outputs.push(NewOutput {
                key: output_key(&labels, rule, seed),
                labels,
                interval_s: rule.interval_s,
                function: rule.function,
                rule: id,
                since_ms,
            });
        }
        decision
    }
}

/// Identifies a rule together with all that decides about its inputs.
fn rule_id(rules: &Rules, rule: &Aggregation) -> SeriesKey {
    SeriesKey(SeriesKey::of(rule.text.as_bytes(), 0).0 ^ rules.names_fingerprint.0)
}

/// Identifies an output. Rules with the same output, interval and function have one output together, as in carbon.
fn output_key(labels: &Labels, rule: &Aggregation, seed: u64) -> SeriesKey {
    let series = SeriesKey::of(labels.as_bytes(), seed).0;
    let kind = (u128::from(rule.interval_s) << 8) + rule.function.number() as u128;
    SeriesKey(series ^ kind.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

#[cfg(test)]
mod tests;
