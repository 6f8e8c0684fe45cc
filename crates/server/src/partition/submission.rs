//! Messages between the write path and a partition's owner.

use crate::limits::tenant_state::TenantState;
use crate::partition::sums::{INCREMENT_BYTES, shared::Stamp};
use crate::refusal::Refusal;
use crate::write_path::ElectedReplicas;
use crate::write_path::InUse;
use crate::write_path::aggregator::Contributions;
use crate::write_path::ingest::Effects;
use admission::Postponed;
use head::Columns;
use model::{
    BatchExponential, ErrorKind, Exemplar, ExponentialSum, Increment, Labels, Metadata, SeriesKey, SeriesRef,
    SeriesRefusal, TenantId, ValueKind, Values,
};
use protocol::labels::describe_labels;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};
use tokio::sync::oneshot;

pub(crate) type Answer = oneshot::Receiver<Result<Outcome, Refusal>>;

/// Identifies a sender. Its submissions for a tenant must be stored in the order in which they were submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamId(pub(crate) usize);

/// The part of one request that belongs to one partition. All its values have the same kind.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) tenant: TenantId,
    pub(crate) state: Arc<TenantState>,
    /// Samples of known series, in columns. Samples of a new series are appended here once the series exists.
    pub(crate) refs: Vec<SeriesRef>,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) values: Values,
    pub(crate) new: Vec<NewSeries>,
    /// Samples of new series, indexed by [`NewSeries::samples`].
    pub(crate) new_timestamps: Vec<i64>,
    pub(crate) new_values: Values,
    /// Which samples are increments.
    pub(crate) increments: Increments,
    /// Which samples of new series are increments, by their index in `new_values`.
    pub(crate) new_increments: Increments,
    pub(crate) created: usize,
    /// Whether the series that were not created are in the tenant's backlog.
    is_left_out: bool,
    /// `None` if the sender waits for the answer before it sends a value that must win over this one.
    pub(crate) stream: Option<StreamId>,
    /// Whether it waits, or has waited, to be stored in slices.
    pub(crate) is_sliced: bool,
    /// Indexes of the samples that the next group stores. The samples before them are stored already.
    pub(crate) slice: Range<usize>,
    pub(crate) metadata: Vec<Metadata>,
    pub(crate) exemplars: Vec<(SeriesRef, Exemplar)>,
    pub(crate) outcome: Outcome,
    pub(crate) reply: oneshot::Sender<Result<Outcome, Refusal>>,
    /// The request's reserved memory. It is freed when the last of the request's submissions ends.
    pub(crate) memory: Option<Arc<Reservation>>,
    /// Keeps the series' references valid.
    pub(crate) pin: Option<head::Pin>,
    /// True for the node's own metrics, whose series are created even above the tenant's rate of new series: they show that others wait.
    pub(crate) is_of_node: bool,
    /// Histograms whose sums the request has changed. No other request may change them before this one is stored.
    pub(crate) in_use: Option<Arc<InUse>>,
}

/// The samples of a submission that are not values, but have to be added to the sum of their series. Usually, there are none.
#[derive(Debug, Default)]
pub(crate) struct Increments {
    /// In the order of the samples.
    all: Vec<SubmittedIncrement>,
    /// Increments that are exponential histograms. They become no samples: the outcome says what they have added up to. Each slice
    /// takes some of them.
    pub(crate) exponentials: Vec<SubmittedExponential>,
    /// Keys of the sums that the current slice has changed in this way.
    pub(crate) changed_exponentials: Vec<SeriesKey>,
    /// Number of the submission among those of its partition with increments. Slices of a submission have the same.
    pub(super) number: Option<u32>,
    /// The same in all parts of the request.
    pub(crate) stamp: Stamp,
    /// The samples of the current slice, with sums instead of increments. `None` before it is summed, and if it has no
    /// increments.
    pub(crate) summed: Option<Box<Summed>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SubmittedIncrement {
    /// Index of the sample.
    pub(crate) sample: u32,
    pub(crate) key: SeriesKey,
    pub(crate) increment: Increment,
}

#[derive(Debug)]
pub(crate) struct SubmittedExponential {
    /// Its number in the request.
    pub(crate) number: u32,
    pub(crate) point: BatchExponential,
}

#[derive(Debug, Default)]
pub(crate) struct Summed {
    pub(crate) refs: Vec<SeriesRef>,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) values: Vec<f64>,
    /// The sums that have changed, in the order of the changes.
    pub(crate) changed: Vec<Changed>,
    /// Number of samples that were refused.
    pub(crate) refused: u64,
}

