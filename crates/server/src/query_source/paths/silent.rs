//! Metrics that a glob matches, but that have no sample in the range.
//!
//! Whisper has a file for them, so graphite-web answers with nulls, and alerts on metrics that have fallen silent depend on it.
//! Heads return their series whatever the range, tables only those of files that reach into it. The names of the others are in the
//! index. Without it they are left out, with a warning: finding them in the table would take longer than the query itself. They are also
//! left out if they would take too much memory, so that a query never fails because of them.

use super::Snapshot;
use super::globs::{GlobSource, Why};
use crate::query_source::{Canceled, canceled};
use ::paths::{Node, Pattern, Stopped, find};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, LabelsRef, SeriesKey, SeriesSamples, TimeRange, ValueKind};
use query::graphite::Glob;
use query::{Matcher, SeriesSet, SourceError};
use std::collections::HashSet;

/// A pass over series, and then over the names of metrics of which it had no series.
pub(super) struct WithSilent<'a> {
    globs: &'a GlobSource<'a>,
    set: Box<dyn SeriesSet + 'a>,
    range: TimeRange,
    /// As it was before the series were selected, because a series that was born later may have samples in the range; or, if there was
    /// none, a later one for [`GlobSource::is_silent`].
    index: Option<Snapshot>,
    names: Names,
    is_at_silent: bool,
    builder: LabelsBuilder,
    /// The silent metric.
    current: Labels,
}

/// What is known of the names that are selected.
pub(super) enum Names {
    Listed(Listed),
    /// The glob, and the names that were found.
    Matching(Glob, Found),
}

/// A list of names.
pub(super) struct Listed {
    /// Has the list.
    matcher: Matcher,
    /// False if some of the names may belong to no metric.
    do_all_exist: bool,
    /// For each name, whether there was a series.
    is_seen: Vec<bool>,
    /// The name that is tried next.
    at: usize,
    list_bytes: u64,
}

/// Names that were found in any order.
pub(super) struct Found {
    /// All of them, as long as they fit into the memory. `None` if there is no need to know, because silent metrics are left out.
    seen: Option<HashSet<SeriesKey>>,
    /// Those without a series. The last one comes first.
    silent: Vec<Labels>,
    silent_bytes: u64,
    /// What the names may take at most.
    bytes_max: u64,
}

/// There is no memory for the names.
struct Full;

/// Memory for each key that a hash table has room for: 7/8 of its places, and it has another byte for each place.
const KEY_BYTES: u64 = (8 * (size_of::<SeriesKey>() as u64 + 1)).div_ceil(7);

/// Memory of a name in a list that grows by doubling, besides its text.
const NAME_BYTES: u64 = 3 * size_of::<Labels>() as u64 + 16;

impl Names {
    pub(super) fn listed(matcher: Matcher, do_all_exist: bool, list_bytes: u64) -> Self {
        let count = matcher.set_matches().map_or(0, <[String]>::len);
        Self::Listed(Listed { matcher, do_all_exist, is_seen: vec![false; count], at: 0, list_bytes })
    }
}

impl<'a> WithSilent<'a> {
    pub(super) fn new(
        globs: &'a GlobSource<'a>,
        set: Box<dyn SeriesSet + 'a>,
        range: TimeRange,
        index: Option<Snapshot>,
        names: Names,
    ) -> Self {
        let (builder, current) = (LabelsBuilder::new(), Labels::empty());
        Self { globs, set, range, index, names, is_at_silent: false, builder, current }
    }

    /// Moves to the next silent metric.
    fn next_silent(&mut self) -> Result<bool, SourceError> {
        if let (Names::Listed(listed), None) = (&mut self.names, &self.index)
            && listed.needs_index()
        {
            self.index = self.globs.late_index()?;
        }
        let next = match &mut self.names {
            Names::Listed(listed) => {
                let name = listed.next(self.globs, self.range, self.index.as_ref())?;
                name.and_then(|name| labels_of(&mut self.builder, name))
            }
            Names::Matching(_, found) => found.silent.pop(),
        };
        Ok(next.map(|labels| self.current = labels).is_some())
    }

    fn find_silent(&mut self) -> Result<(), SourceError> {
        let Self { globs, index, names: Names::Matching(glob, found), builder, .. } = self else {
            return Ok(());
        };
        let Some(index) = index else {
            globs.leave_out_silent(Why::NoIndex);
            return Ok(());
        };
        globs.check(index);
        if found.seen.is_none() {
            globs.leave_out_silent(Why::NoMemory);
            return Ok(());
        }
        let pattern = GlobSource::pattern_of(glob).or_else(|| Pattern::parse("**").ok());
        let pattern = pattern.expect("BUG: there is no pattern of all names");
        let mut added = Ok(());
        let select = |node: Node<'_>| {
            if node.is_leaf
                && glob.matches(node.path)
                && let Some(labels) = labels_of(builder, node.path)
            {
                added = found.add(labels, globs.context.seed);
            }
            added.is_ok()
        };
        let go_on = || !globs.interrupt.is_set();
        find(&index.runs, &pattern, select, go_on).map_err(|Stopped| canceled())?;
        if let Err(Full) = added {
            found.give_up();
            globs.leave_out_silent(Why::NoMemory);
        }
        Ok(())
    }
}

