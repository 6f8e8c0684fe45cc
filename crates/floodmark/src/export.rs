//! `floodmark export`: exports a tenant's table, series by series, in bounded memory.
//!
//! A running server holds the latest samples only in memory, and they are not in the table yet.
//! `GET /api/v1/export` exports these too.

mod whisper;

use crate::cli::transfer::{ExportArgs, ExportFormat};
use crate::import::{Place, runtime};
use crate::output::{is_closed, note};
use anyhow::{Context, bail, ensure};
use model::{LabelsRef, Samples, TimeRange};
use protocol::exposition::{self, Dialect};
use protocol::jsonl;
use query::{MatchOp, Matcher};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use tables::METRICS;
use tables::write::{BlockWriter, Sink};
use tables::{Cache, Date, Scan, ScanLimits, Select, Stretch, Table, WriteLimits};

/// A series is split after this many samples, into several lines of JSON or rows of Parquet.
const LINE_SAMPLES: usize = 10_000;
const ROW_SAMPLES: usize = 4096;

const CACHE_BYTES: usize = 64 << 20;

struct Ask {
    table: Table,
    cache: Arc<Cache>,
    /// Each selector as a list of matchers. A series that several selectors match is exported only once, for
    /// the first of them.
    selectors: Vec<Vec<Matcher>>,
    range: TimeRange,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    samples: u64,
    /// The number of staleness markers that were left out, because text formats cannot express them.
    left_out: u64,
    warnings: Vec<String>,
}

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let place = Place::of(&args.place, args.format == ExportFormat::Whisper)?;
    let range = TimeRange::new(args.start.unwrap_or(i64::MIN), args.end.unwrap_or(i64::MAX));
    ensure!(range.start_ms <= range.end_ms, "--end is before --start");
    let mut selectors = Vec::with_capacity(args.matches.len());
    for text in &args.matches {
        selectors.push(query::parse_selector(text).with_context(|| format!("--match {text}"))?);
    }
    if selectors.is_empty() {
        selectors.push(Vec::new());
    }
    let table = place.required(&runtime)?;
    let cache = Arc::new(Cache::new(CACHE_BYTES));
    let mut ask = Ask { table, cache, selectors, range, counts: Counts::default() };
    match (args.format, &args.output) {
        (ExportFormat::Parquet, Some(dir)) => parquet(&mut ask, dir)?,
        (ExportFormat::Whisper, Some(dir)) => {
            let written = whisper::write(&mut ask, &place, dir)?;
            if !args.quiet {
                note(format_args!(
                    "floodmark: {} files, {} of them named by a hash; left out: {} series that carbon cannot name",
                    written.files, written.hashed, written.left_out
                ));
            }
        }
        (_, Some(path)) => {
            let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
            let mut out = BufWriter::new(file);
            text(args.format, &mut ask, &mut out)?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        }
        (_, None) => {
            let mut out = BufWriter::new(io::stdout().lock());
            let written = text(args.format, &mut ask, &mut out).and_then(|()| Ok(out.flush()?));
            match written {
                Err(error) if is_closed(&error) => return Ok(()),
                written => written?,
            }
        }
    }
    let Counts { samples, left_out, warnings } = ask.counts;
    if !args.quiet {
        note(format_args!("floodmark: {samples} samples"));
        if left_out > 0 {
            note(format_args!(
                "floodmark: {left_out} staleness markers left out: text formats cannot express them"
            ));
        }
    }
    if !warnings.is_empty() {
        bail!("the export is incomplete: {}", warnings.join("; "));
    }
    Ok(())
}

impl Ask {
    /// Calls `each` with the samples in `range`, one series after another, in the order of time. Each call
    /// gets samples of only one series. There are no more than `samples_max` of them, plus those of a single
    /// read of the table.
    fn each(
        &mut self,
        range: TimeRange,
        samples_max: usize,
        mut each: impl FnMut(&Scan, &Samples) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (i, matchers) in self.selectors.iter().enumerate() {
            let select = select(matchers, range);
            let mut scan = Scan::open(&self.table, &self.cache, &select, &ScanLimits::default())?;
            let mut samples = Samples::default();
            while scan.next_series()? {
                if self.selectors[..i].iter().any(|earlier| matches(earlier, scan.labels())) {
                    continue;
                }
                samples.clear();
                while scan.read_some(&mut samples)? {
                    if samples.len() >= samples_max {
                        each(&scan, &samples)?;
                        self.counts.samples += samples.len() as u64;
                        samples.clear();
                    }
                }
                if !samples.is_empty() {
                    each(&scan, &samples)?;
                    self.counts.samples += samples.len() as u64;
                }
            }
            self.counts.warnings.extend(scan.warnings());
        }
        Ok(())
    }
}

