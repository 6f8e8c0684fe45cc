//! The thread that writes batches into tables.
//!
//! A stream is loaded when its oldest batch has waited for the freshness target, when it has enough bytes for a large file, or
//! when memory runs short. A load takes what has arrived until then, up to a limit, so if commits take long, loads grow. If even the
//! largest loads are too slow, memory runs full, and requests are refused.
//!
//! No stream holds up the others: if a load needs several commits, because its records have very many days, others are loaded in
//! between. And tables are kept up also while there is always a stream that is due.

use super::batch::ROW_BYTES;
use super::buffer::{Due, Durable, Key};
use super::owner::Command;
use super::quarantine::NotCopied;
use super::retention::{Retention, Visit};
use super::tasks::{Running, Task};
use super::upkeep::{StreamUpkeep, Terms};
use super::{JournalFacts, Shared};
use crate::seal::Lake;
use crate::settings::{Overrides, Settings};
use crate::wallclock::WallClock;
use journal::{Offset, records};
use model::caps::TIMESTAMP_MS_MAX;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};
use stdx::budget::Reservation;
use stdx::clock::Clock;
use tables::delta::Floodmark;
use tables::write::records::{RecordBatch, RecordsStager};
use tables::write::stage::Staged;
use tables::{Date, FileStem, Outcome, RecordLimits, StagedBlock, Table, TableError};

/// Interval at which an idle loader checks which streams are due.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After a failure, a stream is not loaded for this long, and then for twice as long each time.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The journal is truncated this often, if streams were loaded.
const TRUNCATE_EVERY: Duration = Duration::from_secs(10);

/// When loads have taken this long since the last upkeep of a table, a table is kept up although streams are due ...
const UPKEEP_AFTER: Duration = Duration::from_secs(30);
/// ... for at most this long.
const UPKEEP_TURN: Duration = Duration::from_secs(10);

/// The log of a table gets a checkpoint after this many commits, because opening a table reads all later ones.
const CHECKPOINT_VERSIONS: u64 = 50;

/// After a part of a block, the stream is not loaded for at least this long.
const REST_MIN: Duration = Duration::from_millis(1);

/// Idle tenants are forgotten at this interval.
const FORGET_EVERY: Duration = Duration::from_secs(3600);

/// A stream is due when the buffer has this many compressed bytes of it, because they make large files.
const LOAD_BYTES: u64 = 32 << 20;

/// A block has at most as many bytes as this number of the stager's buffers, so that other streams have their turn.
const BLOCK_BUFFERS: usize = 16;

/// Loads have no end of their own.
const END: Offset = Offset(u64::MAX);

pub(crate) const TIME_US_MAX: i64 = TIMESTAMP_MS_MAX * 1000 + 999;

#[derive(Debug)]
pub(crate) struct Loader {
    pub(super) shared: Arc<Shared>,
    commands: SyncSender<Command>,
    pub(super) tasks: Receiver<Task>,
    pub(super) lake: Arc<Lake>,
    pub(super) clock: Arc<dyn Clock>,
    stopping: Arc<AtomicBool>,
    due: Due,
    limits: RecordLimits,
    failures: HashMap<Key, Failure>,
    /// Streams of which a part of a block is in the table, and when the next part is due.
    rests: HashMap<Key, Instant>,
    /// Time for loads since the last upkeep.
    loading: Duration,
    /// When idle tenants are forgotten next.
    forgets: Instant,
    /// When the journal was truncated, and whether streams were loaded since then.
    truncated: (Instant, bool),
    pub(super) running: Option<Running>,
    pub(super) upkeep: StreamUpkeep,
    retention: Retention,
}

