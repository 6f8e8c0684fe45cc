//! Rows of a row group, decoded in order by the Parquet library. Nothing is cached.

use super::row::{Decoded, Order};
use super::{Footer, Ranges, ReadStats, Select, Stop, fetch, filter, prune};
use crate::error::TableError;
use crate::kind::metrics;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Number of samples decoded together, at 16 bytes each.
const BATCH_SAMPLES: u64 = 32 << 10;

/// Maximum rows decoded together, whose labels are held in memory.
const BATCH_ROWS: u64 = 512;

/// Maximum size of the labels decoded together.
const BATCH_LABEL_BYTES: u64 = 1 << 20;

/// Size of the labels in a window, if the mean of the rows is above [`LONG_LABELS_BYTES`]. A file that is opened again is decoded from
/// the beginning of its window on.
const WINDOW_LABEL_BYTES: u64 = 4 << 20;

/// More windows are not made because of labels, whatever the footer says.
const LABEL_WINDOWS_MAX: usize = 4096;

const LONG_LABELS_BYTES: u64 = 2 << 10;

/// The longest labels that are expected in a file that does not say how long they are. There can be longer ones.
const LABEL_BYTES: u64 = 8 << 10;

/// Memory of the library's decoder beyond the fetched bytes: zstd contexts and pages of twelve columns. A file of a few
/// KiB took 1.4 MiB.
pub(crate) const DECODER_BYTES: usize = 1400 << 10;

/// A decoder that needs more fetches than this for one batch counts as stuck.
const FETCHES_MAX: usize = 100_000;

#[derive(Debug)]
pub(super) struct StreamedRows {
    group: usize,
    windows: VecDeque<Vec<Range<usize>>>,
    decoder: Option<ParquetPushDecoder>,
    /// First row of the current window.
    from: usize,
    window_bytes: usize,
    pub(super) batch: Decoded,
    pub(super) row: usize,
}

impl StreamedRows {
    /// A reader of these rows, which fetches about `window_bytes` at a time.
    pub(super) fn new(
        footer: &Footer,
        group: usize,
        rows: Vec<Range<usize>>,
        select: &Select,
        window_bytes: usize,
    ) -> Self {
        let windows = cut(footer, group, rows, select, window_bytes);
        let (decoder, from, batch, row) = (None, 0, Decoded::default(), 0);
        Self { group, windows, decoder, from, window_bytes, batch, row }
    }

    /// Row group, and a row at or before the current one.
    pub(super) const fn place(&self) -> (usize, usize) {
        (self.group, self.from)
    }

    pub(super) fn step(&mut self) -> bool {
        self.row += 1;
        self.row < self.batch.rows()
    }

    pub(super) fn next_batch(
        &mut self,
        file: &dyn Ranges,
        footer: &Footer,
        select: &Arc<Select>,
        order: &mut Order,
        stats: &mut ReadStats,
    ) -> Result<bool, TableError> {
        self.batch = Decoded::default();
        self.row = 0;
        loop {
            let Some(decoder) = &mut self.decoder else {
                let Some(window) = self.windows.pop_front() else { return Ok(false) };
                self.from = window[0].start;
                self.decoder = Some(self.open(file, footer, select, &window)?);
                continue;
            };
            let Some(batch) = decode(file, decoder, &select.stop, stats)? else {
                self.decoder = None;
                continue;
            };
            stats.rows += batch.num_rows() as u64;
            self.batch = Decoded::new(file.name(), &batch, select.samples, order)?;
            if self.batch.rows() > 0 {
                return Ok(true);
            }
        }
    }

    fn open(
        &self,
        file: &dyn Ranges,
        footer: &Footer,
        select: &Arc<Select>,
        window: &[Range<usize>],
    ) -> Result<ParquetPushDecoder, TableError> {
        let parquet = footer.parquet();
        let group = parquet.row_group(self.group);
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let samples = prune::samples(parquet, self.group).max(1);
        let batch_samples = BATCH_SAMPLES.min(self.window_bytes as u64 / 16);
        let longest = footer.label_bytes().map_or(LABEL_BYTES, |(longest, _)| longest);
        let label_rows = BATCH_LABEL_BYTES / longest.max(1);
        let batch = (batch_samples * rows as u64 / samples).min(label_rows).clamp(1, BATCH_ROWS) as usize;
        let mut builder = ParquetPushDecoderBuilder::new_with_metadata(footer.metadata.clone())
            .with_batch_size(batch)
            .with_row_groups(vec![self.group])
            .with_row_filter(filter::row_filter(parquet, select));
        builder = builder.with_projection(metrics_columns(parquet, select.samples));
        if !matches!(window, [all] if *all == (0..rows)) {
            builder = builder.with_row_selection(selection(window, rows));
        }
        builder.build().map_err(|e| TableError::damaged(file.name(), e))
    }

