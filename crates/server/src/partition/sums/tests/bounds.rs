//! Histograms whose bounds change, and whose buckets are in several partitions.

use super::*;
use crate::partition::sums::forget::GRACE_S;
use stdx::rng::Rng;

/// The buckets of histograms with two lists of bounds, in three partitions.
struct Buckets {
    tenant: TenantId,
    partitions: Vec<Sums>,
    submissions: u32,
}

/// A point that was divided, and has not arrived in these partitions yet.
#[derive(Debug, Clone)]
struct Point {
    layout: u32,
    start_ns: u64,
    end_ns: u64,
    value: f64,
    stamp: Stamp,
    missing: Vec<usize>,
    /// Whether some partitions had no room for it.
    is_again: bool,
    results: Vec<Result<Added, SeriesRefusal>>,
}

const BOUNDS: [(u32, &[u128]); 2] = [(3, &[0, 1, 2, 3, 4, 5]), (5, &[0, 2, 4, 6, 7, 8, 9])];

impl Buckets {
    fn of(layout: u32) -> &'static [u128] {
        BOUNDS.iter().find(|(of, _)| *of == layout).unwrap().1
    }

    fn arrive(&mut self, point: &mut Point, partition: usize) {
        point.missing.retain(|missing| *missing != partition);
        self.submissions += 1;
        let Point { layout, start_ns, end_ns, value, stamp, .. } = *point;
        let increment = Increment { start_ns, end_ns, layout, value, ..Increment::default() };
        let origin = Origin { submission: self.submissions, weight: 1, stamp };
        for bucket in Self::of(layout).iter().filter(|bucket| **bucket as usize % 3 == partition) {
            let sums = &mut self.partitions[partition];
            point.results.push(sums.add(&self.tenant, SeriesKey(*bucket), (&increment, None), origin));
            sums.keep_changes();
        }
    }

    fn total(&self, bucket: u128) -> Option<f64> {
        let sums = &self.partitions[bucket as usize % 3];
        sums.get(&self.tenant, SeriesKey(bucket)).map(Accumulator::total)
    }
}

fn is_added(result: &Result<Added, SeriesRefusal>) -> bool {
    matches!(result, Ok(Added::InOrder | Added::Late))
}