/// A change of a sum by an increment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changed {
    /// Index of the first sample that the increment became.
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) key: SeriesKey,
    /// Number of the change in the group.
    pub(crate) change: u32,
}

impl Summed {
    pub(super) fn with_room_for(samples: usize) -> Self {
        Self {
            refs: Vec::with_capacity(samples),
            timestamps: Vec::with_capacity(samples),
            values: Vec::with_capacity(samples),
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, series: SeriesRef, timestamp_ms: i64, value: f64) {
        self.refs.push(series);
        self.timestamps.push(timestamp_ms);
        self.values.push(value);
    }
}

impl Increments {
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty() && self.exponentials.is_empty()
    }

    pub(crate) fn push(
        &mut self,
        sample: usize,
        key: SeriesKey,
        increment: Increment,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        reservation.reserve(INCREMENT_BYTES)?;
        reservation.push(&mut self.all, SubmittedIncrement { sample: sample as u32, key, increment })
    }

    /// Makes room for the increments of new series.
    pub(crate) fn make_room(
        &mut self,
        new: &Self,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        reservation.room(&mut self.all, new.all.len())
    }

    /// The increments among these samples, in their order.
    pub(crate) fn among(&self, samples: &Range<usize>) -> &[SubmittedIncrement] {
        let index_of = |sample: usize| self.all.partition_point(|i| (i.sample as usize) < sample);
        &self.all[index_of(samples.start)..index_of(samples.end)]
    }

    /// Adds the increments of a new series. Its samples were those with the indexes `samples` of `new`, and now begin at the
    /// index `at`.
    pub(super) fn add_new(&mut self, new: &Self, samples: &Range<usize>, at: usize) {
        let moved = new.among(samples).iter().map(|increment| {
            let sample = increment.sample as usize - samples.start + at;
            SubmittedIncrement { sample: sample as u32, ..*increment }
        });
        self.all.extend(moved);
    }

    /// Removes the increments among samples that were left out, whose indexes are sorted, and renumbers the others.
    pub(super) fn leave_out(&mut self, samples: &[u32]) {
        self.all.retain_mut(|increment| {
            let left_out = samples.binary_search(&increment.sample);
            increment.sample -= left_out.unwrap_or_else(|before| before) as u32;
            left_out.is_err()
        });
    }
}

#[derive(Debug)]
pub(crate) struct NewSeries {
    pub(crate) key: SeriesKey,
    pub(crate) labels: Labels,
    pub(crate) samples: Range<u32>,
    pub(crate) exemplars: Vec<Exemplar>,
}

/// New series that were removed from a submission, with their samples.
#[derive(Debug)]
pub(crate) struct NewPart {
    pub(crate) series: Vec<NewSeries>,
    /// Samples of all series, indexed by [`NewSeries::samples`].
    pub(crate) timestamps: Vec<i64>,
    pub(crate) values: Values,
}

impl NewPart {
    /// Without exemplars, which are few.
    pub(crate) fn memory_bytes(&self) -> usize {
        let label_bytes: usize = self.series.iter().map(|series| series.labels.as_bytes().len()).sum();
        self.series.capacity() * size_of::<NewSeries>()
            + label_bytes
            + self.timestamps.capacity() * size_of::<i64>()
            + self.values.memory_bytes()
    }
}