    pub(super) fn held_bytes(&self) -> usize {
        let decoder = self.decoder.as_ref().map_or(0, |d| DECODER_BYTES + d.buffered_bytes() as usize);
        decoder + self.batch.memory_bytes()
    }
}

pub(super) fn metrics_columns(parquet: &ParquetMetaData, samples: bool) -> ProjectionMask {
    let columns: &[&str] = if samples { &metrics::ROW_COLUMNS } else { &metrics::KEY_COLUMNS };
    ProjectionMask::columns(parquet.file_metadata().schema_descr(), columns.iter().copied())
}

/// Divides rows into windows of about `window_bytes`. A window ends with a page of the largest column that is read, unless labels are
/// long.
fn cut(
    footer: &Footer,
    group: usize,
    ranges: Vec<Range<usize>>,
    select: &Select,
    window_bytes: usize,
) -> VecDeque<Vec<Range<usize>>> {
    let mut windows = VecDeque::new();
    let parquet = footer.parquet();
    let rows = usize::try_from(parquet.row_group(group).num_rows()).unwrap_or(0).max(1);
    let bytes = prune::wanted_bytes(parquet, group, select.samples);
    let wanted = ranges.iter().map(|r| r.end - r.start).sum::<usize>();
    let target = (rows as u128 * window_bytes as u128 / u128::from(bytes.max(1))).clamp(1, usize::MAX as u128)
        as usize;
    let mean = footer.label_bytes().map(|(_, mean)| mean).filter(|mean| *mean > LONG_LABELS_BYTES);
    let most = mean.map_or(usize::MAX, |mean| (WINDOW_LABEL_BYTES / mean) as usize);
    let most = most.max(wanted.div_ceil(LABEL_WINDOWS_MAX)).max(1);
    if wanted <= (target + target / 4).min(most) {
        windows.push_back(ranges);
        return windows;
    }
    let pages = prune::page_starts(parquet, group, select.samples);
    let (mut window, mut len) = (Vec::new(), 0);
    for mut range in ranges {
        while range.start < range.end {
            let least = range.start.saturating_add((target - len).max(1));
            let end =
                pages.get(pages.partition_point(|p| *p < least)).copied().unwrap_or(range.end).min(range.end);
            let end = end.min(range.start.saturating_add(most - len));
            len += end - range.start;
            window.push(range.start..end);
            range.start = end;
            if len >= target.min(most) {
                windows.push_back(std::mem::take(&mut window));
                len = 0;
            }
        }
    }
    if !window.is_empty() {
        windows.push_back(window);
    }
    windows
}

pub(super) fn selection(ranges: &[Range<usize>], rows: usize) -> RowSelection {
    let (mut selectors, mut at) = (Vec::with_capacity(2 * ranges.len() + 1), 0);
    for range in ranges {
        selectors.push(RowSelector::skip(range.start - at));
        selectors.push(RowSelector::select(range.end - range.start));
        at = range.end;
    }
    selectors.push(RowSelector::skip(rows - at));
    selectors.retain(|s| s.row_count > 0);
    RowSelection::from(selectors)
}

pub(super) fn decode(
    file: &dyn Ranges,
    decoder: &mut ParquetPushDecoder,
    stop: &Stop,
    stats: &mut ReadStats,
) -> Result<Option<arrow_array::RecordBatch>, TableError> {
    let damaged = |e: ParquetError| TableError::damaged(file.name(), e);
    for _ in 0..FETCHES_MAX {
        match decoder.try_decode().map_err(|e| stop.or(damaged(e)))? {
            DecodeResult::NeedsData(ranges) => {
                stats.bytes += ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum::<u64>();
                stop.check()?;
                let data = fetch(file, &ranges)?;
                decoder.push_ranges(ranges, data).map_err(damaged)?;
            }
            DecodeResult::Data(batch) => return Ok(Some(batch)),
            DecodeResult::Finished => return Ok(None),
        }
    }
    Err(TableError::damaged(file.name(), "the Parquet decoder makes no progress"))
}

#[cfg(test)]
mod tests;
