//! Replay: restores the head from the journal, as a stream with one record in memory at a time.
//!
//! ```text
//!   for each dictionary   survey: which definitions are needed        (demand, references)
//!     for each record     in tables      its needed definitions, metadata, exemplars
//!                         not in tables  definitions, samples, …  ─▶  head
//!     between records     commands of the sealer; wait for room       (pace)
//! ```
//!
//! Sealed samples are not restored: those of records below the floodmark are skipped, and a definition there becomes a series
//! only if unsealed data needs it. Metadata and exemplars, which are in no table, are taken from all records. So replay needs
//! as much memory as the heads had when the process died, not memory for all series that the journal ever defined.

mod buffers;
mod demand;
mod known;
pub(crate) mod late;
mod pace;
mod references;
#[cfg(test)]
mod tests;

use super::Owner;
use super::extras::trim_exemplars;
use crate::seal::Mark;
use crate::shared::Shared;
use buffers::Buffers;
use head::Partition;
use journal::record::RECORD_VERSION;
use journal::{Damage, DictionaryId, Entry, Item, JournalError, Offset, Record, RecordError};
use model::{SeriesKey, TenantId};
use references::References;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use stdx::budget::Exhausted;
use tables::Date;
use tables::delta::Floodmark;

/// Records between two log lines about the progress of a long replay.
const PROGRESS_RECORDS: u64 = 50_000;

/// Number of unreadable tables after which no other is tried: the store is likely down, and each attempt may be slow.
const UNREADABLE_MAX: usize = 8;

impl Owner {
    /// Fills the head from the journal. Damage is reported and skipped; an unreadable journal is an error.
    pub(super) fn replay(&mut self) -> Result<End, JournalError> {
        let began = Instant::now();
        let ended = self.replay_all();
        match ended {
            Ok(replay) => {
                self.log_replayed(&replay, began);
                Ok(End::Complete)
            }
            Err(Halt::Stopped) => Ok(End::Stopped),
            Err(Halt::Journal(error)) => Err(error),
            Err(Halt::NoRoom) => unreachable!("BUG: replay waits for memory"),
        }
    }

    fn replay_all(&mut self) -> Result<Replay, Halt> {
        let mut replay = Replay::of(self)?;
        // from the very start: metadata and exemplars may lie below the floodmark, in a dictionary that has ended
        let mut reader = self.journal.read(self.journal.start())?;
        while let Some(item) = reader.next()? {
            match item {
                Item::Entry(entry) => {
                    self.enter(&mut replay, &entry)?;
                    let next = Offset(entry.offset.0 + 1);
                    if let Err(what) = self.take_in(&mut replay, &entry)? {
                        self.node.metrics.unreadable_records.inc();
                        report(self.number, &reader.put_aside(what));
                    }
                    self.pace(&mut replay, next)?;
                }
                Item::Damage(damage) => {
                    self.node.metrics.damaged_ranges.inc();
                    report(self.number, &damage);
                }
            }
            if replay.records.is_multiple_of(PROGRESS_RECORDS) && replay.records > 0 {
                tracing::info!(
                    partition = self.number,
                    records = replay.records,
                    samples = replay.samples,
                    "replaying"
                );
            }
        }
        if !replay.can_freeze {
            self.settle(&replay.marks);
        }
        Ok(replay)
    }

    /// Prepares for a record: surveys its dictionary if that is new, and permits freezing once the record is past everything
    /// that tables may have.
    fn enter(&mut self, replay: &mut Replay, entry: &Entry<'_>) -> Result<(), Halt> {
        if !replay.can_freeze && replay.marks.is_behind_all(entry.offset) {
            self.settle(&replay.marks);
            replay.marks.noted = self.node.lake.mark(self.number);
            replay.marks.asked.clear();
            replay.can_freeze = true;
            self.partition.can_freeze.store(true, Ordering::Release);
        }
        if replay.dictionary == Some(entry.dictionary) {
            return Ok(());
        }
        replay.dictionary = Some(entry.dictionary);
        replay.number = 0;
        replay.references.clear();
        if replay.can_freeze {
            return Ok(()); // the record is in no table
        }
        loop {
            let Replay { references, marks, .. } = replay;
            let is_sealed = |tenant: &TenantId, offset| {
                matches!(self.is_sealed(marks, tenant, offset), Sealed::All | Sealed::Later)
            };
            match self.survey(entry.dictionary, entry.offset, references, is_sealed) {
                Err(Halt::NoRoom) => {
                    replay.references.clear();
                    self.wait_for_memory(replay, entry.offset)?;
                }
                surveyed => return surveyed,
            }
        }
    }

