//! Walks the wanted rows of one file, in order.
//!
//! Rows of a row group with an index are looked up in the index ([`super::indexed_rows`]). Other rows are decoded in
//! order ([`super::streamed_rows`]). An index is built for a row group's second read, or when most of it is read.

use super::foreign::Foreign;
use super::index::RowGroupIndex;
use super::indexed_rows::IndexedRows;
use super::label_scan::LabelScan;
use super::row::Order;
use super::stop::Pace;
use super::streamed_rows::StreamedRows;
use super::{CacheSlot, Cached, Footer, Ranges, ReadStats, Select, Uncached, guarded, prune};
use crate::error::TableError;
use crate::kind::Kind;
use crate::tombstone::{Mask, Masking};
use model::{LabelsRef, Samples, SeriesKey, TimeRange};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Default number of bytes that are fetched at a time, called a window. Edges of windows are read twice, which costs
/// little at this size.
pub const WINDOW_BYTES: usize = 1 << 20;

/// The wanted rows of one file. Holds the pages of one window and their decoded data.
#[derive(Debug)]
pub struct Cursor<R: Ranges> {
    file: R,
    footer: Arc<Footer>,
    select: Arc<Select>,
    window_bytes: usize,
    /// Row groups that are still to be read, each with the rows that may match. `None` before the first row.
    groups: Option<VecDeque<(usize, Vec<Range<usize>>)>>,
    part: Part,
    order: Order,
    pace: Pace,
    stats: ReadStats,
    from: Bookmark,
    masking: Option<Box<Masking>>,
    /// Number of fetches and decodings. The cursor's memory grows only with them.
    loads: u64,
}

/// Position from which another cursor continues.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bookmark {
    /// A row group, and a row in it at or before the next row to read.
    group: usize,
    row: usize,
    /// Labels and end time of the last row read.
    last: Option<(Box<[u8]>, i64)>,
}

impl Bookmark {
    pub(crate) fn is_past(&self, labels: LabelsRef<'_>, span: TimeRange) -> bool {
        self.last.as_ref().is_some_and(|(last, end_ms)| {
            match labels.cmp_in_tables(LabelsRef::from_canonical(last)) {
                Ordering::Less => true,
                Ordering::Equal => span.start_ms <= *end_ms,
                Ordering::Greater => false,
            }
        })
    }

    pub(crate) fn pass(&mut self, labels: LabelsRef<'_>, span: TimeRange) {
        match &mut self.last {
            Some((last, end_ms)) if **last == *labels.as_bytes() => *end_ms = span.end_ms,
            last => *last = Some((labels.as_bytes().into(), span.end_ms)),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.last.as_ref().map_or(0, |(labels, _)| labels.len())
    }

    /// Removes the rows before the bookmark from the rows to read.
    fn cut(&self, mut groups: VecDeque<(usize, Vec<Range<usize>>)>) -> VecDeque<(usize, Vec<Range<usize>>)> {
        groups.retain(|(group, _)| *group >= self.group);
        if let Some((group, rows)) = groups.front_mut()
            && *group == self.group
        {
            rows.retain(|rows| rows.end > self.row);
            if let Some(first) = rows.first_mut() {
                first.start = first.start.max(self.row);
            }
        }
        groups.retain(|(_, rows)| !rows.is_empty());
        groups
    }
}

#[derive(Debug)]
enum Part {
    /// The cursor is before the first row, or after the last.
    None,
    Stream(Box<StreamedRows>),
    Indexed(Box<IndexedRows>),
    /// A file of another program, read as a whole.
    Foreign(Box<Foreign>),
}

impl<R: Ranges> Cursor<R> {
    /// A cursor before the first wanted row. It fetches about `window_bytes` at a time.
    pub fn new(file: R, footer: Arc<Footer>, select: Arc<Select>, window_bytes: usize) -> Self {
        Self::resume(file, footer, select, window_bytes, Bookmark::default())
    }

    /// A cursor that continues at the bookmark `from`. It may return some rows before the bookmark again, which
    /// [`Bookmark::is_past`] recognizes.
    pub(crate) fn resume(
        file: R,
        footer: Arc<Footer>,
        select: Arc<Select>,
        window_bytes: usize,
        from: Bookmark,
    ) -> Self {
        let (part, order, stats) = (Part::None, Order::default(), ReadStats::default());
        let (pace, loads) = (Pace::default(), 0);
        let masking = None;
        Self {
            file,
            footer,
            select,
            window_bytes,
            groups: None,
            part,
            order,
            pace,
            stats,
            from,
            masking,
            loads,
        }
    }

