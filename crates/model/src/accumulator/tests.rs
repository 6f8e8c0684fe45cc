use super::*;
use std::collections::BTreeMap;
use stdx::rng::Rng;

const MS: u64 = 1_000_000;

fn increment(start_ms: u64, end_ms: u64, value: f64) -> Increment {
    Increment { start_ns: start_ms * MS, end_ns: end_ms * MS, value, ..Increment::default() }
}

/// An accumulator, and the samples that a store has which lets the later of two samples win.
#[derive(Debug, Clone)]
struct Stored {
    accumulator: Accumulator,
    samples: BTreeMap<i64, f64>,
}

impl Stored {
    fn new(from_ms: u64) -> Self {
        Self { accumulator: Accumulator::new(from_ms * MS, 0), samples: BTreeMap::new() }
    }

    fn add(&mut self, increment: Increment) -> Result<Added, SeriesRefusal> {
        self.add_of(increment, false)
    }

    fn add_of(&mut self, increment: Increment, continues: bool) -> Result<Added, SeriesRefusal> {
        let before = self.accumulator.clone();
        let mut sums = Vec::new();
        let added = self.accumulator.add(&increment, continues, &mut sums);
        match &added {
            Ok(Added::InOrder) => assert_eq!(sums.len(), 1),
            Ok(Added::Late) => assert!((2..=PIECES_MAX + 1).contains(&sums.len()), "{sums:?}"),
            Ok(Added::Repeated) | Err(_) => {
                assert!(sums.is_empty(), "{sums:?}");
                assert_eq!(format!("{before:?}"), format!("{:?}", self.accumulator));
            }
        }
        self.samples.extend(sums);
        self.check();
        added
    }

    fn check(&self) {
        let Accumulator { last_start_ns, end_ns, pieces, .. } = &self.accumulator;
        assert!(last_start_ns <= end_ns && pieces.len() <= PIECES_MAX);
        assert!(pieces.first().is_none_or(|first| first.start_ns >= *end_ns));
        assert!(pieces.windows(2).all(|two| two[0].end_ns <= two[1].start_ns));
    }

    fn samples(&self) -> Vec<(i64, f64)> {
        self.samples.iter().map(|(t, v)| (*t, *v)).collect()
    }
}

#[test]
fn increments_in_order_are_added_up() {
    let mut stored = Stored::new(0);
    for n in 1..=20_u64 {
        assert_eq!(stored.add(increment(n * 10, n * 10 + 10, n as f64)), Ok(Added::InOrder));
        assert_eq!(stored.add(increment(n * 10, n * 10 + 10, n as f64)), Ok(Added::Repeated));
    }
    let expected: Vec<_> = (1..=20).map(|n| (n * 10 + 10, (n * (n + 1) / 2) as f64)).collect();
    assert_eq!(stored.samples(), expected);
    assert!(stored.accumulator.pieces.is_empty(), "nothing is late any more");
}

#[test]
fn a_late_increment_changes_later_sums() {
    let mut stored = Stored::new(0);
    for (start, end, value) in [(10, 20, 1.0), (30, 40, 4.0), (40, 50, 8.0)] {
        assert_eq!(stored.add(increment(start, end, value)), Ok(Added::InOrder));
    }
    assert_eq!(stored.samples(), [(20, 1.0), (40, 5.0), (50, 13.0)]);
    assert_eq!(stored.add(increment(20, 30, 2.0)), Ok(Added::Late));
    assert_eq!(stored.samples(), [(20, 1.0), (30, 3.0), (40, 7.0), (50, 15.0)]);
    for (start, end, value) in [(20, 30, 2.0), (10, 20, 1.0), (30, 40, 4.0), (40, 50, 8.0)] {
        assert_eq!(stored.add(increment(start, end, value)), Ok(Added::Repeated), "{start}");
    }
    // even the first one may be late
    assert_eq!(stored.add(increment(5, 10, 0.5)), Ok(Added::Late));
    assert_eq!(stored.samples(), [(10, 0.5), (20, 1.5), (30, 3.5), (40, 7.5), (50, 15.5)]);
}

