//! Reads series from heads and tables as if they were in one place.
//!
//! The series in heads are selected before the files of tables, so samples committed in between are found in both.
//! Then the samples of the head count. A pin keeps sealed samples in the heads; if it expires, the query restarts.

mod leases;
mod recording;
mod rolled;

pub(super) use leases::Leases;
pub(super) use recording::Recorder;

use super::{Canceled, HeadSet, Turns, make_room, too_many_samples};
use crate::partition::shared::PartitionShared;
use crate::query_source::Context;
use crate::query_source::detail::Detail;
use crate::seal::pins::Pin;
use crate::settings::QUERY_BYTES_MIN;
use model::labels::METRIC_NAME;
use model::sample::overlay;
use model::{ErrorKind, LabelsRef, Samples, SeriesKey, SeriesSamples, TenantId, TimeRange, ValueKind};
use parking_lot::Mutex;
use query::{
    Interrupt, MatchOp, Matcher, Rolled, RolledSelect, Select, SeriesSet, SeriesSource, SourceError,
};
use roaring::RoaringBitmap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tables::{Cache, Scan, ScanLimits, Table, TableError};

/// Memory that a query may always take to read files: half of the smallest `query_memory`.
const SCAN_BYTES_MIN: usize = QUERY_BYTES_MIN as usize / 2;

#[derive(Debug)]
pub(crate) struct Source<'a> {
    context: &'a Arc<Context>,
    tenant: TenantId,
    samples_max: u64,
    canceled: Arc<dyn Interrupt>,
    pin: Pin,
    left_out: LeftOut,
    detail: Detail,
    /// True if the metrics that are selected count as queried.
    is_noted: bool,
    /// These pins keep references to series in the heads valid. `None` if each [`HeadSet`] has leases.
    head_pins: Option<Vec<head::Pin>>,
    /// True once leases were revoked.
    has_selected_again: AtomicBool,
}

impl<'a> Source<'a> {
    pub(crate) fn new(
        context: &'a Arc<Context>,
        tenant: TenantId,
        samples_max: u64,
        canceled: Arc<dyn Interrupt>,
    ) -> Self {
        Self {
            context,
            tenant,
            samples_max,
            canceled,
            pin: context.lake.pins.pin(),
            left_out: LeftOut::default(),
            detail: Detail::Samples,
            is_noted: false,
            head_pins: Some(context.partitions.iter().map(|p| p.head.read().pin()).collect()),
            has_selected_again: AtomicBool::new(false),
        }
    }

    /// For readers that may wait between two series for a long time, and must not keep idle series in the heads. They take leases
    /// instead of pins. After one is revoked, any series of its head can be returned again.
    pub(crate) fn leasing(mut self) -> Self {
        self.head_pins = None;
        self
    }

    pub(crate) fn may_repeat_series(&self) -> bool {
        self.has_selected_again.load(Ordering::Relaxed)
    }

    pub(crate) const fn answering_from(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    pub(crate) const fn recording(mut self) -> Self {
        self.is_noted = true;
        self
    }

    pub(crate) fn left_out(&self) -> Vec<String> {
        self.left_out.texts()
    }

    /// True if a file was deleted while it was read, so that the result may be inconsistent.
    pub(crate) fn has_lost_files(&self) -> bool {
        self.left_out.lost.load(Ordering::Relaxed)
    }

    /// True if the series read last may be incomplete, so that the query must restart.
    pub(crate) fn is_expired(&self) -> bool {
        self.pin.is_expired()
    }

    pub(super) fn select_heads(&self, matchers: &[Matcher]) -> Result<Vec<RoaringBitmap>, SourceError> {
        let partitions = self.context.partitions.iter();
        let select = |partition: &Arc<PartitionShared>| {
            let turns = Turns::new(partition, &self.tenant, &*self.canceled);
            turns.select(matchers).map_err(|Canceled| canceled())
        };
        partitions.map(select).collect()
    }

    fn head_set<'s>(
        &'s self,
        selected: Vec<RoaringBitmap>,
        range: TimeRange,
        recorder: Option<Recorder<'s>>,
        leases: Option<Leases<'s>>,
    ) -> HeadSet<'s> {
        let parts = self.context.partitions.iter().map(|p| &**p).zip(selected);
        HeadSet::new(parts, &self.tenant, range, self.samples_max, &self.pin, recorder, leases)
    }
}

