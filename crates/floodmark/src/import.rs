//! `floodmark import`: writes history from other programs into a tenant's table.
//!
//! ```text
//!   tsdb, text, jsonl, parquet, whisper ──series, samples──▶ intake ──files of one day──▶ target ──▶ Delta commit
//!                                                           (scratch)                       source import/<id>
//! ```
//!
//! Each imported file or block is a source, and is identified by its content. Commits make the samples of a source visible, mostly
//! a single one, and the last marks the source as complete. An import that is killed and repeated goes on with the first commit that
//! is missing, because the same content gives the same commits. It can therefore be repeated without duplicates, even while a server
//! is running.

mod intake;
mod jsonl;
mod parquet;
mod progress;
mod scratch;
mod target;
mod text;
mod tsdb;
mod whisper;

use crate::cli::transfer::{ImportArgs, ImportFormat};
use crate::output::{note, say};
use anyhow::Context;
use intake::{Intake, Tally};
use model::{TenantId, TimeRange};
use progress::Progress;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use target::{Committed, Target};
use xxhash_rust::xxh3::Xxh3Default;

pub(crate) use scratch::FilePart;
pub(crate) use target::{Place, runtime};
pub(crate) use tsdb::Block;

#[derive(Debug)]
struct Report {
    path: PathBuf,
    source: String,
    /// `None` if an earlier import already committed the source.
    committed: Option<(Tally, Committed)>,
}

/// The result is always true, because any failure is returned as an error.
pub(crate) fn run(args: ImportArgs) -> anyhow::Result<bool> {
    let is_bounded = args.start.is_some() || args.end.is_some();
    anyhow::ensure!(
        !is_bounded || args.format == ImportFormat::Whisper,
        "--start and --end are only for Whisper files"
    );
    let runtime = runtime()?;
    let sources = find(&args)?;
    anyhow::ensure!(!sources.is_empty(), "there is nothing to import at the given paths");
    for path in &sources {
        fs::metadata(path).with_context(|| format!("cannot import {}", path.display()))?;
    }
    let place = Place::of(&args.place, args.format == ImportFormat::Whisper)?;
    if args.place.tenant.is_none() && place.tenant != TenantId::anonymous() {
        note(format_args!("floodmark: the tenant is {} (setting graphite_tenant)", place.tenant));
    }
    let target = Target::open(place, &runtime)?; // may create a data directory
    let mut reports = Vec::with_capacity(sources.len());
    for (i, path) in sources.iter().enumerate() {
        let label = format!("[{}/{}] {}", i + 1, sources.len(), path.display());
        let mut progress = Progress::new(label, args.quiet);
        let report = import_one(&args, &target, path, &mut progress);
        progress.finish();
        let report = report.with_context(|| format!("cannot import {}", path.display()))?;
        if !args.json {
            say(report.line())?;
        }
        reports.push(report);
    }
    if args.json {
        say(format_args!("{:#}", summary(&reports)))?;
    } else {
        print_total(&reports)?;
    }
    Ok(true)
}

/// Returns the sources at the given paths. Blocks are in the order of time.
fn find(args: &ImportArgs) -> anyhow::Result<Vec<PathBuf>> {
    match args.format {
        ImportFormat::Tsdb => tsdb::find(&args.paths),
        ImportFormat::Parquet => parquet::find(&args.paths),
        _ => Ok(args.paths.clone()),
    }
}

fn import_one(
    args: &ImportArgs,
    target: &Target,
    path: &Path,
    progress: &mut Progress,
) -> anyhow::Result<Report> {
    let mut content = Content::open(args, path)?;
    let id = match &mut content {
        Content::Block(block) => block.ulid().to_string(),
        Content::Tree(tree) => tree.hash(target.schemas()?.as_ref(), progress)?,
        Content::File => content_hash(path)?,
    };
    let source = format!("import/{id}");
    let report = |committed| Report { path: path.into(), source: source.clone(), committed };
    if target.has(&source)? {
        return Ok(report(None));
    }
    let mut intake = Intake::new(target.hasher().clone(), target.scratch_dir());
    let mut variant = None;
    match (content, args.format) {
        (Content::Block(block), _) => block.read(&mut intake, args.skip_damaged, progress)?,
        (Content::Tree(tree), _) => variant = tree.read(target, &mut intake, args.skip_damaged, progress)?,
        (_, ImportFormat::Jsonl) => jsonl::read(path, &mut intake, args.skip_damaged, progress)?,
        (_, ImportFormat::Parquet) => parquet::read(path, &mut intake, progress)?,
        (_, format) => text::read(path, format, &mut intake, args.skip_damaged, progress)?,
    }
    progress.say("sorting");
    let (files, tally) = intake.finish()?;
    progress.say("committing");
    let committed = target.commit(&source, &id, variant.as_deref(), files)?;
    Ok(report(committed.map(|committed| (tally, committed))))
}

