//! What there is to replay, and what became of it.

use super::dealer::Dealt;
use super::{COPY_LABEL, ReplayOptions, Times};
use crate::capture::file::conceal::Conceal;
use crate::capture::file::{Ending, Event, Reader};
use crate::drive::meter::{self, Meter};
use crate::drive::stop::Stop;
use crate::drive::tally::Tally;
use crate::result::Quantiles;
use crate::result::warnings;
use crate::result::{Event as RunEvent, EventKind, FORMAT, Machine, RunResult, Timeline};
use crate::show::progress::short;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

/// Tenants that are counted one by one.
const TENANTS_MAX: usize = 10_000;

/// What is in a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordingSummary {
    /// When it began, in ms since 1970.
    pub begun_ms: i64,
    /// What is hidden in it.
    pub concealed: Conceal,
    /// Until the last request came, in seconds.
    pub length_s: f64,
    /// Requests, or parts of them.
    pub requests: u64,
    /// Samples and native histograms.
    pub samples: u64,
    /// Series; those of several dictionaries count for each.
    pub series: u64,
    /// Tenants.
    pub tenants: usize,
    /// Requests that are missing, as far as the recording knows.
    pub missing: u64,
    /// Memory that the largest dictionary takes.
    pub dictionary_bytes_max: u64,
    /// How it ends.
    pub ending: Ending,
}

