//! Sorts samples that do not fit into memory. Each batch is sorted in memory and written to temporary files
//! as sorted runs. At the end, the runs are merged.

use super::super::scratch::Scratch;
use super::{Finished, LIMITS, ROW_SAMPLES_MAX};
use model::{Labels, Samples, SeriesKey};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use tables::METRICS;
use tables::Merge;
use tables::delta::FileSummary;
use tables::read::{Cursor, Footer, Select, WINDOW_BYTES};
use tables::write::FileWriter;
use tables::{Date, Stretch};

/// Limit on the samples of a batch, each of which takes 24 bytes.
const SAMPLES_MAX: usize = 4 << 20;

/// Limit on the memory that the labels of a batch take, including the overhead of the map.
const LABEL_BYTES_MAX: usize = 64 << 20;
const LABELS_OVERHEAD: usize = 100;

/// At most this many runs are merged at a time, because a merge holds one row group of each run in memory.
const MERGE_RUNS_MAX: usize = 16;

/// The row groups of runs are small, because a merge holds one row group of each run in memory.
const RUN_ROW_GROUP_BYTES: usize = 1 << 20;

const LARGE_BYTES: u64 = LIMITS.file_bytes as u64;

/// A guard against endless merging. No number of runs needs so many rounds.
const ROUNDS_MAX: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Sample {
    series: u32,
    /// If a series has several samples with the same timestamp, the one with the highest number is kept.
    arrival: u32,
    timestamp_ms: i64,
    value: f64,
}

#[derive(Debug, Default)]
pub(super) struct Batch {
    series: Vec<(Labels, SeriesKey)>,
    by_labels: HashMap<Labels, u32>,
    label_bytes: usize,
    samples: Vec<Sample>,
}

impl Batch {
    pub(super) fn push(&mut self, labels: &Labels, key: SeriesKey, timestamp_ms: i64, value: f64) {
        let last = self.samples.last().map(|s| s.series);
        let series = match last.filter(|last| self.series[*last as usize].1 == key) {
            Some(last) => last,
            None => self.series_of(labels, key),
        };
        let arrival = self.samples.len() as u32;
        self.samples.push(Sample { series, arrival, timestamp_ms, value });
    }

    fn series_of(&mut self, labels: &Labels, key: SeriesKey) -> u32 {
        if let Some(series) = self.by_labels.get(labels) {
            return *series;
        }
        let series = self.series.len() as u32;
        self.label_bytes += labels.as_bytes().len() + LABELS_OVERHEAD;
        self.by_labels.insert(labels.clone(), series);
        self.series.push((labels.clone(), key));
        series
    }

    pub(super) fn is_full(&self) -> bool {
        self.samples.len() >= SAMPLES_MAX || self.label_bytes >= LABEL_BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Sorts by day, series and time. If a series has several samples with the same timestamp, the last of
    /// them is kept.
    fn sort(&mut self) {
        let mut order: Vec<u32> = (0..self.series.len() as u32).collect();
        let labels = |i: u32| self.series[i as usize].0.as_ref();
        order.sort_unstable_by(|a, b| labels(*a).cmp_in_tables(labels(*b)));
        let mut ranks = vec![0u32; order.len()];
        order.iter().zip(0..).for_each(|(series, rank)| ranks[*series as usize] = rank);
        let place =
            |s: &Sample| (Date::of(s.timestamp_ms), ranks[s.series as usize], s.timestamp_ms, s.arrival);
        self.samples.sort_unstable_by_key(place);
        let mut samples = std::mem::take(&mut self.samples);
        let mut kept: Vec<Sample> = Vec::with_capacity(samples.len());
        for sample in samples.drain(..) {
            match kept.last_mut() {
                Some(last) if last.series == sample.series && last.timestamp_ms == sample.timestamp_ms => {
                    *last = sample;
                }
                _ => kept.push(sample),
            }
        }
        self.samples = kept;
    }
}

/// Sorted temporary files, each of which has samples of a single day.
#[derive(Debug)]
pub(super) struct Runs {
    scratch: Scratch,
    by_date: BTreeMap<Date, Vec<Finished>>,
}

impl Runs {
    pub(super) fn new(dir: &Path) -> std::io::Result<Self> {
        Ok(Self { scratch: Scratch::new(dir)?, by_date: BTreeMap::new() })
    }

