//! Reads directories of Whisper files, carbon's `LOCAL_DATA_DIR`.
//!
//! A file's path below the directory is its name: `servers/web1/load.wsp` is `servers.web1.load`. Carbon stores series
//! with tags below `_tagged`, with the dots of the name spelled out.

use super::intake::{Intake, Tally};
use super::progress::Progress;
use crate::output::note;
use anyhow::{Context, ensure};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder};
use protocol::whisper::{FILE_BYTES_MAX, File};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use stdx::clock::{Clock, SystemClock};
use xxhash_rust::xxh3::Xxh3Default;

/// Limit on how deep directories are nested, so that a loop ends.
const DEPTH_MAX: usize = 256;

/// Limit on the files of one directory tree. Their names are held in memory, at about 200 bytes each.
const FILES_MAX: usize = 10_000_000;

/// Carbon writes this for a dot in the name of a file with tags.
const DOT: &str = "_DOT_";

/// The files of a directory, in the order of their series in tables.
pub(super) struct Tree {
    files: Vec<(Labels, PathBuf)>,
    bytes: u64,
    /// Counts what is not imported.
    left_out: Tally,
}

impl Tree {
    /// Finds the files at a path, which is a directory or a file.
    pub(super) fn find(path: &Path) -> anyhow::Result<Self> {
        let mut tree = Self { files: Vec::new(), bytes: 0, left_out: Tally::default() };
        if path.is_dir() {
            tree.walk(path, &mut Vec::new())?;
        } else {
            tree.add(path.into(), &[])?;
        }
        ensure!(!tree.files.is_empty(), "there is no Whisper file (*.wsp)");
        tree.files.sort_by(|(a, _), (b, _)| a.as_ref().cmp_in_tables(b.as_ref()));
        Ok(tree)
    }

    /// `parents` are the names of the directories above `dir`, from the root of the tree.
    fn walk(&mut self, dir: &Path, parents: &mut Vec<String>) -> anyhow::Result<()> {
        ensure!(parents.len() < DEPTH_MAX, "directories are nested more than {DEPTH_MAX} deep");
        for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                    self.left_out.skip("directories whose name is not UTF-8", 1);
                    continue;
                };
                parents.push(name);
                self.walk(&path, parents)?;
                parents.pop();
            } else if path.extension() == Some(OsStr::new("wsp")) {
                // a link to a directory is not followed, because it might lead to a loop
                if path.is_file() {
                    self.add(path, parents)?
                } else {
                    self.left_out.skip("links that lead nowhere", 1)
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf, parents: &[String]) -> anyhow::Result<()> {
        ensure!(self.files.len() < FILES_MAX, "more than {FILES_MAX} files: import parts of the directory");
        let Some(stem) = path.file_stem().and_then(OsStr::to_str) else {
            self.left_out.skip("files whose name is not UTF-8", 1);
            return Ok(());
        };
        match labels(parents, stem) {
            Ok(labels) => {
                self.bytes += fs::metadata(&path)?.len();
                self.files.push((labels, path));
            }
            Err(reason) => self.left_out.skip(&format!("files: {reason}"), 1),
        }
        Ok(())
    }

    /// Computes a hash of the names and contents of all files.
    pub(super) fn hash(&self, progress: &mut Progress) -> anyhow::Result<String> {
        let (mut hasher, mut buffer, mut read) = (Xxh3Default::new(), vec![0; 1 << 20], 0);
        for (labels, path) in &self.files {
            hasher.update(labels.as_bytes());
            let mut file = fs::File::open(path)?;
            loop {
                let bytes = file.read(&mut buffer)?;
                if bytes == 0 {
                    break;
                }
                hasher.update(&buffer[..bytes]);
                read += bytes as u64;
            }
            progress.at(0.2 * part(read, self.bytes), 0);
        }
        Ok(format!("{:032x}", hasher.digest128()))
    }

    /// Reads the values of all files. Values after the present are left out.
    pub(super) fn read(
        self,
        intake: &mut Intake,
        skip_damaged: bool,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        self.left_out.skipped.iter().for_each(|(why, count)| intake.tally.skip(why, *count));
        let (now_s, mut bytes, mut done) = (SystemClock.now_ms() / 1000, Vec::new(), 0);
        for (labels, path) in &self.files {
            bytes.clear();
            let read = read_file(path, &mut bytes)
                .and_then(|()| Ok(File::parse(&bytes)?))
                .with_context(|| format!("{} is damaged (--skip-damaged skips it)", path.display()));
            done += bytes.len() as u64;
            let file = match read {
                Ok(file) => file,
                Err(error) if skip_damaged => {
                    note(format_args!("floodmark: left out: {error:#}"));
                    intake.tally.skip("damaged files", 1);
                    continue;
                }
                Err(error) => return Err(error),
            };
            intake.series(labels)?;
            let mut taken = Ok(());
            file.each(now_s, |at_s, value| {
                if taken.is_ok() {
                    taken = intake.sample(1000 * at_s, value);
                }
            });
            taken?;
            intake.tally.skip("points in the future", file.points_after(now_s));
            progress.at(0.2 + 0.8 * part(done, self.bytes), intake.tally.samples);
        }
        Ok(())
    }
}

fn part(done: u64, of: u64) -> f64 {
    done as f64 / of.max(1) as f64
}

fn read_file(path: &Path, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(bytes)?;
    ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "the file has more than {} MiB", FILE_BYTES_MAX >> 20);
    Ok(())
}

/// Returns the labels of the series in a file.
fn labels(parents: &[String], stem: &str) -> Result<Labels, String> {
    let mut builder = LabelsBuilder::new();
    let is_tagged = parents.first().is_some_and(|first| first == "_tagged");
    if is_tagged {
        let whole = stem.replace(DOT, ".");
        let mut parts = whole.split(';');
        builder.push(METRIC_NAME, parts.next().unwrap_or_default());
        for tag in parts {
            let (name, value) = tag.split_once('=').ok_or("a tag is not of the form name=value")?;
            builder.push(name, value);
        }
    } else {
        let parents = parents.iter().map(String::as_str);
        builder.push(METRIC_NAME, &parents.chain([stem]).collect::<Vec<_>>().join("."));
    }
    builder.build_series().map_err(|refusal| refusal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names() {
        let check = |path: &str, expected: &str| {
            let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
            let stem = parts.pop().unwrap();
            let found = labels(&parts, &stem).map_or_else(|error| error, |labels| labels.to_string());
            assert_eq!(found, expected, "{path}");
        };
        check("load", "load{}");
        check("servers/web-1/load", "servers.web-1.load{}");
        check("_tagged/0a1/b2c/disk_DOT_used;host=a_DOT_b;rack=1", r#"disk.used{host="a.b", rack="1"}"#);
        check("_tagged/0a1/b2c/disk;host", "a tag is not of the form name=value");
    }
}
