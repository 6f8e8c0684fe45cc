//! Changes of a table. Each is one log entry, put only if no other writer was first.

use super::floodmark::{Floodmark, Read};
use super::pending_deletes::PendingDeletes;
use super::sweep::SWEPT;
use super::{ENGINE_INFO, Files, StagedBlock, StagedFile, Table, actions, columns, failure, lock};
use crate::date::Date;
use crate::error::TableError;
use crate::kind::attributes::{AttributeColumn, AttributeColumns};
use crate::kind::{Kind, MergePolicy};
use crate::live_file::{LiveFile, Rank};
use crate::store::Location;
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::snapshot::SnapshotRef;
use delta_kernel::transaction::{CommitResult, Transaction, UpdateTableOperation};
use delta_kernel::{Engine, FilteredEngineData};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of files in a log entry. Large entries are slow to write and replay.
pub const COMMIT_FILES_MAX: usize = 1000;

/// Maximum attempts of a commit. A conflict means that another writer made progress.
const ATTEMPTS_MAX: usize = 100;

/// A commit gives up after this many answers that do not say whether the entry was put.
const UNCLEAR_MAX: usize = 3;

/// Name under which the log stores the time before which samples may have expired, as if it were a source's floodmark.
const EXPIRED: &str = "floodmark/expired";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This call committed the block.
    Committed { version: u64 },
    /// The table already has the data, perhaps from an attempt whose answer was lost. The list of live files shows
    /// whether these files are live.
    Already {
        /// The table's floodmark, at or after the block's end.
        floodmark: u64,
    },
    /// The table's floodmark does not fit the block: a commit would leave a gap or duplicates. Seal again from the
    /// table's floodmark.
    FloodmarkMismatch { floodmark: Option<u64> },
}

/// The steps of a source, compared with those that a block expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    Expected,
    /// Those after the block was committed.
    Made,
    Others,
}

impl Steps {
    fn of(found: &Floodmark, expected: &Floodmark, block: &StagedBlock) -> Self {
        let made = block.through.map(|through| expected.after_pass(block.upto, through));
        match found {
            found if found == expected => Self::Expected,
            found if Some(found) == made.as_ref() => Self::Made,
            _ => Self::Others,
        }
    }
}

pub(super) struct Change<'a> {
    operation: UpdateTableOperation,
    data_change: bool,
    removed: &'a [LiveFile],
    added: Vec<(&'a StagedFile, i64)>,
    /// The added files get at least this sequence.
    next_from_ms: Option<i64>,
    floodmarks: BTreeMap<String, u64>,
    pending: Option<PendingDeletes>,
}

impl<'a> Change<'a> {
    const fn none() -> Self {
        Self {
            operation: UpdateTableOperation::Write,
            data_change: false,
            removed: &[],
            added: Vec::new(),
            next_from_ms: None,
            floodmarks: BTreeMap::new(),
            pending: None,
        }
    }

    /// Replaces the list of pending deletes, and moves the `floodmarks` that refer to it.
    pub(super) const fn of_tombstones(floodmarks: BTreeMap<String, u64>, pending: PendingDeletes) -> Self {
        Self {
            operation: UpdateTableOperation::Write,
            data_change: false,
            removed: &[],
            added: Vec::new(),
            next_from_ms: None,
            floodmarks,
            pending: Some(pending),
        }
    }

    /// Removes files together with their samples, because the samples have expired or were deleted.
    pub(super) fn of_removal(removed: &'a [LiveFile]) -> Self {
        Self { operation: UpdateTableOperation::Delete, data_change: true, removed, ..Change::none() }
    }
}

impl Table {
    /// Commits blocks, each exactly once, several in one log entry if possible. Blocks of a source must come in order:
    /// of two samples with the same series and time, the one in the later block wins. After an error, call again:
    /// blocks may or may not be committed.
    ///
    /// If an earlier block of a source was interrupted between two passes, samples may be committed twice, which merges
    /// repair. Rows of records would stay double, so a table of records commits a block only if no block was
    /// interrupted. [`Self::commit_pass`] commits the others.
    ///
    /// `now_ms` is informative: correctness does not depend on it.
    pub fn commit(&self, blocks: &[StagedBlock], now_ms: i64) -> Result<Vec<Outcome>, TableError> {
        self.commit_from(blocks, None, now_ms)
    }

