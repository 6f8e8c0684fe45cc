use super::*;
use crate::accumulator::Added;
use crate::{Accumulator, Increment, SeriesRefusal};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use stdx::rng::Rng;

#[test]
fn bounds_are_powers_of_two() {
    for (index, scale, expected) in [
        (0, 0, 1.0),
        (3, 0, 8.0),
        (-2, 0, 0.25),
        (-2, -1, 0.0625),
        (3, 1, 8.0_f64.sqrt()),
        (-3, 1, 8.0_f64.sqrt().recip()),
        (16, 3, 4.0),
        (-1074, 0, f64::from_bits(1)),
        (-1075, 0, 0.0),
        (1023, 0, 2.0_f64.powi(1023)),
        (1024, 0, f64::INFINITY),
        (1, -11, f64::INFINITY),
        (-1, -11, 0.0),
        (0, i64::from(i32::MIN), 1.0),
        (1, i64::from(i32::MIN), f64::INFINITY),
        (-1, i64::from(i32::MIN), 0.0),
        (i64::from(i32::MAX) + 1, 3, f64::INFINITY),
        (i64::from(i32::MIN), 3, 0.0),
    ] {
        let found = bound(index, scale);
        assert!(
            (found - expected).abs() <= expected * 1e-15 || found == expected,
            "{index} {scale}: {found}"
        );
    }
    for (number, eighth) in EIGHTHS.into_iter().enumerate() {
        assert!((eighth - (number as f64 / 8.0).exp2()).abs() < 3e-16, "{number}");
    }
    let finest = i64::from(SCALE_MAX);
    for scale in 0..=finest {
        let coarse = |index| (bound(index, scale), bound(index << (finest - scale), finest));
        assert!(
            (-100..100).map(coarse).all(|(a, b)| a == b),
            "bounds at scale {scale} are not at all higher ones"
        );
    }
}

#[test]
fn a_scale_has_few_enough_buckets() {
    let check = |scale, sent, ranges: [Range<i64>; 2], expected| {
        let [a, b] = ranges.map(|range| (!range.is_empty()).then(|| range.start..=range.end - 1));
        let (scale, shift) = scale_for(scale, sent, [&a, &b]);
        assert_eq!((scale, shift), expected);
    };
    check(1, 1, [0..0, 0..0], (1, 0));
    check(1, 1, [0..160, 0..0], (1, 0));
    check(1, 1, [0..161, 0..0], (0, 1));
    check(1, 1, [0..80, -7..74], (0, 1));
    check(1, 3, [0..640, 0..0], (1, 2));
    check(1, 3, [0..641, 0..0], (0, 3));
    check(1, -4, [0..641, 0..0], (-7, 3));
    check(3, 3, [i64::from(i32::MIN)..i64::from(i32::MAX) + 1, 0..0], (-22, 25));
    check(1, i32::MAX, [0..1 << 20, 0..0], (1, SHIFT_MAX));
    let least = i64::from(i32::MIN);
    check(1, i32::MIN, [0..100, 0..0], (least, 0));
    check(1, i32::MIN, [0..641, 0..0], (least - 3, 3));
}

/// The index of the bucket of a positive value.
fn index_of(value: f64, scale: i64) -> i64 {
    let mut index = (value.log2() * (scale as f64).exp2()).floor() as i64;
    while bound(index, scale) >= value {
        index -= 1;
    }
    while bound(index + 1, scale) < value {
        index += 1;
    }
    index
}

/// Counts values like a sender with this scale, which is not higher than [`SCALE_MAX`].
fn counted(values: &[f64], scale: i64, zero_threshold: f64) -> Exponential {
    let side = |sign: f64| {
        let mut counts = BTreeMap::<i64, u64>::new();
        for value in values.iter().map(|value| value * sign).filter(|value| *value > zero_threshold) {
            *counts.entry(index_of(value, scale)).or_default() += 1;
        }
        let first = counts.keys().next().copied().unwrap_or(0);
        let last = counts.keys().last().copied().unwrap_or(first - 1);
        let dense: Vec<_> = (first..=last).map(|index| counts.get(&index).copied().unwrap_or(0)).collect();
        Side::new(first, &dense)
    };
    Exponential {
        scale,
        zero_threshold,
        zero: values.iter().filter(|value| value.abs() <= zero_threshold).count() as u64,
        positive: side(1.0),
        negative: side(-1.0),
        count: values.len() as u64,
        sum: Some(values.iter().sum()),
    }
}

