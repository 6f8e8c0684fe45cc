//! Queries for label names and values, series, metadata and exemplars. Answers are sorted.

mod across;
mod cardinality;
mod details;
mod distinct;
mod growth;
mod nodes;
mod tagged;
#[cfg(test)]
mod tests;
mod unqueried;

pub(crate) use across::LabelsAcross;
pub(crate) use cardinality::{Cardinality, Counts, LabelNames, LabelValues};
pub(crate) use details::{Detail, Details};
pub(crate) use growth::{Grown, Growth, Top};
pub(crate) use nodes::{FoundNode, NodeOrder, Nodes};
pub(crate) use tagged::is_tagged;
pub(crate) use unqueried::Unqueried;

use crate::query_source::Context;
use crate::query_source::{Canceled, LeftOut, Turns, list, tables_select};
use crate::refusal::Refusal;
use across::Shown;
use distinct::{Distinct, Full, Ordered};
use head::{Among, TenantHead, Walk};
use model::{Exemplar, Labels, LabelsRef, Metadata, SeriesRef, TenantId, TimeRange};
use query::{Interrupt, Matcher, Usage};
use roaring::RoaringBitmap;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use tables::LabelScan;

#[derive(Debug)]
pub(crate) struct LabelQueries<'a> {
    pub(crate) context: &'a Arc<Context>,
    pub(crate) tenant: &'a TenantId,
    pub(crate) canceled: Arc<dyn Interrupt>,
    /// Limit on the memory of an answer that is not encoded yet.
    pub(crate) memory_bytes: u64,
    pub(crate) usage: &'a Usage,
}

/// Exemplars of each series, in the order of their times.
pub(crate) type ExemplarsBySeries = BTreeMap<Labels, Vec<Exemplar>>;

/// Number of series that are examined in one turn, which takes about 0.25 ms.
const TURN_SERIES: usize = 256;

/// A turn ends after labels of this size, because they are charged only afterwards.
const TURN_BYTES: usize = 256 << 10;

/// Memory that a metadata entry or an exemplar takes in addition to its text.
const ENTRY_BYTES: usize = 96;

/// Query for the series that match any of `selectors`, or for all series if there are none.
#[derive(Debug)]
pub(crate) struct LabelRequest<'a> {
    pub(crate) selectors: &'a [Vec<Matcher>],
    pub(crate) range: TimeRange,
    pub(crate) limit: usize,
}

struct Room<'a> {
    left_bytes: usize,
    bytes: u64,
    usage: &'a Usage,
}

impl Room<'_> {
    fn reserve(&mut self, bytes: usize) -> Result<(), Refusal> {
        match self.left_bytes.checked_sub(bytes) {
            Some(left) => {
                self.left_bytes = left;
                self.usage.hold(self.bytes - left as u64);
                Ok(())
            }
            None => Err(too_large(self.bytes)),
        }
    }
}

fn too_large(bytes: u64) -> Refusal {
    Refusal::too_large(
        "answer_size",
        format!(
            "the answer takes more than {} MiB, the limit for one query: narrow it with match[], start and end, or limit \
             (Graphite: a narrower query), or raise the setting memory, or lower query_concurrency",
            bytes >> 20
        ),
    )
}

impl From<Canceled> for Refusal {
    fn from(_: Canceled) -> Self {
        Self::busy(
            "canceled",
            "the query was canceled: its client disconnected, it timed out, or an operator canceled it",
        )
    }
}

#[derive(Debug)]
pub(crate) struct Limited {
    /// The strings that were found: names, values or, for series, canonical labels.
    pub(crate) all: Ordered,
    /// True if there were more results than the limit.
    pub(crate) cut: bool,
    /// Warnings about data that the answer lacks because it could not be read.
    pub(crate) left_out: Vec<String>,
}

struct Found<'a> {
    texts: Distinct,
    order: fn(&[u8], &[u8]) -> Ordering,
    usage: &'a Usage,
    memory_bytes: u64,
    limit: usize,
}

