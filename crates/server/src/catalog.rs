//! What there is: label names and values, series, metadata, exemplars. Answers come sorted.

use crate::node::Node;
use crate::refusal::Refusal;
use crate::source::{Cancelled, LeftOut, Turns, list, scan, tables_select, unreadable};
use head::{Among, TenantHead, Walk};
use model::{Exemplar, Labels, LabelsRef, Metadata, SeriesRef, TenantId, TimeRange};
use query::{Interrupt, Matcher};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tables::Listing;

/// One tenant's catalog.
#[derive(Debug)]
pub(crate) struct Catalog<'a> {
    pub(crate) node: &'a Node,
    pub(crate) tenant: &'a TenantId,
    /// Nobody waits for the answer any more.
    pub(crate) cancelled: Arc<dyn Interrupt>,
    /// What an answer may hold before it is written.
    pub(crate) memory_bytes: u64,
}

/// Series looked at in one turn: about a quarter of a millisecond.
const TURN_SERIES: usize = 256;

/// What a text in an answer costs beside its bytes: its place in a list that doubles, in a sorted set, and in the answer.
const TEXT_BYTES: usize = 96;

/// Series (of any of `selectors`; all where there are none) with a limit.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) selectors: &'a [Vec<Matcher>],
    pub(crate) range: TimeRange,
    /// How many answers are wanted at the most.
    pub(crate) limit: usize,
}

/// Memory that an answer may still take.
struct Room {
    left_bytes: usize,
    bytes: u64,
}

impl Room {
    fn buy(&mut self, bytes: usize) -> Result<(), Refusal> {
        match self.left_bytes.checked_sub(bytes) {
            Some(left) => {
                self.left_bytes = left;
                Ok(())
            }
            None => Err(Refusal::too_large(
                "answer_size",
                format!(
                    "the answer takes more than the {} MiB that one query may hold: ask for less with match[] or limit; \
                     the share grows with --memory",
                    self.bytes >> 20
                ),
            )),
        }
    }
}

impl From<Cancelled> for Refusal {
    fn from(_: Cancelled) -> Self {
        Self::busy("canceled", "cancelled: the client disconnected or the query timed out")
    }
}

/// An answer, and what is missing from it.
#[derive(Debug)]
pub(crate) struct Limited<T> {
    pub(crate) all: Vec<T>,
    /// The limit cut it.
    pub(crate) cut: bool,
    /// What could not be read, and why.
    pub(crate) left_out: Vec<String>,
}

