//! Events, such as deployments, that dashboards show as annotations. Graphite's API writes and reads them
//! ([`crate::http`]).
//!
//! ```text
//!   write ─▶ the tenant's log, one write at a time ─▶ append and sync ─▶ answer
//!                                                       └▶ full: the events that arrived first are removed
//!   read  ─▶ the tenant's file, from its begin to its end
//!   upkeep ─▶ events older than the tenant's retention are removed
//! ```
//!
//! Each tenant has one file, `DIR/events/TENANT.events`. Its size is limited, so that a reader may read all of it, and no
//! event is kept in memory. A reader needs no lock: a file only grows, or is replaced as a whole.
//!
//! - [`file`]: the bytes of a file
//! - [`log`]: what changes a file
//! - [`select`]: what a reader asks for
//! - [`tenants`]: the logs of all tenants
//! - [`source`]: events for Graphite's function `events`

mod file;
mod log;
mod select;
mod source;
mod tenants;
#[cfg(test)]
mod tests;

pub(crate) use file::{Place, Record, WHEN_MS_MAX};
pub(crate) use log::Event;
pub(crate) use select::{EventQuery, TAGS_BYTES_MAX, TAGS_MAX, TagSet};
pub(crate) use source::EventSource;

use crate::graphite_rules::Rules;
use crate::refusal::Refusal;
use crate::settings::TenantSettings;
use crate::wallclock::WallClock;
use file::{EXTENSION, scan};
use journal::Disk;
use journal::disk::{DiskFile, Mode};
use log::Log;
use model::{ErrorKind, TenantId};
use query::{Interrupt, SourceError};
use select::Matcher;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stdx::budget::Account;
use stdx::clock::Clock;
use stdx::telemetry::{Counter, Registry};
use tenants::{Tenants, User};

/// Limit on the body of a request with an event, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;

/// The least that a tenant's file may be limited to.
pub(crate) const FILE_BYTES_MIN: u64 = 256 << 10;

/// At most this many files are found at the start.
const FILES_MAX: usize = 1 << 20;

/// The events of all tenants.
#[derive(Debug)]
pub(crate) struct Events {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    tenants: Tenants,
    /// Counts damaged lines.
    damaged: Counter,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum EventsError {
    #[error("the events in {} cannot be read or written: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the events in {} have version {version}; this build reads version {}", path.display(), file::VERSION)]
    Version { path: PathBuf, version: u64 },
    #[error("the event takes {bytes} bytes, the limit is {}", file::RECORD_BYTES_MAX)]
    TooLarge { bytes: usize },
    #[error("the request has more than {TAGS_MAX} tags")]
    TooManyTags,
    #[error("the answer needs more memory than the query may hold; ask for a shorter time or for other tags")]
    Memory,
    #[error("the query was canceled")]
    Canceled,
}

impl EventsError {
    const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Canceled => ErrorKind::Unavailable,
            Self::Version { .. } => ErrorKind::Data,
            Self::TooManyTags => ErrorKind::Invalid,
            Self::TooLarge { .. } | Self::Memory => ErrorKind::TooLarge,
        }
    }
}

impl From<EventsError> for Refusal {
    fn from(error: EventsError) -> Self {
        let reason = if matches!(error, EventsError::TooLarge { .. }) { "body_size" } else { "events" };
        Self::new(error.kind(), reason, error.to_string())
    }
}

impl From<EventsError> for SourceError {
    fn from(error: EventsError) -> Self {
        Self { kind: error.kind(), message: error.to_string() }
    }
}

