//! Reads directories of Whisper files, carbon's `LOCAL_DATA_DIR`.
//!
//! A file's path below the directory is its name ([`crate::whisper_paths`]).

use super::intake::{Intake, Tally};
use super::progress::Progress;
use crate::output::note;
use crate::whisper_paths::TaggedNames;
use anyhow::{Context, bail, ensure};
use model::Labels;
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

/// The files of a directory, in the order of their series in tables.
pub(super) struct Tree {
    files: Vec<(Labels, PathBuf)>,
    bytes: u64,
    /// Counts what is not imported.
    left_out: Tally,
    names: TaggedNames,
    /// Later points are left out.
    now_s: i64,
}

impl Tree {
    /// Finds the files at a path, which is a directory or a file.
    /// `names` is a list of names for files whose paths have only hashes.
    pub(super) fn find(path: &Path, names: Option<&Path>) -> anyhow::Result<Self> {
        let names = names.map(|list| {
            TaggedNames::read(list).with_context(|| format!("cannot read --tagged-names {}", list.display()))
        });
        let names = names.transpose()?.unwrap_or_default();
        let now_s = SystemClock.now_ms() / 1000;
        let mut tree = Self { files: Vec::new(), bytes: 0, left_out: Tally::default(), names, now_s };
        if path.is_dir() {
            tree.walk(path, &mut Vec::new())?;
        } else {
            tree.add(path.into(), &[])?;
        }
        if tree.files.is_empty() {
            ensure!(!tree.left_out.skipped.is_empty(), "there is no Whisper file (*.wsp)");
            let reasons = tree.left_out.skipped.iter().map(|(why, count)| format!("{count} {why}"));
            bail!("nothing can be imported: {}", reasons.collect::<Vec<_>>().join("; "));
        }
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
        match self.names.labels(parents, stem) {
            Ok(labels) => {
                self.bytes += fs::metadata(&path)?.len();
                self.files.push((labels, path));
            }
            Err(reason) => self.left_out.skip(&format!("files: {reason}"), 1),
        }
        Ok(())
    }

    /// Computes a hash of the names and contents of all files, and of which points are left out because they are after the present.
    /// When some of them have become present, the files are another source: what an interrupted import has committed of the one
    /// before is not a part of it.
    pub(super) fn hash(&self, progress: &mut Progress) -> anyhow::Result<String> {
        let (mut hasher, mut buffer, mut read) = (Xxh3Default::new(), vec![0; 1 << 20], 0);
        let mut content = Vec::new();
        for (labels, path) in &self.files {
            hasher.update(labels.as_bytes());
            let mut file = fs::File::open(path)?;
            content.clear();
            loop {
                let bytes = file.read(&mut buffer)?;
                if bytes == 0 {
                    break;
                }
                hasher.update(&buffer[..bytes]);
                read += bytes as u64;
                if content.len() as u64 <= FILE_BYTES_MAX {
                    content.extend_from_slice(&buffer[..bytes]);
                }
            }
            // a file that is damaged or too large is an error later, or left out
            let is_whole = content.len() as u64 <= FILE_BYTES_MAX;
            let parsed = if is_whole { File::parse(&content).ok() } else { None };
            let after = parsed.map_or(0, |file| file.points_after(self.now_s));
            if after > 0 {
                hasher.update(&after.to_le_bytes()); // the number says which ones, because they are the latest
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
        let (now_s, mut bytes, mut done) = (self.now_s, Vec::new(), 0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::whisper::{Archive, Header};

    #[test]
    fn files_are_another_source_when_points_have_become_present() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Archive { step_s: 60, points: 10 };
        let header = Header { method: 1, x_files_factor: 0.5, archives: vec![archive] };
        let mut file = header.encode().unwrap();
        file.extend(archive.encode(6000, &[1.0, 2.0, f64::NAN, 4.0]));
        file.resize(header.file_bytes() as usize, 0);
        fs::write(dir.path().join("a.wsp"), &file).unwrap();
        fs::write(dir.path().join("damaged.wsp"), b"not whisper").unwrap();
        let mut tree = Tree::find(dir.path(), None).unwrap();
        let mut id_at = |now_s| {
            tree.now_s = now_s;
            tree.hash(&mut Progress::new(String::new(), true)).unwrap()
        };
        let ids = [5999, 6000, 6059, 6060, 6179, 6180, 1 << 40].map(&mut id_at);
        let mut distinct = ids.to_vec();
        distinct.dedup();
        assert_eq!(distinct, [&ids[0], &ids[1], &ids[3], &ids[5]].map(String::clone));
    }
}