pub(super) const LEFT_OUT_MAX: usize = 100;

/// Warnings about damaged files, with one warning for each file.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    texts: Mutex<BTreeSet<String>>,
    lost: AtomicBool,
}

impl LeftOut {
    pub(crate) fn note(&self, scan: &Scan, context: &Context) {
        self.lost.fetch_or(scan.has_lost_files(), Ordering::Relaxed);
        self.add(scan.warnings().chain(scan.doubt()), context);
    }

    fn add(&self, texts: impl IntoIterator<Item = String>, context: &Context) {
        let mut noted = self.texts.lock();
        for text in texts {
            if noted.len() < LEFT_OUT_MAX && noted.insert(text) {
                context.lake.metrics.left_out_files.inc();
            }
        }
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.lock().iter().cloned().collect()
    }
}

/// Opens a scan of a tenant's table. Returns `None` if no file can have series that match.
fn scan(
    context: &Context,
    tenant: &TenantId,
    select: &tables::Select,
    bytes: usize,
    interrupt: &dyn Interrupt,
) -> Result<Option<Scan>, SourceError> {
    let Some(table) = context.lake.existing(tenant).map_err(unreadable)? else { return Ok(None) };
    if tables::scan::matching(&*table.files().map_err(unreadable)?, select).next().is_none() {
        return Ok(None);
    }
    if !interrupt.may_wait() {
        return Err(canceled());
    }
    let limits = ScanLimits::of(bytes);
    Scan::open(&table, &context.lake.cache, select, &limits).map(Some).map_err(unreadable)
}

/// Calls `read` with a tenant's table, to list labels. `read` returns warnings about data that it could not read.
pub(crate) fn list(
    context: &Context,
    tenant: &TenantId,
    left_out: &LeftOut,
    interrupt: &dyn Interrupt,
    read: impl FnOnce(&Table, &Arc<Cache>) -> Result<Vec<String>, TableError>,
) -> Result<(), SourceError> {
    let Some(table) = context.lake.existing(tenant).map_err(unreadable)? else { return Ok(()) };
    if !interrupt.may_wait() {
        return Err(canceled());
    }
    left_out.add(read(&table, &context.lake.cache).map_err(unreadable)?, context);
    Ok(())
}

pub(crate) fn tables_select(
    matchers: &[Matcher],
    range: TimeRange,
    samples: bool,
    canceled: &Arc<dyn Interrupt>,
) -> tables::Select {
    let names = names_of(matchers).map(|mut names| {
        names.sort_unstable();
        names.dedup();
        names
    });
    let name_prefix = name_prefix_of(matchers).to_owned();
    let test = |m: &Matcher| {
        let matcher = m.clone();
        tables::Matcher::new(&m.name, move |value| matcher.matches(value))
    };
    let matchers = matchers.iter().map(test).collect();
    tables::Select { names, name_prefix, series: None, matchers, range, samples, stop: stop(canceled) }
}

/// What the metric names that the matchers accept begin with. Empty if unknown.
fn name_prefix_of(matchers: &[Matcher]) -> &str {
    let of_names = matchers.iter().filter(|m| m.name == METRIC_NAME && !m.is_negative());
    of_names.map(Matcher::prefix).find(|prefix| !prefix.is_empty()).unwrap_or_default()
}

/// The metric names that the matchers list. `None` if they do not restrict the name to a list.
fn names_of(matchers: &[Matcher]) -> Option<Vec<String>> {
    let is_name = |m: &&Matcher| m.name == METRIC_NAME;
    matchers.iter().filter(is_name).find_map(|m| match (m.op, m.set_matches()) {
        (MatchOp::Equal, _) => Some(vec![m.value.clone()]),
        (MatchOp::Regex, Some(names)) => Some(names.to_vec()),
        _ => None,
    })
}

