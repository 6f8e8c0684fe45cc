//! Series that are computed from the points of others, by carbon's `aggregation-rules.conf`.
//!
//! ```text
//!   body ─▶ decode ─▶ contributions ─▶ route, store ─ durable ─▶ add ─▶ outputs: intervals of values
//!                                                                          │ an interval has ended
//!   write path ◀─ as points of the same tenant ◀─ listen::lines::aggregates ◀──┘
//! ```
//!
//! Which outputs a point contributes to depends on the name that was sent alone, so it is remembered ([`memo`]). A body
//! counts once it is durable, so that a body that is written again after a refusal does not count twice. If a request by HTTP is
//! refused, or a body from a socket is given up, after some of it may have been stored, the intervals of its points are not computed: a sender
//! may repeat the request or not.
//!
//! The values of open intervals are only in memory. An interval whose points may not all be known (a part of them came before
//! a restart or a change of its rule, or there was no memory) is not computed, unless it has points that are stored nowhere
//! else.

mod contributions;
mod memo;
mod outputs;

pub(crate) use contributions::{Contributions, GivenBack};

use super::names::{labels_of_name, listed};
use crate::graphite_rules::Rules;
use contributions::Role;
use memo::{MATCHED_PART, Matched, Memo, RefusedOutput, Replaced};
use model::{Batch, Labels, LabelsBuilder, SeriesKey, TenantId};
use outputs::{NewOutput, Outputs};
use parking_lot::{Mutex, MutexGuard, RwLock};
use protocol::labels::labels_of;
use query::graphite::label_source::write_name;
use rules::aggregations::{Aggregation, Buffer, Due, Missed};
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stdx::budget::{Account, Exhausted, IncrementalReservation, Reservation};
use stdx::telemetry::{Counter, Registry};

/// A lock is held for at most this many points or outputs at a time, about 50 µs. Quantiles of many values are computed without
/// it.
const SLICE: usize = 256;

/// For each of this many values, an output counts once more against [`SLICE`].
const VALUES_AS_OUTPUT: u64 = 64;

/// Decisions by which outputs were refused take 1/`REFUSED_PART` of the account `decoders`.
const REFUSED_PART: u64 = 8;

/// If a body has more points in outputs, they are counted on a thread without async code.
pub(super) const INLINE_MAX: u64 = 8 * SLICE as u64;

#[derive(Debug)]
pub(crate) struct Aggregator {
    account: Account,
    seed: u64,
    /// Number of intervals that are kept before and after the present one.
    kept: u32,
    in_force: RwLock<Arc<InForce>>,
    memo: Memo,
    /// Names of which outputs were refused, in another account: while memory is short, there may be any number of them, and
    /// open outputs need what is left.
    refused: Memo,
    tenants: Mutex<HashMap<TenantId, Arc<Mutex<Outputs>>>>,
    /// True once outputs are computed for the last time, because the server stops. Then they take no more points.
    has_finished: AtomicBool,
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
    missed: [Counter; 6],
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
    /// Its body was refused.
    Refused = 5,
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
            missed: ["late", "early", "memory", "incomplete", "name", "refused"].map(missed),
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
    /// The output that is the name itself.
    replaced: Option<Replaced>,
    /// Number of outputs whose names are not valid.
    invalid: u64,
}

/// What became of the outputs of a name.
enum Opened {
    /// Those that are open, if any.
    Outputs(Option<Arc<Matched>>),
    /// The rules that were asked are no longer in force.
    RulesChanged,
}

