//! Replay for closed tenants: once their tables can be read, loads the missing samples into the head.
//!
//! ```text
//!   sealer ── read ──▶ owner      opens a reader of the journal, which has all samples of the tenant: its writes are refused
//!      │ decode, skip samples that the table has, resolve references to labels
//!      ├── a few hundred samples ──▶ owner ─▶ head      repeatedly, between groups
//!      └─ reopen                                        the tenant is open again
//! ```
//!
//! After a failure, the replay starts from the beginning. The head discards samples that it already has.
//!
//! If labels exceed the memory limit, a dictionary is read in *passes*. Each pass loads the next definitions that fit,
//! and the samples of these series.

use super::Halt;
use super::buffers::Buffers;
use super::demand::survey;
use super::marks::Sealed;
use super::references::References;
use crate::limits::head_memory::HeadMemory;
use crate::partition::{Owner, Owners, Read};
use admission::watermarks;
use head::TenantHead;
use journal::{Entry, Item, JournalError, Offset, Reader, RecordError};
use model::{Labels, SeriesKey, SeriesRef, TenantId, Values};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stdx::budget::{Account, Exhausted, Reservation};
use tables::delta::Floodmark;

const BATCH_SAMPLES: usize = 256;

const TURN_BYTES: usize = 1 << 20;

/// Memory of a definition, excluding its labels.
const DEFINITION_BYTES: usize = 96;

