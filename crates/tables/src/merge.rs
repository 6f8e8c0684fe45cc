//! Merges files: returns their rows in table order, series by series. Of two samples with the same series and time, the
//! later write wins.
//!
//! ```text
//!   cursor 0 (earliest) ─┐
//!   cursor 1             ├─▶ heap by labels ─▶ a series ─▶ its samples in chunks, in order of time
//!   cursor 2 (latest)   ─┘
//! ```
//!
//! A merge holds one row of each file with the current series. [`crate::merge::run`] describes the memory of a file.

pub(crate) mod run;

use crate::error::TableError;
use crate::read::{Cursor, Ranges, ReadStats};
use model::sample::overlay;
use model::{LabelsRef, Samples, SeriesKey};
use run::Run;
use std::cmp::Ordering;

/// Call [`Merge::next_series`] first, then [`Merge::next_chunk`] until it returns `false`.
#[derive(Debug)]
pub struct Merge<R: Ranges> {
    sources: Vec<Source<R>>,
    /// Indexes of the sources that are on a row. They form a binary heap, ordered by the row's labels and then by the
    /// order of writes.
    heap: Vec<usize>,
    /// Indexes of the sources that have the current series, the earliest first.
    current: Vec<usize>,
    labels: Vec<u8>,
    key: SeriesKey,
    /// True if damaged files are skipped instead of ending the merge.
    tolerant: bool,
    damaged: Vec<TableError>,
    stats: ReadStats,
    scratch: Samples,
    rows_bytes_max: usize,
}

#[derive(Debug)]
struct Source<R: Ranges> {
    /// Remaining rows of the file, or `None` when there are no more.
    run: Option<Run<R>>,
    row: Samples,
    /// The caller has already got this many samples of `row`.
    at: usize,
    /// True if the cursor is on an unread row of the current series.
    more: bool,
}

impl<R: Ranges> Source<R> {
    fn rest(&self) -> &[i64] {
        &self.row.timestamps[self.at..]
    }

    fn labels(&self) -> LabelsRef<'_> {
        self.run.as_ref().expect("BUG: the source is not on a row").labels()
    }
}

impl<R: Ranges> Merge<R> {
    /// Merges the files of `cursors`, which must be in the order of writes, each before its first row. A `tolerant`
    /// merge skips a damaged file from its first damaged row on; see [`Merge::damaged`].
    pub fn new(cursors: Vec<Cursor<R>>, tolerant: bool) -> Result<Self, TableError> {
        Self::of(cursors.into_iter().map(Run::whole).collect(), tolerant, usize::MAX)
    }

    /// Like [`Merge::new`], but overlapping rows of one series may take at most `rows_bytes_max` of memory.
    pub(crate) fn of(runs: Vec<Run<R>>, tolerant: bool, rows_bytes_max: usize) -> Result<Self, TableError> {
        let source = |run| Source { run: Some(run), row: Samples::default(), at: 0, more: false };
        let sources: Vec<_> = runs.into_iter().map(source).collect();
        let mut merge = Self {
            heap: Vec::with_capacity(sources.len()),
            sources,
            current: Vec::new(),
            labels: Vec::new(),
            key: SeriesKey(0),
            tolerant,
            damaged: Vec::new(),
            stats: ReadStats::default(),
            scratch: Samples::default(),
            rows_bytes_max,
        };
        for i in 0..merge.sources.len() {
            if merge.advance(i)? {
                merge.push(i);
            }
        }
        Ok(merge)
    }

    /// Moves to the next series, and skips samples of the current one that were not read.
    pub fn next_series(&mut self) -> Result<bool, TableError> {
        for i in std::mem::take(&mut self.current) {
            self.release_row(i);
            while self.sources[i].more {
                self.step(i)?;
            }
            if self.sources[i].run.is_some() {
                self.push(i);
            }
        }
        let Some(first) = self.pop() else { return Ok(false) };
        let run = self.sources[first].run.as_ref().expect("BUG: the source is not on a row");
        self.labels.clear();
        self.labels.extend_from_slice(run.labels().as_bytes());
        self.key = run.key();
        self.take(first);
        while let Some(next) = self.heap.first().copied()
            && self.sources[next].labels().as_bytes() == self.labels
        {
            self.pop();
            self.take(next);
        }
        Ok(true)
    }

    fn take(&mut self, source: usize) {
        self.sources[source].more = true;
        self.current.push(source);
    }