/// What became of a request, or of the part of a request for one partition.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of samples that are durable now, including samples that were stored before with the same value.
    pub samples: u64,
    pub exemplars: u64,
    pub refused_samples: u64,
    /// How many of the refused samples could not be read by the decoder.
    pub unreadable_samples: u64,
    /// Refused exemplars do not fail the request.
    pub refused_exemplars: u64,
    /// Number of series of which at least one sample was refused.
    pub refused_series: u64,
    /// Number of samples left out because another replica is elected. To the sender, they count as stored.
    pub deduplicated_samples: u64,
    pub deduplicated_exemplars: u64,
    /// Number of samples that rules dropped. To the sender, they count as stored.
    pub dropped_samples: u64,
    pub dropped_exemplars: u64,
    /// True if at least one series was created for this request.
    pub(crate) has_created: bool,
    /// Why parts of the request were refused temporarily. Each reason is listed once.
    pub postponed: Vec<Postponed>,
    /// The first refusals, each with the labels of the series.
    pub errors: Vec<(SeriesRefusal, String)>,
    /// Number of points that the request had, in protocols in which a point may become several series.
    pub points: u64,
    /// Number of points that were converted, because they cannot be stored as they were sent.
    pub converted_points: u64,
    /// Points that count in computed series once the request is durable. Boxed, because most requests have none.
    pub(crate) contributions: Option<Box<Contributions>>,
    /// Metadata for which there was no room. This does not fail the request.
    pub(crate) discarded_metadata: Vec<Metadata>,
    /// What rules on what is stored did, until the request is durable. Boxed, because most tenants have no rules.
    pub(crate) rules: Option<Box<Effects>>,
    /// The elected replicas whose samples the request contains, until it is answered.
    pub(crate) elected: Option<Box<ElectedReplicas>>,
    /// For each increment that is an exponential histogram, its number in the request, and what it has added up to.
    pub(crate) totals: Vec<(u32, Result<ExponentialSum, SeriesRefusal>)>,
}

impl Outcome {
    pub(crate) const ERRORS_MAX: usize = 5;

    pub(crate) fn refuse(&mut self, error: SeriesRefusal, samples: u64, series: impl FnOnce() -> String) {
        self.refused_series += 1;
        self.refused_samples += samples;
        self.keep(error, series);
    }

    /// Keeps an error if there is room. The first one about a series takes the place of one about what cannot be read, so
    /// that both kinds have an example.
    fn keep(&mut self, error: SeriesRefusal, series: impl FnOnce() -> String) {
        if self.errors.len() >= Self::ERRORS_MAX {
            if error.is_unreadable() || self.errors.iter().any(|(other, _)| !other.is_unreadable()) {
                return;
            }
            self.errors.pop();
        }
        self.errors.push((error, series()));
    }

    pub(crate) const fn refuse_more(&mut self, samples: u64) {
        self.refused_samples += samples;
    }

    pub(crate) fn postpone(&mut self, what: Postponed) {
        match self.postponed.iter_mut().find(|other| other.reason() == what.reason()) {
            Some(other) => *other = what.max(*other),
            None => self.postponed.push(what),
        }
    }

    pub(crate) fn first_refused(&self) -> Option<&str> {
        self.errors.first().map(|(_, series)| series.as_str())
    }

    /// The first error about a series, preferably one for which a part was refused as `what`.
    pub(crate) fn cause_of(&self, what: Postponed) -> Option<String> {
        let mut of_series = self.errors.iter().map(|(error, _)| error).filter(|error| !error.is_unreadable());
        let first = of_series.clone().next();
        of_series.find(|error| postponed(error).reason() == what.reason()).or(first).map(ToString::to_string)
    }

    pub(crate) fn report(&self) -> String {
        let mut text = begin_of_report(self.samples);
        text.push_str(&format!(
            "{} samples of {} series refused\n",
            self.refused_samples, self.refused_series
        ));
        for (error, series) in &self.errors {
            let separator = if series.is_empty() { "" } else { ": " };
            text.push_str(&format!("{error}{separator}{series}\n"));
        }
        text
    }