/// What the loader is made of.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: SyncSender<Command>,
    pub(crate) tasks: Receiver<Task>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) lake: Arc<Lake>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall: Arc<WallClock>,
    pub(crate) stopping: Arc<AtomicBool>,
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
    pub(crate) fn new(context: Context) -> Self {
        let Context { shared, commands, tasks, settings, overrides, lake, clock, wall, stopping } = context;
        let (account, bytes) = (&shared.records, work_bytes(&shared));
        let row_group_bytes = (bytes as usize / 12).clamp(128 << 10, 8 << 20);
        let limits = RecordLimits { buffer_bytes: bytes as usize / 2, row_group_bytes };
        let due = Due {
            after: settings.stream_freshness,
            bytes: LOAD_BYTES.min(account.limit_bytes() / 4),
            total_bytes: account.limit_bytes() / 2,
        };
        let truncated = (clock.instant(), false);
        let forgets = clock.instant() + FORGET_EVERY;
        let upkeep = StreamUpkeep::new(&*clock, bytes, settings.lake.vacuum_grace_ms);
        let wait = Duration::from_millis(settings.lake.retention_wait_ms.unsigned_abs());
        let retention = Retention::new(overrides, wall, wait, &*clock);
        Self {
            shared,
            commands,
            tasks,
            lake,
            clock,
            stopping,
            due,
            limits,
            failures: HashMap::new(),
            rests: HashMap::new(),
            loading: Duration::ZERO,
            forgets,
            truncated,
            running: None,
            upkeep,
            retention,
        }
    }

    pub(crate) fn run(mut self) {
        while !self.stopping.load(Ordering::Acquire) {
            let loaded = self.load_next();
            self.truncate();
            let worked = self.work();
            let is_busy = loaded || worked;
            let is_kept_up = (!is_busy || self.loading >= UPKEEP_AFTER) && self.keep_up(is_busy);
            if !is_busy && !is_kept_up {
                std::thread::park_timeout(LOOK_EVERY);
            }
            let now = self.clock.instant();
            self.retention.look(&self.lake.tables, &*self.clock);
            if now >= self.forgets {
                self.forgets = now + FORGET_EVERY;
                self.shared.known.forget_idle();
            }
        }
    }

    /// Reserves the memory for one piece of work. Open tables have the rest of the account.
    pub(super) fn reserve(&self) -> Reservation {
        let bytes = work_bytes(&self.shared);
        self.shared.loading.reserve(bytes).expect("BUG: the loader does two things at a time")
    }

    /// Loads one stream that is due. Returns false if there is none.
    pub(crate) fn load_next(&mut self) -> bool {
        let now = self.clock.instant();
        let is_free = |key: &Key| self.running.as_ref().is_none_or(|running| !running.deletes(key));
        let may = |key: &Key| may_load(&self.failures, &self.rests, key, now) && is_free(key);
        let Some(key) = self.shared.buffer.due(self.due, now, may) else { return false };
        self.load(&key, END);
        true
    }

    /// Does the upkeep of one table, or looks whether records of another have expired. Returns false if there is nothing to do.
    /// If other work waits, this takes a limited time, and otherwise until a stream is due.
    pub(super) fn keep_up(&mut self, is_busy: bool) -> bool {
        self.loading = Duration::ZERO;
        self.retention.look(&self.lake.tables, &*self.clock);
        let began = self.clock.instant();
        let Some(key) = self.upkeep.due(began) else { return self.find_expired() };
        let _memory = self.reserve();
        let expire_before_ms = self.retention.before_ms(&key.0, &*self.clock);
        let terms = Terms { expire_before_ms, is_short: is_busy };
        let Self { shared, lake, clock, stopping, due, upkeep, failures, rests, .. } = self;
        let go_on = || {
            let now = clock.instant();
            let may = |key: &Key| may_load(failures, rests, key, now);
            let is_over = match is_busy {
                true => now.saturating_duration_since(began) >= UPKEEP_TURN,
                false => shared.buffer.due(*due, now, may).is_some(),
            };
            !is_over && !stopping.load(Ordering::Acquire)
        };
        let kept_up = shared
            .tables
            .open_or_create(&lake.tables, &key)
            .and_then(|table| upkeep.run(&key, &table, lake, &**clock, terms, go_on));
        match kept_up {
            Ok(expired_files) => shared.metrics.expired_files.add(expired_files as u64),
            Err(error) => {
                shared.metrics.upkeep_failures.inc();
                let (tenant, stream) = &key;
                tracing::warn!(%tenant, %stream, %error, "upkeep of a stream's table failed; it is tried again after the next load");
            }
        }
        true
    }

    /// Looks at one table. If it has expired records, its upkeep is due. Returns false if there is no table to look at.
    fn find_expired(&mut self) -> bool {
        let Visit { key, before_ms, is_first } = match self.retention.next(&self.lake.tables, &*self.clock) {
            Ok(Some(visit)) => visit,
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!(%error, "cannot list streams: the records of some are not dropped before the next round");
                return true;
            }
        };
        let _memory = self.reserve();
        let has_expired = self.shared.tables.existing(&self.lake.tables, &key).and_then(|table| {
            let Some(table) = table else { return Ok(false) };
            table.refresh()?;
            let files = table.files()?;
            let has_expired =
                before_ms.is_some_and(|before_ms| files.all().iter().any(|file| file.is_before(before_ms)));
            // before the start, files may have been removed that are still there
            let may_have_left = is_first && (files.all().is_empty() || table.expired_before_ms()?.is_some());
            Ok(has_expired || may_have_left)
        });
        match has_expired {
            Ok(true) => self.upkeep.note(&key, self.clock.instant()),
            Ok(false) => {}
            Err(error) => {
                let (tenant, stream) = &key;
                tracing::warn!(%tenant, %stream, %error, "cannot see whether records of a stream have expired");
            }
        }
        true
    }

    /// Loads what the buffer has of a stream now, below an offset. Returns false if that failed.
    pub(super) fn load(&mut self, key: &Key, end: Offset) -> bool {
        let began = self.clock.instant();
        let loaded = self.try_load(key, end);
        let now = self.clock.instant();
        let took = now.saturating_duration_since(began);
        self.loading += took;
        match loaded {
            Ok(is_whole) => {
                self.failures.remove(key);
                // others have as much time as this part took
                match is_whole {
                    true => self.rests.remove(key),
                    false => self.rests.insert(key.clone(), now + took.max(REST_MIN)),
                };
                self.shared.tables.close_some();
                self.upkeep.loaded(key, now);
                self.truncated.1 = true;
                true
            }
            Err(error) => {
                let before = self.failures.get(key).map(|failure| failure.wait);
                let wait = before.map_or(RETRY_AFTER, |wait| (2 * wait).min(RETRY_AFTER_MAX));
                self.failures.insert(key.clone(), Failure { until: now + wait, wait });
                self.shared.metrics.load_failures.inc();
                let (tenant, stream) = key;
                tracing::warn!(%tenant, %stream, %error, retry_after = ?wait, "cannot load records into their table");
                false
            }
        }
    }

    /// Returns false if a part of a block was loaded, and the rest must follow.
    fn try_load(&mut self, key: &Key, end: Offset) -> Result<bool, LoadError> {
        let Some(journal) = self.shared.journal.get() else { return Ok(true) };
        let _memory = self.reserve();
        let table = self.shared.tables.open_or_create(&self.lake.tables, key)?;
        if self.failures.contains_key(key) {
            // perhaps the answer to a commit was lost
            table.refresh()?;
        }
        let Some(mut block) = self.block(key, &table, journal, end)? else { return Ok(true) };
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
        if table.version() >= table.checkpointed().saturating_add(CHECKPOINT_VERSIONS)
            && let Err(error) = table.checkpoint()
        {
            let (tenant, stream) = key;
            tracing::warn!(%tenant, %stream, %error, "cannot write a checkpoint of a stream's table; it is tried again after the next load");
        }
        if staged.through.is_some() {
            return Ok(false); // the table notes how far this went
        }
        let upto = Offset(block.upto);
        drop(block);
        self.shared.buffer.release(key, upto);
        Ok(true)
    }

    /// What the table of a stream needs next, below an offset. `None` if it has everything.
    fn block(
        &self,
        key: &Key,
        table: &Table,
        journal: &JournalFacts,
        most: Offset,
    ) -> Result<Option<Block>, LoadError> {
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
            // the table has a part of an interrupted block, so it must get the rest
            let (end, through) = interrupted.map_or((most.0, None), |(upto, through)| (upto, Some(through)));
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

fn may_load(
    failures: &HashMap<Key, Failure>,
    rests: &HashMap<Key, Instant>,
    key: &Key,
    now: Instant,
) -> bool {
    failures.get(key).is_none_or(|failure| failure.until <= now)
        && rests.get(key).is_none_or(|until| *until <= now)
}

fn work_bytes(shared: &Shared) -> u64 {
    shared.loading.limit_bytes() - shared.tables.bytes_max as u64
}
