//! Stages a block of a partition's data as files, for a seal.
//!
//! A block may span any number of days, and each day needs a file of its own. So a block of many days is staged and committed in
//! *passes*, from its first day to its last. A pass has as many days as may be open at a time, and no more files than fit into
//! one commit.

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

/// Writes a block's stretches into new files of a table. The files are not part of the table before [`Table::commit`]. If the
/// stager is dropped or fails, it leaves only files that a sweep deletes.
#[derive(Debug)]
pub struct BlockStager {
    table: Arc<Table>,
    writer: BlockWriter<Upload, NewFile>,
    staged: Vec<StagedFile>,
    /// Last day that is already in the table.
    after: Option<Date>,
    /// Days of this pass.
    days: BTreeSet<Date>,
    days_max: usize,
    files_max: usize,
    /// Last day of this pass. It moves back if there are too many days before it.
    through: Date,
    /// True if samples after `through` were left out.
    is_cut: bool,
}

/// The files of one pass over a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Staged {
    /// Staged files, for [`crate::delta::StagedBlock::files`].
    pub files: Vec<StagedFile>,
    /// Last day of the pass, for [`crate::delta::StagedBlock::through`]; `None` if the pass had all remaining days.
    pub through: Option<Date>,
}

/// A pass whose files are encoded, but not all in the store yet. Another thread may put the rest into the
/// store.
#[derive(Debug)]
pub struct Encoded {
    table: Arc<Table>,
    staged: Staged,
    rest: Vec<(FileSummary, Upload)>,
}

/// Memory of a file in addition to the buffer of its upload.
const FILE_BYTES: usize = 1 << 10;

impl Encoded {
    /// Memory that the files hold.
    pub fn held_bytes(&self) -> usize {
        self.rest.iter().map(|(_, upload)| FILE_BYTES + upload.held_bytes()).sum()
    }

    /// Puts the files into the store.
    pub fn put(mut self) -> Result<Staged, TableError> {
        for (summary, upload) in self.rest {
            self.staged.files.push(self.table.staged(summary, upload)?);
        }
        Ok(self.staged)
    }
}

impl BlockStager {
    /// Begins a pass over a block, from the day after `after` on. `stem` must be new for each attempt.
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

    /// Adds a series' samples, and ignores those of other passes. Series must come in table order
    /// ([`model::LabelsRef::cmp_in_tables`]), each once.
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

    /// Makes sure that a day can be added, and moves the end of the pass back if necessary.
    fn make_room(&mut self, date: Date) {
        if date <= self.through && self.days.insert(date) && self.days.len() > self.days_max {
            self.leave_last_day();
        }
    }

    /// Leaves the last day, and all after it, to the next pass.
    fn leave_last_day(&mut self) {
        let Some(last) = self.days.pop_last() else { return };
        self.writer.abandon(last);
        self.staged.retain(|file| file.summary.date != last);
        self.through = Date(last.0 - 1);
        self.is_cut = true;
    }

    /// True if a series whose first sample is at `first_ms` has nothing in this pass, so that it need not be read or pushed.
    pub fn is_behind(&mut self, first_ms: i64) -> bool {
        let is_behind = Date::of(first_ms) > self.through;
        self.is_cut |= is_behind;
        is_behind
    }

    /// Memory in bytes that the stager holds now. The memory grows with the first samples of each day, up to
    /// the [`WriteLimits`].
    pub fn held_bytes(&self) -> usize {
        self.writer.held_bytes()
    }

    /// Finishes the files and puts them into the store.
    pub fn finish(self) -> Result<Staged, TableError> {
        self.encode()?.put()
    }

    /// Finishes encoding the files. [`Encoded::put`] puts the remaining files into the store.
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