/// The classic buckets: bounds, each with the number of values that do not exceed it.
fn classic(counts: &Exponential, layout: &Layout) -> Vec<(f64, u64)> {
    let (mut buckets, mut below) = (Vec::<(f64, u64)>::new(), 0);
    let pushed = counts.each_bucket(layout, |bound, count| {
        below += count;
        if bound.is_finite() {
            buckets.pop_if(|(last, _)| bound <= *last);
            let bound = buckets.last().map_or(bound, |(last, _)| bound.max(*last));
            buckets.push((bound, below));
        }
        Ok::<_, std::convert::Infallible>(())
    });
    assert!(pushed.is_ok());
    buckets
}

/// Buckets must count exactly the values that do not exceed their bounds, and their bounds must ascend.
#[track_caller]
fn check(counts: &Exponential, layout: &Layout, values: &[f64]) {
    let buckets = classic(counts, layout);
    assert!(buckets.windows(2).all(|two| two[0].0 < two[1].0), "{buckets:?}");
    for (bound, count) in &buckets {
        // the upper bound of a bucket belongs to it, which is the lower one among negative values
        let is_below = |value: &&f64| if *bound < 0.0 { *value < bound } else { *value <= bound };
        let expected = values.iter().filter(is_below).count() as u64;
        assert_eq!(*count, expected, "up to {bound}: {counts:?}, {values:?}");
    }
    assert_eq!(counts.count, values.len() as u64);
    assert_eq!(counts.in_buckets(), counts.count);
    assert!(buckets.len() <= BUCKETS_MAX + 3);
}

#[test]
fn counts_are_added_at_the_lower_scale() {
    let few = counted(&[0.6, 0.9, 1.5, 3.0], 3, 0.0);
    let sum = few.plus(&counted(&[0.3, 100.0], 0, 0.0));
    assert_eq!(
        (sum.scale, sum.positive.first(), sum.positive.counts()),
        (0, -2, &[1, 2, 1, 1, 0, 0, 0, 0, 1][..])
    );
    assert_eq!(classic(&few, &few.layout())[..2], [(bound(-6, 3), 0), (bound(-5, 3), 1)]);
    assert_eq!((sum.count, sum.sum), (6, Some(0.6 + 0.9 + 1.5 + 3.0 + 100.3)));
    let without_sum = Exponential { sum: None, ..few.clone() };
    assert_eq!(few.plus(&without_sum).sum, None);
    // both together would have too many buckets
    let wide = counted(&[1e-9], 3, 0.0).plus(&counted(&[1e9], 3, 0.0));
    assert_eq!((wide.scale, wide.positive.counts().len()), (1, 120));
    let extreme = counted(&[f64::from_bits(1), -f64::MAX], 3, 0.0).plus(&counted(&[f64::MAX], 3, 0.0));
    assert!(extreme.positive.counts().len() + extreme.negative.counts().len() <= BUCKETS_MAX);
}

#[test]
fn the_wider_range_of_zero_counts() {
    let fine = counted(&[0.3, 0.6, 0.9, -0.6, 2.0], 0, 0.0);
    // of the bucket from 0.5 to 1, it is not known how many values are up to 0.7
    let sum = fine.plus(&counted(&[0.7, 0.1, 3.0], 0, 0.7));
    assert_eq!((sum.zero_threshold, sum.zero), (1.0, 6));
    let apart = counted(&[0.3, 2.0], 0, 0.0).plus(&counted(&[0.7, 0.1, 3.0], 0, 0.7));
    assert_eq!((apart.zero_threshold, apart.zero), (0.7, 3));
    // at the sender with the wider range, the values of the bucket around its end are beyond it
    let kept = counted(&[0.9], 0, 0.7).plus(&counted(&[5.0], 0, 0.2));
    assert_eq!((kept.zero_threshold, kept.zero, kept.positive.count(-1)), (0.7, 0, 1));
    let everything = fine.plus(&counted(&[], 0, f64::INFINITY));
    assert_eq!((everything.zero, everything.positive.range(), everything.in_buckets()), (5, None, 5));
}