#[derive(Debug)]
pub(crate) struct ClosedBatch {
    tenant: TenantId,
    series: Vec<Labels>,
    /// For each sample, the index in `series` of the series it belongs to.
    of: Vec<usize>,
    timestamps: Vec<i64>,
    values: Values,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClosedReplayError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Memory(#[from] Exhausted),
    #[error(
        "cannot replay the journal for closed tenants within {limit_mib} MiB, half of the account flush; \
         raise the limit with --memory"
    )]
    NoRoom { limit_mib: u64 },
    #[error("partition {0} is closed")]
    Closed(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClosedTurn {
    More,
    /// The heads are full. The caller must abandon this replay, free its memory, and restart it later.
    NoRoom,
    Done,
}

#[derive(Debug)]
pub(crate) struct ClosedReplay {
    pub(crate) number: usize,
    /// The tenants for which the journal is replayed. The floodmark in a tenant's table tells which samples the table
    /// already has.
    pub(crate) tenants: BTreeMap<TenantId, Arc<Floodmark>>,
    /// End of the journal at the time when its reader was opened.
    pub(crate) end: Offset,
    reader: Box<dyn Reader>,
    dictionary: Option<Dictionary>,
    buffers: Buffers,
    pub(crate) samples: u64,
    /// Limits the memory of this replay. The limit was reserved from the account `flush`.
    account: Account,
    _memory: Reservation,
}

#[derive(Debug)]
struct Dictionary {
    id: journal::DictionaryId,
    begin: Offset,
    number: u32,
    references: References,
    labels: HashMap<TenantId, HashMap<SeriesRef, Labels>>,
    /// Limit on the bytes of `labels`: half of the account, or less if decoding needs more memory.
    labels_max: u64,
    limit_bytes: u64,
    memory: Reservation,
    /// Number of needed definitions that this pass has come across.
    definitions: u64,
    /// The definitions that this pass loads, as positions among all needed definitions of the dictionary. The end is
    /// unknown (`u64::MAX`) until memory is used up.
    pass: Range<u64>,
}

impl ClosedReplay {
    /// Starts at the first record that some tenant's table may lack. Reserves half of the account `flush`: the half
    /// that is meant for compaction, because sealing uses the other half.
    pub(crate) fn begin(
        number: usize,
        tenants: BTreeMap<TenantId, Arc<Floodmark>>,
        flush: &Account,
        owners: &mut impl Owners,
    ) -> Result<Self, ClosedReplayError> {
        let memory = flush.reserve(flush.limit_bytes() / 2)?;
        let account = Account::new("flush", memory.bytes());
        let from = tenants.values().map(|floodmark| floodmark.upto).min().unwrap_or(0);
        let Read { reader, end } =
            owners.read(number, Offset(from)).ok_or(ClosedReplayError::Closed(number))?;
        let buffers = Buffers::new(account.reserve(0)?);
        let (reader, dictionary) = (reader?, None);
        Ok(Self { number, tenants, end, reader, dictionary, buffers, samples: 0, account, _memory: memory })
    }

    pub(crate) fn turn(
        &mut self,
        heads: &HeadMemory,
        owners: &mut impl Owners,
    ) -> Result<ClosedTurn, ClosedReplayError> {
        let Self { number, tenants, reader, dictionary, buffers, samples, account, .. } = self;
        let mut read_bytes = 0;
        while read_bytes < TURN_BYTES {
            let Some(item) = reader.next()? else {
                let Some(known) = dictionary.as_mut().filter(|known| known.has_more()) else {
                    return Ok(ClosedTurn::Done);
                };
                *reader = known.next_pass(*number, owners)?;
                continue;
            };
            if heads.is_filled_to(watermarks::REFUSE_CLOSED) {
                return Ok(ClosedTurn::NoRoom);
            }
            // damage was already reported when the partition itself was replayed
            let Item::Entry(entry) = item else { continue };
            read_bytes += entry.payload.len();
            let known = match dictionary.take() {
                Some(known) if known.id == entry.dictionary => known,
                Some(mut known) if known.has_more() => {
                    *reader = known.next_pass(*number, owners)?;
                    *dictionary = Some(known);
                    continue;
                }
                done => {
                    // must be freed first: the next dictionary needs the memory
                    drop(done);
                    Dictionary::survey(*number, &entry, tenants, account, owners)?
                }
            };
            let known = dictionary.insert(known);
            known.number += 1;
            match buffers.decode(entry.payload) {
                Ok(()) => {}
                Err(RecordError::NoRoom { .. }) if known.narrow_pass() => {
                    *reader = known.read_again(*number, owners)?;
                    continue;
                }
                Err(RecordError::NoRoom { .. }) => {
                    return Err(ClosedReplayError::NoRoom { limit_mib: account.limit_bytes() >> 20 });
                }
                Err(_) => continue,
            }
            if let Some(floodmark) = tenants.get(&buffers.record.tenant) {
                let sealed = Sealed::of(floodmark, entry.offset);
                known.define(buffers, matches!(sealed, Sealed::All))?;
                if !matches!(sealed, Sealed::All) {
                    sealed.leave_out(&mut buffers.record, entry.offset);
                    for batch in known.batches(buffers) {
                        *samples += batch.of.len() as u64;
                        owners.add_closed(*number, batch).ok_or(ClosedReplayError::Closed(*number))?;
                    }
                }
            }
            buffers.settle();
        }
        Ok(ClosedTurn::More)
    }
}

impl Dictionary {
    /// Reads the dictionary that begins with `entry` and finds out which of its definitions are needed.
    fn survey(
        number: usize,
        entry: &Entry<'_>,
        tenants: &BTreeMap<TenantId, Arc<Floodmark>>,
        account: &Account,
        owners: &mut impl Owners,
    ) -> Result<Self, ClosedReplayError> {
        let mut references = References::new(account.reserve(0)?);
        let mut memory = account.reserve(0)?;
        let read = owners.read(number, entry.offset).ok_or(ClosedReplayError::Closed(number))?;
        let is_sealed = |tenant: &TenantId, offset| {
            tenants.get(tenant).map(|floodmark| matches!(Sealed::of(floodmark, offset), Sealed::All))
        };
        match survey(&mut *read.reader?, entry.dictionary, &mut references, &mut memory, is_sealed) {
            Ok(()) => {}
            Err(Halt::Journal(error)) => return Err(error.into()),
            Err(Halt::NoRoom | Halt::Stopped) => {
                return Err(ClosedReplayError::NoRoom { limit_mib: account.limit_bytes() >> 20 });
            }
        }
        drop(memory);
        Ok(Self {
            id: entry.dictionary,
            begin: entry.offset,
            number: 0,
            references,
            labels: HashMap::new(),
            labels_max: account.limit_bytes().saturating_sub(account.used_bytes()) / 2,
            limit_bytes: account.limit_bytes(),
            memory: account.reserve(0)?,
            definitions: 0,
            pass: 0..u64::MAX,
        })
    }

    /// Loads the record's definitions that are needed and belong to this pass.
    fn define(&mut self, buffers: &Buffers, sealed: bool) -> Result<(), ClosedReplayError> {
        let record = &buffers.record;
        let (slots, _) = self.references.of(&record.tenant)?;
        let labels = self.labels.entry(record.tenant.clone()).or_default();
        for (given, text) in record.definitions.iter() {
            if sealed && !slots.wants(given, self.number) {
                continue;
            }
            // the reference was given to a new series, to which later samples belong
            labels.remove(&given);
            let definition = self.definitions;
            self.definitions += 1;
            if !self.pass.contains(&definition) {
                continue;
            }
            let bytes = self.memory.bytes() + (text.as_bytes().len() + DEFINITION_BYTES) as u64;
            // each pass loads at least one definition, so the number of passes is limited
            let is_first = definition == self.pass.start;
            if (is_first || bytes <= self.labels_max) && self.memory.resize(bytes).is_ok() {
                labels.insert(given, text.to_owned());
            } else if is_first {
                return Err(ClosedReplayError::NoRoom { limit_mib: self.limit_bytes >> 20 });
            } else {
                self.pass.end = definition;
            }
        }
        Ok(())
    }

    const fn has_more(&self) -> bool {
        self.definitions > self.pass.end
    }

    fn next_pass(
        &mut self,
        number: usize,
        owners: &mut impl Owners,
    ) -> Result<Box<dyn Reader>, ClosedReplayError> {
        self.pass = self.pass.end..u64::MAX;
        self.read_again(number, owners)
    }

    /// Allows half as much memory for definitions, after which the pass must start again. Returns false if that
    /// cannot help because the pass has only one definition.
    fn narrow_pass(&mut self) -> bool {
        let taken = self.definitions.min(self.pass.end).saturating_sub(self.pass.start);
        self.labels_max = self.memory.bytes() / 2;
        self.pass.end = u64::MAX;
        taken > 1
    }

    /// Discards the labels that were loaded, and opens a reader at the dictionary's first record.
    fn read_again(
        &mut self,
        number: usize,
        owners: &mut impl Owners,
    ) -> Result<Box<dyn Reader>, ClosedReplayError> {
        (self.number, self.definitions) = (0, 0);
        self.labels = HashMap::new();
        self.memory.resize(0)?;
        let read = owners.read(number, self.begin).ok_or(ClosedReplayError::Closed(number))?;
        Ok(read.reader?)
    }

    fn batches<'a>(&'a self, buffers: &'a Buffers) -> impl Iterator<Item = ClosedBatch> + 'a {
        let record = &buffers.record;
        let labels = self.labels.get(&record.tenant);
        let batches = (0..record.refs.len()).step_by(BATCH_SAMPLES).map(move |from| {
            let to = record.refs.len().min(from + BATCH_SAMPLES);
            let mut batch = ClosedBatch {
                tenant: record.tenant.clone(),
                series: Vec::new(),
                of: Vec::new(),
                timestamps: Vec::new(),
                values: Values::new(record.values.kind()),
            };
            let mut numbers = HashMap::new();
            for i in from..to {
                // every sample has a definition unless the journal is damaged
                let Some(labels) = labels.and_then(|labels| labels.get(&record.refs[i])) else { continue };
                let number = *numbers.entry(record.refs[i]).or_insert_with(|| {
                    batch.series.push(labels.clone());
                    batch.series.len() - 1
                });
                batch.of.push(number);
                batch.timestamps.push(record.timestamps[i]);
                batch.values.extend(record.values.as_ref().slice(i..i + 1));
            }
            batch
        });
        batches.filter(|batch| !batch.of.is_empty())
    }
}

impl Owner {
    /// Removes a closed tenant's samples from the head. They remain in the journal.
    pub(in crate::partition) fn discard(&self, tenant: &TenantId) -> Option<Box<TenantHead>> {
        let mut partition = self.partition.head.write();
        let taken = partition.take_series(tenant);
        self.partition.grew(partition.take_change());
        taken.map(Box::new)
    }

    /// Adds samples of a closed tenant to the head. They come from the journal, so they are not recorded again.
    pub(in crate::partition) fn add_closed(&self, batch: &ClosedBatch) {
        let ClosedBatch { tenant, series, of, timestamps, values } = batch;
        let now_s = self.context.steady_s();
        {
            let mut partition = self.partition.head.write();
            let before = partition.memory_bytes_of(tenant);
            let head = partition.tenant_mut(tenant);
            assert!(!head.is_frozen(), "BUG: a closed tenant is frozen");
            let create = |labels: &Labels| {
                let key = SeriesKey::of(labels.as_bytes(), self.context.seed);
                head.create_of(values.kind(), key, labels.as_ref())
            };
            let series: Vec<_> = series.iter().map(create).collect();
            let refs: Vec<_> = of.iter().map(|number| series[*number]).collect();
            head.append(&refs, timestamps, values, now_s);
            self.partition.grew(head.memory_bytes() as isize - before as isize);
        }
        self.context.metrics.replayed_samples.add(of.len() as u64);
        let (unsealed, now_ms) = (&self.partition.unsealed_since_ms, self.context.clock.now_ms());
        let _ = unsealed.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed); // keeps the oldest
    }
}