pub(crate) fn stop(canceled: &Arc<dyn Interrupt>) -> tables::Stop {
    let canceled = Arc::clone(canceled);
    tables::Stop::when(move || canceled.is_set())
}

impl SeriesSource for Source<'_> {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn SeriesSet + '_>, SourceError> {
        let recorder = if self.is_noted { Recorder::of(self, select.matchers) } else { None };
        self.union(select, recorder)
    }

    fn select_rolled(&self, select: &RolledSelect<'_>) -> Result<Option<Rolled<'_>>, SourceError> {
        assert!(self.head_pins.is_some(), "BUG: rollups are read without pins");
        let found = rolled::select(self, select)?;
        Ok(if self.is_noted { found.map(|set| recording::rolled(self, select.matchers, set)) } else { found })
    }
}

impl Source<'_> {
    fn union<'s>(
        &'s self,
        select: &Select<'_>,
        recorder: Option<Recorder<'s>>,
    ) -> Result<Box<dyn SeriesSet + 's>, SourceError> {
        let leases = self.head_pins.is_none().then(|| Leases::new(self, select.matchers));
        let selected = self.select_heads(select.matchers)?;
        // half of the query's memory, at 16 bytes per sample; a small limit on samples is no limit on what a file needs to be read
        let bytes = (self.samples_max as usize * 8).max(SCAN_BYTES_MIN);
        let wanted = tables_select(select.matchers, select.range, true, &self.canceled);
        let scan = scan(self.context, &self.tenant, &wanted, bytes, &*self.canceled)?;
        let Some(scan) = scan else {
            return Ok(Box::new(self.head_set(selected, select.range, recorder, leases)));
        };
        self.left_out.note(&scan, self.context);
        let left = selected.iter().map(|s| s.len() as usize).sum();
        Ok(Box::new(UnionSet {
            source: self,
            scan,
            range: select.range,
            selected,
            samples_max: self.samples_max,
            fresh: Samples::default(),
            buffer: Samples::default(),
            left,
            rest: None,
            recorder,
            leases,
        }))
    }
}

/// Iterator over series in tables and heads. Series in tables come first and are merged with those in heads; series
/// that are only in heads follow.
struct UnionSet<'a> {
    source: &'a Source<'a>,
    scan: Scan,
    range: TimeRange,
    /// Series in heads that have not been returned yet.
    selected: Vec<RoaringBitmap>,
    samples_max: u64,
    fresh: Samples,
    buffer: Samples,
    left: usize,
    /// Reads the series that are only in heads. Set after the last series in tables.
    rest: Option<HeadSet<'a>>,
    recorder: Option<Recorder<'a>>,
    leases: Option<Leases<'a>>,
}

impl SeriesSet for UnionSet<'_> {
    fn next(&mut self, samples: &mut SeriesSamples) -> Result<bool, SourceError> {
        if let Some(rest) = &mut self.rest {
            return rest.next(samples);
        }
        if self.source.canceled.is_set() {
            return Err(canceled());
        }
        samples.clear_for(ValueKind::Float);
        if self.scan.next_series().map_err(unreadable)? {
            let SeriesSamples::Floats(samples) = samples else {
                unreachable!("BUG: samples that were cleared for floats are not floats")
            };
            self.read_sealed(samples)?;
            self.add_fresh(samples)?;
            if let Some(recorder) = &mut self.recorder {
                recorder.series(self.scan.labels());
            }
            self.left = self.left.saturating_sub(1);
            return Ok(true);
        }
        let selected = std::mem::take(&mut self.selected);
        let (recorder, leases) = (self.recorder.take(), self.leases.take());
        let mut rest = self.source.head_set(selected, self.range, recorder, leases);
        rest.limit(self.samples_max);
        self.rest.insert(rest).next(samples)
    }

    fn limit(&mut self, samples_max: u64) {
        self.samples_max = samples_max.min(self.source.samples_max);
        if let Some(rest) = &mut self.rest {
            rest.limit(samples_max);
        }
    }

    fn labels(&mut self) -> LabelsRef<'_> {
        match &mut self.rest {
            Some(rest) => rest.labels(),
            None => self.scan.labels(),
        }
    }

    fn len_hint(&self) -> usize {
        self.rest.as_ref().map_or(self.left, SeriesSet::len_hint)
    }
}

