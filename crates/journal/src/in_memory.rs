//! A journal in memory, which is the reference implementation for tests. They restart it with
//! [`Memory::reopen`], which keeps only the durable records.

use crate::{
    Damage, DictionaryId, Entry, Identity, Item, Journal, JournalError, JournalId, JournalStats, Offset,
    RECORD_BYTES_MAX, Reader,
};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Debug)]
pub struct Memory {
    shared: Arc<Mutex<Shared>>,
    pending: Vec<Arc<[u8]>>,
    /// The current dictionary. `None` if the next `begin` has to start a new one.
    dictionary: Option<DictionaryId>,
    void: bool,
    dictionary_records_max: usize,
    stats: JournalStats,
}

#[derive(Debug)]
struct Shared {
    id: JournalId,
    dictionaries: Vec<Dictionary>,
    next_id: u64,
    end: u64,
}

#[derive(Debug, Clone)]
struct Dictionary {
    id: DictionaryId,
    first: u64,
    records: Vec<Arc<[u8]>>,
}

impl Memory {
    /// Returns an empty journal in which a dictionary is full at `dictionary_records_max` records.
    pub fn new(id: JournalId, dictionary_records_max: usize) -> Self {
        let shared = Shared { id, dictionaries: Vec::new(), next_id: 0, end: 0 };
        Self::over(Arc::new(Mutex::new(shared)), dictionary_records_max)
    }

    /// The same journal as after a restart: without the records that were not synced.
    pub fn reopen(&self) -> Self {
        Self::over(Arc::clone(&self.shared), self.dictionary_records_max)
    }

    fn over(shared: Arc<Mutex<Shared>>, dictionary_records_max: usize) -> Self {
        let stats = JournalStats::default();
        Self { shared, pending: Vec::new(), dictionary: None, void: true, dictionary_records_max, stats }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("BUG: a journal's owner panicked")
}

impl Shared {
    fn start(&self) -> u64 {
        self.dictionaries.first().map_or(self.end, |d| d.first)
    }

    fn position(&self, offset: u64) -> usize {
        self.dictionaries.partition_point(|d| d.first <= offset).saturating_sub(1)
    }
}

impl Identity for Mutex<Shared> {
    fn id(&self) -> JournalId {
        lock(self).id
    }

    fn change(&self, number: u64) -> Result<(), JournalError> {
        lock(self).id.number = number;
        Ok(())
    }
}

impl Journal for Memory {
    fn identity(&self) -> Arc<dyn Identity> {
        Arc::clone(&self.shared) as _
    }

    fn skip_to(&mut self, offset: Offset) -> Result<(), JournalError> {
        assert!(self.void, "BUG: offsets are skipped after a group was begun");
        let mut shared = self.shared();
        shared.end = shared.end.max(offset.0);
        Ok(())
    }

    fn begin(&mut self) -> Result<DictionaryId, JournalError> {
        self.void = false;
        let max = self.dictionary_records_max;
        let mut shared = lock(&self.shared);
        let full = shared.dictionaries.last().is_none_or(|d| d.records.len() >= max);
        if let Some(id) = self.dictionary
            && (!full || !self.pending.is_empty())
        {
            return Ok(id);
        }
        let (id, first) = (DictionaryId(shared.next_id), shared.end);
        shared.next_id += 1;
        shared.dictionaries.retain(|d| !d.records.is_empty());
        shared.dictionaries.push(Dictionary { id, first, records: Vec::new() });
        self.dictionary = Some(id);
        Ok(id)
    }

    fn append(&mut self, payload: &[u8]) -> Result<Offset, JournalError> {
        if self.void {
            return Err(JournalError::Void);
        }
        if payload.len() > RECORD_BYTES_MAX {
            self.abandon();
            return Err(JournalError::TooLarge { bytes: payload.len() });
        }
        let offset = self.shared().end + self.pending.len() as u64;
        self.pending.push(Arc::from(payload));
        self.stats.appended_records += 1;
        self.stats.appended_bytes += payload.len() as u64;
        Ok(Offset(offset))
    }

    fn sync(&mut self) -> Result<Offset, JournalError> {
        if self.void {
            return Err(JournalError::Void);
        }
        let mut shared = lock(&self.shared);
        if !self.pending.is_empty() {
            self.stats.syncs += 1;
            self.stats.synced_records += self.pending.len() as u64;
            shared.end += self.pending.len() as u64;
            let last = shared.dictionaries.last_mut().expect("BUG: a group has no dictionary");
            last.records.append(&mut self.pending);
        }
        Ok(Offset(shared.end))
    }

    fn abandon(&mut self) {
        self.pending.clear();
        self.dictionary = None;
        self.stats.abandoned_groups += u64::from(!self.void);
        self.void = true;
    }

    fn end_dictionary(&mut self) {
        if self.pending.is_empty() {
            self.dictionary = None;
        } else {
            self.abandon();
        }
    }

    fn start(&self) -> Offset {
        Offset(self.shared().start())
    }

    fn durable_end(&self) -> Offset {
        Offset(self.shared().end)
    }

    fn dictionary_start(&self, offset: Offset) -> Offset {
        let shared = self.shared();
        Offset(shared.dictionaries.get(shared.position(offset.0)).map_or(shared.end, |d| d.first))
    }

    fn read(&self, from: Offset) -> Result<Box<dyn Reader>, JournalError> {
        let shared = self.shared();
        let next = from.0.max(shared.start());
        let dictionaries = shared.dictionaries.get(shared.position(next)..).unwrap_or_default().to_vec();
        Ok(Box::new(MemoryReader { dictionaries: dictionaries.into_iter(), current: None, next }))
    }

    fn truncate(&mut self, before: Offset) -> Result<(), JournalError> {
        let mut shared = self.shared();
        let dropped = shared.dictionaries.windows(2).take_while(|pair| pair[1].first <= before.0).count();
        shared.dictionaries.drain(..dropped);
        Ok(())
    }

    fn stats(&self) -> JournalStats {
        let shared = self.shared();
        let bytes = |d: &Dictionary| d.records.iter().map(|r| r.len() as u64).sum::<u64>();
        JournalStats {
            dictionaries: shared.dictionaries.len() as u64,
            bytes: shared.dictionaries.iter().map(bytes).sum(),
            ..self.stats
        }
    }
}

#[derive(Debug)]
struct MemoryReader {
    dictionaries: std::vec::IntoIter<Dictionary>,
    current: Option<Dictionary>,
    next: u64,
}

impl Reader for MemoryReader {
    fn next(&mut self) -> Result<Option<Item<'_>>, JournalError> {
        let ended = |d: &Dictionary, next: u64| next >= d.first + d.records.len() as u64;
        while self.current.as_ref().is_none_or(|d| ended(d, self.next)) {
            match self.dictionaries.next() {
                Some(dictionary) => {
                    // the offsets between two dictionaries may have been skipped
                    self.next = self.next.max(dictionary.first);
                    self.current = Some(dictionary);
                }
                None => return Ok(None),
            }
        }
        let Some(dictionary) = &self.current else { return Ok(None) };
        let offset = Offset(self.next);
        let payload = &dictionary.records[(self.next - dictionary.first) as usize];
        self.next += 1;
        Ok(Some(Item::Entry(Entry { offset, dictionary: dictionary.id, payload })))
    }

    fn quarantine(&mut self, what: &'static str) -> Damage {
        let offset = self.next - 1;
        Damage {
            place: format!("memory, offset {offset}"),
            lost: offset..self.next,
            acknowledged: true,
            repaired: false,
            what,
            copy: None,
        }
    }
}
