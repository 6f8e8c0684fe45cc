//! Reads Parquet files of `floodmark export`.

use super::intake::Intake;
use super::progress::Progress;
use super::scratch::FilePart;
use anyhow::Context;
use model::Samples;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tables::METRICS;
use tables::read::{Cursor, Footer, Select, WINDOW_BYTES};

const DEPTH_MAX: usize = 8;

pub(super) fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        search(path, 0, &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn search(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        files.push(path.into());
        return Ok(());
    }
    anyhow::ensure!(depth < DEPTH_MAX, "{} is more than {DEPTH_MAX} directories deep", path.display());
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        let entry = entry?.path();
        if entry.is_dir() || entry.extension().is_some_and(|e| e == "parquet") {
            search(&entry, depth + 1, files)?;
        }
    }
    Ok(())
}

pub(super) fn read(path: &Path, intake: &mut Intake, progress: &mut Progress) -> anyhow::Result<()> {
    let file = FilePart::open(path)?;
    let footer = Footer::read(&METRICS, &file)?;
    let all = footer.rows().max(1);
    let mut rows = Cursor::new(file, Arc::new(footer), Arc::new(Select::ALL), WINDOW_BYTES);
    let (mut read, mut samples) = (0u64, Samples::default());
    while rows.advance()? {
        intake.series(&rows.labels().to_owned())?;
        samples.clear();
        rows.read(&mut samples)?;
        for (t, v) in samples.timestamps.iter().zip(&samples.values) {
            intake.sample(*t, *v)?;
        }
        read += 1;
        progress.at(read as f64 / all as f64, intake.tally.samples);
    }
    Ok(())
}