    pub fn labels(&self) -> LabelsRef<'_> {
        LabelsRef::from_canonical(&self.labels)
    }

    pub const fn key(&self) -> SeriesKey {
        self.key
    }

    /// Appends the next samples of the current series, in order of time; `false` if there are none.
    pub fn next_chunk(&mut self, out: &mut Samples) -> Result<bool, TableError> {
        loop {
            let before = out.timestamps.len();
            while let Some(first) = self.first_without_overlap() {
                self.read_row(first, out)?;
                if out.timestamps.len() > before {
                    return Ok(true);
                }
            }
            for n in 0..self.current.len() {
                self.fill(self.current[n])?;
            }
            self.bound_rows()?;
            let open = self.current.iter().map(|i| &self.sources[*i]).filter(|s| s.more);
            // Samples after this time cannot be merged yet: the file whose row ends here may have some of them in its
            // next row.
            let upto = open.filter_map(|s| s.row.timestamps.last()).min().copied().unwrap_or(i64::MAX);
            self.append_upto(upto, out);
            if out.timestamps.len() > before {
                return Ok(true);
            }
            if !self.current.iter().any(|i| self.sources[*i].more) {
                return Ok(false);
            }
        }
    }

    pub fn read_all(&mut self, out: &mut Samples) -> Result<(), TableError> {
        while self.next_chunk(out)? {}
        Ok(())
    }

    /// Finds a source whose next row ends before the rows of all other sources begin.
    fn first_without_overlap(&self) -> Option<usize> {
        let starts = self.current.iter().filter_map(|&i| {
            let source = &self.sources[i];
            match source.rest().first() {
                Some(first) => Some((*first, i, None)),
                None if source.more => {
                    let span = source.run.as_ref()?.span();
                    Some((span.start_ms, i, Some(span.end_ms)))
                }
                None => None,
            }
        });
        let (mut first, mut second): (Option<(i64, usize, Option<i64>)>, _) = (None, i64::MAX);
        for next in starts {
            match first {
                Some((start, ..)) if start <= next.0 => second = second.min(next.0),
                _ => {
                    second = first.map_or(second, |(start, ..)| start);
                    first = Some(next);
                }
            }
        }
        let (_, source, end) = first?;
        (end? < second).then_some(source)
    }

    /// Appends all samples of a source's next row, which overlaps with no other source.
    fn read_row(&mut self, i: usize, out: &mut Samples) -> Result<(), TableError> {
        let before = out.timestamps.len();
        let run = self.sources[i].run.as_mut().expect("BUG: a source with more rows has no run");
        if let Err(error) = run.read(out) {
            out.timestamps.truncate(before);
            out.values.truncate(before);
            return self.fail(i, error);
        }
        self.step(i)
    }

    /// If all samples of a source's row were returned, reads its next row of the current series.
    fn fill(&mut self, i: usize) -> Result<(), TableError> {
        while self.sources[i].rest().is_empty() && self.sources[i].more {
            let source = &mut self.sources[i];
            source.row.clear();
            source.at = 0;
            let read =
                source.run.as_mut().expect("BUG: a source with more rows has no run").read(&mut source.row);
            if let Err(error) = read {
                self.sources[i].row = Samples::default();
                self.fail(i, error)?;
                return Ok(());
            }
            self.step(i)?;
        }
        Ok(())
    }

    /// Clears a source's row, and frees its buffer if this is larger than the source's share of the memory.
    fn release_row(&mut self, i: usize) {
        let bytes_max = self.rows_bytes_max / self.sources.len();
        let source = &mut self.sources[i];
        source.at = 0;
        source.row.clear();
        if samples_bytes(&source.row) > bytes_max {
            source.row = Samples::default();
        }
    }

    fn bound_rows(&self) -> Result<(), TableError> {
        let bytes: usize = self.current.iter().map(|i| samples_bytes(&self.sources[*i].row)).sum();
        match bytes <= self.rows_bytes_max {
            true => Ok(()),
            false => {
                let what = "rows of one series that overlap in many files";
                Err(TableError::TooLarge { what, limit_bytes: self.rows_bytes_max })
            }
        }
    }

    /// Moves a source to its next row of the current series, if there is one.
    fn step(&mut self, i: usize) -> Result<(), TableError> {
        let more = self.advance(i)? && self.sources[i].labels().as_bytes() == self.labels;
        self.sources[i].more = more;
        Ok(())
    }

    fn advance(&mut self, i: usize) -> Result<bool, TableError> {
        let Some(run) = &mut self.sources[i].run else { return Ok(false) };
        match run.advance() {
            Ok(true) => Ok(true),
            Ok(false) => {
                self.stats += run.stats();
                self.sources[i].run = None;
                Ok(false)
            }
            Err(error) => {
                self.fail(i, error)?;
                Ok(false)
            }
        }
    }

    /// Skips the rest of a damaged file if the merge is tolerant, and fails otherwise.
    fn fail(&mut self, i: usize, error: TableError) -> Result<(), TableError> {
        if !(self.tolerant && error.is_of_one_file()) {
            return Err(error);
        }
        self.sources[i].run = None;
        self.sources[i].more = false;
        self.damaged.push(error);
        Ok(())
    }

    /// Merges the samples of the current rows with times up to `upto`, and appends them to `out`.
    fn append_upto(&mut self, upto: i64, out: &mut Samples) {
        let sources = &mut self.sources;
        let mut parts: Vec<(usize, usize)> = Vec::with_capacity(self.current.len());
        for i in &self.current {
            let len = sources[*i].rest().partition_point(|t| *t <= upto);
            if len > 0 {
                parts.push((*i, len));
            }
        }
        let first = |(i, _): &(usize, usize)| sources[*i].rest()[0];
        let mut in_time = parts.clone();
        in_time.sort_by_key(first);
        let is_disjoint = in_time.windows(2).all(|w| sources[w[0].0].rest()[w[0].1 - 1] < first(&w[1]));
        if is_disjoint {
            for (i, len) in &in_time {
                append(&sources[*i], *len, out);
            }
        } else {
            // Merges two sources at a time. The later write wins.
            let mut merged = Samples::default();
            for (i, len) in &parts {
                self.scratch.clear();
                let later = sources[*i].row.iter_from(sources[*i].at).take(*len);
                self.scratch.extend(overlay(merged.iter_from(0), later));
                std::mem::swap(&mut merged, &mut self.scratch);
            }
            out.timestamps.extend_from_slice(&merged.timestamps);
            out.values.extend_from_slice(&merged.values);
        }
        for (i, len) in parts {
            sources[i].at += len;
        }
    }

    /// Errors of files that a tolerant merge skipped.
    pub fn damaged(&self) -> &[TableError] {
        &self.damaged
    }

    pub fn stats(&self) -> ReadStats {
        let mut stats = self.stats;
        self.sources.iter().filter_map(|s| s.run.as_ref()).for_each(|run| stats += run.stats());
        stats
    }

    pub fn held_bytes(&self) -> usize {
        let source = |s: &Source<R>| {
            s.run.as_ref().map_or(0, Run::held_bytes) + samples_bytes(&s.row) + size_of::<Source<R>>()
        };
        self.sources.iter().map(source).sum::<usize>() + samples_bytes(&self.scratch) + self.labels.capacity()
    }

    fn order(&self, a: usize, b: usize) -> Ordering {
        self.sources[a].labels().cmp_in_tables(self.sources[b].labels()).then(a.cmp(&b))
    }

    fn push(&mut self, source: usize) {
        self.heap.push(source);
        let mut at = self.heap.len() - 1;
        while at > 0 && self.order(self.heap[at], self.heap[(at - 1) / 2]).is_lt() {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn pop(&mut self) -> Option<usize> {
        if self.heap.is_empty() {
            return None;
        }
        let first = self.heap.swap_remove(0);
        let mut at = 0;
        loop {
            let children = 2 * at + 1..self.heap.len().min(2 * at + 3);
            let least = children.min_by(|a, b| self.order(self.heap[*a], self.heap[*b]));
            let Some(least) = least.filter(|l| self.order(self.heap[*l], self.heap[at]).is_lt()) else {
                return Some(first);
            };
            self.heap.swap(at, least);
            at = least;
        }
    }
}

const fn samples_bytes(samples: &Samples) -> usize {
    8 * (samples.timestamps.capacity() + samples.values.capacity())
}

fn append<R: Ranges>(source: &Source<R>, len: usize, out: &mut Samples) {
    let range = source.at..source.at + len;
    out.timestamps.extend_from_slice(&source.row.timestamps[range.clone()]);
    out.values.extend_from_slice(&source.row.values[range]);
}