    /// Like [`Self::commit`], for a block that was staged after the source had made this `progress`, as
    /// [`Self::progress`] says. If the source's floodmark or any of its steps has moved since then, the outcome is
    /// [`Outcome::FloodmarkMismatch`], because the block may have rows that the table has already. After a pass, the
    /// progress is [`Floodmark::after_pass`].
    pub fn commit_pass(
        &self,
        block: &StagedBlock,
        progress: &Floodmark,
        now_ms: i64,
    ) -> Result<Outcome, TableError> {
        let outcomes = self.commit_from(std::slice::from_ref(block), Some(progress), now_ms)?;
        Ok(outcomes.into_iter().next().expect("BUG: a block has no outcome"))
    }

    fn commit_from(
        &self,
        blocks: &[StagedBlock],
        progress: Option<&Floodmark>,
        now_ms: i64,
    ) -> Result<Vec<Outcome>, TableError> {
        if let Some(block) = blocks.iter().find(|b| b.files.len() > COMMIT_FILES_MAX) {
            return Err(TableError::TooManyFiles { files: block.files.len(), max: COMMIT_FILES_MAX });
        }
        let mut outcomes = vec![None; blocks.len()];
        let mut unclear = 0;
        for _ in 0..ATTEMPTS_MAX + blocks.len() {
            let snapshot = self.snapshot();
            let (chosen, floodmarks) = self.choose(&snapshot, blocks, progress, &mut outcomes)?;
            if chosen.is_empty() {
                return Ok(outcomes.into_iter().flatten().collect());
            }
            match self.try_blocks(&snapshot, blocks, &chosen, floodmarks, now_ms) {
                Ok(Some(version)) => {
                    chosen.iter().for_each(|i| outcomes[*i] = Some(Outcome::Committed { version }));
                }
                Ok(None) => {
                    self.refresh()?;
                }
                Err(
                    error @ (TableError::Lapsed { .. }
                    | TableError::Outdated { .. }
                    | TableError::NotExclusive { .. }),
                ) => {
                    return Err(error);
                }
                Err(error) => {
                    unclear += 1;
                    if unclear > UNCLEAR_MAX {
                        return Err(error);
                    }
                    self.refresh()?;
                }
            }
        }
        Err(TableError::Contended { attempts: ATTEMPTS_MAX })
    }

    /// Chooses the blocks of the next commit and the floodmarks that it moves. Sets the outcomes of blocks that need no
    /// commit.
    fn choose(
        &self,
        snapshot: &SnapshotRef,
        blocks: &[StagedBlock],
        progress: Option<&Floodmark>,
        outcomes: &mut [Option<Outcome>],
    ) -> Result<(Vec<usize>, BTreeMap<String, u64>), TableError> {
        let mut known: HashMap<&str, Option<u64>> = HashMap::new();
        let mut passes: HashMap<&str, Read> = HashMap::new();
        let (mut chosen, mut files, mut moved) = (Vec::new(), 0, BTreeMap::new());
        let mut columns = Columns::of(self, snapshot);
        // rows that are not merged must not be committed twice
        let is_strict = progress.is_some() || self.kind.merge == MergePolicy::Disjoint;
        for (i, block) in blocks.iter().enumerate() {
            if outcomes[i].is_some() {
                continue;
            }
            let source = block.source.as_str();
            let floodmark = match known.get(source) {
                Some(floodmark) => *floodmark,
                None => self.floodmark(snapshot, source)?,
            };
            known.insert(source, floodmark);
            // samples need the source's steps only if the block is committed in passes
            if (is_strict || block.through.is_some()) && !passes.contains_key(source) {
                passes.insert(source, self.read_progress(snapshot, source)?);
            }
            let mut read = passes.get_mut(source);
            let state = match &read {
                Some(read) if is_strict => {
                    let first = Floodmark::at(block.after.unwrap_or(0));
                    Steps::of(read.floodmark(), progress.unwrap_or(&first), block)
                }
                Some(read) if block.through.is_some_and(|through| read.has(block.upto, through)) => {
                    Steps::Made
                }
                _ => Steps::Expected,
            };
            match floodmark {
                Some(floodmark) if floodmark >= block.upto => {
                    outcomes[i] = Some(Outcome::Already { floodmark });
                }
                floodmark if floodmark != block.after => {
                    outcomes[i] = Some(Outcome::FloodmarkMismatch { floodmark })
                }
                _ if state == Steps::Made => outcomes[i] = Some(Outcome::Already { floodmark: block.upto }),
                floodmark if state == Steps::Others => {
                    outcomes[i] = Some(Outcome::FloodmarkMismatch { floodmark });
                }
                _ => {
                    files += block.files.len();
                    if files > COMMIT_FILES_MAX {
                        break;
                    }
                    match columns.add(&block.files) {
                        // the blocks before this one are committed first
                        Err(_) if !chosen.is_empty() => break,
                        added => added?,
                    }
                    match block.through {
                        Some(through) => {
                            let read = read.as_mut().expect("BUG: the steps of a pass are unknown");
                            read.step(source, block.upto, through, &mut moved);
                        }
                        None => {
                            if let Some(read) = &mut read {
                                read.complete(block.upto);
                            }
                            known.insert(source, Some(block.upto));
                            moved.insert(source.into(), block.upto);
                        }
                    }
                    chosen.push(i);
                }
            }
        }
        Ok((chosen, moved))
    }

