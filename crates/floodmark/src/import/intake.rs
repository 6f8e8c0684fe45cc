//! Takes series and samples in any order, and writes sorted files in bounded memory.
//!
//! ```text
//!   series, samples ──in the table's order──▶ sorted lane ─▶ one open file for each day ────────────┐
//!          │                                                                                          ▼
//!          └──in any other──▶ batch of some 100 MiB ─sort─▶ runs, each of one day ─merge by day──▶ finished
//! ```
//!
//! Blocks of Prometheus never pass through a batch.

mod batch;

use super::scratch::{FilePart, PartWriter, Scratch};
use batch::{Batch, Runs};
use model::caps::{TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN};
use model::{Labels, Samples, SeriesHasher, SeriesKey};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use tables::METRICS;
use tables::delta::FileSummary;
use tables::write::{BlockWriter, Sink, WriteLimits};
use tables::{Date, Stretch};

pub(super) const ROW_SAMPLES_MAX: usize = 4096;

/// At most this many days are written at a time without sorting. Samples of other days go through a batch.
const SORTED_DATES_MAX: usize = 64;

const LIMITS: WriteLimits =
    WriteLimits { row_group_bytes: 4 << 20, file_bytes: 128 << 20, open_bytes: 256 << 20 };

#[derive(Debug)]
pub(crate) struct Finished {
    /// If files have the same sample, the one with the higher layer counts. Files of the same layer have no
    /// samples in common.
    pub(crate) layer: usize,
    pub(crate) summary: FileSummary,
    pub(crate) part: FilePart,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) series: SeriesCount,
    pub(crate) samples: u64,
    pub(crate) skipped: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn skip(&mut self, why: &str, count: u64) {
        if count == 0 {
            return;
        }
        // the number of reasons is limited, because they may contain text from the input
        const REASONS_MAX: usize = 50;
        let why =
            if self.skipped.len() < REASONS_MAX || self.skipped.contains_key(why) { why } else { "others" };
        *self.skipped.entry(why.into()).or_default() += count;
    }
}

/// Counts different series. The count is exact up to about a million series, and stays there if there are
/// more.
#[derive(Debug, Default)]
pub(crate) struct SeriesCount {
    seen: HashSet<SeriesKey>,
}

impl SeriesCount {
    const EXACT_MAX: usize = 1 << 20;

    fn see(&mut self, key: SeriesKey) {
        if self.seen.len() < Self::EXACT_MAX {
            self.seen.insert(key);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.len()
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.seen.len() < Self::EXACT_MAX
    }
}

type NewPart = Box<dyn FnMut(Date) -> std::io::Result<OwnFile>>;

struct OwnFile {
    scratch: Scratch,
    writer: PartWriter,
}

impl std::io::Write for OwnFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

impl Sink for OwnFile {
    fn held_bytes(&self) -> usize {
        self.writer.held_bytes()
    }
}

#[derive(Debug)]
struct Current {
    labels: Labels,
    key: SeriesKey,
    /// True if the series came in the table's order, so that its samples need no sorting.
    sorted: bool,
    /// Samples that need no sorting and are not yet written as a row. All of them belong to the same day.
    pending: Samples,
    day_end_ms: i64,
    last_ms: i64,
    any: bool,
}

pub(crate) struct Intake {
    hasher: SeriesHasher,
    dir: PathBuf,
    sorted: BlockWriter<OwnFile, NewPart>,
    sorted_dates: BTreeSet<Date>,
    /// The last series that was written without sorting. The next one must come after it in the table's
    /// order.
    last: Labels,
    current: Option<Current>,
    batch: Batch,
    runs: Option<Runs>,
    pub(crate) tally: Tally,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("tally", &self.tally).finish_non_exhaustive()
    }
}

impl Intake {
    pub(crate) fn new(hasher: SeriesHasher, dir: &Path) -> Self {
        let own = dir.to_path_buf();
        let new_part: NewPart = Box::new(move |_| {
            let scratch = Scratch::new(&own)?;
            let writer = scratch.part();
            Ok(OwnFile { scratch, writer })
        });
        Self {
            hasher,
            dir: dir.into(),
            sorted: BlockWriter::new(&METRICS, LIMITS, new_part),
            sorted_dates: BTreeSet::new(),
            last: Labels::empty(),
            current: None,
            batch: Batch::default(),
            runs: None,
            tally: Tally::default(),
        }
    }