    /// Applies a record. The inner error is the reason that its bytes cannot be decoded.
    fn take_in(&mut self, replay: &mut Replay, entry: &Entry<'_>) -> Result<Result<(), &'static str>, Halt> {
        replay.records += 1;
        replay.number += 1;
        loop {
            match replay.buffers.decode(entry.payload) {
                Ok(()) => {}
                Err(RecordError::NoRoom { .. }) => {
                    self.wait_for_memory(replay, entry.offset)?;
                    continue;
                }
                Err(RecordError::Version(found)) => {
                    let known = RECORD_VERSION;
                    return Err(JournalError::RecordVersion { offset: entry.offset, found, known }.into());
                }
                Err(RecordError::Malformed(what)) => return Ok(Err(what)),
                Err(RecordError::Truncated) => return Ok(Err("a record that ends too early")),
            }
            let Replay { marks, buffers, .. } = replay;
            let tenant = &buffers.record.tenant;
            let sealed = self.is_sealed(marks, tenant, entry.offset);
            // without a survey, any definition may be needed by an exemplar
            let is_sealed = match sealed {
                Sealed::All => true,
                Sealed::Later => !replay.can_freeze,
                Sealed::None | Sealed::Days(_) => false,
            };
            let left_out = sealed.leave_out(&mut buffers.record, entry.offset);
            let before = replay.samples;
            let mut grown = 0;
            let applied = replay.apply(is_sealed, &self.node, &mut self.partition.head.write(), &mut grown);
            self.partition.grew(grown);
            if applied.is_err() {
                replay.buffers.give_back();
                self.wait_for_memory(replay, entry.offset)?;
                continue;
            }
            replay.buffers.settle();
            replay.sealed += left_out;
            if replay.samples > before {
                self.node.metrics.replayed_samples.add(replay.samples - before);
                let (unsealed, now_ms) = (&self.partition.unsealed_since_ms, self.node.clock.now_ms());
                let _ = unsealed.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed); // keeps the oldest
            }
            self.unsealed_bytes += if is_sealed { 0 } else { entry.payload.len() as u64 };
            return Ok(Ok(()));
        }
    }

    /// An empty table of references, in replay's memory.
    fn references(&self) -> Result<References, Halt> {
        Ok(References::new(self.node.replay.reserve(0)?))
    }

    fn log_replayed(&self, replay: &Replay, began: Instant) {
        let stats = self.journal.stats();
        self.node.metrics.lost_records.add(stats.lost_records);
        self.node.metrics.torn_bytes.add(stats.torn_bytes);
        if stats.torn_bytes > 0 {
            tracing::warn!(
                partition = self.number,
                bytes = stats.torn_bytes,
                "cut a torn end off the journal, most likely of records that were never acknowledged; a copy is kept"
            );
        }
        tracing::info!(
            partition = self.number,
            records = replay.records,
            samples = replay.samples,
            sealed = replay.sealed,
            nameless = replay.nameless,
            seconds = began.elapsed().as_secs_f64(),
            "replayed"
        );
    }

    /// Determines which samples of a tenant's record are in its table already. The table itself is asked only if commits may
    /// have been interrupted; without an answer, continuing could duplicate samples, so the tenant is closed.
    fn is_sealed(&self, marks: &mut Marks, tenant: &TenantId, offset: Offset) -> Sealed {
        let (source, upto, attempt) = marks.noted.look(tenant);
        if offset.0 < upto {
            return Sealed::All;
        }
        if marks.closed.contains(tenant) {
            return Sealed::Later;
        }
        if attempt.is_none_or(|attempt| offset.0 >= attempt) {
            return Sealed::None;
        }
        if let Some(floodmark) = marks.asked.get(tenant) {
            return Sealed::of(floodmark, offset);
        }
        let why = if marks.closed.len() < UNREADABLE_MAX {
            match self.node.lake.settled_floodmark(tenant, source) {
                Ok(floodmark) => {
                    let floodmark = Arc::new(floodmark.unwrap_or_default());
                    let sealed = Sealed::of(&floodmark, offset);
                    marks.asked.insert(tenant.clone(), floodmark);
                    return sealed;
                }
                Err(error) => {
                    let partition = self.number;
                    tracing::error!(partition, %tenant, %error, "a table cannot be read: its tenant is closed until it can be");
                    format!("its table cannot be read: {error}")
                }
            }
        } else {
            format!("its table was not tried yet, because {UNREADABLE_MAX} others could not be read")
        };
        self.node.lake.close(self.number, tenant, why, self.node.clock.now_ms());
        marks.closed.insert(tenant.clone());
        Sealed::Later
    }

