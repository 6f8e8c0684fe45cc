//! When the rounds of each slot were sent, and which round a stored value is of.
//!
//! ```text
//!   rounds by time   ……│ earlier ─────────────────┬─────────────── fresh ────────────────┬─ later ──▶ now
//!                  end of the window      two seconds before                    two seconds after
//!                                                      the time of the value
//! ```
//!
//! Senders note only times. Values are compared on a copy of them, so that no sender waits.

use crate::generate::plan::Plan;
use crate::verify::flushed::{Value, value_of};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// How much the clocks of target and generator may differ, and how long a datagram may be on its way.
pub(crate) const TOLERANCE_MS: i64 = 2_000;

/// The times of rounds are known for this long, besides the commit interval. It is enough for intervals of a minute that
/// are stamped with their beginning, and seen only after their end.
const WINDOW_MS: i64 = 90_000;

/// Number of spans that a slot has in the window. So the times of rounds are exact to a 256th of it, which is a third of a
/// second, however fast they follow each other.
const SPANS_MAX: usize = 256;

/// Memory of the times of one slot.
pub(super) const SLOT_BYTES: u64 = (SPANS_MAX * size_of::<Span>()) as u64;

/// A value is compared with this many rounds. A comparison takes some ten nanoseconds.
const ROUNDS_SEARCHED: u64 = 200_000;

/// The values of one look are compared with this many rounds together, which takes about half a second of a thread.
const ROUNDS_OF_A_LOOK: u64 = 20_000_000;

/// What the sender knows of a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The value of this round, which the target may have had at that time.
    Round(u32),
    /// The value of a round that was sent later than two seconds after the time. The target's clock is behind, or its times
    /// are the beginnings of intervals. And how much later.
    Early(u32, u32),
    /// The value of this round, although a later one had been sent two seconds before the time.
    Stale(u32),
    /// Nothing had been sent two seconds before the time, so that the value may be older than the run.
    Before,
    /// The value is of none of the rounds that were searched, and these were not all; or it is of a round that was sent
    /// before the times that are kept.
    Unknown,
    /// The value is of no round.
    Never,
}

impl Sent {
    /// The round of a value that is owed.
    pub(crate) fn round(self) -> Option<u32> {
        match self {
            Self::Round(round) | Self::Early(round, _) | Self::Stale(round) => Some(round),
            Self::Before | Self::Unknown | Self::Never => None,
        }
    }
}

/// When the latest rounds of each slot were sent, in ms since 1970.
#[derive(Debug)]
pub(crate) struct SentTimes {
    slots: Vec<Mutex<Window>>,
    window_ms: i64,
}

impl SentTimes {
    pub(crate) fn new(slots: usize, commit_ms: i64) -> Self {
        Self { slots: (0..slots).map(|_| Mutex::default()).collect(), window_ms: WINDOW_MS + commit_ms }
    }

    pub(crate) fn note(&self, slot: usize, round: u32, at_ms: i64) {
        self.of(slot).note(round, at_ms, self.window_ms);
    }

    pub(super) fn course(&self, slot: usize) -> Course {
        self.of(slot).course
    }

    /// Finds the round of each value. It may take some tenths of a second.
    pub(super) fn rounds_of(&self, plan: &Plan, mut values: Vec<Value>) -> Vec<(Value, Sent)> {
        values.sort_unstable_by_key(|value| (value.slot, value.at_ms, value.index));
        let (mut left, mut all) = (ROUNDS_OF_A_LOOK, Vec::with_capacity(values.len()));
        for of_slot in values.chunk_by(|a, b| a.slot == b.slot) {
            let window = self.of(of_slot[0].slot).clone();
            // all series of a slot were sent together
            let mut near: Option<(i64, u32)> = None;
            for value in of_slot {
                let (slot, index) = (value.slot, value.index);
                near = near.filter(|(at_ms, _)| *at_ms == value.at_ms);
                let budget = left.min(ROUNDS_SEARCHED);
                let mut search = Search {
                    budget,
                    has: |round| value_of(plan, slot, index, round).to_bits() == value.value.to_bits(),
                };
                let sent = window.find(value.at_ms, near.map(|(_, round)| round), &mut search);
                left -= budget - search.budget;
                near = sent.round().map(|round| (value.at_ms, round)).or(near);
                all.push((*value, sent));
            }
        }
        all
    }

    fn of(&self, slot: usize) -> MutexGuard<'_, Window> {
        self.slots[slot].lock().expect("BUG: a sender panicked while it noted the time")
    }
}

/// Rounds that were sent one after the other, and when the first and the last of them were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first: u32,
    last: u32,
    from_ms: i64,
    to_ms: i64,
}

/// When the rounds of a slot were sent, from the first to the last one. They follow each other at about equal distances.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Course {
    rounds: u32,
    first_ms: i64,
    last_ms: i64,
}

impl Course {
    #[cfg(test)]
    pub(super) fn new(rounds: u32, first_ms: i64, last_ms: i64) -> Self {
        Self { rounds, first_ms, last_ms }
    }

    fn note(&mut self, at_ms: i64) {
        if self.rounds == 0 {
            self.first_ms = at_ms;
        }
        self.rounds += 1;
        self.last_ms = at_ms;
    }