    /// Begins a series. If series come in the table's order, their samples need not be sorted.
    pub(crate) fn series(&mut self, labels: &Labels) -> anyhow::Result<()> {
        self.begin(labels, true)
    }

    pub(crate) fn series_unsorted(&mut self, labels: &Labels) -> anyhow::Result<()> {
        self.begin(labels, false)
    }

    fn begin(&mut self, labels: &Labels, may_be_sorted: bool) -> anyhow::Result<()> {
        if self.current.as_ref().is_some_and(|current| current.labels == *labels) {
            return Ok(());
        }
        self.end_series()?;
        let in_order = self.last.is_empty() || self.last.as_ref().cmp_in_tables(labels.as_ref()).is_lt();
        let key = self.hasher.key(labels.as_bytes());
        self.current = Some(Current {
            labels: labels.clone(),
            key,
            sorted: may_be_sorted && in_order,
            pending: Samples::default(),
            day_end_ms: i64::MIN,
            last_ms: i64::MIN,
            any: false,
        });
        Ok(())
    }

    pub(crate) fn sample(&mut self, timestamp_ms: i64, value: f64) -> anyhow::Result<()> {
        let current = self.current.as_mut().expect("BUG: a sample was added before its series began");
        if !(TIMESTAMP_MS_MIN..=TIMESTAMP_MS_MAX).contains(&timestamp_ms) {
            self.tally.skip("samples before 1970 or after 9999", 1);
            return Ok(());
        }
        self.tally.samples += 1;
        if !current.any {
            current.any = true;
            self.tally.series.see(current.key);
        }
        if !current.sorted || timestamp_ms <= current.last_ms {
            self.batch.push(&current.labels, current.key, timestamp_ms, value);
            if self.batch.is_full() {
                self.flush_batch()?;
            }
            return Ok(());
        }
        if timestamp_ms > current.day_end_ms || current.pending.len() == ROW_SAMPLES_MAX {
            self.end_row()?;
            let date = Date::of(timestamp_ms);
            let current = self.current.as_mut().expect("BUG: the current series disappeared");
            current.day_end_ms = date.end_ms();
            if !self.sorted_dates.contains(&date) {
                if self.sorted_dates.len() == SORTED_DATES_MAX {
                    current.sorted = false;
                    self.tally.samples -= 1;
                    return self.sample(timestamp_ms, value);
                }
                self.sorted_dates.insert(date);
            }
        }
        let current = self.current.as_mut().expect("BUG: the current series disappeared");
        current.last_ms = timestamp_ms;
        current.pending.push(timestamp_ms, value);
        Ok(())
    }

    fn end_row(&mut self) -> anyhow::Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.pending.is_empty() {
            return Ok(());
        }
        let Samples { timestamps, values } = &current.pending;
        let labels = current.labels.as_ref();
        self.sorted.push(&Stretch { labels, key: current.key, timestamps, values })?;
        current.pending.clear();
        if self.last != current.labels {
            self.last = current.labels.clone();
        }
        Ok(())
    }

    fn end_series(&mut self) -> anyhow::Result<()> {
        self.end_row()?;
        self.current = None;
        Ok(())
    }

    fn flush_batch(&mut self) -> anyhow::Result<()> {
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => none.insert(Runs::new(&self.dir)?),
        };
        runs.add(&mut self.batch)
    }

    /// Returns the files and the counts. If files have the same sample, the last of them counts.
    pub(crate) fn finish(mut self) -> anyhow::Result<(Vec<Finished>, Tally)> {
        self.end_series()?;
        if !self.batch.is_empty() {
            self.flush_batch()?;
        }
        let mut files = Vec::new();
        for (summary, own) in self.sorted.finish()? {
            let OwnFile { mut scratch, writer } = own;
            files.push(Finished { layer: 0, summary, part: scratch.take(writer)? });
        }
        if let Some(runs) = self.runs {
            files.extend(runs.finish()?);
        }
        files.sort_by_key(|file| file.layer);
        Ok((files, self.tally))
    }
}

#[cfg(test)]
impl Intake {
    pub(super) fn flush_for_tests(&mut self) {
        self.flush_batch().expect("cannot flush the batch");
    }
}
