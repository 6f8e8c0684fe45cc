//! The values of one output, until they are computed.
//!
//! ```text
//!   add ─▶ interval ─ it has ended ─▶ compute ─▶ kept for late points ─▶ forgotten
//!                                        ▲  it has changed  │
//!                                        └──────────────────┘
//! ```
//!
//! The value of an interval is complete or missing. If points of an interval are unknown, it is never computed: a sum over
//! a part of the points looks like any other sum. The exception are intervals with points that are stored nowhere else
//! ([`Buffer::take`]), because they would be lost.

use super::function::{Function, Values};
use super::quantile::Outcome;

/// The intervals of one output, with their values.
#[derive(Debug)]
pub struct Buffer {
    interval_ms: i64,
    function: Function,
    /// Number of intervals that are kept before and after the present one.
    kept: i64,
    /// Intervals that begin earlier are incomplete.
    complete_from_ms: i64,
    /// Since when points are known.
    began_ms: i64,
    /// The largest lead of a point's time over the clock so far, at least the delay. Before `began_ms`, when points were not
    /// known, a sender whose clock is ahead may have sent some for times up to `began_ms + lead_ms`.
    lead_ms: i64,
    /// In the order of their times.
    intervals: Vec<Interval>,
}

#[derive(Debug)]
struct Interval {
    start_ms: i64,
    values: Values,
    is_changed: bool,
    /// Whether values are missing, because there was no memory for them, or because points are unknown.
    is_incomplete: bool,
    /// Whether it has points that are stored nowhere else. Then it is computed even if points are missing.
    has_taken: bool,
}

/// Why a point does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Its interval is no longer kept.
    Late,
    /// Its interval is too far in the future.
    Early,
    /// There was no memory.
    Memory,
    /// Its interval will not be computed, because other points of it are unknown.
    Incomplete,
}

/// The intervals that are due. What takes long is left to [`Self::finish`], so that the buffer may be used meanwhile.
#[derive(Debug, Default)]
pub struct Due {
    outcomes: Vec<(i64, Outcome)>,
    /// Number of intervals that are not computed, because some of their points are unknown.
    pub incomplete: u64,
    /// Intervals that are no longer kept. Freeing very many values takes long.
    forgotten: Vec<Interval>,
}

impl Due {
    /// True if there are intervals to compute.
    #[must_use]
    pub const fn has_values(&self) -> bool {
        !self.outcomes.is_empty()
    }

    /// True if [`Self::finish`] has nothing to compute and nothing to free.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.forgotten.is_empty()
    }

    /// Computes the values of intervals.
    #[must_use]
    pub fn finish(self) -> Computed {
        let Self { outcomes, incomplete, forgotten } = self;
        drop(forgotten);
        let points = outcomes.into_iter().map(|(start_ms, outcome)| (start_ms, outcome.value()));
        // infinite values of both signs have no sum
        Computed { points: points.filter(|(_, value)| !value.is_nan()).collect(), incomplete }
    }
}

/// What became of the intervals that were due.
#[derive(Debug, Default, PartialEq)]
pub struct Computed {
    /// Starts of intervals in milliseconds, and their values.
    pub points: Vec<(i64, f64)>,
    /// Number of intervals that are not computed, because some of their points are unknown.
    pub incomplete: u64,
}

impl Buffer {
    /// Time after the end of an interval at which it is computed, so that its last points can arrive: a tenth of the
    /// interval, and from one to ten seconds.
    #[must_use]
    pub fn delay_ms(interval_s: u32) -> i64 {
        i64::from(interval_s * 100).clamp(1000, 10_000)
    }

    /// `kept` is the number of intervals that are kept before and after the present one. Intervals that begin before
    /// `complete_from_ms` are never computed. It must be later by the delay than the time since which points are known. The
    /// buffer takes [`Self::first_bytes`] of memory.
    #[must_use]
    pub fn new(interval_s: u32, function: Function, kept: u32, complete_from_ms: i64) -> Self {
        let (interval_ms, intervals) =
            (i64::from(interval_s) * 1000, Vec::with_capacity(Self::usual_intervals(kept)));
        let lead_ms = Self::delay_ms(interval_s);
        let began_ms = complete_from_ms.saturating_sub(lead_ms);
        Self { interval_ms, function, kept: kept.into(), complete_from_ms, began_ms, lead_ms, intervals }
    }

