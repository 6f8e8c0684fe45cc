//! Removes whole files, without reading them: those that deletes hide, or all.

use super::commit::{COMMIT_FILES_MAX, Change};
use super::{Files, LiveFile, Table};
use crate::error::TableError;
use crate::fault;

impl Table {
    /// Removes at most [`COMMIT_FILES_MAX`] files whose samples are all hidden by a delete with a sequence of at most
    /// `upto`. Call again until it returns none.
    pub fn remove_fully_deleted(&self, upto: i64) -> Result<Vec<LiveFile>, TableError> {
        self.remove(|files| files.covered(upto).take(COMMIT_FILES_MAX).cloned().collect())
    }

    /// Removes at most [`COMMIT_FILES_MAX`] of the files that the table has now. Call again until it returns none. The table
    /// keeps its floodmarks, so what was in the files is not written again.
    pub fn remove_all(&self) -> Result<Vec<LiveFile>, TableError> {
        self.remove(|files| files.all().iter().take(COMMIT_FILES_MAX).cloned().collect())
    }

    fn remove(&self, select: impl Fn(&Files) -> Vec<LiveFile>) -> Result<Vec<LiveFile>, TableError> {
        loop {
            self.refresh()?;
            let files = self.files()?;
            let selected = select(&files);
            // nobody reads from this list any more, so its files can be erased
            drop(files);
            if selected.is_empty() {
                return Ok(selected);
            }
            // if this fails, another writer has removed some of the files
            if self.change(Change::of_removal(&selected), None)? {
                fault::point("deleted_files_dropped")?;
                return Ok(selected);
            }
        }
    }

    /// Deletes files that were removed from the table, without waiting for a sweep, so readers in other processes may
    /// find them missing. Returns the number of deleted bytes. If a read in this process may need the files, it deletes
    /// none and returns 0; a [`super::Sweeper`] deletes them later.
    pub fn erase(&self, removed: &[LiveFile]) -> Result<u64, TableError> {
        let oldest = self.location.readers().oldest(self.location.prefix());
        if oldest.is_some_and(|oldest| oldest < self.version()) {
            return Ok(0);
        }
        let mut bytes = 0;
        for file in removed {
            self.location.delete(&self.location.path(&file.path)?)?;
            fault::point("deleted_file_erased")?;
            bytes += file.bytes;
        }
        Ok(bytes)
    }
}
