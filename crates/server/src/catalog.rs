//! What there is: label names and values, series, metadata, exemplars. Answers come sorted.

use crate::node::Node;
use crate::source::select_any;
use model::{Exemplar, Labels, LabelsRef, Metadata, Samples, SeriesRef, TenantId, TimeRange};
use query::Matcher;
use std::collections::{BTreeMap, BTreeSet};

/// One tenant's catalog.
#[derive(Debug)]
pub(crate) struct Catalog<'a> {
    pub(crate) node: &'a Node,
    pub(crate) tenant: &'a TenantId,
}

/// Series (of any of `selectors`; all where there are none) with a limit.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) selectors: &'a [Vec<Matcher>],
    pub(crate) range: TimeRange,
    /// How many answers are wanted at the most.
    pub(crate) limit: usize,
}

/// An answer, and whether the limit cut it.
pub(crate) type Limited<T> = (Vec<T>, bool);

impl Catalog<'_> {
    pub(crate) fn label_names(&self, ask: &Ask<'_>) -> Limited<String> {
        self.texts(ask, |head, among, out| out.extend(head.label_names(among).map(String::from)))
    }

    pub(crate) fn label_values(&self, name: &str, ask: &Ask<'_>) -> Limited<String> {
        self.texts(ask, |head, among, out| out.extend(head.label_values(name, among).map(String::from)))
    }

    fn texts(
        &self,
        ask: &Ask<'_>,
        mut collect: impl FnMut(&head::TenantHead, Option<&roaring::RoaringBitmap>, &mut Vec<String>),
    ) -> Limited<String> {
        let mut all = Vec::new();
        for partition in self.node.partitions() {
            let head = partition.head.read();
            if let Some(head) = head.tenant(self.tenant) {
                let among = select_any(head, ask.selectors);
                collect(head, among.as_ref(), &mut all);
            }
        }
        all.sort_unstable();
        all.dedup();
        let cut = all.len() > ask.limit;
        all.truncate(ask.limit);
        (all, cut)
    }

    /// Series that have a sample in the range.
    pub(crate) fn series(&self, ask: &Ask<'_>) -> Limited<Labels> {
        let mut found = BTreeSet::new();
        let mut samples = Samples::default();
        let mut bytes = Vec::new();
        for partition in self.node.partitions() {
            let selected = {
                let head = partition.head.read();
                head.tenant(self.tenant).and_then(|head| select_any(head, ask.selectors))
            };
            for series in selected.into_iter().flatten().map(SeriesRef) {
                let head = partition.head.read();
                let head = head.tenant(self.tenant).expect("BUG: a tenant's head went away");
                samples.clear();
                head.read(series, ask.range, &mut samples);
                if !samples.is_empty() {
                    bytes.clear();
                    head.write_labels(series, &mut bytes);
                    found.insert(LabelsRef::from_canonical(&bytes).to_owned());
                }
                if found.len() > ask.limit {
                    found.pop_last();
                    return (found.into_iter().collect(), true);
                }
            }
        }
        (found.into_iter().collect(), false)
    }

    /// Metadata by metric; with `metric`, only that one's.
    pub(crate) fn metadata(&self, metric: Option<&str>, limit: usize) -> BTreeMap<String, Metadata> {
        let mut all = BTreeMap::new();
        for partition in self.node.partitions() {
            let head = partition.head.read();
            let Some(head) = head.tenant(self.tenant) else { continue };
            match metric {
                Some(metric) => all.extend(head.metadata_of(metric).map(|m| (metric.to_string(), m.clone()))),
                None => all.extend(head.metadata().map(|m| (m.metric.clone(), m.clone()))),
            }
        }
        while all.len() > limit {
            all.pop_last();
        }
        all
    }

    /// Exemplars in the range, by series.
    pub(crate) fn exemplars(&self, ask: &Ask<'_>) -> BTreeMap<Labels, Vec<Exemplar>> {
        let mut all: BTreeMap<Labels, Vec<Exemplar>> = BTreeMap::new();
        let mut bytes = Vec::new();
        for partition in self.node.partitions() {
            let head = partition.head.read();
            let Some(head) = head.tenant(self.tenant) else { continue };
            let Some(selected) = select_any(head, ask.selectors) else { continue };
            for (series, exemplar) in head.exemplars() {
                if selected.contains(series.0) && ask.range.contains(exemplar.timestamp_ms) {
                    bytes.clear();
                    head.write_labels(*series, &mut bytes);
                    let labels = LabelsRef::from_canonical(&bytes).to_owned();
                    all.entry(labels).or_default().push(exemplar.clone());
                }
            }
        }
        all.values_mut().for_each(|list| list.sort_by_key(|e| e.timestamp_ms));
        all
    }
}
