//! Divides a decoded batch among the partitions. The memory for this is reserved before it is allocated.
//!
//! - [`encoding`], [`times`]: prepare the series of the batch
//! - [`metadata`]: chooses what is new of the metadata
//! - [`named`]: applies rules on names, in turns
//! - [`placing`]: adds their samples to submissions
//! - [`ruled`]: applies rules on what is stored, in turns

mod encoding;
mod metadata;
mod named;
mod placing;
mod ruled;
mod times;

use super::Context;
use super::aliases::Learned;
use super::ingest::{Effects, Recalled, TenantRules, Verdict};
use super::known::WaitingSeries;
use super::names::{Decision, NameRules, Named};
use super::points;
use super::replicas::deduplicate;
use super::totals::Unsummed;
use super::turns::{RuleCost, Turn};
use crate::graphite_rules::Rules;
use crate::ingest_rules::TenantList;
use crate::limits::tenant_state::TenantState;
use crate::partition::shared::PartitionShared;
use crate::partition::submission::{Answer, NewPart, NewSeries, Outcome, Submission};
use crate::refusal::Refusal;
use encoding::{ENCODED_BYTES_MAX, encode_labels};
use metadata::Metric;
use model::{
    Batch, BatchSeries, Labels, LabelsBuilder, Principal, SeriesBatch, SeriesKey, SeriesRef, SeriesRefusal,
    TenantId, TotalsPlace, TotalsRoom, Value, ValueKind,
};
use named::Undecided;
use placing::{Destination, Found, Left, exemplars_of, place};
use protocol::{EncodedLabels, LabelForm};
use ruled::Decided;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};
use times::leave_out_impossible_times;
use tokio::sync::oneshot;

pub(crate) struct Prepared {
    /// The submissions, each with the number of its partition. A partition gets at most one for floats and one for
    /// native histograms.
    pub(crate) submissions: Vec<(usize, Submission, Answer)>,
    pub(crate) outcome: Outcome,
    pub(crate) creates: bool,
    pub(crate) bytes: u64,
}

type Part = (Submission, Answer);

pub(super) struct Routed {
    /// Increments that must be added up. What they have added up to is stored afterwards.
    pub(super) unsummed: Unsummed,
    /// The first total that the batch does not have. The request must be decoded again from there on.
    pub(super) left: Option<TotalsPlace>,
    /// The submissions with floats of all partitions and, if there are native histograms, those with histograms.
    parts: Vec<Vec<Part>>,
    outcome: Outcome,
    creates: bool,
    bytes: u64,
}

impl Routed {
    /// Returns the submissions that are not empty. They share the request's memory until it is answered.
    pub(super) fn finish(self, mut memory: Reservation) -> Result<Prepared, Refusal> {
        memory.resize(self.bytes.min(memory.bytes()))?;
        Ok(self.finish_within(&Arc::new(memory)))
    }

    /// Like [`Self::finish`], for a request whose memory the caller shares.
    pub(super) fn finish_within(self, memory: &Arc<Reservation>) -> Prepared {
        let Self { parts, outcome, creates, bytes, unsummed, left } = self;
        assert!(unsummed.increments.is_empty() && left.is_none(), "BUG: a part of a request would be lost");
        let submissions = parts
            .into_iter()
            .flat_map(|parts| parts.into_iter().enumerate())
            .filter(|(_, (submission, _))| !submission.is_empty())
            .map(|(partition, (mut submission, answer))| {
                submission.memory = Some(Arc::clone(memory));
                (partition, submission, answer)
            })
            .collect();
        Prepared { submissions, outcome, creates, bytes }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes the new series with their samples, and returns them.
    pub(super) fn take_new(&mut self) -> Vec<NewPart> {
        self.creates = false;
        let submissions = self.parts.iter_mut().flatten().map(|(submission, _)| submission);
        submissions.filter(|submission| !submission.new.is_empty()).map(Submission::take_new).collect()
    }
}

/// What routing must know of a batch, besides its content.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) now_ms: i64,
    /// By which time the age of the samples is judged: when they arrived first. `None` if it was judged before.
    pub(super) arrived_ms: Option<i64>,
    /// False if the samples count against the tenant's rate limit now.
    pub(super) is_counted: bool,
    /// Whether the series have the labels that the rules on what is stored gave them.
    pub(super) is_final: bool,
    /// Whether aggregation rules see the samples.
    pub(super) is_aggregated: bool,
    /// Carbon's rules.
    pub(super) carbon_rules: Option<Arc<Rules>>,
    /// The tenant's rules on what is stored. `None` also if the series have final labels.
    pub(super) rules: Option<TenantList>,
    /// Series that count as new.
    pub(super) waiting: Option<Arc<dyn WaitingSeries>>,
}

