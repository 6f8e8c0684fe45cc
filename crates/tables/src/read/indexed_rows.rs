//! Reads the rows that a row-group index selects. Of each page, only blocks that overlap the wanted time range are
//! decoded.

use super::index::RowGroupIndex;
use super::{CacheSlot, Cached, Footer, Ranges, ReadStats, Uncached, fetch, prune};
use crate::decimal;
use crate::error::TableError;
use crate::kind::metrics;
use crate::parquet::Damage;
use crate::parquet::{Expected, SamplePage};
use model::{Samples, TimeRange};
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct IndexedRows {
    group: usize,
    index: Arc<RowGroupIndex>,
    /// Wanted rows, ascending.
    rows: Vec<u32>,
    /// Number of rows that were returned, including the current one.
    next: usize,
    /// Number of rows whose pages are open.
    ready: usize,
    /// Times, mantissas and floats; `None` if samples are not selected.
    columns: Option<[Column; 3]>,
    window_bytes: usize,
    pub(super) labels: Vec<u8>,
    mantissas: Vec<i64>,
}

const TIMES: usize = 0;
const MANTISSAS: usize = 1;
const FLOATS: usize = 2;

#[derive(Debug)]
struct Column {
    /// Position of the column among all leaf columns of the file.
    leaf: usize,
    pages: Vec<PagePlace>,
    /// Ratio of an open page's memory to its size in the file, estimated from the whole column.
    growth: f64,
    /// Open pages with their numbers, ascending.
    open: Vec<(usize, Arc<SamplePage>)>,
    dictionary: Option<Arc<SamplePage>>,
}

/// First row of a page, and its place in the file.
#[derive(Debug)]
struct PagePlace {
    first: usize,
    range: Range<u64>,
}

#[derive(Debug)]
struct Missing {
    column: usize,
    page: usize,
    /// True if the page is cached, but without the blocks that are needed now.
    partly: bool,
}

impl IndexedRows {
    /// Reads `rows` of a row group. The pages that are open at a time take about `window_bytes`.
    pub(super) fn new(
        footer: &Footer,
        group: usize,
        index: Arc<RowGroupIndex>,
        rows: Vec<u32>,
        samples: bool,
        window_bytes: usize,
    ) -> Option<Self> {
        let columns = match samples {
            true => {
                let column = |name| Column::new(footer, group, name);
                Some([column(metrics::TIMESTAMPS)?, column(metrics::MANTISSAS)?, column(metrics::FLOATS)?])
            }
            false => None,
        };
        let ready = if samples { 0 } else { rows.len() };
        Some(Self {
            group,
            index,
            rows,
            next: 0,
            ready,
            columns,
            window_bytes,
            labels: Vec::new(),
            mantissas: Vec::new(),
        })
    }

    /// Moves to the next row; `false` at the end. Call [`Self::load`] first if [`Self::is_dry`].
    pub(super) fn step(&mut self) -> bool {
        let Some(row) = self.rows.get(self.next).map(|row| *row as usize) else { return false };
        let known = self.next.checked_sub(1).map(|last| self.rows[last] as usize);
        if !known.is_some_and(|known| self.index.same_series(known, row)) {
            self.labels.clear();
            self.index.put_labels(row, &mut self.labels);
        }
        self.next += 1;
        true
    }

    /// True if the next row's pages are not open.
    pub(super) const fn is_dry(&self) -> bool {
        self.next == self.ready && self.next < self.rows.len()
    }

    pub(super) fn row(&self) -> usize {
        self.rows[self.next - 1] as usize
    }

    pub(super) fn place(&self) -> (usize, usize) {
        (self.group, self.row())
    }

    pub(super) fn index(&self) -> &RowGroupIndex {
        &self.index
    }

