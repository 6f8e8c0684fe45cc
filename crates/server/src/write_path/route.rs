//! Divides a decoded batch among the partitions. The memory for this is reserved before it is allocated.

use super::Context;
use super::aliases::Learned;
use super::ingest::{Recalled, Ruled, TenantRules, Verdict};
use super::known::WaitingSeries;
use super::names::{Decision, NameRules};
use super::replicas::deduplicate;
use crate::ingest_rules::TenantList;
use crate::limits::tenant_state::TenantState;
use crate::partition::shared::PartitionShared;
use crate::partition::submission::{Answer, NewPart, NewSeries, Outcome, Submission};
use crate::refusal::Refusal;
use admission::Postponed;
use admission::age::Window;
use model::caps::BODY_BYTES_MAX;
use model::{
    Batch, Exemplar, Labels, LabelsBuilder, MetadataRef, Principal, SeriesBatch, SeriesKey, SeriesRef,
    SeriesRefusal, TenantId, Value, ValueKind,
};
use protocol::{EncodedLabels, LabelForm};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};
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
    if is_aggregated {
        let weight = own.share_weight as u64;
        outcome.contributions =
            context.aggregator.contributions(tenant, weight, batch, labels, memory, arrived_ms)?;
    }

    let rules = rules.map(|list| context.ingest.of(list, tenant, names));
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
        verdicts: Vec::new(),
    };
    // exemplars are moved and not copied, so the request's reservation already includes their memory
    let exemplar_bytes = exemplar_bytes(&batch.floats) + exemplar_bytes(&batch.histograms);
    let mut parts = vec![routing.series(&mut batch.floats, &mut reservation)?];
    if !batch.histograms.series.is_empty() {
        parts.push(routing.series(&mut batch.histograms, &mut reservation)?);
    }
    let Routing { mut outcome, creates, learned, recalled, mut verdicts, .. } = routing;
    context.aliases.remember(&learned);
    route_metadata(context, tenant, rules.as_ref(), batch, &mut parts[0], &mut verdicts, &mut reservation)?;
    if let Some(rules) = &rules {
        context.ingest.remember(rules, &verdicts);
        context.ingest.count(tenant, rules, &recalled);
        outcome.dropped_samples = recalled.dropped_samples();
        outcome.dropped_exemplars = recalled.dropped_exemplars;
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

/// Limit on the bytes of a text and of its labels once they are encoded. The labels of a line are repeated for each of its
/// fields, so they can take a multiple of the text. Decoders count up to four bodies of them, as they are written; encoded,
/// they are a little longer. Without a limit, offsets would exceed 32 bits.
const ENCODED_BYTES_MAX: usize = 8 * BODY_BYTES_MAX;

const _: () = assert!(ENCODED_BYTES_MAX < u32::MAX as usize, "encoded labels exceed u32 indexes");

/// Writes the labels of all series in the layout of [`model::labels`]. Series with invalid labels are refused, and lose
/// their samples. The request is refused if its bytes exceed `bytes_max`.
fn encode_labels(
    seed: u64,
    form: &dyn LabelForm,
    batch: &mut Batch,
    builder: &mut LabelsBuilder,
    outcome: &mut Outcome,
    memory: &mut Reservation,
    bytes_max: usize,
) -> Result<(), Refusal> {
    let Batch { bytes, floats, .. } = batch;
    let mut reservation = IncrementalReservation::new(memory);
    for series in &mut floats.series {
        match form.labels_of(bytes, &series.labels, builder) {
            Ok(labels) => {
                if bytes.len() + labels.as_bytes().len() > bytes_max {
                    let message = format!("request and its labels take more than {bytes_max} bytes");
                    return Err(Refusal::too_large("decode", message));
                }
                let start = bytes.len() as u32;
                reservation.extend(bytes, labels.as_bytes())?;
                series.key = SeriesKey::of(labels.as_bytes(), seed);
                series.labels = start..bytes.len() as u32;
            }
            Err(error) => {
                outcome.refuse(error, series.samples.len() as u64, || form.describe(bytes, &series.labels));
                series.labels = 0..0;
                series.samples.end = series.samples.start;
            }
        }
    }
    Ok(())
}

fn leave_out_impossible_times(
    context: &Arc<Context>,
    arrived_ms: i64,
    batch: &mut Batch,
    form: &dyn LabelForm,
    outcome: &mut Outcome,
) {
    let timestamps = batch.floats.timestamps.iter().chain(&batch.histograms.timestamps);
    let (oldest, newest) = timestamps.fold((i64::MAX, i64::MIN), |(lo, hi), t| (lo.min(*t), hi.max(*t)));
    if oldest > newest {
        return; // no samples
    }
    let window = Window::at(arrived_ms, context.settings.past_ms, context.settings.future_ms);
    if window.contains(oldest) && window.contains(newest) {
        context.wall.heard(newest, &*context.clock);
        return;
    }
    let doubt = context.wall.doubt(&*context.clock);
    let bytes = &batch.bytes;
    let mut refuse = |timestamp_ms, labels: Option<&Range<u32>>| {
        let (reason, is_in_doubt) = window.reason(timestamp_ms, doubt);
        if is_in_doubt {
            outcome.postpone(Postponed::Clock);
        }
        match labels {
            Some(labels) => {
                let error = SeriesRefusal::Timestamp { timestamp_ms, reason };
                outcome.refuse(error, 1, || form.describe(bytes, labels));
            }
            None => outcome.refuse_more(1),
        }
    };
    leave_out_times(&mut batch.floats, window, &mut refuse);
    leave_out_times(&mut batch.histograms, window, &mut refuse);
}

/// Removes samples that are outside of the window, and calls `refuse` for each of them. For the first of each series,
/// it gets the labels of the series.
fn leave_out_times<V: Value>(
    batch: &mut SeriesBatch<V>,
    window: Window,
    refuse: &mut impl FnMut(i64, Option<&Range<u32>>),
) {
    let SeriesBatch { series, timestamps, values, .. } = batch;
    let mut kept = 0;
    for series in series.iter_mut() {
        let (start, mut is_first) = (kept, true);
        for i in series.samples.start as usize..series.samples.end as usize {
            let timestamp_ms = timestamps[i];
            if window.contains(timestamp_ms) {
                timestamps[kept] = timestamp_ms;
                values.swap(kept, i);
                kept += 1;
                continue;
            }
            refuse(timestamp_ms, is_first.then_some(&series.labels));
            is_first = false;
        }
        series.samples = start as u32..kept as u32;
    }
    timestamps.truncate(kept);
    values.truncate(kept);
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
    /// What the rules said about series, by the key as sent.
    verdicts: Vec<(SeriesKey, Verdict)>,
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
        if let Some(rules) = self.rules {
            self.recalled.undecided.clear();
            reservation.room(&mut self.recalled.undecided, batch.series.len())?;
            self.recalled.undecided.extend_from_slice(&waiting);
            self.recalled.undecided.resize(batch.series.len(), false);
            rules.recall(batch, &mut self.recalled);
        }
        let mut parts = parts(self.context, self.state, batch, reservation)?;
        if let Some(all) = self.waiting {
            assert!(self.form.is_encoded(), "BUG: series of text lines wait");
            all.mark(self.tenant, &batch.series, &mut waiting);
            reservation.reserve(waiting.len())?;
        }
        if self.rules.is_some() {
            // a series is looked up only by the key under which it is stored
            let missing = batch.series.len() - waiting.len();
            reservation.room(&mut waiting, missing)?;
            waiting.resize(batch.series.len(), false);
            waiting
                .iter_mut()
                .zip(&self.recalled.undecided)
                .for_each(|(waits, undecided)| *waits |= undecided);
        }
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
        let Self { context, bytes, .. } = *self;
        let series = &batch.series[position as usize];
        let exemplars = exemplars_of(&batch.exemplars, position);
        if series.samples.is_empty() && exemplars.is_empty() {
            return Ok(()); // all samples of the series were refused for their timestamps
        }
        if self.rules.is_some() {
            return self.resolve_by_rules(batch, position, parts, reservation);
        }
        let points = u64::from(series.samples.end - series.samples.start);
        match self.names.and_then(|names| names.remembered(series.key)) {
            Some(Decision::LeftOut(list)) => {
                context.names.count(list, points);
                return Ok(());
            }
            Some(Decision::Stored(key)) => {
                let number = key.partition(context.partitions.len());
                if let Some(known) = self.known(number, key, V::KIND) {
                    let (part, to) = (&mut parts[number].0, Destination::Known(known));
                    return place(batch, position, key, part, to, reservation);
                }
            }
            None => {}
        }
        let named =
            self.form.labels_of(bytes, &series.labels, self.labels).and_then(|labels| match self.names {
                Some(names) => names.decide(series.key, labels, self.labels, context.seed),
                None => Ok(Ok(labels)),
            });
        let labels = match named {
            Ok(Ok(labels)) => labels,
            Ok(Err(list)) => {
                context.names.count(list, points);
                return Ok(());
            }
            Err(error) => {
                self.outcome.refused_exemplars += exemplars.len() as u64;
                self.outcome.refuse(error, points, || self.form.describe(bytes, &series.labels));
                return Ok(());
            }
        };
        let key = SeriesKey::of(labels.as_bytes(), context.seed);
        let number = key.partition(context.partitions.len());
        if !self.form.is_encoded() && key != series.key {
            reservation.push(&mut self.learned, (series.key, key))?;
        }
        // if its labels were not sorted or the name was rewritten, the key has changed now, and the series may be known
        let known = if key == series.key { None } else { self.known(number, key, V::KIND) };
        self.creates |= known.is_none();
        let destination = known.map_or(Destination::New(labels), Destination::Known);
        place(batch, position, key, &mut parts[number].0, destination, reservation)
    }

    /// Like [`Self::resolve`], for a tenant with rules on what is stored.
    fn resolve_by_rules<V: Value>(
        &mut self,
        batch: &SeriesBatch<V>,
        position: u32,
        parts: &mut [Part],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let Self { context, bytes, .. } = *self;
        let series = &batch.series[position as usize];
        let points = u64::from(series.samples.end - series.samples.start);
        let exemplars = exemplars_of(&batch.exemplars, position).len() as u64;
        let is_undecided = self.recalled.undecided[position as usize];
        if is_undecided
            && let Some(names) = self.names
            && let Some(Decision::LeftOut(list)) = names.remembered(series.key)
            && self.known(series.key.partition(context.partitions.len()), series.key, V::KIND).is_none()
        {
            context.names.count(list, points);
            return Ok(());
        }
        self.recalled.applied += 1;
        let ruled = match self.form.labels_of(bytes, &series.labels, self.labels) {
            Ok(labels) => {
                let own = SeriesKey::of(labels.as_bytes(), context.seed);
                if !self.form.is_encoded() && is_undecided && own != series.key {
                    reservation.push(&mut self.learned, (series.key, own))?;
                }
                // the verdict is looked up by the key as sent or, for texts, by the one that their key is replaced by
                let sent = if self.form.is_encoded() { series.key } else { own };
                self.ruled(labels, own, V::KIND, points).map(|ruled| (ruled, sent))
            }
            Err(error) => Err(error),
        };
        let (ruled, sent) = match ruled {
            Ok(ruled) => ruled,
            Err(error) => {
                self.outcome.refused_exemplars += exemplars;
                self.outcome.refuse(error, points, || self.form.describe(bytes, &series.labels));
                return Ok(());
            }
        };
        let (labels, verdict) = match ruled {
            Some(Ruled::Stored(labels)) => {
                let key = SeriesKey::of(labels.as_bytes(), context.seed);
                (Some((key, labels)), if key == sent { Verdict::Unchanged } else { Verdict::Stored(key) })
            }
            Some(Ruled::Dropped(rule)) => {
                self.recalled.drop_samples(rule, points);
                self.recalled.dropped_exemplars += exemplars;
                (None, Verdict::Dropped(rule as u32))
            }
            None => {
                return Ok(()); // left out and counted by a list of names
            }
        };
        if is_undecided {
            reservation.push(&mut self.verdicts, (sent, verdict))?;
        }
        let Some((key, labels)) = labels else { return Ok(()) };
        let number = key.partition(context.partitions.len());
        let known = self.known(number, key, V::KIND);
        self.creates |= known.is_none();
        let destination = known.map_or(Destination::New(labels), Destination::Known);
        place(batch, position, key, &mut parts[number].0, destination, reservation)
    }

    /// Applies the rules on names, then those on what is stored. `own` is the key of the labels. Returns `None` if a list of
    /// names leaves the series out.
    fn ruled(
        &mut self,
        labels: Labels,
        own: SeriesKey,
        kind: ValueKind,
        points: u64,
    ) -> Result<Option<Ruled>, SeriesRefusal> {
        let (context, rules) = (self.context, self.rules.expect("BUG: the tenant has no rules"));
        let mut labels = labels;
        let is_known = |this: &Self| this.known(own.partition(context.partitions.len()), own, kind).is_some();
        if let Some(names) = self.names
            && !is_known(self)
        {
            match names.decide(own, labels, self.labels, context.seed)? {
                Ok(named) => labels = named,
                Err(list) => {
                    context.names.count(list, points);
                    return Ok(None);
                }
            }
        }
        rules.apply(labels, self.labels).map(Some)
    }

    /// Looks up a series that does not wait.
    fn known(&self, partition: usize, key: SeriesKey, kind: ValueKind) -> Option<SeriesRef> {
        if self.waiting.is_some_and(|waiting| waiting.waits(self.tenant, key)) {
            return None;
        }
        self.context.partitions[partition].head.read().tenant(self.tenant)?.resolve(key.of_kind(kind))
    }
}