    /// Memory of a new buffer, which has room for the intervals of points that are not early. So memory that runs short
    /// later does not harm it, unless it computes a quantile.
    #[must_use]
    pub const fn first_bytes(kept: u32) -> usize {
        Self::usual_intervals(kept) * size_of::<Interval>()
    }

    /// The present interval, those kept before it, and one that has ended but is not forgotten yet.
    const fn usual_intervals(kept: u32) -> usize {
        kept as usize + 2
    }

    /// True if a new buffer would do the same: there are no values, and points that are missing are no longer kept.
    #[must_use]
    pub const fn is_idle(&self, now_ms: i64) -> bool {
        self.intervals.is_empty() && self.complete_from_ms <= self.kept_from_ms(now_ms)
    }

    /// Adds a value. `reserve` is called with the bytes that are needed, before they are allocated. NaN is
    /// ignored.
    pub fn add<E>(
        &mut self,
        at_ms: i64,
        value: f64,
        now_ms: i64,
        reserve: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), Missed> {
        self.put(at_ms, value, now_ms, false, reserve)
    }

    /// Like [`Self::add`], for a point that is stored nowhere else, because it counted when [`Self::counts`] was asked. If its
    /// interval has become incomplete since, it counts nevertheless, and from now on the interval stays complete.
    pub fn take<E>(
        &mut self,
        at_ms: i64,
        value: f64,
        now_ms: i64,
        reserve: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), Missed> {
        self.put(at_ms, value, now_ms, true, reserve)
    }

    fn put<E>(
        &mut self,
        at_ms: i64,
        value: f64,
        now_ms: i64,
        is_taken: bool,
        mut reserve: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), Missed> {
        if value.is_nan() {
            return Ok(());
        }
        let start_ms = self.kept_start_of(at_ms, now_ms)?;
        self.hear(at_ms, now_ms);
        let found = self.open(start_ms, &mut reserve)?;
        let interval = &mut self.intervals[found];
        interval.is_changed = true;
        if interval.is_incomplete && !is_taken {
            return Err(Missed::Incomplete);
        }
        let added = interval.values.add(self.function, value, reserve);
        if added.is_err() {
            interval.is_incomplete = true;
        } else if is_taken {
            (interval.has_taken, interval.is_incomplete) = (true, false);
        }
        added.map_err(|_| Missed::Memory)
    }

    /// Notes that a point of this time does not count, although it may be stored. So its interval is never computed, unless it
    /// has taken points. `reserve` is called as by [`Self::add`].
    pub fn leave_out<E>(&mut self, at_ms: i64, now_ms: i64, reserve: impl FnMut(usize) -> Result<(), E>) {
        let Ok(start_ms) = self.kept_start_of(at_ms, now_ms) else { return };
        self.hear(at_ms, now_ms);
        // without memory for the interval, it is incomplete, too
        let Ok(found) = self.open(start_ms, reserve) else { return };
        let interval = &mut self.intervals[found];
        if !interval.has_taken {
            (interval.is_incomplete, interval.is_changed) = (true, true);
        }
    }