    fn try_blocks(
        &self,
        snapshot: &SnapshotRef,
        blocks: &[StagedBlock],
        chosen: &[usize],
        floodmarks: BTreeMap<String, u64>,
        now_ms: i64,
    ) -> Result<Option<u64>, TableError> {
        let files = self.files_at(snapshot)?;
        let first = files.sequence_max().saturating_add(1).max(now_ms);
        let chosen = || chosen.iter().map(|i| &blocks[*i]);
        let added = (first..).zip(chosen()).flat_map(|(n, block)| block.files.iter().map(move |f| (f, n)));
        let change = Change { data_change: true, added: added.collect(), floodmarks, ..Change::none() };
        self.try_change(snapshot, &files, &change)
    }

    /// Tries to put the change as the next log entry. Returns the new version, or `None` if another writer was first.
    pub(super) fn try_change(
        &self,
        snapshot: &SnapshotRef,
        files: &Files,
        change: &Change<'_>,
    ) -> Result<Option<u64>, TableError> {
        self.location.check_exclusive()?;
        self.check_staged(snapshot, change.added.iter().map(|(file, _)| *file))?;
        let error = |e| self.failed(e);
        let mut builder =
            Arc::clone(snapshot).update_table(change.operation.clone(), ENGINE_INFO, change.data_change);
        if !change.added.is_empty() {
            // files of a newer format add its columns
            builder = columns::missing(self.kind, snapshot).into_iter().fold(builder, |b, f| b.add_column(f));
            let mut columns = Columns::of(self, snapshot);
            columns.add(change.added.iter().map(|(file, _)| *file))?;
            builder = columns.added().iter().fold(builder, |b, c| b.add_column(columns::attribute_field(c)));
        }
        let mut transaction: Transaction =
            builder.build(&self.engine, Box::new(FileSystemCommitter::new())).map_err(error)?;
        for (source, offset) in &change.floodmarks {
            let offset = i64::try_from(*offset).expect("BUG: an offset is 2^63 or greater");
            transaction = transaction.with_transaction_id(source.clone(), offset);
        }
        if !change.removed.is_empty() {
            let removed: HashSet<&str> = change.removed.iter().map(|f| f.path.as_str()).collect();
            let read = each_live(&self.location, &self.engine, snapshot, |batch| {
                let (batch, files) = actions::only(batch, &removed).map_err(error)?;
                if files > 0 {
                    transaction.remove_files(batch);
                }
                Ok(())
            });
            self.noting(read)?;
        }
        if !change.added.is_empty() {
            transaction.add_files(actions::add_files(self.kind, &change.added).map_err(error)?);
        }
        let _committing = lock(&self.committing);
        self.committed.store(snapshot.version() + 1, Ordering::SeqCst);
        let done = match transaction.commit(&self.engine).map_err(error)? {
            CommitResult::Committed(done) => done,
            CommitResult::Conflicted(_) => return Ok(None),
            CommitResult::Retryable(again) => return Err(error(again.error)),
        };
        let version = done.commit_version();
        match done.post_commit_snapshot() {
            Some(snapshot) => self.see(Arc::clone(snapshot)),
            None => self.refresh()?,
        };
        if version == files.version() + 1 {
            self.keep_files(changed(&self.location, files, version, change));
            self.carry_floodmarks(version, &change.floodmarks);
        }
        Ok(Some(version))
    }