    /// Corrects a text that begins with a report of `before` stored samples, because `more` were stored afterwards.
    pub(crate) fn add_to_report(text: &mut String, before: u64, more: u64) {
        if let Some(rest) = text.strip_prefix(begin_of_report(before).as_str()) {
            *text = begin_of_report(before + more) + rest;
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.exemplars += other.exemplars;
        self.refused_samples += other.refused_samples;
        self.unreadable_samples += other.unreadable_samples;
        self.refused_exemplars += other.refused_exemplars;
        self.refused_series += other.refused_series;
        self.deduplicated_samples += other.deduplicated_samples;
        self.deduplicated_exemplars += other.deduplicated_exemplars;
        self.dropped_samples += other.dropped_samples;
        self.dropped_exemplars += other.dropped_exemplars;
        self.has_created |= other.has_created;
        self.discarded_metadata.extend(other.discarded_metadata);
        self.totals.extend(other.totals);
        other.postponed.into_iter().for_each(|what| self.postpone(what));
        other.errors.into_iter().for_each(|(error, series)| self.keep(error, || series));
    }
}

impl Submission {
    pub(crate) fn new(
        state: Arc<TenantState>,
        kind: ValueKind,
        reply: oneshot::Sender<Result<Outcome, Refusal>>,
    ) -> Self {
        Self {
            tenant: state.id.clone(),
            state,
            refs: Vec::new(),
            timestamps: Vec::new(),
            values: Values::new(kind),
            new: Vec::new(),
            new_timestamps: Vec::new(),
            new_values: Values::new(kind),
            increments: Increments::default(),
            new_increments: Increments::default(),
            created: 0,
            is_left_out: false,
            stream: None,
            is_sliced: false,
            slice: 0..0,
            metadata: Vec::new(),
            exemplars: Vec::new(),
            outcome: Outcome::default(),
            reply,
            memory: None,
            pin: None,
            is_of_node: false,
            in_use: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.new.is_empty() && self.metadata.is_empty() && self.exemplars.is_empty()
    }

    /// Removes the new series, of which none may be created yet.
    pub(crate) fn take_new(&mut self) -> NewPart {
        assert!(self.new_increments.is_empty(), "BUG: increments of a sender that gets no answer");
        let empty = Values::new(self.new_values.kind());
        NewPart {
            series: std::mem::take(&mut self.new),
            timestamps: std::mem::take(&mut self.new_timestamps),
            values: std::mem::replace(&mut self.new_values, empty),
        }
    }

    pub(crate) fn is_resolved(&self) -> bool {
        self.created == self.new.len()
    }

    /// The samples of the current slice, as they are stored.
    pub(crate) fn columns(&self) -> Columns<'_> {
        if let Some(summed) = &self.increments.summed {
            return Columns::new(&summed.refs, &summed.timestamps, (&summed.values).into());
        }
        let slice = self.slice.clone();
        let values = self.values.as_ref().slice(slice.clone());
        Columns::new(&self.refs[slice.clone()], &self.timestamps[slice], values)
    }

    /// The sums that the current slice has changed.
    pub(crate) fn changed_sums(&self) -> &[Changed] {
        self.increments.summed.as_ref().map_or(&[], |summed| &summed.changed)
    }

    /// Number of samples of the current slice that are stored, or were stored before.
    pub(crate) fn stored_samples(&self) -> u64 {
        self.slice.len() as u64 - self.increments.summed.as_ref().map_or(0, |summed| summed.refused)
    }

    /// True for the last slice. Metadata and exemplars are stored with it.
    pub(crate) const fn is_last_slice(&self) -> bool {
        self.slice.end == self.refs.len() && self.increments.exponentials.is_empty()
    }

