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
//! that was put back starts from scratch, so each long query wastes at most one such attempt.
//!
//! The queue is bounded by who may enter (`App::waiting`).

mod turn;

pub(crate) use turn::Turn;

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

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

/// What became of a query.
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
pub(crate) struct Queries(Arc<Inner>);

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
        Self(inner)
    }

    /// Lets a query wait for a thread.
    pub(crate) fn submit(&self, query: Query) -> Place {
        let mut queue = self.0.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.insert(number, Waiting { query, is_large: false });
        self.0.wake(&queue);
        Place { inner: Arc::clone(&self.0), number }
    }

    /// How many wait, and how many run.
    pub(crate) fn waiting_and_running(&self) -> (usize, usize) {
        let queue = self.0.queue.lock();
        (queue.waiting.len(), queue.running)
    }

    /// How many were not small, of those that were tried.
    pub(crate) fn set_back(&self) -> u64 {
        self.0.queue.lock().set_back
    }
}

impl Drop for Queries {
    fn drop(&mut self) {
        self.0.queue.lock().stopping = true;
        self.0.work.notify_all();
        self.0.busy.notify_all();
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
                run(&mut waiting.query, Lane::Whole);
                drop(waiting);
                queue = self.queue.lock();
                queue.running -= 1;
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
            if let Some((number, mut query)) = queue.take_untried() {
                queue.running += 1;
                drop(queue);
                // while it runs here a dropped `Place` cannot dequeue it; if put back, it ends when run again
                let again = match run(&mut query, Lane::Small) {
                    Outcome::Again => Some(query),
                    Outcome::Done => {
                        drop(query); // what it holds is given back with the queue unlocked
                        None
                    }
                };
                queue = self.queue.lock();
                queue.running -= 1;
                if let Some(query) = again {
                    queue.set_back += 1;
                    queue.waiting.insert(number, Waiting { query, is_large: true });
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
    /// The first that was not tried yet, where nobody else is there for it.
    fn take_untried(&mut self) -> Option<(u64, Query)> {
        let untried = self.waiting.iter().find(|(_, waiting)| !waiting.is_large && self.idle == 0);
        let number = *untried?.0;
        self.waiting.remove(&number).map(|waiting| (number, waiting.query))
    }
}

/// A query that panics is done: whoever waits for it finds its answer gone.
fn run(query: &mut Query, lane: Lane) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| query(lane))).unwrap_or(Outcome::Done)
}

#[cfg(test)]
mod tests;