    /// Replaces live files with others that hold the same samples. The new files take the last removed file's position
    /// in the order of writes. Returns `false` without a change if any of `removed` is no longer live.
    pub fn replace(&self, removed: &[LiveFile], added: &[StagedFile]) -> Result<bool, TableError> {
        self.rewrite(removed, added, false)
    }

    /// Like [`Self::replace`]. If `deletes` is true, the new files may lack samples that tombstones delete.
    pub(crate) fn rewrite(
        &self,
        removed: &[LiveFile],
        added: &[StagedFile],
        deletes: bool,
    ) -> Result<bool, TableError> {
        let last = removed.iter().map(LiveFile::rank).max();
        let sequence = last.map_or(0, Rank::sequence);
        let is_in_place = |file: &StagedFile| Some(LiveFile::staged(file, sequence).rank()) == last;
        assert!(
            last.is_none() || added.iter().all(is_in_place),
            "BUG: a written file has another rank than the last of the files that were merged"
        );
        let change = Change {
            operation: if deletes { UpdateTableOperation::Delete } else { UpdateTableOperation::Optimize },
            data_change: deletes,
            removed,
            added: added.iter().map(|file| (file, sequence)).collect(),
            ..Change::none()
        };
        self.change(change, None)
    }

    /// Replaces live files with a block's files, and moves its source's floodmark from `after` to `upto`. Returns
    /// `false` without a change if the floodmark is not at `after`.
    pub fn renew(&self, removed: &[LiveFile], block: &StagedBlock, now_ms: i64) -> Result<bool, TableError> {
        let change = Change {
            data_change: true,
            removed,
            added: block.files.iter().map(|file| (file, 0)).collect(),
            next_from_ms: Some(now_ms),
            floodmarks: BTreeMap::from([(block.source.clone(), block.upto)]),
            ..Change::none()
        };
        self.change(change, Some(block.after))
    }

    /// Removes at most [`COMMIT_FILES_MAX`] files whose samples are all older than `before_ms`, and notes this time
    /// ([`Self::expired_before_ms`]). Returns the number of files; call again until it is 0. Returns 0 also if another
    /// process has removed one of these files meanwhile.
    pub fn expire(&self, before_ms: i64) -> Result<usize, TableError> {
        let files = self.files()?;
        let old = files.all().iter().filter(|f| f.is_before(before_ms));
        let old: Vec<_> = old.take(COMMIT_FILES_MAX).cloned().collect();
        if old.is_empty() {
            return Ok(0);
        }
        let known = self.floodmark(&self.snapshot(), EXPIRED)?;
        let expired = u64::try_from(before_ms).unwrap_or(0).max(known.unwrap_or(0));
        let floodmarks = BTreeMap::from([(EXPIRED.into(), expired)]);
        let change = Change { floodmarks, ..Change::of_removal(&old) };
        Ok(if self.change(change, Some(known))? { old.len() } else { 0 })
    }

