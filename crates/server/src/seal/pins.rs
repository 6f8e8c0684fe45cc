//! Keeps sealed samples in the head for as long as queries need them.
//!
//! A query that chose its files before a commit finds the committed samples only in the head. After a time limit, such
//! a query expires and restarts.
//!
//! A *generation* ends with each commit. A query's [`Pin`] belongs to the generation in which the query began.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Pins {
    inner: Mutex<Inner>,
    dropped: Condvar,
    /// Pins of generations below this one have expired.
    expired_below: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    generation: u64,
    held: BTreeMap<u64, usize>,
}

/// While a query holds its pin, sealed samples that the query may need stay in the head.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ended(u64);

impl Pins {
    pub(crate) fn pin(self: &Arc<Self>) -> Pin {
        let mut inner = self.inner.lock();
        let generation = inner.generation;
        *inner.held.entry(generation).or_insert(0) += 1;
        Pin { pins: Arc::clone(self), generation }
    }

    /// Ends the current generation. Queries that begin afterwards see the latest commit.
    pub(crate) fn end_generation(&self) -> Ended {
        let mut inner = self.inner.lock();
        inner.generation += 1;
        Ended(inner.generation - 1)
    }

    /// Waits until no pin of `ended` or of an earlier generation is held, but not longer than `most`. Returns false
    /// if such a pin is still held. Pins that have expired do not count: their queries may be held up by their clients.
    pub(crate) fn wait(&self, ended: Ended, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut inner = self.inner.lock();
        while self.is_held(&inner, ended) {
            if self.dropped.wait_until(&mut inner, until).timed_out() {
                return !self.is_held(&inner, ended);
            }
        }
        true
    }

    fn is_held(&self, inner: &Inner, ended: Ended) -> bool {
        let valid_from = self.expired_below.load(Ordering::Acquire);
        inner.held.range(valid_from..).next().is_some_and(|(oldest, _)| *oldest <= ended.0)
    }

    #[cfg(test)]
    fn is_free(&self, ended: Ended) -> bool {
        self.wait(ended, Duration::ZERO)
    }

    pub(crate) fn expire(&self, ended: Ended) {
        self.expired_below.fetch_max(ended.0 + 1, Ordering::AcqRel);
    }
}

impl Pin {
    /// True if samples that the query may need have possibly left the head.
    pub(crate) fn is_expired(&self) -> bool {
        self.generation < self.pins.expired_below.load(Ordering::Acquire)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut inner = self.pins.inner.lock();
        if let Some(count) = inner.held.get_mut(&self.generation) {
            *count -= 1;
            if *count == 0 {
                inner.held.remove(&self.generation);
                self.pins.dropped.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_free_when_its_last_pin_is_gone() {
        let pins = Arc::new(Pins::default());
        let (first, second) = (pins.pin(), pins.pin());
        let ended = pins.end_generation();
        let later = pins.pin();
        assert!(!pins.is_free(ended));
        drop(first);
        assert!(!pins.is_free(ended));
        pins.expire(ended);
        assert!(second.is_expired() && !later.is_expired());
        assert!(
            pins.is_free(ended) && pins.wait(ended, Duration::from_secs(60)),
            "nobody waits for it again"
        );
        drop(second);
        assert!(pins.is_free(ended));
        let next = pins.end_generation();
        assert!(!pins.is_free(next));
        drop(later);
        assert!(pins.is_free(next));
    }

    #[test]
    fn dropping_the_last_pin_wakes_waiters() {
        let pins = Arc::new(Pins::default());
        let pin = pins.pin();
        let ended = pins.end_generation();
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| pins.wait(ended, Duration::from_secs(60)));
            drop(pin);
            assert!(waits.join().unwrap());
        });
    }
}
