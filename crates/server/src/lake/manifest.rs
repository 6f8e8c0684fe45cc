//! `floodmarks.json`: up to where each partition's journal is in the tables, for all tenants at once.
//!
//! ```text
//!   { "version": 1,
//!     "marks": [ { "source": "9f…/0", "upto": 1200, "attempt": 1500 }, … ],
//!     "check": "crc32c of marks" }
//! ```
//!
//! It is a cache: each table's own floodmarks are the truth. Lost or damaged, it costs a longer replay. What it adds
//! is a word for tenants that had nothing to commit, and whether a round of commits may have been cut short: only then
//! must tables be read before a replay.

use journal::Disk;
use journal::disk;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file's name in the data directory.
const NAME: &str = "floodmarks.json";

const VERSION: u32 = 1;

/// How far one partition is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    /// What tables call the partition's journal.
    pub(crate) source: String,
    /// Every record below this offset is in a table, or had nothing to go there.
    pub(crate) upto: u64,
    /// Commits up to this offset were begun, and their end was not noted.
    pub(crate) attempt: Option<u64>,
}

/// Stands for an attempt of which nothing is known.
const UNKNOWN: u64 = u64::MAX;

impl Mark {
    /// Offsets below this one may be known to tables, and must not be given out again.
    pub(crate) fn floor(&self) -> u64 {
        self.attempt.filter(|attempt| *attempt != UNKNOWN).map_or(self.upto, |attempt| attempt.max(self.upto))
    }
}

/// The file, and what is in it.
#[derive(Debug)]
pub(crate) struct Manifest {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    marks: Vec<Mark>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    marks: Vec<Mark>,
    check: String,
}

impl Manifest {
    /// Reads the file of a data directory whose partitions' journals have these names. A mark of another journal, and
    /// one that is not there, are as if nothing was known of that partition; the same holds for the whole file where it
    /// is damaged.
    pub(crate) fn load(disk: Arc<dyn Disk>, data_dir: &Path, sources: &[String]) -> Self {
        let path = data_dir.join(NAME);
        let found = match disk::read(&*disk, &path) {
            Ok(bytes) => parse(&bytes).unwrap_or_else(|reason| {
                tracing::warn!(file = %path.display(), reason, "floodmarks are not readable; the whole journal is replayed");
                Vec::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "floodmarks are not readable; the whole journal is replayed");
                Vec::new()
            }
        };
        let mark = |source: &String| {
            let known = found.iter().find(|mark| mark.source == *source);
            // of what is not known, anything may have been tried
            known.cloned().unwrap_or(Mark { source: source.clone(), upto: 0, attempt: Some(UNKNOWN) })
        };
        Self { disk, path, marks: sources.iter().map(mark).collect() }
    }

    /// The mark of each partition.
    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Replaces the marks, on the disk first.
    pub(crate) fn store(&mut self, marks: Vec<Mark>) -> io::Result<()> {
        let text = Text { version: VERSION, check: check(&marks), marks };
        disk::replace(&*self.disk, &self.path, &serde_json::to_vec_pretty(&text)?)?;
        self.marks = text.marks;
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<Mark>, String> {
    let text: Text = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if text.version != VERSION {
        return Err(format!("version {} is not {VERSION}, which this build reads", text.version));
    }
    if text.check != check(&text.marks) {
        return Err("its checksum is wrong".into());
    }
    Ok(text.marks)
}

fn check(marks: &[Mark]) -> String {
    let bytes = serde_json::to_vec(marks).expect("BUG: marks are plain values");
    format!("{:08x}", crc32c::crc32c(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::disk::Os;
    use std::fs;

    fn load(dir: &tempfile::TempDir, sources: &[String]) -> Manifest {
        Manifest::load(Arc::new(Os), dir.path(), sources)
    }

    fn mark(source: &str, upto: u64) -> Mark {
        Mark { source: source.into(), upto, attempt: None }
    }

    fn unknown(source: &str) -> Mark {
        Mark { source: source.into(), upto: 0, attempt: Some(UNKNOWN) }
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let sources = ["a/0".to_string(), "a/1".to_string()];
        let mut manifest = load(&dir, &sources);
        assert_eq!(manifest.marks(), [unknown("a/0"), unknown("a/1")]);
        let marks = vec![mark("a/0", 7), Mark { attempt: Some(9), ..mark("a/1", 8) }];
        manifest.store(marks.clone()).unwrap();
        assert_eq!(load(&dir, &sources).marks(), marks);
        let other = ["a/1".to_string(), "b/0".to_string()];
        assert_eq!(load(&dir, &other).marks(), [marks[1].clone(), unknown("b/0")]);
    }

    #[test]
    fn whatever_is_in_the_file_it_loads() {
        let dir = tempfile::tempdir().unwrap();
        let sources = ["a/0".to_string()];
        let mut manifest = load(&dir, &sources);
        manifest.store(vec![mark("a/0", 123_456)]).unwrap();
        let path = dir.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(load(&dir, &sources).marks(), [unknown("a/0")], "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, &flipped).unwrap();
            // a blank may be another blank; a number must not be another number
            let marks = load(&dir, &sources).marks().to_vec();
            assert!(marks == [unknown("a/0")] || marks == [mark("a/0", 123_456)], "{at}: {marks:?}");
        }
    }
}