/// The series to which samples are added.
enum Destination {
    Known(SeriesRef),
    New(Labels),
}

/// Adds the samples of a series that was not found by its key to the submission of its partition.
fn place<V: Value>(
    batch: &SeriesBatch<V>,
    position: u32,
    key: SeriesKey,
    part: &mut Submission,
    destination: Destination,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), Exhausted> {
    let series = &batch.series[position as usize];
    let exemplars = exemplars_of(&batch.exemplars, position);
    let samples = series.samples.start as usize..series.samples.end as usize;
    let (timestamps, values) = (&batch.timestamps[samples.clone()], &batch.values[samples]);
    reservation.reserve(exemplars.iter().map(|(_, e)| e.labels.as_bytes().len()).sum())?;
    // this also makes room for samples of new series, which are appended here once the series exist
    reservation.room(&mut part.refs, part.new_timestamps.len() + values.len())?;
    reservation.room(&mut part.timestamps, part.new_timestamps.len() + values.len())?;
    reservation.room(V::of(&mut part.values), part.new_timestamps.len() + values.len())?;
    // all samples of a series may have been left out
    let increment = if values.is_empty() { None } else { batch.increment_of(position) };
    match destination {
        Destination::Known(known) => {
            if let Some(increment) = increment {
                part.increments.push(part.refs.len(), key, *increment, reservation)?;
            }
            part.refs.extend(std::iter::repeat_n(known, values.len()));
            part.timestamps.extend_from_slice(timestamps);
            V::of(&mut part.values).extend_from_slice(values);
            for (_, exemplar) in exemplars {
                reservation.push(&mut part.exemplars, (known, exemplar.clone()))?;
            }
        }
        Destination::New(labels) => {
            reservation.room(&mut part.new_timestamps, values.len())?;
            reservation.room(V::of(&mut part.new_values), values.len())?;
            // will be copied once more when the series is created
            reservation.reserve(values.iter().map(Value::heap_bytes).sum())?;
            reservation.reserve(labels.as_bytes().len() + 2 * size_of_val(exemplars))?;
            let start = part.new_timestamps.len() as u32;
            if let Some(increment) = increment {
                part.new_increments.push(start as usize, key, *increment, reservation)?;
                part.increments.make_room(&part.new_increments, reservation)?;
            }
            part.new_timestamps.extend_from_slice(timestamps);
            V::of(&mut part.new_values).extend_from_slice(values);
            let samples = start..part.new_timestamps.len() as u32;
            let exemplars = exemplars.iter().map(|(_, e)| e.clone()).collect();
            reservation.push(&mut part.new, NewSeries { key, labels, samples, exemplars })?;
        }
    }
    Ok(())
}

