//! From the journal back into the head, as a stream: one record in memory at a time.

use super::Owner;
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
    pub(super) fn replay(&mut self) -> Result<(), JournalError> {
        let began = Instant::now();
        let mut state = Replay { now_s: self.node.now_s(), seed: self.node.seed, ..Replay::default() };
        let mut reader = self.journal.read(self.journal.start())?;
        while let Some(item) = reader.next()? {
            match item {
                Item::Entry(entry) => {
                    let mut partition = self.partition.head.write();
                    let samples = state.samples;
                    state.apply(entry.dictionary, entry.payload, &mut partition);
                    self.node.metrics.replayed_samples.add(state.samples - samples);
                }
                Item::Damage(damage) => {
                    self.node.metrics.damaged_ranges.inc();
                    report(self.number, &damage);
                }
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
        let bytes = self.partition.head.read().memory_bytes() as u64;
        self.partition.head_bytes.store(bytes, Ordering::Relaxed);
        tracing::info!(
            partition = self.number,
            records = state.records,
            samples = state.samples,
            unreadable = state.unreadable,
            nameless = state.nameless,
            seconds = began.elapsed().as_secs_f64(),
            "replayed"
        );
        Ok(())
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
    fn apply(&mut self, dictionary: DictionaryId, payload: &[u8], partition: &mut Partition) {
        self.records += 1;
        if self.dictionary != Some(dictionary) {
            self.dictionary = Some(dictionary);
            self.series_of.clear();
        }
        if let Err(error) = self.record.decode(payload) {
            self.unreadable += 1;
            tracing::error!(%error, "journal record is intact but cannot be understood; passed over");
            return;
        }
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
    }
}
