//! Walks the wanted rows of one file, in the file's order, a window at a time.

use super::row::Decoded;
use super::{Footer, Ranges, ReadStats, Select, fetch, filter, guarded, prune};
use crate::error::TableError;
use crate::schema;
use model::{LabelsRef, Samples, SeriesKey, TimeRange};
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::errors::ParquetError;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a file that are fetched and held together, roughly: enough that what neighbouring windows both
/// need (dictionaries, the page that is cut) does not count.
pub const WINDOW_BYTES: usize = 1 << 20;

/// Samples that are decoded together: 16 bytes each.
const BATCH_SAMPLES: u64 = 32 << 10;

/// Rows that are decoded together: their labels are held.
const BATCH_ROWS: u64 = 512;

/// A decoder asks for bytes a few times for each batch; more often than this it runs in a circle.
const FETCHES_MAX: usize = 100_000;

/// The wanted rows of one file, one after the other.
///
/// It holds the compressed bytes of one window, and one decoded batch.
#[derive(Debug)]
pub struct Cursor<R: Ranges> {
    file: R,
    footer: Arc<Footer>,
    select: Arc<Select>,
    window_bytes: usize,
    /// What is left to read; `None` before the first row was asked for.
    windows: Option<VecDeque<Window>>,
    decoder: Option<ParquetPushDecoder>,
    batch: Decoded,
    /// The row of `batch` that the cursor stands on.
    row: Option<usize>,
    /// Labels and end of the last row before `batch`, to see that rows are in order.
    last: Option<(Vec<u8>, i64)>,
    stats: ReadStats,
}

/// Rows of one row group.
#[derive(Debug)]
struct Window {
    group: usize,
    rows: Vec<Range<usize>>,
}

impl<R: Ranges> Cursor<R> {
    /// A cursor before the first wanted row. It fetches about `window_bytes` at a time.
    pub fn new(file: R, footer: Arc<Footer>, select: Arc<Select>, window_bytes: usize) -> Self {
        Self {
            file,
            footer,
            select,
            window_bytes,
            windows: None,
            decoder: None,
            batch: Decoded::default(),
            row: None,
            last: None,
            stats: ReadStats::default(),
        }
    }

    /// Leaves out what cannot match, and cuts the rest into windows.
    fn plan(&mut self) -> VecDeque<Window> {
        let mut windows = VecDeque::new();
        for (group, rows) in prune::prune(self.footer.parquet(), &self.select) {
            self.stats.row_groups += 1;
            cut(&self.footer, group, rows, &self.select, self.window_bytes, &mut windows);
        }
        windows
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Goes to the next row; `false` where there is none. After an error there is none.
    pub fn advance(&mut self) -> Result<bool, TableError> {
        let next = self.row.map_or(0, |row| row + 1);
        if next < self.batch.rows() {
            self.row = Some(next);
            return Ok(true);
        }
        self.row = None;
        let name = self.file.name().to_string();
        match guarded(&name, || self.next_batch()) {
            Ok(true) => {
                self.row = Some(0);
                Ok(true)
            }
            end => {
                self.windows = Some(VecDeque::new());
                self.decoder = None;
                self.batch = Decoded::default();
                end
            }
        }
    }

    fn next_batch(&mut self) -> Result<bool, TableError> {
        self.last = self.batch.last().or_else(|| self.last.take());
        self.batch = Decoded::default();
        loop {
            let Some(decoder) = &mut self.decoder else {
                if self.windows.is_none() {
                    self.windows = Some(self.plan());
                }
                let Some(window) = self.windows.as_mut().and_then(VecDeque::pop_front) else {
                    return Ok(false);
                };
                self.decoder = Some(self.open(window)?);
                continue;
            };
            let Some(batch) = decode(&self.file, decoder, &mut self.stats)? else {
                self.decoder = None;
                continue;
            };
            self.stats.rows += batch.num_rows() as u64;
            let batch = Decoded::new(self.file.name(), &batch, self.select.samples)?;
            batch.check_order(self.file.name(), self.last.as_ref())?;
            if batch.rows() > 0 {
                self.batch = batch;
                return Ok(true);
            }
        }
    }

    fn open(&self, window: Window) -> Result<ParquetPushDecoder, TableError> {
        let parquet = self.footer.parquet();
        let group = parquet.row_group(window.group);
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let samples = prune::samples(parquet, window.group).max(1);
        let batch = (BATCH_SAMPLES * rows as u64 / samples).clamp(1, BATCH_ROWS) as usize;
        let mut builder = ParquetPushDecoderBuilder::new_with_metadata(self.footer.metadata.clone())
            .with_batch_size(batch)
            .with_row_groups(vec![window.group])
            .with_row_filter(filter::row_filter(parquet, &self.select));
        if !self.select.samples {
            let descriptor = parquet.file_metadata().schema_descr();
            builder = builder.with_projection(ProjectionMask::columns(descriptor, schema::KEY_COLUMNS));
        }
        if !matches!(window.rows.as_slice(), [all] if *all == (0..rows)) {
            builder = builder.with_row_selection(selection(&window.rows, rows));
        }
        builder.build().map_err(|e| TableError::damaged(self.file.name(), e))
    }

    fn at(&self) -> usize {
        self.row.expect("BUG: the cursor stands on a row")
    }

    /// All labels of the row's series.
    pub fn labels(&self) -> LabelsRef<'_> {
        self.batch.labels(self.at())
    }