/// Adds samples of known series to submissions, and other series to `unknown`. `waiting` has an entry for each series, or
/// none; series that wait are unknown.
fn resolve_known<V: Value>(
    context: &Arc<Context>,
    tenant: &TenantId,
    batch: &mut SeriesBatch<V>,
    waiting: &[bool],
    parts: &mut [Part],
    unknown: &mut Vec<u32>,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), Exhausted> {
    let count = parts.len();
    let mut known: Vec<Option<SeriesRef>> = Vec::new();
    let track = !batch.exemplars.is_empty();
    if track {
        reservation.grow(&mut known, batch.series.len())?;
        known.resize(batch.series.len(), None);
    }
    let has_increments = !batch.increments.is_empty();
    for (number, (partition, (part, _))) in context.partitions.iter().zip(parts.iter_mut()).enumerate() {
        let head = partition.head.read();
        let head = head.tenant(tenant);
        let values = V::of(&mut part.values);
        for (position, series) in batch.series.iter().enumerate() {
            if series.key.partition(count) != number {
                continue;
            }
            let waits = waiting.get(position).copied().unwrap_or(false);
            let head = if waits { None } else { head };
            let Some(found) = head.and_then(|h| h.resolve(series.key.of_kind(V::KIND))) else {
                reservation.push(unknown, position as u32)?;
                continue;
            };
            if track {
                known[position] = Some(found);
            }
            if has_increments
                && !series.samples.is_empty()
                && let Some(increment) = batch.increment_of(position as u32)
            {
                part.increments.push(part.refs.len(), series.key, *increment, reservation)?;
            }
            for i in series.samples.start as usize..series.samples.end as usize {
                part.refs.push(found);
                part.timestamps.push(batch.timestamps[i]);
                values.push(batch.values[i].clone());
            }
        }
    }
    let mut left = Vec::new();
    for (position, exemplar) in std::mem::take(&mut batch.exemplars) {
        match known[position as usize] {
            Some(series) => {
                let partition = batch.series[position as usize].key.partition(count);
                reservation.push(&mut parts[partition].0.exemplars, (series, exemplar))?;
            }
            None => reservation.push(&mut left, (position, exemplar))?,
        }
    }
    batch.exemplars = left;
    Ok(())
}

