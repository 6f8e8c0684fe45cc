//! The heads of all partitions, as the query engine's source of series.

use crate::node::Node;
use crate::owner::PartitionShared;
use head::{Filter, FilterKind};
use model::{LabelsRef, Samples, SeriesRef, TenantId, TimeRange};
use query::{MatchOp, Matcher, Select, SeriesSet, SeriesSource, SourceError};
use roaring::RoaringBitmap;
use std::sync::Arc;

/// One tenant's series.
#[derive(Debug)]
pub(crate) struct HeadSource {
    partitions: Vec<Arc<PartitionShared>>,
    tenant: TenantId,
}

impl HeadSource {
    pub(crate) fn new(node: &Node, tenant: TenantId) -> Self {
        Self { partitions: node.partitions().to_vec(), tenant }
    }
}

impl SeriesSource for HeadSource {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let mut parts = Vec::with_capacity(self.partitions.len());
        for partition in &self.partitions {
            let head = partition.head.read();
            if let Some(head) = head.tenant(&self.tenant) {
                let series = with_filters(select.matchers, |filters| head.select(filters));
                parts.push((&**partition, series.into_iter()));
            }
        }
        let left = parts.iter().map(|(_, s)| s.len()).sum();
        Ok(Box::new(HeadSet {
            parts,
            at: 0,
            current: None,
            tenant: &self.tenant,
            range: select.range,
            left,
            labels: Vec::new(),
        }))
    }
}

/// Calls `f` with the matchers as the head's filters.
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

/// The series that any of the selectors selects; all of them where there is no selector.
pub(crate) fn select_any(head: &head::TenantHead, selectors: &[Vec<Matcher>]) -> Option<RoaringBitmap> {
    let mut any: Option<RoaringBitmap> = None;
    for matchers in selectors {
        let these = with_filters(matchers, |filters| head.select(filters));
        any = Some(any.map_or_else(|| these.clone(), |a| a | &these));
    }
    any
}