/// A batch, and what is needed to read it.
pub(super) struct Load<'a> {
    pub(super) form: &'a dyn LabelForm,
    pub(super) batch: &'a mut Batch,
    pub(super) labels: &'a mut LabelsBuilder,
    /// What the request takes is reserved here.
    pub(super) memory: &'a mut Reservation,
}

/// A batch that is being divided among the partitions.
///
/// Rules may take long. So they are applied in turns, before any reference to a series is taken: references keep series
/// in memory.
#[derive(Debug)]
pub(super) struct Route {
    context: Arc<Context>,
    principal: Principal,
    arrival: Arrival,
    progress: Progress,
}

#[derive(Debug, Default)]
struct Progress {
    outcome: Outcome,
    /// Samples that count against the tenant's rate limit.
    sent_samples: u64,
    /// Whether the labels were encoded after they had been decoded.
    is_encoded: bool,
    /// Memory that the request took before its series were looked at.
    decoded_bytes: u64,
    floats: Decided,
    histograms: Decided,
    /// What the rules said about the metrics that have metadata, in their order.
    metrics: Vec<Metric>,
    /// Series whose labels were parsed because nobody knew their keys.
    learned: Vec<Learned>,
    recalled: Recalled,
    undecided: Option<Undecided>,
    /// What the rules said about series.
    verdicts: Vec<(SeriesKey, Verdict)>,
}

/// Divides a batch in one turn.
pub(super) fn route(
    context: &Arc<Context>,
    principal: &Principal,
    arrival: Arrival,
    load: &mut Load<'_>,
) -> Result<Routed, Refusal> {
    let mut route = Route::begin(context, principal.clone(), arrival, load)?;
    while !route.decide(load, &Turn::WHOLE)? {}
    route.finish(load)
}

impl Route {
    /// Does what comes before the rules: elects replicas, and checks timestamps.
    pub(super) fn begin(
        context: &Arc<Context>,
        principal: Principal,
        arrival: Arrival,
        load: &mut Load<'_>,
    ) -> Result<Self, Refusal> {
        let Load { form, batch, labels, memory } = load;
        let (mut form, now_ms) = (*form, arrival.now_ms);
        let tenant = &principal.tenant;
        let (settings, state) = (context.overrides.current(), context.tenant(tenant));
        let own = settings.of(tenant);
        let mut outcome = refused_by_decoder(batch, form);
        // samples of a replica that is not elected do not count against the rate limit, as long as they are not stored
        let uncertain_samples = if own.ha_dedup && !arrival.is_final {
            if !form.is_encoded() {
                encode_labels(context.seed, form, batch, labels, &mut outcome, memory, ENCODED_BYTES_MAX)?;
                form = &EncodedLabels;
            }
            deduplicate(context, &state, own, now_ms, batch, &mut outcome, memory)?
        } else {
            0
        };
        let samples = batch.floats.timestamps.len() + batch.histograms.timestamps.len();
        let sent_samples = samples as u64 + outcome.refused_samples - uncertain_samples;
        if let Some(arrived_ms) = arrival.arrived_ms {
            leave_out_impossible_times(context, arrived_ms, batch, form, &mut outcome);
        }
        if arrival.is_aggregated {
            let weight = own.share_weight as u64;
            outcome.contributions =
                context.aggregator.contributions(tenant, weight, batch, labels, memory, now_ms)?;
        }
        let has_increments = !batch.floats.increments.is_empty();
        // with rules, it is not known yet which series there will be
        if has_increments && arrival.rules.is_none() && names_of(context, &arrival).is_none() {
            points::refuse_incomplete(context, tenant, &state, batch, form, &mut outcome, memory)?;
        }
        if has_increments {
            points::identify(&mut batch.floats, memory)?;
        }
        let (is_encoded, decoded_bytes) = (form.is_encoded(), memory.bytes());
        let progress = Progress { outcome, sent_samples, is_encoded, decoded_bytes, ..Progress::default() };
        Ok(Self { context: Arc::clone(context), principal, arrival, progress })
    }

