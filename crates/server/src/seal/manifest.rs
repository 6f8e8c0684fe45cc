//! `floodmarks.json`: the floodmarks of each partition's journal in each table, by tenant.
//!
//! ```text
//!   { "version": 2,
//!     "tables": { "metrics": [ { "source": "9f…/0", "upto": 1200, "attempt": 1500,
//!                                "tenants": { "team-a": { "source": "9f…/0", "upto": 700, "attempt": 1200 } } }, … ] },
//!     "check": "crc32c of tables" }
//! ```
//!
//! A *mark* is an entry with `source`, `upto` and `attempt`. The mark of a partition holds for all tenants that are not
//! listed under its `tenants`. Version 1 had only the marks of the metrics table, in the field `marks`.
//!
//! The file is a cache of the floodmarks in tables. It also records offsets without samples, and interrupted commits.
//! If the file is lost or damaged, replay has to read tables.

use journal::Disk;
use journal::disk::{self, Mode};
use model::TenantId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tables::METRICS;

const NAME: &str = "floodmarks.json";

/// A file with this extension and size reserves disk space for the next write.
const SPARE: &str = "spare";
const SPARE_BYTES: u64 = 64 << 10;

const VERSION: u32 = 2;

const VERSION_OF_ONE_TABLE: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    /// Name under which tables know the partition's journal.
    pub(crate) source: String,
    /// All records below this offset are in tables, or they have no samples.
    pub(crate) upto: u64,
    /// Commits of records up to this offset were begun. It is not known whether they succeeded.
    pub(crate) attempt: Option<u64>,
    /// Tenants for which this partition's mark does not hold, with their own marks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tenants: BTreeMap<String, TenantMark>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantMark {
    /// Name under which the tenant's table knows the journal. It may be a name that the journal had earlier.
    pub(crate) source: String,
    pub(crate) upto: u64,
    pub(crate) attempt: Option<u64>,
    /// End of records that are being sealed in several passes: of the records from `upto` to this offset, the table
    /// has only some days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) passes: Option<u64>,
}

impl TenantMark {
    /// True if the table may have records beyond `upto`.
    pub(crate) const fn is_open(&self) -> bool {
        self.attempt.is_some() || self.passes.is_some()
    }

    /// Returns the mark to use while the tenant's table cannot be read. The table may have any record below `attempt`
    /// or, if the attempt is unknown, below `end`.
    pub(crate) fn in_doubt(self, end: u64) -> Self {
        let known = self.attempt.max(self.passes).filter(|attempt| *attempt != UNKNOWN);
        Self { attempt: Some(known.unwrap_or(end)), passes: None, ..self }
    }
}

const UNKNOWN: u64 = u64::MAX;

impl Mark {
    fn unknown(source: &str) -> Self {
        Self { source: source.into(), upto: 0, attempt: Some(UNKNOWN), tenants: BTreeMap::new() }
    }

    /// True if nothing is known about what the tables have.
    pub(crate) fn is_unknown(&self) -> bool {
        self.attempt == Some(UNKNOWN)
    }

    /// True if it is unknown whether a commit of any tenant succeeded.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.attempt.is_some() || self.tenants.values().any(|own| own.attempt.max(own.passes).is_some())
    }

    pub(crate) fn of(&self, tenant: &TenantId) -> TenantMark {
        self.tenants.get(tenant.as_str()).cloned().unwrap_or_else(|| TenantMark {
            source: self.source.clone(),
            upto: self.upto,
            attempt: self.attempt,
            passes: None,
        })
    }

    /// For a tenant, returns the name of the journal, the offset up to which records are sealed, and the offset up to
    /// which they may be sealed.
    pub(crate) fn lookup(&self, tenant: &TenantId) -> (&str, u64, Option<u64>) {
        match self.tenants.get(tenant.as_str()) {
            Some(own) => (&own.source, own.upto, own.attempt.max(own.passes)),
            None => (&self.source, self.upto, self.attempt),
        }
    }

    /// Tables may have floodmarks up to this offset. The journal must therefore give new records higher offsets.
    pub(crate) fn floor(&self) -> u64 {
        let own = self.tenants.values().flat_map(|own| [Some(own.upto), own.attempt, own.passes]);
        let all = [Some(self.upto), self.attempt].into_iter().chain(own).flatten();
        all.filter(|offset| *offset != UNKNOWN).max().unwrap_or(0)
    }

    /// Records below this offset are no longer needed for any tenant.
    pub(crate) fn needed_from(&self) -> u64 {
        self.tenants.values().map(|own| own.upto).fold(self.upto, u64::min)
    }
}

