//! Decides whether to trust the wall clock.

use admission::age::{Doubt, EARLIEST_MS};
use std::ops::RangeInclusive;
use tables::upkeep::Now;

/// Record of the last trusted time before the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastTrusted {
    Unknown,
    /// No clock was ever trusted.
    Never,
    /// The last trusted time.
    At(i64),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence {
    /// Largest lead of an arrived sample over the monotonic clock; `None` before the first sample.
    pub(super) sender_lead_ms: Option<i64>,
    /// Time after the start during which the verdict is [`Doubt::Settling`].
    pub(super) settle_ms: i64,
}

const HOUR_MS: i64 = 3_600_000;

/// Tolerated step back. Corrections and drift are smaller.
const BACK_MS: i64 = HOUR_MS / 6;

/// Tolerated step ahead. Corrections and jumps after sleep are smaller.
const AHEAD_MS: i64 = HOUR_MS;

/// Downtime that is plausible without evidence. After a longer downtime, the clock is [`Doubt::Ahead`].
const DOWN_MS: i64 = 24 * HOUR_MS;

/// Time after which a consistent clock is trusted, without evidence from samples.
const HELD_MS: i64 = 24 * HOUR_MS;

/// Like [`HELD_MS`], for a clock that is ahead and that samples agree with. The sender may have the same wrong clock.
const HELD_AND_HEARD_MS: i64 = HOUR_MS;

/// Like [`HELD_MS`], for a clock that is ahead and that samples disagree with.
const HELD_AGAINST_MS: i64 = 7 * 24 * HOUR_MS;

/// Evidence about the wall clock. An *offset* is the wall clock's lead over the monotonic clock, which starts at zero.
#[derive(Debug)]
pub(super) struct Judge {
    start_ms: i64,
    last_trusted: LastTrusted,
    /// The trusted offset.
    offset_ms: Option<i64>,
    /// True if the offset was trusted because it was consistent. Dates found later do not refute it.
    is_consistent: bool,
    /// True if there is positive evidence for the offset.
    confirmed: bool,
    /// Newest date in data from before the start.
    newest_ms: Option<i64>,
    /// Lower bound of the offset.
    least_ms: i64,
    implausible: Option<ImplausibleOffset>,
}

#[derive(Debug, Clone, Copy)]
struct ImplausibleOffset {
    doubt: Doubt,
    offset_ms: i64,
    /// Start of the doubt, by the monotonic clock.
    since_ms: i64,
}

impl Judge {
    /// `start_ms` is the wall clock's time.
    pub(super) fn new(start_ms: i64, last_trusted: LastTrusted) -> Self {
        let least_ms =
            if let LastTrusted::At(at_ms) = last_trusted { at_ms.max(EARLIEST_MS) } else { EARLIEST_MS };
        let judge = Self {
            start_ms,
            last_trusted,
            offset_ms: None,
            is_consistent: false,
            confirmed: matches!(last_trusted, LastTrusted::At(_)),
            newest_ms: None,
            least_ms,
            implausible: None,
        };
        Self { offset_ms: judge.possible().contains(&start_ms).then_some(start_ms), ..judge }
    }

    /// Notes a date found in data. Dates written since the start by a clock that is ahead prove nothing.
    pub(super) fn found(&mut self, date_ms: i64, now: Now) {
        if date_ms > now.wall_ms.saturating_add(BACK_MS) {
            let at_start_ms = date_ms.saturating_sub(now.steady_ms);
            if at_start_ms > self.most_credible_ms() {
                return; // written by an untrusted clock
            }
            self.newest_ms = self.newest_ms.max(Some(at_start_ms));
            self.least_ms = self.least_ms.max(at_start_ms);
        } else if date_ms < self.start_ms {
            self.newest_ms = self.newest_ms.max(Some(date_ms));
        }
        let possible = self.possible();
        if !self.is_consistent {
            self.offset_ms = self.offset_ms.filter(|offset| possible.contains(offset));
        }
    }

    pub(super) fn doubt(&mut self, now: Now, evidence: Evidence) -> Option<Doubt> {
        let offset_ms = now.wall_ms.saturating_sub(now.steady_ms);
        let agrees_with = |offset_ms: i64| {
            let agreed_ms = offset_ms.saturating_sub(AHEAD_MS)..=offset_ms.saturating_add(BACK_MS);
            evidence.sender_lead_ms.map(|sender_lead_ms| agreed_ms.contains(&sender_lead_ms))
        };
        let agrees = agrees_with(offset_ms);
        // samples may have arrived before the clock was set, so the earlier offset counts too
        self.confirmed |= self.offset_ms.and_then(agrees_with) == Some(true);
        let is_known = self.confirmed || self.newest_ms.is_some();
        let plausible = match self.offset_ms {
            Some(known) if is_known => known - BACK_MS..=known + AHEAD_MS,
            _ => self.possible(),
        };
        if plausible.contains(&offset_ms) && (is_known || agrees != Some(false)) {
            self.confirmed = is_known || agrees == Some(true);
            (self.offset_ms, self.implausible) = (Some(offset_ms), None);
            return (now.steady_ms < evidence.settle_ms).then_some(Doubt::Settling);
        }
        let doubt = if offset_ms < *plausible.start() { Doubt::Behind } else { Doubt::Ahead };
        let is_same = |implausible: &ImplausibleOffset| {
            implausible.doubt == doubt && implausible.offset_ms.abs_diff(offset_ms) <= BACK_MS.unsigned_abs()
        };
        let fresh = ImplausibleOffset { doubt, offset_ms, since_ms: now.steady_ms };
        let implausible = self.implausible.filter(is_same).unwrap_or(fresh);
        let needed_ms = match (doubt, agrees) {
            (Doubt::Ahead, Some(true)) => HELD_AND_HEARD_MS,
            (Doubt::Ahead, Some(false)) => HELD_AGAINST_MS,
            _ => HELD_MS,
        };
        if now.steady_ms - implausible.since_ms >= needed_ms {
            (self.offset_ms, self.is_consistent, self.confirmed, self.implausible) =
                (Some(offset_ms), true, true, None);
            return None;
        }
        self.implausible = Some(implausible);
        let agrees_with_dates = self.newest_ms.is_some_and(|newest_ms| offset_ms <= newest_ms + DOWN_MS);
        let is_young = self.last_trusted == LastTrusted::Never && agrees_with_dates;
        Some(if is_young && doubt == Doubt::Ahead { Doubt::Settling } else { doubt })
    }

    /// True if the next start may rely on the current offset.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Range of offsets that fit all evidence.
    fn possible(&self) -> RangeInclusive<i64> {
        // the monotonic clock is zero at the start, so an offset is the wall time of the start
        let most_ms = match (self.last_trusted, self.newest_ms) {
            (LastTrusted::At(_), _) | (_, None) => self.most_credible_ms(),
            (LastTrusted::Unknown, Some(newest_ms)) => newest_ms.saturating_add(DOWN_MS),
            // untrusted clocks wrote these dates
            (LastTrusted::Never, Some(_)) => i64::MIN,
        };
        self.least_ms - BACK_MS..=most_ms
    }

    /// Latest plausible time of the start.
    const fn most_credible_ms(&self) -> i64 {
        match self.last_trusted {
            LastTrusted::At(at_ms) => at_ms.saturating_add(DOWN_MS),
            LastTrusted::Unknown | LastTrusted::Never => i64::MAX,
        }
    }
}
