//! One attempt at a query: cancellation, the time limit of small queries, and yielding to writers.

use super::{Lane, SMALL_TIME};
use crate::http::queries::running_queries::RunningQuery;
use crate::limits::pacer::Traffic;
use crate::query_source::Context;
use query::{Interrupt, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::clock::Clock;

/// Calls of [`Interrupt::is_set`] per reading of the clock.
const QUESTIONS: u32 = 4;

/// Time for which a query runs before it yields the processor to threads that handle writes.
const YIELD_TIME: Duration = Duration::from_micros(500);

#[derive(Debug, Clone)]
pub(crate) struct QueryLimits {
    pub(crate) memory_bytes: u64,
    pub(crate) samples: u64,
    pub(crate) answers: Account,
}

/// Interrupts a query that is canceled or not small. [`Interrupt::is_set`] also yields to writers, so do not
/// call it while holding a lock.
#[derive(Debug)]
pub(crate) struct Turn {
    clock: Arc<dyn Clock>,
    traffic: Arc<Traffic>,
    query: Arc<RunningQuery>,
    pub(crate) limits: QueryLimits,
    lane: Lane,
    /// True once the attempt must end because the query is not small.
    is_over: AtomicBool,
    questions: AtomicU32,
    began: Instant,
    /// Time of the last yield, in microseconds since `began`.
    yielded_us: AtomicU32,
}

impl Turn {
    pub(crate) fn new(context: &Context, query: Arc<RunningQuery>, limits: QueryLimits, lane: Lane) -> Self {
        let (clock, traffic) = (Arc::clone(&context.clock), Arc::clone(&context.traffic));
        let began = clock.instant();
        let (is_over, questions, yielded_us) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
        Self { clock, traffic, query, limits, lane, is_over, questions, began, yielded_us }
    }

    /// True if the attempt was ended because the query is not small.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.query.is_set()
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.query.usage
    }

    fn check_time(&self) -> bool {
        let passed = self.clock.instant().saturating_duration_since(self.began);
        if self.lane == Lane::Small && passed >= SMALL_TIME {
            self.is_over.store(true, Ordering::Relaxed);
            return true;
        }
        let passed_us = u32::try_from(passed.as_micros()).unwrap_or(u32::MAX);
        let since_us = passed_us.saturating_sub(self.yielded_us.load(Ordering::Relaxed));
        if u128::from(since_us) >= YIELD_TIME.as_micros() {
            self.yielded_us.store(passed_us, Ordering::Relaxed);
            if !self.traffic.is_quiet() {
                std::thread::yield_now();
            }
        }
        false
    }
}

impl Interrupt for Turn {
    fn is_set(&self) -> bool {
        if self.is_canceled() || self.is_over() {
            return true;
        }
        // only one thread calls this, so a separate load and store suffice
        let questions = self.questions.load(Ordering::Relaxed).wrapping_add(1);
        self.questions.store(questions, Ordering::Relaxed);
        questions.is_multiple_of(QUESTIONS) && self.check_time()
    }

    /// True if the query may read files. Ends an attempt on the small-query thread.
    fn may_wait(&self) -> bool {
        if self.lane == Lane::Small {
            self.is_over.store(true, Ordering::Relaxed);
        }
        !self.is_over()
    }
}