    /// Samples before this time may have expired, in the latest version seen. It never decreases, even if a longer
    /// retention applies later. `None` if none have expired.
    pub fn expired_before_ms(&self) -> Result<Option<i64>, TableError> {
        let expired = self.floodmark(&self.snapshot(), EXPIRED)?;
        Ok(expired.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// Puts an empty log entry, so that late commits of dead processes fail and floodmarks read afterwards are final.
    /// Local file systems have no late writes and need no fence.
    pub fn fence(&self) -> Result<(), TableError> {
        self.refresh()?;
        if self.location.is_local() {
            return Ok(());
        }
        self.change(Change::none(), None).map(|_| ())
    }

    /// Puts the log entry that must precede the deletions of a sweep; see [`super::sweep`].
    pub(super) fn note_sweep(&self) -> Result<(), TableError> {
        for _ in 0..ATTEMPTS_MAX {
            let snapshot = self.snapshot();
            let floodmarks = BTreeMap::from([(SWEPT.into(), snapshot.version() + 1)]);
            let change = Change { floodmarks, ..Change::none() };
            if self.try_change(&snapshot, &*self.files_at(&snapshot)?, &change)?.is_some() {
                return Ok(());
            }
            self.refresh()?;
        }
        Err(TableError::Contended { attempts: ATTEMPTS_MAX })
    }

    pub(super) fn change(
        &self,
        mut change: Change<'_>,
        after: Option<Option<u64>>,
    ) -> Result<bool, TableError> {
        let files = change.removed.len().max(change.added.len());
        if files > COMMIT_FILES_MAX {
            return Err(TableError::TooManyFiles { files, max: COMMIT_FILES_MAX });
        }
        for _ in 0..ATTEMPTS_MAX {
            let snapshot = self.snapshot();
            let files = self.files_at(&snapshot)?;
            let live: HashSet<&str> = files.all().iter().map(|f| f.path.as_str()).collect();
            if !change.removed.iter().all(|f| live.contains(f.path.as_str())) {
                return Ok(false);
            }
            if let Some(after) = after {
                let source = change.floodmarks.keys().next().expect("BUG: the change moves no floodmark");
                if self.floodmark(&snapshot, source)? != after {
                    return Ok(false);
                }
            }
            if let Some(now_ms) = change.next_from_ms {
                let next = files.sequence_max().saturating_add(1).max(now_ms);
                change.added.iter_mut().for_each(|(_, sequence)| *sequence = next);
            }
            if self.try_change(&snapshot, &files, &change)?.is_some() {
                return Ok(true);
            }
            self.refresh()?;
        }
        Err(TableError::Contended { attempts: ATTEMPTS_MAX })
    }

    pub fn dates(&self) -> Result<Vec<Date>, TableError> {
        let mut dates: Vec<_> = self.files()?.all().iter().map(|f| f.date).collect();
        dates.dedup();
        Ok(dates)
    }
}

/// Columns of attributes that the table has after a commit.
struct Columns<'a> {
    table: &'a Table,
    snapshot: &'a SnapshotRef,
    /// The columns, and how many of them the table had before. `None` until there are any in a staged file.
    columns: Option<(AttributeColumns, usize)>,
}

impl<'a> Columns<'a> {
    const fn of(table: &'a Table, snapshot: &'a SnapshotRef) -> Self {
        Self { table, snapshot, columns: None }
    }

    fn add<'f>(&mut self, files: impl IntoIterator<Item = &'f StagedFile>) -> Result<(), TableError> {
        for file in files.into_iter().filter(|file| !file.summary.attributes.is_empty()) {
            let (columns, _) = self.columns.get_or_insert_with(|| {
                let columns = columns::attributes(self.table.kind, self.snapshot);
                let known = columns.list().len();
                (columns, known)
            });
            if let Some(bad) = file.summary.attributes.iter().find(|column| !columns.add(column)) {
                return Err(TableError::Outdated { file: file.path.clone(), column: bad.name.to_string() });
            }
        }
        Ok(())
    }

    fn added(&self) -> &[AttributeColumn] {
        self.columns.as_ref().map_or(&[], |(columns, known)| &columns.list()[*known..])
    }
}

fn changed(location: &Location, files: &Files, version: u64, change: &Change<'_>) -> Files {
    let removed: HashSet<&str> = change.removed.iter().map(|f| f.path.as_str()).collect();
    let kept = files.all().iter().filter(|f| !removed.contains(f.path.as_str())).cloned();
    let added = change.added.iter().map(|(file, sequence)| LiveFile::staged(file, *sequence));
    let pending = change.pending.clone().unwrap_or_else(|| files.pending.clone());
    Files { loaded: files.loaded, ..Files::new(location, version, kept.chain(added).collect(), pending) }
}

pub(super) fn live_files(
    kind: &Kind,
    location: &Location,
    engine: &dyn Engine,
    snapshot: &SnapshotRef,
    pending: PendingDeletes,
) -> Result<Files, TableError> {
    let mut list = Vec::new();
    each_live(location, engine, snapshot, |batch| actions::live_files(kind, location, &batch, &mut list))?;
    Ok(Files::new(location, snapshot.version(), list, pending))
}

/// Passes the live files to `each` in the batches in which the Delta library returns them.
fn each_live(
    location: &Location,
    engine: &dyn Engine,
    snapshot: &SnapshotRef,
    mut each: impl FnMut(FilteredEngineData) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let error = |e| failure::of(location, e);
    failure::guarded(location, || {
        let scan = Arc::clone(snapshot).scan_builder().build().map_err(error)?;
        for batch in scan.scan_metadata(engine).map_err(error)? {
            each(batch.map_err(error)?.scan_files)?;
        }
        Ok(())
    })
}