/// Returns the exemplars of the series at `position`. `exemplars` must be sorted by position.
fn exemplars_of(exemplars: &[(u32, Exemplar)], position: u32) -> &[(u32, Exemplar)] {
    let from = exemplars.partition_point(|(p, _)| *p < position);
    let count = exemplars[from..].partition_point(|(p, _)| *p == position);
    &exemplars[from..from + count]
}

/// Adds new metadata to the partition to which the metric's name hashes. Metadata that this partition already has is
/// dropped, because it is durable.
fn route_metadata(
    context: &Arc<Context>,
    tenant: &TenantId,
    rules: Option<&TenantRules<'_>>,
    batch: &Batch,
    parts: &mut [Part],
    verdicts: &mut Vec<(SeriesKey, Verdict)>,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), Exhausted> {
    for metadata in batch.metadata() {
        let mut key = SeriesKey::of(metadata.metric.as_bytes(), context.seed);
        let mut metric = Cow::Borrowed(metadata.metric);
        if let Some(rules) = rules {
            reservation.room(verdicts, 1)?;
            match rules.metric(metadata.metric, key, verdicts) {
                Some(name) => metric = name,
                None => continue,
            }
            if metric != metadata.metric {
                key = SeriesKey::of(metric.as_bytes(), context.seed);
            }
        }
        let metadata = MetadataRef { metric: &metric, ..metadata };
        let number = key.partition(parts.len());
        let head = context.partitions[number].head.read();
        let known = head.tenant(tenant).and_then(|head| head.metadata_of(metadata.metric));
        if known.is_none_or(|known| !metadata.is(known)) {
            reservation.reserve(metadata.metric.len() + metadata.help.len() + metadata.unit.len())?;
            reservation.push(&mut parts[number].0.metadata, metadata.to_owned())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ErrorKind;
    use protocol::influx::{self, Format, Names, Precision};
    use protocol::{Body, Decoder as _, Encoding, Request};
    use stdx::budget::Account;

    #[test]
    fn exemplars_are_found_by_the_position_of_their_series() {
        let exemplar = |value| Exemplar { labels: Labels::empty(), timestamp_ms: 0, value };
        let positions = [0, 0, 3, 4, 4, 4, 9];
        let all: Vec<_> = positions.iter().zip(0..).map(|(p, i)| (*p, exemplar(f64::from(i)))).collect();
        for position in 0..11 {
            let expected: Vec<_> = all.iter().filter(|(p, _)| *p == position).cloned().collect();
            assert_eq!(exemplars_of(&all, position), expected, "position {position}");
        }
        assert!(exemplars_of(&[], 0).is_empty());
    }

    #[test]
    fn labels_that_are_encoded_are_bounded() {
        let text = b"cpu,host=a x=1,y=1,z=1\n";
        let names = Arc::new(Names::default());
        let format = || Format { precision: Precision::Seconds, arrival_ms: 0, names: Arc::clone(&names) };
        let encoded = |bytes_max| {
            let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
            let (mut batch, mut outcome) = (Batch::default(), Outcome::default());
            let body = Body { encoding: Encoding::Identity, bytes: text };
            let request = Request { format: format(), body };
            influx::Decoder::new(1).decode(request, &mut batch, &mut memory).unwrap();
            let builder = &mut LabelsBuilder::new();
            encode_labels(1, &*names, &mut batch, builder, &mut outcome, &mut memory, bytes_max)?;
            assert_eq!(outcome.refused_series, 0);
            Ok::<_, Refusal>(batch.bytes.len())
        };
        let bytes = encoded(ENCODED_BYTES_MAX).unwrap();
        assert_eq!(encoded(bytes).unwrap(), bytes);
        let refusal = encoded(bytes - 1).unwrap_err();
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::TooLarge, "decode"));
        assert!(refusal.message.contains(&(bytes - 1).to_string()), "{}", refusal.message);
    }
}
