//! Decides whether to trust the wall clock, from the evidence so far.

use admission::age::{Doubt, EARLIEST_MS};
use std::ops::RangeInclusive;
use tables::upkeep::Now;

/// Record of the last time at which a clock was trusted before the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastTrusted {
    /// There is no record.
    Unknown,
    /// No clock has been trusted yet.
    Never,
    /// Time that the clock showed when it was last trusted.
    At(i64),
}

/// Evidence from senders, and the settling time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence {
    /// Offset of the senders' clocks: the largest lead over the monotonic clock of a sample that arrived since the start. `None`
    /// if no sample arrived.
    pub(super) sender_lead_ms: Option<i64>,
    /// Time after the start during which the verdict is [`Doubt::Settling`].
    pub(super) settle_ms: i64,
}

const HOUR_MS: i64 = 3_600_000;

/// Tolerance for steps back. Corrections and drift are smaller. Equals the default limit on samples from the future.
const BACK_MS: i64 = HOUR_MS / 6;

/// Tolerance for steps ahead. Corrections, and jumps of a machine that slept, are smaller.
const AHEAD_MS: i64 = HOUR_MS;

/// Downtime that is plausible without evidence. After a longer downtime, the clock is [`Doubt::Ahead`] until it has
/// been consistent for one of the times below.
const DOWN_MS: i64 = 24 * HOUR_MS;

/// Time for which an implausible clock must be consistent to be trusted, without evidence from samples.
const HELD_MS: i64 = 24 * HOUR_MS;

/// Like [`HELD_MS`], for a clock that is ahead and that arriving samples agree with. This time is not zero, because the
/// sender may run on the same machine. Samples prove nothing about a clock that is behind, because late samples agree
/// with such a clock too.
const HELD_AND_HEARD_MS: i64 = HOUR_MS;

/// Like [`HELD_MS`], for a clock that is ahead and that arriving samples disagree with.
const HELD_AGAINST_MS: i64 = 7 * 24 * HOUR_MS;

/// Evidence about the wall clock. An *offset* is the lead of the wall clock over the monotonic clock, which starts at
/// zero. The offset is constant until the wall clock is set.
#[derive(Debug)]
pub(super) struct Judge {
    start_ms: i64,
    last_trusted: LastTrusted,
    /// Offset that is trusted: it was plausible, or consistent for long enough.
    offset_ms: Option<i64>,
    /// True if the offset was trusted because it was consistent for long enough. Dates found later do not refute it.
    is_consistent: bool,
    /// True if there is evidence for the offset, and not only a lack of evidence against it.
    confirmed: bool,
    /// Newest date found in data from before the start.
    newest_ms: Option<i64>,
    /// Lower bound of the offset, from the record, dates found, and [`EARLIEST_MS`].
    least_ms: i64,
    implausible: Option<ImplausibleOffset>,
}

/// A clock with an implausible offset.
#[derive(Debug, Clone, Copy)]
struct ImplausibleOffset {
    doubt: Doubt,
    /// First such offset.
    offset_ms: i64,
    /// Time at which the doubt began, by the monotonic clock.
    since_ms: i64,
}

impl Judge {
    /// Creates a judge at the start of the node. `start_ms` is the wall clock's time, `last_trusted` the record of earlier runs.
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
                return; // written by a clock that was not trusted
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

    /// Reason not to trust the clock, if any.
    pub(super) fn doubt(&mut self, now: Now, evidence: Evidence) -> Option<Doubt> {
        let offset_ms = now.wall_ms.saturating_sub(now.steady_ms);
        let agrees_with = |offset_ms: i64| {
            let agreed_ms = offset_ms.saturating_sub(AHEAD_MS)..=offset_ms.saturating_add(BACK_MS);
            evidence.sender_lead_ms.map(|sender_lead_ms| agreed_ms.contains(&sender_lead_ms))
        };
        let agrees = agrees_with(offset_ms);
        // the clock may have been set since the samples arrived, so they are also compared with the earlier offset
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

    /// True if there is evidence for the current offset, so that the next start may rely on it.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Range of offsets that are consistent with all evidence.
    fn possible(&self) -> RangeInclusive<i64> {
        // the monotonic clock is zero at the start, so an offset is the wall time of the start
        let most_ms = match (self.last_trusted, self.newest_ms) {
            (LastTrusted::At(_), _) | (_, None) => self.most_credible_ms(),
            (LastTrusted::Unknown, Some(newest_ms)) => newest_ms.saturating_add(DOWN_MS),
            // these dates were written by clocks that were not trusted
            (LastTrusted::Never, Some(_)) => i64::MIN,
        };
        self.least_ms - BACK_MS..=most_ms
    }

    /// Latest plausible time of the start, given when a clock was last trusted.
    const fn most_credible_ms(&self) -> i64 {
        match self.last_trusted {
            LastTrusted::At(at_ms) => at_ms.saturating_add(DOWN_MS),
            LastTrusted::Unknown | LastTrusted::Never => i64::MAX,
        }
    }
}