    /// Applies the rules on names and the tenant's rules until the turn ends. Returns false if they must go on in another turn.
    pub(super) fn decide(&mut self, load: &mut Load<'_>, turn: &Turn) -> Result<bool, Refusal> {
        let Self { context, principal, arrival, progress } = self;
        let Some(list) = &arrival.rules else { return self.decide_names(load, turn) };
        let state = context.tenant(&principal.tenant);
        let names = names_of(context, arrival);
        let cost = names.map_or_else(RuleCost::default, |names| names.cost());
        let per_byte = list.list().steps_per_byte.saturating_add(cost.per_byte);
        let mut turn = turn.begin(&*context.clock, RuleCost { per_byte, ..cost });
        let rules = context.ingest.of(list, names);
        let Load { form, batch, labels, memory } = load;
        let form: &dyn LabelForm = if progress.is_encoded { &EncodedLabels } else { *form };
        let mut reservation = IncrementalReservation::new(memory);
        let (applied, began) = (progress.recalled.applied, Instant::now());
        let (mut floats, mut histograms) =
            (std::mem::take(&mut progress.floats), std::mem::take(&mut progress.histograms));
        let mut routing = Routing {
            context,
            tenant: &principal.tenant,
            state: &state,
            bytes: &batch.bytes,
            labels,
            form,
            names,
            rules: Some(&rules),
            waiting: arrival.waiting.as_deref(),
            progress,
            creates: false,
            written: Vec::new(),
        };
        let mut is_done = routing.decide(&mut batch.floats, &mut floats, &mut turn, &mut reservation);
        if matches!(is_done, Ok(true)) {
            is_done = routing.decide(&mut batch.histograms, &mut histograms, &mut turn, &mut reservation);
        }
        if matches!(is_done, Ok(true)) {
            is_done = routing.decide_metrics(batch, &mut turn, &mut reservation);
        }
        (progress.floats, progress.histograms) = (floats, histograms);
        // a sender that goes away before the end may send the request again
        context.ingest.remember(&progress.verdicts);
        progress.verdicts.clear();
        context.ingest.count_applied(&principal.tenant, progress.recalled.applied - applied, began.elapsed());
        Ok(is_done?)
    }

    /// The body begins to wait for its next turn.
    pub(super) fn rest(&mut self) {
        if let Some(elected) = &mut self.progress.outcome.elected {
            elected.waits();
        }
    }

    /// Upper bound on the memory that [`Self::finish`] takes, unless rules make labels longer.
    pub(super) fn need_bytes(&self, batch: &Batch) -> u64 {
        (need_bytes(&batch.floats) + need_bytes(&batch.histograms) + batch.bytes.len()) as u64
    }

    /// Looks up the series, and divides them among the partitions. Must be called once [`Self::decide`] has returned true.
    ///
    /// Only now, the samples count against the tenant's rate limit: a sender that does not wait for the rules sends them again.
    pub(super) fn finish(&mut self, load: &mut Load<'_>) -> Result<Routed, Refusal> {
        let Self { context, principal, arrival, progress } = self;
        let (tenant, state) = (&principal.tenant, context.tenant(&principal.tenant));
        // Without rules, no time has passed. The retry ends: each time, the points of at least one more interval have become too old
        // to be taken, or aggregation rules have changed again.
        if (arrival.rules.is_some() || names_of(context, arrival).is_some())
            && let Some(contributions) = &progress.outcome.contributions
            && !context.aggregator.still_replaces(tenant, contributions, context.clock.now_ms())
        {
            let message = "the rules took so long that points which were to count in computed series are too old \
                for them now, or the aggregation rules have changed; send the points again, to be stored as they are";
            return Err(Refusal::busy("ingest_rules", message));
        }
        let sent_samples = progress.sent_samples;
        let names = names_of(context, arrival);
        let rules = arrival.rules.as_ref().map(|list| context.ingest.of(list, names));
        let Load { form, batch, labels, memory } = load;
        let form: &dyn LabelForm = if progress.is_encoded { &EncodedLabels } else { *form };
        let has_increments = !batch.floats.increments.is_empty();
        let decoded_bytes = progress.decoded_bytes;
        let mut reservation = IncrementalReservation::new(memory);
        let (floats, histograms) =
            (std::mem::take(&mut progress.floats), std::mem::take(&mut progress.histograms));
        let mut routing = Routing {
            context,
            tenant,
            state: &state,
            bytes: &batch.bytes,
            labels,
            form,
            names,
            rules: rules.as_ref(),
            waiting: arrival.waiting.as_deref(),
            progress,
            creates: false,
            written: Vec::new(),
        };
        // exemplars are moved and not copied, so the request's reservation already includes their memory
        let exemplar_bytes = exemplar_bytes(&batch.floats) + exemplar_bytes(&batch.histograms);
        let mut parts = vec![routing.series(&mut batch.floats, floats, &mut reservation)?];
        if has_increments {
            let stamp = context.heads.shared_sums.stamp(tenant, context.steady_s());
            parts[0].iter_mut().for_each(|(part, _)| part.increments.stamp = stamp);
        }
        if !batch.histograms.series.is_empty() {
            parts.push(routing.series(&mut batch.histograms, histograms, &mut reservation)?);
        }
        routing.metadata(batch, &mut parts[0], &mut reservation)?;
        let Routing { creates, written, .. } = routing;
        let Progress { mut outcome, learned, recalled, .. } = std::mem::take(progress);
        context.aliases.remember(&learned);
        if let Some(rules) = &rules {
            outcome.dropped_samples = recalled.dropped_samples();
            outcome.dropped_exemplars = recalled.dropped_exemplars;
            let effects = Effects::of(rules, recalled.dropped, written);
            if !effects.is_empty() {
                reservation.reserve(effects.bytes())?;
                outcome.rules = Some(Box::new(effects));
            }
        }
        let elected_bytes = outcome.elected.as_ref().map_or(0, |elected| elected.bytes());
        let bytes = memory.bytes() - decoded_bytes + exemplar_bytes as u64 + elected_bytes;
        // last, because an attempt that is refused is repeated, and then counts
        if !arrival.is_counted {
            let settings = context.overrides.current();
            state.take_samples(settings.of(tenant), sent_samples, context.clock.instant());
        }
        Ok(Routed { unsummed: Unsummed::default(), left: None, parts, outcome, creates, bytes })
    }
}

