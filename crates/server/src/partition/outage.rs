//! A time in which no group can be made durable: what is said about it, and how often.
//!
//! A full disk fails a group for every request that comes, hundreds a second. One line when it begins, one a
//! minute, and one when it is over are enough to know.

use std::time::{Duration, Instant};

/// How often an outage that goes on is mentioned.
const MENTION_EVERY: Duration = Duration::from_secs(60);

/// Groups that failed in a row.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Failures>);

#[derive(Debug, Clone, Copy)]
struct Failures {
    began: Instant,
    mentioned: Instant,
    groups: u64,
}

/// Log message about an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mention {
    /// Groups that failed, this one included.
    pub(super) groups: u64,
    /// How long it has lasted.
    pub(super) lasted: Duration,
}

impl Outage {
    /// A group failed; something is to be said now, or not.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Mention> {
        let Some(failures) = &mut self.0 else {
            self.0 = Some(Failures { began: now, mentioned: now, groups: 1 });
            return Some(Mention { groups: 1, lasted: Duration::ZERO });
        };
        failures.groups += 1;
        if now.duration_since(failures.mentioned) < MENTION_EVERY {
            return None;
        }
        failures.mentioned = now;
        Some(failures.mention(now))
    }

    /// A group is durable: what is over, if anything is.
    pub(super) fn ended(&mut self, now: Instant) -> Option<Mention> {
        self.0.take().map(|failures| failures.mention(now))
    }
}

impl Failures {
    fn mention(&self, now: Instant) -> Mention {
        Mention { groups: self.groups, lasted: now.duration_since(self.began) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_at_first_one_a_minute_and_one_at_the_end() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mention = |groups, seconds| Some(Mention { groups, lasted: Duration::from_secs(seconds) });
        let mut outage = Outage::default();
        assert_eq!(outage.ended(start), None);
        assert_eq!(outage.failed(start), mention(1, 0));
        let said: Vec<_> = (1..150).filter_map(|s| outage.failed(at(s))).collect();
        assert_eq!(said, [mention(61, 60), mention(121, 120)].map(Option::unwrap));
        assert_eq!(outage.ended(at(150)), mention(150, 150));
        assert_eq!(outage.ended(at(151)), None);
        assert_eq!(outage.failed(at(200)), mention(1, 0));
    }
}
