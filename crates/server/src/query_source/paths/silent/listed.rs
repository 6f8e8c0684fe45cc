//! A list of names, and which of them had a series.

use super::labels_of;
use crate::query_source::paths::Snapshot;
use crate::query_source::paths::globs::{GlobSource, Why};
use crate::query_source::{Canceled, canceled};
use ::paths::{Node, Pattern, Stopped, find};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, LabelsRef, SeriesKey, TimeRange};
use query::{Matcher, SourceError};

pub(in crate::query_source::paths) struct Listed {
    /// Has the list.
    matcher: Matcher,
    /// False if some of the names may belong to no metric.
    do_all_exist: bool,
    /// For each name, whether there was a series.
    is_seen: Vec<bool>,
    /// The name that is tried next.
    at: usize,
    bytes: u64,
}

impl Listed {
    /// `bytes` is the memory of the list that is to be charged.
    pub(in crate::query_source::paths) fn new(matcher: Matcher, do_all_exist: bool, bytes: u64) -> Self {
        let count = matcher.set_matches().map_or(0, <[String]>::len);
        Self { matcher, do_all_exist, is_seen: vec![false; count], at: 0, bytes }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn see(&mut self, labels: LabelsRef<'_>) {
        let (names, name) = (self.matcher.set_matches(), labels.get(METRIC_NAME).unwrap_or_default());
        let position = names.and_then(|names| names.binary_search_by(|other| other.as_str().cmp(name)).ok());
        if let Some(position) = position {
            self.is_seen[position] = true;
        }
    }

    pub(super) const fn give_up(&mut self) {
        self.at = usize::MAX;
    }

    /// True if a name without a series may belong to no metric.
    pub(super) fn needs_index(&self) -> bool {
        !self.do_all_exist && self.is_seen.get(self.at..).is_some_and(|rest| rest.contains(&false))
    }

    /// The next metric without a series.
    pub(super) fn next(
        &mut self,
        globs: &GlobSource<'_>,
        range: TimeRange,
        index: Option<&Snapshot>,
        builder: &mut LabelsBuilder,
    ) -> Result<Option<Labels>, SourceError> {
        let names = self.matcher.set_matches().unwrap_or_default();
        while let Some(name) = names.get(self.at) {
            self.at += 1;
            if self.is_seen[self.at - 1] {
                continue;
            }
            let Some(labels) = labels_of(builder, name) else { continue };
            if !self.do_all_exist {
                let Some(index) = index else {
                    globs.leave_out_silent(Why::NoIndex);
                    self.at = usize::MAX;
                    return Ok(None);
                };
                if !globs.is_silent(name, range, index)? {
                    globs.check(index);
                    continue;
                }
            }
            return Ok(Some(labels));
        }
        Ok(None)
    }
}

impl GlobSource<'_> {
    /// The index for metrics of which there was no series.
    pub(super) fn late_index(&self) -> Result<Option<Snapshot>, SourceError> {
        let index = self.context.paths.awaited(self.context, self.tenant, &*self.interrupt, self.wait);
        index.map_err(|Canceled| canceled())
    }

    /// True if the index has a metric of this name. One that was born after the series were selected, and has samples in the range, is left
    /// out.
    fn is_silent(&self, name: &str, range: TimeRange, index: &Snapshot) -> Result<bool, SourceError> {
        if self.interrupt.is_set() {
            return Err(canceled());
        }
        let Ok(pattern) = Pattern::of_name(name) else { return Ok(false) };
        if self.has_fresh_samples(name, range) {
            return Ok(false);
        }
        let mut is_metric = false;
        let select = |node: Node<'_>| {
            is_metric |= node.is_leaf;
            !is_metric
        };
        find(&index.runs, &pattern, select, || !self.interrupt.is_set()).map_err(|Stopped| canceled())?;
        Ok(is_metric)
    }

    fn has_fresh_samples(&self, name: &str, range: TimeRange) -> bool {
        let Some(labels) = labels_of(&mut LabelsBuilder::new(), name) else { return false };
        let (key, partitions) =
            (SeriesKey::of(labels.as_bytes(), self.context.seed), &self.context.partitions);
        let head = partitions[key.partition(partitions.len())].head.read();
        let head = head.tenant(self.tenant);
        head.is_some_and(|head| head.find(key).is_some_and(|series| head.samples_at_most(series, range) > 0))
    }
}
