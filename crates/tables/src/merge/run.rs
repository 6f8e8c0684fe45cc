//! One file of a merge, within its share of the memory.
//!
//! ```text
//!   cursor ───────────────▶ merge       if the cursor holds no more than its share
//!   cursor ─▶ rows ahead ─▶ merge       otherwise: the file is closed until these rows are used up
//! ```
//!
//! The Parquet library's decoder takes more than a MiB per open file. So a scan of many files keeps only few open, and
//! is slower with less memory.

use crate::error::TableError;
use crate::kind::Kind;
use crate::read::{Bookmark, Cursor, Ranges, ReadStats, Select};
use crate::tombstone::Mask;
use model::{LabelsRef, Samples, SeriesKey, TimeRange};
use std::collections::VecDeque;
use std::sync::Arc;

/// The wanted rows of one file, in order.
#[derive(Debug)]
pub(crate) struct Run<R: Ranges> {
    state: State<R>,
    kind: &'static Kind,
    select: Arc<Select>,
    mask: Option<Arc<Mask>>,
    window_bytes: usize,
    share_bytes: usize,
    /// Rows that were read ahead. The first of them is the current row.
    ahead: VecDeque<Row>,
    ahead_bytes: usize,
    /// Position after the last row read.
    bookmark: Bookmark,
    /// Error that ended reading ahead. It is returned after the rows before it.
    failure: Option<TableError>,
    /// Statistics of this file's cursors that were closed.
    stats: ReadStats,
}

#[derive(Debug)]
enum State<R: Ranges> {
    /// The cursor, and its number of loads when its memory was last measured.
    Open(Box<Cursor<R>>, u64),
    Closed(R),
    /// No rows are left in the file.
    Over,
}

#[derive(Debug)]
struct Row {
    labels: Box<[u8]>,
    key: SeriesKey,
    span: TimeRange,
    /// `None` if the samples do not fit. The row is then the only one read ahead, and the bookmark is before it.
    samples: Option<Samples>,
}

impl<R: Ranges> Run<R> {
    /// Reads rows through a cursor that is before its first row. The file stays open, however much memory it needs.
    pub(crate) fn whole(cursor: Cursor<R>) -> Self {
        let kind = cursor.kind();
        Self::new(State::Open(Box::new(cursor), 0), kind, Arc::new(Select::ALL), 0, usize::MAX)
    }

    /// Reads a file from its first row on. Between reads, the file holds about `share_bytes` of memory and one row's
    /// labels. About `window_bytes` are fetched at a time.
    pub(crate) fn sharing(
        file: R,
        kind: &'static Kind,
        select: Arc<Select>,
        window_bytes: usize,
        share_bytes: usize,
    ) -> Self {
        Self::new(State::Closed(file), kind, select, window_bytes, share_bytes)
    }

    fn new(
        state: State<R>,
        kind: &'static Kind,
        select: Arc<Select>,
        window_bytes: usize,
        share_bytes: usize,
    ) -> Self {
        Self {
            state,
            kind,
            select,
            mask: None,
            window_bytes,
            share_bytes,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            bookmark: Bookmark::default(),
            failure: None,
            stats: ReadStats::default(),
        }
    }

    #[must_use]
    pub(crate) fn masked(self, mask: Option<Arc<Mask>>) -> Self {
        Self { mask, ..self }
    }

    /// Moves to the next row; `false` at the end or after an error.
    pub(crate) fn advance(&mut self) -> Result<bool, TableError> {
        if let State::Open(cursor, weighed) = &mut self.state {
            let more = cursor.advance();
            if !matches!(more, Ok(true)) {
                self.stats += cursor.stats();
                self.state = State::Over;
                return more;
            }
            if cursor.loads() == *weighed || cursor.held_bytes() <= self.share_bytes {
                *weighed = cursor.loads();
                return Ok(true);
            }
            return self.read_ahead();
        }
        if let Some(row) = self.ahead.pop_front() {
            self.ahead_bytes -= row.memory_bytes();
            if row.samples.is_none() {
                self.bookmark.pass(LabelsRef::from_canonical(&row.labels), row.span);
            }
        }
        match (self.ahead.is_empty(), self.failure.take()) {
            (false, failure) => {
                self.failure = failure;
                Ok(true)
            }
            (true, Some(failure)) => Err(failure),
            (true, None) => self.reopen(),
        }
    }

    fn reopen(&mut self) -> Result<bool, TableError> {
        let State::Closed(file) = std::mem::replace(&mut self.state, State::Over) else { return Ok(false) };
        let mut cursor = self.open(file)?;
        let found = to_next(&mut cursor, &self.bookmark);
        if !matches!(found, Ok(true)) {
            self.stats += cursor.stats();
            return found;
        }
        let is_light = cursor.held_bytes() <= self.share_bytes;
        let loads = cursor.loads();
        self.state = State::Open(Box::new(cursor), loads);
        if is_light { Ok(true) } else { self.read_ahead() }
    }

    fn open(&self, file: R) -> Result<Cursor<R>, TableError> {
        let footer = file.footer(self.kind)?;
        let (select, bookmark) = (Arc::clone(&self.select), self.bookmark.clone());
        Ok(Cursor::resume(file, footer, select, self.window_bytes, bookmark).masked(self.mask.clone()))
    }