fn names_of<'a>(context: &'a Context, arrival: &'a Arrival) -> Option<NameRules<'a>> {
    NameRules::of(arrival.carbon_rules.as_ref()?, &context.names)
}

/// Memory of the submissions with the samples of a batch, if all series are new.
fn need_bytes<V: Value>(batch: &SeriesBatch<V>) -> usize {
    let heap_bytes: usize = batch.values.iter().map(Value::heap_bytes).sum();
    let stored = batch.series.iter().filter(|series| !series.samples.is_empty());
    let (series, samples) = stored.fold((0, 0), |(n, samples), one| (n + 1, samples + one.samples.len()));
    need_bytes_of::<V>(series, samples) + 2 * heap_bytes
}

const GROWTH: usize = 2; // vectors double their capacity

const fn need_bytes_of<V>(series: usize, samples: usize) -> usize {
    let sample_bytes = size_of::<SeriesRef>() + (1 + GROWTH) * (size_of::<i64>() + size_of::<V>());
    let decided_bytes = size_of::<(u32, Labels)>() + size_of::<(SeriesKey, Verdict)>() + size_of::<Learned>();
    let series_bytes =
        GROWTH * (size_of::<NewSeries>() + decided_bytes + size_of::<Left>() + size_of::<u32>());
    samples * sample_bytes + series * series_bytes
}

/// Upper bound on the memory of new series with one float each, from when they are decoded until they are submitted, besides that of
/// the decoder.
pub(super) const fn need_bytes_of_floats(room: TotalsRoom) -> usize {
    let TotalsRoom { series, label_bytes } = room;
    let decoded_bytes = size_of::<BatchSeries>() + size_of::<i64>() + size_of::<f64>();
    // labels are in the batch, whose buffer doubles, and in the submissions
    series * GROWTH * decoded_bytes + need_bytes_of::<f64>(series, series) + (GROWTH + 1) * label_bytes
}

fn exemplar_bytes<V>(batch: &SeriesBatch<V>) -> usize {
    batch.exemplars.iter().map(|(_, exemplar)| exemplar.labels.as_bytes().len()).sum()
}