    #[must_use]
    pub(crate) fn masked(mut self, mask: Option<Arc<Mask>>) -> Self {
        self.masking = mask.map(|mask| Box::new(Masking::new(mask)));
        self
    }

    /// Sets a bookmark with which another cursor continues at the current row, or shortly before it.
    pub(crate) fn mark(&self, bookmark: &mut Bookmark) {
        (bookmark.group, bookmark.row) = match &self.part {
            Part::None | Part::Foreign(_) => (0, 0),
            Part::Stream(stream) => stream.place(),
            Part::Indexed(indexed) => indexed.place(),
        };
    }

    pub(crate) fn close(self) -> R {
        self.file
    }

    pub(crate) const fn loads(&self) -> u64 {
        self.loads
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.footer.kind()
    }

    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Moves to the next row; `false` at the end or after an error.
    pub fn advance(&mut self) -> Result<bool, TableError> {
        while self.next_row()? {
            if !self.is_hidden()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if the mask hides all wanted samples of the row.
    fn is_hidden(&mut self) -> Result<bool, TableError> {
        let Some(mut masking) = self.masking.take() else { return Ok(false) };
        let mut pace = std::mem::take(&mut self.pace);
        let entered = masking.enter(self.labels(), |bytes| pace.check(&self.select.stop, bytes));
        let is_hidden = entered.map(|()| masking.hides(self.span(), self.select.range));
        (self.pace, self.masking) = (pace, Some(masking));
        if is_hidden.is_err() {
            self.end();
        }
        is_hidden
    }

    fn end(&mut self) {
        self.groups = Some(VecDeque::new());
        self.part = Part::None;
    }

    /// Like [`Self::advance`], but includes hidden rows.
    fn next_row(&mut self) -> Result<bool, TableError> {
        let end = match self.pace.check(&self.select.stop, 0) {
            Ok(()) if self.step() => return Ok(true),
            Ok(()) => {
                let name = self.file.name().to_string();
                guarded(&name, || self.fill())
            }
            Err(interrupted) => Err(interrupted),
        };
        if !matches!(end, Ok(true)) {
            self.end();
        }
        end
    }

    /// Moves to the next row, if that row is decoded already.
    fn step(&mut self) -> bool {
        match &mut self.part {
            Part::None | Part::Foreign(_) => false,
            Part::Stream(stream) => stream.step(),
            Part::Indexed(indexed) => !indexed.is_dry() && indexed.step(),
        }
    }

    /// Decodes the next rows, and moves to the first of them. Returns `false` if there are none.
    fn fill(&mut self) -> Result<bool, TableError> {
        self.loads += 1;
        loop {
            self.select.stop.check()?;
            match &mut self.part {
                Part::None => {}
                Part::Foreign(rows) => {
                    return rows.advance(&self.file, &self.footer, &self.select, &mut self.stats);
                }
                Part::Stream(stream) => {
                    let Self { file, footer, select, order, stats, .. } = self;
                    if stream.next_batch(file, footer, select, order, stats)? {
                        return Ok(true);
                    }
                }
                Part::Indexed(indexed) if indexed.is_dry() => {
                    indexed.load(&self.file, &self.footer, &mut self.stats)?;
                    indexed.step();
                    return Ok(true);
                }
                Part::Indexed(indexed) => {
                    let span = indexed.index().span(indexed.row());
                    self.order.pass(&indexed.labels, span);
                }
            }
            self.part = Part::None;
            if self.groups.is_none() && self.footer.is_foreign() {
                self.begin_foreign();
                continue;
            }
            let next = match &mut self.groups {
                Some(groups) => groups,
                none => none.insert(self.from.cut(prune::prune(self.footer.parquet(), &self.select).into())),
            };
            let Some((group, rows)) = next.pop_front() else { return Ok(false) };
            self.stats.row_groups += 1;
            if self.begin(group, rows)? {
                return Ok(true);
            }
        }
    }

    fn begin_foreign(&mut self) {
        self.groups = Some(VecDeque::new());
        let from = self.from.last.as_ref().map(|(labels, _)| &**labels);
        self.part = Part::Foreign(Box::new(Foreign::new(self.window_bytes, from)));
    }

    /// Begins to read a row group. Returns true if the cursor is on a row.
    fn begin(&mut self, group: usize, rows: Vec<Range<usize>>) -> Result<bool, TableError> {
        if let Some(index) = row_group_index(&self.file, &self.footer, group, &rows, &mut self.stats)? {
            let mut wanted = index.select(&self.select)?;
            wanted.drain(..wanted.partition_point(|row| (*row as usize) < rows[0].start));
            if wanted.is_empty() {
                return Ok(false);
            }
            let (samples, window) = (self.select.samples, self.window_bytes);
            self.stats.rows += wanted.len() as u64;
            if let Some(mut indexed) = IndexedRows::new(&self.footer, group, index, wanted, samples, window) {
                if indexed.is_dry() {
                    indexed.load(&self.file, &self.footer, &mut self.stats)?;
                }
                indexed.step();
                let span = indexed.index().span(indexed.row());
                self.order
                    .next(&indexed.labels, span)
                    .map_err(|e| TableError::damaged(self.file.name(), e))?;
                self.part = Part::Indexed(Box::new(indexed));
                return Ok(true);
            }
        }
        let stream = StreamedRows::new(&self.footer, group, rows, &self.select, self.window_bytes);
        self.part = Part::Stream(Box::new(stream));
        Ok(false)
    }

    /// Passes label names or values of the wanted rows to `each`, perhaps repeatedly. Returns `false` once `each` does.
    /// The cursor is then at its end.
    pub fn scan_labels(
        &mut self,
        what: LabelScan<'_>,
        each: &mut dyn FnMut(&str) -> bool,
    ) -> Result<bool, TableError> {
        if self.footer.is_foreign() {
            self.begin_foreign();
            return self.scan_rest(what, each);
        }
        if self.masking.is_some() {
            // rows are read one by one, because the label columns do not show which rows are hidden by deletes
            return self.scan_rest(what, each);
        }
        let name = self.file.name().to_string();
        let mut more = true;
        for (group, rows) in prune::prune(self.footer.parquet(), &self.select) {
            self.select.stop.check()?;
            let mut give = |text: &str| more = more && each(text);
            let is_whole = self.may_scan_labels_whole(group);
            // a row group that is read for the first time: its label columns are read faster than an index is built
            if is_whole && self.file.cached(CacheSlot::Index(group)).is_none() {
                self.file.cache(CacheSlot::Index(group), Cached::Asked);
                what.each_of(&Uncached(&self.file), &self.footer, group, &mut give)?;
            } else if let Some(known) =
                guarded(&name, || row_group_index(&self.file, &self.footer, group, &rows, &mut self.stats))?
            {
                match what {
                    LabelScan::Names => known.label_names(&self.select, &mut give)?,
                    LabelScan::Values(label) => known.label_values(label, &self.select, &mut give)?,
                }
            } else if is_whole {
                what.each_of(&Uncached(&self.file), &self.footer, group, &mut give)?;
            } else {
                more = self.scan_rows(group, rows, what, each)?;
            }
            if !more {
                break;
            }
        }
        self.groups = Some(VecDeque::new());
        self.part = Part::None;
        Ok(more)
    }

    /// True if a whole row group is wanted, and there is memory for its distinct labels.
    fn may_scan_labels_whole(&self, group: usize) -> bool {
        let Self { footer, select, .. } = self;
        footer.is_ours()
            && select.takes_all_series()
            && prune::all_overlap(footer.parquet(), group, select.range)
            && LabelScan::has_room(footer, group)
    }

    /// Like [`Self::scan_labels`], for a row group without an index.
    fn scan_rows(
        &mut self,
        group: usize,
        rows: Vec<Range<usize>>,
        what: LabelScan<'_>,
        each: &mut dyn FnMut(&str) -> bool,
    ) -> Result<bool, TableError> {
        let stream = StreamedRows::new(&self.footer, group, rows, &self.select, self.window_bytes);
        self.part = Part::Stream(Box::new(stream));
        self.groups = Some(VecDeque::new());
        self.scan_rest(what, each)
    }

    /// Like [`Self::scan_labels`], for the remaining rows.
    fn scan_rest(
        &mut self,
        what: LabelScan<'_>,
        each: &mut dyn FnMut(&str) -> bool,
    ) -> Result<bool, TableError> {
        let mut more = true;
        while more && self.advance()? {
            let labels = self.labels();
            more = match what {
                LabelScan::Names => labels.iter().all(|(name, _)| each(name)),
                LabelScan::Values(label) => labels.get(label).is_none_or(&mut *each),
            };
        }
        Ok(more)
    }

    pub fn labels(&self) -> LabelsRef<'_> {
        match &self.part {
            Part::None => panic!("BUG: the cursor is not on a row"),
            Part::Foreign(rows) => rows.labels(),
            Part::Stream(stream) => stream.batch.labels(stream.row),
            Part::Indexed(indexed) => LabelsRef::from_canonical(&indexed.labels),
        }
    }

    pub fn key(&self) -> SeriesKey {
        match &self.part {
            Part::None => panic!("BUG: the cursor is not on a row"),
            Part::Foreign(rows) => rows.key(),
            Part::Stream(stream) => stream.batch.key(stream.row),
            Part::Indexed(indexed) => indexed.index().key(indexed.row()),
        }
    }

    /// Time range from the first to the last sample of the row, even if these are not wanted.
    pub fn span(&self) -> TimeRange {
        match &self.part {
            Part::None => panic!("BUG: the cursor is not on a row"),
            Part::Foreign(rows) => rows.span(),
            Part::Stream(stream) => stream.batch.span(stream.row),
            Part::Indexed(indexed) => indexed.index().span(indexed.row()),
        }
    }

    /// Appends the wanted samples of the row.
    pub fn read(&mut self, samples: &mut Samples) -> Result<(), TableError> {
        assert!(self.select.samples, "BUG: samples are read that were not selected");
        let (range, before) = (self.select.range, samples.timestamps.len());
        match &mut self.part {
            Part::None => panic!("BUG: the cursor is not on a row"),
            Part::Foreign(rows) => self.stats.conflicts += rows.read(samples),
            Part::Stream(stream) => stream.batch.read(self.file.name(), stream.row, range, samples)?,
            Part::Indexed(indexed) => indexed.read(range, samples),
        }
        if let Some(masking) = &self.masking {
            masking.cut(samples, before);
        }
        Ok(())
    }

    /// Memory of the cursor, with the footer and shared cached data.
    pub fn held_bytes(&self) -> usize {
        let masking = self.masking.as_ref().map_or(0, |masking| masking.memory_bytes());
        self.footer.memory_bytes() + self.decoded_bytes() + masking
    }

    fn decoded_bytes(&self) -> usize {
        match &self.part {
            Part::None => 0,
            Part::Foreign(rows) => rows.held_bytes(),
            Part::Stream(stream) => stream.held_bytes(),
            Part::Indexed(indexed) => indexed.held_bytes(),
        }
    }

    pub const fn stats(&self) -> ReadStats {
        self.stats
    }
}

/// Returns the cached index of a row group, or builds one if that pays off for reading `rows` and the index fits into
/// the cache.
pub(super) fn row_group_index(
    file: &dyn Ranges,
    footer: &Footer,
    group: usize,
    rows: &[Range<usize>],
    stats: &mut ReadStats,
) -> Result<Option<Arc<RowGroupIndex>>, TableError> {
    let slot = CacheSlot::Index(group);
    if !footer.is_ours() {
        return Ok(None);
    }
    // asked even if the index is known, so that each read of the same row groups has room for the same indexes
    let fits = file.has_room_for_index(group, RowGroupIndex::estimate(footer, group));
    let known = file.cached(slot);
    if let Some(Cached::Index(index)) = known {
        return Ok(Some(index));
    }
    if !fits {
        return Ok(None);
    }
    // the first read of a small part of a row group is faster without building an index
    let few = 2 * rows.iter().map(Range::len).sum::<usize>() < footer.rows_of(group);
    if few && known.is_none() {
        file.cache(slot, Cached::Asked);
        return Ok(None);
    }
    let index = Arc::new(RowGroupIndex::read(&Uncached(file), footer, group)?);
    stats.indexes += 1;
    file.cache(slot, Cached::Index(Arc::clone(&index)));
    Ok(Some(index))
}
