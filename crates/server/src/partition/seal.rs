//! The owner's part in sealing: freezes the head, and releases samples that are in tables.

use super::Owner;
use super::dictionary::Dictionary;
use super::time_share::{SLICES_MAX, TimeShare};
use journal::{JournalError, Offset, RecordEncoder};
use model::{LabelsRef, TenantId};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

/// A freeze ends the journal's dictionary if it has at least this size. Smaller dictionaries are ended too if the
/// journal is to be emptied.
const DICTIONARY_BYTES_MIN: u64 = 4 << 20;

/// When a dictionary ends, series in memory must be defined again in the next one. If these definitions take at most
/// this many bytes, their cost is ignored.
const DEFINITION_BYTES_FREE: u64 = 1 << 20;

/// Metadata and exemplars that are carried over to a new dictionary are synced each time this many bytes were
/// written.
const CARRIED_BYTES: usize = 4 << 20;

/// True if it pays to end a dictionary of `bytes`. The definitions of series in memory, which take `live_bytes`, must
/// then be written again. `all` is true if the journal is to be emptied.
fn is_worth_ending(bytes: u64, live_bytes: u64, all: bool) -> bool {
    let is_cheap = live_bytes <= DEFINITION_BYTES_FREE;
    let is_long = bytes >= DICTIONARY_BYTES_MIN || all;
    is_long && (is_cheap || live_bytes <= bytes / 2)
}

/// A dictionary with at least this many deletes that have patterns ends with the next freeze, because replay tests the patterns of all
/// deletes. Each delete flushes first, so the freeze comes soon.
pub(super) const DELETES_MAX: u32 = 32;

/// Replay restores evicted exemplars, and may test the labels of each with the patterns of each later delete in the dictionary. If the
/// number of both multiplied reaches this limit with the next delete, its flush ends the dictionary: only exemplars that are in memory
/// are then written again.
pub(super) const EVICTED_MAX: u64 = 1000;

/// True if replay may take long for the patterns of this many deletes, and of another one if the journal is to be emptied (`all`), which
/// each delete asks for first. So many exemplars were evicted since the dictionary began.
const fn delays_replay(deletes: u32, evicted: u64, all: bool) -> bool {
    deletes >= DELETES_MAX || (all && evicted.saturating_mul(deletes as u64 + 1) >= EVICTED_MAX)
}

#[derive(Debug)]
pub(crate) struct Freeze {
    /// True if the journal is to be emptied.
    pub(crate) all: bool,
    /// Tenants to leave out, because samples that were frozen earlier cannot be sealed yet.
    pub(crate) except: BTreeSet<TenantId>,
    pub(crate) reply: SyncSender<Frozen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frozen {
    /// All samples below this offset are frozen, except those of excluded tenants.
    pub(crate) upto: Offset,
    /// Upper bound on the number of frozen samples.
    pub(crate) samples: u64,
}

#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) what: SealedSamples,
    /// Answered when the samples have left the head and the journal.
    pub(crate) reply: SyncSender<()>,
}

#[derive(Debug, Clone)]
pub(crate) enum SealedSamples {
    /// All samples frozen below `upto`, except those of the tenants in `except`.
    All { upto: Offset, except: BTreeSet<TenantId> },
    /// The frozen samples of one tenant that was in `except` when the other samples were released.
    Of(TenantId),
}