fn parts<V: Value>(
    context: &Arc<Context>,
    state: &Arc<TenantState>,
    batch: &SeriesBatch<V>,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<Vec<Part>, Exhausted> {
    let count = context.partitions.len();
    let mut samples = vec![0; count];
    for series in &batch.series {
        samples[series.key.partition(count)] += series.samples.len();
    }
    reservation.reserve(batch.values.iter().map(Value::heap_bytes).sum())?;
    let part = |(samples, partition): (usize, &Arc<PartitionShared>)| {
        let (reply, answer) = oneshot::channel();
        let mut part = Submission::new(Arc::clone(state), V::KIND, reply);
        // the pin must be taken before any series is looked up, to keep the references valid
        part.pin = Some(partition.head.read().pin());
        reservation.grow(&mut part.refs, samples)?;
        reservation.grow(&mut part.timestamps, samples)?;
        reservation.grow(V::of(&mut part.values), samples)?;
        Ok((part, answer))
    };
    samples.into_iter().zip(context.partitions.iter()).map(part).collect()
}

fn refused_by_decoder(batch: &Batch, form: &dyn LabelForm) -> Outcome {
    let text = |error: &SeriesRefusal, labels: &Range<u32>| match error {
        error if error.is_unreadable() => String::new(), // the error names the place
        _ => form.describe(&batch.bytes, labels),
    };
    Outcome {
        unreadable_samples: batch.refused_samples,
        refused_samples: batch.refused_samples,
        refused_series: batch.refused_series,
        refused_exemplars: batch.refused_exemplars,
        points: batch.points,
        converted_points: batch.converted_points,
        errors: batch
            .refused
            .iter()
            .take(Outcome::ERRORS_MAX)
            .map(|(error, labels)| (error.clone(), text(error, labels)))
            .collect(),
        ..Outcome::default()
    }
}

struct Routing<'a> {
    context: &'a Arc<Context>,
    tenant: &'a TenantId,
    state: &'a Arc<TenantState>,
    /// The bytes in which the labels of all series are stored.
    bytes: &'a [u8],
    labels: &'a mut LabelsBuilder,
    form: &'a dyn LabelForm,
    /// Carbon's rules on names.
    names: Option<NameRules<'a>>,
    /// The tenant's rules on what is stored.
    rules: Option<&'a TenantRules<'a>>,
    waiting: Option<&'a dyn WaitingSeries>,
    progress: &'a mut Progress,
    creates: bool,
    /// Metadata that the request writes, as it is to be remembered later.
    written: Vec<(SeriesKey, Verdict)>,
}

