//! Messages between the write path and a partition's owner.

use crate::refusal::Refusal;
use admission::Postponed;
use head::Columns;
use model::{Exemplar, Labels, Metadata, SeriesError, SeriesKey, SeriesRef, TenantId};
use protocol::labels::describe_labels;
use std::ops::Range;
use std::sync::Arc;
use stdx::budget::Reservation;
use tokio::sync::oneshot;

/// Delivers what became of a submission.
pub(crate) type Answer = oneshot::Receiver<Result<Outcome, Refusal>>;

/// One request's share for one partition.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) tenant: TenantId,
    /// Samples of known series, in columns. Those of new ones join them once the series exist.
    pub(crate) refs: Vec<SeriesRef>,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) values: Vec<f64>,
    pub(crate) new: Vec<NewSeries>,
    /// Samples of new series; [`NewSeries::samples`] points here.
    pub(crate) new_timestamps: Vec<i64>,
    pub(crate) new_values: Vec<f64>,
    /// How many of `new` have been made.
    pub(crate) created: usize,
    /// The samples that the next group takes; those before it are stored already.
    pub(crate) slice: Range<usize>,
    pub(crate) metadata: Vec<Metadata>,
    pub(crate) exemplars: Vec<(SeriesRef, Exemplar)>,
    /// Outcome so far.
    pub(crate) outcome: Outcome,
    pub(crate) reply: oneshot::Sender<Result<Outcome, Refusal>>,
    /// The request's memory, given back when its last part is done.
    pub(crate) memory: Option<Arc<Reservation>>,
    /// Keeps its series' references good until they are committed.
    pub(crate) pin: Option<head::Pin>,
}

/// A series that was not known when the request was looked at.
#[derive(Debug)]
pub(crate) struct NewSeries {
    pub(crate) key: SeriesKey,
    pub(crate) labels: Labels,
    pub(crate) samples: Range<u32>,
    pub(crate) exemplars: Vec<Exemplar>,
}

/// Outcome of a request, or of one partition's share of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Samples that are durable now (identical duplicates included).
    pub samples: u64,
    /// Exemplars likewise.
    pub exemplars: u64,
    /// Samples left out.
    pub refused_samples: u64,
    /// Exemplars left out. They are examples: a request is fine without them.
    pub refused_exemplars: u64,
    /// Series left out, wholly or in part.
    pub refused_series: u64,
    /// Why parts were left out that may be stored later; each once.
    pub postponed: Vec<Postponed>,
    /// The first few reasons, each with its series.
    pub errors: Vec<(SeriesError, String)>,
}

impl Outcome {
    /// How many reasons are kept.
    pub(crate) const ERRORS_MAX: usize = 5;

    /// Leaves out `samples` samples of one series.
    pub(crate) fn refuse(&mut self, error: SeriesError, samples: u64, series: impl FnOnce() -> String) {
        self.refused_series += 1;
        self.refused_samples += samples;
        if self.errors.len() < Self::ERRORS_MAX {
            self.errors.push((error, series()));
        }
    }

    /// Leaves out `samples` more of the series that was refused last.
    pub(crate) const fn refuse_more(&mut self, samples: u64) {
        self.refused_samples += samples;
    }

    /// Notes that something was left out that may be stored later.
    pub(crate) fn postpone(&mut self, what: Postponed) {
        if !self.postponed.contains(&what) {
            self.postponed.push(what);
        }
    }

    /// Describes what is stored and what is not, with the reasons of the first few series.
    pub(crate) fn report(&self) -> String {
        let mut text = format!(
            "partial write: {} samples stored; {} samples of {} series refused\n",
            self.samples, self.refused_samples, self.refused_series
        );
        for (error, series) in &self.errors {
            let separator = if series.is_empty() { "" } else { ": " };
            text.push_str(&format!("{error}{separator}{series}\n"));
        }
        text
    }

    /// Adds another partition's share.
    pub(crate) fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.exemplars += other.exemplars;
        self.refused_samples += other.refused_samples;
        self.refused_exemplars += other.refused_exemplars;
        self.refused_series += other.refused_series;
        other.postponed.into_iter().for_each(|what| self.postpone(what));
        let room = Self::ERRORS_MAX - self.errors.len();
        self.errors.extend(other.errors.into_iter().take(room));
    }
}

impl Submission {
    pub(crate) fn new(tenant: TenantId, reply: oneshot::Sender<Result<Outcome, Refusal>>) -> Self {
        Self {
            tenant,
            refs: Vec::new(),
            timestamps: Vec::new(),
            values: Vec::new(),
            new: Vec::new(),
            new_timestamps: Vec::new(),
            new_values: Vec::new(),
            created: 0,
            slice: 0..0,
            metadata: Vec::new(),
            exemplars: Vec::new(),
            outcome: Outcome::default(),
            reply,
            memory: None,
            pin: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.new.is_empty() && self.metadata.is_empty() && self.exemplars.is_empty()
    }

    /// All its series exist.
    pub(crate) fn is_resolved(&self) -> bool {
        self.created == self.new.len()
    }

    /// The samples of its [`Self::slice`].
    pub(crate) fn columns(&self) -> Columns<'_> {
        let slice = self.slice.clone();
        Columns::new(&self.refs[slice.clone()], &self.timestamps[slice.clone()], &self.values[slice])
    }

    /// Its [`Self::slice`] is the last. Metadata and exemplars go with that.
    pub(crate) const fn is_last_slice(&self) -> bool {
        self.slice.end == self.refs.len()
    }

    /// Leaves out the series that are still to be made: there is no room for them.
    pub(crate) fn refuse_new(&mut self, error: &SeriesError) {
        for new in self.new.drain(self.created..) {
            let samples = u64::from(new.samples.end - new.samples.start);
            self.outcome.refuse(error.clone(), samples, || describe_labels(new.labels.as_bytes()));
            self.outcome.refused_exemplars += new.exemplars.len() as u64;
        }
        self.outcome.postpone(match error {
            SeriesError::NoMemory { .. } => Postponed::ProcessMemory,
            _ => Postponed::NewSeries,
        });
    }

    /// Gives back all that it holds: who hears the answer finds the memory free.
    fn end(self) -> (oneshot::Sender<Result<Outcome, Refusal>>, Outcome) {
        let whole = self;
        let Self { reply, outcome, .. } = whole;
        (reply, outcome)
    }

    /// All of it is done.
    pub(crate) fn answer(self) {
        let (reply, outcome) = self.end();
        let _ = reply.send(Ok(outcome)); // nobody may be listening any more
    }

    /// Nothing of it is kept.
    pub(crate) fn turn_away(self, refusal: Refusal) {
        let (reply, _) = self.end();
        let _ = reply.send(Err(refusal));
    }
}
