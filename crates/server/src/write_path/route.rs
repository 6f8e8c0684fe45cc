//! Divides a decoded batch among the partitions. The memory for this is reserved before it is allocated.
//!
//! - [`encoding`], [`times`]: prepare the series of the batch
//! - [`metadata`]: chooses what is new of the metadata
//! - [`placing`]: adds their samples to submissions
//! - [`ruled`]: applies rules on what is stored

mod encoding;
mod metadata;
mod placing;
mod ruled;
mod times;

use super::Context;
use super::aliases::Learned;
use super::ingest::{Effects, Recalled, TenantRules, Verdict};
use super::known::WaitingSeries;
use super::names::{Decision, NameRules};
use super::points;
use super::replicas::deduplicate;
use crate::ingest_rules::TenantList;
use crate::limits::tenant_state::TenantState;
use crate::partition::shared::PartitionShared;
use crate::partition::submission::{Answer, NewPart, Outcome, Submission};
use crate::refusal::Refusal;
use encoding::{ENCODED_BYTES_MAX, encode_labels};
use model::{
    Batch, Labels, LabelsBuilder, Principal, SeriesBatch, SeriesKey, SeriesRef, SeriesRefusal, TenantId,
    Value, ValueKind,
};
use placing::{Destination, exemplars_of, place, resolve_known};
use protocol::{EncodedLabels, LabelForm};
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
        let Self { parts, outcome, creates, bytes } = self;
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
pub(super) struct Arrival<'a> {
    pub(super) at_ms: i64,
    /// False if the samples count against the tenant's rate limit now.
    pub(super) is_counted: bool,
    /// Whether the series have the labels that the rules on what is stored gave them.
    pub(super) is_final: bool,
    /// Whether aggregation rules see the samples.
    pub(super) is_aggregated: bool,
    /// Rules that apply to series that are not known by the name that was sent.
    pub(super) names: Option<NameRules<'a>>,
    /// The tenant's rules on what is stored. `None` also if the series have final labels.
    pub(super) rules: Option<&'a TenantList>,
    /// Series that count as new.
    pub(super) waiting: Option<&'a dyn WaitingSeries>,
    pub(super) form: &'a dyn LabelForm,
}