    pub(super) fn load(
        &mut self,
        file: &dyn Ranges,
        footer: &Footer,
        stats: &mut ReadStats,
    ) -> Result<(), TableError> {
        let wanted = self.next_pages();
        let missing = self.take_cached(file, &wanted);
        let Some(columns) = self.columns.as_ref().filter(|_| !missing.is_empty()) else { return Ok(()) };
        let range = |missing: &Missing| columns[missing.column].pages[missing.page].range.clone();
        let ranges: Vec<_> = missing.iter().map(range).collect();
        stats.bytes += ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum::<u64>();
        let fetched = fetch(&Uncached(file), &ranges)?;
        for ((missing, range), bytes) in missing.into_iter().zip(ranges).zip(fetched) {
            if missing.column == FLOATS {
                self.load_dictionary(file, footer, stats)?;
            }
            let page = self.open(&missing, &bytes);
            let page = Arc::new(page.map_err(|damage| TableError::damaged(file.name(), damage))?);
            file.cache(CacheSlot::Page(range.start), Cached::Page(Arc::clone(&page)));
            self.insert(missing.column, missing.page, page);
        }
        Ok(())
    }

    /// Numbers of the pages that the next rows need in each column. As many rows as fit are considered, but at least
    /// one.
    fn next_pages(&mut self) -> [Vec<usize>; 3] {
        let mut wanted: [Vec<usize>; 3] = Default::default();
        let Some(columns) = &self.columns else { return wanted };
        let mut room = self.window_bytes as f64;
        for row in &self.rows[self.next..] {
            let row = *row as usize;
            let pages = [TIMES, values_of(&self.index, row)].map(|c| (c, columns[c].page_of(row)));
            let new = pages.map(|(c, page)| wanted[c].last() != Some(&page));
            let new = pages.into_iter().zip(new).filter(|(_, new)| *new).map(|(page, _)| page);
            let bytes = new.clone().map(|(c, page)| columns[c].open_bytes(page)).sum::<f64>();
            if self.ready > self.next && bytes > room {
                break;
            }
            room -= bytes;
            new.for_each(|(c, page)| wanted[c].push(page));
            self.ready = self.ready.max(self.next) + 1;
        }
        wanted
    }

    /// Opens wanted pages that are in the cache, and closes pages that are no longer wanted. Returns the wanted pages
    /// that must be fetched.
    fn take_cached(&mut self, file: &dyn Ranges, wanted: &[Vec<usize>; 3]) -> Vec<Missing> {
        let mut missing = Vec::new();
        let Some(columns) = &mut self.columns else { return missing };
        for (c, (column, wanted)) in columns.iter_mut().zip(wanted).enumerate() {
            column.open.retain(|(page, _)| wanted.binary_search(page).is_ok());
            for page in wanted {
                let Err(at) = column.find(*page) else { continue };
                let rows = column.rows_of(*page, self.index.rows());
                let known = file.cached(CacheSlot::Page(column.pages[*page].range.start));
                let len = values(&self.index, c, rows.start, rows.clone()).len();
                match known {
                    Some(Cached::Page(open))
                        if open.has(c == FLOATS, len)
                            && wanted_values(&self.index, &self.rows, c, &rows)
                                .all(|own| open.holds(&own)) =>
                    {
                        column.open.insert(at, (*page, open));
                    }
                    known => missing.push(Missing { column: c, page: *page, partly: known.is_some() }),
                }
            }
        }
        missing
    }

    fn open(&self, missing: &Missing, bytes: &[u8]) -> Result<SamplePage, Damage> {
        let column = self.column(missing.column);
        let rows = column.rows_of(missing.page, self.index.rows());
        let expected = expected(&self.index, missing.column, rows.clone());
        let page = match missing.column {
            FLOATS => SamplePage::floats(bytes, &expected, column.dictionary.as_ref())?,
            _ => SamplePage::integers(bytes, &expected)?,
        };
        // if the page is cached already, but without the blocks of these rows, it is now cached whole
        Ok(match missing.partly {
            true => page,
            false => page.only(wanted_values(&self.index, &self.rows, missing.column, &rows)),
        })
    }

