//! Lists the labels of a table. Reads one file after the other, in memory independent of their number.
//!
//! ```text
//!   snapshot ─▶ live files by day, time, names ─▶ some of them ─▶ small ones: whole, side by side ─┐
//!                                                     ▲        └▶ others: footer, columns ─────────┴▶ each file's labels
//!                                                     └──────────────────────────────────────────────────┘
//! ```
//!
//! Labels and series are returned once for each file. A [`scan`](crate::scan) returns each series once, but reads all
//! files together. [`from_newest`] reads the files in another order, from the one with the newest samples on.

use crate::delta::{Files, Table};
use crate::error::TableError;
use crate::live_file::LiveFile;
use crate::read::{Cache, CachedFile, Cursor, LabelScan, Ranges, Select, WINDOW_BYTES};
use crate::scan::{left_out, matching, may_match};
use crate::store::StoredFile;
use model::LabelsRef;
use std::cmp::Reverse;
use std::sync::Arc;

const BATCH_FILES: usize = 32;

/// Maximum size of a file fetched whole, which saves three requests. A batch of them takes no more memory than a
/// window.
const WHOLE_BYTES_MAX: u64 = 32 << 10;

const _: () =
    assert!(BATCH_FILES as u64 * WHOLE_BYTES_MAX <= WINDOW_BYTES as u64, "a batch exceeds a window");

/// Passes label names, or one label's values, of matching series to `each`, perhaps repeatedly, until `each` returns
/// `false`. Returns a warning for each damaged file.
pub fn texts(
    table: &Table,
    cache: &Arc<Cache>,
    select: &Select,
    what: LabelScan<'_>,
    each: &mut dyn FnMut(&str) -> bool,
) -> Result<Vec<String>, TableError> {
    each_file(table, cache, select, &mut |cursor| cursor.scan_labels(what, each))
}

/// Like [`texts`], but passes all labels of each matching series to `each`.
pub fn series(
    table: &Table,
    cache: &Arc<Cache>,
    select: &Select,
    each: &mut dyn FnMut(LabelsRef<'_>) -> bool,
) -> Result<Vec<String>, TableError> {
    each_file(table, cache, select, &mut |cursor| {
        while cursor.advance()? {
            if !each(cursor.labels()) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Passes the labels of matching rows, and the time of the newest sample of each, to `each`, file by file from the one with
/// the newest samples on. The time counts samples too that a delete hides, if others of the row remain.
///
/// Before each file, `wanted` is asked what to read of it. Its argument is a time in milliseconds: neither this file nor those
/// that follow have newer samples. `None` ends the search. Returns a warning for each damaged file.
pub fn from_newest(
    table: &Table,
    cache: &Arc<Cache>,
    wanted: &mut dyn FnMut(i64) -> Option<Select>,
    each: &mut dyn FnMut(LabelsRef<'_>, i64),
) -> Result<Vec<String>, TableError> {
    let files = table.files()?;
    let everything = Select::ALL;
    let mut all: Vec<_> = matching(&files, &everything).collect();
    all.sort_by_key(|file| Reverse(file.range.end_ms));
    let (keeps, mut damaged) = (cache.has_room_for(all.len()), Vec::new());
    for live in all {
        let Some(select) = wanted(live.range.end_ms) else { break };
        select.stop.check()?;
        if !may_match(live, &select) {
            continue;
        }
        let select = Arc::new(Select { samples: false, ..select });
        let opened =
            open(table, cache, &[live], keeps).pop().expect("BUG: a file is neither open nor refused");
        let mut read = |cursor: &mut Cursor<CachedFile>| {
            while cursor.advance()? {
                each(cursor.labels(), cursor.span().end_ms);
            }
            Ok(true)
        };
        match read_file(table, &files, live, opened, &select, &mut read) {
            Ok(_) => {}
            Err(error) if error.is_of_one_file() => damaged.push(left_out(&error)),
            Err(error) => return Err(error),
        }
    }
    Ok(damaged)
}

/// Opens the files that may match, one after the other, until `read` returns `false`.
fn each_file(
    table: &Table,
    cache: &Arc<Cache>,
    select: &Select,
    read: &mut dyn FnMut(&mut Cursor<CachedFile>) -> Result<bool, TableError>,
) -> Result<Vec<String>, TableError> {
    let files = table.files()?;
    let select = Arc::new(Select { samples: false, ..select.clone() });
    let wanted: Vec<_> = matching(&files, &select).collect();
    let keeps = cache.has_room_for(wanted.len());
    let mut damaged = Vec::new();
    for batch in wanted.chunks(BATCH_FILES) {
        select.stop.check()?;
        for (live, opened) in batch.iter().zip(open(table, cache, batch, keeps)) {
            select.stop.check()?;
            match read_file(table, &files, live, opened, &select, read) {
                Ok(true) => {}
                Ok(false) => return Ok(damaged),
                Err(error) if error.is_of_one_file() => damaged.push(left_out(&error)),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(damaged)
}

fn read_file(
    table: &Table,
    files: &Files,
    live: &LiveFile,
    opened: Result<CachedFile, TableError>,
    select: &Arc<Select>,
    read: &mut dyn FnMut(&mut Cursor<CachedFile>) -> Result<bool, TableError>,
) -> Result<bool, TableError> {
    let file = opened?;
    let footer = file.footer(table.kind())?;
    let cursor = Cursor::new(file, footer, Arc::clone(select), WINDOW_BYTES);
    read(&mut cursor.masked(files.mask(live)))
}

/// Opens a batch of files. Small files that are not cached are fetched whole. If a file cannot be opened, the error
/// takes its place.
fn open(
    table: &Table,
    cache: &Arc<Cache>,
    batch: &[&LiveFile],
    keeps: bool,
) -> Vec<Result<CachedFile, TableError>> {
    let room = cache.index_room();
    let cached = |file: StoredFile| {
        let file = cache.file(file, &room);
        if keeps { file } else { file.passing() }
    };
    let mut opened: Vec<_> = batch.iter().map(|file| table.file(file).map(cached)).collect();
    let is_fetched = |file: &&mut CachedFile| file.len() <= WHOLE_BYTES_MAX && !file.is_known();
    let ahead: Vec<_> = opened.iter_mut().flatten().filter(is_fetched).collect();
    let stored: Vec<_> = ahead.iter().map(|file| file.stored()).collect();
    let fetched = StoredFile::read_whole(&stored);
    for (file, whole) in ahead.into_iter().zip(fetched) {
        whole.into_iter().for_each(|whole| file.fill(whole));
    }
    opened
}
