//! Rows of a row group by its directory: no row is looked at but the wanted ones, and of their pages no more is decoded
//! than the blocks that reach into the range.

use super::directory::Directory;
use super::frame::Damage;
use super::page::{Expected, Page};
use super::{Footer, Kept, Once, Place, Ranges, ReadStats, fetch, prune};
use crate::decimal;
use crate::error::TableError;
use crate::schema;
use model::{Samples, TimeRange};
use parquet::file::page_index::offset_index::PageLocation;
use std::ops::Range;
use std::sync::Arc;

/// The wanted rows of one row group.
#[derive(Debug)]
pub(super) struct Listed {
    group: usize,
    directory: Arc<Directory>,
    /// The wanted rows, ascending; how many of them have been come to, and up to which one the pages are there.
    rows: Vec<u32>,
    next: usize,
    ready: usize,
    /// Times, mantissas, floats; without samples, none.
    columns: Option<[Column; 3]>,
    window_bytes: usize,
    pub(super) labels: Vec<u8>,
    mantissas: Vec<i64>,
}

const TIMES: usize = 0;
const MANTISSAS: usize = 1;
const FLOATS: usize = 2;

/// A column of samples.
#[derive(Debug)]
struct Column {
    /// The column among all leaves.
    leaf: usize,
    /// The first row of each page.
    starts: Vec<usize>,
    /// Bytes that a page takes when it is open, for each byte in the file.
    growth: f64,
    /// Pages that are open, by their number, ascending.
    open: Vec<(usize, Arc<Page>)>,
    dictionary: Option<Arc<Page>>,
}

/// A page that is not open.
#[derive(Debug)]
struct Missing {
    column: usize,
    page: usize,
    rows: Range<usize>,
    /// Where it is in the file.
    range: Range<u64>,
    /// True where it was kept for other rows.
    partly: bool,
}

impl Listed {
    /// Before the first of the rows of `directory` that `rows` names. About `window_bytes` of pages are held at a time.
    pub(super) fn new(
        footer: &Footer,
        group: usize,
        directory: Arc<Directory>,
        rows: Vec<u32>,
        samples: bool,
        window_bytes: usize,
    ) -> Option<Self> {
        let columns = match samples {
            true => {
                let column = |name| Column::new(footer, group, name);
                Some([column(schema::TIMESTAMPS)?, column(schema::MANTISSAS)?, column(schema::FLOATS)?])
            }
            false => None,
        };
        let ready = if samples { 0 } else { rows.len() };
        Some(Self {
            group,
            directory,
            rows,
            next: 0,
            ready,
            columns,
            window_bytes,
            labels: Vec::new(),
            mantissas: Vec::new(),
        })
    }

    /// Goes to the next row; `false` where there is none. [`Self::load`] comes first where it [`Self::is_dry`].
    pub(super) fn step(&mut self) -> bool {
        let Some(row) = self.rows.get(self.next).map(|row| *row as usize) else { return false };
        let known = self.next.checked_sub(1).map(|last| self.rows[last] as usize);
        if !known.is_some_and(|known| self.directory.same_series(known, row)) {
            self.labels.clear();
            self.directory.put_labels(row, &mut self.labels);
        }
        self.next += 1;
        true
    }

    /// True where the next row's pages are not there.
    pub(super) const fn is_dry(&self) -> bool {
        self.next == self.ready && self.next < self.rows.len()
    }

