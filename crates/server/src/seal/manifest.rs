//! `floodmarks.json`: up to where each partition's journal is in the tables, for all tenants at once.
//!
//! ```text
//!   { "version": 1,
//!     "marks": [ { "source": "9f…/0", "upto": 1200, "attempt": 1500,
//!                  "tenants": { "team-a": { "source": "9f…/0", "upto": 700, "attempt": 1200 } } }, … ],
//!     "check": "crc32c of marks" }
//! ```
//!
//! What is said of a partition holds for all tenants but those that are named: they cannot be sealed, and so lag behind, or
//! were sealed while others were not yet.
//!
//! It is a cache: each table's own floodmarks are the truth. Lost or damaged, it costs a longer replay. What it adds
//! is a word for tenants that had nothing to commit, and whether a round of commits may have been cut short: only then
//! must tables be read before a replay.

use journal::Disk;
use journal::disk::{self, Mode};
use model::TenantId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file's name in the data directory.
const NAME: &str = "floodmarks.json";

/// What the file is called that keeps space for another version of it, and how much: some hundred tenants' worth.
const SPARE: &str = "spare";
const SPARE_BYTES: u64 = 64 << 10;

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
    /// Tenants of whom this is not so, and what is so instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tenants: BTreeMap<String, Own>,
}

/// How far a partition's journal is in the table of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    /// What the tenant's table calls the journal: it may have got another name since.
    pub(crate) source: String,
    /// As in [`Mark`].
    pub(crate) upto: u64,
    /// As in [`Mark`].
    pub(crate) attempt: Option<u64>,
    /// Beyond `upto`, the table has some days of records below this offset: what is sealed in passes was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) passes: Option<u64>,
}

impl Own {
    /// Its table may have more than is noted.
    pub(crate) const fn is_open(&self) -> bool {
        self.attempt.is_some() || self.passes.is_some()
    }

    /// The same, of a tenant whose table cannot be asked: it may have anything below `attempt`, or below the journal's `end`
    /// where nothing is known of that.
    pub(crate) fn in_doubt(self, end: u64) -> Self {
        let known = self.attempt.max(self.passes).filter(|attempt| *attempt != UNKNOWN);
        Self { attempt: Some(known.unwrap_or(end)), passes: None, ..self }
    }
}

/// Stands for an attempt of which nothing is known.
const UNKNOWN: u64 = u64::MAX;

impl Mark {
    /// Of what is not known, anything may have been tried.
    fn unknown(source: &str) -> Self {
        Self { source: source.into(), upto: 0, attempt: Some(UNKNOWN), tenants: BTreeMap::new() }
    }

    /// Nothing is known of what tables have.
    pub(crate) fn is_unknown(&self) -> bool {
        self.attempt == Some(UNKNOWN)
    }

