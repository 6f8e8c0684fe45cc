//! The thread that writes batches into tables.
//!
//! A stream is loaded when its oldest batch has waited for the freshness target, when it has enough bytes for a large file, or
//! when memory runs short. A load takes whatever has arrived until then, so if commits take long, files grow, and nothing
//! piles up.

use super::batch::ROW_BYTES;
use super::buffer::{Due, Durable, Key};
use super::owner::Command;
use super::quarantine::NotCopied;
use super::upkeep::StreamUpkeep;
use super::{JournalFacts, Shared};
use crate::seal::Lake;
use journal::{Offset, records};
use model::caps::TIMESTAMP_MS_MAX;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use stdx::budget::Reservation;
use stdx::clock::Clock;
use tables::delta::Floodmark;
use tables::write::records::{RecordBatch, RecordsStager};
use tables::write::stage::Staged;
use tables::{Date, FileStem, Outcome, RecordLimits, StagedBlock, Table, TableError};

/// The loader looks this often which streams are due.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After a failure, a stream is not loaded for this long, and then for twice as long each time.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The journal is truncated this often, if streams were loaded.
const TRUNCATE_EVERY: Duration = Duration::from_secs(10);

/// A stream with this many bytes in the buffer, which are compressed, makes files that are large enough.
const LOAD_BYTES: u64 = 32 << 20;

/// A block has at most as many bytes as this number of the stager's buffers, so that other streams have their turn.
const BLOCK_BUFFERS: usize = 16;

const TIME_US_MAX: i64 = TIMESTAMP_MS_MAX * 1000 + 999;

#[derive(Debug)]
pub(crate) struct Loader {
    shared: Arc<Shared>,
    commands: SyncSender<Command>,
    lake: Arc<Lake>,
    clock: Arc<dyn Clock>,
    stopping: Arc<AtomicBool>,
    due: Due,
    limits: RecordLimits,
    failures: HashMap<Key, Failure>,
    /// When the journal was truncated, and whether streams were loaded since then.
    truncated: (Instant, bool),
    upkeep: StreamUpkeep,
}

#[derive(Debug)]
struct Failure {
    until: Instant,
    wait: Duration,
}

#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(
        "the table has got data of these batches meanwhile (floodmark {floodmark:?}), perhaps from an earlier attempt"
    )]
    Floodmark { floodmark: Option<u64> },
    #[error(transparent)]
    Quarantine(#[from] NotCopied),
    #[error("cannot note how far the journal is written: {0}")]
    Mark(std::io::Error),
}

/// Batches of a stream that become rows together.
struct Block {
    /// What the table calls these batches.
    source: String,
    /// The table's floodmark, and what it has beyond.
    after: Option<u64>,
    progress: Floodmark,
    upto: u64,
    batches: Vec<Arc<Durable>>,
    /// Last day whose rows the table has already, if an earlier load of the same block was interrupted.
    through: Option<Date>,
    /// Offsets of batches that cannot be decoded, which are left out.
    undecodable: BTreeSet<Offset>,
}

