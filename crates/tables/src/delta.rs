//! The Delta log: which files are live, and up to which journal offsets they hold the samples. No other module uses the
//! Delta library.
//!
//! ```text
//!   stage: Parquet files, put under new names, invisible to readers
//!   commit: ONE log entry adds the files of many blocks and moves their floodmarks (Delta's `txn` actions)
//! ```
//!
//! An entry is put only if its version is new. Floodmarks are read at version n and written with n + 1: a commit is a
//! compare-and-swap. A second writer, or a writer that did not receive the answer to its put, reads the floodmarks
//! again and finds nothing left to do. A block of records also compares the steps of interrupted blocks
//! ([`Table::commit_pass`]), because merges of records drop no row that was committed twice.
//!
//! Of two samples of the same series and time, the one in the file with the greater *sequence* wins. The sequence is
//! the current time, raised above the sequences of all live files if necessary. So correctness does not depend on
//! clocks. The sequence is stored as `modificationTime`. A merged file has the greatest sequence of its inputs.
//!
//! Files of other engines are *early*: they count as written before all of Floodmark's files ([`LiveFile::rank`]). A
//! merge of only early files is early too.

mod actions;
mod clean;
mod columns;
mod commit;
mod failure;
mod floodmark;
mod fully_deleted;
mod lease;
mod listing;
mod log;
mod pending_deletes;
mod removed_files;
mod repair;
mod summary;
mod sweep;
mod tombstones;

use crate::date::Date;
use crate::error::TableError;
use crate::kind::attributes::{AttributeColumns, Seen};
use crate::kind::metrics::ROLLUP;
use crate::kind::{DATE, Kind};
use crate::live_file::LiveFile;
use crate::store::FileStem;
use crate::store::{Location, Reading, Staging, StoredFile, Upload};
use crate::tombstone::{Mask, Tombstones};
use delta_kernel::snapshot::{IncrementalReplay, Snapshot, SnapshotRef};
use delta_kernel::{KernelError, KernelResult};
use delta_kernel_default_engine::executor::tokio::TokioMultiThreadExecutor;
use delta_kernel_default_engine::{DefaultEngine, DefaultEngineBuilder};
use listing::{Checkpoint, Listing};
use log::Loaded;
use pending_deletes::PendingDeletes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use clean::Cleaned;
pub use commit::{COMMIT_FILES_MAX, Outcome};
pub use floodmark::Floodmark;
pub use lease::{LEASE_MS, Lease};
pub use summary::FileSummary;
pub use sweep::{Sweeper, Swept};

const ENGINE_INFO: &str = concat!("floodmark/", env!("CARGO_PKG_VERSION"));

/// Number of log files that are read concurrently, each of which is held in memory.
const READ_AHEAD: NonZero<usize> = NonZero::new(8).unwrap();

/// A file that is in the store but not yet in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    pub path: String,
    pub summary: FileSummary,
    pub staging: Staging,
}

/// All files that hold a source's samples between two offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedBlock {
    /// Identity of the journal that the samples come from.
    pub source: String,
    /// Floodmark of the source before this block.
    pub after: Option<u64>,
    /// Floodmark of the source after this block.
    pub upto: u64,
    /// A block that is too large for one commit is committed in passes, each for a range of days. This is the last day
    /// of the pass, or `None` in the last or only pass.
    pub through: Option<Date>,
    /// Empty if all samples were duplicates.
    pub files: Vec<StagedFile>,
}

/// Stands for the list of the live files of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesMark {
    version: u64,
    loaded: u64,
}

impl FilesMark {
    pub const fn version(self) -> u64 {
        self.version
    }

    /// Whether all changes since an earlier list of the same table, or since the table was created, were made by this process. False
    /// also if this is not known.
    #[must_use]
    pub fn continues(self, earlier: Option<Self>) -> bool {
        let Self { version, loaded } = earlier.unwrap_or(Self { version: 0, loaded: 0 });
        self.loaded == loaded || self.loaded == version
    }
}