#[test]
fn the_oldest_gaps_can_be_closed() {
    let gaps = [(20, 30), (40, 50), (60, 70)];
    for most in 0..4 {
        let mut stored = Stored::new(0);
        for (start, end) in gaps {
            stored.add(increment(start, end, 1.0)).unwrap();
        }
        let (newest, total) = (stored.accumulator.newest_ns(), stored.accumulator.total());
        stored.accumulator.keep_pieces(most);
        stored.check();
        assert_eq!(stored.accumulator.pieces.len(), most);
        assert_eq!((stored.accumulator.newest_ns(), stored.accumulator.total()), (newest, total));
        for (number, (start, _)) in gaps.iter().enumerate() {
            let late =
                stored.accumulator.clone().add(&increment(start - 10, *start, 1.0), false, &mut Vec::new());
            assert_eq!(late.is_ok(), number + most >= gaps.len(), "{most}");
        }
        assert_eq!(stored.add(increment(70, 80, 1.0)), Ok(Added::InOrder));
    }
}

#[test]
fn increments_that_overlap_others_are_refused() {
    let mut stored = Stored::new(0);
    for (start, end) in [(10, 20), (30, 40), (40, 50)] {
        stored.add(increment(start, end, 1.0)).unwrap();
    }
    let overlaps = Err(SeriesRefusal::IncrementOverlaps);
    for (start, end) in [(5, 11), (15, 25), (11, 19), (25, 31), (20, 50), (45, 60), (35, 45), (29, 40)] {
        assert_eq!(stored.add(increment(start, end, 1.0)), overlaps, "{start} to {end}");
    }
    let mut stored = Stored::new(10);
    for (start, end) in [(10, 20), (20, 30), (30, 40)] {
        stored.add(increment(start, end, 1.0)).unwrap();
    }
    // of these, it is no longer known whether they were added
    for (start, end) in [(10, 20), (12, 18), (15, 25), (5, 15)] {
        assert_eq!(stored.add(increment(start, end, 1.0)), Err(SeriesRefusal::IncrementTooLate));
    }
    let mut stored = Stored::new(0);
    for (start, end) in [(10, 20), (30, 40), (40, 50)] {
        stored.add(increment(start, end, 1.0)).unwrap();
    }
    for (start, end) in [(10, 20), (30, 40), (40, 50)] {
        let another = stored.add(increment(start, end, 2.0));
        assert_eq!(another, overlaps, "another value from {start} to {end}");
    }
}

#[test]
fn what_was_before_the_beginning_is_refused() {
    let mut stored = Stored::new(100);
    let too_late = Err(SeriesRefusal::IncrementTooLate);
    for (start, end) in [(80, 90), (90, 100), (0, 100)] {
        assert_eq!(stored.add(increment(start, end, 1.0)), too_late, "{start} to {end}");
    }
    // it ends after everything that was forgotten, so it was not added before
    for expected in [Added::InOrder, Added::Repeated] {
        assert_eq!(stored.add(increment(90, 110, 1.0)), Ok(expected));
    }
    assert_eq!(stored.add(increment(80, 90, 1.0)), too_late);
    assert_eq!(stored.add(increment(110, 120, 1.0)), Ok(Added::InOrder));
    assert_eq!(stored.samples(), [(110, 1.0), (120, 2.0)]);
}

#[test]
fn the_increments_of_the_latest_request_are_recognized() {
    let mut stored = Stored::new(0);
    let increments: Vec<_> = (1..=60_u64).map(|n| increment(n * 10, n * 10 + 10, n as f64 / 3.0)).collect();
    let mut rng = Rng::announced();
    for (number, request) in increments.chunks(PIECES_MAX).enumerate() {
        let mut request: Vec<_> = request.iter().collect();
        if number % 2 == 1 {
            (0..request.len()).for_each(|i| request.swap(i, rng.below(i as u64 + 1) as usize));
        }
        for (number, increment) in request.iter().enumerate() {
            let added = stored.add_of(**increment, number > 0).unwrap();
            assert_ne!(added, Added::Repeated);
        }
        for _ in 0..3 {
            for (number, increment) in request.iter().enumerate() {
                assert_eq!(stored.add_of(**increment, number > 0), Ok(Added::Repeated));
            }
        }
    }
    let ends: Vec<_> = stored.samples.keys().copied().collect();
    assert_eq!(ends, (1..=60).map(|n| n * 10 + 10).collect::<Vec<_>>());
    assert!((stored.accumulator.total() - 610.0).abs() < 1e-9);
    stored.add(increment(610, 620, 1.0)).unwrap();
    assert!(stored.accumulator.pieces.is_empty(), "only the latest request is remembered");
}

