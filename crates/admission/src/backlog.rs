//! Counts the new series that were left out of requests for now, and that their senders are expected to send
//! again. A request is recognized by the key of its last new series, so that a repeated request counts once.

use crate::postponed::CALM;
use model::SeriesKey;
use std::time::{Duration, Instant};

/// Limit on the requests that are counted per tenant. If there are more, the counts are too low.
const REQUESTS_MAX: usize = 64;

/// A sender that has not repeated its request for this time is not expected to do so anymore.
const EXPECTED_FOR: Duration = CALM;

/// The requests of one tenant that had new series for which there was no room.
#[derive(Debug, Default)]
pub struct Backlog {
    requests: Vec<Request>,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    last: SeriesKey,
    series: u64,
    since: Instant,
    seen: Instant,
}

impl Request {
    fn is_expected(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen) < EXPECTED_FOR
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    pub series: u64,
    pub longest: Duration,
}

impl Backlog {
    /// Must be called when new series of a request were left out. `series` is their number, and `last` is the
    /// key of the last one.
    pub fn left_out(&mut self, last: SeriesKey, series: u64, now: Instant) {
        self.requests.retain(|request| request.is_expected(now));
        if let Some(known) = self.requests.iter_mut().find(|request| request.last == last) {
            (known.series, known.seen) = (series, now);
        } else if self.requests.len() < REQUESTS_MAX {
            self.requests.push(Request { last, series, since: now, seen: now });
        }
    }

    /// Must be called when all new series of a request were created. `last` is the key of the last one.
    pub fn created(&mut self, last: SeriesKey) {
        self.requests.retain(|request| request.last != last);
    }

    /// How many series wait for their senders to repeat the request, and how long the longest has waited.
    pub fn waiting(&self, now: Instant) -> Waiting {
        let expected = || self.requests.iter().filter(|request| request.is_expected(now));
        let since = expected().map(|request| request.since).min();
        Waiting {
            series: expected().map(|request| request.series).sum(),
            longest: since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_repeated_request_counts_once() {
        let (mut backlog, began) = (Backlog::default(), Instant::now());
        let check = |backlog: &Backlog, at, series, longest| {
            assert_eq!(backlog.waiting(began + seconds(at)), Waiting { series, longest: seconds(longest) });
        };
        check(&backlog, 0, 0, 0);
        backlog.left_out(SeriesKey(1), 100, began);
        backlog.left_out(SeriesKey(2), 7, began + seconds(3));
        check(&backlog, 4, 107, 4);
        backlog.left_out(SeriesKey(1), 60, began + seconds(5));
        check(&backlog, 5, 67, 5);
        backlog.created(SeriesKey(1));
        check(&backlog, 5, 7, 2);
        backlog.created(SeriesKey(9));
        // the sender has been silent for a while, so it is not expected to come back
        check(&backlog, 62, 7, 59);
        check(&backlog, 63, 0, 0);
        backlog.left_out(SeriesKey(2), 7, began + seconds(70));
        check(&backlog, 71, 7, 1);
    }

    #[test]
    fn any_number_of_requests_takes_bounded_memory() {
        let (mut backlog, began) = (Backlog::default(), Instant::now());
        for number in 0..1000 {
            backlog.left_out(SeriesKey(number), 2, began);
        }
        assert_eq!(backlog.requests.len(), REQUESTS_MAX);
        assert_eq!(backlog.waiting(began).series, 2 * REQUESTS_MAX as u64);
        backlog.left_out(SeriesKey(5000), 3, began + EXPECTED_FOR);
        assert_eq!(backlog.waiting(began + EXPECTED_FOR).series, 3);
    }
}