impl Found<'_> {
    /// Adds a string. If memory is full and more than half of the strings exceed the limit on results, these are
    /// dropped to make room.
    fn add(&mut self, text: &[u8]) -> Result<(), Refusal> {
        let mut added = self.texts.insert(text);
        if added.is_err() && self.texts.len() / 2 > self.limit {
            self.texts.keep_first(self.limit + 1, self.order);
            added = self.texts.insert(text);
        }
        self.usage.hold(self.texts.held_bytes() as u64);
        added.map_err(|Full| too_large(self.memory_bytes))
    }

    fn is_cut(&self) -> bool {
        self.texts.len() > self.limit
    }

    /// Adds strings from the tenant's table. `read` must stop as soon as its callback returns false.
    fn add_sealed(
        &mut self,
        label_queries: &LabelQueries<'_>,
        request: &LabelRequest<'_>,
        shown: Shown<'_>,
        read: impl Fn(
            &tables::Table,
            &Arc<tables::Cache>,
            &tables::Select,
            &mut dyn FnMut(&[u8]) -> bool,
        ) -> Sealed,
    ) -> Result<Vec<String>, Refusal> {
        let LabelQueries { context, tenant, canceled, .. } = label_queries;
        let left_out = LeftOut::default();
        for matchers in or_all(request.selectors) {
            if self.is_cut() {
                break;
            }
            let select = tables_select(matchers, request.range, false, canceled);
            let mut added = Ok(());
            let mut put = |text: &[u8]| {
                added = shown.put(text, self);
                added.is_ok() && !self.is_cut() && !canceled.is_set()
            };
            let listed = list(context, tenant, &left_out, &**canceled, |table, cache| {
                read(table, cache, &select, &mut put)
            });
            listed.map_err(refused)?;
            added?;
            if canceled.is_set() {
                return Err(Canceled.into());
            }
        }
        Ok(left_out.texts())
    }

    fn answer(self, left_out: Vec<String>) -> Limited {
        let mut all = self.texts.in_order(self.order);
        let cut = all.cut(self.limit);
        Limited { all, cut, left_out }
    }
}

type Sealed = Result<Vec<String>, tables::TableError>;