    /// First and last time at which a target must have a value of this slot, if its intervals are `interval_ms` long. The
    /// last interval counts if it began two seconds and `early_ms` before the last round, even if it ended afterwards.
    /// `None` if rounds are so rare that an interval may have none: some targets store nothing then.
    ///
    /// An interval begins and ends up to two seconds earlier or later than its time says, and its end may be up to
    /// `early_ms` later still.
    pub(super) fn expected(&self, interval_ms: i64, early_ms: i64) -> Option<(i64, i64)> {
        let pauses = i64::from(self.rounds.checked_sub(1)?.max(1));
        let pause_ms = (self.last_ms - self.first_ms) / pauses;
        // a twentieth, because times are not exact
        let is_often = self.rounds > 1 && pause_ms <= interval_ms + interval_ms / 20;
        is_often
            .then_some((self.first_ms + TOLERANCE_MS, self.last_ms - TOLERANCE_MS - early_ms + interval_ms))
    }
}

/// The rounds of a slot that were sent last, in ascending order.
#[derive(Debug, Clone, Default)]
struct Window {
    course: Course,
    spans: VecDeque<Span>,
    /// True if earlier rounds were sent, whose times were dropped.
    is_cut: bool,
}

/// Compares a value with those of rounds.
struct Search<F> {
    /// How many rounds may still be compared.
    budget: u64,
    has: F,
}

impl<F: Fn(u32) -> bool> Search<F> {
    fn find(&mut self, rounds: impl Iterator<Item = u32>) -> Option<u32> {
        for round in rounds {
            self.budget = self.budget.checked_sub(1)?;
            if (self.has)(round) {
                return Some(round);
            }
        }
        None
    }
}

impl Window {
    fn note(&mut self, round: u32, at_ms: i64, window_ms: i64) {
        let mut span = Span { first: round, last: round, from_ms: at_ms, to_ms: at_ms };
        if let Some(last) = self.spans.back_mut() {
            // a request that is repeated was perhaps received the first time
            if round <= last.last {
                return;
            }
            // the clock may have been set back
            let at_ms = at_ms.max(last.to_ms);
            (span.from_ms, span.to_ms) = (at_ms, at_ms);
            self.course.note(at_ms);
            if round == last.last + 1 && at_ms - last.from_ms < window_ms / SPANS_MAX as i64 {
                (last.last, last.to_ms) = (round, at_ms);
                return;
            }
        } else {
            self.course.note(at_ms);
        }
        self.spans.push_back(span);
        // the target has the last round before the window until the first within it arrives
        let is_over = |second: &Span| second.to_ms < span.to_ms - window_ms;
        while self.spans.len() > SPANS_MAX || self.spans.get(1).is_some_and(is_over) {
            self.spans.pop_front();
            self.is_cut = true;
        }
    }

    /// Finds the round of a value with this time. The search begins at the round `near`, or at the one that was sent then.
    fn find<F: Fn(u32) -> bool>(&self, at_ms: i64, near: Option<u32>, search: &mut Search<F>) -> Sent {
        let (Some(oldest), Some(latest)) = (self.spans.front(), self.spans.back()) else {
            return Sent::Before;
        };
        let past = self.spans.partition_point(|span| span.to_ms < at_ms - TOLERANCE_MS);
        let possible = self.spans.partition_point(|span| span.from_ms <= at_ms + TOLERANCE_MS);
        // the last of the rounds that were certainly sent before is the one that the target had then
        let low = past.checked_sub(1).map_or(oldest.first, |last| self.spans[last].last);
        // the first round that was certainly sent after it
        let after = possible.checked_sub(1).map_or(oldest.first, |last| self.spans[last].last + 1);
        let centre = near.unwrap_or_else(|| self.round_at(at_ms));
        if let Some(round) = search.find(outward(low, after, centre)) {
            return Sent::Round(round);
        }
        if let Some(round) = search.find(after..=latest.last) {
            let span = self.spans.partition_point(|span| span.last < round);
            let sent_ms = self.spans.get(span).map_or(at_ms, |span| span.to_ms);
            return Sent::Early(round, u32::try_from(sent_ms - at_ms).unwrap_or(u32::MAX));
        }
        let earlier_from = if self.is_cut { 0 } else { oldest.first };
        let found = search.find((earlier_from..low).rev());
        match found {
            Some(round) if past > 0 => Sent::Stale(round),
            // the window does not reach back far enough
            Some(_) => Sent::Unknown,
            None if past == 0 && !self.is_cut => Sent::Before,
            None if search.budget == 0 => Sent::Unknown,
            None => Sent::Never,
        }
    }

    /// The round that was sent about then.
    fn round_at(&self, at_ms: i64) -> u32 {
        let after = self.spans.partition_point(|span| span.from_ms <= at_ms);
        let Some(span) = after.checked_sub(1).map(|at| self.spans[at]) else {
            return self.spans.front().map_or(0, |span| span.first);
        };
        if at_ms >= span.to_ms {
            return span.last;
        }
        let part = (at_ms - span.from_ms) as f64 / (span.to_ms - span.from_ms) as f64;
        span.first + (f64::from(span.last - span.first) * part) as u32
    }
}

/// Rounds from one to before another, of which those that are nearest to `centre` come first.
fn outward(from: u32, before: u32, centre: u32) -> impl Iterator<Item = u32> {
    let centre = centre.clamp(from, before.max(from));
    let most = (centre - from).max(before.saturating_sub(centre));
    let both = (0..=most).flat_map(move |distance| {
        let above = centre.checked_add(distance).filter(|_| distance > 0);
        [centre.checked_sub(distance), above]
    });
    both.flatten().filter(move |round| (from..before).contains(round))
}

#[cfg(test)]
mod tests;