/// Collects the scan's warnings when it is dropped, because a query may stop before the end.
impl Drop for UnionSet<'_> {
    fn drop(&mut self) {
        self.source.left_out.note(&self.scan, self.source.context);
    }
}

impl UnionSet<'_> {
    fn read_sealed(&mut self, samples: &mut Samples) -> Result<(), SourceError> {
        while self.scan.read_some(samples).map_err(unreadable)? {
            if samples.len() as u64 > self.samples_max {
                return Err(too_many_samples(samples.len() as u64, self.samples_max));
            }
        }
        Ok(())
    }

    fn add_fresh(&mut self, samples: &mut Samples) -> Result<(), SourceError> {
        let Source { context, tenant, pin, .. } = self.source;
        let key = SeriesKey::of(self.scan.labels().as_bytes(), context.seed);
        let number = key.partition(context.partitions.len());
        let partition: &PartitionShared = &context.partitions[number];
        let head = partition.head.read();
        // a series that is about to be evicted is also found, because it may have received new samples
        if let Some((head, series)) = head.tenant(tenant).and_then(|h| Some((h, h.find(key)?))) {
            self.selected[number].remove(series.0);
            let most = head.samples_at_most(series, self.range) as u64;
            if most > 0 {
                let all = most + samples.len() as u64;
                if all > self.samples_max {
                    return Err(too_many_samples(all, self.samples_max));
                }
                self.fresh.clear();
                make_room(&mut self.fresh, most as usize);
                head.read(series, self.range, &mut self.fresh);
            }
        }
        // sealed samples stay in the head while the pin is valid, so nothing is missing if it is valid now, after
        // reading, with the head still locked
        if pin.is_expired() {
            return Err(expired());
        }
        drop(head);
        if !self.fresh.is_empty() {
            merge(samples, &self.fresh, &mut self.buffer);
            self.fresh.clear();
        }
        Ok(())
    }
}

pub(super) fn expired() -> SourceError {
    let message =
        "the query took too long: its samples were moved from memory to tables; run the query again".into();
    SourceError { kind: ErrorKind::Unavailable, message }
}

pub(super) fn canceled() -> SourceError {
    SourceError { kind: ErrorKind::Unavailable, message: "the query was canceled".into() }
}

fn unreadable(error: TableError) -> SourceError {
    match error {
        TableError::Canceled => canceled(),
        error @ (TableError::TooManyFiles { .. } | TableError::TooLarge { .. }) => {
            let message =
                format!("{error}: select a shorter range or fewer metrics, or raise the setting memory");
            SourceError { kind: error.kind(), message }
        }
        error => SourceError { kind: error.kind(), message: format!("cannot read tables: {error}") },
    }
}

/// Merges two sorted lists of samples into `earlier`. If both have a sample at the same time, the one in `later` is
/// kept.
fn merge(earlier: &mut Samples, later: &Samples, buffer: &mut Samples) {
    let apart = match (earlier.timestamps.last(), later.timestamps.first()) {
        (Some(last), Some(first)) => last < first,
        _ => true,
    };
    if apart {
        earlier.timestamps.extend_from_slice(&later.timestamps);
        earlier.values.extend_from_slice(&later.values);
        return;
    }
    buffer.clear();
    buffer.extend(overlay(earlier.iter_from(0), later.iter_from(0)));
    std::mem::swap(earlier, buffer);
}