    /// Sorts a batch and writes one run for each of its days. The batch is then empty.
    pub(super) fn add(&mut self, batch: &mut Batch) -> anyhow::Result<()> {
        batch.sort();
        let (mut times, mut values) = (Vec::new(), Vec::new());
        for day in batch.samples.chunk_by(|a, b| Date::of(a.timestamp_ms) == Date::of(b.timestamp_ms)) {
            let date = Date::of(day[0].timestamp_ms);
            let mut writer = FileWriter::new(&METRICS, date, self.scratch.part(), RUN_ROW_GROUP_BYTES)?;
            for series in day.chunk_by(|a, b| a.series == b.series) {
                let (labels, key) = &batch.series[series[0].series as usize];
                for row in series.chunks(ROW_SAMPLES_MAX) {
                    times.clear();
                    values.clear();
                    times.extend(row.iter().map(|s| s.timestamp_ms));
                    values.extend(row.iter().map(|s| s.value));
                    let labels = labels.as_ref();
                    writer.push(&Stretch { labels, key: *key, timestamps: &times, values: &values })?;
                }
            }
            self.keep(writer.finish()?)?;
        }
        *batch = Batch::default();
        Ok(())
    }

    fn keep(&mut self, (summary, writer): (FileSummary, super::PartWriter)) -> anyhow::Result<()> {
        let part = self.scratch.take(writer)?;
        self.by_date.entry(summary.date).or_default().push(Finished { layer: 0, summary, part });
        Ok(())
    }

    /// Merges the runs of each day, in the order of their creation, into files of up to [`LARGE_BYTES`].
    pub(super) fn finish(mut self) -> anyhow::Result<Vec<Finished>> {
        let mut files = Vec::new();
        for date in self.by_date.keys().copied().collect::<Vec<_>>() {
            for _ in 0..ROUNDS_MAX {
                let runs = self.by_date.remove(&date).unwrap_or_default();
                let before = runs.len();
                self.merge_round(date, runs)?;
                if self.by_date[&date].len() == before {
                    break;
                }
            }
            let merged = self.by_date.remove(&date).unwrap_or_default();
            files.extend(merged.into_iter().zip(1..).map(|(file, layer)| Finished { layer, ..file }));
        }
        Ok(files)
    }

    fn merge_round(&mut self, date: Date, runs: Vec<Finished>) -> anyhow::Result<()> {
        let mut group: Vec<Finished> = Vec::new();
        for run in runs {
            let bytes: u64 = group.iter().chain([&run]).map(|r| r.summary.bytes).sum();
            if group.len() == MERGE_RUNS_MAX || (bytes > LARGE_BYTES && !group.is_empty()) {
                self.merge(date, std::mem::take(&mut group))?;
            }
            group.push(run);
        }
        if group.is_empty() { Ok(()) } else { self.merge(date, group) }
    }

    fn merge(&mut self, date: Date, mut runs: Vec<Finished>) -> anyhow::Result<()> {
        if runs.len() == 1 {
            self.by_date.entry(date).or_default().append(&mut runs);
            return Ok(());
        }
        let select = Arc::new(Select::ALL);
        let mut cursors = Vec::with_capacity(runs.len());
        for run in &runs {
            let footer = Arc::new(Footer::read(&METRICS, &run.part)?);
            cursors.push(Cursor::new(run.part.clone(), footer, Arc::clone(&select), WINDOW_BYTES));
        }
        let mut merge = Merge::new(cursors, false)?;
        let mut writer = FileWriter::new(&METRICS, date, self.scratch.part(), LIMITS.row_group_bytes)?;
        let mut samples = Samples::default();
        while merge.next_series()? {
            samples.clear();
            merge.read_all(&mut samples)?;
            for (timestamps, values) in
                samples.timestamps.chunks(ROW_SAMPLES_MAX).zip(samples.values.chunks(ROW_SAMPLES_MAX))
            {
                writer.push(&Stretch { labels: merge.labels(), key: merge.key(), timestamps, values })?;
            }
        }
        self.keep(writer.finish()?)
    }
}