#[test]
fn what_is_gone_is_named() {
    let mut sum = ExponentialSum::default();
    sum.add(10, Arc::new(counted(&[1.5, 3.0], 1, 0.0)));
    let found = sum.read_out(10);
    assert_eq!((found.gone.len(), found.sums.len()), (0, 1));
    sum.add(30, Arc::new(counted(&[3.0], 1, 0.0)));
    assert!(sum.read_out(30).gone.is_empty());
    sum.add(20, Arc::new(counted(&[3.0, 100.0], -1, 0.0)));
    // at all times that may still change, so that an increment that comes later finds the same buckets there
    for expected in [&[(10, 2), (20, 4), (30, 5)][..], &[(20, 4), (30, 5)]] {
        let found = sum.read_out(20);
        assert_eq!(found.gone, [2.0_f64.sqrt(), 2.0, 8.0_f64.sqrt()], "{found:?}");
        assert_eq!(found.sums.iter().map(|(end, sum)| (*end, sum.count)).collect::<Vec<_>>(), expected);
        sum.close(10);
        assert_eq!((sum.latest.len(), sum.base.count), (2, 2));
    }
    assert!(sum.is_repeated(30, &counted(&[3.0], 1, 0.0)) && !sum.is_repeated(30, &counted(&[0.3], 1, 0.0)));
    sum.close(u64::MAX);
    assert_eq!((sum.latest.len(), sum.base.count), (1, 4), "the newest is kept");
}

#[test]
fn sums_that_are_not_known_end_and_those_too_large_are_refused() {
    let of = |sum| Arc::new(Exponential { sum, ..counted(&[1.5], 0, 0.0) });
    let mut accumulator = Accumulator::new(0, 0);
    let mut add = |start_ns, sum| {
        let increment = Increment { start_ns, end_ns: start_ns + 10, value: 1.0, ..Increment::default() };
        let added = accumulator.add_exponential(&increment, &of(sum), false);
        added.map(|(_, sum)| {
            let found = sum.read_out(start_ns + 10);
            (found.is_sum_gone, found.sums.iter().map(|(_, counts)| counts.sum).collect::<Vec<_>>())
        })
    };
    assert_eq!(add(10, Some(1e308)), Ok((false, vec![Some(1e308)])));
    assert_eq!(add(20, Some(1e308)), Err(SeriesRefusal::IncrementNotFinite));
    assert_eq!(add(20, Some(-1e308)), Err(SeriesRefusal::IncrementNotFinite), "the order may change");
    assert_eq!(add(10, Some(1e308)), Ok((false, vec![Some(1e308)])), "a repetition");
    assert_eq!(add(30, Some(2.0)), Ok((false, vec![Some(1e308)])));
    // late, so that the sum is not known behind it, either
    assert_eq!(add(20, None), Ok((true, vec![None, None])));
    assert_eq!(add(40, Some(1.0)), Ok((false, vec![None])));
}

/// An increment, and the values that it counted.
struct Sent {
    increment: Increment,
    values: Vec<f64>,
    counts: Arc<Exponential>,
}

/// A sender whose scale, range of zero and range of values change.
fn sent(rng: &mut Rng, start_ns: u64, end_ns: u64, magnitude: f64) -> Sent {
    let values: Vec<_> = (0..rng.below(8))
        .map(|_| {
            let value = ((rng.below(1000) as f64 / 1000.0 - 0.5) * magnitude).exp2();
            match rng.below(20) {
                0 => 0.0,
                1 => -value,
                2 => value.log2().round().exp2(), // on a bound
                _ => value,
            }
        })
        .collect();
    let scale = if rng.chance(0.8) { SCALE_MAX.into() } else { rng.below(8) as i64 - 4 };
    let zero_threshold = match rng.below(12) {
        0 => 0.001,
        1 => ((rng.below(100) as f64 / 100.0 - 1.0) * magnitude / 2.0).exp2(),
        _ => 0.0,
    };
    let counts = Arc::new(
        counted(&values, scale, zero_threshold)
            .plus(&Exponential { zero_threshold, ..Exponential::default() }),
    );
    let increment = Increment { start_ns, end_ns, value: values.len() as f64, ..Increment::default() };
    Sent { increment, values, counts }
}

fn values_up_to(accepted: &BTreeMap<u64, &[f64]>, end_ns: u64) -> Vec<f64> {
    accepted.range(..=end_ns).flat_map(|(_, values)| values.iter().copied()).collect()
}