    /// Reads ahead from the current row on, as many rows as fit into the share, and closes the file.
    fn read_ahead(&mut self) -> Result<bool, TableError> {
        let State::Open(mut cursor, _) = std::mem::replace(&mut self.state, State::Over) else {
            panic!("BUG: rows are read ahead from a closed file");
        };
        // a row that does not fit is read again later, and its conflicts are counted then
        let mut conflicts = cursor.stats().conflicts;
        let mut more = true;
        while more {
            let row = Row::read(&mut cursor, &self.select);
            let Some(row) = self.or_failure(row) else { break };
            let bytes = row.memory_bytes();
            cursor.mark(&mut self.bookmark);
            if self.ahead_bytes + bytes > self.share_bytes {
                if self.ahead.is_empty() {
                    self.keep(Row { samples: None, ..row });
                }
                break;
            }
            conflicts = cursor.stats().conflicts;
            self.bookmark.pass(LabelsRef::from_canonical(&row.labels), row.span);
            self.keep(row);
            let next = cursor.advance();
            more = self.or_failure(next).unwrap_or(false);
        }
        self.stats += ReadStats { conflicts, ..cursor.stats() };
        if more && self.failure.is_none() {
            self.state = State::Closed(cursor.close());
        }
        match self.failure.take() {
            Some(failure) if self.ahead.is_empty() => Err(failure),
            failure => {
                self.failure = failure;
                Ok(!self.ahead.is_empty())
            }
        }
    }

    fn or_failure<T>(&mut self, result: Result<T, TableError>) -> Option<T> {
        result.map_err(|failure| self.failure = Some(failure)).ok()
    }

    fn keep(&mut self, row: Row) {
        self.ahead_bytes += row.memory_bytes();
        self.ahead.push_back(row);
    }

    fn row(&self) -> &Row {
        self.ahead.front().expect("BUG: the run is not on a row")
    }

    pub(crate) fn labels(&self) -> LabelsRef<'_> {
        match &self.state {
            State::Open(cursor, _) => cursor.labels(),
            _ => LabelsRef::from_canonical(&self.row().labels),
        }
    }

    pub(crate) fn key(&self) -> SeriesKey {
        match &self.state {
            State::Open(cursor, _) => cursor.key(),
            _ => self.row().key,
        }
    }

    /// Time range from the first to the last sample of the row, even if these are not wanted.
    pub(crate) fn span(&self) -> TimeRange {
        match &self.state {
            State::Open(cursor, _) => cursor.span(),
            _ => self.row().span,
        }
    }

    /// Appends the wanted samples of the row.
    pub(crate) fn read(&mut self, samples: &mut Samples) -> Result<(), TableError> {
        if let State::Open(cursor, _) = &mut self.state {
            return cursor.read(samples);
        }
        if let Some(known) = &self.row().samples {
            samples.timestamps.extend_from_slice(&known.timestamps);
            samples.values.extend_from_slice(&known.values);
            return Ok(());
        }
        let State::Closed(file) = std::mem::replace(&mut self.state, State::Over) else {
            panic!("BUG: the samples of a row are not in memory, and its file was dropped");
        };
        let mut cursor = self.open(file)?;
        let found = to_next(&mut cursor, &self.bookmark);
        let read =
            found.and_then(|found| if found { cursor.read(samples).map(|()| true) } else { Ok(false) });
        self.stats += cursor.stats();
        let file = cursor.close();
        let read = match read {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(TableError::damaged(file.name(), "it changed while it was read: a row is missing"))
            }
            Err(failure) => Err(failure),
        };
        self.state = State::Closed(file);
        read
    }

    /// Memory on the heap, including the footer of an open file.
    pub(crate) fn held_bytes(&self) -> usize {
        let cursor = match &self.state {
            State::Open(cursor, _) => cursor.held_bytes(),
            _ => 0,
        };
        cursor + self.ahead_bytes + self.bookmark.memory_bytes()
    }

    pub(crate) fn stats(&self) -> ReadStats {
        let mut stats = self.stats;
        if let State::Open(cursor, _) = &self.state {
            stats += cursor.stats();
        }
        stats
    }
}

impl Row {
    fn read<R: Ranges>(cursor: &mut Cursor<R>, select: &Select) -> Result<Self, TableError> {
        let mut samples = Samples::default();
        if select.samples {
            cursor.read(&mut samples)?;
            samples.timestamps.shrink_to_fit();
            samples.values.shrink_to_fit();
        }
        let labels = cursor.labels().as_bytes().into();
        Ok(Self { labels, key: cursor.key(), span: cursor.span(), samples: Some(samples) })
    }

    fn memory_bytes(&self) -> usize {
        let samples = self.samples.as_ref().map_or(0, |samples| 16 * samples.timestamps.capacity());
        size_of::<Self>() + self.labels.len() + samples
    }
}

/// Moves to the first row after the bookmark; `false` at the end.
fn to_next<R: Ranges>(cursor: &mut Cursor<R>, bookmark: &Bookmark) -> Result<bool, TableError> {
    while cursor.advance()? {
        if !bookmark.is_past(cursor.labels(), cursor.span()) {
            return Ok(true);
        }
    }
    Ok(false)
}
