//! How far the replay of a partition is, for requests that are refused meanwhile.

use admission::RETRY_AFTER;
use admission::retry::time_to_end;
use journal::Offset;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct ReplayProgress {
    range: OnceLock<Range>,
    /// Offset of the next record.
    next: AtomicU64,
}

#[derive(Debug)]
struct Range {
    began: Instant,
    start: Offset,
    end: Offset,
}

impl ReplayProgress {
    /// Called once, before the first record.
    pub(super) fn begin(&self, start: Offset, end: Offset, now: Instant) {
        let was_new = self.range.set(Range { began: now, start, end }).is_ok();
        debug_assert!(was_new, "BUG: a journal is replayed twice");
    }

    pub(super) fn reached(&self, next: Offset) {
        self.next.store(next.0, Ordering::Relaxed);
    }

    /// Time until the replay has ended, if records take as long as before.
    pub(super) fn rest(&self, now: Instant) -> Duration {
        let Some(Range { began, start, end }) = self.range.get() else { return RETRY_AFTER };
        let done = self.next.load(Ordering::Relaxed).saturating_sub(start.0);
        time_to_end(done, end.0.saturating_sub(start.0), now.saturating_duration_since(*began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_for_each_record_as_the_beginning() {
        let (progress, began) = (ReplayProgress::default(), Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(progress.rest(after(0)), RETRY_AFTER);
        progress.begin(Offset(1_000), Offset(3_000), began);
        assert_eq!(progress.rest(after(1)), RETRY_AFTER, "nothing is known yet");
        progress.reached(Offset(1_500));
        assert_eq!(progress.rest(after(4)), Duration::from_secs(12));
        progress.reached(Offset(3_000));
        assert_eq!(progress.rest(after(9)), Duration::from_secs(1));
    }
}