    fn insert(&mut self, column: usize, page: usize, open: Arc<SamplePage>) {
        let column = &mut self.columns.as_mut().expect("BUG: samples are not selected")[column];
        let at = column.find(page).unwrap_or_else(|at| at);
        column.open.insert(at, (page, open));
    }

    fn column(&self, column: usize) -> &Column {
        &self.columns.as_ref().expect("BUG: samples are read that were not selected")[column]
    }

    fn load_dictionary(
        &mut self,
        file: &dyn Ranges,
        footer: &Footer,
        stats: &mut ReadStats,
    ) -> Result<(), TableError> {
        let column = &mut self.columns.as_mut().expect("BUG: samples are not selected")[FLOATS];
        if column.dictionary.is_none() {
            let chunk = footer.parquet().row_group(self.group).column(column.leaf);
            let start = chunk.dictionary_page_offset().and_then(|start| u64::try_from(start).ok());
            let Some((start, first)) = start.zip(column.pages.first()) else { return Ok(()) };
            column.dictionary = Some(dictionary(file, start..first.range.start, stats)?);
        }
        Ok(())
    }

    pub(super) fn read(&mut self, range: TimeRange, samples: &mut Samples) {
        let row = self.row();
        let (page, own) = self.open_page(TIMES, row);
        let times = page.packed();
        let part = times.narrow(own.clone(), range.start_ms, range.end_ms);
        let before = samples.timestamps.len();
        times.read(part.clone(), &mut samples.timestamps);
        let read = &samples.timestamps[before..];
        let skipped = read.partition_point(|t| *t < range.start_ms);
        let end = read.partition_point(|t| *t <= range.end_ms).max(skipped);
        samples.timestamps.truncate(before + end);
        samples.timestamps.drain(before..before + skipped);
        // positions of the wanted samples within the row
        let wanted = part.start - own.start + skipped..part.start - own.start + end;
        let mut mantissas = std::mem::take(&mut self.mantissas);
        let (page, own) = self.open_page(values_of(&self.index, row), row);
        let wanted = own.start + wanted.start..own.start + wanted.end;
        match self.index.decimal(row) {
            Some((base, exponent)) => {
                mantissas.clear();
                page.packed().read(wanted, &mut mantissas);
                let known = decimal::values(&mantissas, base, exponent, &mut samples.values);
                assert!(known, "BUG: the index has an unknown exponent");
            }
            None => page.put_floats(wanted, &mut samples.values),
        }
        self.mantissas = mantissas;
    }

    /// The open page that holds the row's values, and their range in this page.
    fn open_page(&self, column: usize, row: usize) -> (&SamplePage, Range<usize>) {
        let of = self.column(column);
        let number = of.page_of(row);
        let page = &of.open[of.find(number).expect("BUG: a page of the row is not open")].1;
        (page, values(&self.index, column, of.pages[number].first, row..row + 1))
    }

    /// Memory of the reader, with shared cached pages.
    pub(super) fn held_bytes(&self) -> usize {
        let pages = |column: &Column| {
            let open = column.open.iter().map(|(_, page)| page).chain(&column.dictionary);
            open.map(|page| page.memory_bytes()).sum::<usize>() + size_of_val(&*column.pages)
        };
        let columns = self.columns.iter().flatten().map(pages).sum::<usize>();
        let buffers = 8 * self.mantissas.capacity() + self.labels.capacity();
        self.index.memory_bytes() + 4 * self.rows.capacity() + columns + buffers
    }
}

