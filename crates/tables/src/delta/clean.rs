//! Takes log entries away that nobody needs any more.
//!
//! A table opens by its last checkpoint and the entries after it. What lies before is only for who wants to
//! see an older version, or where that checkpoint turns out to be damaged.

use super::Table;
use super::listing::{Checkpoint, Listing, LogFile};
use super::log::FOLDER;
use super::mend::flaw;
use crate::error::TableError;
use crate::fault;
use crate::read::metadata::Depth;

/// Entries that go in one call; the rest goes in the next.
const CLEANED_MAX: usize = 10_000;

/// Checkpoints that a log keeps, with all that came after the first of them: should one be damaged, the one before it and
/// the entries since stand in for it.
const KEPT: usize = 2;

/// What a cleaning came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Log files deleted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Table {
    /// Deletes log files that lie before the last but one of the checkpoints of version `upto` or earlier ones, and were
    /// last written before `before_ms` by the store's clock. Older versions cannot be read any more then; so `upto` must
    /// have been there before any reader began. The first go first, so that what is left after a crash is a log without
    /// its beginning, and nothing else.
    pub fn clean_log(&self, before_ms: i64, upto: u64) -> Result<Cleaned, TableError> {
        let listing = Listing::read(&self.location)?;
        let mut cleaned = Cleaned::default();
        let is_old = |file: &&LogFile| file.modified_ms < before_ms;
        let Some(keep) = self.last_needed(&listing, |c| c.version <= upto && c.files.iter().all(is_old))?
        else {
            return Ok(cleaned);
        };
        fault::point("log_listed")?;
        for file in listing.before(keep).iter().filter(is_old).take(CLEANED_MAX) {
            self.location.delete(&self.location.path(&format!("{FOLDER}/{}", file.name))?)?;
            fault::point("log_entry_deleted")?;
            cleaned.files += 1;
            cleaned.bytes += file.bytes;
        }
        Ok(cleaned)
    }

    /// The version of the earliest checkpoint that is kept. Only what can be read counts: its footer is read, where there
    /// is anything before it.
    fn last_needed(
        &self,
        listing: &Listing,
        counts: impl Fn(&Checkpoint<'_>) -> bool,
    ) -> Result<Option<u64>, TableError> {
        let mut versions: Vec<u64> = Vec::with_capacity(KEPT);
        for checkpoint in listing.checkpoints().filter(counts) {
            if listing.before(checkpoint.version).is_empty() {
                break;
            }
            let flaws = checkpoint.files.iter().map(|file| flaw(&self.location, file, Some(Depth::Footer)));
            let is_sound = flaws.collect::<Result<Vec<_>, _>>()?.iter().all(Option::is_none);
            if is_sound && !versions.contains(&checkpoint.version) {
                versions.push(checkpoint.version);
            }
            if versions.len() == KEPT {
                return Ok(versions.pop());
            }
        }
        Ok(None)
    }
}
