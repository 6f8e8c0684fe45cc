//! Replay: restores the head from the journal, one record at a time.
//!
//! ```text
//!   for each dictionary           survey: which definitions are needed                  (demand, references)
//!     for each record             restore into the head:                                (apply)
//!       if it is in tables          its needed definitions, its metadata and exemplars
//!       if it is not in tables      all its definitions, samples, metadata and exemplars
//!     between records             commands of the sealer; wait for room                 (pace)
//!   if exemplars were deleted: evict series without samples and exemplars               (pace)
//! ```
//!
//! Samples below the floodmark are in tables and are skipped. A definition below the floodmark becomes a series only if
//! later data needs the series. Metadata and exemplars are restored from all records, because tables do not contain
//! them.

mod apply;
mod buffers;
pub(crate) mod closed_tenants;
mod deleted_exemplars;
mod demand;
mod known;
mod marks;
mod pace;
mod references;
#[cfg(test)]
mod tests;

use super::Owner;
use apply::Replay;
use journal::record::RECORD_VERSION;
use journal::{Damage, Entry, Item, JournalError, Offset, Record, RecordError};
use marks::Sealed;
use model::TenantId;
use references::References;
use std::sync::atomic::Ordering;
use std::time::Instant;
use stdx::budget::Exhausted;

const PROGRESS_RECORDS: u64 = 50_000;

impl Owner {
    /// Fills the head from the journal. Damaged records are logged and skipped.
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
            Err(Halt::NoRoom) => unreachable!("BUG: replay returned instead of waiting for memory"),
        }
    }

    fn replay_all(&mut self) -> Result<Replay, Halt> {
        let mut replay = Replay::of(self)?;
        // starts at the journal's beginning, because records below the floodmark may have metadata and exemplars that
        // are in no table
        let (start, end) = (self.journal.start(), self.journal.durable_end());
        self.partition.replay.begin(start, end, self.context.clock.instant());
        let mut reader = self.journal.read(start)?;
        while let Some(item) = reader.next()? {
            match item {
                Item::Entry(entry) => {
                    self.enter(&mut replay, &entry)?;
                    let next = Offset(entry.offset.0 + 1);
                    if let Err(what) = self.take_in(&mut replay, &entry)? {
                        self.context.metrics.unreadable_records.inc();
                        report(self.number, &reader.quarantine(what));
                    }
                    self.partition.replay.reached(next);
                    self.pace(&mut replay, next)?;
                }
                Item::Damage(damage) => {
                    self.context.metrics.damaged_ranges.inc();
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
        self.evict_bereft(&replay);
        Ok(replay)
    }

    /// Called before each record. If the record is the first of a new dictionary, surveys this dictionary. Also sets
    /// `can_freeze` once it is certain that no table has samples of this record or of later ones.
    fn enter(&mut self, replay: &mut Replay, entry: &Entry<'_>) -> Result<(), Halt> {
        if !replay.can_freeze && replay.marks.is_behind_all(entry.offset) {
            self.settle(&replay.marks);
            replay.marks.noted = self.context.lake.mark(self.number);
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
            return Ok(()); // no table has samples of this record, so all its definitions are needed
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

    /// Applies a record to the head. The inner error tells why its bytes cannot be decoded.
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
                Err(RecordError::Truncated) => return Ok(Err("a truncated record")),
            }
            if replay.buffers.record.is_deleted {
                self.sums.remove_tenant(&replay.buffers.record.tenant);
                self.partition.grew(replay.forget(&mut self.partition.head.write()));
                return Ok(Ok(()));
            }
            if let Some(deleted) = replay.buffers.record.deleted_exemplars.take() {
                let tenant = replay.buffers.record.tenant.clone();
                match self.delete_replayed_exemplars(replay, &tenant, &deleted, entry.offset) {
                    Err(Halt::NoRoom) => {
                        drop(deleted);
                        replay.buffers.give_back();
                        self.wait_for_memory(replay, entry.offset)?;
                        continue;
                    }
                    applied => {
                        let applied = applied?;
                        self.end_tests(replay);
                        replay.buffers.settle();
                        return Ok(applied);
                    }
                }
            }
            self.restore_sums(&replay.buffers.record);
            if replay.buffers.record.is_only_sums() {
                replay.buffers.settle();
                return Ok(Ok(()));
            }
            let Replay { marks, buffers, .. } = replay;
            let tenant = &buffers.record.tenant;
            let sealed = self.is_sealed(marks, tenant, entry.offset);
            // Once the head can be frozen, dictionaries are no longer surveyed, so it is unknown which definitions the
            // exemplars of a closed tenant need. All definitions of the tenant then become series.
            let is_sealed = match sealed {
                Sealed::All => true,
                Sealed::Later => !replay.can_freeze,
                Sealed::None | Sealed::Days(_) => false,
            };
            let left_out = sealed.leave_out(&mut buffers.record, entry.offset);
            let before = replay.samples;
            let mut grown = 0;
            let applied =
                replay.apply(is_sealed, &self.context, &mut self.partition.head.write(), &mut grown);
            self.partition.grew(grown);
            if applied.is_err() {
                replay.buffers.give_back();
                self.wait_for_memory(replay, entry.offset)?;
                continue;
            }
            replay.buffers.settle();
            replay.sealed += left_out;
            if replay.samples > before {
                self.context.metrics.replayed_samples.add(replay.samples - before);
                let (unsealed, now_ms) = (&self.partition.unsealed_since_ms, self.context.clock.now_ms());
                let _ = unsealed.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed); // keeps the oldest
            }
            self.unsealed_bytes += if is_sealed { 0 } else { entry.payload.len() as u64 };
            return Ok(Ok(()));
        }
    }

    /// Restores the sums of a record, whether or not its samples are in tables.
    fn restore_sums(&mut self, record: &Record) {
        self.sums.restore_forgotten(&record.tenant, record.forgotten_ns);
        for (key, accumulator) in &record.sums {
            self.sums.restore(&record.tenant, *key, accumulator);
        }
    }

    fn references(&self) -> Result<References, Halt> {
        Ok(References::new(self.context.replay.reserve(0)?))
    }

    fn log_replayed(&self, replay: &Replay, began: Instant) {
        let stats = self.journal.stats();
        self.context.metrics.lost_records.add(stats.lost_records);
        self.context.metrics.torn_bytes.add(stats.torn_bytes);
        if stats.torn_bytes > 0 {
            tracing::warn!(
                partition = self.number,
                bytes = stats.torn_bytes,
                "removed an incomplete end of the journal; its records were most likely never acknowledged; a copy is kept"
            );
        }
        tracing::info!(
            partition = self.number,
            records = replay.records,
            samples = replay.samples,
            sealed = replay.sealed,
            nameless = replay.nameless,
            tested = replay.tested,
            seconds = began.elapsed().as_secs_f64(),
            "replayed"
        );
    }
}

/// Logs that the journal is damaged. This is an error if acknowledged data was lost, and otherwise a warning.
fn report(partition: usize, damage: &Damage) {
    let Damage { place, lost, acknowledged, repaired, what, copy } = damage;
    if *acknowledged && !repaired {
        tracing::error!(
            partition,
            place,
            what,
            ?lost,
            copy,
            "journal is damaged and records are lost; replay continues after them"
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

#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    Stopped,
}

#[derive(Debug)]
enum Halt {
    Stopped,
    Journal(JournalError),
    /// The memory account `replay` has no room.
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