    /// Notes the floodmarks of the tables that were asked, which resolves commits in doubt.
    ///
    /// A table may claim offsets that this journal never assigned: they come from a lost journal, of which this one is an
    /// earlier copy. Then this journal continues under another name; otherwise new records would be taken for sealed ones.
    fn settle(&self, marks: &Marks) {
        let (mark, asked) = (&marks.noted, &marks.asked);
        let end = self.journal.durable_end().0;
        self.node.lake.keep_in_doubt(self.number, end);
        if asked.values().any(|floodmark| floodmark.end() > end) {
            let beyond = |(tenant, floodmark): (&TenantId, &Arc<Floodmark>)| {
                let sealed = floodmark.upto.min(end);
                (sealed > mark.look(tenant).1).then(|| (tenant.clone(), sealed))
            };
            let sealed: BTreeMap<_, _> = asked.iter().filter_map(beyond).collect();
            tracing::error!(
                partition = self.number,
                "tables are ahead of this journal: they were made from another one, or the journal lost its end"
            );
            if let Err(error) = self.node.lake.rename_source(self.number, end, sealed) {
                tracing::error!(partition = self.number, %error, "cannot rename the journal's source");
            }
        } else if mark.is_in_doubt() {
            let found = asked.iter().map(|(tenant, floodmark)| (tenant, &**floodmark));
            self.node.lake.settle(self.number, end, found);
        }
    }
}

/// Logs damage: as an error if acknowledged data was lost, as a warning if it was repaired or never acknowledged.
fn report(partition: usize, damage: &Damage) {
    let Damage { place, lost, acknowledged, repaired, what, copy } = damage;
    if *acknowledged && !repaired {
        tracing::error!(
            partition,
            place,
            what,
            ?lost,
            copy,
            "journal is damaged, records are lost; reading on after them"
        );
    } else {
        tracing::warn!(
            partition,
            place,
            what,
            ?lost,
            repaired,
            copy,
            "journal is damaged, nothing acknowledged is lost"
        );
    }
}

/// Result of a replay.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything is in the head.
    Complete,
    /// The node is stopping.
    Stopped,
}

/// Reason that a step of replay was not completed.
#[derive(Debug)]
enum Halt {
    Stopped,
    Journal(JournalError),
    /// The account `replay` is used up at the moment.
    NoRoom,
}

impl From<JournalError> for Halt {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl From<Exhausted> for Halt {
    fn from(_: Exhausted) -> Self {
        Self::NoRoom
    }
}

/// Extent of the journal that is in tables.
#[derive(Debug)]
struct Marks {
    /// Mark of the partition when replay began.
    noted: Mark,
    /// Floodmarks of the tenants' tables that were asked.
    asked: HashMap<TenantId, Arc<Floodmark>>,
    /// Tenants whose tables could not be asked.
    closed: HashSet<TenantId>,
}

impl Marks {
    fn of(noted: Mark) -> Self {
        Self { noted, asked: HashMap::new(), closed: HashSet::new() }
    }

    /// True if the journal may have the tenant's samples twice: a relocation may have been interrupted.
    fn may_repeat(&self, tenant: &TenantId) -> bool {
        self.noted.is_unknown() || self.noted.tenants.contains_key(tenant.as_str())
    }

    /// True if no table has anything from `offset` on, of any tenant. Without a mark that is unknown until all tenants of the
    /// journal have been seen.
    fn is_behind_all(&self, offset: Offset) -> bool {
        !self.noted.is_unknown()
            && offset.0 >= self.noted.floor()
            && self.asked.values().all(|floodmark| offset.0 >= floodmark.end())
    }
}

/// Part of a record that is in its tenant's table already.
#[derive(Debug)]
enum Sealed {
    None,
    /// The samples of days that were sealed in passes.
    Days(Arc<Floodmark>),
    All,
    /// Unknown: the tenant is closed, and its samples are replayed when its table answers (see [`late`]).
    Later,
}

impl Sealed {
    fn of(floodmark: &Arc<Floodmark>, offset: Offset) -> Self {
        if offset.0 < floodmark.upto {
            Self::All
        } else if offset.0 >= floodmark.end() {
            Self::None
        } else {
            Self::Days(Arc::clone(floodmark))
        }
    }