    /// The key of the row's series.
    pub fn key(&self) -> SeriesKey {
        self.batch.key(self.at())
    }

    /// From the row's first to its last sample, whether wanted or not.
    pub fn span(&self) -> TimeRange {
        self.batch.span(self.at())
    }

    /// Appends the row's wanted samples.
    pub fn read(&self, samples: &mut Samples) -> Result<(), TableError> {
        assert!(self.select.samples, "BUG: samples are read where they were selected");
        self.batch.read(self.file.name(), self.at(), self.select.range, samples)
    }

    /// Bytes of memory that it holds, but for the footer.
    pub fn held_bytes(&self) -> usize {
        let fetched = self.decoder.as_ref().map_or(0, ParquetPushDecoder::buffered_bytes);
        fetched as usize + self.batch.memory_bytes()
    }

    /// What it came to so far.
    pub const fn stats(&self) -> ReadStats {
        self.stats
    }
}

/// Cuts the rows of a row group into windows, where a page of timestamps ends.
fn cut(
    footer: &Footer,
    group: usize,
    ranges: Vec<Range<usize>>,
    select: &Select,
    window_bytes: usize,
    windows: &mut VecDeque<Window>,
) {
    let parquet = footer.parquet();
    let rows = usize::try_from(parquet.row_group(group).num_rows()).unwrap_or(0).max(1);
    let bytes = prune::wanted_bytes(parquet, group, select.samples);
    let wanted = ranges.iter().map(|r| r.end - r.start).sum::<usize>();
    let target = (rows as u128 * window_bytes as u128 / u128::from(bytes.max(1))).clamp(1, usize::MAX as u128)
        as usize;
    if wanted <= target + target / 4 {
        windows.push_back(Window { group, rows: ranges });
        return;
    }
    let pages = prune::page_starts(parquet, group, select.samples);
    let (mut window, mut len) = (Vec::new(), 0);
    for mut range in ranges {
        while range.start < range.end {
            let least = range.start + (target - len).max(1);
            let end =
                pages.get(pages.partition_point(|p| *p < least)).copied().unwrap_or(range.end).min(range.end);
            len += end - range.start;
            window.push(range.start..end);
            range.start = end;
            if len >= target {
                windows.push_back(Window { group, rows: std::mem::take(&mut window) });
                len = 0;
            }
        }
    }
    if !window.is_empty() {
        windows.push_back(Window { group, rows: window });
    }
}

fn selection(ranges: &[Range<usize>], rows: usize) -> RowSelection {
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

/// The next batch, fetching what it takes.
fn decode(
    file: &dyn Ranges,
    decoder: &mut ParquetPushDecoder,
    stats: &mut ReadStats,
) -> Result<Option<arrow_array::RecordBatch>, TableError> {
    let damaged = |e: ParquetError| TableError::damaged(file.name(), e);
    for _ in 0..FETCHES_MAX {
        match decoder.try_decode().map_err(damaged)? {
            DecodeResult::NeedsData(ranges) => {
                stats.bytes += ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum::<u64>();
                let data = fetch(file, &ranges)?;
                decoder.push_ranges(ranges, data).map_err(damaged)?;
            }
            DecodeResult::Data(batch) => return Ok(Some(batch)),
            DecodeResult::Finished => return Ok(None),
        }
    }
    Err(TableError::damaged(file.name(), "its decoder makes no progress"))
}
