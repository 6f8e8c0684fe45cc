//! Threads that evaluate queries.
//!
//! ```text
//!   submit ─▶ queue ──▶ query-0 … query-N    each to its end
//!               ▲ │
//!               │ └───▶ query-small          while all others are busy, each for 20 ms
//!               └─ not finished ─────┘
//! ```
//!
//! Long queries do not delay small queries: while all other threads are busy, an extra thread tries each
//! waiting query for 20 ms. A query that is not finished by then returns to its place in the queue, and later
//! starts from scratch.
//!
//! The gate `App::waiting` limits the queue.

mod known_large;
mod queue;
mod turn;

pub(crate) use queue::QueryTenant;
pub(crate) use turn::{QueryLimits, Turn};

use model::TenantId;
use parking_lot::{Condvar, Mutex};
use queue::{Queue, Taken};
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::Clock;

/// A query that takes longer on the small-query thread is put back. Instant queries over a few hundred series
/// take a few milliseconds.
const SMALL_TIME: Duration = Duration::from_millis(20);

/// Planning SQL is recursive. Only what is used of a stack takes memory.
pub(crate) const STACK_BYTES: usize = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Whole,
    /// The small-query thread, which gives up after [`SMALL_TIME`].
    Small,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The query is not small, and must run again on another thread.
    Again,
}

/// The work for a query. It may be started a second time, after an attempt on the small-query thread.
pub(crate) type Query = Box<dyn FnMut(Lane) -> Outcome + Send>;

/// The pool of threads that evaluate queries. When it is dropped, each thread finishes its current query and
/// ends.
#[derive(Debug)]
pub(crate) struct Queries {
    inner: Arc<Inner>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    work: Condvar,
    busy: Condvar,
}

struct State {
    queue: Queue,
    /// Number of idle threads, not counting the small-query thread.
    idle: usize,
    /// True while a query runs on the small-query thread.
    is_trying: bool,
    set_back: u64,
    stopping: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (waiting, running) = (self.queue.waiting(), self.running());
        f.debug_struct("State").field("waiting", &waiting).field("running", &running).finish()
    }
}

impl State {
    fn running(&self) -> usize {
        self.queue.running() + usize::from(self.is_trying)
    }
}

/// Represents a query in the queue. Dropping this removes a query that waits; a query that runs is not
/// stopped.
#[derive(Debug)]
pub(crate) struct Place {
    inner: Arc<Inner>,
    tenant: TenantId,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = self.inner.state.lock().queue.remove(&self.tenant, self.number);
        drop(left); // its resources are released with the queue unlocked
    }
}

impl Queries {
    pub(crate) fn start(count: usize, clock: Arc<dyn Clock>) -> Self {
        let queue = Queue::new(count);
        let state = State { queue, idle: 0, is_trying: false, set_back: 0, stopping: false };
        let (work, busy) = (Condvar::new(), Condvar::new());
        let inner = Arc::new(Inner { clock, state: Mutex::new(state), work, busy });
        let spawn = |name: String, run: fn(&Inner)| {
            let inner = Arc::clone(&inner);
            let thread = std::thread::Builder::new().name(name).stack_size(STACK_BYTES);
            if let Err(error) = thread.spawn(move || run(&inner)) {
                tracing::error!(%error, "cannot start a query thread: fewer queries run in parallel");
            }
        };
        (0..count).for_each(|number| spawn(format!("query-{number}"), Inner::run_whole));
        spawn("query-small".into(), Inner::run_small);
        Self { inner, hasher: RandomState::new() }
    }

    /// Hashes the parameters of a query that determine how long it takes. The hash has a random seed, so that
    /// clients cannot construct collisions.
    pub(crate) fn fingerprint(&self, query: &impl Hash) -> u64 {
        self.hasher.hash_one(query)
    }

    /// Adds a query to the queue. Queries with the same `fingerprint` should take about the same time: if one
    /// was not small, the next is not tried on the small-query thread.
    pub(crate) fn submit(&self, query_tenant: QueryTenant, fingerprint: Option<u64>, query: Query) -> Place {
        let (tenant, now) = (query_tenant.tenant.clone(), self.inner.clock.instant());
        let mut state = self.inner.state.lock();
        let number = state.queue.push(query_tenant, fingerprint, query, now);
        self.inner.wake(&state);
        Place { inner: Arc::clone(&self.inner), tenant, number }
    }

    pub(crate) fn waiting_and_running(&self) -> (usize, usize) {
        let state = self.inner.state.lock();
        (state.queue.waiting(), state.running())
    }

    /// Number of running queries, not counting a query on the small-query thread, and its peak.
    pub(crate) fn running_and_peak(&self) -> (usize, usize) {
        let state = self.inner.state.lock();
        (state.queue.running(), state.queue.peak())
    }

    /// Number of the tenant's running queries, not counting a query on the small-query thread.
    pub(crate) fn running_of(&self, tenant: &TenantId) -> usize {
        self.inner.state.lock().queue.running_of(tenant)
    }

    pub(crate) fn set_back(&self) -> u64 {
        self.inner.state.lock().set_back
    }
}

impl Drop for Queries {
    fn drop(&mut self) {
        self.inner.state.lock().stopping = true;
        self.inner.work.notify_all();
        self.inner.busy.notify_all();
    }
}

impl Inner {
    fn wake(&self, state: &State) {
        match state.idle > 0 && state.queue.has_whole(self.clock.instant()) {
            true => self.work.notify_one(),
            false => self.busy.notify_one(),
        };
    }

    fn run_whole(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(Taken { tenant, mut waiting, .. }) = state.queue.take_whole(self.clock.instant()) {
                if state.queue.waiting() > 0 {
                    self.wake(&state);
                }
                drop(state);
                let began = Instant::now();
                run(&mut waiting.query, Lane::Whole);
                let fingerprint = waiting.fingerprint;
                drop(waiting); // its resources are released with the queue unlocked
                state = self.state.lock();
                state.queue.done(&tenant);
                if let Some(fingerprint) = fingerprint.filter(|_| began.elapsed() < SMALL_TIME) {
                    state.queue.known_large.remove(fingerprint);
                }
            } else if state.stopping {
                return;
            } else {
                state.idle += 1;
                if state.queue.waiting() > 0 {
                    self.busy.notify_one(); // the waiting query cannot run on this thread
                }
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    fn run_small(&self) {
        let mut state = self.state.lock();
        loop {
            let is_free = state.idle > 0 && state.queue.has_whole(self.clock.instant());
            let untried = if is_free { None } else { state.queue.take_untried() };
            if let Some(mut taken) = untried {
                state.is_trying = true;
                drop(state);
                // if the client leaves meanwhile, the query may still be put back; it is canceled, and ends
                // as soon as it runs again
                let (outcome, tenant) = (run(&mut taken.waiting.query, Lane::Small), taken.tenant.clone());
                let again = match outcome {
                    Outcome::Again => Some(taken),
                    Outcome::Done => {
                        drop(taken); // its resources are released with the queue unlocked
                        None
                    }
                };
                state = self.state.lock();
                state.is_trying = false;
                match again {
                    Some(taken) => {
                        state.set_back += 1;
                        state.queue.put_back(taken);
                        self.work.notify_one();
                    }
                    None => state.queue.was_small(&tenant),
                }
            } else if state.stopping {
                return;
            } else {
                self.busy.wait(&mut state);
            }
        }
    }
}

/// Runs a query. If it panics, only this query fails: its client finds that the channel for the answer is
/// closed.
fn run(query: &mut Query, lane: Lane) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| query(lane))).unwrap_or(Outcome::Done)
}

#[cfg(test)]
mod tests;
