//! Reads the blocks of a Prometheus server's data directory.

use super::intake::Intake;
use super::progress::Progress;
use super::scratch::FilePart;
use crate::output::note;
use anyhow::{Context, bail, ensure};
use model::{Samples, TimeRange};
use protocol::tsdb::{
    BlockMeta, Chunk, Chunks, Index, SeriesEntry, Tombstones, chunks, meta, tombstones, xor,
};
use std::fs;
use std::path::{Path, PathBuf};

/// Finds blocks and sorts them by time. Each path is either a block or a directory that contains blocks.
pub(super) fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut blocks = Vec::new();
    for path in paths {
        if path.join("meta.json").exists() {
            blocks.push((read_meta(path)?.min_time_ms, path.clone()));
            continue;
        }
        for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
            let dir = entry?.path();
            // a block's name is a ULID, which has 26 characters; Prometheus gives incomplete blocks longer
            // names
            let named = dir.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.len() == 26);
            if named && dir.join("meta.json").exists() {
                blocks.push((read_meta(&dir)?.min_time_ms, dir));
            }
        }
        if path.join("wal").exists() {
            note(format_args!(
                "floodmark: {} is the data directory of a Prometheus: samples that are not in blocks yet (up to three hours) are \
                 left out; a snapshot (POST /api/v1/admin/tsdb/snapshot) includes them",
                path.display()
            ));
        }
    }
    blocks.sort();
    Ok(blocks.into_iter().map(|(_, path)| path).collect())
}

fn read_meta(block: &Path) -> anyhow::Result<BlockMeta> {
    let path = block.join("meta.json");
    let meta = read_bounded(&path, meta::META_BYTES_MAX)?;
    BlockMeta::parse(&meta).with_context(|| format!("{}", block.display()))
}

fn read_bounded(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let len = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    ensure!(len <= bytes_max, "{} has {len} bytes, the limit is {bytes_max}", path.display());
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) struct Block {
    meta: BlockMeta,
    index: Index<FilePart>,
    chunks: Chunks<FilePart>,
    tombstones: Tombstones,
}

impl Block {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let meta = read_meta(dir)?;
        let index = FilePart::open(&dir.join("index"))
            .with_context(|| format!("cannot open {}", dir.join("index").display()))?;
        let index = Index::open(index)?;
        let mut segments = Vec::new();
        for number in 1..=chunks::SEGMENTS_MAX {
            let path = dir.join("chunks").join(format!("{number:06}"));
            if !path.exists() {
                break;
            }
            segments.push(FilePart::open(&path)?);
        }
        let chunks = Chunks::open(segments)?;
        let stones = dir.join("tombstones");
        let tombstones = match stones.exists() {
            true => Tombstones::parse(&read_bounded(&stones, tombstones::TOMBSTONES_BYTES_MAX)?)?,
            false => Tombstones::default(),
        };
        Ok(Self { meta, index, chunks, tombstones })
    }

    pub(crate) fn ulid(&self) -> &str {
        &self.meta.ulid
    }

    pub(crate) fn read(
        mut self,
        intake: &mut Intake,
        skip_damaged: bool,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let mut entry = SeriesEntry::default();
        let mut samples = Samples::default();
        let mut walked = 0u64;
        while self.index.next(&mut entry)? {
            walked += 1;
            if walked.is_multiple_of(256) {
                progress.at(self.index.progress(), intake.tally.samples);
            }
            let labels = match entry.labels.take() {
                Some(Ok(labels)) => labels,
                Some(Err(error)) => {
                    intake.tally.skip(&format!("series: {error}"), 1);
                    continue;
                }
                None => bail!("BUG: the labels of a series are missing"),
            };
            intake.series(&labels)?;
            for chunk in &entry.chunks {
                samples.clear();
                match floats(&mut self.chunks, chunk.reference, &mut samples) {
                    Ok(Content::Floats) => {}
                    Ok(Content::Other(what, count)) => {
                        intake.tally.skip(what, count);
                        continue;
                    }
                    Err(error) if skip_damaged => {
                        intake.tally.skip(&format!("chunks: {error}"), 1);
                        continue;
                    }
                    Err(error) => {
                        return Err(error
                            .context(format!("{labels:?} has a damaged chunk (--skip-damaged skips it)")));
                    }
                }
                take(intake, &samples, &self.meta, self.tombstones.of(entry.reference))?;
            }
        }
        Ok(())
    }

    pub(crate) fn into_parts(self) -> (BlockMeta, Index<FilePart>, Chunks<FilePart>, Tombstones) {
        (self.meta, self.index, self.chunks, self.tombstones)
    }
}

enum Content {
    Floats,
    Other(&'static str, u64),
}

/// Reads a chunk, and returns what kind of data it has. Floats are decoded into `samples`.
fn floats(chunks: &mut Chunks<FilePart>, reference: u64, samples: &mut Samples) -> anyhow::Result<Content> {
    match chunks.get(reference)? {
        Chunk::Floats(data) => match xor::decode(data, samples) {
            Some(()) => Ok(Content::Floats),
            None => bail!("chunks: a chunk ends before its last sample"),
        },
        Chunk::Other { encoding: 2 | 3, samples } => Ok(Content::Other("native histograms", samples)),
        Chunk::Other { samples, .. } => Ok(Content::Other("samples in an unknown encoding", samples)),
    }
}

/// Imports those samples that Prometheus would return for a query of the block. The others are only counted.
fn take(
    intake: &mut Intake,
    samples: &Samples,
    meta: &BlockMeta,
    deleted: &[TimeRange],
) -> anyhow::Result<()> {
    for (t, v) in samples.timestamps.iter().zip(&samples.values) {
        if *t < meta.min_time_ms || *t >= meta.max_time_ms {
            intake.tally.skip("samples outside the time range of their block", 1);
        } else if deleted.iter().any(|range| range.contains(*t)) {
            intake.tally.skip("deleted samples", 1);
        } else {
            intake.sample(*t, *v)?;
        }
    }
    Ok(())
}
