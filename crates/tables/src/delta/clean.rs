//! Deletes log entries that are no longer needed.
//!
//! A table needs its last checkpoint and later entries. Earlier entries serve reads of older versions, and repair.

use super::Table;
use super::listing::{Checkpoint, FOLDER, Listing, LogFile};
use super::repair::flaw;
use crate::error::TableError;
use crate::fault;
use crate::read::Depth;

/// Maximum number of entries deleted in one call.
const CLEANED_MAX: usize = 10_000;

/// Number of checkpoints that a cleaned log still has. All entries after the first of them are kept too, because the
/// first is used if the second is damaged.
const KEPT: usize = 2;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub files: u64,
    pub bytes: u64,
}

impl Table {
    /// Deletes old log files. The last two checkpoints up to version `upto` are kept, and all log files after the
    /// earlier of the two. Files written at `before_ms` or later, by the store's clock, are kept too. No running read
    /// may need a version before `upto`. The oldest files go first, so that a crash leaves no gap.
    pub fn clean_log(&self, before_ms: i64, upto: u64) -> Result<Cleaned, TableError> {
        let listing = Listing::read(&self.location)?;
        let mut cleaned = Cleaned::default();
        let is_old = |file: &&LogFile| file.modified_ms < before_ms;
        let counts = |c: &Checkpoint<'_>| c.version <= upto && c.files.iter().all(is_old);
        let checkpoints: Vec<_> = listing.checkpoints().filter(counts).collect();
        let Some(keep) = self.last_needed(&listing, &checkpoints, is_old)? else { return Ok(cleaned) };
        fault::point("log_listed")?;
        for file in listing.before(keep).iter().filter(is_old).take(CLEANED_MAX) {
            self.location.delete(&self.location.path(&format!("{FOLDER}/{}", file.name))?)?;
            fault::point("log_entry_deleted")?;
            cleaned.files += 1;
            cleaned.bytes += file.bytes;
        }
        Ok(cleaned)
    }

    /// Version of the earliest checkpoint to keep, or `None` if there is nothing to clean. `checkpoints` begin with
    /// the latest; those that cannot be read do not count.
    fn last_needed(
        &self,
        listing: &Listing,
        checkpoints: &[Checkpoint<'_>],
        is_old: impl Fn(&&LogFile) -> bool,
    ) -> Result<Option<u64>, TableError> {
        let by_version = || checkpoints.chunk_by(|a, b| a.version == b.version);
        let least = by_version().nth(KEPT - 1).map(|checkpoints| checkpoints[0].version);
        if !least.is_some_and(|version| listing.before(version).iter().any(|file| is_old(&file))) {
            return Ok(None);
        }
        let mut kept = 0;
        for checkpoints in by_version() {
            kept += usize::from(self.is_any_sound(checkpoints)?);
            if kept == KEPT {
                return Ok(Some(checkpoints[0].version));
            }
        }
        Ok(None)
    }

    /// True if at least one of the checkpoints is sound, which means that the footers of all its files can be read.
    fn is_any_sound(&self, checkpoints: &[Checkpoint<'_>]) -> Result<bool, TableError> {
        for checkpoint in checkpoints {
            let mut is_sound = true;
            for file in &checkpoint.files {
                is_sound &= flaw(&self.location, file, Some(Depth::Footer))?.is_none();
            }
            if is_sound {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
