use super::*;
use crate::order::FrozenOrder;
use crate::tenant::AppendStats;
use crate::value::tests::histogram_of;
use model::{Histogram, Labels, SeriesKey, SeriesSamples, ValueKind};
use std::collections::BTreeMap;
use stdx::rng::Rng;

fn add(head: &mut TenantHead, i: usize) -> SeriesRef {
    let labels = Labels::from_pairs(&[("__name__", &format!("m{}", i % 3)), ("i", &i.to_string())]);
    head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref())
}

fn add_histograms(head: &mut TenantHead, i: usize) -> SeriesRef {
    let labels = Labels::from_pairs(&[("__name__", "h"), ("i", &i.to_string())]);
    head.create_of(ValueKind::Histogram, SeriesKey::of(labels.as_bytes(), 1), labels.as_ref())
}

/// Appends `value` as a float, or as the sum of a histogram.
fn put(head: &mut TenantHead, series: SeriesRef, timestamp_ms: i64, value: f64) -> AppendStats {
    match head.kind(series) {
        ValueKind::Float => head.append(&[series], &[timestamp_ms], &[value], 1),
        ValueKind::Histogram => head.append(&[series], &[timestamp_ms], [histogram_of(value)].as_slice(), 1),
    }
}

fn bits(samples: SeriesSamples) -> Vec<(i64, u64)> {
    match samples {
        SeriesSamples::Floats(s) => s.iter_from(0).map(|(t, v)| (t, v.to_bits())).collect(),
        SeriesSamples::Histograms(s) => {
            let sum = |h: Histogram| {
                let sum = h.parts().sum;
                assert_eq!(h, histogram_of(sum), "the histogram is not the one that was stored");
                sum.to_bits()
            };
            s.iter_from(0).map(|(t, h)| (t, sum(h))).collect()
        }
    }
}

fn release_turn(head: &mut TenantHead) -> bool {
    head.release_some(&mut { TURN_SERIES })
}

fn read(head: &TenantHead, series: SeriesRef, range: TimeRange) -> Vec<(i64, u64)> {
    let mut out = SeriesSamples::default();
    head.read_any(series, range, &mut out);
    bits(out)
}

fn read_frozen(head: &TenantHead, series: SeriesRef) -> Vec<(i64, u64)> {
    let mut out = SeriesSamples::new(head.kind(series));
    match &mut out {
        SeriesSamples::Floats(out) => head.read_frozen(series, out),
        SeriesSamples::Histograms(out) => head.read_frozen(series, out),
    }
    bits(out)
}

type Map = BTreeMap<i64, u64>;

#[derive(Debug, Default, Clone)]
struct Model {
    fresh: Map,
    frozen: Map,
    newest_ms: Option<i64>,
}

impl Model {
    fn all(&self, range: TimeRange) -> Vec<(i64, u64)> {
        let mut all = self.frozen.clone();
        all.extend(&self.fresh);
        all.into_iter().filter(|(t, _)| range.contains(*t)).collect()
    }
}

/// Compares the running count of memory with the actual sum.
fn check_bytes(head: &TenantHead) {
    let chunks: usize = (0..head.series.len()).map(|i| head.series.get(i).heap_bytes()).sum();
    assert_eq!(head.chunk_bytes, chunks);
    let late: usize = head.late.values().chain(head.frozen_late.values()).map(|l| l.heap_bytes()).sum();
    assert_eq!(head.late_bytes, late);
}

fn check(head: &TenantHead, refs: &[SeriesRef], model: &[Model], rng: &mut Rng) {
    for (i, (series, model)) in refs.iter().zip(model).enumerate() {
        let from = rng.below(4000) as i64;
        for range in [TimeRange::ALL, TimeRange::new(from, from + rng.below(500) as i64)] {
            let expected = model.all(range);
            assert_eq!(read(head, *series, range), expected, "series {i}");
            assert_eq!(head.has_samples(*series, range), !expected.is_empty());
            assert!(head.samples_at_most(*series, range) >= expected.len());
        }
        assert_eq!(head.newest_ms(*series), model.newest_ms.unwrap_or(i64::MIN));
        if head.is_frozen() {
            assert_eq!(read_frozen(head, *series), model.frozen.clone().into_iter().collect::<Vec<_>>());
        }
    }
    check_bytes(head);
}

#[test]
fn behaves_like_two_maps() {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    for round in 0..12 {
        one_life(&mut Rng::new(seed + round));
    }
}