/// The live files of one version. No listed file is swept before the list is dropped.
#[derive(Debug, Default)]
pub struct Files {
    version: u64,
    /// The version whose list was read from the log. All later changes were made by this process.
    loaded: u64,
    list: Vec<LiveFile>,
    /// The deletes that have not been applied to all files yet.
    pending: PendingDeletes,
    bytes: usize,
    data_bytes: u64,
    /// Registers this list as a reader of its version, which keeps its files from being swept. `None` in a list that
    /// belongs to no table.
    _reading: Option<Reading>,
}

impl Files {
    fn new(location: &Location, version: u64, mut list: Vec<LiveFile>, pending: PendingDeletes) -> Self {
        list.sort_unstable_by(|a, b| (a.date, a.rank(), &a.path).cmp(&(b.date, b.rank(), &b.path)));
        let texts = |f: &LiveFile| f.path.len() + f.names.as_ref().map_or(0, |(a, b)| a.len() + b.len());
        let bytes = list.iter().map(|f| size_of::<LiveFile>() + texts(f)).sum::<usize>();
        let bytes = bytes + pending.all.memory_bytes();
        let data_bytes = list.iter().map(|f| f.bytes).fold(0, u64::saturating_add);
        let reading = location.readers().begin(location.prefix(), version);
        let loaded = version;
        Self { version, loaded, list, pending, bytes, data_bytes, _reading: Some(reading) }
    }

    pub const fn version(&self) -> u64 {
        self.version
    }

    pub const fn mark(&self) -> FilesMark {
        FilesMark { version: self.version, loaded: self.loaded }
    }

    /// Files by day, then in the order of writes.
    pub fn all(&self) -> &[LiveFile] {
        &self.list
    }

    fn sequence_max(&self) -> i64 {
        self.list.iter().map(|f| f.sequence).max().unwrap_or(0).max(self.pending.all.last)
    }

    /// The deletes that perhaps have not been applied to all files yet, and the sequence of the last delete.
    pub fn tombstones(&self) -> &Tombstones {
        &self.pending.all
    }

    /// Files whose samples are all hidden by a delete with a sequence of at most `upto`.
    pub(crate) fn covered(&self, upto: i64) -> impl Iterator<Item = &LiveFile> {
        self.list.iter().filter(move |file| self.is_covered(file, upto))
    }

    /// True if a delete with a sequence of at most `upto` hides all samples of the file.
    pub(crate) fn is_covered(&self, file: &LiveFile, upto: i64) -> bool {
        self.pending.all.list.iter().take_while(|t| t.sequence <= upto).any(|t| t.covers(file))
    }

    /// Says which samples of `file` are hidden by deletes.
    pub(crate) fn mask(&self, file: &LiveFile) -> Option<Arc<Mask>> {
        self.pending.all.mask(file, self.pending.is_rollup)
    }

    pub const fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// A table of one [`Kind`]. Its methods block, as those of [`Location`] do.
#[derive(Debug)]
pub struct Table {
    kind: &'static Kind,
    location: Location,
    engine: DefaultEngine<TokioMultiThreadExecutor>,
    snapshot: Mutex<SnapshotRef>,
    files: Mutex<Option<Arc<Files>>>,
    /// Held from a commit of this process until `files` has it, so that nobody takes it for one of another process.
    committing: Mutex<()>,
    /// The version of the latest of these commits, perhaps in vain.
    committed: AtomicU64,
    /// Floodmarks of one version, cached because lookups may read the log.
    floodmarks: Mutex<Known>,
    checkpointed: AtomicU64,
    /// How many names of sources the snapshot has about. It keeps all of them in memory.
    names: AtomicUsize,
    written_ms: Option<i64>,
    /// Attributes that have columns, or will have once a file is committed whose writer has chosen them.
    attributes: Mutex<AttributeColumns>,
    /// True after a failure to read the log: [`Self::refresh`] opens it anew.
    suspect: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Known {
    version: u64,
    floodmarks: HashMap<String, Option<u64>>,
}

/// Maximum number of cached floodmarks. A rollup has one source for each day.
const KNOWN_MAX: usize = 10_000;

const KNOWN_BYTES: usize = 100;

/// Memory of a source's name, and its floodmark, in a snapshot.
const NAME_BYTES: usize = 200;

/// Floodmarks whose names begin like this are not those of sources. There are few.
const OWN_NAMES: &str = "floodmark/";

/// Memory of a table without its files: schema, and names of recent log files.
const TABLE_BYTES: usize = 32 << 10;

impl Table {
    pub fn open_or_create(kind: &'static Kind, location: Location) -> Result<Self, TableError> {
        Ok(Self::open_with(kind, location, true)?.expect("BUG: a created table cannot be opened"))
    }

