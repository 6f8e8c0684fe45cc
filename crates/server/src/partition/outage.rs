//! Limits the rate of log messages while groups cannot be made durable, for example because the disk is full.

use std::time::{Duration, Instant};

const MENTION_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Outage(Option<Failures>);

#[derive(Debug, Clone, Copy)]
struct Failures {
    began: Instant,
    mentioned: Instant,
    groups: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutageMessage {
    pub(super) groups: u64,
    pub(super) lasted: Duration,
}

impl Outage {
    /// Called when a group could not be made durable. Returns a message if it is time to log one.
    pub(super) fn failed(&mut self, now: Instant) -> Option<OutageMessage> {
        let Some(failures) = &mut self.0 else {
            self.0 = Some(Failures { began: now, mentioned: now, groups: 1 });
            return Some(OutageMessage { groups: 1, lasted: Duration::ZERO });
        };
        failures.groups += 1;
        if now.duration_since(failures.mentioned) < MENTION_EVERY {
            return None;
        }
        failures.mentioned = now;
        Some(failures.message(now))
    }

    /// Called when a group was made durable. Returns a message if this ends an outage.
    pub(super) fn ended(&mut self, now: Instant) -> Option<OutageMessage> {
        self.0.take().map(|failures| failures.message(now))
    }
}

impl Failures {
    fn message(&self, now: Instant) -> OutageMessage {
        OutageMessage { groups: self.groups, lasted: now.duration_since(self.began) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_at_first_one_a_minute_and_one_at_the_end() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let message = |groups, seconds| Some(OutageMessage { groups, lasted: Duration::from_secs(seconds) });
        let mut outage = Outage::default();
        assert_eq!(outage.ended(start), None);
        assert_eq!(outage.failed(start), message(1, 0));
        let said: Vec<_> = (1..150).filter_map(|s| outage.failed(at(s))).collect();
        assert_eq!(said, [message(61, 60), message(121, 120)].map(Option::unwrap));
        assert_eq!(outage.ended(at(150)), message(150, 150));
        assert_eq!(outage.ended(at(151)), None);
        assert_eq!(outage.failed(at(200)), message(1, 0));
    }
}