    /// Refuses new series, at most `most`.
    pub(crate) fn refuse_new(&mut self, error: &SeriesRefusal, most: usize, now: Instant) {
        // the backlog identifies the request by its last series, which is the first to be refused
        if postponed(error).kind() == ErrorKind::Unavailable && !self.is_left_out {
            self.note_left_out(now);
            self.is_left_out = true;
        }
        let kept = self.created.max(self.new.len().saturating_sub(most));
        while self.new.len() > kept {
            self.refuse_one(self.new.len() - 1, error);
        }
        self.postpone(error);
    }

    /// Adds the series of this request that were not created to the tenant's backlog.
    pub(crate) fn note_left_out(&self, now: Instant) {
        if let Some(last) = self.new.last().filter(|_| !self.is_resolved()) {
            self.state.left_out(last.key, (self.new.len() - self.created) as u64, now);
        }
    }

    /// Removes the request from the tenant's backlog once all its series exist.
    pub(crate) fn note_created(&self) {
        if let Some(last) = self.new.last().filter(|_| self.is_resolved()) {
            self.state.created_all(last.key);
        }
    }

    /// Checks new series until `most` of them may be created or `refused_max` are refused: those whose metric already
    /// has `limit` series, with `error`. `count` returns the number of series of a metric. Returns how many of the next series may be
    /// created.
    pub(crate) fn refuse_beyond_metric_limit(
        &mut self,
        most: usize,
        refused_max: usize,
        limit: u64,
        error: &SeriesRefusal,
        count: impl Fn(&str) -> usize,
    ) -> usize {
        let mut counts: HashMap<Box<str>, u64> = HashMap::new();
        let least = self.new.len().saturating_sub(refused_max);
        let mut next = self.created;
        while next < self.new.len().min(self.created + most) && self.new.len() > least {
            let metric = self.new[next].labels.as_ref().get(model::labels::METRIC_NAME).unwrap_or_default();
            let before = match counts.get(metric) {
                Some(before) => *before,
                None => count(metric) as u64,
            };
            counts.insert(metric.into(), (before + 1).min(limit));
            if before < limit {
                next += 1;
            } else {
                self.refuse_one(next, error);
                self.postpone(error);
            }
        }
        next - self.created
    }

    /// Refuses a new series. The last series in `new` is moved to its place.
    fn refuse_one(&mut self, number: usize, error: &SeriesRefusal) {
        let new = self.new.swap_remove(number);
        let samples = u64::from(new.samples.end - new.samples.start);
        self.outcome.refuse(error.clone(), samples, || describe_labels(new.labels.as_bytes()));
        self.outcome.refused_exemplars += new.exemplars.len() as u64;
    }

    fn postpone(&mut self, error: &SeriesRefusal) {
        self.outcome.postpone(postponed(error));
    }

    /// Frees the request's memory before the answer is sent.
    fn end(self) -> (oneshot::Sender<Result<Outcome, Refusal>>, Outcome) {
        let whole = self;
        let Self { reply, outcome, .. } = whole;
        (reply, outcome)
    }

    pub(crate) fn answer(self) {
        let (reply, outcome) = self.end();
        let _ = reply.send(Ok(outcome)); // the client may be gone
    }

    pub(crate) fn refuse_all(self, refusal: Refusal) {
        let (reply, _) = self.end();
        let _ = reply.send(Err(refusal));
    }
}

fn begin_of_report(samples: u64) -> String {
    format!("partial write: {samples} samples stored; ")
}

pub(crate) const fn postponed(error: &SeriesRefusal) -> Postponed {
    match error {
        SeriesRefusal::NoMemory { .. } => Postponed::ProcessMemory,
        SeriesRefusal::TenantShare { .. } => Postponed::TenantShare,
        SeriesRefusal::ActiveSeries { is_configured, .. } => {
            Postponed::ActiveSeries { is_configured: *is_configured }
        }
        SeriesRefusal::SeriesPerMetric { is_configured, .. } => {
            Postponed::SeriesPerMetric { is_configured: *is_configured }
        }
        SeriesRefusal::NewSeriesRate { wait, .. } => Postponed::NewSeriesRate(*wait),
        _ => Postponed::NewSeries,
    }
}
