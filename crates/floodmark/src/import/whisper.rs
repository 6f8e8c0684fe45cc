//! Reads directories of Whisper files, carbon's `LOCAL_DATA_DIR`.
//!
//! A file's path below the directory is its name ([`crate::whisper_paths`]).
//!
//! ```text
//!   files ──finest value of each time──▶ history ──without coarse values of slots with finer samples──▶ intake
//!                                           ▲
//!   journal, table ──times of samples──▶ stored
//! ```
//!
//! A coarse value is not imported into a slot that already has finer samples, from an earlier import of the same carbon or from a relay that
//! sends to both. Its time is the slot's beginning. So it would replace the finer sample of that time, or count as one more finer sample.

mod history;
mod stored;

use super::intake::{Intake, Tally};
use super::progress::Progress;
use super::target::Target;
use crate::output::note;
use crate::whisper_paths::TaggedNames;
use anyhow::{Context, bail, ensure};
use history::History;
use model::{Labels, TimeRange};
use protocol::whisper::{FILE_BYTES_MAX, File, Header, WhisperError};
use query::graphite::label_source::write_name;
use query::graphite::{Aggregate, Schemas as _};
use rules::Method;
use server::GraphiteSchemas;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use stdx::clock::{Clock, SystemClock};
use stored::Stored;
use xxhash_rust::xxh3::Xxh3Default;

/// Limit on how deep directories are nested, so that a loop ends.
const DEPTH_MAX: usize = 256;

/// Limit on the files of one directory tree. Their names are held in memory, at about 200 bytes each.
const FILES_MAX: usize = 10_000_000;

/// The files of a directory, in the order of their series in tables.
pub(super) struct Tree {
    files: Vec<TreeFile>,
    bytes: u64,
    /// Counts what is not imported.
    left_out: Tally,
    names: TaggedNames,
    /// Later points are left out.
    now_s: i64,
    /// Values at other times are left out.
    range: TimeRange,
}

#[derive(Debug)]
struct TreeFile {
    labels: Labels,
    path: PathBuf,
    /// The step of the second archive. `None` if there is none, and before [`Tree::hash`] has read the file.
    coarse_step_s: Option<u32>,
    /// [`marked_archives`]. 0 before [`Tree::hash`] has read the file.
    marked: u64,
}

/// Archives of a file whose values all need marks: bit 0 stands for the finest. Queries find a value's neighbours only at steps of the
/// schema. So values need marks if a coarse archive of the schema has a shorter step, and shows times that the file's finer archives
/// do not have any more. With `avg_zero`, neighbours do not count, so all coarse values need marks. `coarse` are the steps and retentions
/// of the schema's archives, without the finest. `is_avg_zero` says whether it has this method.
fn marked_archives(coarse: &[(i64, i64)], is_avg_zero: bool, file: &Header) -> u64 {
    let mut finer_s = 0;
    let mut marked = 0;
    if is_avg_zero || file.method == Method::AvgZero as u32 {
        marked = (1..file.archives.len()).map(|number| 1_u64 << number).sum();
    }
    for (number, archive) in file.archives.iter().enumerate() {
        let is_hidden = |(step_s, retention_s): &(i64, i64)| {
            *step_s < i64::from(archive.step_s) && *retention_s > finer_s
        };
        marked |= u64::from(coarse.iter().any(is_hidden)) << number;
        finer_s = archive.retention_s();
    }
    marked
}