impl LabelQueries<'_> {
    /// Lists label names. If the heads alone have more names than the limit, tables are not read.
    pub(crate) fn label_names(&self, request: &LabelRequest<'_>) -> Result<Limited, Refusal> {
        let mut found = self.found(request, Ord::cmp);
        let left_out = self.add_names(&mut found, request, Shown::AsStored)?;
        Ok(found.answer(left_out))
    }

    pub(crate) fn label_values(&self, name: &str, request: &LabelRequest<'_>) -> Result<Limited, Refusal> {
        let mut found = self.found(request, Ord::cmp);
        let left_out = self.add_values(&mut found, name, request)?;
        Ok(found.answer(left_out))
    }

    /// Adds label names to `found`. Returns warnings about data that could not be read.
    fn add_names(
        &self,
        found: &mut Found<'_>,
        request: &LabelRequest<'_>,
        shown: Shown<'_>,
    ) -> Result<Vec<String>, Refusal> {
        let turn = |walk: &mut Walk, head: &_, among: Among<'_>, take: &mut dyn FnMut(&str)| {
            walk.names(head, among, take)
        };
        self.add_texts(found, request, shown, turn, LabelScan::Names)
    }

    fn add_values(
        &self,
        found: &mut Found<'_>,
        name: &str,
        request: &LabelRequest<'_>,
    ) -> Result<Vec<String>, Refusal> {
        let turn = |walk: &mut Walk, head: &_, among: Among<'_>, take: &mut dyn FnMut(&str)| {
            walk.values(head, name, among, take)
        };
        self.add_texts(found, request, Shown::AsStored, turn, LabelScan::Values(name))
    }

    /// Adds strings from heads, found by `turn`, and from tables, found by `sealed`. Returns warnings about data that
    /// could not be read.
    fn add_texts(
        &self,
        found: &mut Found<'_>,
        request: &LabelRequest<'_>,
        shown: Shown<'_>,
        turn: impl Fn(&mut Walk, &TenantHead, Among<'_>, &mut dyn FnMut(&str)) -> bool,
        sealed: LabelScan<'_>,
    ) -> Result<Vec<String>, Refusal> {
        let mut taken: Vec<String> = Vec::new();
        for turns in self.turns() {
            // a walk over label names meets a series once for each of its labels, so the time range of the series is
            // checked beforehand; a walk over the values of one label meets a series only once
            let series = match (turns.select_any(request.selectors)?, sealed) {
                (None, LabelScan::Values(_)) => None,
                (selected, _) => in_range(&turns, selected, request.range)?,
            };
            let among = match &series {
                Some(series) => Among::Series(series),
                None if request.range == TimeRange::ALL => Among::All,
                None => Among::Range(request.range),
            };
            let (mut walk, mut is_last) = (Walk::new(), false);
            while !is_last {
                is_last =
                    turns.turn(|head| turn(&mut walk, head, among, &mut |text| taken.push(text.into())))?;
                // outside of `turn`, so the head is not locked
                taken.drain(..).try_for_each(|text| shown.put(text.as_bytes(), found))?;
            }
        }
        found.add_sealed(self, request, shown, |table, cache, select, put| {
            tables::scan::labels::texts(table, cache, select, sealed, &mut |text| put(text.as_bytes()))
        })
    }

    fn found(&self, request: &LabelRequest<'_>, order: fn(&[u8], &[u8]) -> Ordering) -> Found<'_> {
        // If there is a limit on results, strings beyond the limit are dropped by copying the others, which are at most
        // half of all strings. The strings may then take 2/3 of the memory, which leaves 1/3 for the copy.
        let parts = if request.limit == usize::MAX { 3 } else { 2 };
        let texts = Distinct::within(self.memory_bytes as usize / 3 * parts);
        Found { texts, order, usage: self.usage, memory_bytes: self.memory_bytes, limit: request.limit }
    }

    fn turns(&self) -> impl Iterator<Item = Turns<'_>> {
        let turns = |partition| Turns::new(partition, self.tenant, &*self.canceled);
        self.context.partitions.iter().map(move |partition| turns(&**partition))
    }

    fn room(&self) -> Room<'_> {
        Room { left_bytes: self.memory_bytes as usize, bytes: self.memory_bytes, usage: self.usage }
    }

    /// Lists series that have a sample in the time range. If there are more than the limit, it is unspecified which
    /// of them are listed.
    pub(crate) fn series(&self, request: &LabelRequest<'_>) -> Result<Limited, Refusal> {
        let mut found = self.found(request, in_label_order);
        let left_out = self.add_stored_series(&mut found, request, Shown::AsStored)?;
        Ok(found.answer(left_out))
    }

    fn add_stored_series(
        &self,
        found: &mut Found<'_>,
        request: &LabelRequest<'_>,
        shown: Shown<'_>,
    ) -> Result<Vec<String>, Refusal> {
        self.add_series(found, request, shown, |head, series| head.has_samples(series, request.range))?;
        found.add_sealed(self, request, shown, |table, cache, select, put| {
            tables::scan::labels::series(table, cache, select, &mut |labels| put(labels.as_bytes()))
        })
    }

    pub(crate) fn active_series(&self, request: &LabelRequest<'_>) -> Result<Limited, Refusal> {
        let mut found = self.found(request, in_label_order);
        self.add_series(&mut found, request, Shown::AsStored, TenantHead::is_active)?;
        Ok(found.answer(Vec::new()))
    }

    fn add_series(
        &self,
        found: &mut Found<'_>,
        request: &LabelRequest<'_>,
        shown: Shown<'_>,
        is_wanted: impl Fn(&TenantHead, SeriesRef) -> bool,
    ) -> Result<(), Refusal> {
        let mut taken: Vec<Vec<u8>> = Vec::new();
        for turns in self.turns() {
            let mut selected = turns.select_any(request.selectors)?.unwrap_or_default().into_iter();
            let mut is_last = false;
            while !is_last && !found.is_cut() {
                is_last = turns.turn(|head| {
                    let mut bytes = 0;
                    for series in selected.by_ref().take(TURN_SERIES).map(SeriesRef) {
                        if is_wanted(head, series) {
                            let mut labels = Vec::new();
                            head.write_labels(series, &mut labels);
                            bytes += labels.len();
                            taken.push(labels);
                            if bytes >= TURN_BYTES {
                                break;
                            }
                        }
                    }
                    selected.len() == 0
                })?;
                taken.drain(..).try_for_each(|labels| shown.put(&labels, found))?;
            }
        }
        Ok(())
    }

    fn metadata_within(
        &self,
        metric: Option<&str>,
        limit: usize,
        room: &mut Room<'_>,
    ) -> Result<BTreeMap<String, Metadata>, Refusal> {
        let mut all = BTreeMap::new();
        let mut take = |m: &Metadata| {
            room.reserve(
                size_of::<Metadata>() + ENTRY_BYTES + 2 * m.metric.len() + m.help.len() + m.unit.len(),
            )?;
            all.insert(m.metric.clone(), m.clone());
            while all.len() > limit {
                all.pop_last();
            }
            Ok::<_, Refusal>(())
        };
        for turns in self.turns() {
            let (mut taken, mut last) = (Ok(()), None::<String>);
            turns.until_done(|head| {
                if let Some(metric) = metric {
                    taken = head.metadata_of(metric).into_iter().try_for_each(&mut take);
                    return true;
                }
                let some: Vec<_> = head.metadata_after(last.as_deref()).take(TURN_SERIES).collect();
                taken = some.iter().copied().try_for_each(&mut take);
                last = some.last().map(|m| m.metric.clone());
                some.len() < TURN_SERIES || taken.is_err()
            })?;
            taken?;
        }
        Ok(all)
    }

    pub(crate) fn exemplars(&self, request: &LabelRequest<'_>) -> Result<ExemplarsBySeries, Refusal> {
        let (mut all, mut room) = (BTreeMap::new(), self.room());
        self.add_exemplars(&mut all, &mut room, request, |labels| labels.to_owned())?;
        Ok(all)
    }

    /// Adds exemplars by the labels under which `shown` shows their series. No series of another tenant may get the same labels.
    fn add_exemplars(
        &self,
        all: &mut ExemplarsBySeries,
        room: &mut Room<'_>,
        request: &LabelRequest<'_>,
        shown: impl Fn(LabelsRef<'_>) -> Labels,
    ) -> Result<(), Refusal> {
        let mut bytes = Vec::new();
        for turns in self.turns() {
            let Some(selected) = turns.select_any(request.selectors)? else { continue };
            let (mut next, mut removed, mut reserved) = (0_u64, None, Ok(()));
            turns.until_done(|head| {
                let now = head.exemplars_removed();
                // those that have got smaller numbers since the last turn, and perhaps others again
                next = next.saturating_sub(now.saturating_sub(removed.unwrap_or(now)));
                removed = Some(now);
                let end = next + TURN_SERIES as u64;
                for (number, series, exemplar) in head.exemplars_from(next) {
                    if number >= end || reserved.is_err() {
                        next = number;
                        return reserved.is_err();
                    }
                    if selected.contains(series.0) && request.range.contains(exemplar.timestamp_ms) {
                        bytes.clear();
                        head.write_labels(*series, &mut bytes);
                        let labels = shown(LabelsRef::from_canonical(&bytes));
                        let texts = labels.as_bytes().len() + exemplar.labels.as_bytes().len();
                        reserved = room.reserve(size_of::<Exemplar>() + 2 * ENTRY_BYTES + texts);
                        all.entry(labels).or_default().push(exemplar.clone());
                    }
                }
                true
            })?;
            reserved?;
        }
        for list in all.values_mut() {
            list.sort_by(in_order);
            list.dedup(); // a reader may meet an exemplar again, and replay can restore one twice
        }
        Ok(())
    }
}

