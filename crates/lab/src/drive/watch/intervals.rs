//! The latest intervals of a target, which may still become visible piece by piece. Earlier ones are settled: they are in the
//! ledger, and what they lack is absent.

use super::sent::{Course, Sent};
use crate::generate::plan::Plan;
use crate::verify::flushed::{Flushed, Value};
use std::collections::BTreeMap;

/// The latest intervals are asked for again whenever something new was found: this many of them, and those of the latest
/// two seconds.
const KEPT: usize = 3;
const KEPT_MS: i64 = 2_000;

/// The length of intervals is the median of this many distances of their times.
const DISTANCES: usize = 101;

/// Memory of the time of an interval, in a list that has room to grow.
const TIME_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Intervals {
    /// What is known of the values of each slot's series, by time. `None` if no query has returned a value.
    open: BTreeMap<i64, BTreeMap<usize, Vec<Option<Sent>>>>,
    /// Values up to this time are not asked for any more, or were never asked for.
    settled_ms: i64,
    /// The times of settled intervals.
    times: Vec<i64>,
    /// When the watch began.
    begun_ms: i64,
    /// Largest time by which a value was sent later than its timestamp.
    early_ms: i64,
    /// The latest time of a value. At first, the time at which the watch began.
    until_ms: i64,
    /// True if something new was found, so that more of the same intervals may become visible.
    is_growing: bool,
    /// What the ledger may still take of memory.
    bytes_left: usize,
}

impl Intervals {
    pub(super) fn new(now_ms: i64, bytes_max: usize) -> Self {
        Self {
            open: BTreeMap::new(),
            settled_ms: now_ms,
            times: Vec::new(),
            begun_ms: now_ms,
            early_ms: 0,
            until_ms: now_ms,
            is_growing: false,
            bytes_left: bytes_max,
        }
    }

    /// Begins a look: settles what has been asked for again, and returns the time from which on to ask. With `again`, the
    /// latest intervals are asked for even if nothing new was found.
    pub(super) fn begin(
        &mut self,
        plan: &Plan,
        again: bool,
        courses: impl Fn(usize) -> Course,
        flushed: &mut Flushed,
    ) -> i64 {
        if !self.is_growing && !again {
            return self.until_ms + 1;
        }
        let kept = self.open.keys().nth_back(KEPT - 1).copied();
        let kept = kept.or(self.open.keys().next().copied()).unwrap_or(i64::MAX);
        let from_ms = kept.min(self.until_ms - KEPT_MS).max(self.settled_ms + 1);
        self.settle(plan, from_ms, courses, flushed);
        from_ms
    }

    /// True if no query has returned a value of this series at this time.
    pub(super) fn is_new(&self, value: &Value) -> bool {
        let interval = self.open.get(&value.at_ms);
        let slot = interval.and_then(|slots| slots.get(&value.slot));
        value.at_ms > self.settled_ms && slot.is_none_or(|series| series[value.index as usize].is_none())
    }

    /// Notes what is known of new values.
    pub(super) fn note(&mut self, plan: &Plan, values: &[(Value, Sent)]) {
        self.is_growing = false;
        for (value, sent) in values {
            if !self.is_new(value) {
                continue; // returned twice
            }
            self.is_growing = true;
            self.until_ms = self.until_ms.max(value.at_ms);
            if let Sent::Early(_, by_ms) = sent {
                self.early_ms = self.early_ms.max((*by_ms).into());
            }
            let series = self.open.entry(value.at_ms).or_default().entry(value.slot);
            let series = series.or_insert_with(|| vec![None; plan.slot(value.slot).len as usize]);
            series[value.index as usize] = Some(*sent);
        }
    }

    pub(super) fn is_growing(&self) -> bool {
        self.is_growing
    }

