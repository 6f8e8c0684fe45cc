//! One block of a partition's data to staged files: what a seal calls.

use crate::block::{Date, Stretch};
use crate::delta::{StagedFile, Table};
use crate::error::TableError;
use crate::store::Upload;
use crate::write::{BlockWriter, FileSummary, WriteLimits};
use std::sync::Arc;

type NewFile = Box<dyn FnMut(Date) -> std::io::Result<Upload> + Send>;

/// Writes a block's stretches into new files of a table. Nothing is in the table before
/// [`Table::commit`]; dropped or failed, it leaves at most files that a sweep takes away.
#[derive(Debug)]
pub struct BlockStager {
    table: Arc<Table>,
    writer: BlockWriter<Upload, NewFile>,
    staged: Vec<StagedFile>,
}

impl BlockStager {
    /// Begins a block. `name` begins the names of its files, and must be new for each attempt.
    pub fn new(table: &Arc<Table>, name: &str, limits: WriteLimits) -> Self {
        let (at, name, mut count) = (Arc::clone(table), name.to_string(), 0u32);
        let new_file: NewFile = Box::new(move |date| {
            count += 1;
            at.upload(date, &format!("{name}-{count}")).map_err(std::io::Error::other)
        });
        Self { table: Arc::clone(table), writer: BlockWriter::new(limits, new_file), staged: Vec::new() }
    }

    /// Adds a series' samples. Series come in table order ([`model::LabelsRef::cmp_in_tables`]), each once.
    pub fn push(&mut self, stretch: &Stretch<'_>) -> Result<(), TableError> {
        self.writer.push(stretch)?;
        for (summary, upload) in self.writer.take_finished() {
            self.put(summary, upload)?;
        }
        Ok(())
    }

    /// Bytes of memory that it holds now. It grows with the first samples of each day to what
    /// [`WriteLimits`] allow.
    pub fn held_bytes(&self) -> usize {
        self.writer.held_bytes()
    }

    /// Ends the files and puts them into the store, for [`crate::delta::StagedBlock::files`].
    pub fn finish(mut self) -> Result<Vec<StagedFile>, TableError> {
        for (summary, upload) in self.writer.end()? {
            self.put(summary, upload)?;
        }
        Ok(self.staged)
    }

    fn put(&mut self, summary: FileSummary, upload: Upload) -> Result<(), TableError> {
        self.staged.push(self.table.staged(summary, upload)?);
        Ok(())
    }
}