impl Tree {
    /// Finds the files at a path, which is a directory or a file.
    /// `names` is a list of names for files whose paths have only hashes.
    pub(super) fn find(path: &Path, names: Option<&Path>, range: TimeRange) -> anyhow::Result<Self> {
        ensure!(range.start_ms <= range.end_ms, "--end is before --start");
        let names = names.map(|list| {
            TaggedNames::read(list).with_context(|| format!("cannot read --tagged-names {}", list.display()))
        });
        let names = names.transpose()?.unwrap_or_default();
        let now_s = SystemClock.now_ms() / 1000;
        let mut tree = Self { files: Vec::new(), bytes: 0, left_out: Tally::default(), names, now_s, range };
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
        tree.files.sort_by(|a, b| a.labels.as_ref().cmp_in_tables(b.labels.as_ref()));
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
        let bytes = fs::metadata(&path)?.len();
        if bytes == 0 {
            // carbon leaves such files behind when the disk is full
            self.left_out.skip("empty files", 1);
            return Ok(());
        }
        match self.names.labels(parents, stem) {
            Ok(labels) => {
                self.bytes += bytes;
                self.files.push(TreeFile { labels, path, coarse_step_s: None, marked: 0 });
            }
            Err(reason) => self.left_out.skip(&format!("files: {reason}"), 1),
        }
        Ok(())
    }

    /// Computes a hash of the names and contents of all files, of which points are left out because of their times, and of which
    /// archives have marks.
    /// Once the time of a future point has come, the files count as another source: an import that was interrupted before is not
    /// continued.
    pub(super) fn hash(
        &mut self,
        schemas: Option<&GraphiteSchemas>,
        progress: &mut Progress,
    ) -> anyhow::Result<String> {
        let (mut hasher, mut buffer, mut read) = (Xxh3Default::new(), vec![0; 1 << 20], 0);
        let (mut content, mut name, mut coarse) = (Vec::new(), String::new(), Vec::new());
        if self.range != TimeRange::ALL {
            hasher.update(&self.range.start_ms.to_le_bytes());
            hasher.update(&self.range.end_ms.to_le_bytes());
        }
        for TreeFile { labels, path, coarse_step_s, marked } in &mut self.files {
            coarse.clear();
            let mut is_avg_zero = false;
            if let Some(schemas) = schemas {
                name.clear();
                write_name(&mut name, labels.as_ref());
                let schema = schemas.schema_of(&name);
                is_avg_zero = schema.aggregation == Aggregate::AvgZero;
                let archives = schema.archives.iter().skip(1);
                coarse.extend(archives.map(|archive| (archive.step_s, archive.retention_s)));
            }
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
            let archives = parsed.as_ref().map(|file| file.header.archives.as_slice());
            *coarse_step_s = archives.and_then(|archives| archives.get(1)).map(|archive| archive.step_s);
            *marked = parsed.as_ref().map_or(0, |file| marked_archives(&coarse, is_avg_zero, &file.header));
            if *marked > 0 {
                hasher.update(&marked.to_le_bytes());
            }
            let after = parsed.map_or(0, |file| file.points_after(self.now_s));
            if after > 0 {
                hasher.update(&after.to_le_bytes()); // the number says which ones, because they are the latest
            }
            progress.at(0.2 * part(read, self.bytes), 0);
        }
        self.share_steps();
        Ok(format!("{:032x}", hasher.digest128()))
    }

    /// Several files may have one series, because a name may be a hash. Then the smallest step counts for all of them.
    fn share_steps(&mut self) {
        for files in self.files.chunk_by_mut(|a, b| a.labels == b.labels) {
            let step_s = files.iter().filter_map(|file| file.coarse_step_s).min();
            files.iter_mut().for_each(|file| file.coarse_step_s = step_s);
        }
    }

