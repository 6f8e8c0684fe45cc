//! Datastreams: records become durable in a journal of their own, and then rows of one table for each stream.
//!
//! ```text
//!   handler ─ decode ─ encode ─▶ owner ─ append · sync ─▶ buffer ─▶ answer
//!                                                           │
//!   loader ◀───────── streams that are due ─────────────────┘
//!      ├─ stage: batches ─▶ Parquet files, not visible yet
//!      ├─ commit: files + floodmark, one entry in the log of the stream's table
//!      ├─ release the batches from the buffer
//!      └─ truncate the journal up to the first batch that is in no table
//! ```
//!
//! - [`batch`]: what a handler submits, and what is in the buffer
//! - [`owner`]: the thread that writes the journal; [`ids`]: batches that it does not store again
//! - [`home`]: the journal in the data directory; [`mark`]: how far it was certainly written, and its names in tables
//! - [`buffer`]: batches that are durable, but may be missing from tables
//! - [`loader`]: the thread that writes tables; [`tasks`]: what others ask of it; [`upkeep`]: what it does for tables;
//!   [`retention`]: whose records have expired
//! - [`quarantine`]: copies of batches that cannot be decoded
//! - [`tables`]: tables that are open; [`known`]: the streams of each tenant
//! - metrics are in `telemetry`
//!
//! Whoever reads a stream first takes its batches from the buffer, and then opens its table. The table's floodmark says
//! which of the batches are in the table as well.

pub(crate) mod batch;
pub(crate) mod buffer;
mod home;
mod ids;
pub(crate) mod known;
mod listing;
pub(crate) mod loader;
mod mark;
mod owner;
mod quarantine;
mod retention;
mod tables;
pub(crate) mod tasks;
mod telemetry;
mod upkeep;

use crate::limits::head_memory::HeadMemory;
use crate::refusal::Refusal;
use admission::WriteRefusal;
use batch::{Stored, Submission};
use buffer::Buffer;
pub(crate) use home::Home;
#[cfg(feature = "sql")]
use journal::Offset;
use known::KnownStreams;
use mark::Mark;
pub(crate) use owner::{Command, Owner};
use parking_lot::Mutex;
use quarantine::Quarantine;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stdx::budget::Account;
use stdx::telemetry::Registry;
use tables::StreamTables;
pub(crate) use telemetry::StreamMetrics;
use tokio::sync::{oneshot, watch};

/// The channel to the owner holds this many submissions. Each has reserved its memory.
pub(crate) const QUEUE_MAX: usize = 1024;

/// A request waits this long for the end of replay.
const REPLAY_WAIT: Duration = Duration::from_secs(5);

/// What is shared by handlers, the owner and the loader.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) commands: SyncSender<Command>,
    pub(crate) tasks: SyncSender<tasks::Task>,
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// Memory of the batches that are not in tables yet, in the form in which the journal has them.
    pub(crate) records: Account,
    /// Memory of the keys of batches.
    ids: Account,
    /// Memory in which the loader makes files.
    pub(crate) loading: Account,
    pub(crate) buffer: Buffer,
    pub(crate) known: KnownStreams,
    pub(crate) tables: StreamTables,
    pub(crate) metrics: StreamMetrics,
    /// Set once the journal is open.
    journal: OnceLock<JournalFacts>,
    /// True once the journal is replayed, or cannot be.
    pub(crate) ready: watch::Sender<bool>,
    /// Set if the journal cannot be replayed.
    failed: OnceLock<Refusal>,
}

/// What other threads than the owner know of the journal.
#[derive(Debug)]
struct JournalFacts {
    mark: Mutex<Mark>,
    quarantine: Mutex<Quarantine>,
}

impl Shared {
    pub(crate) fn new(heads: &HeadMemory, tables_bytes: usize, registry: &Registry) -> Self {
        let (records, loading) = (heads.records.clone(), heads.loading.clone());
        Self {
            known: KnownStreams::new(records.clone(), &heads.stream_names),
            ids: heads.record_ids.clone(),
            records,
            tables: StreamTables::within(tables_bytes, &loading),
            loading,
            buffer: Buffer::default(),
            metrics: StreamMetrics::new(registry),
            journal: OnceLock::new(),
            ready: watch::Sender::new(false),
            failed: OnceLock::new(),
        }
    }
}

#[cfg(feature = "sql")]
impl Shared {
    /// What tables call the batch at an offset, and the first offset after it that they call otherwise. `None` before the journal is
    /// open, and for batches that it has deleted, which are in tables.
    pub(crate) fn source_of(&self, offset: Offset) -> Option<(String, u64)> {
        let source = self.journal.get()?.mark.lock().source_of(offset)?;
        Some((source.name, source.end))
    }
}

impl Streams {
    /// Waits for the end of replay, which needs the memory that requests would take.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), Refusal> {
        let mut ready = self.shared.ready.subscribe();
        if tokio::time::timeout(REPLAY_WAIT, ready.wait_for(|is_ready| *is_ready)).await.is_err() {
            return Err(Refusal::busy(
                "replaying",
                "the journal of records is being replayed; try again later",
            ));
        }
        Ok(())
    }

    /// Waits until all records that are durable are in the buffer or in tables. Fails if the journal cannot be replayed: without
    /// its records, an answer would look complete, and a flush would be.
    pub(crate) async fn wait_until_complete(&self) -> Result<(), Refusal> {
        self.wait_until_ready().await?;
        self.shared.failed.get().map_or(Ok(()), |refusal| Err(refusal.clone()))
    }

    /// Stores the batches of a request. Returns once all are durable, or were already. If it fails, none of them was stored by
    /// this call.
    pub(crate) async fn store(&self, batches: Vec<batch::Batch>) -> Result<Stored, Refusal> {
        let (reply, answer) = oneshot::channel();
        match self.commands.try_send(Command::Store(Box::new(Submission { batches, reply }))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(WriteRefusal::QueueFull { limit: QUEUE_MAX }.into());
            }
            Err(TrySendError::Disconnected(_)) => return Err(Refusal::stopping()),
        }
        match answer.await {
            Ok(stored) => stored,
            Err(_) => {
                Err(Refusal::busy("journal", "the thread that writes the journal of records has ended"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