impl SeriesSet for WithSilent<'_> {
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError> {
        if !self.is_at_silent {
            if self.set.next(samples)? {
                let labels = self.set.labels();
                if samples.kind() == ValueKind::Float && labels.iter().count() == 1 {
                    match &mut self.names {
                        Names::Listed(listed) => listed.see(labels),
                        Names::Matching(_, found) => {
                            let key = SeriesKey::of(labels.as_bytes(), self.globs.context.seed);
                            if let Err(Full) = found.see(key) {
                                found.give_up(); // names are an extra: they must not cost samples
                            }
                        }
                    }
                }
                return Ok(true);
            }
            self.is_at_silent = true;
            self.find_silent()?;
        }
        if self.globs.interrupt.is_set() {
            return Err(canceled());
        }
        samples.clear_for(ValueKind::Float);
        self.next_silent()
    }

    fn limit(&mut self, samples_max: u64) {
        if let Names::Matching(_, found) = &mut self.names {
            found.bytes_max = found.bytes().saturating_add(samples_max.saturating_mul(8));
        }
        self.set.limit(samples_max);
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        if self.is_at_silent { self.current.as_ref() } else { self.set.labels() }
    }

    fn len_hint(&self) -> usize {
        self.set.len_hint()
    }

    fn leave_out_silent(&mut self) {
        self.globs.leave_out_silent(Why::NoMemory);
        match &mut self.names {
            Names::Listed(listed) => listed.at = usize::MAX,
            Names::Matching(_, found) => found.give_up(),
        }
    }

    fn names_bytes(&self) -> u64 {
        match &self.names {
            Names::Listed(listed) => listed.list_bytes,
            Names::Matching(_, found) => found.bytes(),
        }
    }
}

impl Listed {
    fn see(&mut self, labels: LabelsRef<'_>) {
        let (names, name) = (self.matcher.set_matches(), labels.get(METRIC_NAME).unwrap_or_default());
        let position = names.and_then(|names| names.binary_search_by(|other| other.as_str().cmp(name)).ok());
        if let Some(position) = position {
            self.is_seen[position] = true;
        }
    }

    /// True if a name without a series may belong to no metric.
    fn needs_index(&self) -> bool {
        !self.do_all_exist && self.is_seen.get(self.at..).is_some_and(|rest| rest.contains(&false))
    }

    /// The next metric without a series.
    fn next(
        &mut self,
        globs: &GlobSource<'_>,
        range: TimeRange,
        index: Option<&Snapshot>,
    ) -> Result<Option<&str>, SourceError> {
        let names = self.matcher.set_matches().unwrap_or_default();
        while let Some(name) = names.get(self.at) {
            self.at += 1;
            if self.is_seen[self.at - 1] {
                continue;
            }
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
            return Ok(Some(name));
        }
        Ok(None)
    }
}

impl GlobSource<'_> {
    /// The index for metrics of which there was no series. A tenant without data has no metrics, so it needs no entry: its name may be
    /// invented.
    fn late_index(&self) -> Result<Option<Snapshot>, SourceError> {
        let Self { context, tenant, .. } = self;
        let is_known = context.has_data(tenant) || matches!(context.lake.existing(tenant), Ok(Some(_)));
        if !is_known {
            return Ok(Some(Snapshot::empty()));
        }
        let index = context.paths.awaited(context, tenant, &*self.interrupt, self.wait);
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

impl Found {
    /// Names that have to be `remembered` to find those that are silent.
    pub(super) fn new(remembered: bool) -> Self {
        let seen = remembered.then(HashSet::new);
        Self { seen, silent: Vec::new(), silent_bytes: 0, bytes_max: u64::MAX }
    }

    /// Forgets the names. Those that are silent are left out.
    fn give_up(&mut self) {
        (self.seen, self.silent, self.silent_bytes) = (None, Vec::new(), 0);
    }

    fn bytes(&self) -> u64 {
        self.seen_bytes() + self.silent_bytes
    }

    fn seen_bytes(&self) -> u64 {
        self.seen.as_ref().map_or(0, |seen| seen.capacity() as u64 * KEY_BYTES)
    }

    /// Adds a metric, unless there was a series of it.
    fn add(&mut self, labels: Labels, seed: u64) -> Result<(), Full> {
        if self.see(SeriesKey::of(labels.as_bytes(), seed))? {
            let bytes = NAME_BYTES + labels.as_bytes().len() as u64;
            self.check(bytes)?;
            self.silent_bytes += bytes;
            self.silent.push(labels);
        }
        Ok(())
    }

    /// False if the name was found before.
    fn see(&mut self, key: SeriesKey) -> Result<bool, Full> {
        let Some(seen) = &self.seen else { return Ok(false) };
        if seen.len() == seen.capacity() && !seen.contains(&key) {
            self.check(2 * self.seen_bytes())?; // the old table is there until all keys are in one of twice the size
        }
        Ok(self.seen.as_mut().is_some_and(|seen| seen.insert(key)))
    }

    fn check(&self, more_bytes: u64) -> Result<(), Full> {
        if self.bytes() + more_bytes <= self.bytes_max { Ok(()) } else { Err(Full) }
    }
}

/// The labels of a metric. `None` if no metric can have this name.
fn labels_of(builder: &mut LabelsBuilder, name: &str) -> Option<Labels> {
    builder.clear();
    builder.push(METRIC_NAME, name);
    builder.build_series().ok()
}

#[cfg(test)]
mod tests;
