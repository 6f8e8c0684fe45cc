//! Rows of a file that another program wrote, in table order.
//!
//! The columns are the same, but types may differ slightly, rows may be in any order, and rows of a series may overlap.
//! They are sorted in bounded memory:
//!
//! ```text
//!   pass over the key columns ─▶ the least series beyond the last, as many as fit ─▶ chains of rows that overlap
//!        ▲                                                                             ─▶ their samples, some rows at a time
//!        └──────────────────────── until nothing is left ◀────────────────────────────────┘
//! ```
//!
//! Of two samples in a chain with the same time, the first in the file wins: compaction by `deltalake` puts the newest
//! data first. Different values count as a conflict.

use super::row::{Decoded, Order};
use super::streamed_rows::{decode, metrics_columns, selection};
use super::{Footer, Ranges, ReadStats, Select, Stop, filter, prune};
use crate::error::TableError;
use crate::kind::Kind;
use arrow_array::RecordBatch;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::Schema;
use model::sample::overlay;
use model::{LabelsRef, Samples, SeriesKey, TimeRange};
use parquet::arrow::push_decoder::ParquetPushDecoderBuilder;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// About this many samples, at 16 bytes each, are read into memory before their rows are returned.
const WINDOW_SAMPLES: u64 = 32 << 10;

/// At most this many rows are read into memory before they are returned, apart from the remaining rows of the last
/// chain.
const WINDOW_ROWS: u64 = 4096;

/// Maximum number of rows decoded together, whose labels are held in memory.
const BATCH_ROWS: usize = 512;

/// Minimum memory of a pass for rows, even if its share is smaller.
const PASS_BYTES_MIN: usize = 1 << 20;

const SERIES_BYTES: usize = 128;
const ROW_BYTES: usize = size_of::<RowPosition>();

/// Maximum number of overlapping rows held in memory.
const CHAIN_ROWS_MAX: usize = 10_000;

/// Maximum size of a row group without a page index, because all of it is fetched at once.
const UNPAGED_BYTES_MAX: u64 = 256 << 20;

/// Labels, compared in table order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InTables(Arc<[u8]>);

impl Ord for InTables {
    fn cmp(&self, other: &Self) -> Ordering {
        LabelsRef::from_canonical(&self.0).cmp_in_tables(LabelsRef::from_canonical(&other.0))
    }
}

impl PartialOrd for InTables {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Clone, Copy)]
struct RowPosition {
    span: TimeRange,
    group: usize,
    row: usize,
}

#[derive(Debug)]
struct Series {
    key: SeriesKey,
    rows: Vec<RowPosition>,
}

/// Overlapping rows of one series, returned as one row.
#[derive(Debug)]
struct Chain {
    labels: InTables,
    key: SeriesKey,
    span: TimeRange,
    positions: Vec<RowPosition>,
    samples: Samples,
    /// Number of timestamps with two different values.
    conflicts: u64,
}

#[derive(Debug)]
pub(super) struct Foreign {
    window_bytes: usize,
    /// The series with which to begin, or `None` to begin with the first series of the file.
    from: Option<InTables>,
    /// Series that the last pass over the key columns kept, and whose rows were not read yet.
    series: BTreeMap<InTables, Series>,
    /// Last series whose rows were taken from `series`. The next pass continues after it.
    after: Option<InTables>,
    /// True if the file has more series than the last pass could keep.
    is_more: bool,
    /// Chains whose samples are not read yet.
    chains: VecDeque<Chain>,
    /// Chains whose samples are read.
    ready: VecDeque<Chain>,
    current: Option<Chain>,
}

impl Foreign {
    /// Begins at the series `from`, or at the first. Fetches about `window_bytes` at a time.
    pub(super) fn new(window_bytes: usize, from: Option<&[u8]>) -> Self {
        Self {
            window_bytes,
            from: from.map(|labels| InTables(labels.into())),
            series: BTreeMap::new(),
            after: None,
            is_more: true,
            chains: VecDeque::new(),
            ready: VecDeque::new(),
            current: None,
        }
    }