    /// Reads the values of all files, after [`Self::hash`]. Values after the present are left out, and coarse ones where the target
    /// has finer samples. Returns a hash of the coarse ones that were left out, if any. With the hash of the files, it identifies what is
    /// imported.
    pub(super) fn read(
        self,
        target: &Target,
        intake: &mut Intake,
        skip_damaged: bool,
        progress: &mut Progress,
    ) -> anyhow::Result<Option<String>> {
        self.left_out.skipped.iter().for_each(|(why, count)| intake.tally.skip(why, *count));
        let (now_s, range, mut bytes, mut done) = (self.now_s, self.range, Vec::new(), 0);
        progress.say("reading what is stored already");
        let mut stored = Stored::open(target, &self.files, now_s)?;
        let mut left_out = None;
        for (place, TreeFile { labels, path, marked, .. }) in self.files.iter().enumerate() {
            bytes.clear();
            let read = read_file(path, &mut bytes).and_then(|()| Ok(File::parse(&bytes)?));
            done += bytes.len() as u64;
            let file = match read {
                Ok(file) => file,
                Err(error) => {
                    let is_compressed = matches!(error.downcast_ref(), Some(WhisperError::Compressed));
                    let (what, counted) = match is_compressed {
                        true => ("cannot be imported", "files that go-carbon has compressed"),
                        false => ("is damaged", "damaged files"),
                    };
                    let error = error.context(format!("{} {what} (--skip-damaged skips it)", path.display()));
                    if !skip_damaged {
                        return Err(error);
                    }
                    note(format_args!("floodmark: left out: {error:#}"));
                    intake.tally.skip(counted, 1);
                    continue;
                }
            };
            intake.series(labels)?;
            let mut leave_out = |at_s: i64| {
                let hasher = left_out.get_or_insert_with(Xxh3Default::new);
                hasher.update(&(place as u64).to_le_bytes());
                hasher.update(&at_s.to_le_bytes());
            };
            let times = stored.times(&self.files, place)?;
            let mut history = History::new(intake, (&file.header.archives, *marked), times, &mut leave_out);
            let (mut taken, mut outside) = (Ok(()), 0);
            file.each(now_s, |archive, at_s, value| {
                if !range.contains(1000 * at_s) {
                    outside += 1;
                } else if taken.is_ok() {
                    taken = history.push(archive, at_s, value);
                }
            });
            taken.and_then(|()| history.finish())?;
            intake.tally.skip("values before --start or after --end", outside);
            intake.tally.skip("points in the future", file.points_after(now_s));
            progress.at(0.2 + 0.8 * part(done, self.bytes), intake.tally.samples);
        }
        stored.finish(skip_damaged)?;
        Ok(left_out.map(|hasher| format!("{:032x}", hasher.digest128())))
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
    use protocol::whisper::Archive;

    #[test]
    fn archives_are_marked_if_a_shorter_step_of_the_schema_shows_them() {
        const DAY_S: i64 = 86_400;
        let file = [(60, 1440), (900, 96 * 90), (3600, 24 * 365)];
        let archives = file.map(|(step_s, points)| Archive { step_s, points }).into();
        let mut file = Header { method: Method::Average as u32, x_files_factor: 0.5, archives };
        for (coarse, expected) in [
            (&[][..], 0),
            (&[(900, 90 * DAY_S), (3600, 365 * DAY_S)], 0), // as the file
            (&[(300, DAY_S), (3600, 365 * DAY_S)], 0),      // gone when the file's values of 900 s begin
            (&[(300, 2 * DAY_S), (3600, 365 * DAY_S)], 0b010),
            (&[(900, 91 * DAY_S)], 0b100),
            (&[(30, 365 * DAY_S)], 0b111),
        ] {
            assert_eq!(marked_archives(coarse, false, &file), expected, "{coarse:?}");
        }
        assert_eq!(marked_archives(&[], true, &file), 0b110);
        file.method = Method::AvgZero as u32;
        assert_eq!(marked_archives(&[], false, &file), 0b110);
    }

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
        let mut tree = Tree::find(dir.path(), None, TimeRange::ALL).unwrap();
        let mut id_at = |now_s| {
            tree.now_s = now_s;
            tree.hash(None, &mut Progress::new(String::new(), true)).unwrap()
        };
        let ids = [5999, 6000, 6059, 6060, 6179, 6180, 1 << 40].map(&mut id_at);
        let mut distinct = ids.to_vec();
        distinct.dedup();
        assert_eq!(distinct, [&ids[0], &ids[1], &ids[3], &ids[5]].map(String::clone));
    }
}
