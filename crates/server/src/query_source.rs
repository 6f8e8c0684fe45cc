//! Heads and tables as the query engine's source of series.
//!
//! - [`union`]: heads and tables merged
//! - [`across`]: several tenants
//! - [`graphite`]: Graphite's view of series
//! - this module: series of heads, and long work on a head, in turns

mod across;
mod context;
pub(crate) mod detail;
mod graphite;
pub(crate) mod label_queries;
pub(crate) mod paths;
mod queried;
mod tenant_label;
mod union;

pub(crate) use across::Across;
pub(crate) use context::Context;
pub use graphite::Schemas;
pub(crate) use queried::QueriedMetrics;
use union::canceled;
pub(crate) use union::{LeftOut, Source, list, tables_select};

use crate::partition::shared::PartitionShared;
use crate::seal::pins::Pin;
use head::{Filter, FilterKind, Selection, TenantHead};
use model::caps::HISTOGRAM_BYTES_MAX;
use model::{ErrorKind, LabelsRef, Samples, SeriesRef, SeriesSamples, TenantId, TimeRange, ValueKind};
use query::{Interrupt, MatchOp, Matcher, SeriesSet, SourceError};
use roaring::RoaringBitmap;
use union::{Leases, Recorder};

#[cfg(test)]
mod tests;

