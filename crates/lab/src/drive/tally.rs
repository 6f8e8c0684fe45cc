//! Outcomes of requests, counted over all connections.

use crate::http::Failure;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longer latencies count as this long.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// Kinds of errors of which the first is kept to be shown.
const ERRORS_SHOWN_MAX: usize = 8;

/// Shared by the connections; locked once or twice a request, of which there are some thousands a second.
#[derive(Debug)]
pub(crate) struct Tally(Mutex<Counts>);

/// The counts themselves.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Slots sent in a round, whatever became of them.
    pub(crate) requests: u64,
    /// Requests as the target saw them: with repetitions.
    pub(crate) attempts: u64,
    pub(crate) bytes: u64,
    /// Samples that the schedule had: of requests that were begun, and of those that never were.
    pub(crate) samples_offered: u64,
    /// Samples that left, with repetitions.
    pub(crate) samples_sent: u64,
    pub(crate) samples_acknowledged: u64,
    /// Series whose requests were made, sent or not.
    pub(crate) series_made: u64,
    /// Series that had not been sent before.
    pub(crate) series_new: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) retries: u64,
    pub(crate) failures_connect: u64,
    pub(crate) failures_broken: u64,
    pub(crate) failures_timeout: u64,
    /// Requests refused for good.
    pub(crate) rejected: u64,
    /// Requests given up after retries.
    pub(crate) given_up: u64,
    /// Requests answered with success but with fewer samples written than sent.
    pub(crate) short: u64,
    /// Requests that the schedule had for the time of the run, and that were never begun.
    pub(crate) unsent: u64,
    /// Refusals that may be repeated and did not say when.
    pub(crate) without_retry_after: u64,
    /// From the intended start to success.
    pub(crate) latency: Histogram<u64>,
    /// As `latency`, of requests with new series only.
    pub(crate) latency_new: Histogram<u64>,
    /// Of one attempt, with success.
    pub(crate) service: Histogram<u64>,
    /// Of one attempt, refused.
    pub(crate) refusal: Histogram<u64>,
    /// From when a request could have been sent to when it was: the generator's own fault.
    pub(crate) lag: Histogram<u64>,
    /// As `lag`, since it was last looked at.
    pub(crate) lag_recent: Histogram<u64>,
    /// As `latency`, since it was last looked at.
    pub(crate) recent: Histogram<u64>,
    /// The first of each kind.
    pub(crate) errors: Vec<(String, String)>,
    pub(crate) last_success: Option<Instant>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Counts {
            requests: 0,
            attempts: 0,
            bytes: 0,
            samples_offered: 0,
            samples_sent: 0,
            series_made: 0,
            without_retry_after: 0,
            latency_new: histogram(),
            samples_acknowledged: 0,
            series_new: 0,
            statuses: BTreeMap::new(),
            retries: 0,
            failures_connect: 0,
            failures_broken: 0,
            failures_timeout: 0,
            rejected: 0,
            given_up: 0,
            short: 0,
            unsent: 0,
            latency: histogram(),
            service: histogram(),
            refusal: histogram(),
            lag: histogram(),
            lag_recent: histogram(),
            recent: histogram(),
            errors: Vec::new(),
            last_success: None,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("BUG: a connection panicked while counting")
    }
}

impl Counts {
    /// A request of the schedule is begun.
    pub(crate) fn offer(&mut self, samples: u64) {
        self.requests += 1;
        self.samples_offered += samples;
    }

    /// A request of the schedule is not begun any more.
    pub(crate) fn leave_out(&mut self, samples: u64) {
        self.unsent += 1;
        self.samples_offered += samples;
    }

    pub(crate) fn success(&mut self, latency: Duration, service: Duration, samples: u64, new: bool) {
        self.samples_acknowledged += samples;
        self.last_success = Some(Instant::now());
        record(&mut self.latency, latency);
        record(&mut self.recent, latency);
        if new {
            record(&mut self.latency_new, latency);
        }
        record(&mut self.service, service);
    }

    pub(crate) fn refused(&mut self, status: u16, took: Duration, said: impl FnOnce() -> String) {
        record(&mut self.refusal, took);
        self.error(status.to_string(), said);
    }

    pub(crate) fn failed(&mut self, failure: &Failure) {
        let count = match failure {
            Failure::Connect(_) => &mut self.failures_connect,
            Failure::Broken(_) => &mut self.failures_broken,
            Failure::Timeout(_) => &mut self.failures_timeout,
        };
        *count += 1;
        self.error(failure.word().to_owned(), || failure.to_string());
    }

    pub(crate) fn lag(&mut self, lag: Duration) {
        record(&mut self.lag, lag);
        record(&mut self.lag_recent, lag);
    }

    /// Answers other than success.
    pub(crate) fn refused_total(&self) -> u64 {
        self.statuses.iter().filter(|(status, _)| !(200..300).contains(*status)).map(|(_, n)| n).sum()
    }

    /// Attempts by what came of them: a status, or the word of a failure.
    pub(crate) fn by_reason(&self) -> impl Iterator<Item = (String, u64)> {
        let failures = [
            ("connect", self.failures_connect),
            ("broken", self.failures_broken),
            ("timeout", self.failures_timeout),
        ];
        let failures = failures.into_iter().filter(|(_, n)| *n > 0).map(|(word, n)| (word.to_owned(), n));
        self.statuses.iter().map(|(status, n)| (status.to_string(), *n)).chain(failures)
    }

    /// Attempts without an answer.
    pub(crate) fn failures_total(&self) -> u64 {
        self.failures_connect + self.failures_broken + self.failures_timeout
    }

    fn error(&mut self, kind: String, said: impl FnOnce() -> String) {
        if self.errors.len() < ERRORS_SHOWN_MAX && !self.errors.iter().any(|(k, _)| *k == kind) {
            self.errors.push((kind, said()));
        }
    }
}

/// For times in microseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("BUG: constant bounds are valid")
}

/// Counts a time, in microseconds.
pub(crate) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}
