//! Lists the queries and exports that run or wait, so that operators can see and cancel them.
//!
//! ```text
//!   request ─ enter ─▶ RunningQueries ◀─ list, cancel ─ operator
//!                          │ RunningQuery: request, state, usage
//!               evaluation ┘ (reports usage, checks for cancellation)
//! ```
//!
//! The gates `App::waiting` and `App::exporting` limit the number of entries.

use crate::http::json::Json;
use crate::http::queries::description::Description;
use model::TenantId;
use parking_lot::Mutex;
use query::{Interrupt, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use tokio::sync::Notify;

#[cfg(test)]
mod tests;

/// The low bits of an ID number the queries. The high bits are the time in milliseconds at which the process
/// started, so that IDs are not repeated after a restart.
const COUNT_BITS: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueryId(u64);

impl QueryId {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl std::fmt::Display for QueryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

#[derive(Debug)]
pub(crate) struct RunningQuery {
    pub(crate) id: QueryId,
    pub(crate) description: Description,
    pub(crate) began: Instant,
    pub(crate) usage: Usage,
    is_running: AtomicBool,
    /// How long the query had waited when a thread last took it, in microseconds.
    waited_us: AtomicU64,
    is_canceled: AtomicBool,
    canceled: Notify,
}

impl RunningQuery {
    pub(crate) fn run(&self, waited: Duration) {
        self.waited_us.store(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.is_running.store(true, Ordering::Relaxed);
    }

    /// Called when the query is put back into the queue, because it is not small.
    pub(crate) fn wait(&self) {
        self.is_running.store(false, Ordering::Relaxed);
    }

    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us.load(Ordering::Relaxed))
    }

    pub(crate) fn cancel(&self) {
        self.is_canceled.store(true, Ordering::Relaxed);
        self.canceled.notify_one();
    }

    pub(crate) async fn canceled(&self) {
        self.canceled.notified().await;
    }

    fn state(&self) -> &'static str {
        match (self.is_set(), self.is_running.load(Ordering::Relaxed)) {
            (true, _) => "canceled",
            (false, true) => "running",
            (false, false) => "waiting",
        }
    }

    pub(crate) fn write(&self, json: &mut Json, age: Duration) {
        json.raw(r#"{"id":"#);
        json.string(&self.id.to_string());
        json.raw(r#","state":"#);
        json.string(self.state());
        json.raw(",");
        self.description.write(json);
        json.raw(&format!(r#","age_seconds":{:.3}"#, age.as_secs_f64()));
        for (name, count) in [
            ("memory_bytes", self.usage.memory_bytes()),
            ("peak_memory_bytes", self.usage.peak_memory_bytes()),
            ("samples", self.usage.samples()),
        ] {
            json.raw(&format!(r#","{name}":{count}"#));
        }
        json.raw("}");
    }
}

impl Interrupt for RunningQuery {
    fn is_set(&self) -> bool {
        self.is_canceled.load(Ordering::Relaxed)
    }
}

/// Cancels a query when its request ends, for example because the client disconnected.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) Arc<RunningQuery>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.is_canceled.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct RunningQueries {
    all: Mutex<BTreeMap<QueryId, Arc<RunningQuery>>>,
    next: AtomicU64,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    list: Arc<RunningQueries>,
    id: QueryId,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let removed = self.list.all.lock().remove(&self.id);
        drop(removed); // with the list unlocked
    }
}

impl RunningQueries {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let first = u64::try_from(clock.now_ms()).unwrap_or(0) << COUNT_BITS;
        Self { all: Mutex::default(), next: AtomicU64::new(first), clock }
    }

    /// Creates a query that has just arrived. It is not in the list until [`Self::enter`] is called.
    pub(crate) fn begin(&self, description: Description) -> Arc<RunningQuery> {
        Arc::new(RunningQuery {
            id: QueryId(self.next.fetch_add(1, Ordering::Relaxed)),
            description,
            began: self.clock.instant(),
            usage: Usage::default(),
            is_running: AtomicBool::new(false),
            waited_us: AtomicU64::new(0),
            is_canceled: AtomicBool::new(false),
            canceled: Notify::new(),
        })
    }

    pub(crate) fn enter(self: &Arc<Self>, query: &Arc<RunningQuery>) -> Entry {
        self.all.lock().insert(query.id, Arc::clone(query));
        Entry { list: Arc::clone(self), id: query.id }
    }

    pub(crate) fn age(&self, query: &RunningQuery) -> Duration {
        self.clock.instant().saturating_duration_since(query.began)
    }

    /// Writes the queries that `wanted` selects as a JSON array, the oldest first.
    pub(crate) fn write(&self, json: &mut Json, wanted: impl Fn(&Description) -> bool) {
        // encoded after the lock is released, because every query takes the lock when it begins and ends
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        json.raw("[");
        for (i, query) in all.iter().filter(|query| wanted(&query.description)).enumerate() {
            json.comma(i);
            query.write(json, self.age(query));
        }
        json.raw("]");
    }

    /// Memory of that query of the tenant which holds the most.
    pub(crate) fn largest_bytes(&self, tenant: &TenantId) -> u64 {
        let all = self.all.lock();
        let own = all.values().filter(|query| query.description.tenants.iter().any(|one| one == tenant));
        own.map(|query| query.usage.memory_bytes()).max().unwrap_or(0)
    }

    pub(crate) fn find(&self, id: QueryId) -> Option<Arc<RunningQuery>> {
        self.all.lock().get(&id).cloned()
    }
}