fn one_life(rng: &mut Rng) {
    let mut head = TenantHead::new(1);
    let refs: Vec<_> =
        (0..12).map(|i| if i % 3 == 2 { add_histograms(&mut head, i) } else { add(&mut head, i) }).collect();
    let mut model = vec![Model::default(); refs.len()];
    let mut now = 0;
    for _ in 0..40 {
        for _ in 0..rng.below(600) {
            // some series are quiet for whole rounds
            let i = (rng.below(12) & rng.below(16)) as usize % 12;
            now += i64::from(rng.chance(0.3));
            let t = match rng.below(20) {
                0 => now - rng.below(300) as i64,
                // sends a sample with the same time as the series' newest sample
                1..3 => model[i].newest_ms.unwrap_or(now),
                _ => now,
            };
            let v = (rng.below(3) as f64) / if rng.chance(0.05) { 3.0 } else { 4.0 };
            let stats = put(&mut head, refs[i], t, v);
            if stats.duplicates == 1 {
                let held = model[i].fresh.get(&t).or(model[i].frozen.get(&t));
                assert_eq!(held, Some(&v.to_bits()), "a sample was dropped that the head does not hold");
            } else {
                model[i].fresh.insert(t, v.to_bits());
            }
            let newest = model[i].newest_ms.map_or(t, |n| n.max(t));
            model[i].newest_ms = Some(newest);
        }
        check(&head, &refs, &model, rng);
        if !head.is_frozen() {
            let frozen = head.freeze();
            for model in &mut model {
                assert!(model.frozen.is_empty());
                model.frozen = std::mem::take(&mut model.fresh);
            }
            let count: usize = model.iter().map(|m| m.frozen.len()).sum();
            assert!(frozen as usize >= count && (frozen > 0) == head.is_frozen());
            check(&head, &refs, &model, rng);
        } else if rng.chance(0.3) {
            while !head.freeze_rest_some(&mut { 1 + rng.below(4) as usize }) {
                check_bytes(&head);
            }
            for model in &mut model {
                model.frozen.extend(std::mem::take(&mut model.fresh));
            }
            check(&head, &refs, &model, rng);
        } else if rng.chance(0.6) {
            let (mut order, mut series) = (FrozenOrder::new(), Vec::new());
            while !order.turn(&head, &mut series) {}
            series.sort_unstable();
            let expected: Vec<_> = refs.iter().zip(&model).filter(|(_, m)| !m.frozen.is_empty()).collect();
            assert_eq!(series, expected.into_iter().map(|(s, _)| *s).collect::<Vec<_>>());
            // samples are written between the turns of the release
            while !head.release_some(&mut { 1 + rng.below(4) as usize }) {
                let (i, v) = (rng.below(12) as usize, rng.below(3) as f64);
                now += 1;
                put(&mut head, refs[i], now, v);
                model[i].fresh.insert(now, v.to_bits());
                model[i].newest_ms = Some(now);
            }
            model.iter_mut().for_each(|m| m.frozen.clear());
            check(&head, &refs, &model, rng);
        }
    }
}

#[test]
fn a_repeated_sample_is_dropped_only_while_the_first_one_is_held() {
    let mut head = TenantHead::new(1);
    let (a, b, c) = (add(&mut head, 0), add(&mut head, 1), add(&mut head, 2));
    let put = |head: &mut TenantHead, series, value| put(head, series, 10, value);
    let (dropped, stored) = (
        AppendStats { duplicates: 1, ..AppendStats::default() },
        AppendStats { in_order: 1, ..AppendStats::default() },
    );
    head.append(&[a, b, b, c], &[10, 10, 10, 10], &[1.5, 1.0, 2.0, 1.0 / 3.0], 1);
    assert_eq!(head.freeze(), 4);
    assert_eq!(put(&mut head, c, 1.0 / 3.0), dropped, "the frozen chunk still holds the first one");
    while !release_turn(&mut head) {}
    assert_eq!([a, b, c].map(|s| head.newest_ms(s)), [10, 10, 10]);
    // the head cannot know whether the table still has the samples
    for (series, value) in [(a, 1.5), (b, 1.0), (c, 1.0 / 3.0)] {
        assert_eq!(put(&mut head, series, value), stored);
        assert_eq!(put(&mut head, series, value), dropped);
        assert_eq!(read(&head, series, TimeRange::ALL), [(10, value.to_bits())]);
    }
    // another value at the same time is late
    assert_eq!(put(&mut head, a, 2.5).late, 1);
    assert_eq!(read(&head, a, TimeRange::ALL), [(10, 2.5f64.to_bits())]);
    assert_eq!(head.freeze(), 4);
    assert_eq!(read_frozen(&head, a), [(10, 2.5f64.to_bits())]);
    check_bytes(&head);
}

#[test]
fn freezing_an_empty_head_freezes_nothing() {
    let mut head = TenantHead::new(1);
    add(&mut head, 0);
    assert_eq!(head.freeze(), 0);
    assert!(!head.is_frozen() && release_turn(&mut head));
}

#[test]
fn releasing_frees_the_memory() {
    let mut head = TenantHead::new(1);
    let refs: Vec<_> = (0..TURN_SERIES * 2 + 10).map(|i| add(&mut head, i)).collect();
    let empty = head.memory_bytes();
    for t in 0..4 {
        head.append(&refs, &vec![t * 1000; refs.len()], &vec![t as f64 * 1.25; refs.len()], 1);
    }
    let filled = head.memory_bytes();
    head.freeze();
    assert_eq!(head.memory_bytes(), filled, "a freeze takes no memory");
    head.append(&refs[..100], &[5000; 100], &[1.0; 100], 1);
    let touched = head.memory_bytes() - filled;
    assert!(touched <= 100 * 96, "{touched} bytes for 100 series");
    let mut turns = 1;
    while !release_turn(&mut head) {
        turns += 1;
        check_bytes(&head);
    }
    assert_eq!(turns, 3);
    assert!(head.memory_bytes() <= empty + 100 * 64, "{} of {empty}", head.memory_bytes());
}