/// Increments late, repeatedly and in any order, beside the values of those that were accepted.
#[test]
fn each_bucket_counts_the_values_of_all_accepted_increments() {
    let mut rng = Rng::announced();
    let (mut late, mut repeated, mut gone, mut grown) = (0, 0, 0, 0);
    for round in 0..600 {
        let magnitude = [4.0, 20.0, 60.0, 300.0][rng.below(4) as usize];
        let mut at = 1000;
        let all: Vec<_> = (0..1 + rng.below(25))
            .map(|_| {
                at += if rng.chance(0.2) { 1 + rng.below(20) } else { 0 };
                let start = at;
                at += 1 + rng.below(20);
                let magnitude = if rng.chance(0.1) { magnitude * 2.0 } else { magnitude };
                sent(&mut rng, start, at, magnitude)
            })
            .collect();
        let mut accumulator = Accumulator::new(rng.below(2) * 1000, 0);
        let mut accepted = BTreeMap::<u64, &[f64]>::new();
        // the buckets that a store has at each time; and for each increment whose samples were not stored, the times of these
        let mut stored = BTreeMap::<u64, Vec<(f64, u64)>>::new();
        let mut lost = BTreeMap::<u64, BTreeSet<u64>>::new();
        // times that may keep finer buckets, since those that ended them were not stored
        let mut finer = BTreeSet::new();
        let mut next = 0;
        while next < all.len() {
            let near = next.saturating_sub(4) + rng.below(8) as usize;
            let chosen = if rng.chance(0.4) { near.min(all.len() - 1) } else { next };
            next += usize::from(chosen == next);
            let Sent { increment, values, counts } = &all[chosen];
            let before = format!("{accumulator:?}");
            let added = accumulator.add_exponential(increment, counts, rng.chance(0.3));
            let (added, sum) = match added {
                Ok(added) => added,
                Err(SeriesRefusal::IncrementTooLate) => {
                    assert_eq!(before, format!("{accumulator:?}"));
                    continue;
                }
                Err(error) => panic!("round {round}: {error}"),
            };
            if added == Added::Repeated {
                repeated += 1;
                assert_eq!(accepted.get(&increment.end_ns), Some(&values.as_slice()), "round {round}");
                assert_eq!(before, format!("{accumulator:?}"));
            } else {
                late += usize::from(added == Added::Late);
                let before = accepted.insert(increment.end_ns, values);
                assert_eq!(before, None, "round {round}: it was added twice");
            }
            if rng.chance(0.1) {
                accumulator.keep_pieces(rng.below(3) as usize);
            }
            let kept = &accumulator.exponential.as_ref().unwrap().latest;
            assert!((accumulator.pieces.len()..=accumulator.pieces.len() + 1).contains(&kept.len()));
            // some senders give up before their samples are stored
            let is_lost = rng.chance(0.05);
            let found = sum.read_out(increment.end_ns);
            gone += found.gone.len();
            for (end, counts) in &found.sums {
                let up_to = values_up_to(&accepted, *end);
                check(counts, &found.layout, &up_to);
                if is_lost {
                    continue;
                }
                let own = stored.entry(*end).or_default();
                own.retain(|(bound, _)| !found.gone.contains(bound));
                for (bound, count) in classic(counts, &found.layout) {
                    own.retain(|(other, _)| *other != bound);
                    own.push((bound, count));
                }
            }
            let times = found.sums.iter().map(|(end, _)| *end);
            let missing = lost.entry(increment.end_ns).or_default();
            if is_lost {
                missing.extend(times.clone());
                finer.extend(times.filter(|_| !found.gone.is_empty()));
                continue;
            }
            // repeated, except for times that were closed meanwhile
            times.for_each(|end| _ = missing.remove(&end));
            // of each time, a store which lets the later of two samples win has the right ones
            for (end, buckets) in &mut stored {
                buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
                let is_lost = finer.contains(end) || lost.values().any(|times| times.contains(end));
                let up_to = values_up_to(&accepted, *end);
                for (bound, count) in buckets.iter().filter(|_| !is_lost) {
                    let is_below = |value: &&f64| if *bound < 0.0 { *value < bound } else { *value <= bound };
                    let expected = up_to.iter().filter(is_below).count() as u64;
                    assert_eq!(*count, expected, "round {round}, at {end} up to {bound}");
                }
            }
            grown += usize::from(stored.values().any(|buckets| buckets.len() > 20));
        }
    }
    assert!(late > 200 && repeated > 500 && gone > 500 && grown > 500, "{late} {repeated} {gone} {grown}");
}