impl Routing<'_> {
    /// `decided` is what the rules said about the series.
    fn series<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        mut decided: Decided,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Vec<Part>, Exhausted> {
        let (mut left, mut waiting) = (Vec::new(), std::mem::take(&mut decided.aliased));
        if self.rules.is_none() {
            self.translate(batch, &mut waiting, reservation)?;
        }
        let mut parts = parts(self.context, self.state, batch, reservation)?;
        self.mark_waiting(batch, &mut waiting, reservation)?;
        decided.mark_missing(&mut waiting, reservation)?;
        self.resolve_known(batch, &waiting, &mut parts, &mut left, reservation)?;
        for left in left {
            self.resolve(batch, left, &mut decided, &mut parts, reservation)?;
        }
        Ok(parts)
    }

    /// Gives series of text lines the keys of their labels, as far as these are remembered, and appends to `unknown`
    /// whether a series keeps its key. Keys decide about partitions and verdicts, so they are needed first.
    fn translate<V: Value>(
        &self,
        batch: &mut SeriesBatch<V>,
        unknown: &mut Vec<bool>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        if !self.form.is_encoded() {
            reservation.grow(unknown, batch.series.len())?;
            self.context.aliases.translate(&mut batch.series, unknown);
        }
        Ok(())
    }

    /// Appends an entry for each series that tells whether it waits to be created, or nothing if none does.
    fn mark_waiting<V: Value>(
        &self,
        batch: &SeriesBatch<V>,
        waiting: &mut Vec<bool>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let Some(all) = self.waiting else { return Ok(()) };
        assert!(self.form.is_encoded(), "BUG: series of text lines wait");
        all.mark(self.tenant, &batch.series, waiting);
        reservation.reserve(waiting.len())
    }

    /// Adds a series to the submission of its partition. If its key was not found, it is looked up again by its sorted labels, or by the
    /// name that rules give it.
    fn resolve<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        Left { position, found }: Left,
        decided: &mut Decided,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let (context, series) = (self.context, &batch.series[position as usize]);
        let points = u64::from(series.samples.end - series.samples.start);
        if points == 0 && exemplars_of(&batch.exemplars, position).is_empty() {
            return Ok(()); // all samples of the series were refused for their timestamps
        }
        if self.rules.is_some() {
            return self.resolve_decided(batch, position, decided, parts, reservation);
        }
        if let Found::Vetted(known) = found {
            return self.place_known(batch, position, known, parts, reservation);
        }
        let decision = self.names.and_then(|names| {
            // a series that waits may exist
            let kept = || self.is_vetted(series.key, names).then_some(Decision::Kept);
            names.remembered(series.key).or_else(kept)
        });
        match (&decision, found) {
            (Some(Decision::LeftOut(list)), _) => {
                context.names.count(*list, points);
                return Ok(());
            }
            (Some(Decision::Stored(key)), _) => {
                if let Some(known) = self.known(*key, V::KIND) {
                    let part = &mut parts[key.partition(context.partitions.len())].0;
                    return place(batch, position, *key, part, Destination::Known(known), reservation);
                }
                if let Some(labels) = self.waiting_labels(*key) {
                    let new = (*key, Destination::New(labels));
                    return self.place(batch, position, new, Some(*key), parts, reservation);
                }
            }
            (Some(Decision::Kept), Found::Unvetted(known)) => {
                self.vet(series.key, known);
                return self.place_known(batch, position, known, parts, reservation);
            }
            (Some(Decision::Kept), _) => {
                if let Some(labels) = self.waiting_labels(series.key) {
                    let (key, new) = (series.key, Destination::New(labels));
                    return self.place(batch, position, (key, new), Some(key), parts, reservation);
                }
            }
            (None, _) => {}
        }
        let labels = self.form.labels_of(self.bytes, &series.labels, self.labels);
        let named = labels.and_then(|labels| match self.names {
            Some(names) if decision != Some(Decision::Kept) => {
                names.decide(series.key, labels, self.labels, context.seed)
            }
            _ => Ok(Named::Kept(labels)),
        });
        let labels = match (named, found) {
            (Ok(Named::Kept(_)), Found::Unvetted(known)) => {
                self.vet(series.key, known);
                return self.place_known(batch, position, known, parts, reservation);
            }
            (Ok(Named::Kept(labels) | Named::Rewritten(labels)), _) => labels,
            (Ok(Named::LeftOut(list)), _) => {
                context.names.count(list, points);
                return Ok(());
            }
            (Err(error), _) => {
                self.refuse(batch, position, error);
                return Ok(());
            }
        };
        let key = SeriesKey::of(labels.as_bytes(), context.seed);
        if !self.form.is_encoded() && key != series.key {
            reservation.push(&mut self.progress.learned, (series.key, key))?;
        }
        let new = (key, Destination::New(labels));
        self.place(batch, position, new, Some(series.key), parts, reservation)
    }

    /// Adds the samples of a series that was found by its key to the submission of its partition.
    fn place_known<V: Value>(
        &self,
        batch: &SeriesBatch<V>,
        position: u32,
        known: SeriesRef,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let key = batch.series[position as usize].key;
        let part = &mut parts[key.partition(self.context.partitions.len())].0;
        place(batch, position, key, part, Destination::Known(known), reservation)
    }

    /// Adds the samples of a series with its final labels to the submission of their partition. `new` is where they go if
    /// the series does not exist. `not_found` is a key by which the series was looked up before.
    fn place<V: Value>(
        &mut self,
        batch: &SeriesBatch<V>,
        position: u32,
        (key, new): (SeriesKey, Destination),
        not_found: Option<SeriesKey>,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        // if its labels were not sorted, or rules changed them, the key has changed now, and the series may be known
        let known = if not_found == Some(key) { None } else { self.known(key, V::KIND) };
        self.creates |= known.is_none();
        let destination = known.map_or(new, Destination::Known);
        let part = &mut parts[key.partition(self.context.partitions.len())].0;
        place(batch, position, key, part, destination, reservation)
    }

    fn refuse<V: Value>(&mut self, batch: &SeriesBatch<V>, position: u32, error: SeriesRefusal) {
        let series = &batch.series[position as usize];
        let points = u64::from(series.samples.end - series.samples.start);
        self.progress.outcome.refused_exemplars += exemplars_of(&batch.exemplars, position).len() as u64;
        self.progress.outcome.refuse(error, points, || self.form.describe(self.bytes, &series.labels));
    }

    fn waiting_labels(&self, key: SeriesKey) -> Option<Labels> {
        self.waiting.and_then(|waiting| waiting.labels(self.tenant, key))
    }

    /// Looks up a series that does not wait.
    fn known(&self, key: SeriesKey, kind: ValueKind) -> Option<SeriesRef> {
        if self.waiting.is_some_and(|waiting| waiting.waits(self.tenant, key)) {
            return None;
        }
        let partitions = &self.context.partitions;
        let head = partitions[key.partition(partitions.len())].head.read();
        head.tenant(self.tenant)?.resolve(key.of_kind(kind))
    }
}
