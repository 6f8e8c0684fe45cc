//! From the journal back into the head, as a stream: one record in memory at a time.
//!
//! What is in the tables does not come back: samples of records below the floodmark are passed over. What series
//! references stand for, and metadata and exemplars, which are in no table, are taken from all records.

use super::{Command, Owner};
use crate::lake::Mark;
use crate::refusal::Refusal;
use head::Partition;
use journal::{Damage, DictionaryId, Entry, Item, JournalError, Offset, Record};
use model::{SeriesKey, SeriesRef, TenantId};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Says how far a long replay is, once in so many records.
const PROGRESS_RECORDS: u64 = 50_000;

/// How often a table that cannot be read is tried again, and how often the log says so.
const TABLE_RETRY: Duration = Duration::from_millis(500);
const TABLE_RETRIES_SAID: u32 = 60;

/// Stands for "not defined in this dictionary".
const UNDEFINED: u32 = u32::MAX;

impl Owner {
    /// Fills the head from the journal. Damage is reported and passed over; what cannot be read at all is an
    /// error.
    pub(super) fn replay(&mut self) -> Result<End, JournalError> {
        let began = Instant::now();
        let mark = self.node.lake.mark(self.number);
        let mut state = Replay { now_s: self.node.now_s(), seed: self.node.seed, ..Replay::default() };
        // from the very start: what only the journal keeps may lie below the floodmark, in a dictionary that has ended
        let mut reader = self.journal.read(self.journal.start())?;
        while let Some(item) = reader.next()? {
            match item {
                Item::Entry(entry) => {
                    if state.decode(&entry) {
                        let Some(sealed) = self.is_sealed(&mut state, &mark, entry.offset) else {
                            return Ok(End::Stopped);
                        };
                        let mut partition = self.partition.head.write();
                        let samples = state.samples;
                        let grown = state.apply(sealed, &mut partition);
                        drop(partition);
                        self.partition.grew(grown);
                        self.node.metrics.replayed_samples.add(state.samples - samples);
                        self.unsealed_bytes += if sealed { 0 } else { entry.payload.len() as u64 };
                    }
                }
                Item::Damage(damage) => {
                    self.node.metrics.damaged_ranges.inc();
                    report(self.number, &damage);
                }
            }
            if self.told_to_stop() {
                return Ok(End::Stopped);
            }
            if let Some(head_bytes) = self.beyond_memory() {
                return Ok(End::TooLarge { head_bytes });
            }
            if state.records.is_multiple_of(PROGRESS_RECORDS) && state.records > 0 {
                tracing::info!(
                    partition = self.number,
                    records = state.records,
                    samples = state.samples,
                    "replaying"
                );
            }
        }
        drop(reader);
        self.settle(&mark, &state);
        if state.samples > 0 {
            self.partition.unsealed_since_ms.store(self.node.clock.now_ms(), Ordering::Relaxed);
        }
        self.node.metrics.lost_records.add(self.journal.stats().lost_records + state.unreadable);
        tracing::info!(
            partition = self.number,
            records = state.records,
            samples = state.samples,
            sealed = state.sealed,
            unreadable = state.unreadable,
            nameless = state.nameless,
            seconds = began.elapsed().as_secs_f64(),
            "replayed"
        );
        Ok(End::Complete)
    }

    /// Whether the samples of the record that was decoded last are in its tenant's table already. Only where commits
    /// may have been cut short must the table itself be asked; without an answer, going on could double samples. `None`
    /// where the node stops meanwhile.
    fn is_sealed(&self, state: &mut Replay, mark: &Mark, offset: Offset) -> Option<bool> {
        let tenant = &state.record.tenant;
        let (source, upto, attempt) = mark.look(tenant);
        if offset.0 < upto {
            return Some(true);
        }
        if attempt.is_none_or(|attempt| offset.0 >= attempt) {
            return Some(false);
        }
        if let Some(floodmark) = state.floodmarks.get(tenant) {
            return Some(offset.0 < *floodmark);
        }
        for attempt in 0.. {
            match self.node.lake.settled_floodmark(tenant, source) {
                Ok(floodmark) => {
                    state.floodmarks.insert(tenant.clone(), floodmark.unwrap_or(0));
                    return Some(offset.0 < floodmark.unwrap_or(0));
                }
                Err(error) if attempt % TABLE_RETRIES_SAID == 0 => {
                    let partition = self.number;
                    tracing::error!(partition, %tenant, %error, "replay waits for a table that it must read");
                }
                Err(_) => {}
            }
            self.node.clock.sleep(TABLE_RETRY);
            if self.told_to_stop() {
                return None;
            }
        }
        None
    }

    /// Notes what tables said, so that nothing is in doubt any more.
    ///
    /// A table that claims offsets which this journal never gave has them from a journal that was lost, of which ours is
    /// the beginning: it goes on under another name, or what comes next would be taken for what is there already.
    fn settle(&self, mark: &Mark, state: &Replay) {
        let end = self.journal.durable_end().0;
        let is_ahead = state.floodmarks.values().any(|floodmark| *floodmark > end);
        let beyond = |(tenant, floodmark): (&TenantId, &u64)| {
            let sealed = (*floodmark).min(end);
            (sealed > mark.look(tenant).1).then(|| (tenant.clone(), sealed))
        };
        let sealed: BTreeMap<_, _> = state.floodmarks.iter().filter_map(beyond).collect();
        if is_ahead {
            tracing::error!(
                partition = self.number,
                "tables hold more than this journal ever had: it is not the one they were made from, or lost its end"
            );
            if let Err(error) = self.node.lake.rename_source(self.number, sealed) {
                tracing::error!(partition = self.number, %error, "cannot rename the journal's source");
            }
        } else if mark.is_in_doubt() {
            self.node.lake.settle(self.number, end, sealed);
        }
    }