    pub(super) fn advance(
        &mut self,
        file: &dyn Ranges,
        footer: &Footer,
        select: &Select,
        stats: &mut ReadStats,
    ) -> Result<bool, TableError> {
        loop {
            self.current = self.ready.pop_front();
            if self.current.is_some() {
                return Ok(true);
            }
            if !self.chains.is_empty() {
                self.read_window(file, footer, select, stats)?;
            } else if let Some((labels, series)) = self.series.pop_first() {
                self.link(file.name(), labels, series)?;
            } else if self.is_more {
                self.pass(file, footer, select, stats)?;
            } else {
                return Ok(false);
            }
        }
    }

    fn row(&self) -> &Chain {
        self.current.as_ref().expect("BUG: the cursor is not on a row")
    }

    pub(super) fn labels(&self) -> LabelsRef<'_> {
        LabelsRef::from_canonical(&self.row().labels.0)
    }

    pub(super) fn key(&self) -> SeriesKey {
        self.row().key
    }

    pub(super) fn span(&self) -> TimeRange {
        self.row().span
    }

    /// Appends the row's wanted samples. Returns the number of conflicts.
    pub(super) fn read(&self, samples: &mut Samples) -> u64 {
        let row = self.row();
        samples.timestamps.extend_from_slice(&row.samples.timestamps);
        samples.values.extend_from_slice(&row.samples.values);
        row.conflicts
    }

    pub(super) fn held_bytes(&self) -> usize {
        let series = |(labels, series): (&InTables, &Series)| {
            SERIES_BYTES + labels.0.len() + series.rows.capacity() * ROW_BYTES
        };
        let chain = |chain: &Chain| {
            chain.positions.capacity() * ROW_BYTES + 16 * chain.samples.timestamps.capacity() + SERIES_BYTES
        };
        let chains = self.chains.iter().chain(&self.ready).chain(&self.current);
        self.series.iter().map(series).sum::<usize>() + chains.map(chain).sum::<usize>()
    }

    /// Reads the key columns of all rows, and keeps the next series: as many as fit into memory.
    fn pass(
        &mut self,
        file: &dyn Ranges,
        footer: &Footer,
        select: &Select,
        stats: &mut ReadStats,
    ) -> Result<(), TableError> {
        let bytes_max = (self.window_bytes / 2).max(PASS_BYTES_MIN);
        let (mut bytes, mut cut): (usize, Option<InTables>) = (0, None);
        for group in 0..footer.row_groups() {
            stats.row_groups += 1;
            let mut first = 0;
            each_batch(file, footer, group, None, false, BATCH_ROWS, &select.stop, stats, |batch| {
                let damaged = |e| select.stop.or(TableError::damaged(file.name(), e));
                let wanted = filter::matching(&batch, select).map_err(damaged)?;
                let decoded = Decoded::new(file.name(), &batch, false, &mut Order::unchecked())?;
                for row in (0..decoded.rows()).filter(|row| wanted.value(*row)) {
                    let labels = InTables(decoded.labels(row).as_bytes().into());
                    let is_known = self.after.as_ref().is_some_and(|after| labels <= *after)
                        || self.from.as_ref().is_some_and(|from| labels < *from);
                    if is_known || cut.as_ref().is_some_and(|cut| labels >= *cut) {
                        continue;
                    }
                    let len = labels.0.len();
                    let series = self.series.entry(labels).or_insert_with(|| {
                        bytes += SERIES_BYTES + len;
                        Series { key: decoded.key(row), rows: Vec::new() }
                    });
                    series.rows.push(RowPosition { span: decoded.span(row), group, row: first + row });
                    bytes += ROW_BYTES;
                    while bytes > bytes_max {
                        let (labels, series) = self.series.pop_last().expect("BUG: no series was added");
                        if self.series.is_empty() {
                            let reason = format!("one series has more than {} rows", series.rows.len());
                            return Err(TableError::damaged(file.name(), reason));
                        }
                        bytes -= SERIES_BYTES + labels.0.len() + series.rows.len() * ROW_BYTES;
                        cut = Some(labels);
                    }
                }
                first += decoded.rows();
                Ok(())
            })?;
        }
        self.is_more = cut.is_some();
        Ok(())
    }

    fn link(&mut self, file: &str, labels: InTables, mut series: Series) -> Result<(), TableError> {
        series.rows.sort_unstable_by_key(|position| (position.span.start_ms, position.group, position.row));
        let mut last: Option<Chain> = None;
        for position in series.rows {
            match &mut last {
                Some(chain) if position.span.start_ms <= chain.span.end_ms => {
                    chain.span.end_ms = chain.span.end_ms.max(position.span.end_ms);
                    chain.positions.push(position);
                    if chain.positions.len() > CHAIN_ROWS_MAX {
                        let reason = format!("more than {CHAIN_ROWS_MAX} rows of one series overlap");
                        return Err(TableError::damaged(file, reason));
                    }
                }
                _ => {
                    let (labels, span) = (labels.clone(), position.span);
                    let (key, samples, conflicts) = (series.key, Samples::default(), 0);
                    self.chains.extend(last.replace(Chain {
                        labels,
                        key,
                        span,
                        positions: vec![position],
                        samples,
                        conflicts,
                    }));
                }
            }
        }
        self.chains.extend(last);
        self.after = Some(labels);
        Ok(())
    }

    /// Reads the samples of the next chains, as long as there is room.
    fn read_window(
        &mut self,
        file: &dyn Ranges,
        footer: &Footer,
        select: &Select,
        stats: &mut ReadStats,
    ) -> Result<(), TableError> {
        let rows_max =
            (WINDOW_SAMPLES.saturating_mul(footer.rows()) / footer.samples().max(1)).clamp(1, WINDOW_ROWS);
        let mut rows = 0;
        while rows < rows_max as usize {
            if self.chains.is_empty() {
                let Some((labels, series)) = self.series.pop_first() else { break };
                self.link(file.name(), labels, series)?;
            }
            if let Some(chain) = self.chains.pop_front() {
                rows += chain.positions.len();
                self.ready.push_back(chain);
            }
        }
        if !select.samples {
            return Ok(());
        }
        let mut positions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for position in self.ready.iter().flat_map(|chain| &chain.positions) {
            positions.entry(position.group).or_default().push(position.row);
        }
        let mut found = HashMap::with_capacity(rows);
        for (group, mut rows) in positions {
            rows.sort_unstable();
            for rows in windows(file, footer, group, &rows, self.window_bytes)? {
                read_rows(file, footer, group, rows, select, stats, &mut found)?;
            }
        }
        for chain in &mut self.ready {
            chain.merge(&mut found);
        }
        Ok(())
    }
}