    /// The position of an interval, which begins now if it has no points yet.
    fn open<E>(
        &mut self,
        start_ms: i64,
        mut reserve: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<usize, Missed> {
        let position = match self.find(start_ms) {
            Ok(found) => return Ok(found),
            Err(position) => position,
        };
        if self.intervals.len() == self.intervals.capacity() {
            if reserve(size_of::<Interval>()).is_err() {
                self.complete_from_ms = self.complete_from_ms.max(start_ms + self.interval_ms);
                return Err(Missed::Memory);
            }
            self.intervals.reserve_exact(1);
        }
        let (values, is_incomplete) = (Values::new(self.function), start_ms < self.complete_from_ms);
        let interval = Interval { start_ms, values, is_changed: true, is_incomplete, has_taken: false };
        self.intervals.insert(position, interval);
        Ok(position)
    }

    /// Notes the time of a point that will be added. If it is ahead, this may make intervals incomplete.
    pub fn hear(&mut self, at_ms: i64, now_ms: i64) {
        if self.kept_start_of(at_ms, now_ms).is_ok() {
            self.lead_ms = self.lead_ms.max(at_ms.saturating_sub(now_ms));
            self.raise_complete_from(self.began_ms.saturating_add(self.lead_ms));
        }
    }

    /// Adds a rule, whose intervals are complete from `complete_from_ms` on, as in [`Self::new`].
    pub fn add_rule(&mut self, complete_from_ms: i64) {
        let began_ms = complete_from_ms.saturating_sub(Self::delay_ms((self.interval_ms / 1000) as u32));
        self.began_ms = self.began_ms.max(began_ms);
        self.raise_complete_from(self.began_ms.saturating_add(self.lead_ms));
    }

    /// Intervals that begin before this time are never computed, except those that have taken points.
    pub fn raise_complete_from(&mut self, complete_from_ms: i64) {
        if complete_from_ms > self.complete_from_ms {
            self.complete_from_ms = complete_from_ms;
            let before = self.starting_before(complete_from_ms);
            self.intervals[..before].iter_mut().for_each(Interval::interrupt);
        }
    }

    /// The buffer no longer learns of some of the points, because one of its rules has ended. The intervals that ended less than
    /// `delay_ms` ago, or of which it may have points already, are never computed, except those that have taken points.
    /// Earlier ones go on with the other points.
    /// Returns the time from which on intervals are complete.
    pub fn interrupt(&mut self, now_ms: i64, delay_ms: i64) -> i64 {
        let complete_from_ms = now_ms.saturating_add(self.lead_ms);
        self.complete_from_ms = self.complete_from_ms.max(complete_from_ms);
        let (from, to) = (self.ended(now_ms, delay_ms), self.starting_before(complete_from_ms));
        self.intervals[from..to].iter_mut().for_each(Interval::interrupt);
        complete_from_ms
    }

    /// Whether a point of this time would count, if it was heard and there is memory for it.
    #[must_use]
    pub fn counts(&self, at_ms: i64, now_ms: i64) -> bool {
        let Ok(start_ms) = self.kept_start_of(at_ms, now_ms) else { return false };
        match self.find(start_ms) {
            Ok(found) => !self.intervals[found].is_incomplete,
            Err(_) => start_ms >= self.complete_from_ms,
        }
    }

    /// Computes the intervals that have ended at least `delay_ms` ago and have changed since they were last computed. Forgets
    /// those that are no longer kept.
    #[must_use]
    pub fn compute(&mut self, now_ms: i64, delay_ms: i64) -> Due {
        let mut due = Due::default();
        let ended = self.ended(now_ms, delay_ms);
        for interval in &mut self.intervals[..ended] {
            interval.compute(self.function, &mut due);
        }
        let kept_from_ms = self.kept_from_ms(now_ms);
        let is_over = |interval: &mut Interval| !interval.is_changed && interval.start_ms < kept_from_ms;
        due.forgotten = self.intervals.extract_if(.., is_over).collect();
        due
    }

    /// Computes the intervals that have taken points and have changed since they were last computed, although they have not
    /// ended, because nothing more will be added to them. Their points are stored nowhere else.
    pub fn compute_taken(&mut self, due: &mut Due) {
        for interval in self.intervals.iter_mut().filter(|interval| interval.has_taken) {
            interval.compute(self.function, due);
        }
    }

    /// Number of intervals of which [`Self::compute_taken`] would compute a value.
    #[must_use]
    pub fn taken_left(&self) -> usize {
        self.intervals.iter().filter(|interval| interval.has_taken && interval.is_changed).count()
    }

    /// Forgets the intervals that have not ended at least `delay_ms` ago, because nothing more will be added to them. Those that
    /// have taken points are left to [`Self::compute_taken`].
    pub fn forget_open(&mut self, now_ms: i64, delay_ms: i64) {
        let (ended, mut position) = (self.ended(now_ms, delay_ms), 0);
        self.intervals.retain(|interval| {
            position += 1;
            position <= ended || interval.has_taken
        });
    }

    /// Number of values in all intervals.
    #[must_use]
    pub fn values(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.values.count()).sum()
    }