/// Checks the timestamps of a batch, looks up its series, and divides them among the partitions. The memory for this
/// is reserved in `memory`.
pub(super) fn route(
    context: &Arc<Context>,
    principal: &Principal,
    arrival: Arrival<'_>,
    batch: &mut Batch,
    labels: &mut LabelsBuilder,
    memory: &mut Reservation,
) -> Result<Routed, Refusal> {
    let Arrival { at_ms: arrived_ms, is_counted, is_final, is_aggregated, names, rules, waiting, mut form } =
        arrival;
    let tenant = &principal.tenant;
    let (settings, state) = (context.overrides.current(), context.tenant(tenant));
    let own = settings.of(tenant);
    let mut outcome = refused_by_decoder(batch, form);
    // samples of a replica that is not elected do not count against the rate limit, as long as they are not stored
    let uncertain_samples = if own.ha_dedup && !is_final {
        if !form.is_encoded() {
            encode_labels(context.seed, form, batch, labels, &mut outcome, memory, ENCODED_BYTES_MAX)?;
            form = &EncodedLabels;
        }
        deduplicate(context, &state, own, arrived_ms, batch, &mut outcome, memory)?
    } else {
        0
    };
    if !is_counted {
        let samples = batch.floats.timestamps.len() + batch.histograms.timestamps.len();
        let sent = samples as u64 + outcome.refused_samples - uncertain_samples;
        state.take_samples(own, sent, context.clock.instant());
    }
    leave_out_impossible_times(context, arrived_ms, batch, form, &mut outcome);
    let has_increments = !batch.floats.increments.is_empty();
    if has_increments {
        points::identify(&mut batch.floats);
    }
    if is_aggregated {
        let weight = own.share_weight as u64;
        outcome.contributions =
            context.aggregator.contributions(tenant, weight, batch, labels, memory, arrived_ms)?;
    }

    let rules = rules.map(|list| context.ingest.of(list, names));
    // with rules, it is not known yet which series there will be
    if has_increments && rules.is_none() && names.is_none() {
        points::refuse_incomplete(context, tenant, &state, batch, form, &mut outcome);
    }
    let decoded_bytes = memory.bytes();
    let mut reservation = IncrementalReservation::new(memory);
    let mut routing = Routing {
        context,
        tenant,
        state: &state,
        bytes: &batch.bytes,
        labels,
        form,
        names,
        rules: rules.as_ref(),
        waiting,
        outcome,
        creates: false,
        learned: Vec::new(),
        recalled: Recalled::default(),
        rules_until: None,
        verdicts: Vec::new(),
        written: Vec::new(),
    };
    // exemplars are moved and not copied, so the request's reservation already includes their memory
    let exemplar_bytes = exemplar_bytes(&batch.floats) + exemplar_bytes(&batch.histograms);
    let mut parts = vec![routing.series(&mut batch.floats, &mut reservation)?];
    if has_increments {
        let stamp = context.heads.shared_sums.stamp(tenant, context.steady_s());
        parts[0].iter_mut().for_each(|(part, _)| part.increments.stamp = stamp);
    }
    if !batch.histograms.series.is_empty() {
        parts.push(routing.series(&mut batch.histograms, &mut reservation)?);
    }
    routing.metadata(batch, &mut parts[0], &mut reservation)?;
    let Routing { mut outcome, creates, learned, recalled, verdicts, written, .. } = routing;
    context.aliases.remember(&learned);
    if let Some(rules) = &rules {
        context.ingest.remember(&verdicts);
        context.ingest.count_applied(recalled.applied);
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
    Ok(Routed { parts, outcome, creates, bytes })
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
    /// Rules that apply to series that are not known by the name that was sent.
    names: Option<NameRules<'a>>,
    /// The tenant's rules on what is stored.
    rules: Option<&'a TenantRules<'a>>,
    waiting: Option<&'a dyn WaitingSeries>,
    outcome: Outcome,
    creates: bool,
    /// Series whose labels were parsed because nobody knew their keys.
    learned: Vec<Learned>,
    recalled: Recalled,
    /// When the rules must stop. `None` if they were not asked yet.
    rules_until: Option<Instant>,
    /// What the rules said about series.
    verdicts: Vec<(SeriesKey, Verdict)>,
    /// Metadata that the request writes, as it is to be remembered later.
    written: Vec<(SeriesKey, Verdict)>,
}

impl Routing<'_> {
    fn series<V: Value>(
        &mut self,
        batch: &mut SeriesBatch<V>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Vec<Part>, Exhausted> {
        let (mut unknown, mut waiting) = (Vec::new(), Vec::new());
        if !self.form.is_encoded() {
            // keys decide about partitions, so they are needed first
            reservation.grow(&mut waiting, batch.series.len())?;
            self.context.aliases.translate(&mut batch.series, &mut waiting);
        }
        self.recall(batch, &waiting, reservation)?;
        let mut parts = parts(self.context, self.state, batch, reservation)?;
        if let Some(all) = self.waiting {
            assert!(self.form.is_encoded(), "BUG: series of text lines wait");
            all.mark(self.tenant, &batch.series, &mut waiting);
            reservation.reserve(waiting.len())?;
        }
        self.mark_undecided(&mut waiting, reservation)?;
        resolve_known(self.context, self.tenant, batch, &waiting, &mut parts, &mut unknown, reservation)?;
        for position in unknown {
            self.resolve(batch, position, &mut parts, reservation)?;
        }
        Ok(parts)
    }

    /// Adds a series to the submission of its partition. Its key was not found, so it is looked up again by its
    /// sorted labels.
    fn resolve<V: Value>(
        &mut self,
        batch: &SeriesBatch<V>,
        position: u32,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let (context, series) = (self.context, &batch.series[position as usize]);
        let points = u64::from(series.samples.end - series.samples.start);
        if points == 0 && exemplars_of(&batch.exemplars, position).is_empty() {
            return Ok(()); // all samples of the series were refused for their timestamps
        }
        if self.rules.is_some() {
            return self.resolve_by_rules(batch, position, points, parts, reservation);
        }
        match self.names.and_then(|names| names.remembered(series.key)) {
            Some(Decision::LeftOut(list)) => {
                context.names.count(list, points);
                return Ok(());
            }
            Some(Decision::Stored(key)) => {
                if let Some(known) = self.known(key, V::KIND) {
                    let part = &mut parts[key.partition(context.partitions.len())].0;
                    return place(batch, position, key, part, Destination::Known(known), reservation);
                }
            }
            None => {}
        }
        let labels = self.form.labels_of(self.bytes, &series.labels, self.labels);
        let named = labels.and_then(|labels| match self.names {
            Some(names) => names.decide(series.key, labels, self.labels, context.seed),
            None => Ok(Ok(labels)),
        });
        match named {
            Ok(Ok(labels)) => {
                let key = SeriesKey::of(labels.as_bytes(), context.seed);
                if !self.form.is_encoded() && key != series.key {
                    reservation.push(&mut self.learned, (series.key, key))?;
                }
                self.place(batch, position, (key, labels), Some(series.key), parts, reservation)?;
            }
            Ok(Err(list)) => context.names.count(list, points),
            Err(error) => self.refuse(batch, position, error),
        }
        Ok(())
    }

    /// Adds the samples of a series with its final labels to the submission of their partition. `not_found` is a key
    /// by which the series was looked up before.
    fn place<V: Value>(
        &mut self,
        batch: &SeriesBatch<V>,
        position: u32,
        (key, labels): (SeriesKey, Labels),
        not_found: Option<SeriesKey>,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        // if its labels were not sorted, or rules changed them, the key has changed now, and the series may be known
        let known = if not_found == Some(key) { None } else { self.known(key, V::KIND) };
        self.creates |= known.is_none();
        let destination = known.map_or(Destination::New(labels), Destination::Known);
        let part = &mut parts[key.partition(self.context.partitions.len())].0;
        place(batch, position, key, part, destination, reservation)
    }

    fn refuse<V: Value>(&mut self, batch: &SeriesBatch<V>, position: u32, error: SeriesRefusal) {
        let series = &batch.series[position as usize];
        let points = u64::from(series.samples.end - series.samples.start);
        self.outcome.refused_exemplars += exemplars_of(&batch.exemplars, position).len() as u64;
        self.outcome.refuse(error, points, || self.form.describe(self.bytes, &series.labels));
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
