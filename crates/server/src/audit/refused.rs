//! Decides when refused requests are logged.
//!
//! ```text
//!   the first refusal of a sender for a reason ─▶ a line at once
//!   its further refusals ─▶ counted, with an example ─ a second after the last line ─▶ a line with their number
//! ```
//!
//! A sender is an address and, if known, the name of a caller: behind a proxy, all callers have one address.
//! So no refusal is missing in the sum of the lines, and a flood has few of them.

use super::beginning;
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time between two lines for the same sender and reason.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Limit on the kinds of refusals that are counted separately. All further ones share a counter and a line.
const KINDS_MAX: usize = 256;

const WHY_BYTES_MAX: usize = 512;

/// A line of the log.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    /// False for the kinds beyond [`KINDS_MAX`].
    pub(super) is_of_one: bool,
    /// Refusals that are in no earlier line.
    pub(super) count: u64,
    pub(super) example: Example,
}

/// One of the refusals of a line. It is kept until it is logged, so its texts should be short.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Example {
    pub(super) sender: IpAddr,
    pub(super) reason: &'static str,
    /// For administration, with method and parameters.
    pub(super) path: Box<str>,
    /// For administration: what the request named as its tenant.
    pub(super) tenant: Option<Box<str>>,
    pub(super) why: Box<str>,
}

impl Example {
    pub(super) fn of(sender: IpAddr, reason: &'static str, path: &str, why: &str) -> Self {
        let why = beginning(why, WHY_BYTES_MAX);
        Self { sender, reason, path: path.into(), tenant: None, why: why.into() }
    }
}

/// What has lines of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) sender: IpAddr,
    pub(super) reason: &'static str,
    /// [`Refusal::caller`].
    pub(super) caller: u32,
}

impl Kind {
    pub(super) fn of(sender: IpAddr, refusal: &Refusal) -> Self {
        Self { sender, reason: refusal.reason, caller: refusal.caller }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Own(Kind),
    /// All kinds beyond [`KINDS_MAX`].
    Others,
}

/// Refusals of a sender for a reason.
#[derive(Debug)]
struct Kept {
    /// When the last line was logged.
    logged: Instant,
    /// Refusals since then.
    count: u64,
    /// One of these refusals.
    example: Option<Example>,
}

impl Kept {
    fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.logged) >= EVERY
    }

    fn take(&mut self, key: Key, now: Instant) -> Option<Line> {
        self.logged = now;
        let count = std::mem::take(&mut self.count);
        self.example.take().map(|example| Line { is_of_one: matches!(key, Key::Own(_)), count, example })
    }
}

#[derive(Debug, Default)]
pub(super) struct RefusedLog {
    /// At most [`KINDS_MAX`], and one for others.
    kept: HashMap<Key, Kept>,
}

impl RefusedLog {
    /// Counts a refusal. Returns the lines that are to be logged now.
    pub(super) fn add(&mut self, kind: Kind, example: impl FnOnce() -> Example, now: Instant) -> Vec<Line> {
        let mut key = Key::Own(kind);
        let mut lines = Vec::new();
        if self.kept.len() >= KINDS_MAX && !self.kept.contains_key(&key) {
            lines = self.due(now);
            if self.kept.len() >= KINDS_MAX {
                key = Key::Others;
            }
        }
        let is_first = !self.kept.contains_key(&key);
        let kept = self.kept.entry(key).or_insert(Kept { logged: now, count: 0, example: None });
        kept.count += 1;
        kept.example.get_or_insert_with(example);
        if is_first || kept.is_due(now) {
            lines.extend(kept.take(key, now));
        }
        lines
    }