    pub fn open(kind: &'static Kind, location: Location) -> Result<Option<Self>, TableError> {
        Self::open_with(kind, location, false)
    }

    fn open_with(kind: &'static Kind, location: Location, create: bool) -> Result<Option<Self>, TableError> {
        let executor = Arc::new(TokioMultiThreadExecutor::new(location.handle().clone()));
        let engine = DefaultEngineBuilder::new(location.finished_files())
            .with_task_executor(executor)
            .with_buffer_size(READ_AHEAD)
            .build();
        let mut listing = Listing::read(&location)?;
        let mut created = None;
        if listing.is_empty() {
            if !create {
                return Ok(None);
            }
            created = log::create(kind, &location, &engine)?;
            if created.is_none() {
                listing = Listing::read(&location)?;
            }
        }
        let names = if created.is_some() { 0 } else { listing.names() };
        let Loaded { snapshot, files, checkpoint } = match created {
            Some(created) => created,
            None => log::load(kind, &location, &engine, &listing)?,
        };
        Ok(Some(Self {
            kind,
            written_ms: listing.written_ms(),
            location,
            engine,
            snapshot: Mutex::new(snapshot),
            files: Mutex::new(Some(Arc::new(files))),
            committing: Mutex::default(),
            committed: AtomicU64::new(0),
            floodmarks: Mutex::default(),
            checkpointed: AtomicU64::new(checkpoint.unwrap_or(0)),
            names: AtomicUsize::new(names),
            attributes: Mutex::default(),
            suspect: Mutex::default(),
        }))
    }

    pub const fn kind(&self) -> &'static Kind {
        self.kind
    }

    pub const fn location(&self) -> &Location {
        &self.location
    }

    pub fn version(&self) -> u64 {
        self.snapshot().version()
    }

    /// Time of the last write to the log before this process opened it, by the store's clock.
    pub const fn written_ms(&self) -> Option<i64> {
        self.written_ms
    }

    /// Latest known checkpoint version, or 0.
    pub fn checkpointed(&self) -> u64 {
        self.checkpointed.load(Ordering::Relaxed)
    }

    /// Looks for newer versions. If the log could not be read before, opens it anew.
    pub fn refresh(&self) -> Result<u64, TableError> {
        let mut suspect = lock(&self.suspect);
        if *suspect {
            let Loaded { snapshot, files, checkpoint } =
                log::load(self.kind, &self.location, &self.engine, &Listing::read(&self.location)?)?;
            *suspect = false;
            self.checkpointed.store(checkpoint.unwrap_or(0), Ordering::Relaxed);
            self.keep_files(files);
            return Ok(self.see(snapshot));
        }
        drop(suspect);
        let seen = self.version();
        let newer =
            Snapshot::builder_from(self.snapshot()).with_incremental_crc_replay(IncrementalReplay::Unlimited);
        let newer = self.reading(|| newer.build(&self.engine))?;
        if newer.version() > seen {
            let listing = Listing::after(&self.location, seen)?;
            let is_there = |c: &Checkpoint<'_>| c.files.iter().all(|file| file.bytes > 0);
            let checkpoint = listing.checkpoints().find(is_there).map(|c| c.version);
            if let Some(gap) = listing.gap(checkpoint.max(Some(seen))) {
                return Err(failure::damaged(&self.location, gap.to_string()));
            }
            self.checkpointed.fetch_max(checkpoint.unwrap_or(0), Ordering::Relaxed);
        }
        columns::check(self.kind, &newer).map_err(|reason| failure::foreign(&self.location, reason))?;
        Ok(self.see(newer))
    }

