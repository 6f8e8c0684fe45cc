//! Counts the outcomes of requests over all connections.

use crate::http::Failure;
use crate::result::Totals;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longer latencies are recorded as this long.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// Maximum number of failure reasons for which an example message is kept.
const SAID_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Tally(Mutex<Counts>);

#[derive(Debug)]
pub(crate) struct Counts {
    /// Totals without the figures that are known only after the load.
    pub(crate) totals: Totals,
    /// Number of samples in all attempts, including retries.
    pub(crate) samples_sent: u64,
    /// Number of series for which a request was built, even if it was not sent.
    pub(crate) series_made: u64,
    /// Attempts that got no answer.
    pub(crate) broken: u64,
    /// Latency of successful requests, from the scheduled start to the answer.
    pub(crate) latency: Histogram<u64>,
    /// Latency of those successful requests that contained new series.
    pub(crate) latency_new: Histogram<u64>,
    pub(crate) service: Histogram<u64>,
    pub(crate) refusal: Histogram<u64>,
    /// Generator lag: how much later than possible each request was sent.
    pub(crate) lag: Histogram<u64>,
    /// Like `lag`, but only since the last point of the timeline.
    pub(crate) lag_recent: Histogram<u64>,
    /// Like `latency`, but only since the last point of the timeline.
    pub(crate) recent: Histogram<u64>,
    pub(crate) last_success: Option<Instant>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Counts {
            totals: Totals::default(),
            samples_sent: 0,
            series_made: 0,
            broken: 0,
            latency: histogram(),
            latency_new: histogram(),
            service: histogram(),
            refusal: histogram(),
            lag: histogram(),
            lag_recent: histogram(),
            recent: histogram(),
            last_success: None,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("BUG: a connection panicked while counting")
    }
}

impl Counts {
    /// Counts a scheduled request when its connection begins to send it.
    pub(crate) fn offer(&mut self, samples: u64) {
        self.totals.requests += 1;
        self.totals.samples_offered += samples;
    }

    /// Counts scheduled requests that will never be sent, with their samples.
    pub(crate) fn leave_out(&mut self, requests: u64, samples: u64) {
        self.totals.unsent += requests;
        self.totals.samples_offered += samples;
    }

    pub(crate) fn success(&mut self, latency: Duration, service: Duration, samples: u64, new: bool) {
        self.totals.samples_acknowledged += samples;
        self.last_success = Some(Instant::now());
        record(&mut self.latency, latency);
        record(&mut self.recent, latency);
        if new {
            record(&mut self.latency_new, latency);
        }
        record(&mut self.service, service);
    }

    pub(crate) fn count_outcome(&mut self, outcome: &str) {
        count(&mut self.totals.by_reason, outcome);
    }

    pub(crate) fn refused(&mut self, outcome: &str, took: Duration, said: impl FnOnce() -> String) {
        record(&mut self.refusal, took);
        keep_first(&mut self.totals.said, outcome, said);
    }

    pub(crate) fn failed(&mut self, failure: &Failure) {
        self.broken += 1;
        count(&mut self.totals.by_reason, failure.kind());
        keep_first(&mut self.totals.said, failure.kind(), || failure.to_string());
    }

    pub(crate) fn lag(&mut self, lag: Duration) {
        record(&mut self.lag, lag);
        record(&mut self.lag_recent, lag);
    }

    pub(crate) fn refused_total(&self) -> u64 {
        self.refusal.len()
    }
}

pub(crate) fn count(by_reason: &mut BTreeMap<String, u64>, reason: &str) {
    match by_reason.get_mut(reason) {
        Some(count) => *count += 1,
        None => {
            by_reason.insert(reason.to_owned(), 1);
        }
    }
}

/// Keeps the first message for each reason, up to [`SAID_MAX`] reasons.
pub(crate) fn keep_first(said: &mut BTreeMap<String, String>, reason: &str, words: impl FnOnce() -> String) {
    if said.len() < SAID_MAX && !said.contains_key(reason) {
        said.insert(reason.to_owned(), words());
    }
}

pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("BUG: constant bounds are invalid")
}

pub(crate) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}
