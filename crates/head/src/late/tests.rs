use super::*;
use stdx::rng::Rng;

const SERIES: SeriesRef = SeriesRef(7);

fn check(late: &LateOf<f64>) {
    let bytes = late.pieces.values().map(Piece::<f64>::memory_bytes).sum::<usize>();
    assert_eq!(late.held_bytes, bytes);
    assert!(late.recent.is_empty() || late.pieces.is_empty());
    let ends = late.pieces.keys().skip(1).copied().chain([i64::MAX]);
    for ((bound_ms, piece), end_ms) in late.pieces.iter().zip(ends) {
        let mut all = Samples::<f64>::default();
        piece.read(TimeRange::ALL, &mut all);
        let is_inside = |t: &i64| (*bound_ms..end_ms).contains(t);
        assert!(all.timestamps.iter().all(is_inside), "{:?} outside {bound_ms}..{end_ms}", all.timestamps);
        assert!(all.timestamps.is_sorted() && piece.pending.len() < spread(&PENDING_MAX, SERIES));
    }
}

#[test]
fn the_last_write_wins_and_memory_stays_bounded() {
    let mut rng = Rng::announced();
    let (mut late, mut model) = (LateOf::default(), BTreeMap::new());
    for i in 0..40_000 {
        let (t, v) = (rng.below(1000) as i64, i as f64);
        late.insert(t, v, SERIES);
        model.insert(t, v);
    }
    check(&late);
    let mut out = Samples::default();
    for t in 990..1010 {
        out.push(t, -1.0);
        model.entry(t).or_insert(-1.0);
    }
    late.merge_into(TimeRange::ALL, &mut out, 0);
    assert_eq!(out.iter_from(0).collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
    assert!(late.heap_bytes() < 24 << 10, "{} bytes for 1000 times", late.heap_bytes());
}

#[test]
fn late_samples_in_any_order_are_read_by_range() {
    let mut rng = Rng::announced();
    for round in 0..60 {
        let (mut late, mut model) = (LateOf::default(), BTreeMap::new());
        let (count, width) = (rng.below(4000), 1 + rng.below(100_000));
        for i in 0..count {
            let t = match round % 3 {
                0 => i as i64,
                1 => (count - i) as i64,
                _ => rng.below(width) as i64,
            };
            let v = if rng.chance(0.1) { rng.below(1 << 60) as f64 / 7.0 } else { (t % 10) as f64 };
            late.insert(t, v, SERIES);
            model.insert(t, v);
        }
        check(&late);
        for _ in 0..20 {
            let at = rng.below(width) as i64;
            let near = TimeRange::new(at, at + rng.below(5) as i64);
            let expected = model.range(near.start_ms..=near.end_ms).next().is_some();
            assert_eq!(late.has_samples(near), expected, "round {round}, {near:?}");
        }
        let from = rng.below(width) as i64 - 10;
        let range = TimeRange::new(from, from + rng.below(width) as i64);
        let mut out = Samples::default();
        out.push(-1_000_000, 0.5);
        late.merge_into(range, &mut out, 1);
        let expected: Vec<_> = model.range(range.start_ms..=range.end_ms).map(|(t, v)| (*t, *v)).collect();
        assert_eq!(out.iter_from(1).collect::<Vec<_>>(), expected, "round {round}");
    }
}

#[test]
fn samples_that_fill_a_gap_in_order_are_packed_densely() {
    let mut late = LateOf::default();
    (0..24_000).for_each(|i| _ = late.insert(i * 1000, 1.0, SERIES));
    check(&late);
    assert!(late.pieces.len() <= 101, "{} pieces for 100 chunks", late.pieces.len());
}

#[test]
fn one_insertion_in_many_rewrites_a_chunk() {
    let mut rng = Rng::announced();
    let mut late = LateOf::default();
    let (mut inserted, mut rewrites) = (0, 0);
    for _ in 0..60_000 {
        inserted += 1;
        rewrites += usize::from(late.insert(rng.below(3_300_000) as i64, 1.0, SERIES) == Effort::Rewrite);
    }
    check(&late);
    assert!(rewrites * PENDING_MAX.start() <= inserted, "{rewrites} rewrites for {inserted} samples");
}

#[test]
fn series_that_get_their_late_samples_together_do_not_rewrite_their_chunks_together() {
    let mut all: Vec<_> = (0..1600).map(|i| (SeriesRef(i), LateOf::default())).collect();
    for round in 0..1000 {
        let rewrites = all.iter_mut().map(|(series, late)| late.insert(-round, 1.0, *series));
        let rewrites = rewrites.filter(|effort| *effort == Effort::Rewrite).count();
        assert!(rewrites <= 500, "{rewrites} of 1600 series in round {round}");
    }
}
