//! Summarizes a recording before its replay, and completes the result afterwards.

use super::distributor::Distributed;
use super::{COPY_LABEL, Replay};
use crate::capture::file::conceal::Conceal;
use crate::capture::file::{Ending, Event, Reader};
use crate::drive::stop::Stop;
use crate::result::Quantiles;
use crate::result::RunResult;
use crate::scenario::SampleTimes;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use stdx::units::short;

/// The summary counts at most this many tenants, to bound its memory.
const TENANTS_MAX: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RecordingSummary {
    /// In ms since 1970.
    pub(super) begun_ms: i64,
    pub(super) concealed: Conceal,
    /// From the start to the last arrival, in seconds.
    pub(super) length_s: f64,
    /// Number of requests. A request that the recording splits counts once for each part.
    pub(super) requests: u64,
    pub(super) samples: u64,
    /// Number of series. A series that occurs in several dictionaries counts several times.
    pub(super) series: u64,
    pub(super) tenants: usize,
    pub(super) missing: u64,
    pub(super) dictionary_bytes_max: u64,
    pub(super) ending: Ending,
}

impl RecordingSummary {
    /// Reads the whole recording. Fails if the file is not a recording or has no samples.
    pub(super) fn of(path: &Path, stop: &Stop) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut reader = Reader::open(BufReader::new(file)).with_context(|| path.display().to_string())?;
        let header = reader.header();
        let mut summary =
            Self { begun_ms: header.started_ms, concealed: header.concealed, ..Self::default() };
        let (mut tenants, mut dictionary_bytes, mut last_us) = (BTreeSet::new(), 0u64, 0i64);
        while let Some(event) = reader.next()? {
            ensure!(!stop.is_set(), "stopped while reading {}", path.display());
            match event {
                Event::Forget => dictionary_bytes = 0,
                Event::Series(labels) => {
                    summary.series += 1;
                    // in addition to the labels: 16 bytes for their reference counts, 56 for an entry in the
                    // distributor, and 8 for an entry in the reader
                    dictionary_bytes += labels.len() as u64 + 16 + 56 + 8;
                    summary.dictionary_bytes_max = summary.dictionary_bytes_max.max(dictionary_bytes);
                }
                Event::Gap(requests, _) => summary.missing = summary.missing.saturating_add(requests),
                Event::Request(request) => {
                    summary.requests += 1;
                    last_us = last_us.max(request.arrival_us);
                    let points = |i: &crate::capture::file::Item| i.samples.len() + i.histograms.len();
                    summary.samples += request.items.iter().map(points).sum::<usize>() as u64;
                    if tenants.len() < TENANTS_MAX {
                        tenants.insert(request.tenant);
                    }
                }
            }
        }
        summary.length_s = last_us as f64 / 1e6;
        summary.tenants = tenants.len();
        summary.ending = reader.ending().cloned().unwrap_or_default();
        ensure!(summary.samples > 0, "{}: the recording has no samples", path.display());
        Ok(summary)
    }
}

impl Replay {
    pub(crate) fn announcement(&self) -> String {
        let Self { summary, spec, .. } = self;
        let length_s = self.length().as_secs_f64().max(0.001);
        let samples = summary.samples as f64 * f64::from(spec.copies);
        format!(
            "recorded: {} samples of {} series in {:.0} s; replayed in {:.0} s: {} series, {} samples/s",
            short(summary.samples as f64),
            short(summary.series as f64),
            summary.length_s,
            length_s,
            short(summary.series as f64 * f64::from(spec.copies)),
            short(samples / length_s)
        )
    }

    pub(crate) fn finish(&self, distributed: Distributed, result: &mut RunResult) {
        let totals = &mut result.totals;
        totals.unsent += distributed.unsent;
        // the recording does not say which series the target already knows, so latencies of known and new series
        // cannot be told apart
        totals.latency_known = Quantiles::default();
        totals.series_distinct = distributed.series * u64::from(self.spec.copies);
        totals.series_active = totals.series_distinct;
        result.notes.extend(self.notes());
        result.warnings.extend(self.doubts(result, &distributed));
    }

    fn notes(&self) -> Vec<String> {
        let Self { spec, summary, .. } = self;
        let mut notes = vec![
            self.announcement(),
            "Nothing is read back: a sample that was acknowledged may still be missing.".to_owned(),
            "A recording has no exemplars, metadata or start times, so none are sent.".to_owned(),
            format!(
                "The requests are not those of the recording: each has about {} samples, and they use {} \
             connections.",
                self.batch, self.writers
            ),
        ];
        if spec.times == SampleTimes::Scaled && spec.speed != 1.0 {
            notes.push(format!(
                "Times of samples are scaled: the interval between samples is the recorded interval divided by {}. \
             Queries therefore compute higher rates.",
                spec.speed
            ));
        }
        if spec.copies > 1 {
            notes.push(format!(
            "Copies of a series differ only in the label {COPY_LABEL}: they compress better than real series."
        ));
        }
        if summary.concealed != Conceal::default() {
            notes.push("All concealed texts have the same length. Real texts do not.".to_owned());
        }
        notes
    }

    fn doubts(&self, result: &RunResult, distributed: &Distributed) -> Vec<String> {
        let summary = &self.summary;
        let mut all = Vec::new();
        match distributed.ending.as_ref().unwrap_or(&summary.ending) {
            Ending::Whole => {}
            Ending::Torn { at } => {
                all.push(format!(
                    "the recording is cut off at byte {at}: the recorder did not finish the file"
                ));
            }
            Ending::Damaged { at, why } => {
                all.push(format!("the recording is damaged at byte {at} ({why}): the rest was not sent"));
            }
        }
        if summary.missing > 0 {
            all.push(format!("requests missing from the recording: {}", summary.missing));
        }
        if distributed.moved > 0 {
            all.push(format!(
            "samples moved by some milliseconds: {} of {}; at this speed, two samples of a series would have the same time",
            distributed.moved,
            summary.samples
        ));
        }
        let wanted_s = self.length().as_secs_f64();
        if !result.partial && distributed.whole && result.wall_s > wanted_s * 1.1 + 1.0 {
            all.push(format!(
            "the replay took {:.1} s instead of {wanted_s:.1} s: the target (or this machine) cannot sustain this speed",
            result.wall_s
        ));
        }
        all
    }
}