pub(crate) fn with_filters<R>(matchers: &[Matcher], f: impl FnOnce(&[Filter<'_>]) -> R) -> R {
    let predicates: Vec<_> = matchers.iter().map(|m| move |value: &str| m.matches(value)).collect();
    let filters: Vec<_> = matchers
        .iter()
        .zip(&predicates)
        .map(|(m, predicate)| Filter {
            name: &m.name,
            kind: match (m.op, m.set_matches()) {
                (MatchOp::Equal, _) => FilterKind::Equal(&m.value),
                (MatchOp::Regex, Some(values)) => FilterKind::OneOf(values),
                _ if m.needs_engine() => FilterKind::Pattern { prefix: m.prefix(), matches: predicate },
                _ => FilterKind::Predicate(predicate),
            },
        })
        .collect();
    f(&filters)
}

/// Iterator over the selected series of all heads. The head is locked for one series at a time; pins or leases keep the
/// references valid in between.
struct HeadSet<'a> {
    parts: Vec<(&'a PartitionShared, roaring::bitmap::IntoIter)>,
    at: usize,
    current: Option<SeriesRef>,
    tenant: &'a TenantId,
    range: TimeRange,
    /// Limit on the samples of the next series: as many as the query may still read.
    samples_max: u64,
    /// Upper bound on `samples_max`: as many samples as the query may read in total.
    unpack_max: u64,
    left: usize,
    labels: Vec<u8>,
    pin: &'a Pin,
    recorder: Option<Recorder<'a>>,
    /// `None` if the source has pinned the heads.
    leases: Option<Leases<'a>>,
}

impl<'a> HeadSet<'a> {
    fn new(
        parts: impl Iterator<Item = (&'a PartitionShared, RoaringBitmap)>,
        tenant: &'a TenantId,
        range: TimeRange,
        samples_max: u64,
        pin: &'a Pin,
        recorder: Option<Recorder<'a>>,
        leases: Option<Leases<'a>>,
    ) -> Self {
        let parts: Vec<_> = parts.map(|(partition, series)| (partition, series.into_iter())).collect();
        let left = parts.iter().map(|(_, s)| s.len()).sum();
        let (unpack_max, labels) = (samples_max, Vec::new());
        Self {
            parts,
            at: 0,
            current: None,
            tenant,
            range,
            samples_max,
            unpack_max,
            left,
            labels,
            pin,
            recorder,
            leases,
        }
    }
}

impl SeriesSet for HeadSet<'_> {
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError> {
        samples.clear_for(ValueKind::Float);
        self.labels.clear();
        while let Some((partition, left)) = self.parts.get_mut(self.at) {
            if let Some(series) = left.next() {
                let series = SeriesRef(series);
                let head = partition.head.read();
                if let Some(leases) = self.leases.as_mut().filter(|leases| leases.is_revoked(self.at)) {
                    drop(head);
                    *left = leases.renew(self.at, series)?.into_iter();
                    // a series that is not found again can only be missing because its samples are in tables now
                    if self.pin.is_expired() {
                        return Err(union::expired());
                    }
                    continue;
                }
                let head = head.tenant(self.tenant).expect("BUG: a tenant's head disappeared");
                // checked before unpacking, because unpacked samples may take a hundred times more memory
                let most = head.samples_at_most(series, self.range);
                let weight = match head.kind(series) {
                    ValueKind::Float => 1,
                    ValueKind::Histogram => HISTOGRAM_WEIGHT,
                };
                if most as u64 * weight > self.samples_max {
                    return Err(too_many_samples(most as u64 * weight, self.samples_max));
                }
                samples.clear_for(head.kind(series));
                match samples {
                    SeriesSamples::Floats(samples) => make_room(samples, most),
                    SeriesSamples::Histograms(samples) => make_room(samples, most),
                }
                head.read_any(series, self.range, samples);
                // sealed samples stay in the head while the pin is valid, so nothing is missing if it is valid now,
                // after reading, with the head still locked
                if self.pin.is_expired() {
                    return Err(union::expired());
                }
                if let Some(recorder) = &mut self.recorder {
                    recorder.series_of_head(self.at, head.metric_name(series));
                }
                if self.leases.is_some() {
                    head.write_labels(series, &mut self.labels); // the lease may be revoked before `labels` is called
                }
                self.current = Some(series);
                self.left = self.left.saturating_sub(1);
                return Ok(true);
            }
            self.at += 1;
        }
        self.current = None;
        Ok(false)
    }

    fn limit(&mut self, samples_max: u64) {
        self.samples_max = samples_max.min(self.unpack_max);
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        if self.labels.is_empty() {
            let series = self.current.expect("BUG: labels() was called before next()");
            let head = self.parts[self.at].0.head.read();
            let head = head.tenant(self.tenant).expect("BUG: a tenant's head disappeared");
            head.write_labels(series, &mut self.labels);
        }
        LabelsRef::from_canonical(&self.labels)
    }

    fn len_hint(&self) -> usize {
        self.left
    }
}

/// A native histogram counts as this many samples of 16 bytes, because the largest possible one takes this much
/// memory.
const HISTOGRAM_WEIGHT: u64 = HISTOGRAM_BYTES_MAX as u64 / 16;

/// Allocates room for `count` samples at once, because columns that grow step by step take up to three times the
/// memory. `samples` must be empty.
fn make_room<V>(samples: &mut Samples<V>, count: usize) {
    if samples.timestamps.capacity() < count {
        *samples = Samples::default();
        let count = count.next_multiple_of(128);
        samples.timestamps.reserve_exact(count);
        samples.values.reserve_exact(count);
    }
}

fn too_many_samples(count: u64, most: u64) -> SourceError {
    let message = format!(
        "query processing would load too many samples into memory: {count} of one series, the limit is {most} \
         (settings query_samples and query_memory, or memory, on which both depend)"
    );
    SourceError { kind: ErrorKind::TooLarge, message }
}

/// Does long work on a tenant's head of one partition in several turns. The head is locked only during a turn.
#[derive(Debug)]
pub(crate) struct Turns<'a> {
    pub(crate) partition: &'a PartitionShared,
    tenant: &'a TenantId,
    /// Checked before each turn, and for each value that is matched against a pattern.
    canceled: &'a dyn Interrupt,
    /// Keeps references valid between turns.
    _pin: head::Pin,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Canceled;

impl<'a> Turns<'a> {
    pub(crate) fn new(
        partition: &'a PartitionShared,
        tenant: &'a TenantId,
        canceled: &'a dyn Interrupt,
    ) -> Self {
        let pin = partition.head.read().pin();
        Self { partition, tenant, canceled, _pin: pin }
    }

    pub(crate) fn until_done(&self, mut turn: impl FnMut(&TenantHead) -> bool) -> Result<(), Canceled> {
        while !self.turn(&mut turn)? {}
        Ok(())
    }

    /// Calls `turn` with the locked head, and returns its result: true if the work on this partition is done. Also
    /// returns true if the tenant has no series in this partition.
    pub(crate) fn turn(&self, turn: impl FnMut(&TenantHead) -> bool) -> Result<bool, Canceled> {
        if self.canceled.is_set() {
            return Err(Canceled);
        }
        let head = self.partition.head.read();
        Ok(head.tenant(self.tenant).is_none_or(turn))
    }

    pub(crate) fn select(&self, matchers: &[Matcher]) -> Result<RoaringBitmap, Canceled> {
        with_filters(matchers, |filters| {
            let mut selection = Selection::new(filters);
            while !self.turn(|head| selection.advance(head))? {
                selection.test(|| !self.canceled.is_set());
            }
            Ok(selection.into_series())
        })
    }

    /// Returns the series that match at least one of the selectors. Without selectors, returns `None`, which means
    /// all series.
    pub(crate) fn select_any(&self, selectors: &[Vec<Matcher>]) -> Result<Option<RoaringBitmap>, Canceled> {
        let mut any = None;
        for matchers in selectors {
            *any.get_or_insert_with(RoaringBitmap::new) |= self.select(matchers)?;
        }
        Ok(any)
    }
}
