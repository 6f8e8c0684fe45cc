use super::*;
use model::{Labels, SeriesKey};
use stdx::rng::Rng;

fn all_in_order(head: &TenantHead) -> Vec<SeriesRef> {
    let (mut order, mut all) = (FrozenOrder::new(), Vec::new());
    loop {
        let before = all.len();
        let last = order.turn(head, &mut all);
        assert!(all.len() - before <= OUT_MAX);
        if last {
            return all;
        }
    }
}

/// Reference implementation of the order: by metric name, then by the other label pairs as strings.
fn definition(head: &TenantHead, series: SeriesRef) -> (String, Vec<(String, String)>) {
    let mut bytes = Vec::new();
    head.write_labels(series, &mut bytes);
    let labels = model::LabelsRef::from_canonical(&bytes);
    let others = labels.iter().filter(|(n, _)| *n != METRIC_NAME);
    let others = others.map(|(n, v)| (n.to_string(), v.to_string())).collect();
    (labels.get(METRIC_NAME).unwrap_or_default().to_string(), others)
}

#[test]
fn series_come_by_name_and_then_pair_by_pair() {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for names in [1, 3, 4000] {
        let mut head = TenantHead::new(seed);
        let mut frozen = Vec::new();
        for _ in 0..6000 {
            let metric = format!("m{}", rng.below(names));
            let mut pairs = vec![(METRIC_NAME, metric.as_str())];
            let values: Vec<_> =
                (0..5).map(|_| ["a", "b", "ab", "b\u{0}", "é"][rng.below(5) as usize]).collect();
            let number = rng.below(3000).to_string();
            for (name, value) in ["A", "job", "jo", "pod", "zone"].iter().zip(&values) {
                if rng.chance(0.6) {
                    pairs.push((name, value));
                }
            }
            pairs.push(("n", &number));
            let labels = Labels::from_pairs(&pairs);
            let series = head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref());
            if rng.chance(0.7) {
                head.append(&[series], &[1], &[1.0], 1);
                frozen.push(series);
            }
        }
        head.freeze();
        frozen.sort_unstable();
        frozen.dedup();
        // a series that is created after the freeze does not appear in the order
        let labels = Labels::from_pairs(&[(METRIC_NAME, "m0"), ("later", "x")]);
        let later = head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref());
        head.append(&[later, frozen[0]], &[2, 2], &[1.0, 1.0], 1);
        let mut expected: Vec<_> = frozen.iter().map(|s| (definition(&head, *s), *s)).collect();
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|(_, s)| s).collect();
        assert_eq!(all_in_order(&head), expected, "{names} names");
        assert_eq!(all_in_order(&head), expected, "sorted a second time");
    }
}

#[test]
fn sorting_in_random_turns_equals_sorting_at_once() {
    let mut rng = Rng::announced();
    for count in [0, 1, 255, 256, 257, 512, 1000, 5000] {
        let mut sort = Sort::default();
        for _ in 0..2 {
            sort.restart(count);
            sort.items.extend((0..count).map(|_| rng.below(1000) as u32));
            let mut expected = sort.items.clone();
            expected.sort_unstable();
            let mut turns = 0;
            while !sort.advance(&mut (1 + rng.below(50) as usize), |a, b| a.cmp(&b)) {
                turns += 1;
            }
            assert_eq!(sort.items, expected);
            assert!(count < 1000 || turns > 3, "{turns} turns");
        }
        assert!(sort.memory_bytes() <= 8 * count, "{} bytes for {count}", sort.memory_bytes());
    }
}

#[test]
fn ordering_nothing_takes_one_turn() {
    assert_eq!(all_in_order(&TenantHead::new(1)), []);
}
