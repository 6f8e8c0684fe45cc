//! Controls one attempt at a query: whether it is canceled or took too long to be small, and when it yields
//! to writers.

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

/// The clock is read once per this many calls of [`Interrupt::is_set`].
const QUESTIONS: u32 = 4;

/// After running for this long, a query yields the processor to threads that handle writes.
const YIELD_TIME: Duration = Duration::from_micros(500);

#[derive(Debug, Clone)]
pub(crate) struct QueryLimits {
    pub(crate) memory_bytes: u64,
    pub(crate) samples: u64,
    pub(crate) answers: Account,
}

/// Interrupts a query that is canceled, or not small. [`Interrupt::is_set`] also yields to writers, so it
/// must not be called while a lock is held.
#[derive(Debug)]
pub(crate) struct Turn {
    clock: Arc<dyn Clock>,
    traffic: Arc<Traffic>,
    query: Arc<RunningQuery>,
    pub(crate) limits: QueryLimits,
    lane: Lane,
    /// True once this attempt on the small-query thread must end, because the query is not small.
    is_over: AtomicBool,
    questions: AtomicU32,
    began: Instant,
    /// When the query last yielded, in microseconds after `began`.
    yielded_us: AtomicU32,
}

impl Turn {
    pub(crate) fn new(context: &Context, query: Arc<RunningQuery>, limits: QueryLimits, lane: Lane) -> Self {
        let (clock, traffic) = (Arc::clone(&context.clock), Arc::clone(&context.traffic));
        let began = clock.instant();
        let (is_over, questions, yielded_us) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
        Self { clock, traffic, query, limits, lane, is_over, questions, began, yielded_us }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.query.is_set()
    }

    /// When the request arrived.
    pub(crate) fn arrived(&self) -> Instant {
        self.query.began
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
        // no other thread counts, so a load and a store suffice
        let questions = self.questions.load(Ordering::Relaxed).wrapping_add(1);
        self.questions.store(questions, Ordering::Relaxed);
        questions.is_multiple_of(QUESTIONS) && self.check_time()
    }

    /// Called before files are read. A query that has to read files is not small, so its attempt on the
    /// small-query thread ends here.
    fn may_wait(&self) -> bool {
        if self.lane == Lane::Small {
            self.is_over.store(true, Ordering::Relaxed);
        }
        !self.is_over()
    }
}