#[test]
fn increments_without_a_start_follow_the_one_before() {
    let mut stored = Stored::new(0);
    for (start, end, value) in [(0, 10, 1.0), (20, 20, 2.0), (0, 30, 4.0)] {
        assert_eq!(stored.add(increment(start, end, value)), Ok(Added::InOrder));
    }
    assert_eq!(stored.samples(), [(10, 1.0), (20, 3.0), (30, 7.0)]);
    assert_eq!(stored.add(increment(0, 30, 4.0)), Ok(Added::Repeated));
    assert_eq!(stored.add(increment(0, 30, 5.0)), Err(SeriesRefusal::IncrementOverlaps));
    for end in [5, 10, 20, 25] {
        assert_eq!(stored.add(increment(0, end, 1.0)), Err(SeriesRefusal::IncrementTooLate));
    }
}

#[test]
fn increments_within_a_millisecond_are_told_apart() {
    let mut stored = Stored::new(0);
    let within = |start_ns, end_ns| Increment { start_ns, end_ns, value: 1.0, ..Increment::default() };
    for (start, end) in [(MS, 5 * MS), (5 * MS, 5 * MS + 10), (5 * MS + 10, 5 * MS + 20)] {
        assert_eq!(stored.add(within(start, end)), Ok(Added::InOrder));
        assert_eq!(stored.add(within(start, end)), Ok(Added::Repeated));
    }
    assert_eq!(stored.samples(), [(5, 3.0)]);
}

#[test]
fn other_bounds_begin_with_zero() {
    let mut stored = Stored::new(0);
    let of = |layout, start: u64, end: u64| Increment { layout, ..increment(start, end, 1.0) };
    stored.add(of(7, 10, 20)).unwrap();
    stored.add(of(7, 20, 30)).unwrap();
    assert_eq!(stored.add(of(8, 25, 40)), Err(SeriesRefusal::IncrementOverlaps));
    assert_eq!(stored.add(of(8, 30, 40)), Ok(Added::InOrder));
    assert_eq!(stored.add(of(7, 20, 30)), Err(SeriesRefusal::IncrementTooLate));
    assert_eq!(stored.add(of(8, 40, 50)), Ok(Added::InOrder));
    assert_eq!(stored.samples(), [(20, 1.0), (30, 2.0), (40, 1.0), (50, 2.0)]);
}

#[test]
fn sums_stay_finite() {
    let mut stored = Stored::new(0);
    let not_finite = Err(SeriesRefusal::IncrementNotFinite);
    stored.add(increment(10, 20, f64::MAX)).unwrap();
    stored.add(increment(30, 40, 0.0)).unwrap();
    assert_eq!(stored.add(increment(40, 50, f64::MAX)), not_finite);
    assert_eq!(stored.add(increment(20, 30, f64::MAX)), not_finite);
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(stored.add(increment(40, 50, value)), not_finite);
    }
}

/// Sends the increments of one sender late, repeatedly and in any order. The model is the set of those that were accepted.
#[test]
fn each_sum_is_that_of_the_increments_up_to_its_time() {
    let mut rng = Rng::announced();
    let (mut late, mut too_late) = (0, 0);
    for round in 0..2000 {
        let mut all = Vec::new();
        let mut at = 1000;
        for _ in 0..1 + rng.below(40) {
            at += if rng.chance(0.2) { 1 + rng.below(20) } else { 0 };
            let start = at;
            at += 1 + rng.below(20);
            all.push(increment(start, at, rng.below(100) as f64));
        }
        let mut stored = Stored::new(rng.below(2) * 1000);
        let mut accepted = BTreeMap::new();
        let width = 1 + rng.below(24) as usize;
        let mut next = 0;
        while next < all.len() {
            // usually the next one, sometimes one shortly before or behind it
            let near = next.saturating_sub(width) + rng.below(2 * width as u64) as usize;
            let sent = if rng.chance(0.4) { near.min(all.len() - 1) } else { next };
            next += usize::from(sent == next);
            let Increment { end_ns, value, .. } = all[sent];
            let is_known = accepted.contains_key(&end_ns);
            match stored.add_of(all[sent], rng.chance(0.3)) {
                Ok(Added::Repeated) => assert!(is_known, "round {round}"),
                Ok(added) => {
                    assert_eq!(accepted.insert(end_ns, value), None, "round {round}: it was added twice");
                    late += usize::from(added == Added::Late);
                }
                // it is in a time of which everything was added, or of which nothing is known any more
                Err(SeriesRefusal::IncrementTooLate) => too_late += usize::from(!is_known),
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        let mut sum = 0.0;
        let expected = accepted.iter().map(|(end_ns, value)| {
            sum += value;
            ((end_ns / MS) as i64, sum)
        });
        assert_eq!(stored.samples(), expected.collect::<Vec<_>>(), "round {round}");
    }
    assert!(late > 1000 && too_late > 30, "{late} late, {too_late} too late");
}