/// By time. Equal exemplars are neighbours.
fn in_order(a: &Exemplar, b: &Exemplar) -> Ordering {
    let by_time = a.timestamp_ms.cmp(&b.timestamp_ms);
    by_time
        .then_with(|| a.labels.as_bytes().cmp(b.labels.as_bytes()))
        .then_with(|| a.value.total_cmp(&b.value))
}

fn in_label_order(a: &[u8], b: &[u8]) -> Ordering {
    LabelsRef::from_canonical(a).cmp(&LabelsRef::from_canonical(b))
}

/// Returns the selectors or, if there are none, one selector that matches all series.
const fn or_all(selectors: &[Vec<Matcher>]) -> &[Vec<Matcher>] {
    const ALL: &[Vec<Matcher>] = &[Vec::new()];
    if selectors.is_empty() { ALL } else { selectors }
}

fn refused(error: query::SourceError) -> Refusal {
    Refusal::new(error.kind, "tables", error.message)
}

/// Returns those of `series` that have a sample in `range`. `None` means all series.
pub(crate) fn in_range(
    turns: &Turns<'_>,
    series: Option<RoaringBitmap>,
    range: TimeRange,
) -> Result<Option<RoaringBitmap>, Canceled> {
    if range == TimeRange::ALL {
        return Ok(series);
    }
    let series = match series {
        Some(series) => series,
        None => turns.select(&[])?,
    };
    let (mut kept, mut rest) = (RoaringBitmap::new(), series.iter());
    turns.until_done(|head| {
        let turn = rest.by_ref().take(TURN_SERIES);
        kept.extend(turn.filter(|series| head.has_samples(SeriesRef(*series), range)));
        rest.len() == 0
    })?;
    Ok(Some(kept))
}