impl Chain {
    /// Merges the samples of the rows. Earlier rows of the file win.
    fn merge(&mut self, found: &mut HashMap<(usize, usize), Samples>) {
        let mut conflicts = Vec::new();
        self.positions.sort_unstable_by_key(|position| std::cmp::Reverse((position.group, position.row)));
        for RowPosition { group, row, .. } in &self.positions {
            let over = found.remove(&(*group, *row)).unwrap_or_default();
            if self.samples.is_empty() {
                self.samples = over;
                continue;
            }
            note_conflicts(&self.samples, &over, &mut conflicts);
            let under = std::mem::take(&mut self.samples);
            self.samples.extend(overlay(under.iter_from(0), over.iter_from(0)));
        }
        conflicts.sort_unstable();
        conflicts.dedup();
        self.conflicts = conflicts.len() as u64;
    }
}

/// Collects the timestamps at which `a` and `b` have different values.
fn note_conflicts(a: &Samples, b: &Samples, times: &mut Vec<i64>) {
    let mut at = 0;
    for (time, value) in a.iter_from(0) {
        at += b.timestamps[at..].partition_point(|other| *other < time);
        if b.timestamps.get(at) == Some(&time) && b.values[at].to_bits() != value.to_bits() {
            times.push(time);
        }
    }
}