/// Points arrive in the partitions at different times and in different order, while sums are forgotten there at other times,
/// and while bounds change and change back. All buckets of a point must have the same increments.
#[test]
fn buckets_never_get_apart() {
    let (_, fixture) = Fixture::new();
    let mut rng = Rng::announced();
    let (mut forgotten, mut refused, mut late, mut changed, mut full) = (0, 0, 0, 0, 0);
    for round in 0..300 {
        let heads = &fixture.owner.context.heads;
        let tenant = TenantId::parse(&format!("t{round}")).unwrap();
        let new = |_| Sums::new(Arc::clone(heads), Instant::now());
        let partitions = (0..3).map(new).collect();
        let mut buckets = Buckets { tenant, partitions, submissions: 0 };
        // rounds share what was announced
        let mut now_s = STARTED_S + round * 10_000_000;
        let (mut at_ns, mut layout) = (1_000 * MS, BOUNDS[0].0);
        let (mut underway, mut last): (Vec<Point>, Option<Point>) = (Vec::new(), None);
        let (mut lost, mut is_late): (Option<Point>, _) = (None, false);
        let mut taken = Vec::new();
        for _ in 0..300 {
            now_s += if rng.chance(0.05) && underway.is_empty() {
                rng.below(100_000) as u32
            } else {
                rng.below(60) as u32
            };
            if underway.is_empty() && rng.chance(0.1) {
                layout = BOUNDS[rng.below(2) as usize].0;
                (changed, lost) = (changed + 1, None);
            }
            if underway.is_empty() && rng.chance(0.1) {
                taken.clear();
                let free_bytes = |account: &Account| account.limit_bytes() - account.used_bytes();
                let pieces_bytes = free_bytes(&heads.pieces) / 100 * rng.below(94);
                let sums_bytes = free_bytes(&heads.sums) - rng.below(8000);
                taken.extend(heads.pieces.reserve(pieces_bytes));
                taken.extend(rng.chance(0.6).then(|| heads.sums.reserve(sums_bytes).unwrap()));
            }
            let stamp = heads.shared_sums.stamp(&buckets.tenant, now_s);
            // of two requests that are under way together, both or none know of an announcement
            let is_same =
                |point: &Point| Stamp { arrived_s: 0, ..point.stamp } == Stamp { arrived_s: 0, ..stamp };
            if underway.is_empty()
                || !is_late && taken.is_empty() && underway.len() < 2 && underway.iter().all(is_same)
            {
                // one that is late must not be under way with the one that closes its gap
                let again = match rng.chance(0.5) {
                    true => last.take(),
                    false if underway.is_empty() => lost.take(),
                    false => None,
                };
                is_late = again.as_ref().is_some_and(|again| again.end_ns < at_ns);
                let next = again.unwrap_or_else(|| {
                    let start_ns = at_ns;
                    at_ns += 1 + rng.below(50) * MS;
                    let value = rng.below(100) as f64;
                    let (missing, results) = (Vec::new(), Vec::new());
                    Point { layout, start_ns, end_ns: at_ns, value, stamp, missing, is_again: false, results }
                });
                let next =
                    Point { stamp, missing: vec![0, 1, 2], is_again: false, results: Vec::new(), ..next };
                match rng.chance(0.1) {
                    true => lost = Some(next),
                    false => underway.push(next),
                }
            }
            // parts arrive before the grace period ends
            for mut point in std::mem::take(&mut underway) {
                while !point.missing.is_empty() {
                    let is_due = now_s - point.stamp.arrived_s >= GRACE_S - 60;
                    if !is_due && rng.chance(0.5) {
                        break;
                    }
                    let partition = point.missing[rng.below(point.missing.len() as u64) as usize];
                    buckets.arrive(&mut point, partition);
                }
                if !point.missing.is_empty() {
                    underway.push(point);
                    continue;
                }
                let is_full = |result: &_| matches!(result, Err(SeriesRefusal::NoRoomForSums { .. }));
                if point.results.iter().any(is_full) {
                    // the sender repeats it
                    taken.clear();
                    (lost, point.is_again) = (None, true);
                    (point.missing, point.results) = (vec![0, 1, 2], Vec::new());
                    point.stamp = heads.shared_sums.stamp(&buckets.tenant, now_s);
                    full += 1;
                    underway.push(point);
                    continue;
                }
                if point.is_again {
                    // those that have it may only know that it is old; the totals tell
                    point.results.fill(Ok(Added::InOrder));
                }
                // whether one that is not added is known, or only too late, depends on what arrived in between
                let same = point.results.iter().all(|result| is_added(result) == is_added(&point.results[0]));
                assert!(same, "round {round}: {point:?}");
                refused += u32::from(point.results[0].is_err());
                late += u32::from(point.results[0] == Ok(Added::Late));
                last = Some(point).filter(|_| rng.chance(0.3));
            }
            for sums in &mut buckets.partitions {
                if rng.chance(0.3) {
                    let before = sums.count();
                    sums.forget_some(now_s);
                    forgotten += before - sums.count().min(before);
                }
            }
            if underway.is_empty() {
                let totals: Vec<_> =
                    Buckets::of(layout).iter().map(|bucket| (bucket, buckets.total(*bucket))).collect();
                let mut known = totals.iter().filter_map(|(bucket, total)| Some((bucket, (*total)?)));
                // those that the last point had, which has this layout
                if let Some(point) = &last
                    && point.layout == layout
                    && let Some((_, first)) = known.next()
                {
                    let is_apart = known.any(|(_, total)| total != first);
                    assert!(!is_apart || !is_added(&point.results[0]), "round {round}: {totals:?} {point:?}");
                }
            }
        }
        for sums in &buckets.partitions {
            let keys = sums.tenants.get(&buckets.tenant).map(|own| own.of.keys());
            let notes = keys.into_iter().flatten().filter(|key| histogram_of(**key).is_some());
            assert!(notes.count() <= 1, "of one histogram");
        }
    }
    assert!(
        full > 20 && forgotten > 100 && refused > 100 && late > 100 && changed > 1000,
        "{full} {forgotten} {refused} {late} {changed}"
    );
    fixture.stop();
}

