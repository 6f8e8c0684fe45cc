use admission::age::{Doubt, EARLIEST_MS};
use std::ops::RangeInclusive;
use tables::upkeep::Now;

/// What is known of the last time, before the start, at which the clock was trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastTrusted {
    Unknown,
    /// The clock was never trusted in this data directory.
    Never,
    At(i64),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence {
    /// The largest difference between the timestamp of a sample and the monotonic clock when the sample arrived; `None`
    /// before the first sample.
    pub(super) sender_lead_ms: Option<i64>,
    /// For this long after the start, the clock is not trusted: the verdict is [`Doubt::Settling`].
    pub(super) settle_ms: i64,
}

const HOUR_MS: i64 = 3_600_000;

/// The clock may step back by this much without causing doubt. Corrections and drift are smaller.
const BACK_MS: i64 = HOUR_MS / 6;

/// The clock may step ahead by this much without causing doubt. Corrections and jumps after sleep are smaller.
const AHEAD_MS: i64 = HOUR_MS;

/// The node may have been down for this long. If the clock says that it was longer, and nothing confirms this, the
/// clock is [`Doubt::Ahead`].
const DOWN_MS: i64 = 24 * HOUR_MS;

/// A clock that was consistent for this long is trusted, even if no samples confirm it.
const HELD_MS: i64 = 24 * HOUR_MS;

/// For a clock that is ahead and that samples agree with, this replaces [`HELD_MS`]. It is not zero, because the
/// sender may have the same wrong clock.
const HELD_AND_HEARD_MS: i64 = HOUR_MS;

/// For a clock that is ahead and that samples disagree with, this replaces [`HELD_MS`].
const HELD_AGAINST_MS: i64 = 7 * 24 * HOUR_MS;

/// Weighs the evidence about the wall clock. An *offset* is how far the wall clock is ahead of the monotonic clock,
/// which is zero at the start.
#[derive(Debug)]
pub(super) struct Judge {
    start_ms: i64,
    last_trusted: LastTrusted,
    offset_ms: Option<i64>,
    /// True if the offset is trusted only because it has been consistent for long. Dates that are found later do not
    /// change this.
    is_consistent: bool,
    /// True if there is evidence for the offset, rather than merely no evidence against it.
    confirmed: bool,
    /// The newest date in data that was written before the start.
    newest_ms: Option<i64>,
    /// The offset is at least this large, because of dates at which data was written.
    least_ms: i64,
    implausible: Option<ImplausibleOffset>,
}

#[derive(Debug, Clone, Copy)]
struct ImplausibleOffset {
    doubt: Doubt,
    offset_ms: i64,
    /// When the doubt began, by the monotonic clock.
    since_ms: i64,
}

impl Judge {
    /// `start_ms` is what the wall clock shows at the start.
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

    /// Called with a date from stored data. A date since the start proves nothing, because this node's own clock may
    /// have been ahead when it wrote it.
    pub(super) fn found(&mut self, date_ms: i64, now: Now) {
        if date_ms > now.wall_ms.saturating_add(BACK_MS) {
            let at_start_ms = date_ms.saturating_sub(now.steady_ms);
            if at_start_ms > self.most_credible_ms() {
                return; // such a date was written by a clock that was itself wrong
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

    /// True if the present offset may be saved, so that the next start can rely on it.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    fn possible(&self) -> RangeInclusive<i64> {
        // an offset is the wall time minus the monotonic time, which is zero at the start; therefore, an offset equals
        // the wall time at the start, and limits on one are limits on the other
        let most_ms = match (self.last_trusted, self.newest_ms) {
            (LastTrusted::At(_), _) | (_, None) => self.most_credible_ms(),
            (LastTrusted::Unknown, Some(newest_ms)) => newest_ms.saturating_add(DOWN_MS),
            // the stored dates come from a clock that was never trusted, so they make no offset plausible
            (LastTrusted::Never, Some(_)) => i64::MIN,
        };
        self.least_ms - BACK_MS..=most_ms
    }

    /// Latest wall-clock time at which the node may plausibly have started.
    const fn most_credible_ms(&self) -> i64 {
        match self.last_trusted {
            LastTrusted::At(at_ms) => at_ms.saturating_add(DOWN_MS),
            LastTrusted::Unknown | LastTrusted::Never => i64::MAX,
        }
    }
}