/// A source that consists of several files, or else a single file.
enum Content {
    Block(Box<Block>),
    Tree(whisper::Tree),
    File,
}

impl Content {
    fn open(args: &ImportArgs, path: &Path) -> anyhow::Result<Self> {
        Ok(match args.format {
            ImportFormat::Tsdb => Self::Block(Box::new(Block::open(path)?)),
            ImportFormat::Whisper => {
                let range = TimeRange::new(args.start.unwrap_or(i64::MIN), args.end.unwrap_or(i64::MAX));
                Self::Tree(whisper::Tree::find(path, args.tagged_names.as_deref(), range)?)
            }
            _ => Self::File,
        })
    }
}

impl Report {
    fn line(&self) -> String {
        let path = self.path.display();
        let Some((tally, committed)) = &self.committed else {
            return format!("{path}: imported before, nothing to do ({})", self.source);
        };
        let mut line = format!(
            "{path}: {} series{}, {} samples, {} files of {:.1} MiB, table version {}",
            tally.series.count(),
            if tally.series.is_exact() { "" } else { " or more" },
            tally.samples,
            committed.files,
            committed.bytes as f64 / (1 << 20) as f64,
            committed.version,
        );
        for (why, count) in &tally.skipped {
            line += &format!("\n  left out: {count} {why}");
        }
        line
    }

    fn to_json(&self) -> Value {
        let path = self.path.display().to_string();
        let Some((tally, committed)) = &self.committed else {
            return json!({ "path": path, "source": self.source, "already": true });
        };
        json!({
            "path": path,
            "source": self.source,
            "already": false,
            "series": tally.series.count(),
            "series_exact": tally.series.is_exact(),
            "samples": tally.samples,
            "files": committed.files,
            "bytes": committed.bytes,
            "version": committed.version,
            "skipped": tally.skipped,
        })
    }
}

fn summary(reports: &[Report]) -> Value {
    let done = || reports.iter().filter_map(|r| r.committed.as_ref());
    json!({
        "samples": done().map(|(tally, _)| tally.samples).sum::<u64>(),
        "bytes": done().map(|(_, committed)| committed.bytes).sum::<u64>(),
        "imported": done().count(),
        "already": reports.len() - done().count(),
        "sources": reports.iter().map(Report::to_json).collect::<Vec<_>>(),
    })
}

fn print_total(reports: &[Report]) -> anyhow::Result<()> {
    if reports.len() < 2 {
        return Ok(());
    }
    let done = || reports.iter().filter_map(|r| r.committed.as_ref());
    let samples: u64 = done().map(|(tally, _)| tally.samples).sum();
    let already = reports.len() - done().count();
    say(format_args!("imported now: {}, with {samples} samples; imported before: {already}", done().count()))
}

fn content_hash(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path)?;
    anyhow::ensure!(file.metadata()?.is_file(), "not a file");
    let (mut hasher, mut buffer) = (Xxh3Default::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(format!("{:032x}", hasher.digest128())),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// Reads a file line by line. A line that is longer than `bytes_max` is an error, so that memory is bounded.
pub(crate) struct Lines {
    reader: BufReader<File>,
    line: Vec<u8>,
    bytes_max: usize,
    number: u64,
    read: u64,
    len: u64,
}

impl Lines {
    pub(crate) fn open(path: &Path, bytes_max: usize) -> anyhow::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let reader = BufReader::with_capacity(1 << 20, file);
        Ok(Self { reader, line: Vec::new(), bytes_max, number: 0, read: 0, len })
    }

    pub(crate) fn next(&mut self) -> anyhow::Result<Option<&[u8]>> {
        self.line.clear();
        self.number += 1;
        let limit = self.bytes_max as u64 + 1;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        self.read += read as u64;
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        anyhow::ensure!(
            line.len() <= self.bytes_max,
            "line {} is longer than {} bytes",
            self.number,
            self.bytes_max
        );
        Ok((read > 0).then_some(line))
    }

    fn progress(&self) -> f64 {
        self.read as f64 / self.len.max(1) as f64
    }
}

#[cfg(test)]
mod tests;
