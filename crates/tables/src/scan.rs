//! Scans a table: prunes its live files and merges the rest.
//!
//! ```text
//!   snapshot ─▶ live files by day, time, names ─▶ footers (cache) ─▶ a run for each ─▶ merge ─▶ series
//! ```
//!
//! Each file gets a share of the caller's memory limit ([`crate::merge::run`]). In this process, files are not swept
//! during a scan. [`Scan::has_lost_files`] detects deletions by another process. Damaged files are omitted and named in
//! [`Scan::warnings`].

pub mod labels;

use crate::delta::{Files, Table};
use crate::error::TableError;
use crate::live_file::LiveFile;
use crate::merge::Merge;
use crate::merge::run::Run;
use crate::read::{Cache, CachedFile, ReadStats, Select, WINDOW_BYTES};
use model::{LabelsRef, Samples, SeriesKey};
use std::sync::Arc;

const WINDOW_BYTES_MIN: usize = 16 << 10;

/// Memory of a file for its name and labels, besides its share of the limit.
const FILE_BYTES: usize = 1 << 10;

#[derive(Debug, Clone, Copy)]
pub struct ScanLimits {
    /// Maximum number of merged files. If a scan is refused, narrow its range or names, or compact.
    pub files: usize,
    /// Maximum memory in bytes. A scan always needs one row's labels per file, and one or two MiB.
    pub bytes: usize,
}

impl ScanLimits {
    pub fn of(bytes: usize) -> Self {
        Self { files: Self::default().files.min(bytes / FILE_BYTES), bytes }
    }
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { files: 10_000, bytes: 64 << 20 }
    }
}

/// Series of one table version that match a selection, in table order.
#[derive(Debug)]
pub struct Scan {
    merge: Merge<CachedFile>,
    unreadable: Vec<TableError>,
    _files: Arc<Files>,
}

impl Scan {
    /// Begins a scan of the latest version seen.
    pub fn open(
        table: &Table,
        cache: &Arc<Cache>,
        select: &Select,
        limits: &ScanLimits,
    ) -> Result<Self, TableError> {
        let files = table.files()?;
        Self::open_files(table, &files, cache, select, limits)
    }

    pub fn open_files(
        table: &Table,
        files: &Arc<Files>,
        cache: &Arc<Cache>,
        select: &Select,
        limits: &ScanLimits,
    ) -> Result<Self, TableError> {
        let wanted: Vec<_> = matching(files, select).collect();
        let count = wanted.len();
        if count > limits.files {
            return Err(TableError::TooManyFiles { files: count, max: limits.files });
        }
        // a third of the memory is for overlapping rows of a series, and the files share the rest
        let rows_bytes = limits.bytes / 3;
        let share = (limits.bytes - rows_bytes) / count.max(1);
        let window = share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES);
        let share = share.saturating_sub(FILE_BYTES);
        let shared = Arc::new(select.clone());
        let (mut runs, mut unreadable) = (Vec::with_capacity(count), Vec::new());
        let room = cache.index_room();
        for file in wanted {
            match table.file(file) {
                Ok(stored) => {
                    let stored = cache.file(stored, &room);
                    let run = Run::sharing(stored, table.kind(), Arc::clone(&shared), window, share);
                    runs.push((file.rank(), run.masked(files.mask(file))));
                }
                Err(error) if error.is_of_one_file() => unreadable.push(error),
                Err(error) => return Err(error),
            }
        }
        runs.sort_by_key(|(rank, _)| *rank);
        let merge = Merge::of(runs.into_iter().map(|(_, run)| run).collect(), true, rows_bytes)?;
        Ok(Self { merge, unreadable, _files: Arc::clone(files) })
    }

    pub fn next_series(&mut self) -> Result<bool, TableError> {
        self.merge.next_series()
    }

    pub fn labels(&self) -> LabelsRef<'_> {
        self.merge.labels()
    }

    /// Key of the series, as computed by the node that wrote it.
    pub const fn key(&self) -> SeriesKey {
        self.merge.key()
    }

    /// Appends the wanted samples in order of time. A row that overlaps the range may have none there.
    pub fn read(&mut self, samples: &mut Samples) -> Result<(), TableError> {
        self.merge.read_all(samples)
    }

    /// Like [`Scan::read`], but appends only some of the samples. Returns `false` when none are left.
    pub fn read_some(&mut self, samples: &mut Samples) -> Result<bool, TableError> {
        self.merge.next_chunk(samples)
    }

    /// Memory of the scan, with shared cached data.
    pub fn held_bytes(&self) -> usize {
        self.merge.held_bytes()
    }

    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.unreadable.iter().chain(self.merge.damaged()).map(left_out)
    }

    /// Warning that the result may have old values, because another program rewrote files and lost the order of
    /// writes.
    pub fn doubt(&self) -> Option<String> {
        let conflicts = self.stats().conflicts;
        (conflicts > 0).then(|| {
            format!(
                "{conflicts} samples have two values in a file that another program merged, and the result may have the \
                 older value"
            )
        })
    }

    /// True if a file was deleted after the scan began. The result then matches no version.
    pub fn has_lost_files(&self) -> bool {
        self.merge.damaged().iter().any(|error| matches!(error, TableError::Missing { .. }))
    }

    pub fn stats(&self) -> ReadStats {
        self.merge.stats()
    }
}

pub(crate) fn left_out(error: &TableError) -> String {
    format!("{error}; its samples are left out")
}

/// Files that may hold wanted samples, without those whose samples are all hidden by a delete.
pub fn matching<'a>(files: &'a Files, select: &'a Select) -> impl Iterator<Item = &'a LiveFile> {
    files.all().iter().filter(|file| may_match(file, select) && !files.is_covered(file, i64::MAX))
}

fn may_match(file: &LiveFile, select: &Select) -> bool {
    if !file.range.overlaps(&select.range) {
        return false;
    }
    let Some((min, max)) = &file.names else { return select.names_may_match(None, None) };
    // The log may have truncated the bound. No text contains 0xff, so this bound is above all names that begin with the
    // truncated one.
    let max = [max.as_bytes(), &[0xff]].concat();
    select.names_may_match(Some(min.as_bytes()), Some(&max))
}