type Tables = BTreeMap<String, Vec<Mark>>;

#[derive(Debug)]
pub(crate) struct Manifest {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    tables: Tables,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    tables: Tables,
    check: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextOfOneTable {
    #[expect(dead_code, reason = "already read, to choose this type")]
    version: u32,
    marks: Vec<Mark>,
    check: String,
}

impl Manifest {
    /// Reads the marks of `tables` for journals with the names `sources`. A mark counts as unknown if it is missing,
    /// damaged, or of a journal with a different name.
    pub(crate) fn load(disk: Arc<dyn Disk>, data_dir: &Path, tables: &[&str], sources: &[String]) -> Self {
        let path = data_dir.join(NAME);
        let found = match disk::read(&*disk, &path) {
            Ok(bytes) => parse(&bytes).unwrap_or_else(|reason| {
                tracing::warn!(file = %path.display(), reason, "cannot read floodmarks; the whole journal is replayed");
                Tables::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Tables::new(),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "cannot read floodmarks; the whole journal is replayed");
                Tables::new()
            }
        };
        let marks = |table: &str| {
            let found = found.get(table).map_or(&[][..], Vec::as_slice);
            let mark = |source: &String| {
                let known = found.iter().find(|mark| mark.source == *source);
                known.cloned().unwrap_or_else(|| Mark::unknown(source))
            };
            sources.iter().map(mark).collect()
        };
        let tables = tables.iter().map(|table| ((*table).to_string(), marks(table))).collect();
        Self { disk, path, tables }
    }

    pub(crate) fn marks(&self, table: &str) -> &[Mark] {
        self.tables.get(table).expect("BUG: the manifest was not loaded for this table")
    }

    /// Replaces the marks of a table, first on disk and then in memory.
    pub(crate) fn store(&mut self, table: &str, marks: Vec<Mark>) -> io::Result<()> {
        let mut tables = self.tables.clone();
        tables.insert(table.into(), marks);
        self.write(&tables)?;
        self.tables = tables;
        Ok(())
    }

    /// Writes the file with an additional mark, for the name that a journal is about to get. If the process dies during
    /// the rename, the next start uses the mark whose name matches the journal's.
    pub(crate) fn announce(&self, table: &str, mark: Mark) -> io::Result<()> {
        let mut tables = self.tables.clone();
        tables.entry(table.into()).or_default().push(mark);
        self.write(&tables)
    }

    /// Replaces the mark of one partition. It is replaced in memory even if the file cannot be written.
    pub(crate) fn settle(&mut self, table: &str, partition: usize, mark: Mark) -> io::Result<()> {
        self.tables.get_mut(table).expect("BUG: the manifest was not loaded for this table")[partition] =
            mark;
        self.write(&self.tables)
    }