    /// Runs `read`, in which the Delta library reads the log. If that fails, the table becomes suspect.
    fn reading<T>(&self, read: impl FnOnce() -> KernelResult<T>) -> Result<T, TableError> {
        self.noting(failure::guarded(&self.location, || read().map_err(|e| failure::of(&self.location, e))))
    }

    /// Marks the table as suspect if the log could not be read.
    fn noting<T>(&self, done: Result<T, TableError>) -> Result<T, TableError> {
        if matches!(done, Err(TableError::Log { .. })) {
            *lock(&self.suspect) = true;
        }
        done
    }

    /// Converts an error of the Delta library. If the log could not be read, the table becomes suspect.
    fn failed(&self, error: KernelError) -> TableError {
        let error = failure::of(&self.location, error);
        self.noting(Err::<(), _>(error)).expect_err("BUG: an error was converted to a success")
    }

    fn snapshot(&self) -> SnapshotRef {
        Arc::clone(&lock(&self.snapshot))
    }

    /// Replaces the known snapshot if `snapshot` is newer. Returns the version known now.
    fn see(&self, snapshot: SnapshotRef) -> u64 {
        let mut known = lock(&self.snapshot);
        if snapshot.version() >= known.version() {
            *known = snapshot;
        }
        known.version()
    }

    /// Floodmarks of the sources in the latest version seen. Sources without a floodmark are left out.
    pub fn floodmarks<'a>(
        &self,
        sources: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, u64>, TableError> {
        let snapshot = self.snapshot();
        let mut floodmarks = BTreeMap::new();
        for source in sources {
            if let Some(offset) = self.floodmark(&snapshot, source)? {
                floodmarks.insert(source.into(), offset);
            }
        }
        Ok(floodmarks)
    }

    fn floodmark(&self, snapshot: &SnapshotRef, source: &str) -> Result<Option<u64>, TableError> {
        {
            let known = lock(&self.floodmarks);
            if known.version == snapshot.version()
                && let Some(floodmark) = known.floodmarks.get(source)
            {
                return Ok(*floodmark);
            }
        }
        let version = self.reading(|| snapshot.get_app_id_version(source, &self.engine))?;
        let offset = version.map(u64::try_from).transpose();
        let negative = |_| failure::foreign(&self.location, format!("the floodmark of {source} is negative"));
        let offset = offset.map_err(negative)?;
        self.keep_floodmark(snapshot.version(), source, offset);
        Ok(offset)
    }

    /// Keeps the floodmark cache valid after a commit of ours: the new version has the same floodmarks as the one
    /// before, except for those in `moved`.
    fn carry_floodmarks(&self, version: u64, moved: &BTreeMap<String, u64>) {
        let mut known = lock(&self.floodmarks);
        let is_new = |name: &&String| {
            !name.starts_with(OWN_NAMES) && !matches!(known.floodmarks.get(*name), Some(Some(_)))
        };
        self.names.fetch_add(moved.keys().filter(is_new).count(), Ordering::Relaxed);
        if known.version + 1 == version && known.floodmarks.len() + moved.len() <= KNOWN_MAX {
            known.version = version;
        }
        if known.version == version {
            known
                .floodmarks
                .extend(moved.iter().map(|(source, floodmark)| (source.clone(), Some(*floodmark))));
        }
    }

    fn keep_floodmark(&self, version: u64, source: &str, floodmark: Option<u64>) {
        let mut known = lock(&self.floodmarks);
        if known.version < version || known.floodmarks.len() >= KNOWN_MAX {
            *known = Known { version, ..Known::default() };
        }
        if known.version == version {
            known.floodmarks.insert(source.into(), floodmark);
        }
    }

    /// Live files of the latest version seen.
    pub fn files(&self) -> Result<Arc<Files>, TableError> {
        self.files_at(&self.snapshot())
    }

    /// Live files of the latest version seen, and the progress of some sources in the same version.
    pub fn files_and_progress(&self, sources: &[String]) -> Result<(Arc<Files>, Vec<Floodmark>), TableError> {
        let snapshot = self.snapshot();
        let progress = sources.iter().map(|source| Ok(self.read_progress(&snapshot, source)?.floodmark));
        let progress = progress.collect::<Result<Vec<_>, TableError>>()?;
        Ok((self.files_at(&snapshot)?, progress))
    }