impl Catalog<'_> {
    pub(crate) fn label_names(&self, ask: &Ask<'_>) -> Result<Limited<String>, Refusal> {
        self.texts(ask, |walk, head, among, take| walk.names(head, among, take), Listing::Names)
    }

    pub(crate) fn label_values(&self, name: &str, ask: &Ask<'_>) -> Result<Limited<String>, Refusal> {
        let turn = |walk: &mut Walk, head: &_, among: Among<'_>, take: &mut dyn FnMut(&str)| {
            walk.values(head, name, among, take)
        };
        self.texts(ask, turn, Listing::Values(name))
    }

    fn texts(
        &self,
        ask: &Ask<'_>,
        turn: impl Fn(&mut Walk, &TenantHead, Among<'_>, &mut dyn FnMut(&str)) -> bool,
        sealed: Listing<'_>,
    ) -> Result<Limited<String>, Refusal> {
        let mut all: Vec<String> = Vec::new();
        let mut room = self.room();
        let mut bought = Ok(());
        for turns in self.turns() {
            // A series has one value of a label, so a walk looks at each once at the most; but many names.
            let series = match (turns.select_any(ask.selectors)?, sealed) {
                (None, Listing::Values(_)) => None,
                (selected, _) => in_range(&turns, selected, ask.range)?,
            };
            let among = match &series {
                Some(series) => Among::Series(series),
                None if ask.range == TimeRange::ALL => Among::All,
                None => Among::Range(ask.range),
            };
            let mut walk = Walk::new();
            turns.until_done(|head| {
                let last = turn(&mut walk, head, among, &mut |text| {
                    if bought.is_ok() {
                        bought = room.buy(text.len() + TEXT_BYTES);
                        all.push(text.into());
                    }
                });
                last || bought.is_err()
            })?;
            bought.clone()?;
        }
        all.sort_unstable();
        all.dedup();
        let mut all: BTreeSet<String> = all.into_iter().collect();
        let left_out = LeftOut::default();
        let mut bought = Ok(());
        for matchers in or_all(ask.selectors) {
            let select = tables_select(matchers, ask.range, false, &self.cancelled);
            let mut each = |text: &str| {
                if !all.contains(text) {
                    bought = room.buy(text.len() + TEXT_BYTES);
                    all.insert(text.into());
                }
                bought.is_ok() && !self.cancelled.is_set()
            };
            let listed = list(
                self.node.shared(),
                self.tenant,
                &select,
                sealed,
                &left_out,
                &*self.cancelled,
                &mut each,
            );
            listed.map_err(refused)?;
            bought.clone()?;
            if self.cancelled.is_set() {
                return Err(Cancelled.into());
            }
        }
        let left_out = left_out.texts();
        let cut = all.len() > ask.limit;
        Ok(Limited { all: all.into_iter().take(ask.limit).collect(), cut, left_out })
    }

    /// Gives the labels of each series in tables that is asked for, until `each` has enough of them. No samples are
    /// read. Returns what was left out.
    fn each_sealed(
        &self,
        ask: &Ask<'_>,
        mut each: impl FnMut(LabelsRef<'_>) -> Result<bool, Refusal>,
    ) -> Result<Vec<String>, Refusal> {
        let (bytes, left_out) = (self.room().left_bytes / 2, LeftOut::default());
        for matchers in or_all(ask.selectors) {
            let select = tables_select(matchers, ask.range, false, &self.cancelled);
            let scan = scan(self.node.shared(), self.tenant, &select, bytes, &*self.cancelled);
            let Some(mut scan) = scan.map_err(refused)? else { continue };
            while scan.next_series().map_err(|e| refused(unreadable(e)))? {
                if self.cancelled.is_set() {
                    return Err(Cancelled.into());
                }
                if !each(scan.labels())? {
                    left_out.note(&scan, self.node.shared());
                    return Ok(left_out.texts());
                }
            }
            left_out.note(&scan, self.node.shared());
        }
        Ok(left_out.texts())
    }

    /// The partitions, to be worked on in turns.
    fn turns(&self) -> impl Iterator<Item = Turns<'_>> {
        let turns = |partition| Turns::new(partition, self.tenant, &*self.cancelled);
        self.node.partitions().iter().map(move |partition| turns(&**partition))
    }

    fn room(&self) -> Room {
        Room { left_bytes: self.memory_bytes as usize, bytes: self.memory_bytes }
    }

    /// Series that have a sample in the range.
    pub(crate) fn series(&self, ask: &Ask<'_>) -> Result<Limited<Labels>, Refusal> {
        let mut found = BTreeSet::new();
        let mut bytes = Vec::new();
        let mut room = self.room();
        for turns in self.turns() {
            let mut selected = turns.select_any(ask.selectors)?.unwrap_or_default().into_iter();
            let mut bought = Ok(());
            turns.until_done(|head| {
                for series in selected.by_ref().take(TURN_SERIES).map(SeriesRef) {
                    if head.has_samples(series, ask.range) {
                        bytes.clear();
                        head.write_labels(series, &mut bytes);
                        bought = room.buy(bytes.len() + TEXT_BYTES);
                        found.insert(LabelsRef::from_canonical(&bytes).to_owned());
                    }
                    if bought.is_err() || found.len() > ask.limit {
                        return true;
                    }
                }
                selected.len() == 0
            })?;
            bought?;
            if found.len() > ask.limit {
                found.pop_last();
                return Ok(Limited { all: found.into_iter().collect(), cut: true, left_out: Vec::new() });
            }
        }
        let left_out = self.each_sealed(ask, |labels| {
            let labels = labels.to_owned();
            if !found.contains(&labels) {
                room.buy(labels.as_bytes().len() + TEXT_BYTES)?;
                found.insert(labels);
            }
            Ok(found.len() <= ask.limit)
        })?;
        let cut = found.len() > ask.limit;
        Ok(Limited { all: found.into_iter().take(ask.limit).collect(), cut, left_out })
    }

    /// Metadata by metric; with `metric`, only that one's.
    pub(crate) fn metadata(
        &self,
        metric: Option<&str>,
        limit: usize,
    ) -> Result<BTreeMap<String, Metadata>, Refusal> {
        let mut all = BTreeMap::new();
        let mut room = self.room();
        let mut take = |m: &Metadata| {
            room.buy(size_of::<Metadata>() + TEXT_BYTES + 2 * m.metric.len() + m.help.len() + m.unit.len())?;
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

    /// Exemplars in the range, by series.
    pub(crate) fn exemplars(&self, ask: &Ask<'_>) -> Result<BTreeMap<Labels, Vec<Exemplar>>, Refusal> {
        let mut all: BTreeMap<Labels, Vec<Exemplar>> = BTreeMap::new();
        let mut room = self.room();
        let mut bytes = Vec::new();
        for turns in self.turns() {
            let Some(selected) = turns.select_any(ask.selectors)? else { continue };
            let (mut next, mut bought) = (0, Ok(()));
            turns.until_done(|head| {
                let end = next + TURN_SERIES as u64;
                for (number, series, exemplar) in head.exemplars_from(next) {
                    if number >= end || bought.is_err() {
                        next = number;
                        return bought.is_err();
                    }
                    if selected.contains(series.0) && ask.range.contains(exemplar.timestamp_ms) {
                        bytes.clear();
                        head.write_labels(*series, &mut bytes);
                        let labels = LabelsRef::from_canonical(&bytes).to_owned();
                        let own = exemplar.labels.as_bytes().len();
                        bought = room.buy(size_of::<Exemplar>() + 2 * TEXT_BYTES + bytes.len() + own);
                        all.entry(labels).or_default().push(exemplar.clone());
                    }
                }
                true
            })?;
            bought?;
        }
        for list in all.values_mut() {
            list.sort_by_key(|e| e.timestamp_ms);
            list.dedup(); // a replay can bring one back twice
        }
        Ok(all)
    }
}

/// The selectors; one that selects everything where there are none.
const fn or_all(selectors: &[Vec<Matcher>]) -> &[Vec<Matcher>] {
    const ALL: &[Vec<Matcher>] = &[Vec::new()];
    if selectors.is_empty() { ALL } else { selectors }
}

fn refused(error: query::SourceError) -> Refusal {
    Refusal { kind: error.kind, reason: "tables", message: error.message }
}

/// Those of `series` (None: of all) that have a sample in `range`.
pub(crate) fn in_range(
    turns: &Turns<'_>,
    series: Option<RoaringBitmap>,
    range: TimeRange,
) -> Result<Option<RoaringBitmap>, Cancelled> {
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
