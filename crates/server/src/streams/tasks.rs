//! What others ask of the loader: to load all records that are durable now, and to delete those that are then in tables.
//!
//! ```text
//!   load each stream up to the end that it had ─▶ remove the files of its table ─▶ answer
//! ```
//!
//! The tables of deleted streams remain without files, because their floodmarks keep old records in the journal from being
//! loaded again. Between two steps, streams that are due are loaded, but not those that the task has still to delete.

use super::buffer::Key;
use super::listing::Listing;
use super::loader::Loader;
use super::{Shared, Streams};
use crate::deletes::tenant::Removed;
use crate::refusal::Refusal;
use crate::seal::tenant_tables::TenantTables;
use journal::Offset;
use model::{StreamName, TenantId};
use std::sync::mpsc::TrySendError;
use tables::{RECORDS, Table, TableError};
use tokio::sync::oneshot;

/// At most this many tasks wait. Each is one request.
pub(crate) const TASKS_MAX: usize = 16;

/// So many files are deleted at once; upkeep deletes the others, little by little.
const ERASED_AT_ONCE: usize = 50;

/// The streams that a task is for.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    Tenant(TenantId),
    Stream(Key),
}

#[derive(Debug)]
pub(crate) struct Task {
    goal: Goal,
    reply: oneshot::Sender<Result<Removed, Refusal>>,
}

#[derive(Debug)]
enum Goal {
    /// All records that are durable are in tables.
    Flushed,
    /// Those of these streams are deleted.
    Deleted(Scope),
}

/// The task that is being done.
#[derive(Debug)]
pub(super) struct Running {
    task: Task,
    /// Streams that have to be loaded up to an offset.
    loads: Vec<(Key, Offset)>,
    /// Streams whose files are removed then.
    removes: Option<Listing>,
    /// The stream whose files are being removed.
    removing: Option<Key>,
    /// All streams up to this one are done.
    done: Option<StreamName>,
    removed: Removed,
}

impl Scope {
    fn has(&self, (tenant, stream): &Key) -> bool {
        match self {
            Self::Tenant(of) => of == tenant,
            Self::Stream((of, name)) => of == tenant && name == stream,
        }
    }

    fn listing(&self) -> Listing {
        match self {
            Self::Tenant(tenant) => Listing::of(tenant.clone()),
            Self::Stream(key) => Listing::only(key.clone()),
        }
    }
}

impl Streams {
    /// Loads all records that were acknowledged before the call.
    pub(crate) async fn flush(&self) -> Result<(), Refusal> {
        self.ask(Goal::Flushed).await.map(|_| ())
    }

    /// Deletes all records that were acknowledged before the call.
    pub(crate) async fn delete(&self, scope: Scope) -> Result<Removed, Refusal> {
        self.ask(Goal::Deleted(scope)).await
    }

    async fn ask(&self, goal: Goal) -> Result<Removed, Refusal> {
        self.wait_until_complete().await?;
        let (reply, answer) = oneshot::channel();
        match self.tasks.try_send(Task { goal, reply }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(Refusal::busy(
                    "flushing",
                    "too many flushes and deletes of streams wait already",
                ));
            }
            Err(TrySendError::Disconnected(_)) => return Err(Refusal::stopping()),
        }
        answer.await.map_err(|_| Refusal::stopping())?
    }
}

impl Running {
    fn new(task: Task, shared: &Shared) -> Self {
        let (loads, removes) = match &task.goal {
            Goal::Flushed => (shared.buffer.ends(|_| true), None),
            Goal::Deleted(scope) => (shared.buffer.ends(|key| scope.has(key)), Some(scope.listing())),
        };
        Self { task, loads, removes, removing: None, done: None, removed: Removed::default() }
    }

    /// True if the records of the stream have still to be deleted.
    pub(super) fn deletes(&self, key: &Key) -> bool {
        let is_done = self.done.as_ref().is_some_and(|done| key.1 <= *done);
        matches!(&self.task.goal, Goal::Deleted(scope) if scope.has(key)) && !is_done
    }
}