/// Divides rows into windows whose pages take about `window_bytes`.
fn windows<'a>(
    file: &dyn Ranges,
    footer: &Footer,
    group: usize,
    rows: &'a [usize],
    window_bytes: usize,
) -> Result<Vec<&'a [usize]>, TableError> {
    let bytes = prune::wanted_bytes(footer.parquet(), group, true);
    let pages = prune::page_starts(footer.parquet(), group, true);
    if pages.is_empty() {
        if bytes > UNPAGED_BYTES_MAX {
            let reason = format!("a row group of {bytes} bytes has no index of its pages");
            return Err(TableError::damaged(file.name(), reason));
        }
        return Ok(vec![rows]);
    }
    let pages_max = ((window_bytes as u64).saturating_mul(pages.len() as u64) / bytes.max(1)).max(1) as usize;
    let part = |row: &usize| pages.partition_point(|start| start <= row) / pages_max;
    Ok(rows.chunk_by(|a, b| part(a) == part(b)).collect())
}

/// Reads the samples of some rows, which must be ascending.
fn read_rows(
    file: &dyn Ranges,
    footer: &Footer,
    group: usize,
    rows: &[usize],
    select: &Select,
    stats: &mut ReadStats,
    found: &mut HashMap<(usize, usize), Samples>,
) -> Result<(), TableError> {
    let mut next = rows.iter();
    let ranges = rows.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1).collect();
    let (batch_rows, stop) = (rows.len().min(BATCH_ROWS), &select.stop);
    each_batch(file, footer, group, Some(ranges), true, batch_rows, stop, stats, |batch| {
        let decoded = Decoded::new(file.name(), &batch, true, &mut Order::unchecked())?;
        for at in 0..decoded.rows() {
            let row = next.next().ok_or_else(|| TableError::damaged(file.name(), "it has too many rows"))?;
            let mut samples = Samples::default();
            decoded.read(file.name(), at, select.range, &mut samples)?;
            found.insert((group, *row), samples);
        }
        Ok(())
    })
}

/// Decodes the rows with the given numbers, or all rows, and converts them to the kind's types.
#[expect(
    clippy::too_many_arguments,
    reason = "independent arguments: the source, the selection, limits and results"
)]
fn each_batch(
    file: &dyn Ranges,
    footer: &Footer,
    group: usize,
    rows: Option<Vec<Range<usize>>>,
    samples: bool,
    batch_rows: usize,
    stop: &Stop,
    stats: &mut ReadStats,
    mut each: impl FnMut(RecordBatch) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let mut builder = ParquetPushDecoderBuilder::new_with_metadata(footer.metadata.clone())
        .with_batch_size(batch_rows)
        .with_row_groups(vec![group])
        .with_projection(metrics_columns(footer.parquet(), samples));
    if let Some(rows) = rows {
        builder = builder.with_row_selection(selection(&rows, footer.rows_of(group)));
    }
    let mut decoder = builder.build().map_err(|e| TableError::damaged(file.name(), e))?;
    while let Some(batch) = decode(file, &mut decoder, stop, stats)? {
        stats.rows += batch.num_rows() as u64;
        each(convert(footer.kind(), file.name(), &batch)?)?;
    }
    Ok(())
}

fn convert(kind: &Kind, file: &str, batch: &RecordBatch) -> Result<RecordBatch, TableError> {
    let damaged = |e| TableError::damaged(file, e);
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for field in kind.schema().fields() {
        let Some(column) = batch.column_by_name(field.name()) else { continue };
        columns.push(cast_with_options(column, field.data_type(), &options).map_err(damaged)?);
        fields.push(Arc::clone(field));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(damaged)
}

#[cfg(test)]
mod tests;