/// An output that was visited, with what takes long and is done without the lock.
struct Visited {
    name: String,
    due: Due,
    _closed: Option<(Buffer, Reservation)>,
    /// Reservation for memory that `due` uses, although the output has given it up.
    _memory: Reservation,
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
        decoders: Account,
        seed: u64,
        kept: u32,
        rules: Arc<Rules>,
        now_ms: i64,
        registry: &Registry,
    ) -> Self {
        let memo = Memo::new(account.clone(), MATCHED_PART);
        let refused = Memo::new(decoders, REFUSED_PART);
        let in_force = RwLock::new(Arc::new(InForce::new(rules, None, now_ms)));
        let metrics = Arc::new(Metrics::new(registry));
        let (tenants, has_finished) = (Mutex::default(), AtomicBool::new(false));
        Self { account, seed, kept, in_force, memo, refused, tenants, has_finished, metrics }
    }

    /// From now on, no output takes points, because outputs are about to be computed for the last time.
    pub(crate) fn take_no_more(&self) {
        self.has_finished.store(true, Ordering::SeqCst);
    }

    /// Puts rules in force that were read again. Rules that have not changed go on with their open intervals. The others
    /// begin with their next whole interval. A body that is being decoded goes on with the new rules.
    pub(crate) fn adopt(&self, rules: &Arc<Rules>, now_ms: i64) {
        let before = Arc::clone(&self.in_force.read());
        if before.rules.fingerprint == rules.fingerprint {
            return;
        }
        let after = Arc::new(InForce::new(Arc::clone(rules), Some(&before), now_ms));
        *self.in_force.write() = Arc::clone(&after);
        self.memo.forget();
        self.refused.forget();
        for (_, outputs) in self.all() {
            let forgotten = outputs.lock().end_rules(|rule| !after.since_ms.contains_key(&rule), now_ms);
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
        self.contributions_by(in_force, (tenant, share_weight), batch, labels, memory, now_ms)
    }

    /// Like [`Self::contributions`], by rules that may be replaced meanwhile.
    fn contributions_by(
        &self,
        mut in_force: Arc<InForce>,
        (tenant, share_weight): (&TenantId, u64),
        batch: &mut Batch,
        labels: &mut LabelsBuilder,
        memory: &mut Reservation,
        now_ms: i64,
    ) -> Result<Option<Box<Contributions>>, Exhausted> {
        let before_bytes = memory.bytes();
        let mut reservation = IncrementalReservation::new(memory);
        let mut found = Contributions::default();
        let mut outputs: Option<Arc<Mutex<Outputs>>> = None;
        let unmatched = self.memo.unmatched();
        let Batch { bytes, floats, .. } = batch;
        for series in &mut floats.series {
            let key = in_force.name_key(series.key);
            if unmatched.as_ref().is_some_and(|names| names.contains(key)) || series.samples.is_empty() {
                continue;
            }
            let outputs = outputs.get_or_insert_with(|| self.outputs_of(tenant, share_weight));
            let samples = series.samples.start as usize..series.samples.end as usize;
            let (timestamps, values) = (&mut floats.timestamps[samples.clone()], &mut floats.values[samples]);
            let mut remembered = self.memo.matched(key).or_else(|| self.refused.matched(key));
            let is_current = |matched: &Matched| {
                let newest_ms =
                    if matched.refused.is_empty() { now_ms } else { newest_of(timestamps, now_ms) };
                outputs.lock().is_current(matched, newest_ms, now_ms)
            };
            if remembered.as_deref().is_none_or(|matched| !is_current(matched)) {
                let label_bytes = &bytes[series.labels.start as usize..series.labels.end as usize];
                let Ok(sent) = labels_of(label_bytes, labels) else { continue };
                remembered = loop {
                    let name = (in_force.name_key(series.key), &sent);
                    match self.open(outputs, &in_force, name, labels, timestamps, now_ms, &mut reservation)? {
                        Opened::Outputs(matched) => break matched,
                        // this repeats only if the files changed again meanwhile
                        Opened::RulesChanged => in_force = Arc::clone(&self.in_force.read()),
                    }
                };
            }
            let Some(matched) = remembered else { continue };
            let count = timestamps.len() as u64;
            self.metrics.missed(Reason::Name, matched.invalid * count);
            self.metrics.missed(Reason::Memory, matched.refused.len() as u64 * count);
            if matched.outputs.is_empty() {
                continue;
            }
            let mut stored = timestamps.len();
            if let Some(replaced) = &matched.replaced
                && !self.has_finished.load(Ordering::SeqCst)
            {
                stored = leave_out_replaced(outputs, replaced.output, timestamps, values, now_ms);
                series.samples.end = series.samples.start + stored as u32;
            }
            let points = |part: Range<usize>| {
                timestamps[part.clone()].iter().copied().zip(values[part].iter().copied())
            };
            let (in_body, taken) = (points(0..stored), points(stored..timestamps.len()));
            if in_body.len() > 0 {
                found.push(Arc::clone(&matched), in_body, false, &mut reservation)?;
            }
            if taken.len() > 0 {
                found.push(matched, taken, true, &mut reservation)?;
            }
        }
        if found.is_empty() {
            return Ok(None);
        }
        let taken_bytes = memory.bytes() - before_bytes;
        Ok(Some(Box::new(found.within(memory.split(taken_bytes)))))
    }

    /// Opens the outputs of a name, one after the other, and remembers them.
    #[expect(clippy::too_many_arguments, reason = "the state of a body that is being decoded")]
    fn open(
        &self,
        outputs: &Mutex<Outputs>,
        in_force: &Arc<InForce>,
        (key, sent): (SeriesKey, &Labels),
        labels: &mut LabelsBuilder,
        timestamps: &[i64],
        now_ms: i64,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Opened, Exhausted> {
        let newest_ms = newest_of(timestamps, now_ms);
        let (mut open, mut refused) = (Vec::new(), Vec::new());
        let Decision { replaced, invalid } = in_force.decide(sent, labels, self.seed, |output| {
            let mut outputs = outputs.lock();
            // rules that were replaced meanwhile may have closed their outputs already, and must not open them again
            if !Arc::ptr_eq(&self.in_force.read(), in_force) {
                return ControlFlow::Break(());
            }
            let NewOutput { key, rule, interval_s, .. } = output;
            let (bytes, before) = (outputs.bytes_of(&output), outputs.len());
            match outputs.open(output, newest_ms, now_ms) {
                Ok(()) => open.push(key),
                Err(_) => refused.push(RefusedOutput { key, rule, interval_s, bytes }),
            }
            self.metrics.outputs.fetch_add((outputs.len() - before) as u64, Ordering::Relaxed);
            ControlFlow::Continue(())
        });
        // new rules wait until the decision is remembered, and then have it forgotten
        let current = self.in_force.read();
        if !Arc::ptr_eq(&current, in_force) {
            return Ok(Opened::RulesChanged);
        }
        if open.is_empty() && refused.is_empty() && invalid == 0 {
            drop(current); // the key depends on the rules, so others never find it
            self.memo.put_unmatched(key);
            return Ok(Opened::Outputs(None));
        }
        let replaced = replaced.filter(|replaced| open.contains(&replaced.output));
        let matched = Arc::new(Matched { outputs: open.into(), replaced, refused: refused.into(), invalid });
        // in case it is not remembered
        reservation.reserve(matched.bytes())?;
        if matched.refused.is_empty() {
            self.memo.put_matched(key, &matched);
        } else {
            self.memo.remove_matched(key); // it would be found first
            self.refused.put_matched(key, &matched);
        }
        Ok(Opened::Outputs(Some(matched)))
    }

    /// False if an output would lose a point taken from a body: it is too old by now, its rule has ended, or the server stops.
    /// Then the body must be decoded again.
    pub(super) fn still_replaces(
        &self,
        tenant: &TenantId,
        contributions: &Contributions,
        now_ms: i64,
    ) -> bool {
        let mut taken = contributions.taken().peekable();
        if taken.peek().is_none() {
            return true;
        }
        if self.has_finished.load(Ordering::SeqCst) {
            return false;
        }
        let Some(outputs) = self.tenants.lock().get(tenant).map(Arc::clone) else { return false };
        while taken.peek().is_some() {
            let outputs = outputs.lock();
            let mut some = taken.by_ref().take(SLICE);
            if !some.all(|(output, at_ms)| outputs.still_replaces(output, at_ms, now_ms)) {
                return false;
            }
        }
        true
    }

    /// Counts points that are durable now. Returns those that outputs have taken from the body and cannot have any more, if any.
    pub(super) fn add(
        &self,
        tenant: &TenantId,
        mut contributions: Box<Contributions>,
        now_ms: i64,
    ) -> Option<GivenBack> {
        let mut given_back = GivenBack::from(&mut contributions);
        let some = |given_back: GivenBack| (!given_back.is_empty()).then_some(given_back);
        let Some(outputs) = self.tenants.lock().get(tenant).map(Arc::clone) else {
            self.metrics.missed(Reason::Late, contributions.count());
            for (_, role, at_ms, value) in contributions.iter() {
                given_back.missed(role, at_ms, value, self.seed);
            }
            return some(given_back);
        };
        let (mut counted, mut missed) = (0, [0; 6]);
        let mut points = contributions.iter().peekable();
        let mut outputs = outputs.lock();
        while points.peek().is_some() {
            let before_values = outputs.values();
            // asked with the lock, so that what is added is computed afterwards
            let has_finished = self.has_finished.load(Ordering::SeqCst);
            for (output, role, at_ms, value) in points.by_ref().take(SLICE) {
                let added = match role {
                    Role::Taken(_) if has_finished => Err(Missed::Late),
                    _ => outputs.add(output, role, at_ms, value, now_ms),
                };
                match added {
                    Ok(()) => counted += 1,
                    Err(reason) => {
                        missed[Reason::from(reason) as usize] += 1;
                        given_back.missed(role, at_ms, value, self.seed);
                    }
                }
            }
            self.metrics.values.fetch_add(outputs.values() - before_values, Ordering::Relaxed);
            MutexGuard::bump(&mut outputs); // now it is the turn of others
        }
        drop(outputs);
        self.metrics.points.add(counted);
        for (counter, points) in self.metrics.missed.iter().zip(missed) {
            counter.add(points);
        }
        some(given_back)
    }

    /// Leaves out the points of a body that was refused, although some of them may be durable. Its sender may send it again or not, so
    /// their intervals are not computed. Returns the points that outputs have taken from the body, if any.
    pub(super) fn leave_out(
        &self,
        tenant: &TenantId,
        mut contributions: Box<Contributions>,
        now_ms: i64,
    ) -> Option<GivenBack> {
        let mut given_back = GivenBack::from(&mut contributions);
        let outputs = self.tenants.lock().get(tenant).map(Arc::clone);
        let mut points = contributions.iter().peekable();
        while points.peek().is_some() {
            let mut outputs = outputs.as_ref().map(|outputs| outputs.lock());
            for (output, role, at_ms, value) in points.by_ref().take(SLICE) {
                if let Some(outputs) = &mut outputs {
                    outputs.leave_out(output, role, at_ms, now_ms);
                }
                given_back.missed(role, at_ms, value, self.seed);
            }
        }
        self.metrics.missed(Reason::Refused, contributions.count());
        (!given_back.is_empty()).then_some(given_back)
    }

    /// Forgets the values of a tenant, because its samples are deleted.
    pub(crate) fn delete(&self, tenant: &TenantId) {
        let Some(outputs) = self.tenants.lock().get(tenant).map(Arc::clone) else { return };
        let mut outputs = outputs.lock();
        self.metrics.outputs.fetch_sub(outputs.len() as u64, Ordering::Relaxed);
        self.metrics.values.fetch_sub(outputs.values(), Ordering::Relaxed);
        let closed = outputs.clear();
        drop(outputs);
        drop(closed);
    }

    /// Tenants with outputs that are due.
    pub(crate) fn due(&self, now_ms: i64) -> Vec<TenantId> {
        let is_due = |outputs: &Outputs| outputs.is_over(now_ms) || outputs.due_ms() <= now_ms;
        let due = self.all().into_iter().filter(|(_, outputs)| is_due(&outputs.lock()));
        due.map(|(tenant, _)| tenant).collect()
    }

    /// All tenants with outputs.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        self.tenants.lock().keys().cloned().collect()
    }

    /// Number of computed points to come from intervals whose points are stored nowhere else.
    pub(crate) fn left(&self, tenant: &TenantId) -> u64 {
        let outputs = self.tenants.lock().get(tenant).map(Arc::clone);
        outputs.map_or(0, |outputs| outputs.lock().left())
    }

    /// Computes the next output that is due and has something to compute, and moves `position` behind it. A round begins
    /// with 0, and ends when this returns `None`. With `at_once`, values that have changed do not wait for the next interval,
    /// and points that are stored nowhere else not for the end of theirs.
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
            let (mut count, mut found) = (0, None);
            while count < SLICE as u64 && found.is_none() {
                if *position >= outputs.len() {
                    outputs.end_round(now_ms);
                    drop(outputs);
                    drop(shared);
                    self.forget_if_over(tenant, now_ms);
                    return None;
                }
                count += 1 + outputs.values_of(*position) / VALUES_AS_OUTPUT;
                found = self.visit(&mut outputs, position, now_ms, at_once);
            }
            drop(outputs);
            let ended = found.and_then(|Visited { name, due, .. }| {
                let points = due.finish().points; // the memory is given back after this
                self.metrics.computed.add(points.len() as u64);
                (!points.is_empty()).then_some(Ended { name, points })
            });
            if ended.is_some() {
                return ended;
            }
        }
    }

    /// Visits an output, and moves `position` behind it. `None` if there is nothing to do without the lock.
    fn visit(
        &self,
        outputs: &mut Outputs,
        position: &mut usize,
        now_ms: i64,
        at_once: bool,
    ) -> Option<Visited> {
        let before_values = outputs.values();
        let Some((due, memory)) = outputs.compute(*position, now_ms, at_once) else {
            *position += 1;
            return None;
        };
        let mut name = String::new();
        if due.has_values() {
            write_name(&mut name, outputs.labels(*position));
        }
        let closed = outputs.close_if_idle(*position, now_ms);
        if closed.is_some() {
            self.metrics.outputs.fetch_sub(1, Ordering::Relaxed); // another output has taken its place
        } else {
            *position += 1;
        }
        self.metrics.incomplete.add(due.incomplete);
        self.metrics.values.fetch_sub(before_values - outputs.values(), Ordering::Relaxed);
        let is_idle = due.is_empty() && closed.is_none();
        (!is_idle).then_some(Visited { name, due, _closed: closed, _memory: memory })
    }

    fn forget_if_over(&self, tenant: &TenantId, now_ms: i64) {
        let mut tenants = self.tenants.lock();
        // whoever has another reference may be about to open outputs
        let is_over =
            |outputs: &Arc<Mutex<Outputs>>| Arc::strong_count(outputs) == 1 && outputs.lock().is_over(now_ms);
        if tenants.get(tenant).is_some_and(is_over) {
            tenants.remove(tenant);
        }
    }

    fn outputs_of(&self, tenant: &TenantId, share_weight: u64) -> Arc<Mutex<Outputs>> {
        let new = || Arc::new(Mutex::new(Outputs::new(self.account.part(), self.kept)));
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

    /// Key of the remembered decision on a name.
    fn name_key(&self, series: SeriesKey) -> SeriesKey {
        SeriesKey(series.0 ^ self.rules.fingerprint.0)
    }

    /// Calls `open` with the outputs of a name, one after the other, until it breaks. As in carbon, the lists of names come
    /// first, then the rules of `[pre]`, then aggregation, then the rules of `[post]`.
    fn decide(
        &self,
        labels: &Labels,
        builder: &mut LabelsBuilder,
        seed: u64,
        mut open: impl FnMut(NewOutput) -> ControlFlow<()>,
    ) -> Decision {
        let (rules, mut decision, mut sent) = (&self.rules, Decision::default(), String::new());
        write_name(&mut sent, labels.as_ref());
        if listed(rules, &sent).is_some() {
            return decision;
        }
        let Ok(name) = rules.rewrites.pre(&sent) else { return decision };
        for (rule, output) in rules.aggregations.of(&name) {
            let id = rule_id(rules, rule);
            let since_ms = self.since_ms.get(&id).copied().unwrap_or(i64::MAX);
            let is_own_name = output == *name;
            let labels =
                rules.rewrites.post(&output).ok().and_then(|name| labels_of_name(&name, builder).ok());
            let Some(labels) = labels else {
                decision.invalid += 1;
                continue;
            };
            let key = output_key(&labels, rule, seed);
            if is_own_name {
                decision.replaced = Some(Replaced { output: key, labels: labels.clone() });
            }
            let (interval_s, function) = (rule.interval_s, rule.function);
            let output = NewOutput { key, labels, interval_s, function, rule: id, since_ms };
            if open(output).is_break() {
                break;
            }
        }
        decision
    }
}

fn newest_of(timestamps: &[i64], now_ms: i64) -> i64 {
    timestamps.iter().copied().max().unwrap_or(now_ms)
}

/// Moves the points that must be stored to the front, in their order, and returns their number. The output takes the others.
fn leave_out_replaced(
    outputs: &Mutex<Outputs>,
    replaced: SeriesKey,
    timestamps: &mut [i64],
    values: &mut [f64],
    now_ms: i64,
) -> usize {
    for some in timestamps.chunks(SLICE) {
        outputs.lock().hear(replaced, some, now_ms);
    }
    let mut stored = 0;
    for first in (0..timestamps.len()).step_by(SLICE) {
        let outputs = outputs.lock();
        for i in first..timestamps.len().min(first + SLICE) {
            if !outputs.replaces(replaced, timestamps[i], now_ms) {
                timestamps.swap(stored, i);
                values.swap(stored, i);
                stored += 1;
            }
        }
    }
    stored
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
