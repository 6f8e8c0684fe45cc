//! The decision, as a function of what the clocks said so far.

use admission::age::{Doubt, EARLIEST_MS};
use std::ops::RangeInclusive;
use tables::upkeep::Now;

/// When a clock was believed last, before the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Believed {
    /// Nobody noted it.
    Unknown,
    /// No clock was believed yet.
    Never,
    /// When it showed this.
    At(i64),
}

/// Time according to others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    /// The offset of the clock by which the newest samples were made that came since the start, if any did: their lead over
    /// the steady clock when they came.
    pub(super) heard_ms: Option<i64>,
    /// How long a start is [`Doubt::Settling`].
    pub(super) settle_ms: i64,
}

const HOUR_MS: i64 = 3_600_000;

/// A clock that is put right, or that drifts, goes back by less. As far ahead a sample may be by default.
const BACK_MS: i64 = HOUR_MS / 6;

/// A clock that is put right, or a machine that slept, goes ahead by less.
const AHEAD_MS: i64 = HOUR_MS;

/// A node that was down for longer waits for a word from its senders.
const DOWN_MS: i64 = 24 * HOUR_MS;

/// A clock that says the same for so long is believed, whatever speaks against it.
const HELD_MS: i64 = 24 * HOUR_MS;

/// The same of a clock that is ahead, where samples come that agree with it. Not at once: whoever sends may live on the same
/// machine. Of a clock that is behind it proves nothing: late samples agree with it too.
const HELD_AND_HEARD_MS: i64 = HOUR_MS;

/// The same of a clock that is ahead of all samples that come.
const HELD_AGAINST_MS: i64 = 7 * 24 * HOUR_MS;

/// Evidence about the wall clock. *Offsets* are its lead over the steady clock, which starts at zero: they stay the same
/// until someone sets the clock.
#[derive(Debug)]
pub(super) struct Judge {
    start_ms: i64,
    believed: Believed,
    /// The offset that was found plausible, or that was held.
    offset_ms: Option<i64>,
    /// It was not plausible, but has held: what is found later says nothing against it.
    held: bool,
    /// Something spoke for the offset: it is more than nothing against it.
    confirmed: bool,
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
    /// The start, what the wall clock shows then, and when one was believed before.
    pub(super) fn new(start_ms: i64, believed: Believed) -> Self {
        let least_ms = if let Believed::At(at_ms) = believed { at_ms.max(EARLIEST_MS) } else { EARLIEST_MS };
        let judge = Self {
            start_ms,
            believed,
            offset_ms: None,
            held: false,
            confirmed: matches!(believed, Believed::At(_)),
            newest_ms: None,
            least_ms,
            astray: None,
        };
        Self { offset_ms: judge.possible().contains(&start_ms).then_some(start_ms), ..judge }
    }

    /// Something bears this date. What was written since the start by a clock that is ahead tells nothing.
    pub(super) fn found(&mut self, date_ms: i64, now: Now) {
        if date_ms > now.wall_ms.saturating_add(BACK_MS) {
            let at_start_ms = date_ms.saturating_sub(now.steady_ms);
            if at_start_ms > self.most_credible_ms() {
                return; // it was written by a clock that nobody believed
            }
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
        let agrees_with = |offset_ms: i64| {
            let agreed_ms = offset_ms.saturating_sub(AHEAD_MS)..=offset_ms.saturating_add(BACK_MS);
            word.heard_ms.map(|heard_ms| agreed_ms.contains(&heard_ms))
        };
        let agrees = agrees_with(offset_ms);
        // the clock may have been set since they came
        self.confirmed |= self.offset_ms.and_then(agrees_with) == Some(true);
        let is_known = self.confirmed || self.newest_ms.is_some();
        let plausible = match self.offset_ms {
            Some(known) if is_known => known - BACK_MS..=known + AHEAD_MS,
            _ => self.possible(),
        };
        if plausible.contains(&offset_ms) && (is_known || agrees != Some(false)) {
            self.confirmed = is_known || agrees == Some(true);
            (self.offset_ms, self.astray) = (Some(offset_ms), None);
            return (now.steady_ms < word.settle_ms).then_some(Doubt::Settling);
        }
        let doubt = if offset_ms < *plausible.start() { Doubt::Behind } else { Doubt::Ahead };
        let is_same = |astray: &Astray| {
            astray.doubt == doubt && astray.offset_ms.abs_diff(offset_ms) <= BACK_MS.unsigned_abs()
        };
        let fresh = Astray { doubt, offset_ms, since_ms: now.steady_ms };
        let astray = self.astray.filter(is_same).unwrap_or(fresh);
        let needed_ms = match (doubt, agrees) {
            (Doubt::Ahead, Some(true)) => HELD_AND_HEARD_MS,
            (Doubt::Ahead, Some(false)) => HELD_AGAINST_MS,
            _ => HELD_MS,
        };
        if now.steady_ms - astray.since_ms >= needed_ms {
            (self.offset_ms, self.held, self.confirmed, self.astray) = (Some(offset_ms), true, true, None);
            return None;
        }
        self.astray = Some(astray);
        let agrees_with_dates = self.newest_ms.is_some_and(|newest_ms| offset_ms <= newest_ms + DOWN_MS);
        let is_young = self.believed == Believed::Never && agrees_with_dates;
        Some(if is_young && doubt == Doubt::Ahead { Doubt::Settling } else { doubt })
    }

    /// Something speaks for a clock that is not in doubt: the next start may go by it.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Offsets that agree with all that is known.
    fn possible(&self) -> RangeInclusive<i64> {
        // by the steady clock the start is at zero
        let most_ms = match (self.believed, self.newest_ms) {
            (Believed::At(_), _) | (_, None) => self.most_credible_ms(),
            (Believed::Unknown, Some(newest_ms)) => newest_ms.saturating_add(DOWN_MS),
            // those dates were written by clocks that nobody believed
            (Believed::Never, Some(_)) => i64::MIN,
        };
        self.least_ms - BACK_MS..=most_ms
    }

    /// Latest plausible time at the start, given when a clock was last believed.
    const fn most_credible_ms(&self) -> i64 {
        match self.believed {
            Believed::At(at_ms) => at_ms.saturating_add(DOWN_MS),
            Believed::Unknown | Believed::Never => i64::MAX,
        }
    }
}