fn select(matchers: &[Matcher], range: TimeRange) -> Select {
    let named = |m: &&Matcher| m.name == model::labels::METRIC_NAME && m.op == MatchOp::Equal;
    let names = matchers.iter().find(named).map(|m| vec![m.value.clone()]);
    let test = |m: &Matcher| {
        let matcher = m.clone();
        tables::Matcher::new(&m.name, move |value| matcher.matches(value))
    };
    Select { names, matchers: matchers.iter().map(test).collect(), range, ..Select::ALL }
}

fn matches(matchers: &[Matcher], labels: LabelsRef<'_>) -> bool {
    matchers.iter().all(|m| m.matches(labels.get(&m.name).unwrap_or("")))
}

fn text(format: ExportFormat, ask: &mut Ask, out: &mut dyn Write) -> anyhow::Result<()> {
    let dialect = match format {
        ExportFormat::Openmetrics => Some(Dialect::OpenMetrics),
        ExportFormat::Prometheus => Some(Dialect::Prometheus),
        ExportFormat::Jsonl | ExportFormat::Parquet | ExportFormat::Whisper => None,
    };
    let (mut left_out, mut piece) = (0, Vec::new());
    ask.each(ask.range, LINE_SAMPLES, |scan, samples| {
        for (t, v) in samples.timestamps.chunks(LINE_SAMPLES).zip(samples.values.chunks(LINE_SAMPLES)) {
            piece.clear();
            match dialect {
                Some(dialect) => {
                    left_out += exposition::put_samples(&mut piece, dialect, scan.labels(), t, v);
                }
                None => jsonl::put_line(&mut piece, scan.labels(), t, v),
            }
            out.write_all(&piece)?;
        }
        Ok(())
    })?;
    ask.counts.left_out = left_out;
    out.write_all(dialect.map_or(b"".as_slice(), exposition::end))?;
    Ok(())
}

/// Writes one or more files `DIR/date=YYYY-MM-DD/export-N.parquet` for each day. Existing files are not
/// overwritten.
fn parquet(ask: &mut Ask, dir: &Path) -> anyhow::Result<()> {
    let several = ask.selectors.len() > 1;
    ensure!(
        !several,
        "an export to Parquet takes only one --match, because Parquet files are sorted by series"
    );
    for date in ask.table.dates()? {
        let range =
            TimeRange::new(ask.range.start_ms.max(date.start_ms()), ask.range.end_ms.min(date.end_ms()));
        if range.start_ms <= range.end_ms {
            parquet_day(ask, date, range, dir)?;
        }
    }
    Ok(())
}

fn parquet_day(ask: &mut Ask, date: Date, range: TimeRange, dir: &Path) -> anyhow::Result<()> {
    let day = dir.join(format!("date={date}"));
    fs::create_dir_all(&day).with_context(|| format!("cannot create {}", day.display()))?;
    let mut made = 0;
    let mut writer = BlockWriter::new(&METRICS, WriteLimits::default(), |_| {
        made += 1;
        File::create_new(day.join(format!("export-{made}.parquet"))).map(|file| Out(BufWriter::new(file)))
    });
    ask.each(range, ROW_SAMPLES, |scan, samples| {
        let Samples { timestamps, values } = samples;
        for (timestamps, values) in timestamps.chunks(ROW_SAMPLES).zip(values.chunks(ROW_SAMPLES)) {
            writer.push(&Stretch { labels: scan.labels(), key: scan.key(), timestamps, values })?;
        }
        Ok(())
    })?;
    for (_, Out(file)) in writer.finish().with_context(|| format!("cannot write to {}", day.display()))? {
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    }
    Ok(())
}

struct Out(BufWriter<File>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Sink for Out {
    fn held_bytes(&self) -> usize {
        self.0.capacity()
    }
}
