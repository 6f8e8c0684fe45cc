//! The thread that writes the journal of records.
//!
//! One sync makes a group of batches durable. A batch is in the buffer before it is answered, so that whoever reads after
//! the answer sees it.

use super::batch::{BATCH_BYTES, Batch, Stored, Submission};
use super::buffer::Durable;
use super::home::Home;
use super::ids::{ID_BYTES, Ids, Known, REMEMBERED_US};
use super::{JournalFacts, Shared};
use crate::refusal::Refusal;
use bytes::Bytes;
use journal::records::{self, BATCH_VERSION, BatchError, BatchHeader, Content, StoredId, StoredIds};
use journal::{Item, Journal, JournalError, Offset, RECORD_BYTES_MAX};
use model::{BatchId, TenantId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use stdx::budget::Reservation;
use stdx::clock::Clock;

/// A group is made durable when its batches have this many bytes, or if no other batch is waiting.
const GROUP_BYTES: usize = 8 << 20;

/// Ids are forgotten, and their memory is adjusted, this often.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// A replay that waits for memory looks this often whether the node stops.
const STOP_POLL: Duration = Duration::from_millis(100);

/// During replay, ids are forgotten whenever there are this many more.
const IDS_UNTIDY: usize = 10_000;

/// Ids in one record, when they are written again.
const CARRIED_IDS: usize = 10_000;

#[derive(Debug)]
pub(crate) enum Command {
    Store(Box<Submission>),
    /// Deletes the records of the journal whose batches are all in tables.
    Truncate,
    Stop,
}

#[derive(Debug)]
pub(crate) struct Owner {
    shared: Arc<Shared>,
    home: Home,
    /// `None` until the first batch arrives, if there were none in earlier runs.
    journal: Option<Box<dyn Journal>>,
    commands: Receiver<Command>,
    clock: Arc<dyn Clock>,
    stopping: Arc<AtomicBool>,
    ids: Ids,
    /// Memory of the ids.
    ids_memory: Reservation,
    group: Vec<Submission>,
    /// True if the last group found the disk full.
    was_full: bool,
    is_stopped: bool,
}

impl Owner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        home: Home,
        commands: Receiver<Command>,
        clock: Arc<dyn Clock>,
        stopping: Arc<AtomicBool>,
    ) -> Self {
        let ids_memory = shared.ids.reserve(0).expect("BUG: cannot reserve 0 bytes");
        Self {
            shared,
            home,
            journal: None,
            commands,
            clock,
            stopping,
            ids: Ids::default(),
            ids_memory,
            group: Vec::new(),
            was_full: false,
            is_stopped: false,
        }
    }

    /// Runs until the node stops and every submission is answered.
    pub(crate) fn run(mut self) {
        match self.begin() {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::error!(%error, "records cannot be stored, because their journal cannot be read");
                return self.refuse_until_stopped(&Refusal::from(&error));
            }
        }
        self.shared.ready.send_replace(true);
        while !self.is_stopped {
            self.turn();
        }
    }

    /// Opens and replays the journal, if there is one. Returns false if the node is stopping.
    fn begin(&mut self) -> Result<bool, JournalError> {
        match self.home.exists()? {
            true => self.open_and_replay(),
            false => Ok(true),
        }
    }

    fn open_and_replay(&mut self) -> Result<bool, JournalError> {
        let began = self.clock.instant();
        let journal = self.open()?;
        let opened = self.clock.instant();
        let is_replayed = self.replay(&*journal)?;
        let seconds = |from, to: std::time::Instant| to.saturating_duration_since(from).as_secs_f64();
        tracing::info!(
            offsets = journal.durable_end().0 - journal.start().0,
            opening_seconds = seconds(began, opened),
            seconds = seconds(opened, self.clock.instant()),
            "replayed the journal of records"
        );
        self.journal = Some(journal);
        self.publish();
        Ok(is_replayed)
    }

    fn open(&self) -> Result<Box<dyn Journal>, JournalError> {
        let (journal, mark) = self.home.open()?;
        let quarantine = Mutex::new(self.home.quarantine());
        let facts = JournalFacts { mark: Mutex::new(mark), quarantine };
        if let Err(JournalFacts { mark, .. }) = self.shared.journal.set(facts)
            && let Some(facts) = self.shared.journal.get()
        {
            // it was opened before, and failed later
            *facts.mark.lock() = mark.into_inner();
        }
        Ok(journal)
    }

    fn refuse_until_stopped(&self, refusal: &Refusal) {
        let _ = self.shared.failed.set(refusal.clone()); // nobody else sets it
        let _ = self.shared.ready.send_replace(true); // the refusal says more than that replay is not done
        while let Ok(command) = self.commands.recv() {
            match command {
                Command::Store(submission) => {
                    let _ = submission.reply.send(Err(refusal.clone())); // the client may be gone
                }
                Command::Truncate => {}
                Command::Stop => return,
            }
        }
    }

    /// Puts the batches of the journal into the buffer. Those that a table has are found out when the stream is loaded.
    /// Returns false if the node is stopping.
    fn replay(&mut self, journal: &dyn Journal) -> Result<bool, JournalError> {
        let mut reader = journal.read(journal.start())?;
        loop {
            let damage = match reader.next()? {
                None => break,
                Some(Item::Damage(damage)) => damage,
                Some(Item::Entry(entry)) => {
                    let (offset, payload) = (entry.offset, entry.payload.to_vec());
                    match records::read_content(&payload) {
                        Ok(content) => {
                            if !self.replay_record(offset, content, payload) {
                                return Ok(false);
                            }
                            continue;
                        }
                        // a later build has written it: it must not be deleted
                        Err(BatchError::Version(found)) => {
                            return Err(JournalError::RecordVersion { offset, found, known: BATCH_VERSION });
                        }
                        Err(error) => {
                            tracing::error!(%error, "a record of the journal of records cannot be decoded");
                            reader.quarantine("an undecodable batch of records")
                        }
                    }
                }
            };
            self.shared.metrics.damaged.inc();
            tracing::error!(?damage, "the journal of records is damaged");
        }
        self.tidy();
        Ok(true)
    }

    fn replay_record(&mut self, offset: Offset, content: Content, payload: Vec<u8>) -> bool {
        match content {
            Content::Ids(StoredIds { tenant, ids }) => {
                for StoredId { id, arrival_us, records } in ids {
                    self.ids.note(&tenant, BatchId::of_bytes(id), Known { arrival_us, records, offset });
                }
                self.tidy();
                true
            }
            Content::Batch(header) => {
                if let Some(id) = header.id {
                    let known = Known { arrival_us: header.arrival_us, records: header.records, offset };
                    self.ids.note(&header.tenant, BatchId::of_bytes(id), known);
                }
                if self.ids.len() % IDS_UNTIDY == IDS_UNTIDY - 1 {
                    self.tidy();
                }
                let Some(memory) = self.memory_for(payload.len() as u64) else { return false };
                let BatchHeader { tenant, stream, id, arrival_us, records } = header;
                let id = id.map(BatchId::of_bytes);
                self.shared.known.note(&tenant, &stream);
                let batch =
                    Batch { tenant, stream, id, arrival_us, records, payload: payload.into(), memory };
                self.shared.buffer.add(Durable { offset, batch, since: self.clock.instant() });
                true
            }
        }
    }

    /// Reserves memory for a batch of the journal. Waits until the loader has freed enough. `None` if the node stops.
    fn memory_for(&self, bytes: u64) -> Option<Reservation> {
        // the node may have had more memory when it wrote the batch
        let most = self.shared.records.limit_bytes() / 2;
        loop {
            if let Ok(memory) = self.shared.records.reserve((bytes + BATCH_BYTES as u64).min(most)) {
                return Some(memory);
            }
            if self.stopping.load(Ordering::Acquire) {
                return None;
            }
            self.shared.buffer.wait_for_release(STOP_POLL);
        }
    }

    fn turn(&mut self) {
        let mut next = match self.commands.recv_timeout(TIDY_EVERY) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Command::Stop),
        };
        let (mut bytes, mut truncates) = (0, false);
        while let Some(command) = next {
            match command {
                Command::Store(submission) => match too_large(&submission) {
                    None => {
                        bytes += submission.batches.iter().map(|batch| batch.payload.len()).sum::<usize>();
                        self.group.push(*submission);
                    }
                    Some(bytes) => {
                        let error = JournalError::TooLarge { bytes };
                        let _ = submission.reply.send(Err(Refusal::from(&error))); // the client may be gone
                    }
                },
                Command::Truncate => truncates = true,
                Command::Stop => self.is_stopped = true,
            }
            next = if bytes >= GROUP_BYTES { None } else { self.commands.try_recv().ok() };
        }
        self.commit();
        self.tidy();
        if truncates {
            self.truncate();
        }
        self.publish();
    }

    fn commit(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group.is_empty() {
            return;
        }
        let now_us = self.clock.now_ms().saturating_mul(1000);
        let (mut fresh, mut replies) = (Vec::new(), Vec::new());
        let mut in_group: HashMap<(TenantId, BatchId), u32> = HashMap::new();
        for Submission { batches, reply } in group {
            let mut stored = Stored { records: 0, was_known: true };
            // whether the answer depends on this group
            let mut waits = false;
            for batch in batches {
                if let Some(id) = batch.id {
                    let known = self.ids.get(&batch.tenant, &id);
                    if let Some(known) = known.filter(|known| known.arrival_us >= now_us - REMEMBERED_US) {
                        self.shared.metrics.repeated.inc();
                        stored.records += known.records;
                        continue;
                    }
                    waits = true;
                    if let Some(records) = in_group.get(&(batch.tenant.clone(), id)) {
                        stored.records += records;
                        continue;
                    }
                    in_group.insert((batch.tenant.clone(), id), batch.records);
                }
                waits = true;
                stored.records += batch.records;
                stored.was_known = false;
                fresh.push(batch);
            }
            match waits {
                true => replies.push((stored, reply)),
                false => {
                    let _ = reply.send(Ok(stored)); // the client may be gone
                }
            }
        }
        match self.make_durable(fresh.iter().map(|batch| &batch.payload)) {
            Ok(offsets) => {
                self.was_full = false;
                let now = self.clock.instant();
                for (batch, offset) in fresh.into_iter().zip(offsets) {
                    let records = batch.records;
                    if let Some(id) = batch.id {
                        let known = Known { arrival_us: batch.arrival_us, records, offset };
                        self.ids.note(&batch.tenant, id, known);
                    }
                    self.shared.known.note(&batch.tenant, &batch.stream);
                    self.shared.metrics.records.add(u64::from(records));
                    self.shared.metrics.payload_bytes.add(batch.payload.len() as u64);
                    self.shared.buffer.add(Durable { offset, batch, since: now });
                }
                for (stored, reply) in replies {
                    let _ = reply.send(Ok(stored)); // the client may be gone
                }
            }
            Err(error) => {
                self.was_full = matches!(error, JournalError::Full { .. });
                if let Some(journal) = &mut self.journal {
                    journal.abandon();
                }
                self.shared.metrics.group_failures.inc();
                tracing::warn!(%error, batches = fresh.len(), "cannot write records to the journal; they are refused");
                for (_, reply) in replies {
                    let _ = reply.send(Err(Refusal::from(&error))); // the client may be gone
                }
            }
        }
    }

    fn make_durable<'a>(
        &mut self,
        payloads: impl Iterator<Item = &'a Bytes>,
    ) -> Result<Vec<Offset>, JournalError> {
        let mut payloads = payloads.peekable();
        if payloads.peek().is_none() {
            return Ok(Vec::new());
        }
        if self.journal.is_none() {
            self.open_and_replay()?;
        }
        let journal = self.journal.as_mut().expect("BUG: the journal was just opened");
        journal.begin()?;
        let offsets = payloads.map(|payload| journal.append(payload)).collect::<Result<_, _>>()?;
        let began = self.clock.instant();
        journal.sync()?;
        let took = self.clock.instant().saturating_duration_since(began);
        self.shared.metrics.sync_seconds.observe(took.as_secs_f64());
        Ok(offsets)
    }

    /// Forgets old ids, and those for which there is no memory.
    fn tidy(&mut self) {
        let now_us = self.clock.now_ms().saturating_mul(1000);
        self.ids.forget(now_us - REMEMBERED_US);
        while self.ids_memory.resize(self.ids.len() as u64 * ID_BYTES).is_err() && self.ids.len() > 0 {
            self.ids.forget_one();
            self.shared.metrics.ids_forgotten.inc();
        }
    }

    /// Deletes records that are no longer needed. Ids in them that are still remembered are written again first.
    fn truncate(&mut self) {
        let Some(journal) = &self.journal else { return };
        let before = self.shared.buffer.first().unwrap_or_else(|| journal.durable_end());
        // only whole segments can be deleted. The newest one stays, unless the disk is full and it can be replaced by a
        // segment in disk space that is reserved
        let replaces = self.was_full && before >= journal.durable_end();
        let before = if replaces { before } else { journal.dictionary_start(before) };
        if journal.start() >= before {
            return;
        }
        if replaces && let Some(journal) = &mut self.journal {
            journal.end_dictionary();
            if let Err(error) = journal.begin() {
                return tracing::warn!(%error, "cannot replace the last segment of the journal of records");
            }
        }
        let carried = self.carry_ids(before).or_else(|error| {
            // a new segment may use disk space that is reserved
            if let (JournalError::Full { .. }, Some(journal)) = (&error, &mut self.journal) {
                journal.end_dictionary();
                return self.carry_ids(before);
            }
            Err(error)
        });
        let journal = self.journal.as_mut().expect("BUG: the journal was closed");
        if let Err(error) = carried.and_then(|()| journal.truncate(before)) {
            journal.abandon();
            tracing::warn!(%error, "cannot delete old segments from the journal of records");
        }
    }

    fn carry_ids(&mut self, before: Offset) -> Result<(), JournalError> {
        let mut by_tenant: HashMap<TenantId, Vec<(BatchId, Known)>> = HashMap::new();
        for (tenant, id, known) in self.ids.below(before) {
            by_tenant.entry(tenant.clone()).or_default().push((id, known));
        }
        for (tenant, all) in by_tenant {
            for some in all.chunks(CARRIED_IDS) {
                let stored = |(id, known): &(BatchId, Known)| {
                    let Known { arrival_us, records, .. } = *known;
                    StoredId { id: id.to_bytes(), arrival_us, records }
                };
                let ids: Vec<_> = some.iter().map(stored).collect();
                let payload = Bytes::from(records::ids::encode(&tenant, &ids));
                let offset = self.make_durable(std::iter::once(&payload))?[0];
                for (id, known) in some {
                    self.ids.note(&tenant, *id, Known { offset, ..*known });
                }
            }
        }
        Ok(())
    }

    fn publish(&self) {
        let Some(journal) = &self.journal else { return };
        let (stats, metrics) = (journal.stats(), &self.shared.metrics);
        metrics.journal_bytes.set(stats.bytes as f64);
        metrics.ids.set(self.ids.len() as f64);
    }
}

/// The size of a batch that no journal takes. It would be refused together with all others of its group.
fn too_large(submission: &Submission) -> Option<usize> {
    let sizes = submission.batches.iter().map(|batch| batch.payload.len());
    sizes.max().filter(|bytes| *bytes > RECORD_BYTES_MAX)
}