    /// Commits were begun of which it is not known how they ended.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.attempt.is_some() || self.tenants.values().any(|own| own.attempt.max(own.passes).is_some())
    }

    /// What holds for one tenant.
    pub(crate) fn of(&self, tenant: &TenantId) -> Own {
        self.tenants.get(tenant.as_str()).cloned().unwrap_or_else(|| Own {
            source: self.source.clone(),
            upto: self.upto,
            attempt: self.attempt,
            passes: None,
        })
    }

    /// For one tenant: its journal's name, up to where it is sealed, and up to where only its table knows.
    pub(crate) fn look(&self, tenant: &TenantId) -> (&str, u64, Option<u64>) {
        match self.tenants.get(tenant.as_str()) {
            Some(own) => (&own.source, own.upto, own.attempt.max(own.passes)),
            None => (&self.source, self.upto, self.attempt),
        }
    }

    /// Offsets below this one may be known to tables, and must not be given out again.
    pub(crate) fn floor(&self) -> u64 {
        let own = self.tenants.values().flat_map(|own| [Some(own.upto), own.attempt, own.passes]);
        let all = [Some(self.upto), self.attempt].into_iter().chain(own).flatten();
        all.filter(|offset| *offset != UNKNOWN).max().unwrap_or(0)
    }

    /// Records below this one are needed no more: for no tenant.
    pub(crate) fn needed_from(&self) -> u64 {
        self.tenants.values().map(|own| own.upto).fold(self.upto, u64::min)
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
            known.cloned().unwrap_or_else(|| Mark::unknown(source))
        };
        Self { disk, path, marks: sources.iter().map(mark).collect() }
    }

    /// The mark of each partition.
    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Replaces the marks, on the disk first.
    pub(crate) fn store(&mut self, marks: Vec<Mark>) -> io::Result<()> {
        self.write(marks.clone())?;
        self.marks = marks;
        Ok(())
    }

    /// Puts a mark on the disk beside the others, for a journal that is about to get this name. Which of the two holds
    /// is said by the name that it has when they are read.
    pub(crate) fn announce(&self, mark: Mark) -> io::Result<()> {
        self.write(self.marks.iter().cloned().chain([mark]).collect())
    }

    /// Changes what is known, whether or not it can be written now: a next start would find out the same.
    pub(crate) fn settle(&mut self, partition: usize, mark: Mark) -> io::Result<()> {
        self.marks[partition] = mark;
        self.write(self.marks.clone())
    }

    fn write(&self, marks: Vec<Mark>) -> io::Result<()> {
        let text = Text { version: VERSION, check: check(&marks), marks };
        let bytes = serde_json::to_vec_pretty(&text)?;
        match disk::replace(&*self.disk, &self.path, &bytes) {
            Err(full) if matches!(full.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                self.replace_in_spare(&bytes).map_err(|_| full)?;
            }
            replaced => replaced?,
        }
        self.make_spare();
        Ok(())
    }

    /// The same in space that was set aside: the journal is shortened only when this is written, and that may be what
    /// makes room.
    fn replace_in_spare(&self, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.path.with_extension("unfinished");
        self.disk.rename(&self.path.with_extension(SPARE), &unfinished)?;
        let file = self.disk.open(&unfinished, Mode::Change)?;
        file.write_at(bytes, 0)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_data()?;
        self.disk.rename(&unfinished, &self.path)?;
        self.path.parent().map_or(Ok(()), |dir| self.disk.sync_dir(dir))
    }

    /// Sets that space aside, where there is some.
    fn make_spare(&self) {
        let path = self.path.with_extension(SPARE);
        if self.disk.open(&path, Mode::Read).and_then(|file| file.len()).is_ok_and(|len| len >= SPARE_BYTES) {
            return;
        }
        let made = self.disk.open(&path, Mode::Create).and_then(|file| file.allocate(0, SPARE_BYTES));
        if made.is_err() {
            // what was had of it goes back; without it a full disk waits for somebody to make room
            let _ = self.disk.remove(&path);
        }
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
        Mark { source: source.into(), upto, attempt: None, tenants: BTreeMap::new() }
    }

    fn unknown(source: &str) -> Mark {
        Mark::unknown(source)
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let sources = ["a/0".to_string(), "a/1".to_string()];
        let mut manifest = load(&dir, &sources);
        assert_eq!(manifest.marks(), [unknown("a/0"), unknown("a/1")]);
        let own = Own { source: "b/1".into(), upto: 5, attempt: Some(11), passes: Some(9) };
        let tenants = BTreeMap::from([("anonymous".to_string(), own.clone())]);
        let marks = vec![mark("a/0", 7), Mark { attempt: Some(9), tenants, ..mark("a/1", 8) }];
        assert_eq!((marks[0].floor(), marks[0].needed_from()), (7, 7));
        assert_eq!((marks[1].floor(), marks[1].needed_from()), (11, 5));
        assert_eq!(marks[1].of(&TenantId::anonymous()), own);
        assert_eq!(marks[1].of(&TenantId::parse("x").unwrap()).upto, 8);
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
