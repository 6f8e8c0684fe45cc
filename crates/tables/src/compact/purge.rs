//! Rewrites files with deleted rows, each in its own job unless it is merged anyway.

use super::{CompactLimits, Job};
use crate::delta::{Files, Table};
use crate::error::TableError;
use crate::live_file::LiveFile;
use crate::read::{Cursor, Footer, Pace, Select, Stop};
use crate::tombstone::{Masking, Tombstone};
use std::collections::HashSet;
use std::sync::Arc;

/// Each time it has checked this many rows, [`has_deleted_rows`] asks `go_on` whether to continue.
const STEP_ROWS: u64 = 4096;

/// Returns a job for each file that may have deleted rows and that none of `jobs` rewrites anyway. `is_clean(file,
/// sequence)` is true if tombstones up to this sequence need not be applied to the file.
pub(crate) fn purges(files: &Files, jobs: &[Job], is_clean: impl Fn(&LiveFile, i64) -> bool) -> Vec<Job> {
    let tombstones = &files.tombstones().list;
    if tombstones.is_empty() {
        return Vec::new();
    }
    let merged: HashSet<&str> = jobs.iter().flat_map(|job| &job.files).map(|f| f.path.as_str()).collect();
    let is_due = |file: &&LiveFile| {
        let is_open = |t: &Tombstone| t.concerns(file) && !is_clean(file, t.sequence);
        !merged.contains(file.path.as_str()) && tombstones.iter().any(is_open)
    };
    let job = |file: &LiveFile| Job { date: file.date, files: vec![file.clone()], cuts: Vec::new() };
    files.all().iter().filter(is_due).map(job).collect()
}

/// True if tombstones may delete rows of the file, as far as the rows' labels and times tell. `None` if `go_on` or
/// `stop` ended the check.
pub(crate) fn has_deleted_rows(
    table: &Table,
    files: &Files,
    file: &LiveFile,
    limits: &CompactLimits,
    stop: &Stop,
    go_on: impl FnMut() -> bool,
) -> Result<Option<bool>, TableError> {
    match find_deleted_row(table, files, file, limits, stop, go_on) {
        Err(TableError::Canceled) => Ok(None),
        found => found,
    }
}

fn find_deleted_row(
    table: &Table,
    files: &Files,
    file: &LiveFile,
    limits: &CompactLimits,
    stop: &Stop,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<bool>, TableError> {
    let Some(mask) = files.mask(file) else { return Ok(Some(false)) };
    let (mut masking, mut pace) = (Masking::new(mask), Pace::default());
    let stored = table.file(file)?;
    let footer = Arc::new(Footer::read(table.kind(), &stored)?);
    let select = Arc::new(Select { samples: false, stop: stop.clone(), ..Select::ALL });
    let mut cursor = Cursor::new(stored, footer, select, limits.window_bytes);
    let mut rows = 0_u64;
    while cursor.advance()? {
        masking.enter(cursor.labels(), |bytes| pace.check(stop, bytes))?;
        if masking.touches(cursor.span()) {
            return Ok(Some(true));
        }
        rows += 1;
        if rows.is_multiple_of(STEP_ROWS) && !go_on() {
            return Ok(None);
        }
    }
    Ok(Some(false))
}