    /// Memory of the buffer besides its own fields.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let values: usize = self.intervals.iter().map(|interval| interval.values.heap_bytes()).sum();
        self.intervals.capacity() * size_of::<Interval>() + values
    }

    const fn start_of(&self, at_ms: i64) -> i64 {
        at_ms.saturating_sub(at_ms.rem_euclid(self.interval_ms))
    }

    /// The start of the earliest interval that is kept.
    const fn kept_from_ms(&self, now_ms: i64) -> i64 {
        self.start_of(now_ms).saturating_sub(self.kept * self.interval_ms)
    }

    /// The start of an interval, if it is kept.
    fn kept_start_of(&self, at_ms: i64, now_ms: i64) -> Result<i64, Missed> {
        let start_ms = self.start_of(at_ms);
        if start_ms < self.kept_from_ms(now_ms) {
            return Err(Missed::Late);
        }
        if start_ms > self.start_of(now_ms).saturating_add(self.kept * self.interval_ms) {
            return Err(Missed::Early);
        }
        Ok(start_ms)
    }

    fn find(&self, start_ms: i64) -> Result<usize, usize> {
        self.intervals.binary_search_by_key(&start_ms, |interval| interval.start_ms)
    }

    /// Number of intervals that begin before this time.
    fn starting_before(&self, at_ms: i64) -> usize {
        self.intervals.partition_point(|interval| interval.start_ms < at_ms)
    }

    /// Number of intervals that have ended at least `delay_ms` ago.
    fn ended(&self, now_ms: i64, delay_ms: i64) -> usize {
        let ended_ms = now_ms.saturating_sub(delay_ms).saturating_sub(self.interval_ms);
        self.intervals.partition_point(|interval| interval.start_ms <= ended_ms)
    }
}

impl Interval {
    /// Marks the interval as incomplete, because further points of it will be unknown. Intervals with points that are stored
    /// nowhere else stay as they are.
    const fn interrupt(&mut self) {
        self.is_incomplete |= !self.has_taken;
    }