impl Column {
    /// Returns `None` if the file has no plausible page index.
    fn new(footer: &Footer, group: usize, name: &str) -> Option<Self> {
        let leaf = prune::leaf(footer.parquet(), name)?;
        let pages = footer.pages(group, leaf)?.iter().map(|page| {
            let start = u64::try_from(page.offset).ok()?;
            let end = start.checked_add(u64::try_from(page.compressed_page_size).ok()?)?;
            Some(PagePlace { first: usize::try_from(page.first_row_index).ok()?, range: start..end })
        });
        let pages = pages.collect::<Option<Vec<_>>>()?;
        let chunk = footer.parquet().row_group(group).column(leaf);
        let growth = chunk.uncompressed_size() as f64 / chunk.compressed_size().max(1) as f64;
        let ordered =
            pages.first().is_some_and(|page| page.first == 0) && pages.is_sorted_by(|a, b| a.first < b.first);
        ordered.then(|| Self { leaf, pages, growth: growth.max(1.0), open: Vec::new(), dictionary: None })
    }

    fn page_of(&self, row: usize) -> usize {
        self.pages.partition_point(|page| page.first <= row) - 1
    }

    fn rows_of(&self, page: usize, rows: usize) -> Range<usize> {
        let end = self.pages.get(page + 1).map_or(rows, |next| next.first).min(rows);
        self.pages[page].first.min(end)..end
    }

    fn open_bytes(&self, page: usize) -> f64 {
        let range = &self.pages[page].range;
        (range.end - range.start) as f64 * self.growth
    }

    /// Position of the page among the open pages, or as an error the position at which to insert it.
    fn find(&self, page: usize) -> Result<usize, usize> {
        self.open.binary_search_by_key(&page, |(page, _)| *page)
    }
}

fn values_of(index: &RowGroupIndex, row: usize) -> usize {
    if index.decimal(row).is_some() { MANTISSAS } else { FLOATS }
}

/// Range of the values of `rows` in a page that begins with the row `first`.
fn values(index: &RowGroupIndex, column: usize, first: usize, rows: Range<usize>) -> Range<usize> {
    let before = |row| {
        let (samples, decimals) = index.samples_before(row);
        [samples, decimals, samples - decimals][column]
    };
    before(rows.start) - before(first)..before(rows.end) - before(first)
}

/// For each wanted row on the page, the range of its values there. `page` is the page's range of rows.
fn wanted_values(
    index: &RowGroupIndex,
    wanted: &[u32],
    column: usize,
    page: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> {
    let [from, to] = [page.start, page.end].map(|end| wanted.partition_point(|row| (*row as usize) < end));
    let (wanted, first) = (&wanted[from..to], page.start);
    wanted.iter().map(move |row| values(index, column, first, *row as usize..*row as usize + 1))
}

fn expected(index: &RowGroupIndex, column: usize, rows: Range<usize>) -> Expected {
    let values = values(index, column, rows.start, rows.clone()).len();
    if column == TIMES {
        let samples_before = index.samples_before(rows.start).0;
        let ends = rows.map(|row| {
            let (end, span) = (index.samples_before(row + 1).0 - samples_before, index.span(row));
            (end, span.start_ms, span.end_ms)
        });
        return Expected { levels: values, values, rows: ends.collect() };
    }
    // a row of floats has null mantissas, and a row of mantissas has null floats
    let nulls = rows.filter(|row| index.decimal(*row).is_some() != (column == MANTISSAS)).count();
    Expected { levels: values + nulls, values, rows: Vec::new() }
}

fn dictionary(
    file: &dyn Ranges,
    range: Range<u64>,
    stats: &mut ReadStats,
) -> Result<Arc<SamplePage>, TableError> {
    let slot = CacheSlot::Page(range.start);
    if let Some(Cached::Page(page)) = file.cached(slot) {
        return Ok(page);
    }
    stats.bytes += range.end.saturating_sub(range.start);
    let fetched = fetch(&Uncached(file), std::slice::from_ref(&range))?;
    let page =
        SamplePage::dictionary(&fetched[0]).map_err(|damage| TableError::damaged(file.name(), damage))?;
    let page = Arc::new(page);
    file.cache(slot, Cached::Page(Arc::clone(&page)));
    Ok(page)
}

#[cfg(test)]
mod tests;