    fn files_at(&self, snapshot: &SnapshotRef) -> Result<Arc<Files>, TableError> {
        let kept = || lock(&self.files).as_ref().filter(|f| f.version == snapshot.version()).map(Arc::clone);
        if let Some(files) = kept() {
            return Ok(files);
        }
        if self.committed.load(Ordering::SeqCst) == snapshot.version() {
            drop(lock(&self.committing)); // waits until the list is there
        }
        if let Some(files) = kept() {
            return Ok(files);
        }
        let known = lock(&self.files).as_ref().map(|files| files.pending.clone());
        let floodmark = |source: &str| self.floodmark(snapshot, source);
        let mut pending = self.noting(pending_deletes::load(&self.location, floodmark, known.as_ref()))?;
        pending.is_rollup = self.kind.name == ROLLUP.name;
        let files =
            self.noting(commit::live_files(self.kind, &self.location, &self.engine, snapshot, pending))?;
        Ok(self.keep_files(files))
    }

    fn keep_files(&self, files: Files) -> Arc<Files> {
        let files = Arc::new(files);
        let mut kept = lock(&self.files);
        // of two lists of one version, the one that was loaded earlier knows more of what this process has done
        let place = |files: &Files| (files.version, Reverse(files.loaded));
        match &*kept {
            Some(kept) if place(kept) >= place(&files) && kept.version == files.version => Arc::clone(kept),
            Some(kept) if kept.version > files.version => files,
            _ => Arc::clone(kept.insert(files)),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        let files = lock(&self.files).as_ref().map_or(0, |files| files.memory_bytes());
        let names = NAME_BYTES * self.names.load(Ordering::Relaxed);
        TABLE_BYTES + files + names + KNOWN_BYTES * lock(&self.floodmarks).floodmarks.len()
    }

    /// Columns of attributes in the latest version seen.
    pub fn attributes(&self) -> AttributeColumns {
        columns::attributes(self.kind, &self.snapshot())
    }

    /// Adds columns for frequent attributes of `records` records that are about to be staged. Returns all columns. All
    /// writers of this process get the same ones, although the table has the new ones only after a commit.
    pub(crate) fn choose_attributes(&self, seen: &[Seen<'_>], records: u64) -> AttributeColumns {
        let mut columns = self.attributes();
        let mut chosen = lock(&self.attributes);
        // a choice that contradicts another process's commit is given up
        chosen.list().iter().for_each(|column| _ = columns.add(column));
        columns.choose(seen, records);
        *chosen = columns.clone();
        columns
    }

    /// Bytes of the live files, as of the last time they were listed. Does no I/O.
    pub fn data_bytes(&self) -> u64 {
        lock(&self.files).as_ref().map_or(0, |files| files.data_bytes)
    }

    pub fn file(&self, file: &LiveFile) -> Result<StoredFile, TableError> {
        self.location.object(&file.path, file.bytes)
    }

    /// Begins a new file of a day. `number` must be new for the stem. A [`Sweeper`] deletes an uncommitted file after a
    /// grace period; the commit then fails with [`TableError::Lapsed`]. Writers that take longer need a [`Lease`].
    pub fn upload(&self, date: Date, stem: &FileStem, number: u32) -> Result<Upload, TableError> {
        self.upload_as(date, stem, number, self.staging())
    }

    fn upload_as(
        &self,
        date: Date,
        stem: &FileStem,
        number: u32,
        staging: Staging,
    ) -> Result<Upload, TableError> {
        Upload::new(&self.location, format!("{}={date}/{}", DATE, stem.file(number)), staging)
    }

    fn staging(&self) -> Staging {
        Staging { since: self.version(), lease: None }
    }

    /// Finishes an upload that [`Table::upload`] began, and returns the file for a commit.
    pub fn staged(&self, summary: FileSummary, upload: Upload) -> Result<StagedFile, TableError> {
        let (path, staging) = (upload.path().to_string(), upload.staging().clone());
        let len = upload.finish()?;
        assert_eq!(summary.bytes, len, "BUG: the summary is of another file");
        Ok(StagedFile { path, summary, staging })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