/// After a long break, a point from before the bounds changed is repeated. It is refused. If it kept the buckets alive that both
/// lists have, only the others would begin with 0.
#[test]
fn a_repeated_point_with_former_bounds_keeps_no_bucket_alive() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let tenant = TenantId::anonymous();
    let partitions = (0..3).map(|_| Sums::new(Arc::clone(heads), Instant::now())).collect();
    let mut buckets = Buckets { tenant: tenant.clone(), partitions, submissions: 0 };
    let send = |buckets: &mut Buckets, now_s, layout, (start_ns, end_ns)| {
        let (value, missing, results) = (1.0, Vec::new(), Vec::new());
        let stamp = heads.shared_sums.stamp(&tenant, now_s);
        let mut point = Point { layout, start_ns, end_ns, value, stamp, missing, is_again: false, results };
        (0..3).for_each(|partition| buckets.arrive(&mut point, partition));
        let totals: Vec<_> = Buckets::of(layout).iter().map(|bucket| buckets.total(*bucket)).collect();
        (point.results, totals)
    };
    send(&mut buckets, STARTED_S, 3, (10, 20));
    let (_, totals) = send(&mut buckets, STARTED_S + 1, 5, (20, 30));
    assert_eq!(totals, [Some(1.0); 7]);
    let later_s = STARTED_S + 200_000;
    let (results, _) = send(&mut buckets, later_s, 3, (10, 20));
    assert!(results.iter().all(|result| *result == Err(SeriesRefusal::IncrementTooLate)), "{results:?}");
    buckets.partitions.iter_mut().for_each(|sums| while !sums.forget_some(later_s + 1) {});
    buckets.partitions.iter_mut().for_each(|sums| while !sums.forget_some(later_s + 1 + GRACE_S) {});
    let (results, totals) = send(&mut buckets, later_s + 1 + GRACE_S, 5, (30, 40));
    assert_eq!((results, totals), (vec![Ok(Added::InOrder); 7], vec![Some(1.0); 7]));
    fixture.stop();
}

/// Bounds change and change back in one group, in which one bucket gets only the last point.
#[test]
fn bounds_that_change_back_within_a_group_have_changed() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let tenant = TenantId::anonymous();
    for is_known_by_group in [true, false] {
        let mut sums = Sums::new(Arc::clone(heads), Instant::now());
        let (always, once) = (SeriesKey(1), SeriesKey(2));
        let mut add = |key, submission, increment: &Increment| {
            let origin = Origin { submission, weight: 1, stamp: Stamp::default() };
            (
                sums.add(&tenant, key, (increment, None), origin),
                sums.get(&tenant, key).map(Accumulator::total),
            )
        };
        let point = |layout, start_ns, value| Increment {
            start_ns,
            end_ns: start_ns + 10,
            layout,
            histogram: 1 + u32::from(is_known_by_group),
            value,
            ..Increment::default()
        };
        let first = point(3, 10, 100.0);
        assert_eq!([always, once].map(|key| add(key, 1, &first).1), [Some(100.0); 2]);
        if is_known_by_group {
            assert_eq!(add(always, 2, &point(5, 20, 2.0)), (Ok(Added::InOrder), Some(2.0)));
            let back = point(3, 30, 1.0);
            assert_eq!([always, once].map(|key| add(key, 3, &back).1), [Some(1.0); 2]);
            continue;
        }
        // a partition that gets only the last point knows it from the request
        let back = Increment { other_start_ns: 20, other_end_ns: 30, ..point(3, 30, 1.0) };
        assert_eq!(add(once, 3, &back).1, Some(1.0));
        assert_eq!(add(once, 4, &back), (Ok(Added::Repeated), Some(1.0)));
        // the other point ends later, or is refused because it overlaps
        let early = Increment { other_start_ns: 40, other_end_ns: 60, ..point(3, 40, 1.0) };
        assert_eq!(add(once, 5, &early).0, Err(SeriesRefusal::IncrementTooLate));
        let overlapped = Increment { other_start_ns: 35, other_end_ns: 45, ..point(3, 40, 1.0) };
        assert_eq!(add(once, 6, &overlapped).1, Some(2.0));
    }
    fixture.stop();
}
