//! Records which metrics a query selects, for the list of metrics that no query uses.
//!
//! If a selector names no metric, as in `{job="a"}`, the metrics are recorded when series are read.

use super::{Source, names_of};
use crate::query_source::QueriedMetrics;
use model::labels::METRIC_NAME;
use model::{LabelsRef, TenantId};
use query::{Bucket, BucketSet, Matcher, Rolled, SourceError};

#[derive(Debug, Clone, Copy)]
struct Notes<'a> {
    queried: &'a QueriedMetrics,
    tenant: &'a TenantId,
    now_s: u32,
    /// False for unknown tenants. To save memory, nothing is recorded for them.
    is_present: bool,
}

impl<'a> Notes<'a> {
    fn of(source: &'a Source<'_>) -> Self {
        let (context, tenant) = (source.context, &source.tenant);
        let is_present = context.has_data(tenant);
        Self { queried: &context.queried, tenant, now_s: context.steady_s(), is_present }
    }

    fn note(self, name: &str) {
        if self.is_present {
            self.queried.note(self.tenant, name, self.now_s);
        }
    }

    /// Records the metrics that a selector names. Returns false if it names none.
    fn named(self, matchers: &[Matcher]) -> bool {
        let Some(names) = names_of(matchers) else { return false };
        names.iter().for_each(|name| self.note(name));
        true
    }
}

const REMEMBERED: usize = 8192;

/// Records the metrics of the series that are read. It remembers recent metrics, so that most series need no further
/// work.
#[derive(Debug)]
pub(crate) struct Recorder<'a> {
    notes: Notes<'a>,
    /// Metric of the last series that was read from tables. Tables are sorted by metric, so the next series usually
    /// has the same.
    latest: String,
    /// Index of the head that `remembered` belongs to, among the heads that are read.
    part: usize,
    /// Metrics of this head that are already recorded. If the label pair of a metric has the number `n`, then `n + 1`
    /// is stored at index `n % REMEMBERED`.
    remembered: Vec<u32>,
}

impl<'a> Recorder<'a> {
    /// Records the metrics that a selector names. If it names none, returns a recorder for the metrics of the series
    /// that are read.
    pub(super) fn of(source: &'a Source<'_>, matchers: &[Matcher]) -> Option<Self> {
        let notes = Notes::of(source);
        (!notes.named(matchers)).then(|| Self::new(notes))
    }

    fn new(notes: Notes<'a>) -> Self {
        Self { notes, latest: String::new(), part: 0, remembered: Vec::new() }
    }

    pub(super) fn series(&mut self, labels: LabelsRef<'_>) {
        let name = labels.get(METRIC_NAME).unwrap_or_default();
        if name != self.latest || name.is_empty() {
            self.notes.note(name);
            name.clone_into(&mut self.latest);
        }
    }

    /// Records the metric of a series that was read from a head. `part` is the index of this head among the heads that
    /// are read. `metric` has the metric's name, and the number that the head has given to the label pair with this
    /// name. It is `None` if the series has no metric name.
    pub(crate) fn series_of_head(&mut self, part: usize, metric: Option<(u32, &str)>) {
        let Some((number, name)) = metric else { return self.notes.note("") };
        if self.part != part || self.remembered.is_empty() {
            self.part = part;
            self.remembered.clear();
            self.remembered.resize(REMEMBERED, 0);
        }
        let remembered = &mut self.remembered[number as usize % REMEMBERED];
        if *remembered != number + 1 {
            *remembered = number + 1;
            self.notes.note(name);
        }
    }
}

pub(super) fn rolled<'a>(source: &'a Source<'_>, matchers: &[Matcher], rolled: Rolled<'a>) -> Rolled<'a> {
    match Recorder::of(source, matchers) {
        None => rolled,
        Some(recorder) => Rolled { set: Box::new(Recording { set: rolled.set, recorder }), ..rolled },
    }
}

struct Recording<'a> {
    set: Box<dyn BucketSet + 'a>,
    recorder: Recorder<'a>,
}

impl BucketSet for Recording<'_> {
    fn next(&mut self, buckets: &mut Vec<Bucket>) -> Result<bool, SourceError> {
        let is_one = self.set.next(buckets)?;
        if is_one {
            self.recorder.series(self.set.labels());
        }
        Ok(is_one)
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        self.set.labels()
    }
}
