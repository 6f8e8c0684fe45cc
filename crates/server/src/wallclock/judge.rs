//! The decision, as a function of what the clocks said so far.

use std::ops::RangeInclusive;
use tables::upkeep::Now;

/// Why the wall clock is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The node has just started: a clock that is wrong at boot is put right within minutes.
    Settling,
    /// It is later than can be explained.
    Ahead,
    /// It is earlier than something that has happened already.
    Behind,
}

impl Doubt {
    /// Each, with its name in metrics.
    pub(crate) const ALL: [(Self, &str); 3] =
        [(Self::Settling, "settling"), (Self::Ahead, "ahead"), (Self::Behind, "behind")];
}

/// What others say of the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    /// The newest sample that came.
    pub(super) heard_ms: i64,
    /// How long a start is [`Doubt::Settling`].
    pub(super) settle_ms: i64,
}

const HOUR_MS: i64 = 3_600_000;

/// No clock is right that shows less: the beginning of 2026, before this was written.
const EARLIEST_MS: i64 = 1_767_225_600_000;

/// A clock that is put right, or that drifts, goes back by less. As far ahead a sample may be by default.
const BACK_MS: i64 = HOUR_MS / 6;

/// A clock that is put right, or a machine that slept, goes ahead by less.
const AHEAD_MS: i64 = HOUR_MS;

/// A node that was down for longer waits for a word from its senders.
const DOWN_MS: i64 = 24 * HOUR_MS;

/// A clock that says the same for so long is believed, whatever speaks against it.
const HELD_MS: i64 = 24 * HOUR_MS;

/// The same where samples come that agree with it. Not at once: whoever sends may live on the same machine.
const HELD_AND_HEARD_MS: i64 = HOUR_MS;

/// What is known of the wall clock. *Offsets* are its lead over the steady clock, which begins with the start at zero:
/// they stay the same for as long as nobody sets it.
#[derive(Debug)]
pub(super) struct Judge {
    start_ms: i64,
    /// The offset that was found plausible, or that was held.
    offset_ms: Option<i64>,
    /// It was not plausible, but has held: what is found later says nothing against it.
    held: bool,
    /// The newest date of anything from before the start.
    newest_ms: Option<i64>,
    /// The least offset that is possible: something bears a date.
    least_ms: i64,
    astray: Option<Astray>,
}

/// A clock that is not where it should be.
#[derive(Debug, Clone, Copy)]
struct Astray {
    doubt: Doubt,
    /// The offset that it had first.
    offset_ms: i64,
    /// Since when, by the steady clock.
    since_ms: i64,
}

impl Judge {
    /// The start, and what the wall clock shows then.
    pub(super) const fn new(start_ms: i64) -> Self {
        let offset_ms = if start_ms < EARLIEST_MS { None } else { Some(start_ms) };
        let least_ms = EARLIEST_MS;
        Self { start_ms, offset_ms, held: false, newest_ms: None, least_ms, astray: None }
    }

    /// Something bears this date. What was written since the start by a clock that is ahead tells nothing.
    pub(super) fn found(&mut self, date_ms: i64, now: Now) {
        if date_ms > now.wall_ms.saturating_add(BACK_MS) {
            let at_start_ms = date_ms.saturating_sub(now.steady_ms);
            self.newest_ms = self.newest_ms.max(Some(at_start_ms));
            self.least_ms = self.least_ms.max(at_start_ms);
        } else if date_ms < self.start_ms {
            self.newest_ms = self.newest_ms.max(Some(date_ms));
        }
        let possible = self.possible();
        if !self.held {
            self.offset_ms = self.offset_ms.filter(|offset| possible.contains(offset));
        }
    }

    /// Why the clock is not to be believed.
    pub(super) fn doubt(&mut self, now: Now, word: Word) -> Option<Doubt> {
        let offset_ms = now.wall_ms.saturating_sub(now.steady_ms);
        let plausible = match self.offset_ms {
            Some(known) => known - BACK_MS..=known + AHEAD_MS,
            None => self.possible(),
        };
        if plausible.contains(&offset_ms) {
            (self.offset_ms, self.astray) = (Some(offset_ms), None);
            return (now.steady_ms < word.settle_ms).then_some(Doubt::Settling);
        }
        let doubt = if offset_ms < *plausible.start() { Doubt::Behind } else { Doubt::Ahead };
        let is_same = |astray: &Astray| {
            astray.doubt == doubt && astray.offset_ms.abs_diff(offset_ms) <= BACK_MS.unsigned_abs()
        };
        let fresh = Astray { doubt, offset_ms, since_ms: now.steady_ms };
        let astray = self.astray.filter(is_same).unwrap_or(fresh);
        let agrees = (now.wall_ms - AHEAD_MS..=now.wall_ms + BACK_MS).contains(&word.heard_ms);
        let needed_ms = if agrees { HELD_AND_HEARD_MS } else { HELD_MS };
        if now.steady_ms - astray.since_ms >= needed_ms {
            (self.offset_ms, self.held, self.astray) = (Some(offset_ms), true, None);
            return None;
        }
        self.astray = Some(astray);
        Some(doubt)
    }

    /// Offsets that agree with all that was found.
    fn possible(&self) -> RangeInclusive<i64> {
        // by the steady clock the start is at zero
        let most_ms = self.newest_ms.map_or(i64::MAX, |newest_ms| newest_ms.saturating_add(DOWN_MS));
        self.least_ms - BACK_MS..=most_ms
    }
}