    /// Nobody writes before replay is done, so what comes here is the word to stop.
    fn told_to_stop(&self) -> bool {
        match self.commands.try_recv() {
            Ok(Command::Stop) => true,
            Ok(Command::Write(submission)) => {
                submission.turn_away(Refusal::busy("replaying", "the journal is being replayed"));
                false
            }
            Ok(Command::Freeze(_) | Command::Sealed(_)) | Err(_) => false, // who asked sees that nothing comes
        }
    }

    /// What all heads hold, where that is more than the whole process may. Within the budget that the journal was
    /// written under this never happens: it stopped long before.
    fn beyond_memory(&self) -> Option<u64> {
        let all = self.node.head_bytes();
        (all > self.node.settings.budget.total_bytes).then_some(all)
    }
}

/// Damage that lost something acknowledged is an error; what was repaired or never acknowledged is not.
fn report(partition: usize, damage: &Damage) {
    if damage.acknowledged && !damage.repaired {
        tracing::error!(partition, ?damage, "journal is damaged, records are lost; reading on after them");
    } else {
        tracing::warn!(partition, ?damage, "journal is damaged, nothing acknowledged is lost");
    }
}

/// How a replay ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything is in the head.
    Complete,
    /// The node is stopping.
    Stopped,
    /// The heads would outgrow the whole budget.
    TooLarge {
        /// What they hold.
        head_bytes: u64,
    },
}

#[derive(Debug, Default)]
struct Replay {
    now_s: u32,
    seed: u64,
    record: Record,
    dictionary: Option<DictionaryId>,
    /// For each tenant: the series behind each reference of this dictionary.
    series_of: HashMap<TenantId, Vec<u32>>,
    refs: Vec<SeriesRef>,
    timestamps: Vec<i64>,
    values: Vec<f64>,
    records: u64,
    samples: u64,
    /// Samples that are in the tables already.
    sealed: u64,
    /// Floodmarks of this journal in tenants' tables, as far as they were asked for.
    floodmarks: HashMap<TenantId, u64>,
    unreadable: u64,
    /// Samples whose series' definition was lost.
    nameless: u64,
}

impl Replay {
    /// Decodes one record; false where it cannot be.
    fn decode(&mut self, entry: &Entry<'_>) -> bool {
        self.records += 1;
        if self.dictionary != Some(entry.dictionary) {
            self.dictionary = Some(entry.dictionary);
            self.series_of.clear();
        }
        if let Err(error) = self.record.decode(entry.payload) {
            self.unreadable += 1;
            tracing::error!(%error, "journal record is intact but cannot be understood; passed over");
            return false;
        }
        true
    }

    /// Applies the record that was decoded last, without its samples where they are `sealed`; says by how many bytes
    /// the head grew.
    fn apply(&mut self, sealed: bool, partition: &mut Partition) -> isize {
        let record = &mut self.record;
        if sealed {
            self.sealed += record.refs.len() as u64;
            record.refs.clear();
            record.timestamps.clear();
            record.values.clear();
            if record.definitions.is_empty() && record.metadata.is_empty() && record.exemplars.is_empty() {
                return 0;
            }
        }
        let before = partition.memory_bytes_of(&self.record.tenant);
        let head = partition.tenant_mut(&self.record.tenant);
        let series_of = self.series_of.entry(self.record.tenant.clone()).or_default();
        for (given, labels) in self.record.definitions.iter() {
            if series_of.len() <= given.index() {
                series_of.resize(given.index() + 1, UNDEFINED);
            }
            let key = SeriesKey::of(labels.as_bytes(), self.seed);
            series_of[given.index()] = head.create(key, labels).0;
        }
        let known = |given: SeriesRef| {
            series_of.get(given.index()).copied().filter(|s| *s != UNDEFINED).map(SeriesRef)
        };
        self.refs.clear();
        self.timestamps.clear();
        self.values.clear();
        let columns = self.record.refs.iter().zip(&self.record.timestamps).zip(&self.record.values);
        for ((given, timestamp_ms), value) in columns {
            match known(*given) {
                Some(series) => {
                    self.refs.push(series);
                    self.timestamps.push(*timestamp_ms);
                    self.values.push(*value);
                }
                // only where the record that defined the series was lost to damage
                None => self.nameless += 1,
            }
        }
        head.append(&self.refs, &self.timestamps, &self.values, self.now_s);
        self.samples += self.refs.len() as u64;
        self.record.metadata.drain(..).for_each(|m| head.put_metadata(m));
        for (given, exemplar) in self.record.exemplars.drain(..) {
            if let Some(series) = known(given) {
                head.put_exemplar(series, exemplar, self.now_s);
            }
        }
        head.memory_bytes() as isize - before as isize
    }
}
