//! Threads that evaluate queries.
//!
//! ```text
//!   submit ─▶ queue ──▶ query-0 … query-N    each to its end
//!               ▲ │
//!               │ └───▶ query-small          while all others are busy: each for 20 ms
//!               └─ not done by then ─┘
//! ```
//!
//! Long queries do not delay small ones: while all other threads are busy, an extra one tries each waiting query for
//! 20 ms and, if it has not finished, puts it back in its place in the queue. So no cost has to be estimated. A query
//! that was put back starts from scratch, so each long query wastes at most one such attempt; the same query asked again
//! (a dashboard that refreshes) wastes none, see [`KnownLarge`].
//!
//! The gate `App::waiting` bounds the queue.

mod known_large;
mod turn;

pub(crate) use turn::Turn;

use known_large::KnownLarge;

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit of one attempt on the small-query thread: instant queries over some hundred series take a few milliseconds.
const SMALL_TIME: Duration = Duration::from_millis(20);

/// Kind of thread that runs a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A thread that runs the query to its end.
    Whole,
    /// The small-query thread, which gives up after [`SMALL_TIME`].
    Small,
}

/// Outcome of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered, or its client is gone.
    Done,
    /// Not small: to be run again on another thread.
    Again,
}

/// A query, which can be started any number of times.
pub(crate) type Query = Box<dyn FnMut(Lane) -> Outcome + Send>;

/// The thread pool. Once dropped, each thread ends after its current query.
#[derive(Debug)]
pub(crate) struct Queries {
    inner: Arc<Inner>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Inner {
    queue: Mutex<Queue>,
    /// Signals that a query waits, or that the pool ends.
    work: Condvar,
    /// There is a query for the small-query thread to try: no other thread is idle.
    busy: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Queries in order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// Threads waiting for work, without the small-query thread.
    idle: usize,
    running: usize,
    known_large: KnownLarge,
    set_back: u64,
    stopping: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.waiting.len()).field("running", &self.running).finish()
    }
}

struct Waiting {
    query: Query,
    fingerprint: Option<u64>,
    /// Tried, and found not to be small.
    is_large: bool,
}

/// A query's place in the queue. Dropping it removes a waiting query; a running one continues.
#[derive(Debug)]
pub(crate) struct Place {
    inner: Arc<Inner>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = self.inner.queue.lock().waiting.remove(&self.number);
        drop(left); // what it holds is given back with the queue unlocked
    }
}

impl Queries {
    /// Starts `count` threads and the small-query thread.
    pub(crate) fn start(count: usize) -> Self {
        let inner = Arc::new(Inner::default());
        let spawn = |name: String, run: fn(&Inner)| {
            let inner = Arc::clone(&inner);
            if let Err(error) = std::thread::Builder::new().name(name).spawn(move || run(&inner)) {
                tracing::error!(%error, "cannot start a query thread: fewer queries run in parallel");
            }
        };
        (0..count).for_each(|number| spawn(format!("query-{number}"), Inner::run_whole));
        spawn("query-small".into(), Inner::run_small);
        Self { inner, hasher: RandomState::new() }
    }

    /// Hash of the parameters that determine a query's cost. It is seeded, so clients cannot construct collisions.
    pub(crate) fn fingerprint(&self, query: &impl Hash) -> u64 {
        self.hasher.hash_one(query)
    }

    /// Enqueues a query. Queries of equal `fingerprint` are expected to take about the same time.
    pub(crate) fn submit(&self, fingerprint: Option<u64>, query: Query) -> Place {
        let mut queue = self.inner.queue.lock();
        let number = queue.next;
        queue.next += 1;
        let is_large = fingerprint.is_some_and(|fingerprint| queue.known_large.contains(fingerprint));
        queue.waiting.insert(number, Waiting { query, fingerprint, is_large });
        self.inner.wake(&queue);
        Place { inner: Arc::clone(&self.inner), number }
    }

    /// Numbers of waiting and of running queries.
    pub(crate) fn waiting_and_running(&self) -> (usize, usize) {
        let queue = self.inner.queue.lock();
        (queue.waiting.len(), queue.running)
    }

    /// Number of attempts on the small-query thread that did not finish.
    pub(crate) fn set_back(&self) -> u64 {
        self.inner.queue.lock().set_back
    }
}

impl Drop for Queries {
    fn drop(&mut self) {
        self.inner.queue.lock().stopping = true;
        self.inner.work.notify_all();
        self.inner.busy.notify_all();
    }
}

impl Inner {
    /// Wakes the threads that have to look at the queue.
    fn wake(&self, queue: &Queue) {
        match queue.idle {
            0 => self.busy.notify_one(),
            _ => self.work.notify_one(),
        };
    }

    fn run_whole(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some((_, mut waiting)) = queue.waiting.pop_first() {
                queue.running += 1;
                if !queue.waiting.is_empty() {
                    self.wake(&queue);
                }
                drop(queue);
                let began = Instant::now();
                run(&mut waiting.query, Lane::Whole);
                let Waiting { query, fingerprint, .. } = waiting;
                drop(query); // what it holds is given back with the queue unlocked
                queue = self.queue.lock();
                queue.running -= 1;
                if let Some(fingerprint) = fingerprint.filter(|_| began.elapsed() < SMALL_TIME) {
                    queue.known_large.remove(fingerprint);
                }
            } else if queue.stopping {
                return;
            } else {
                queue.idle += 1;
                self.work.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }

    fn run_small(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some((number, mut waiting)) = queue.take_untried() {
                queue.running += 1;
                drop(queue);
                // while it runs here a dropped `Place` cannot dequeue it; if put back, it ends when run again
                let again = match run(&mut waiting.query, Lane::Small) {
                    Outcome::Again => Some(waiting),
                    Outcome::Done => {
                        drop(waiting); // what it holds is given back with the queue unlocked
                        None
                    }
                };
                queue = self.queue.lock();
                queue.running -= 1;
                if let Some(waiting) = again {
                    queue.set_back += 1;
                    if let Some(fingerprint) = waiting.fingerprint {
                        queue.known_large.insert(fingerprint);
                    }
                    queue.waiting.insert(number, Waiting { is_large: true, ..waiting });
                    self.work.notify_one();
                }
            } else if queue.stopping {
                return;
            } else {
                self.busy.wait(&mut queue);
            }
        }
    }
}

impl Queue {
    /// Takes the first query that may be small, if no other thread is idle.
    fn take_untried(&mut self) -> Option<(u64, Waiting)> {
        let untried = self.waiting.iter().find(|(_, waiting)| !waiting.is_large && self.idle == 0);
        let number = *untried?.0;
        self.waiting.remove(&number).map(|waiting| (number, waiting))
    }
}

/// Runs a query. One that panics is done: its client finds the answer's channel closed.
fn run(query: &mut Query, lane: Lane) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| query(lane))).unwrap_or(Outcome::Done)
}

#[cfg(test)]
mod tests;