    /// The row that it stands on.
    pub(super) fn row(&self) -> usize {
        self.rows[self.next - 1] as usize
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Opens the pages of some of the rows that come next.
    pub(super) fn load(
        &mut self,
        file: &dyn Ranges,
        footer: &Footer,
        stats: &mut ReadStats,
    ) -> Result<(), TableError> {
        let Some(columns) = &mut self.columns else { return Ok(()) };
        let locations = |column: &Column| -> &[PageLocation] {
            footer.pages(self.group, column.leaf).expect("BUG: the column has an index of its pages")
        };
        let mut wanted: [Vec<usize>; 3] = Default::default();
        let mut bytes = 0.0;
        for row in &self.rows[self.next..] {
            let row = *row as usize;
            let values = if self.directory.decimal(row).is_some() { MANTISSAS } else { FLOATS };
            let mut more = 0.0;
            let pages = [TIMES, values].map(|c| {
                let page = columns[c].page_of(row);
                let new = wanted[c].last() != Some(&page);
                if new {
                    let len = locations(&columns[c])[page].compressed_page_size;
                    more += f64::from(len) * columns[c].growth;
                }
                (c, page, new)
            });
            if self.ready > self.next && bytes + more > self.window_bytes as f64 {
                break;
            }
            bytes += more;
            pages.into_iter().filter(|(.., new)| *new).for_each(|(c, page, _)| wanted[c].push(page));
            self.ready = self.ready.max(self.next) + 1;
        }
        let mut missing = Vec::new();
        for (c, wanted) in wanted.iter().enumerate() {
            let column = &mut columns[c];
            column.open.retain(|(page, _)| wanted.binary_search(page).is_ok());
            for page in wanted {
                let known = column.open.binary_search_by_key(page, |(page, _)| *page);
                let Err(at) = known else { continue };
                let range = range_of(&locations(column)[*page]);
                let rows = column.rows_of(*page, self.directory.rows());
                match file.kept(Place::Page(range.start)) {
                    Some(Kept::Page(open))
                        if wanted_values(&self.directory, &self.rows, c, &rows)
                            .all(|own| open.holds(&own)) =>
                    {
                        column.open.insert(at, (*page, open));
                    }
                    known => {
                        missing.push(Missing { column: c, page: *page, range, rows, partly: known.is_some() })
                    }
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let damaged = |damage: Damage| TableError::damaged(file.name(), damage);
        let ranges: Vec<_> = missing.iter().map(|missing| missing.range.clone()).collect();
        stats.bytes += ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum::<u64>();
        let fetched = fetch(&Once(file), &ranges)?;
        for (missing, bytes) in missing.into_iter().zip(fetched) {
            let Missing { column: c, page: number, rows, range, partly } = missing;
            let column = &mut columns[c];
            let expected = expected(&self.directory, c, rows.clone());
            let page = if c == FLOATS {
                if column.dictionary.is_none() {
                    column.dictionary = dictionary(file, footer, self.group, column.leaf, stats)?;
                }
                Page::floats(&bytes, &expected, column.dictionary.as_deref())
            } else {
                Page::integers(&bytes, &expected)
            };
            let mut page = page.map_err(damaged)?;
            // a page of which other rows are asked for than before is kept whole
            if !partly {
                page = page.only(wanted_values(&self.directory, &self.rows, c, &rows));
            }
            let page = Arc::new(page);
            file.keep(Place::Page(range.start), Kept::Page(Arc::clone(&page)));
            let at = column.open.partition_point(|(open, _)| *open < number);
            column.open.insert(at, (number, page));
        }
        Ok(())
    }

    /// Appends the samples of the row that lie in `range`.
    pub(super) fn read(&mut self, range: TimeRange, samples: &mut Samples) {
        let row = self.row();
        let columns = self.columns.as_ref().expect("BUG: samples are read where they were selected");
        let (page, own) = columns[TIMES].open_page(&self.directory, TIMES, row);
        let times = page.packed();
        let part = times.narrow(own.clone(), range.start_ms, range.end_ms);
        let before = samples.timestamps.len();
        times.read(part.clone(), &mut samples.timestamps);
        let read = &samples.timestamps[before..];
        let skipped = read.partition_point(|t| *t < range.start_ms);
        let end = read.partition_point(|t| *t <= range.end_ms).max(skipped);
        samples.timestamps.truncate(before + end);
        samples.timestamps.drain(before..before + skipped);
        // where in the row the wanted samples are
        let wanted = part.start - own.start + skipped..part.start - own.start + end;
        let column = if self.directory.decimal(row).is_some() { MANTISSAS } else { FLOATS };
        let (page, own) = columns[column].open_page(&self.directory, column, row);
        let wanted = own.start + wanted.start..own.start + wanted.end;
        match self.directory.decimal(row) {
            Some((base, exponent)) => {
                self.mantissas.clear();
                page.packed().read(wanted, &mut self.mantissas);
                let known = decimal::values(&self.mantissas, base, exponent, &mut samples.values);
                assert!(known, "BUG: the directory has exponents that are known");
            }
            None => samples.values.extend_from_slice(page.as_floats(wanted)),
        }
    }

    /// Bytes that it holds, also where the cache holds them too.
    pub(super) fn held_bytes(&self) -> usize {
        let pages = |column: &Column| {
            let open = column.open.iter().map(|(_, page)| page).chain(&column.dictionary);
            open.map(|page| page.memory_bytes()).sum::<usize>() + column.starts.len() * 8
        };
        let columns = self.columns.iter().flatten().map(pages).sum::<usize>();
        let buffers = 8 * self.mantissas.capacity() + self.labels.capacity();
        self.directory.memory_bytes() + 4 * self.rows.capacity() + columns + buffers
    }
}

impl Column {
    fn new(footer: &Footer, group: usize, name: &str) -> Option<Self> {
        let leaf = prune::leaf(footer.parquet(), name)?;
        let starts = footer.pages(group, leaf)?.iter().map(|page| usize::try_from(page.first_row_index));
        let starts = starts.collect::<Result<Vec<_>, _>>().ok()?;
        let chunk = footer.parquet().row_group(group).column(leaf);
        let growth = chunk.uncompressed_size() as f64 / chunk.compressed_size().max(1) as f64;
        let ordered = starts.first() == Some(&0) && starts.is_sorted_by(|a, b| a < b);
        ordered.then(|| Self { leaf, starts, growth: growth.max(1.0), open: Vec::new(), dictionary: None })
    }

    fn page_of(&self, row: usize) -> usize {
        self.starts.partition_point(|start| *start <= row) - 1
    }

    /// The rows of a page.
    fn rows_of(&self, page: usize, rows: usize) -> Range<usize> {
        let end = self.starts.get(page + 1).copied().unwrap_or(rows).min(rows);
        self.starts[page].min(end)..end
    }

    /// The page with the row, which is of column `column`, and which of its values are the row's.
    fn open_page(&self, directory: &Directory, column: usize, row: usize) -> (&Page, Range<usize>) {
        let number = self.page_of(row);
        let found = self.open.binary_search_by_key(&number, |(page, _)| *page);
        let page = &self.open[found.expect("BUG: the row's pages are open")].1;
        (page, values(directory, column, self.starts[number], row..row + 1))
    }
}

/// The values of a column in some rows, by their place in a page that begins with the row `first`.
fn values(directory: &Directory, column: usize, first: usize, rows: Range<usize>) -> Range<usize> {
    let before = |row| {
        let (samples, decimals) = directory.samples_before(row);
        [samples, decimals, samples - decimals][column]
    };
    before(rows.start) - before(first)..before(rows.end) - before(first)
}

/// Those of each of the wanted rows that are in a page.
fn wanted_values(
    directory: &Directory,
    wanted: &[u32],
    column: usize,
    page: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> {
    let [from, to] = [page.start, page.end].map(|end| wanted.partition_point(|row| (*row as usize) < end));
    let (wanted, first) = (&wanted[from..to], page.start);
    wanted.iter().map(move |row| values(directory, column, first, *row as usize..*row as usize + 1))
}

/// What the directory says of a page.
fn expected(directory: &Directory, column: usize, rows: Range<usize>) -> Expected {
    let values = values(directory, column, rows.start, rows.clone()).len();
    if column == TIMES {
        let samples_before = directory.samples_before(rows.start).0;
        let ends = rows.map(|row| {
            let (end, span) = (directory.samples_before(row + 1).0 - samples_before, directory.span(row));
            (end, span.start_ms, span.end_ms)
        });
        return Expected { levels: values, values, rows: ends.collect() };
    }
    // a row of the other form is a null
    let nulls = rows.filter(|row| directory.decimal(*row).is_some() != (column == MANTISSAS)).count();
    Expected { levels: values + nulls, values, rows: Vec::new() }
}

/// The dictionary of a column of floats, where it has one.
fn dictionary(
    file: &dyn Ranges,
    footer: &Footer,
    group: usize,
    leaf: usize,
    stats: &mut ReadStats,
) -> Result<Option<Arc<Page>>, TableError> {
    let chunk = footer.parquet().row_group(group).column(leaf);
    let first = footer.pages(group, leaf).and_then(|pages| pages.first());
    let (Some(start), Some(first)) = (chunk.dictionary_page_offset(), first) else { return Ok(None) };
    let (Ok(start), Ok(end)) = (u64::try_from(start), u64::try_from(first.offset)) else { return Ok(None) };
    if let Some(Kept::Page(page)) = file.kept(Place::Page(start)) {
        return Ok(Some(page));
    }
    stats.bytes += end.saturating_sub(start);
    let bytes = fetch(&Once(file), std::slice::from_ref(&(start..end)))?;
    let page = bytes.first().map(|bytes| Page::dictionary(bytes)).transpose();
    let page = page.map_err(|damage| TableError::damaged(file.name(), damage))?.map(Arc::new);
    if let Some(page) = &page {
        file.keep(Place::Page(start), Kept::Page(Arc::clone(page)));
    }
    Ok(page)
}

/// Where a page is in the file; an empty range, which no page has, where that cannot be.
fn range_of(page: &PageLocation) -> Range<u64> {
    let start = u64::try_from(page.offset).unwrap_or(0);
    start..start.saturating_add(u64::try_from(page.compressed_page_size).unwrap_or(0))
}