    /// Returns the lines whose time has come, and forgets senders without further refusals since their last line.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        self.kept.retain(|key, kept| {
            if !kept.is_due(now) {
                return true;
            }
            let line = kept.take(*key, now);
            let has_line = line.is_some();
            lines.extend(line);
            has_line
        });
        lines
    }

    /// Returns lines for all that was counted and is in no line yet.
    pub(super) fn rest(&mut self) -> Vec<Line> {
        self.kept.drain().filter_map(|(key, mut kept)| kept.take(key, kept.logged)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use stdx::clock::{Clock, SystemClock};

    fn sender(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn add(log: &mut RefusedLog, from: u32, reason: &'static str, now: Instant) -> Vec<Line> {
        let kind = Kind { sender: sender(from), reason, caller: 0 };
        log.add(kind, || Example::of(sender(from), reason, "/p", "why"), now)
    }

    /// Senders, reasons and counts of lines, sorted.
    fn shown(lines: Vec<Line>) -> Vec<(IpAddr, &'static str, u64)> {
        let mut shown: Vec<_> =
            lines.into_iter().map(|line| (line.example.sender, line.example.reason, line.count)).collect();
        shown.sort_unstable();
        shown
    }

    #[test]
    fn a_flood_is_a_line_a_second_and_the_rest_is_logged_without_a_further_refusal() {
        let (mut log, began) = (RefusedLog::default(), SystemClock.instant());
        let at = |ms| began + Duration::from_millis(ms);
        let (unknown, rights) = ("unauthenticated", "rights");
        assert_eq!(shown(add(&mut log, 1, unknown, at(0))), [(sender(1), unknown, 1)]);
        for _ in 0..10_000 {
            assert_eq!(add(&mut log, 1, unknown, at(10)), []);
        }
        assert_eq!(shown(add(&mut log, 1, rights, at(20))), [(sender(1), rights, 1)]);
        assert_eq!(shown(add(&mut log, 2, unknown, at(30))), [(sender(2), unknown, 1)]);
        assert_eq!(log.due(at(999)), []);
        assert_eq!(shown(log.due(at(1_000))), [(sender(1), unknown, 10_000)]);
        assert_eq!(add(&mut log, 1, unknown, at(1_500)), [], "a second after the line before");
        // the time of the next line has come, but nobody has asked for it
        assert_eq!(shown(add(&mut log, 1, unknown, at(2_000))), [(sender(1), unknown, 2)]);
        assert_eq!(add(&mut log, 1, unknown, at(2_100)), []);
        assert_eq!(shown(log.rest()), [(sender(1), unknown, 1)]);
        assert_eq!(log.due(at(9_000)), []);
        assert!(log.kept.is_empty());
    }

    #[test]
    fn callers_behind_one_address_have_lines_of_their_own() {
        let (mut log, now) = (RefusedLog::default(), SystemClock.instant());
        for caller in [1, 2] {
            let kind = Kind { sender: sender(1), reason: "rights", caller };
            for expected in [1, 0] {
                let lines = log.add(kind, || Example::of(sender(1), "rights", "/p", "why"), now);
                assert_eq!(lines.len(), expected, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_flood_of_senders_is_bounded_and_loses_no_refusal() {
        let (mut log, began) = (RefusedLog::default(), SystemClock.instant());
        let (mut lines, mut refusals) = (Vec::new(), 0);
        for second in 0..3 {
            for number in 0..10_000 {
                // each sender is refused twice in a row
                for _ in 0..2 {
                    let now = began + Duration::from_secs(second) + Duration::from_micros(u64::from(number));
                    lines.extend(add(&mut log, number * (second as u32 + 1), "unauthenticated", now));
                    refusals += 1;
                    assert!(log.kept.len() <= KINDS_MAX + 1);
                }
            }
        }
        assert!(lines.iter().any(|line| !line.is_of_one && line.count > 1000));
        assert!(lines.len() <= 3 * 2 * (KINDS_MAX + 1), "{} lines", lines.len());
        lines.extend(log.rest());
        assert_eq!(lines.iter().map(|line| line.count).sum::<u64>(), refusals);
    }
}