    fn write(&self, tables: &Tables) -> io::Result<()> {
        let text = Text { version: VERSION, check: check(tables), tables: tables.clone() };
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

    /// Writes the file into the space reserved for it. This works even if the disk is full, and lets the journal be
    /// truncated to free space.
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

    fn make_spare(&self) {
        let path = self.path.with_extension(SPARE);
        if self.disk.open(&path, Mode::Read).and_then(|file| file.len()).is_ok_and(|len| len >= SPARE_BYTES) {
            return;
        }
        let made = self.disk.open(&path, Mode::Create).and_then(|file| file.allocate(0, SPARE_BYTES));
        if made.is_err() {
            let _ = self.disk.remove(&path);
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Tables, String> {
    let bad = |e: serde_json::Error| e.to_string();
    let Version { version } = serde_json::from_slice(bytes).map_err(bad)?;
    let (tables, is_whole) = match version {
        VERSION => {
            let Text { tables, check: noted, .. } = serde_json::from_slice(bytes).map_err(bad)?;
            let is_whole = noted == check(&tables);
            (tables, is_whole)
        }
        VERSION_OF_ONE_TABLE => {
            let TextOfOneTable { marks, check: noted, .. } = serde_json::from_slice(bytes).map_err(bad)?;
            let is_whole = noted == check(&marks);
            (Tables::from([(METRICS.name.to_string(), marks)]), is_whole)
        }
        later => return Err(format!("unknown version {later}; this build reads up to {VERSION}")),
    };
    if is_whole { Ok(tables) } else { Err("its checksum is wrong".into()) }
}

fn check(marks: &impl Serialize) -> String {
    let bytes = serde_json::to_vec(marks).expect("BUG: marks cannot be encoded");
    format!("{:08x}", crc32c::crc32c(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::disk::Os;
    use std::fs;

    const OTHER: &str = "other";

    fn load(dir: &tempfile::TempDir, sources: &[String]) -> Manifest {
        Manifest::load(Arc::new(Os), dir.path(), &[METRICS.name, OTHER], sources)
    }

    fn mark(source: &str, upto: u64) -> Mark {
        Mark { source: source.into(), upto, attempt: None, tenants: BTreeMap::new() }
    }

    fn unknown(source: &str) -> Mark {
        Mark::unknown(source)
    }

    #[test]
    fn stored_marks_are_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let sources = ["a/0".to_string(), "a/1".to_string()];
        let mut manifest = load(&dir, &sources);
        assert_eq!(manifest.marks(METRICS.name), [unknown("a/0"), unknown("a/1")]);
        let own = TenantMark { source: "b/1".into(), upto: 5, attempt: Some(11), passes: Some(9) };
        let tenants = BTreeMap::from([("anonymous".to_string(), own.clone())]);
        let marks = vec![mark("a/0", 7), Mark { attempt: Some(9), tenants, ..mark("a/1", 8) }];
        assert_eq!((marks[0].floor(), marks[0].needed_from()), (7, 7));
        assert_eq!((marks[1].floor(), marks[1].needed_from()), (11, 5));
        assert_eq!(marks[1].of(&TenantId::anonymous()), own);
        assert_eq!(marks[1].of(&TenantId::parse("x").unwrap()).upto, 8);
        manifest.store(METRICS.name, marks.clone()).unwrap();
        assert_eq!(load(&dir, &sources).marks(METRICS.name), marks);
        let other = ["a/1".to_string(), "b/0".to_string()];
        assert_eq!(load(&dir, &other).marks(METRICS.name), [marks[1].clone(), unknown("b/0")]);
    }

    #[test]
    fn tables_have_marks_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let sources = ["a/0".to_string()];
        let mut manifest = load(&dir, &sources);
        manifest.store(METRICS.name, vec![mark("a/0", 7)]).unwrap();
        manifest.settle(OTHER, 0, mark("a/0", 3)).unwrap();
        manifest.announce(OTHER, mark("b/0", 9)).unwrap();
        let upto = |table: &str, source: &str| load(&dir, &[source.into()]).marks(table)[0].upto;
        assert_eq!((upto(METRICS.name, "a/0"), upto(OTHER, "a/0"), upto(OTHER, "b/0")), (7, 3, 9));
        assert!(load(&dir, &["b/0".into()]).marks(METRICS.name)[0].is_unknown());
    }

    #[test]
    fn version_1_is_read_and_upgraded() {
        const TEXT: &str = r#"{ "version": 1,
            "marks": [ { "source": "e7bc471f38b7b327/0", "upto": 180, "attempt": null },
                       { "source": "fa89d29ab44af24d/1", "upto": 180, "attempt": null } ],
            "check": "b244c3bf" }"#;
        let dir = tempfile::tempdir().unwrap();
        let sources = ["e7bc471f38b7b327/0".to_string(), "fa89d29ab44af24d/1".to_string()];
        let path = dir.path().join(NAME);
        fs::write(&path, TEXT.replace("180", "181")).unwrap();
        assert!(load(&dir, &sources).marks(METRICS.name)[0].is_unknown(), "its checksum is wrong");
        fs::write(&path, TEXT).unwrap();
        let mut manifest = load(&dir, &sources);
        let expected = [mark(&sources[0], 180), mark(&sources[1], 180)];
        assert_eq!(manifest.marks(METRICS.name), expected);
        assert!(manifest.marks(OTHER)[0].is_unknown());
        manifest.settle(OTHER, 0, mark(&sources[0], 5)).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("\"version\": 2"));
        let upgraded = load(&dir, &sources);
        assert_eq!((upgraded.marks(METRICS.name), upgraded.marks(OTHER)[0].upto), (&expected[..], 5));
    }

    #[test]
    fn damaged_files_never_load_as_other_marks() {
        let dir = tempfile::tempdir().unwrap();
        let sources = ["a/0".to_string()];
        let mut manifest = load(&dir, &sources);
        manifest.store(METRICS.name, vec![mark("a/0", 123_456)]).unwrap();
        let path = dir.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(load(&dir, &sources).marks(METRICS.name), [unknown("a/0")], "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, &flipped).unwrap();
            // damage in white space may go unnoticed, but a changed number must not
            let marks = load(&dir, &sources).marks(METRICS.name).to_vec();
            assert!(marks == [unknown("a/0")] || marks == [mark("a/0", 123_456)], "{at}: {marks:?}");
        }
    }
}