impl Loader {
    /// Does a step of the task that was asked for first. Returns false if there is none.
    pub(super) fn work(&mut self) -> bool {
        let running =
            self.running.take().or_else(|| Some(Running::new(self.tasks.try_recv().ok()?, &self.shared)));
        let Some(mut running) = running else { return false };
        let answer = match self.step(&mut running) {
            Ok(true) => Ok(running.removed),
            Ok(false) => {
                self.running = Some(running);
                return true;
            }
            Err(refusal) => Err(refusal),
        };
        let _ = running.task.reply.send(answer); // the client may be gone
        true
    }

    /// Returns true if the task is done.
    fn step(&mut self, running: &mut Running) -> Result<bool, Refusal> {
        if let Some((key, end)) = running.loads.last() {
            let is_loaded = self.shared.buffer.first_of(key).is_none_or(|first| first >= *end);
            if !is_loaded && !self.load(key, *end) {
                let message = format!(
                    "records of stream {} cannot be written to its table now; the log says why, and it will be retried",
                    key.1
                );
                return Err(Refusal::busy("tables", message));
            }
            if is_loaded {
                running.loads.pop();
            }
            return Ok(false);
        }
        let Some(removes) = &mut running.removes else { return Ok(true) };
        let unreadable = |error: TableError| {
            Refusal::busy("tables", format!("tables of streams cannot be read or written: {error}"))
        };
        let next = match running.removing.take() {
            Some(key) => Some(key),
            None => removes.next(&self.lake.tables).map_err(unreadable)?,
        };
        let Some(key) = next else { return Ok(true) };
        match self.remove_some(&key, &mut running.removed).map_err(unreadable)? {
            true => running.removing = Some(key),
            false => running.done = Some(key.1),
        }
        Ok(false)
    }

    /// Removes files of a stream's table, as many as a commit may remove. Returns false if there are none.
    fn remove_some(&mut self, key: &Key, removed: &mut Removed) -> Result<bool, TableError> {
        let _memory = self.reserve();
        let Some(table) = self.shared.tables.existing(&self.lake.tables, key)? else { return Ok(false) };
        // also after an error, some may have been removed
        self.upkeep.note(key, self.clock.instant());
        let mut files = table.remove_all()?;
        removed.files += files.len() as u64;
        removed.bytes += files.iter().map(|file| file.bytes).sum::<u64>();
        let is_empty = files.is_empty();
        files.truncate(ERASED_AT_ONCE);
        if let Err(error) = table.erase(&files) {
            let (tenant, stream) = key;
            tracing::warn!(%tenant, %stream, %error, "cannot delete files of deleted records now; upkeep does it later");
        }
        Ok(!is_empty)
    }
}

/// Number and size of the files that streams have in their tables.
pub(crate) fn files(tables: &TenantTables, scope: &Scope) -> Result<Removed, TableError> {
    let (mut found, mut listing) = (Removed::default(), scope.listing());
    while let Some(key) = listing.next(tables)? {
        let Some(table) = Table::open(&RECORDS, tables.stream(&key)?)? else { continue };
        let files = table.files()?;
        found.files += files.all().len() as u64;
        found.bytes += files.all().iter().map(|file| file.bytes).sum::<u64>();
    }
    Ok(found)
}

/// True if a tenant has tables of streams, which may be without files.
pub(crate) fn has_tables(tables: &TenantTables, tenant: &TenantId) -> Result<bool, TableError> {
    Ok(Listing::of(tenant.clone()).next(tables)?.is_some())
}

/// True if a tenant's streams have files in their tables.
pub(crate) fn has_files(tables: &TenantTables, tenant: &TenantId) -> Result<bool, TableError> {
    let mut listing = Listing::of(tenant.clone());
    while let Some(key) = listing.next(tables)? {
        if let Some(table) = Table::open(&RECORDS, tables.stream(&key)?)?
            && !table.files()?.all().is_empty()
        {
            return Ok(true);
        }
    }
    Ok(false)
}
