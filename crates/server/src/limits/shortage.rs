//! How to refuse series for which there is no room: with a retryable 503 at first, with a 400 once that has lasted.
//!
//! A sender repeats what it may repeat, in order, and everything behind it waits. That is right while room may come
//! soon, and wrong once it does not: then a request with one new series holds up all the known ones of its shard. The
//! same decision serves every limit on how many series there may be.

use std::time::{Duration, Instant};

/// A shortage that has lasted for so long is answered for good. Sealing and eviction make room within a minute or
/// two where they can.
const PATIENCE: Duration = Duration::from_secs(300);

/// A shortage is over after this long without a refusal; refused senders retry within seconds. A moment with room in
/// the middle of a flood does not end it.
const CALM: Duration = Duration::from_secs(60);

const _: () = assert!(CALM.as_secs() < PATIENCE.as_secs());

/// What to tell a sender whose series found no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Send the same again.
    Repeat,
    /// Go on without them.
    GiveUp,
}

/// A limit that somebody met, and when.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Shortage {
    /// The first time and the last time, of a stretch without a [`CALM`] in it.
    met: Option<(Instant, Instant)>,
}

impl Shortage {
    /// Somebody found no room at `now`.
    pub(crate) fn met(&mut self, now: Instant) -> Advice {
        let lasting = self.met.filter(|(_, last)| now.saturating_duration_since(*last) < CALM);
        let since = lasting.map_or(now, |(since, _)| since);
        self.met = Some((since, now));
        if now.saturating_duration_since(since) < PATIENCE { Advice::Repeat } else { Advice::GiveUp }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_answered_for_good_after_five_minutes() {
        let began = Instant::now();
        let mut shortage = Shortage::default();
        let mut check = |seconds, expected| {
            assert_eq!(shortage.met(began + Duration::from_secs(seconds)), expected, "after {seconds} s");
        };
        (0..300).step_by(10).for_each(|seconds| check(seconds, Advice::Repeat));
        check(299, Advice::Repeat);
        check(300, Advice::GiveUp);
        check(359, Advice::GiveUp);
        check(419, Advice::Repeat); // a minute without anybody
        check(478, Advice::Repeat);
        (530..719).step_by(50).for_each(|seconds| check(seconds, Advice::Repeat));
        check(719, Advice::GiveUp);
    }
}
