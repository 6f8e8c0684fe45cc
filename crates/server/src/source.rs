//! The heads of all partitions, as the query engine's source of series.

use crate::node::Node;
use crate::owner::PartitionShared;
use head::{Filter, FilterKind, Selection, TenantHead};
use model::{ErrorKind, LabelsRef, Samples, SeriesRef, TenantId, TimeRange};
use query::{MatchOp, Matcher, Select, SeriesSet, SeriesSource, SourceError};
use roaring::RoaringBitmap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(test)]
mod tests;

/// One tenant's series.
#[derive(Debug)]
pub(crate) struct HeadSource<'a> {
    partitions: Vec<Arc<PartitionShared>>,
    tenant: TenantId,
    /// No series with more samples than this is unpacked.
    samples_max: u64,
    /// Nobody waits for the answer any more.
    cancelled: &'a AtomicBool,
}

impl<'a> HeadSource<'a> {
    pub(crate) fn new(node: &Node, tenant: TenantId, samples_max: u64, cancelled: &'a AtomicBool) -> Self {
        Self { partitions: node.partitions().to_vec(), tenant, samples_max, cancelled }
    }
}

impl SeriesSource for HeadSource<'_> {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let mut parts = Vec::with_capacity(self.partitions.len());
        for partition in &self.partitions {
            let turns = Turns { partition, tenant: &self.tenant, cancelled: self.cancelled };
            let series = turns.select(select.matchers).map_err(|Cancelled| SourceError {
                kind: ErrorKind::Unavailable,
                message: "the query was cancelled".into(),
            })?;
            parts.push((&**partition, series.into_iter()));
        }
        let left = parts.iter().map(|(_, s)| s.len()).sum();
        Ok(Box::new(HeadSet {
            parts,
            at: 0,
            current: None,
            tenant: &self.tenant,
            range: select.range,
            samples_max: self.samples_max,
            unpack_max: self.samples_max,
            left,
            labels: Vec::new(),
        }))
    }
}

/// Calls `f` with the matchers as the head's filters.
fn with_filters<R>(matchers: &[Matcher], f: impl FnOnce(&[Filter<'_>]) -> R) -> R {
    let predicates: Vec<_> = matchers.iter().map(|m| move |value: &str| m.matches(value)).collect();
    let filters: Vec<_> = matchers
        .iter()
        .zip(&predicates)
        .map(|(m, predicate)| Filter {
            name: &m.name,
            kind: match (m.op, m.set_matches()) {
                (MatchOp::Equal, _) => FilterKind::Equal(&m.value),
                (MatchOp::Regex, Some(values)) => FilterKind::OneOf(values),
                _ => FilterKind::Predicate(predicate),
            },
        })
        .collect();
    f(&filters)
}

/// A pass over selected series. The lock is taken for one series at a time, so a long query never keeps the
/// owner waiting. Series are never removed while the process lives, so references stay good in between.
struct HeadSet<'a> {
    parts: Vec<(&'a PartitionShared, roaring::bitmap::IntoIter)>,
    at: usize,
    current: Option<SeriesRef>,
    tenant: &'a TenantId,
    range: TimeRange,
    /// No series with more samples than this is unpacked: what the query has left, and what it has in all.
    samples_max: u64,
    unpack_max: u64,
    left: usize,
    labels: Vec<u8>,
}

impl SeriesSet for HeadSet<'_> {
    fn next(&mut self, samples: &mut Samples) -> Result<bool, SourceError> {
        samples.clear();
        self.labels.clear();
        while let Some((partition, series)) = self.parts.get_mut(self.at) {
            if let Some(series) = series.next() {
                let series = SeriesRef(series);
                let head = partition.head.read();
                let head = head.tenant(self.tenant).expect("BUG: a tenant's head went away");
                // well packed samples take a hundredth of what they take unpacked
                let most = head.samples_at_most(series, self.range) as u64;
                if most > self.samples_max {
                    return Err(too_many_samples(most, self.samples_max));
                }
                make_room(samples, most as usize);
                head.read(series, self.range, samples);
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
            let series = self.current.expect("BUG: labels() before next()");
            let head = self.parts[self.at].0.head.read();
            let head = head.tenant(self.tenant).expect("BUG: a tenant's head went away");
            head.write_labels(series, &mut self.labels);
        }
        LabelsRef::from_canonical(&self.labels)
    }

    fn len_hint(&self) -> usize {
        self.left
    }
}

/// Makes room for `count` samples at once: columns that grow as they are filled take up to twice as much, and
/// three times while they move. What is in them is not moved, for nothing is.
fn make_room(samples: &mut Samples, count: usize) {
    if samples.timestamps.capacity() < count {
        *samples = Samples::default();
        let count = count.next_multiple_of(128);
        samples.timestamps.reserve_exact(count);
        samples.values.reserve_exact(count);
    }
}

fn too_many_samples(count: u64, most: u64) -> SourceError {
    let message = format!(
        "query processing would load too many samples into memory: {count} of one series, where {most} is the most"
    );
    SourceError { kind: ErrorKind::TooLarge, message }
}

/// Long work on a tenant's head in one partition, done in turns: the lock is let go of in between, so that the
/// owner never waits for longer than a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns<'a> {
    pub(crate) partition: &'a PartitionShared,
    pub(crate) tenant: &'a TenantId,
    /// Looked at before each turn.
    pub(crate) cancelled: &'a AtomicBool,
}

/// Nobody waits for the answer any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cancelled;

impl Turns<'_> {
    /// Takes turns until one says that it was the last; none where the tenant has nothing here.
    pub(crate) fn until_done(&self, mut turn: impl FnMut(&TenantHead) -> bool) -> Result<(), Cancelled> {
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(Cancelled);
            }
            let head = self.partition.head.read();
            if head.tenant(self.tenant).is_none_or(&mut turn) {
                return Ok(());
            }
        }
    }

    /// The series that pass all matchers.
    pub(crate) fn select(&self, matchers: &[Matcher]) -> Result<RoaringBitmap, Cancelled> {
        with_filters(matchers, |filters| {
            let mut selection = Selection::new(filters);
            self.until_done(|head| selection.advance(head))?;
            Ok(selection.into_series())
        })
    }

    /// The series that any of the selectors selects; all of them (None) where there is no selector.
    pub(crate) fn select_any(&self, selectors: &[Vec<Matcher>]) -> Result<Option<RoaringBitmap>, Cancelled> {
        let mut any = None;
        for matchers in selectors {
            *any.get_or_insert_with(RoaringBitmap::new) |= self.select(matchers)?;
        }
        Ok(any)
    }
}