impl RecordingSummary {
    /// Reads a whole recording. Errors are for what is none, or has nothing in it.
    pub fn of(path: &Path, stop: &Stop) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let mut reader = Reader::open(BufReader::new(file)).with_context(|| path.display().to_string())?;
        let header = reader.header();
        let mut summary = Self {
            begun_ms: header.started_ms,
            concealed: header.concealed,
            length_s: 0.0,
            requests: 0,
            samples: 0,
            series: 0,
            tenants: 0,
            missing: 0,
            dictionary_bytes_max: 0,
            ending: Ending::Whole,
        };
        let (mut tenants, mut dictionary_bytes, mut last_us) = (BTreeSet::new(), 0u64, 0i64);
        while let Some(event) = reader.next()? {
            ensure!(!stop.is_set(), "stopped while reading {}", path.display());
            match event {
                Event::Forget => dictionary_bytes = 0,
                Event::Series(labels) => {
                    summary.series += 1;
                    // the labels, their two counts, a series of the dealer's and one of the reader's
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
        summary.ending = reader.ending().cloned().unwrap_or(Ending::Whole);
        ensure!(summary.samples > 0, "{}: there is nothing in this recording", path.display());
        Ok(summary)
    }

    /// How long a replay takes.
    pub(super) fn length(&self, options: &ReplayOptions) -> Duration {
        let length = Duration::from_secs_f64((self.length_s / options.speed).min(1e9));
        options.duration.map_or(length, |duration| duration.min(length))
    }

    /// What will be done, in a line.
    pub(super) fn announcement(&self, options: &ReplayOptions) -> String {
        let length_s = (self.length_s / options.speed).max(0.001);
        let samples = self.samples as f64 * f64::from(options.copies);
        format!(
            "recorded: {} samples of {} series in {:.0} s; replayed in {:.0} s: {} series, {} samples/s",
            short(self.samples as f64),
            short(self.series as f64),
            self.length_s,
            length_s,
            short(self.series as f64 * f64::from(options.copies)),
            short(samples / length_s)
        )
    }
}

pub(super) struct Run<'a> {
    pub(super) options: &'a ReplayOptions,
    pub(super) summary: &'a RecordingSummary,
    pub(super) begun_ms: i64,
    pub(super) wall: Duration,
    pub(super) dealt: Dealt,
    pub(super) meter: &'a Meter,
}

/// Puts the result together.
pub(super) fn build(run: Run<'_>, timeline: Timeline, tally: &Tally) -> RunResult {
    let Run { options, summary, begun_ms, wall, dealt, meter } = run;
    let wall_s = wall.as_secs_f64();
    let mut totals = meter::totals(std::iter::once(tally));
    totals.samples_per_s = totals.samples_acknowledged as f64 / wall_s;
    totals.silence_s = meter.silence_s();
    totals.generator_cpu_s = meter.own_cpu_s();
    totals.unsent += dealt.unsent;
    // which series the target knows already, a recording does not say
    totals.latency_known = Quantiles::default();
    totals.series_distinct = dealt.series * u64::from(options.copies);
    totals.series_active = totals.series_distinct;
    let partial = options.stop.is_set();
    let mut events = Vec::new();
    if partial {
        events.push(RunEvent::new(wall_s, EventKind::Run, "stopped before its end"));
    }
    let mut result = RunResult {
        format: FORMAT,
        name: "replay".to_owned(),
        scenario: scenario(options, summary),
        target: options.url.clone(),
        versions: BTreeMap::from([("lab".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        machine: Machine::this(),
        part: (1, 1),
        begun_ms,
        wall_s,
        partial,
        events,
        timeline,
        totals,
        notes: notes(options, summary),
        ..RunResult::default()
    };
    result.warnings = doubts(&result, summary, &dealt, options);
    result
}

/// The options as data: a replay has no scenario file.
fn scenario(options: &ReplayOptions, summary: &RecordingSummary) -> String {
    let name = options.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let times = match options.times {
        Times::Scaled => "scaled",
        Times::Shifted => "shifted",
    };
    format!(
        "[replay]\nfile = {:?}\nspeed = {}\ncopies = {}\nwriters = {}\nbatch = {}\ntimes = {times:?}\n\n\
         [recording]\nbegun_ms = {}\nlength_s = {:.3}\nrequests = {}\nsamples = {}\nseries = {}\n\
         tenants = {}\nmissing_requests = {}\n",
        name.unwrap_or_default(),
        options.speed,
        options.copies,
        options.writers,
        options.batch,
        summary.begun_ms,
        summary.length_s,
        summary.requests,
        summary.samples,
        summary.series,
        summary.tenants,
        summary.missing
    )
}

fn notes(options: &ReplayOptions, summary: &RecordingSummary) -> Vec<String> {
    let mut notes = vec![
        "Nothing is read back: that a sample was acknowledged does not show that it is there.".to_owned(),
        "A recording has no exemplars, metadata or start times; they are not sent.".to_owned(),
        format!(
            "Requests are cut anew: about {} samples each, over {} connections, where the recorded senders had \
             their own.",
            options.batch, options.writers
        ),
    ];
    if options.times == Times::Scaled && options.speed != 1.0 {
        notes.push(format!(
            "Times of samples are scaled: intervals are {} times as short as recorded, and so are all \
             rates that a query computes from them.",
            options.speed
        ));
    }
    if options.copies > 1 {
        notes.push(format!(
            "Copies of a series have equal values and differ in the label {COPY_LABEL} only: they compress better \
             than as many real ones."
        ));
    }
    if summary.concealed != Conceal::default() {
        notes.push("Hidden texts are all of one length, which real ones are not.".to_owned());
    }
    notes
}

fn doubts(
    result: &RunResult,
    summary: &RecordingSummary,
    dealt: &Dealt,
    options: &ReplayOptions,
) -> Vec<String> {
    let mut all = Vec::new();
    match &summary.ending {
        Ending::Whole => {}
        Ending::Torn { at } => {
            all.push(format!("the recording breaks off at byte {at}: its writer did not end it"));
        }
        Ending::Damaged { at, why } => {
            all.push(format!("the recording is damaged at byte {at} ({why}): what is behind was not sent"));
        }
    }
    if summary.missing > 0 {
        all.push(format!("{} requests are missing from the recording", summary.missing));
    }
    if dealt.moved > 0 {
        all.push(format!(
            "{} of {} samples moved on by milliseconds, because at this speed they would fall on the one before",
            dealt.moved,
            summary.samples
        ));
    }
    let totals = &result.totals;
    all.extend(warnings::late(&totals.lag));
    let wanted_s = summary.length(options).as_secs_f64();
    if !result.partial && dealt.whole && result.wall_s > wanted_s * 1.1 + 1.0 {
        all.push(format!(
            "it took {:.1} s instead of {wanted_s:.1} s: the target (or this machine) does not hold this speed",
            result.wall_s
        ));
    }
    if totals.unsent > 0 {
        all.push(format!("{} requests were never begun: the time was over", totals.unsent));
    }
    all
}