impl SealedSamples {
    fn is_of(&self, tenant: &TenantId) -> bool {
        match self {
            Self::All { except, .. } => !except.contains(tenant),
            Self::Of(only) => only == tenant,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Sealing {
    pub(super) requested: Option<Freeze>,
    /// The last freeze, until its samples are released.
    frozen: Option<Frozen>,
    releasing: Option<(Sealed, TimeShare)>,
    /// Metadata and exemplars in records below this offset were written again in later records.
    carried: Offset,
    /// Bytes that the last freeze appended to the journal.
    pub(super) appended_bytes: u64,
    /// Number of bytes that had been appended to the journal when its current dictionary began.
    dictionary_began: u64,
    /// Number of deletes of exemplars since then that have patterns which need an engine.
    pub(super) deletes: u32,
    /// Number of exemplars that had been evicted when the current dictionary began.
    evicted_before: u64,
}

impl Sealing {
    pub(super) fn wants_turn(&self) -> Option<Instant> {
        self.releasing.as_ref().map(|(_, time_share)| time_share.due())
    }
}

impl Owner {
    pub(super) fn seal_turn(&mut self) {
        if let Some(freeze) = self.sealing.requested.take() {
            let frozen = self.freeze(freeze.all, &freeze.except);
            let _ = freeze.reply.send(frozen); // the receiver may be gone: the next request gets the same answer
        }
        for _ in 0..SLICES_MAX {
            let now = self.context.clock.instant();
            if self.sealing.wants_turn().is_none_or(|at| at > now) {
                return;
            }
            self.release_slice(now);
        }
    }

    /// Freezes the head, between two groups: only then do the head and the journal have the same unsealed samples.
    fn freeze(&mut self, all: bool, except: &BTreeSet<TenantId>) -> Frozen {
        if let Some(frozen) = self.sealing.frozen {
            return frozen;
        }
        let upto = self.journal.durable_end();
        let frozen = self.freeze_upto(upto, except);
        let stats = self.journal.stats();
        self.sealing.appended_bytes = stats.appended_bytes;
        let in_dictionary = stats.appended_bytes.saturating_sub(self.sealing.dictionary_began);
        let evicted = self.partition.head.read().evicted_exemplars() - self.sealing.evicted_before;
        if stats.dictionaries > 1
            || delays_replay(self.sealing.deletes, evicted, all)
            || is_worth_ending(in_dictionary, self.dictionary.live_bytes(), all)
        {
            match self.begin_dictionary() {
                Ok(()) => {
                    self.sealing.carried = upto;
                    self.sums.carry(upto, self.context.clock.instant());
                }
                Err(error) => {
                    self.journal.abandon();
                    self.dictionary.forget();
                    let partition = self.number;
                    tracing::warn!(partition, %error, "cannot begin a new dictionary; the journal is not truncated this time");
                }
            }
        }
        self.publish_stats();
        frozen
    }

    /// Freezes the head. It must contain exactly the unsealed samples of records below `upto`.
    pub(super) fn freeze_upto(&mut self, upto: Offset, except: &BTreeSet<TenantId>) -> Frozen {
        if let Some(frozen) = self.sealing.frozen {
            return frozen;
        }
        let samples = self.partition.head.write().freeze(|tenant| !except.contains(tenant));
        let frozen = Frozen { upto, samples };
        self.sealing.frozen = Some(frozen);
        self.unsealed_bytes = 0;
        self.partition.unsealed_since_ms.store(0, Ordering::Relaxed);
        frozen
    }

    /// Begins a new dictionary. Metadata and exemplars are written again, because they are in no table and the old
    /// dictionary will be deleted.
    fn begin_dictionary(&mut self) -> Result<(), JournalError> {
        self.journal.end_dictionary();
        self.dictionary.forget();
        self.dictionary.enter(self.journal.begin()?);
        self.sealing.dictionary_began = self.journal.stats().appended_bytes;
        self.sealing.deletes = 0;
        self.sealing.evicted_before = self.partition.head.read().evicted_exemplars();
        let Self { encoder, journal, dictionary, label_bytes, partition, .. } = self;
        let partition = partition.head.read();
        let mut waiting = 0;
        let mut put = |encoder: &mut RecordEncoder, dictionary: &mut Dictionary| {
            let record = encoder.finish();
            waiting += record.len();
            journal.append(record)?;
            dictionary.grow(encoder.definitions(), encoder.definition_bytes());
            if waiting >= CARRIED_BYTES {
                waiting = 0;
                journal.sync()?;
                // the journal may have begun another dictionary after the sync
                dictionary.enter(journal.begin()?);
            }
            Ok::<_, JournalError>(())
        };
        let mut tenants: Vec<_> = partition.tenants().collect();
        tenants.sort_unstable_by_key(|(tenant, _)| *tenant);
        for (tenant, head) in tenants {
            encoder.begin(tenant);
            for metadata in head.metadata() {
                if encoder.is_full() {
                    put(encoder, dictionary)?;
                    encoder.begin(tenant);
                }
                encoder.metadata(metadata);
            }
            for (series, exemplar) in head.exemplars() {
                if encoder.is_full() {
                    put(encoder, dictionary)?;
                    encoder.begin(tenant);
                }
                if dictionary.of(tenant).insert(*series) {
                    label_bytes.clear();
                    head.write_labels(*series, label_bytes);
                    encoder.define(*series, LabelsRef::from_canonical(label_bytes));
                }
                encoder.exemplar(*series, exemplar);
            }
            if !encoder.is_empty() {
                put(encoder, dictionary)?;
            }
        }
        drop(partition);
        self.journal.sync()?;
        Ok(())
    }

    /// Releases samples that are in tables: in slices from the head, and then from the journal.
    pub(super) fn sealed(&mut self, sealed: Sealed) {
        let frozen = self.sealing.frozen.map(|frozen| frozen.upto);
        if matches!(&sealed.what, SealedSamples::All { upto, .. } if frozen != Some(*upto)) {
            let _ = sealed.reply.send(()); // released before; the answer was lost
            return;
        }
        self.sealing.releasing = Some((sealed, TimeShare::from(self.context.clock.instant())));
    }

    /// Releases samples that are in tables, without pauses between the slices. Used only during replay.
    pub(super) fn release(&mut self, sealed: Sealed) {
        self.sealed(sealed);
        while self.sealing.releasing.is_some() {
            self.release_slice(self.context.clock.instant());
        }
    }

    fn release_slice(&mut self, began: Instant) {
        let Some((sealed, time_share)) = &mut self.sealing.releasing else { return };
        let done = {
            let mut head = self.partition.head.write();
            let done = head.release_turn(|tenant| sealed.what.is_of(tenant));
            self.partition.grew(head.take_change());
            if done {
                self.partition.count_late(&head, &self.context.lake.blocked);
            }
            done
        };
        time_share.record_slice(began, self.context.clock.instant());
        if done && let Some((sealed, _)) = self.sealing.releasing.take() {
            if let SealedSamples::All { .. } = sealed.what {
                self.sealing.frozen = None;
                self.note_tenants(); // they hold less now, and eviction goes by what they hold
            }
            self.truncate_to_mark();
            let _ = sealed.reply.send(()); // the receiver may be gone
        }
    }

    /// Deletes those of the journal's dictionaries that no tenant needs.
    pub(super) fn truncate_to_mark(&mut self) {
        let needed = Offset(self.context.lake.mark(self.number).needed_from());
        if let Err(error) = self.journal.truncate(needed.min(self.sealing.carried).min(self.sums.carried())) {
            tracing::warn!(partition = self.number, %error, "cannot truncate the journal");
        }
        self.publish_stats();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_ends_where_that_costs_less_than_it_frees() {
        const MIB: u64 = 1 << 20;
        assert!(is_worth_ending(1, 1, true), "little is written again");
        assert!(!is_worth_ending(MIB, MIB, false), "little is freed");
        assert!(is_worth_ending(4 * MIB, MIB, false));
        // ending it would make each flush write a million definitions again
        assert!(!is_worth_ending(20 * MIB, 19 * MIB, true));
        assert!(!is_worth_ending(20 * MIB, 19 * MIB, false));
        assert!(is_worth_ending(38 * MIB, 19 * MIB, false));
    }

    #[test]
    fn a_dictionary_ends_where_replay_would_test_many_values() {
        for all in [false, true] {
            assert!(!delays_replay(DELETES_MAX - 1, 0, all));
            assert!(delays_replay(DELETES_MAX, 0, all));
            assert!(!delays_replay(0, EVICTED_MAX - 1, all));
            assert!(!delays_replay(9, EVICTED_MAX / 10 - 1, all));
            // without a flush, no delete follows
            assert_eq!(delays_replay(0, EVICTED_MAX, all), all);
            assert_eq!(delays_replay(9, EVICTED_MAX / 10, all), all);
        }
        assert!(delays_replay(1, u64::MAX, true));
    }
}
