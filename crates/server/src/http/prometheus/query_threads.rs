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
//! The queue is bounded by who may enter (`App::waiting`).

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

/// How long the thread for small queries works on one: instant queries over some hundred series take a few milliseconds.
const SMALL_TIME: Duration = Duration::from_millis(20);

/// On which thread a query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// One that works on it until it is done.
    Whole,
    /// The one for small queries.
    Small,
}

/// Outcome of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was answered, or nobody waits for it.
    Done,
    /// It is not small.
    Again,
}

/// A query that can be begun any number of times.
pub(crate) type Query = Box<dyn FnMut(Lane) -> Outcome + Send>;

/// The threads. They end when this is dropped, each after the query that it is at.
#[derive(Debug)]
pub(crate) struct Queries {
    inner: Arc<Inner>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Inner {
    queue: Mutex<Queue>,
    /// There is something to do.
    work: Condvar,
    /// There is a query for the small-query thread to try: no other thread is idle.
    busy: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Queries in the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// Threads that wait for work, the one for small queries not counted.
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
    /// It turned out not to be small.
    is_large: bool,
}

/// A query's place in the queue. Dropping it leaves the queue; a query that runs is not touched.
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
    /// Starts `count` threads, and the one for small queries.
    pub(crate) fn start(count: usize) -> Self {
        let inner = Arc::new(Inner::default());
        let spawn = |name: String, run: fn(&Inner)| {
            let inner = Arc::clone(&inner);
            if let Err(error) = std::thread::Builder::new().name(name).spawn(move || run(&inner)) {
                tracing::error!(%error, "a thread for queries cannot be started: fewer run at once");
            }
        };
        (0..count).for_each(|number| spawn(format!("query-{number}"), Inner::run_whole));
        spawn("query-small".into(), Inner::run_small);
        Self { inner, hasher: RandomState::new() }
    }

    /// A number for what sets how long a query takes; strangers cannot choose two that have the same.
    pub(crate) fn fingerprint(&self, query: &impl Hash) -> u64 {
        self.hasher.hash_one(query)
    }

    /// Lets a query wait for a thread. Queries of equal `fingerprint` are expected to take about as long as each other.
    pub(crate) fn submit(&self, fingerprint: Option<u64>, query: Query) -> Place {
        let mut queue = self.inner.queue.lock();
        let number = queue.next;
        queue.next += 1;
        let is_large = fingerprint.is_some_and(|fingerprint| queue.known_large.contains(fingerprint));
        queue.waiting.insert(number, Waiting { query, fingerprint, is_large });
        self.inner.wake(&queue);
        Place { inner: Arc::clone(&self.inner), number }
    }

    /// How many wait, and how many run.
    pub(crate) fn waiting_and_running(&self) -> (usize, usize) {
        let queue = self.inner.queue.lock();
        (queue.waiting.len(), queue.running)
    }

    /// How many were not small, of those that were tried.
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
    /// Wakes whoever is to look at the queue.
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
    /// The first that may be small, if no other thread is idle.
    fn take_untried(&mut self) -> Option<(u64, Waiting)> {
        let untried = self.waiting.iter().find(|(_, waiting)| !waiting.is_large && self.idle == 0);
        let number = *untried?.0;
        self.waiting.remove(&number).map(|waiting| (number, waiting))
    }
}

/// A query that panics is done: whoever waits for it finds its answer gone.
fn run(query: &mut Query, lane: Lane) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| query(lane))).unwrap_or(Outcome::Done)
}

#[cfg(test)]
mod tests;