    fn compute(&mut self, function: Function, due: &mut Due) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        if self.is_incomplete && !self.has_taken {
            due.incomplete += 1;
            return;
        }
        due.outcomes.push((self.start_ms, self.values.compute(function)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(buffer: &mut Buffer, at_ms: i64, value: f64, now_ms: i64) -> Result<(), Missed> {
        buffer.add(at_ms, value, now_ms, |_| Ok::<_, ()>(()))
    }

    fn points(buffer: &mut Buffer, now_ms: i64) -> Vec<(i64, f64)> {
        buffer.compute(now_ms, 1000).finish().points
    }

    #[test]
    fn an_interval_is_computed_when_it_has_ended_and_again_when_it_changes() {
        let mut buffer = Buffer::new(10, Function::Sum, 2, 0);
        for (at_ms, value) in [(20_000, 1.0), (29_999, 2.0), (30_000, 4.0), (25_000, f64::NAN)] {
            add(&mut buffer, at_ms, value, 31_000).unwrap();
        }
        assert_eq!(points(&mut buffer, 30_999), []);
        assert_eq!(points(&mut buffer, 31_000), [(20_000, 3.0)]);
        assert_eq!(points(&mut buffer, 31_001), []);
        add(&mut buffer, 21_000, 8.0, 41_000).unwrap();
        assert_eq!(points(&mut buffer, 41_000), [(20_000, 11.0), (30_000, 4.0)]);
        add(&mut buffer, 21_000, 16.0, 49_999).unwrap();
        // it is no longer kept, but its last value is not lost
        assert_eq!(add(&mut buffer, 21_000, 32.0, 50_000), Err(Missed::Late));
        assert!(!buffer.is_idle(60_000));
        assert_eq!(points(&mut buffer, 60_000), [(20_000, 27.0)]);
        assert_eq!(points(&mut buffer, 70_000), []);
        assert!(buffer.is_idle(70_000));
    }

    #[test]
    fn intervals_are_bounded_in_both_directions() {
        let mut buffer = Buffer::new(10, Function::Count, 2, 0);
        for (at_ms, expected) in [
            (80_000, Ok(())),
            (79_999, Err(Missed::Late)),
            (i64::MIN, Err(Missed::Late)),
            (129_999, Ok(())),
            (130_000, Err(Missed::Early)),
            (i64::MAX, Err(Missed::Early)),
        ] {
            assert_eq!(add(&mut buffer, at_ms, 1.0, 100_000), expected, "{at_ms}");
        }
        assert_eq!((buffer.values(), buffer.intervals.len()), (2, 2));
    }

    #[test]
    fn an_incomplete_interval_is_never_computed() {
        let mut buffer = Buffer::new(10, Function::Quantile(0.5), 5, 15_000);
        assert_eq!(add(&mut buffer, 12_000, 1.0, 33_000), Err(Missed::Incomplete));
        for at_ms in [22_000, 32_000] {
            add(&mut buffer, at_ms, 1.0, 33_000).unwrap();
        }
        let refuse = |_| Err(());
        for _ in 1..super::super::quantile::FIRST_VALUES {
            buffer.add(22_000, 1.0, 33_000, refuse).unwrap();
        }
        assert_eq!(buffer.add(22_000, 1.0, 33_000, refuse), Err(Missed::Memory));
        let computed = buffer.compute(41_000, 1000).finish();
        assert_eq!((computed.points, computed.incomplete), (vec![(30_000, 1.0)], 2));
        buffer.raise_complete_from(31_000);
        assert_eq!(add(&mut buffer, 32_000, 1.0, 43_000), Err(Missed::Incomplete));
        let computed = buffer.compute(43_000, 1000).finish();
        assert_eq!((computed.points, computed.incomplete), (vec![], 1));
        buffer.forget_open(40_999, 1000);
        assert!(buffer.intervals.iter().all(|interval| interval.start_ms < 30_000));
        assert!(buffer.compute(90_000, 1000).finish().points.is_empty() && buffer.intervals.is_empty());
        assert!(!buffer.is_idle(80_999) && buffer.is_idle(90_000), "complete from 31 s on");
    }

    #[test]
    fn a_rule_that_ends_interrupts_the_intervals_that_have_not_been_computed() {
        let mut buffer = Buffer::new(10, Function::Sum, 5, 0);
        for at_ms in [10_000, 20_000, 30_000, 40_000] {
            add(&mut buffer, at_ms, 1.0, 30_500).unwrap();
        }
        buffer.interrupt(30_500, 1000);
        assert_eq!(
            buffer.compute(60_000, 1000).finish(),
            Computed { points: vec![(10_000, 1.0), (40_000, 1.0)], incomplete: 2 }
        );
        for (at_ms, counts) in
            [(0, false), (10_000, true), (20_000, false), (31_000, false), (40_000, true), (50_000, true)]
        {
            assert_eq!(buffer.counts(at_ms, 60_000), counts, "{at_ms}");
            assert_eq!(add(&mut buffer, at_ms, 1.0, 60_000).is_ok(), counts, "{at_ms}");
        }
        assert!(!buffer.counts(9_999, 60_000) && !buffer.counts(120_000, 60_000));
    }

    /// A sender that is ahead may have sent earlier points of these intervals before the buffer was there.
    #[test]
    fn what_is_ahead_is_incomplete_at_first() {
        let delay_ms = Buffer::delay_ms(10);
        let mut buffer = Buffer::new(10, Function::Sum, 5, 11_000 + delay_ms);
        add(&mut buffer, 20_000, 1.0, 19_500).unwrap();
        buffer.hear(80_000, 20_000); // this is too early to count
        assert!(buffer.counts(20_000, 20_000));
        assert_eq!(add(&mut buffer, 45_000, 1.0, 20_000), Ok(()), "ahead by 25 s, so complete from 36 s on");
        assert_eq!(add(&mut buffer, 30_000, 1.0, 20_000), Err(Missed::Incomplete));
        let computed = buffer.compute(60_000, delay_ms).finish();
        assert_eq!(computed, Computed { points: vec![(40_000, 1.0)], incomplete: 2 });
        buffer.add_rule(50_000 + delay_ms);
        assert!(!buffer.counts(70_000, 60_000) && buffer.counts(80_000, 60_000));
        buffer.interrupt(60_000, delay_ms);
        assert!(!buffer.counts(80_000, 60_000) && buffer.counts(90_000, 65_000));
    }

    #[test]
    fn an_interval_with_points_that_are_stored_nowhere_else_is_computed() {
        let take = |buffer: &mut Buffer, at_ms| buffer.take(at_ms, 1.0, 33_000, |_| Ok::<_, ()>(()));
        let mut buffer = Buffer::new(10, Function::Quantile(0.5), 5, 15_000);
        for at_ms in [22_000, 32_000, 42_000] {
            take(&mut buffer, at_ms).unwrap();
        }
        add(&mut buffer, 52_000, 1.0, 33_000).unwrap();
        buffer.raise_complete_from(70_000);
        for (at_ms, counts) in [(12_000, false), (22_000, true), (42_000, true), (52_000, false)] {
            assert_eq!(buffer.counts(at_ms, 33_000), counts, "{at_ms}");
        }
        // these were taken before
        assert_eq!((take(&mut buffer, 12_000), take(&mut buffer, 42_000)), (Ok(()), Ok(())));
        // without memory, there is nothing to compute
        assert_eq!(buffer.take(62_000, 1.0, 33_000, |_| Err(())), Err(Missed::Memory));
        buffer.interrupt(33_000, 1000);
        let computed = buffer.compute(33_000, 1000).finish();
        assert_eq!(computed, Computed { points: vec![(10_000, 1.0), (20_000, 1.0)], incomplete: 0 });
        buffer.forget_open(33_000, 1000);
        assert!(!buffer.intervals.iter().any(|interval| [50_000, 60_000].contains(&interval.start_ms)));
        let mut due = Due::default();
        buffer.compute_taken(&mut due);
        let computed = due.finish();
        assert_eq!(computed, Computed { points: vec![(30_000, 1.0), (40_000, 1.0)], incomplete: 0 });
        assert_eq!(buffer.compute(100_000, 1000).finish(), Computed::default());
        assert!(buffer.intervals.is_empty());
    }

    #[test]
    fn an_interval_from_which_a_point_is_left_out_is_not_computed() {
        let (mut buffer, reserve) = (Buffer::new(10, Function::Sum, 5, 0), |_| Ok::<_, ()>(()));
        for at_ms in [10_000, 20_000] {
            add(&mut buffer, at_ms, 1.0, 31_000).unwrap();
        }
        buffer.take(41_000, 1.0, 31_000, reserve).unwrap();
        // with a point, without one, with one that is stored nowhere else, too late, too early
        for at_ms in [21_000, 31_000, 42_000, -20_001, 90_000] {
            buffer.leave_out(at_ms, 31_000, reserve);
        }
        for (at_ms, counts) in
            [(10_000, true), (20_000, false), (30_000, false), (40_000, true), (50_000, true)]
        {
            assert_eq!(buffer.counts(at_ms, 31_000), counts, "{at_ms}");
        }
        assert_eq!(add(&mut buffer, 32_000, 1.0, 31_000), Err(Missed::Incomplete));
        let computed = buffer.compute(51_000, 1000).finish();
        assert_eq!(computed, Computed { points: vec![(10_000, 1.0), (40_000, 1.0)], incomplete: 2 });
        // one that was computed before
        buffer.leave_out(10_000, 31_000, reserve);
        assert_eq!(buffer.compute(51_000, 1000).finish(), Computed { points: vec![], incomplete: 1 });
    }

    /// Otherwise, its later points would be taken for all of them.
    #[test]
    fn an_interval_without_memory_for_itself_is_incomplete() {
        let mut buffer = Buffer::new(10, Function::Sum, 2, i64::MIN);
        let refuse = |_| Err(());
        for at_ms in [10_000, 20_000, 30_000, 40_000] {
            buffer.add(at_ms, 1.0, 30_000, refuse).expect("the first intervals have memory");
        }
        assert_eq!(buffer.add(52_000, 1.0, 30_000, refuse), Err(Missed::Memory));
        assert_eq!(add(&mut buffer, 53_000, 1.0, 30_000), Err(Missed::Incomplete));
        let computed = buffer.compute(61_000, 1000).finish();
        let starts_ms: Vec<_> = computed.points.iter().map(|(start_ms, _)| *start_ms).collect();
        assert_eq!((starts_ms, computed.incomplete), (vec![10_000, 20_000, 30_000, 40_000], 1));
    }

    #[test]
    fn functions_are_those_of_carbon() {
        let check = |name: &str, values: &[f64], expected: f64| {
            let function = Function::named(name).unwrap();
            let mut buffer = Buffer::new(10, function, 1, 0);
            values.iter().for_each(|value| add(&mut buffer, 0, *value, 0).unwrap());
            assert_eq!(points(&mut buffer, 11_000), [(0, expected)], "{name} of {values:?}");
        };
        let values = [3.0, -1.0, 7.0, 2.0];
        check("sum", &values, 11.0);
        check("avg", &values, 2.75);
        check("min", &values, -1.0);
        check("max", &values, 7.0);
        check("max", &[-2.0, -3.0], -2.0);
        check("count", &values, 4.0);
        check("p50", &values, 2.5);
        check("p75", &values, 4.0);
        check("p999", &[1.0], 1.0);
        check("p90", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0], 10.0);
        for (number, (_, function)) in Function::ALL.into_iter().enumerate() {
            assert_eq!(function.number(), number);
        }
    }

    /// Whoever computes it does not hold the buffer meanwhile.
    #[test]
    fn values_may_be_added_while_a_quantile_of_many_is_computed() {
        let mut buffer = Buffer::new(10, Function::Quantile(0.5), 5, 0);
        let add_many = |buffer: &mut Buffer, value| {
            (0..20_000).for_each(|_| add(buffer, 1_000, value, 11_000).unwrap());
        };
        add_many(&mut buffer, 1.0);
        let due = buffer.compute(11_000, 1000);
        add_many(&mut buffer, 5.0);
        add_many(&mut buffer, 5.0);
        assert_eq!(due.finish().points, [(0, 1.0)]);
        assert_eq!(points(&mut buffer, 12_000), [(0, 5.0)]);
        // forgotten intervals are freed by whoever finishes
        let due = buffer.compute(100_000, 1000);
        assert!(!due.is_empty() && !due.has_values() && buffer.values() == 0);
        assert_eq!(due.forgotten.iter().map(|interval| interval.values.count()).sum::<u64>(), 60_000);
    }

    #[test]
    fn memory_is_reserved_before_it_is_taken() {
        let mut buffer = Buffer::new(10, Function::Quantile(0.9), 5, 0);
        let mut reserved = buffer.heap_bytes();
        assert_eq!(reserved, Buffer::first_bytes(5));
        for i in 0..1000 {
            let reserve = |bytes| {
                reserved += bytes;
                Ok::<_, ()>(())
            };
            buffer.add(i * 60, f64::from(i as i32), 30_000, reserve).unwrap();
            assert!(buffer.heap_bytes() <= reserved, "{} of {reserved}", buffer.heap_bytes());
        }
        assert!(reserved <= 8 * 2 * 1000 + Buffer::first_bytes(5) + 6 * 32, "{reserved}");
    }
}