impl Events {
    /// Finds the files of all tenants. Their content is read when it is needed.
    pub(crate) fn open(disk: Arc<dyn Disk>, data_dir: &Path, account: Account, registry: &Registry) -> Self {
        let damaged = registry.counter(
            "floodmark_graphite_damaged_event_lines_total",
            "Damaged lines of files of events; kept in quarantine.",
        );
        let (dir, tenants) = (data_dir.join("events"), Tenants::new(account));
        let events = Self { disk, dir, tenants, damaged };
        match events.disk.list(&events.dir, FILES_MAX) {
            Ok(files) => files.iter().for_each(|file| events.found(&file.name, file.bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let dir = events.dir.display();
                tracing::warn!(%dir, %error, "cannot list the files of events: they are not removed after their retention");
            }
        }
        events
    }

    fn found(&self, name: &str, bytes: u64) {
        let tenant = name.strip_suffix(EXTENSION).and_then(|name| name.strip_suffix('.'));
        let Some(tenant) = tenant.and_then(|name| TenantId::parse(name).ok()) else {
            // a file that a killed process has not finished may have events that were deleted since then
            if name.ends_with(log::UNFINISHED) {
                let _ = self.disk.remove(&self.dir.join(name)); // the next replacement overwrites it
            }
            return;
        };
        let log = self.new_log(&tenant, Some(bytes));
        self.tenants.found(tenant, log);
    }

    fn new_log(&self, tenant: &TenantId, found_bytes: Option<u64>) -> Log {
        Log::new(Arc::clone(&self.disk), self.path(tenant), found_bytes, self.damaged.clone())
    }

    fn path(&self, tenant: &TenantId) -> PathBuf {
        self.dir.join(format!("{tenant}.{EXTENSION}"))
    }

    /// Stores an event. Returns its id once it is durable.
    pub(crate) async fn append(
        &self,
        tenant: &TenantId,
        event: Event,
        file_bytes_max: u64,
    ) -> Result<u64, Refusal> {
        let user = self.tenants.log(tenant, || self.new_log(tenant, None))?;
        with_log(user, move |log| log.append(&event, file_bytes_max)).await
    }

    /// Passes the events that `query` asks for to `each`, in the order in which they arrived. Returns the file, from which
    /// [`file::read`] reads them again; `None` if the tenant has none.
    pub(crate) fn find(
        &self,
        tenant: &TenantId,
        query: &EventQuery<'_>,
        interrupt: &dyn Interrupt,
        mut each: impl FnMut(Place, &Record<'_>) -> Result<(), EventsError>,
    ) -> Result<Option<EventFile>, EventsError> {
        if !interrupt.may_wait() {
            return Err(EventsError::Canceled);
        }
        let (mut matcher, path) = (Matcher::new(query)?, self.path(tenant));
        let file = match self.disk.open(&path, Mode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(EventsError::Io { path, source }),
        };
        scan(&*file, &path, |line| {
            if interrupt.is_set() {
                return Err(EventsError::Canceled);
            }
            if matcher.matches(&line.record, interrupt)? { each(line.place, &line.record) } else { Ok(()) }
        })?;
        Ok(Some(EventFile { file, path }))
    }

    /// Tenants that have a file.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        self.tenants.ids()
    }

    /// Present and largest size of a tenant's file.
    pub(crate) fn file_bytes(&self, tenant: &TenantId) -> (u64, u64) {
        self.tenants.file_bytes(tenant)
    }

    /// Removes the events before `before_ms`, at most once an hour. Skips a tenant whose events are being written now. Must
    /// not be called on a thread with async code.
    pub(crate) fn expire(&self, tenant: &TenantId, before_ms: i64) -> Result<(), EventsError> {
        // without a retention, the file need not be read
        let user = if before_ms > i64::MIN { self.tenants.known_log(tenant) } else { None };
        match user.as_ref().map(|user| user.log().try_lock()) {
            Some(Ok(mut log)) => log.expire(before_ms),
            _ => Ok(()),
        }
    }

    /// Deletes all events of a tenant that were acknowledged before the call.
    pub(crate) async fn delete(&self, tenant: &TenantId) -> Result<(), Refusal> {
        match self.tenants.known_log(tenant) {
            Some(user) => with_log(user, Log::delete).await,
            None => Ok(()),
        }
    }
}

/// Runs `work` once it is the user's turn. It ends even if the caller no longer waits for it.
async fn with_log<T: Send + 'static>(
    user: User,
    work: impl FnOnce(&mut Log) -> Result<T, EventsError> + Send + 'static,
) -> Result<T, Refusal> {
    let log = Arc::clone(user.log()).lock_owned().await;
    let work = move || {
        let _user = user;
        let mut log = log; // is dropped first
        work(&mut log)
    };
    Ok(tokio::task::spawn_blocking(work).await.map_err(panicked)??)
}

/// The time before which events of a tenant have expired, as its samples have. No event expires while the clock is in
/// doubt.
pub(crate) fn expired_before_ms(
    own: &TenantSettings,
    rules: &Rules,
    wall: &WallClock,
    clock: &dyn Clock,
) -> i64 {
    before_ms(own.samples_kept_ms(rules.schemas.rules()), wall, clock)
}

/// Like [`expired_before_ms`], for events that are kept for `kept_ms`, or forever.
pub(crate) fn before_ms(kept_ms: Option<i64>, wall: &WallClock, clock: &dyn Clock) -> i64 {
    match kept_ms {
        Some(kept_ms) if wall.doubt(clock).is_none() => clock.now_ms().saturating_sub(kept_ms),
        _ => i64::MIN,
    }
}

fn panicked(_: tokio::task::JoinError) -> Refusal {
    Refusal::new(ErrorKind::Internal, "internal", "the work on the file of events panicked")
}

/// The file of a tenant as a reader has found it.
#[derive(Debug)]
pub(crate) struct EventFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
}

impl EventFile {
    /// Reads an event that [`Events::find`] has found. `None` if it has been damaged since then.
    pub(crate) fn read<'b>(
        &self,
        place: Place,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<Record<'b>>, EventsError> {
        file::read(&*self.file, place, buffer)
            .map_err(|source| EventsError::Io { path: self.path.clone(), source })
    }
}
