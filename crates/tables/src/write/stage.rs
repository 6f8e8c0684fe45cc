//! Stages a block of a partition's data as files, for a seal.
//!
//! Each day needs its own file. So a block of many days is staged and committed in *passes*, from first to last day. A
//! pass has no more open files than allowed, and no more files than one commit.

use crate::date::Date;
use crate::delta::{COMMIT_FILES_MAX, StagedFile, Table};
use crate::error::TableError;
use crate::store::FileStem;
use crate::store::Upload;
use crate::write::Stretch;
use crate::write::{BlockWriter, FileSummary, WriteLimits};
use std::collections::BTreeSet;
use std::sync::Arc;

type NewFile = Box<dyn FnMut(Date) -> std::io::Result<Upload> + Send>;

/// Writes a block's stretches into new files, which [`Table::commit`] adds to the table. A sweep deletes the files of a
/// failed stager.
#[derive(Debug)]
pub struct BlockStager {
    table: Arc<Table>,
    writer: BlockWriter<Upload, NewFile>,
    staged: Vec<StagedFile>,
    /// Last day that is already in the table.
    after: Option<Date>,
    days: BTreeSet<Date>,
    days_max: usize,
    files_max: usize,
    /// Last day of this pass, moved back if there are too many days.
    through: Date,
    /// True if samples after `through` were left out.
    is_cut: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Staged {
    pub files: Vec<StagedFile>,
    /// Last day of the pass; `None` if it had all remaining days.
    pub through: Option<Date>,
}

/// A pass whose files are encoded, but not all of them are in the store. Another thread may put the others there.
#[derive(Debug)]
pub struct Encoded {
    table: Arc<Table>,
    staged: Staged,
    rest: Vec<(FileSummary, Upload)>,
}

/// Memory of a file beyond its upload buffer.
const FILE_BYTES: usize = 1 << 10;

impl Encoded {
    pub fn held_bytes(&self) -> usize {
        self.rest.iter().map(|(_, upload)| FILE_BYTES + upload.held_bytes()).sum()
    }

    pub fn put(mut self) -> Result<Staged, TableError> {
        for (summary, upload) in self.rest {
            self.staged.files.push(self.table.staged(summary, upload)?);
        }
        Ok(self.staged)
    }
}

impl BlockStager {
    /// Begins a pass after the day `after`. `stem` must be new.
    pub fn new(table: &Arc<Table>, stem: FileStem, limits: WriteLimits, after: Option<Date>) -> Self {
        let (at, mut count) = (Arc::clone(table), 0);
        let new_file: NewFile = Box::new(move |date| {
            count += 1;
            at.upload(date, &stem, count).map_err(std::io::Error::other)
        });
        Self {
            table: Arc::clone(table),
            writer: BlockWriter::new(table.kind(), limits, new_file),
            staged: Vec::new(),
            after,
            days: BTreeSet::new(),
            days_max: limits.open_max(),
            files_max: COMMIT_FILES_MAX,
            through: Date(i32::MAX),
            is_cut: false,
        }
    }

    /// Adds a series' samples of this pass. Series must come in table order ([`model::LabelsRef::cmp_in_tables`]), each
    /// once.
    pub fn push(&mut self, stretch: &Stretch<'_>) -> Result<(), TableError> {
        let from = self.after.map_or(0, |day| stretch.timestamps.partition_point(|t| *t <= day.end_ms()));
        for (date, part) in stretch.slice(from..stretch.timestamps.len()).days() {
            self.make_room(date);
            if date > self.through {
                self.is_cut = true;
                break;
            }
            self.writer.push(&part)?;
        }
        for (summary, upload) in self.writer.take_finished() {
            self.put(summary, upload)?;
        }
        while self.staged.len() + self.writer.files() > self.files_max && self.days.len() > 1 {
            self.leave_last_day();
        }
        Ok(())
    }

    /// Moves the end of the pass back if there is no room for a day.
    fn make_room(&mut self, date: Date) {
        if date <= self.through && self.days.insert(date) && self.days.len() > self.days_max {
            self.leave_last_day();
        }
    }

    /// Leaves the last day of this pass to the next pass, and drops its files.
    fn leave_last_day(&mut self) {
        let Some(last) = self.days.pop_last() else { return };
        self.writer.abandon(last);
        self.staged.retain(|file| file.summary.date != last);
        self.through = Date(last.0 - 1);
        self.is_cut = true;
    }

    /// True if a series that begins at `first_ms` has no samples in this pass, so that it need not be pushed.
    pub fn is_behind(&mut self, first_ms: i64) -> bool {
        let is_behind = Date::of(first_ms) > self.through;
        self.is_cut |= is_behind;
        is_behind
    }

    /// Memory that the pass uses at present. It grows with each day, up to the [`WriteLimits`].
    pub fn held_bytes(&self) -> usize {
        self.writer.held_bytes()
    }

    pub fn finish(self) -> Result<Staged, TableError> {
        self.encode()?.put()
    }

    /// Finishes encoding. [`Encoded::put`] stores the remaining files.
    pub fn encode(mut self) -> Result<Encoded, TableError> {
        let rest = self.writer.end()?;
        let staged = Staged { files: self.staged, through: self.is_cut.then_some(self.through) };
        Ok(Encoded { table: self.table, staged, rest })
    }

    fn put(&mut self, summary: FileSummary, upload: Upload) -> Result<(), TableError> {
        self.staged.push(self.table.staged(summary, upload)?);
        Ok(())
    }
}
