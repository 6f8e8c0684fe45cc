//! From the journal back into the head, as a stream: one record in memory at a time.

use super::{Command, Owner};
use crate::refusal::Refusal;
use head::Partition;
use journal::{Damage, DictionaryId, Item, JournalError, Record};
use model::{SeriesKey, SeriesRef, TenantId};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Says how far a long replay is, once in so many records.
const PROGRESS_RECORDS: u64 = 50_000;

/// Stands for "not defined in this dictionary".
const UNDEFINED: u32 = u32::MAX;

impl Owner {
    /// Fills the head from the journal. Damage is reported and passed over; what cannot be read at all is an
    /// error.
    pub(super) fn replay(&mut self) -> Result<End, JournalError> {
        let began = Instant::now();
        let mut state = Replay { now_s: self.node.now_s(), seed: self.node.seed, ..Replay::default() };
        let mut reader = self.journal.read(self.journal.start())?;
        while let Some(item) = reader.next()? {
            match item {
                Item::Entry(entry) => {
                    let mut partition = self.partition.head.write();
                    let samples = state.samples;
                    let grown = state.apply(entry.dictionary, entry.payload, &mut partition);
                    self.partition.head_bytes.fetch_add(grown as u64, Ordering::Relaxed); // wraps where it shrank
                    self.node.metrics.replayed_samples.add(state.samples - samples);
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
        self.node.metrics.lost_records.add(self.journal.stats().lost_records + state.unreadable);
        tracing::info!(
            partition = self.number,
            records = state.records,
            samples = state.samples,
            unreadable = state.unreadable,
            nameless = state.nameless,
            seconds = began.elapsed().as_secs_f64(),
            "replayed"
        );
        Ok(End::Complete)
    }

    /// Nobody writes before replay is done, so what comes here is the word to stop.
    fn told_to_stop(&self) -> bool {
        match self.commands.try_recv() {
            Ok(Command::Stop) => true,
            Ok(Command::Write(submission)) => {
                submission.turn_away(Refusal::busy("replaying", "the journal is being replayed"));
                false
            }
            Err(_) => false,
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
    unreadable: u64,
    /// Samples whose series' definition was lost.
    nameless: u64,
}

impl Replay {
    /// Applies one record; says by how many bytes the head grew.
    fn apply(&mut self, dictionary: DictionaryId, payload: &[u8], partition: &mut Partition) -> i64 {
        self.records += 1;
        if self.dictionary != Some(dictionary) {
            self.dictionary = Some(dictionary);
            self.series_of.clear();
        }
        if let Err(error) = self.record.decode(payload) {
            self.unreadable += 1;
            tracing::error!(%error, "journal record is intact but cannot be understood; passed over");
            return 0;
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
                head.put_exemplar(series, exemplar);
            }
        }
        head.memory_bytes() as i64 - before as i64
    }
}