    /// Settles the intervals before a time.
    fn settle(
        &mut self,
        plan: &Plan,
        before_ms: i64,
        courses: impl Fn(usize) -> Course,
        flushed: &mut Flushed,
    ) {
        let distance_ms = self.distance_ms();
        let later = self.open.split_off(&before_ms);
        for (at_ms, slots) in std::mem::replace(&mut self.open, later) {
            self.settled_ms = at_ms;
            if let Some(left) = self.bytes_left.checked_sub(TIME_BYTES) {
                self.bytes_left = left;
                self.times.push(at_ms);
            }
            for slot in 0..plan.slots_count() {
                let expected = distance_ms.and_then(|ms| courses(slot).expected(ms, self.early_ms));
                let is_expected = expected.is_some_and(|(first, last)| (first..=last).contains(&at_ms));
                let len = u64::from(plan.slot(slot).len);
                flushed.expected += if is_expected { len } else { 0 };
                match slots.get(&slot) {
                    Some(series) => self.put(slot, at_ms, series, is_expected, flushed),
                    None if is_expected => flushed.absent += len,
                    None => {}
                }
            }
        }
    }

    /// Settles all intervals, and counts the values of those that the target has left out, from the beginning of the watch
    /// until a time.
    pub(super) fn finish(
        &mut self,
        plan: &Plan,
        until_ms: i64,
        courses: impl Fn(usize) -> Course + Copy,
        flushed: &mut Flushed,
    ) {
        self.settle(plan, i64::MAX, courses, flushed);
        flushed.early_ms = self.early_ms;
        let Some(distance_ms) = self.distance_ms() else { return };
        let gaps = gaps(&self.times, distance_ms, self.begun_ms, until_ms);
        for slot in 0..plan.slots_count() {
            let Some((first, last)) = courses(slot).expected(distance_ms, self.early_ms) else { continue };
            // the last interval may not have ended before the watch
            let last = last - distance_ms;
            let missing: u64 = gaps.iter().map(|gap| gap.times_between(first, last)).sum();
            flushed.expected += missing * u64::from(plan.slot(slot).len);
            flushed.absent += missing * u64::from(plan.slot(slot).len);
        }
    }

    /// The usual distance of the latest times. `None` if there are fewer than two.
    fn distance_ms(&self) -> Option<i64> {
        let times = self.open.keys().rev().chain(self.times.iter().rev()).copied();
        let times: Vec<i64> = times.take(DISTANCES + 1).collect();
        let mut distances: Vec<i64> = times.windows(2).map(|pair| pair[0] - pair[1]).collect();
        distances.sort_unstable();
        distances.get(distances.len() / 2).copied()
    }

    fn put(
        &mut self,
        slot: usize,
        at_ms: i64,
        series: &[Option<Sent>],
        is_expected: bool,
        flushed: &mut Flushed,
    ) {
        for sent in series {
            match sent {
                Some(Sent::Early(..)) => flushed.early += 1,
                Some(Sent::Stale(_)) => flushed.stale += 1,
                Some(Sent::Unknown) => flushed.unknown += 1,
                Some(Sent::Never) => flushed.wrong += 1,
                None if is_expected => flushed.absent += 1,
                Some(Sent::Round(_) | Sent::Before) | None => {}
            }
        }
        let rounds: Vec<Option<u32>> = series.iter().map(|sent| sent.and_then(Sent::round)).collect();
        flushed.push(slot, at_ms, &rounds, &mut self.bytes_left);
    }
}

/// Times at which a target has stored nothing: `count` of them at equal distances, after `after_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    after_ms: i64,
    distance_ms: i64,
    count: i64,
}

impl Gap {
    fn times_between(&self, first_ms: i64, last_ms: i64) -> u64 {
        // rounded up, and down
        let first = -(self.after_ms - first_ms).div_euclid(self.distance_ms);
        let last = (last_ms - self.after_ms).div_euclid(self.distance_ms);
        (last.min(self.count) - first.max(1) + 1).try_into().unwrap_or(0)
    }
}