impl Loader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: SyncSender<Command>,
        lake: Arc<Lake>,
        clock: Arc<dyn Clock>,
        stopping: Arc<AtomicBool>,
        freshness: Duration,
        grace_ms: i64,
    ) -> Self {
        let (account, bytes) = (&shared.records, work_bytes(&shared));
        let row_group_bytes = (bytes as usize / 12).clamp(128 << 10, 8 << 20);
        let limits = RecordLimits { buffer_bytes: bytes as usize / 2, row_group_bytes };
        let due = Due {
            after: freshness,
            bytes: LOAD_BYTES.min(account.limit_bytes() / 4),
            total_bytes: account.limit_bytes() / 2,
        };
        let truncated = (clock.instant(), false);
        let upkeep = StreamUpkeep::new(&*clock, bytes, grace_ms);
        Self {
            shared,
            commands,
            lake,
            clock,
            stopping,
            due,
            limits,
            failures: HashMap::new(),
            upkeep,
            truncated,
        }
    }

    pub(crate) fn run(mut self) {
        while !self.stopping.load(Ordering::Acquire) {
            let loaded = self.load_next();
            self.truncate();
            if !loaded && !self.keep_up() {
                std::thread::park_timeout(LOOK_EVERY);
            }
        }
    }

    /// Reserves the memory for one piece of work. Open tables have the rest of the account.
    fn reserve(&self) -> Reservation {
        let bytes = work_bytes(&self.shared);
        self.shared.loading.reserve(bytes).expect("BUG: the loader does two things at a time")
    }

    /// Loads one stream that is due. Returns false if there is none.
    pub(crate) fn load_next(&mut self) -> bool {
        let now = self.clock.instant();
        let Some(key) = self.shared.buffer.due(self.due, now, |key| may_load(&self.failures, key, now))
        else {
            return false;
        };
        self.load(&key);
        true
    }

    /// Does the upkeep of one table. Returns false if no upkeep is due.
    fn keep_up(&mut self) -> bool {
        let Some(key) = self.upkeep.due(self.clock.instant()) else { return false };
        let _memory = self.reserve();
        let Self { shared, lake, clock, stopping, due, upkeep, failures, .. } = self;
        let go_on = || {
            let now = clock.instant();
            let is_due = shared.buffer.due(*due, now, |key| may_load(failures, key, now)).is_some();
            !is_due && !stopping.load(Ordering::Acquire)
        };
        let kept_up = shared
            .tables
            .open_or_create(&lake.tables, &key)
            .and_then(|table| upkeep.run(&key, &table, lake, &**clock, go_on));
        if let Err(error) = kept_up {
            shared.metrics.upkeep_failures.inc();
            let (tenant, stream) = &key;
            tracing::warn!(%tenant, %stream, %error, "upkeep of a stream's table failed; it is tried again after the next load");
        }
        true
    }

    /// Loads all batches that the buffer has of a stream now.
    fn load(&mut self, key: &Key) {
        match self.try_load(key) {
            Ok(()) => {
                self.failures.remove(key);
                self.shared.tables.close_some();
                self.upkeep.loaded(key, self.clock.instant());
                self.truncated.1 = true;
            }
            Err(error) => {
                let now = self.clock.instant();
                let before = self.failures.get(key).map(|failure| failure.wait);
                let wait = before.map_or(RETRY_AFTER, |wait| (2 * wait).min(RETRY_AFTER_MAX));
                self.failures.insert(key.clone(), Failure { until: now + wait, wait });
                self.shared.metrics.load_failures.inc();
                let (tenant, stream) = key;
                tracing::warn!(%tenant, %stream, %error, retry_after = ?wait, "cannot load records into their table");
            }
        }
    }

    fn try_load(&mut self, key: &Key) -> Result<(), LoadError> {
        let Some(journal) = self.shared.journal.get() else { return Ok(()) };
        let _memory = self.reserve();
        let table = self.shared.tables.open_or_create(&self.lake.tables, key)?;
        if self.failures.contains_key(key) {
            // perhaps the answer to a commit was lost
            table.refresh()?;
        }
        let Some(mut block) = self.block(key, &table, journal)? else { return Ok(()) };
        loop {
            let staged = self.stage(&table, &mut block, journal)?;
            journal.mark.lock().raise(Offset(block.upto)).map_err(LoadError::Mark)?;
            let files = &staged.files;
            let (count, bytes) = (files.len() as u64, files.iter().map(|file| file.summary.bytes).sum());
            let rows = files.iter().map(|file| file.summary.rows).sum();
            let pass = StagedBlock {
                source: block.source.clone(),
                after: block.after,
                upto: block.upto,
                through: staged.through,
                files: staged.files,
            };
            let began = self.clock.instant();
            let outcome = table.commit_pass(&pass, &block.progress, self.clock.now_ms())?;
            let took = self.clock.instant().saturating_duration_since(began);
            self.shared.metrics.commit_seconds.observe(took.as_secs_f64());
            match outcome {
                Outcome::FloodmarkMismatch { floodmark } => return Err(LoadError::Floodmark { floodmark }),
                Outcome::Already { .. } => {}
                Outcome::Committed { .. } => {
                    self.shared.metrics.loaded_records.add(rows);
                    self.shared.metrics.loaded_files.add(count);
                    self.shared.metrics.loaded_bytes.add(bytes);
                }
            }
            block.through = staged.through;
            let Some(through) = block.through else { break };
            block.progress = block.progress.after_pass(block.upto, through);
            if self.stopping.load(Ordering::Acquire) {
                return Ok(()); // the table notes how far this went
            }
        }
        let upto = Offset(block.upto);
        drop(block);
        self.shared.buffer.release(key, upto);
        Ok(())
    }

    /// What the table of a stream needs next. `None` if it has everything.
    fn block(&self, key: &Key, table: &Table, journal: &JournalFacts) -> Result<Option<Block>, LoadError> {
        loop {
            let Some(first) = self.shared.buffer.first_of(key) else { return Ok(None) };
            let (begin, source) = {
                let mark = journal.mark.lock();
                (mark.names_begin(), mark.source_of(first))
            };
            let Some(source) = source else {
                // their names were forgotten because the journal had deleted them, so the table has them
                let (tenant, stream) = key;
                tracing::warn!(%tenant, %stream, offset = first.0, "records that the journal had deleted are there again; the table has them");
                self.shared.buffer.release(key, begin);
                continue;
            };
            let progress = table.progress(&source.name)?.unwrap_or_default();
            let after = table.floodmarks([source.name.as_str()])?.get(&source.name).copied();
            // the table may have batches that are in the buffer: after a restart, or if an older copy of the journal was put
            // back. Those with another name are not meant by this floodmark
            let has = Offset(progress.upto.min(source.end));
            if first < has {
                self.shared.buffer.release(key, has);
                continue;
            }
            let interrupted = progress.interrupted(first.0);
            let (end, through) =
                interrupted.map_or((u64::MAX, None), |(upto, through)| (upto, Some(through)));
            let (end, mut bytes) = (end.min(source.end), 0);
            let mut batches = self.shared.buffer.batches(key);
            batches.retain(|durable| {
                let is_first = bytes == 0;
                bytes += 1
                    + records::records_memory(&durable.batch.payload).unwrap_or(0)
                    + ROW_BYTES * durable.batch.records as usize;
                durable.offset.0 < end && (is_first || bytes <= BLOCK_BUFFERS * self.limits.buffer_bytes)
            });
            // an interrupted block may not be replayed whole yet, so it ends with what is there
            let upto = batches.last().map(|last| last.offset.0 + 1);
            let (source, undecodable) = (source.name, BTreeSet::new());
            return Ok(upto.map(|upto| Block {
                source,
                after,
                progress,
                upto,
                batches,
                through,
                undecodable,
            }));
        }
    }

    /// Writes files with the rows of a block, as many days as fit into a commit. Afterwards, batches that cannot be decoded have
    /// durable copies, so the floodmark may pass them.
    fn stage(
        &self,
        table: &Arc<Table>,
        block: &mut Block,
        journal: &JournalFacts,
    ) -> Result<Staged, LoadError> {
        let random = &self.lake.random;
        let stem = FileStem::sealed(u128::from(random.fresh()) << 64 | u128::from(random.fresh()));
        let mut stager = RecordsStager::new(table, stem, self.limits, block.through);
        for durable in &block.batches {
            let (header, mut records) = match records::decode(&durable.batch.payload) {
                Ok(decoded) => decoded,
                Err(error) => {
                    if !block.undecodable.contains(&durable.offset) {
                        self.quarantine(journal, durable, &error)?;
                        block.undecodable.insert(durable.offset);
                    }
                    continue;
                }
            };
            // decoders refuse other times, but these bytes come from a disk
            records.times_us.iter_mut().for_each(|time_us| *time_us = (*time_us).clamp(0, TIME_US_MAX));
            stager.push(RecordBatch {
                stream: header.stream.as_str().into(),
                arrival_us: header.arrival_us,
                id: header.id.map(|id| id.as_slice().into()),
                records: Arc::new(records),
            })?;
        }
        Ok(stager.finish()?)
    }

    fn quarantine(
        &self,
        journal: &JournalFacts,
        durable: &Durable,
        error: &records::BatchError,
    ) -> Result<(), LoadError> {
        if let Some(copy) = journal.quarantine.lock().keep(durable, error)? {
            self.shared.metrics.damaged.inc();
            let (offset, copy) = (durable.offset.0, copy.display());
            tracing::error!(%error, offset, %copy, "a batch of records cannot be decoded; it is copied and left out");
        }
        Ok(())
    }

    fn truncate(&mut self) {
        let now = self.clock.instant();
        let (at, has_loaded) = self.truncated;
        // during replay, the owner handles no commands, and may wait for the loader
        let is_ready = *self.shared.ready.borrow();
        if has_loaded && is_ready && now.saturating_duration_since(at) >= TRUNCATE_EVERY {
            let is_sent = self.commands.try_send(Command::Truncate).is_ok();
            self.truncated = (now, !is_sent);
        }
    }
}

fn may_load(failures: &HashMap<Key, Failure>, key: &Key, now: Instant) -> bool {
    failures.get(key).is_none_or(|failure| failure.until <= now)
}

fn work_bytes(shared: &Shared) -> u64 {
    shared.loading.limit_bytes() - shared.tables.bytes_max as u64
}
