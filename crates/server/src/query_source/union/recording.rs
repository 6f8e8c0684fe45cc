//! Records which metrics a query selects.
//!
//! If a selector names no metric, such as `{job="a"}`, the names of its series are recorded when they are read.

use super::{Source, names_of};
use crate::query_source::QueriedMetrics;
use model::labels::METRIC_NAME;
use model::{LabelsRef, SeriesSamples, TenantId};
use query::{Bucket, BucketSet, Matcher, Rolled, SeriesSet, SourceError};

#[derive(Debug, Clone, Copy)]
struct Notes<'a> {
    queried: &'a QueriedMetrics,
    tenant: &'a TenantId,
    now_s: u32,
    /// False for unknown tenants. Nothing is recorded for these tenants, to save memory.
    is_present: bool,
}

impl<'a> Notes<'a> {
    fn of(source: &'a Source<'_>) -> Self {
        let (context, tenant) = (source.context, &source.tenant);
        let is_in_memory = || context.partitions.iter().any(|p| p.head.read().tenant(tenant).is_some());
        let is_present = context.lake.tables.is_known(tenant) || is_in_memory();
        Self { queried: &context.queried, tenant, now_s: context.steady_s(), is_present }
    }

    fn note(self, name: &str) {
        if self.is_present {
            self.queried.note(self.tenant, name, self.now_s);
        }
    }

    /// Records the metrics that a selector names. Returns false if there are none.
    fn named(self, matchers: &[Matcher]) -> bool {
        let Some(names) = names_of(matchers) else { return false };
        names.iter().for_each(|name| self.note(name));
        true
    }

    fn series(self, labels: LabelsRef<'_>) {
        let name = labels.get(METRIC_NAME).unwrap_or_default();
        self.note(name);
    }
}

/// Records the metrics that a selector names, or else the metrics of the series read from `set`.
pub(super) fn series<'a>(
    source: &'a Source<'_>,
    matchers: &[Matcher],
    set: Box<dyn SeriesSet + 'a>,
) -> Box<dyn SeriesSet + 'a> {
    let notes = Notes::of(source);
    if notes.named(matchers) { set } else { Box::new(Recording { set, notes }) }
}

/// Like [`series`], for a selection from a rollup.
pub(super) fn rolled<'a>(source: &'a Source<'_>, matchers: &[Matcher], rolled: Rolled<'a>) -> Rolled<'a> {
    let notes = Notes::of(source);
    if notes.named(matchers) {
        return rolled;
    }
    Rolled { set: Box::new(Recording { set: rolled.set, notes }), ..rolled }
}

struct Recording<'a, S: ?Sized> {
    set: Box<S>,
    notes: Notes<'a>,
}

impl<'a> SeriesSet for Recording<'a, dyn SeriesSet + 'a> {
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError> {
        let is_one = self.set.next(samples)?;
        if is_one {
            self.notes.series(self.set.labels());
        }
        Ok(is_one)
    }

    fn limit(&mut self, samples_max: u64) {
        self.set.limit(samples_max);
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        self.set.labels()
    }

    fn len_hint(&self) -> usize {
        self.set.len_hint()
    }
}

impl<'a> BucketSet for Recording<'a, dyn BucketSet + 'a> {
    fn next(&mut self, buckets: &mut Vec<Bucket>) -> Result<bool, SourceError> {
        let is_one = self.set.next(buckets)?;
        if is_one {
            self.notes.series(self.set.labels());
        }
        Ok(is_one)
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        self.set.labels()
    }
}