    /// Removes the samples of sealed days from a record. Returns their number.
    fn leave_out(&self, record: &mut Record, offset: Offset) -> u64 {
        let floodmark = match self {
            Self::Days(floodmark) => floodmark,
            Self::Later => {
                record.clear_samples();
                return 0;
            }
            Self::None | Self::All => return 0,
        };
        record.retain(|_, timestamp_ms| !floodmark.covers(offset.0, Date::of(timestamp_ms))) as u64
    }
}

#[derive(Debug)]
struct Replay {
    /// Last-seen time given to restored series.
    seen_s: u32,
    seed: u64,
    marks: Marks,
    /// True if the samples replayed so far may be frozen: no table has anything beyond them.
    can_freeze: bool,
    buffers: Buffers,
    dictionary: Option<DictionaryId>,
    /// Records of the dictionary so far.
    number: u32,
    references: References,
    records: u64,
    samples: u64,
    /// Samples that are in the tables already.
    sealed: u64,
    /// Samples whose series' definition was lost.
    nameless: u64,
    /// Time of the last eviction of unneeded series from full heads.
    looked_at: Option<Instant>,
}

impl Replay {
    fn of(owner: &Owner) -> Result<Self, Halt> {
        let node = &owner.node;
        Ok(Self {
            // one second ago, because `evict_unneeded` marks the series that stay as seen now
            seen_s: node.steady_s().saturating_sub(1),
            seed: node.seed,
            marks: Marks::of(node.lake.mark(owner.number)),
            can_freeze: false,
            buffers: Buffers::new(node.replay.reserve(0)?),
            dictionary: None,
            number: 0,
            references: owner.references()?,
            records: 0,
            samples: 0,
            sealed: 0,
            nameless: 0,
            looked_at: None,
        })
    }

    /// Applies the record decoded last, without its samples if they are `sealed`. Adds the growth of the head, in bytes, to
    /// `grown`. If memory for references runs out, only definitions were applied, and the call can be repeated.
    fn apply(
        &mut self,
        sealed: bool,
        node: &Shared,
        partition: &mut Partition,
        grown: &mut isize,
    ) -> Result<(), Exhausted> {
        let record = &mut self.buffers.record;
        let (slots, memory) = self.references.of(&record.tenant)?;
        if sealed {
            let has_extras = !record.metadata.is_empty() || !record.exemplars.is_empty();
            if !has_extras && !record.definitions.iter().any(|(given, _)| slots.wants(given, self.number)) {
                self.sealed += record.refs.len() as u64;
                return Ok(());
            }
        }
        *grown -= partition.memory_bytes_of(&record.tenant) as isize;
        let head = partition.tenant_mut(&record.tenant);
        let mut defined = Ok(());
        for (given, labels) in record.definitions.iter() {
            if !sealed || slots.wants(given, self.number) {
                let key = SeriesKey::of(labels.as_bytes(), self.seed);
                let series = head.create_of(record.values.kind(), key, labels);
                head.set_seen(series, self.seen_s);
                defined = slots.set(given, series, memory);
                if defined.is_err() {
                    break;
                }
            }
        }
        if defined.is_ok() {
            if sealed {
                self.sealed += record.refs.len() as u64;
            } else {
                let may_repeat = self.marks.may_repeat(&record.tenant) && known::ascends(record);
                // samples without a series occur only if the record that defined it was lost to damage
                self.nameless += record.translate(|given| slots.series(given)) as u64;
                if may_repeat {
                    known::leave_out(head, record);
                }
                head.append(&record.refs, &record.timestamps, &record.values, self.seen_s);
                self.samples += record.refs.len() as u64;
            }
            for metadata in record.metadata.drain(..) {
                let limit_bytes = node.heads.metadata_limit_bytes();
                let restored = partition.restore_metadata(&record.tenant, metadata, limit_bytes, self.seen_s);
                restored.unwrap_or_else(|refusal| node.metrics.refused_metadata.of(refusal).inc());
            }
            let exemplars = record.exemplars.drain(..);
            let exemplars = exemplars.filter_map(|(given, exemplar)| Some((slots.series(given)?, exemplar)));
            partition.put_exemplars(&record.tenant, exemplars, self.seen_s);
        }
        *grown += partition.memory_bytes_of(&record.tenant) as isize;
        trim_exemplars(node, partition);
        *grown += partition.take_change();
        defined
    }
}