/// The gaps between times that are usually at this distance, and before the first and after the last of them.
fn gaps(times: &[i64], distance_ms: i64, begin_ms: i64, end_ms: i64) -> Vec<Gap> {
    let (Some(first_ms), Some(last_ms)) = (times.first(), times.last()) else { return Vec::new() };
    let gap = |after_ms: i64, count: i64| Gap { after_ms, distance_ms, count };
    let before = (first_ms - begin_ms - 1).max(0) / distance_ms;
    let after = (end_ms - last_ms).max(0) / distance_ms;
    let edges = [gap(first_ms - (before + 1) * distance_ms, before), gap(*last_ms, after)];
    let between = times.windows(2).map(|pair| {
        let count = (pair[1] - pair[0] + distance_ms / 2) / distance_ms - 1;
        gap(pair[0], count)
    });
    edges.into_iter().chain(between).filter(|gap| gap.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::plan::tests::small;

    fn value(slot: usize, index: u32, at_ms: i64) -> Value {
        Value { slot, index, at_ms, value: 0.0 }
    }

    fn round_7(values: &[Value]) -> Vec<(Value, Sent)> {
        values.iter().map(|value| (*value, Sent::Round(7))).collect()
    }

    /// All slots were sent each 100 ms from 0 to 60 s.
    fn always(_: usize) -> Course {
        Course::new(601, 0, 60_000)
    }

    #[test]
    fn what_becomes_visible_late_is_owed_and_what_does_not_is_absent() {
        let plan = small();
        let (mut flushed, mut intervals) = (Flushed::new(&plan), Intervals::new(0, usize::MAX));
        assert_eq!(intervals.begin(&plan, false, always, &mut flushed), 1);
        intervals.note(&plan, &round_7(&[value(1, 0, 10_000), value(1, 3, 10_000)]));
        // the same interval again, because more of it may be visible now
        assert_eq!(intervals.begin(&plan, false, always, &mut flushed), 8_000);
        assert!(!intervals.is_new(&value(1, 3, 10_000)) && intervals.is_new(&value(1, 4, 10_000)));
        intervals.note(&plan, &round_7(&[value(1, 4, 10_000)]));
        assert_eq!(intervals.begin(&plan, false, always, &mut flushed), 8_000);
        intervals.note(&plan, &[]);
        // nothing more was found, so that only what is later is asked for
        assert_eq!(intervals.begin(&plan, false, always, &mut flushed), 10_001);
        for at_ms in [20_000, 30_000, 40_000] {
            intervals.note(&plan, &round_7(&[value(1, 0, at_ms)]));
        }
        assert_eq!(flushed.owed(), 0);
        assert_eq!(intervals.begin(&plan, false, always, &mut flushed), 20_000);
        assert_eq!((flushed.owed(), flushed.absent), (3, plan.series() - 3));
        assert!(!intervals.is_new(&value(1, 5, 10_000)), "a settled interval does not change any more");
        intervals.finish(&plan, 40_000, always, &mut flushed);
        assert_eq!((flushed.owed(), flushed.absent), (6, 4 * plan.series() - 6));
        assert_eq!(flushed.expected, 4 * plan.series());
    }

    /// Stores all values of some times, and returns how many are absent, in intervals.
    fn absent_of(times: &[i64], until_ms: i64, course: impl Fn(usize) -> Course + Copy) -> (u64, u64) {
        let plan = small();
        let (mut flushed, mut intervals) = (Flushed::new(&plan), Intervals::new(0, usize::MAX));
        for at_ms in times {
            let slots = (0..plan.slots_count()).map(|slot| (slot, plan.slot(slot).len));
            let all = slots.flat_map(|(slot, len)| (0..len).map(move |index| value(slot, index, *at_ms)));
            intervals.note(&plan, &round_7(&all.collect::<Vec<_>>()));
            intervals.begin(&plan, false, course, &mut flushed);
        }
        intervals.finish(&plan, until_ms, course, &mut flushed);
        assert_eq!(flushed.owed(), times.len() as u64 * plan.series());
        (flushed.absent / plan.series(), flushed.expected / plan.series())
    }

    #[test]
    fn whole_intervals_that_are_left_out_are_absent() {
        let each_s = |from_s: i64, to_s: i64| (from_s..=to_s).map(|s| s * 1_000 + 7);
        let all: Vec<i64> = each_s(1, 59).collect();
        assert_eq!(absent_of(&all, 60_000, always).0, 0);
        // in the middle, where one interval is a bit late
        let middle: Vec<i64> = each_s(1, 20).chain([25_300]).chain(each_s(26, 59)).collect();
        assert_eq!(absent_of(&middle, 60_000, always).0, 4);
        // the first ones, apart from the first two seconds
        assert_eq!(absent_of(&all[9..], 60_000, always).0, 8);
        // the target stops. The last two seconds are not expected
        let (absent, expected) = absent_of(&all[..10], 60_000, always);
        assert_eq!((absent, expected), (47, 47 + 9));
        // every second interval cannot be told from longer intervals
        let second: Vec<i64> = all.iter().copied().step_by(2).collect();
        assert_eq!(absent_of(&second, 60_000, always).0, 0);
        // long intervals in a short run
        assert_eq!(absent_of(&[5_000, 15_000], 20_000, |_| Course::new(201, 0, 20_000)), (0, 2));
    }

    /// Some targets store only gauges that were sent within the interval.
    #[test]
    fn gauges_that_are_sent_more_rarely_than_stored_are_not_expected() {
        let each_5_s = |_: usize| Course::new(13, 0, 60_000);
        let each_1_s = |_: usize| Course::new(61, 0, 60_000);
        let few = [10_000, 11_000, 12_000, 22_000];
        assert_eq!(absent_of(&few, 60_000, each_5_s), (0, 0));
        assert_eq!(absent_of(&few, 60_000, each_1_s), (8 + 9 + 36, 4 + 8 + 9 + 36));
        // the distance of intervals is not known
        assert_eq!(absent_of(&[10_000], 60_000, each_1_s), (0, 0));
        assert_eq!(absent_of(&few, 60_000, |_| Course::new(1, 0, 0)), (0, 0));
        assert_eq!(absent_of(&few, 60_000, |_| Course::default()), (0, 0));
    }

    #[test]
    fn each_value_is_counted_as_what_it_is() {
        let plan = small();
        let (mut flushed, mut intervals) = (Flushed::new(&plan), Intervals::new(0, usize::MAX));
        let kinds =
            [Sent::Round(1), Sent::Early(2, 3_000), Sent::Stale(0), Sent::Before, Sent::Unknown, Sent::Never];
        let values = |at_ms| -> Vec<_> {
            kinds.iter().zip(0..).map(|(sent, index)| (value(1, index, at_ms), *sent)).collect()
        };
        let twice = [values(10_000), values(10_000)].concat();
        // slot 1, of which two series have no value, and slot 2 are expected
        let courses = |slot| if matches!(slot, 1 | 2) { always(slot) } else { Course::default() };
        intervals.note(&plan, &twice);
        intervals.note(&plan, &values(11_000));
        intervals.finish(&plan, 11_000, courses, &mut flushed);
        let Flushed { wrong, stale, early, unknown, absent, early_ms, .. } = flushed;
        assert_eq!((wrong, stale, early, unknown, early_ms), (2, 2, 2, 2, 3_000));
        // and of the seconds from the second to the ninth, nothing was stored
        let of_slot_2 = u64::from(plan.slot(2).len);
        assert_eq!((absent, flushed.owed()), (2 * (2 + of_slot_2) + 8 * (8 + of_slot_2), 6));
    }

    #[test]
    fn a_ledger_that_is_full_says_so() {
        let plan = small();
        let (mut flushed, mut intervals) = (Flushed::new(&plan), Intervals::new(0, 200));
        for at_ms in 1..=50 {
            intervals.note(&plan, &round_7(&[value(1, 0, at_ms)]));
        }
        intervals.finish(&plan, 50, always, &mut flushed);
        assert!(flushed.owed() > 0 && flushed.unnoted > 0);
        assert_eq!(flushed.owed() + flushed.unnoted, 50);
    }
}
