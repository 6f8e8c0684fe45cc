use super::*;
use protocol::labels::describe_labels;
use std::collections::BTreeMap;

fn totals(bytes: u64) -> (Account, Totals) {
    let account = Account::new("unwritten", bytes);
    let totals = Totals::new(account.clone(), 7);
    (account, totals)
}

/// Ends an interval, marks its samples as stored, and returns them.
fn flush(account: &Account, totals: &mut Totals) -> BTreeMap<String, f64> {
    let (found, lost) = end_interval(account, totals, true);
    assert_eq!(lost, 0);
    found
}

/// Ends an interval. Returns its samples, and the number of series that were forgotten before their last value was stored.
fn end_interval(account: &Account, totals: &mut Totals, is_stored: bool) -> (BTreeMap<String, f64>, u64) {
    let (mut found, mut from) = (BTreeMap::new(), Some(0));
    while let Some(first) = from {
        let memory = account.reserve(0).unwrap();
        let limits = Limits { series: 2, label_bytes: usize::MAX, values: usize::MAX };
        let Part { batch, series, next, left_out, .. } = totals.batch(first, limits, 5, memory);
        assert_eq!(left_out, None);
        for series in &batch.floats.series {
            let at = series.samples.start as usize;
            assert_eq!(batch.floats.timestamps[at], 5);
            let twice = found.insert(describe_labels(batch.label_bytes(series)), batch.floats.values[at]);
            assert_eq!(twice, None);
        }
        if is_stored {
            totals.stored(series);
        }
        from = next;
    }
    (found, totals.forget_idle())
}

fn add(totals: &mut Totals, lines: &[&str]) {
    lines.iter().for_each(|line| totals.add(line.as_bytes()).unwrap());
}

fn expected(samples: &[(&str, f64)]) -> BTreeMap<String, f64> {
    samples.iter().map(|(series, value)| ((*series).to_owned(), *value)).collect()
}

/// However a line writes its tags, its values belong to the same series.
#[test]
fn the_order_of_tags_does_not_matter() {
    let (account, mut totals) = totals(1 << 20);
    let names: Vec<String> = (0..3 * KEYS_MAX).map(|i| format!("t{i}:v")).collect();
    for first in 0..names.len() {
        let tags = [&names[first..], &names[..first]].concat();
        add(&mut totals, &[&format!("hits:1|c|#{}", tags.join(","))]);
        add(&mut totals, &[&format!("hits,{}:1|c", tags.join(",").replace(':', "="))]);
    }
    add(&mut totals, &["hits:5|g|#b:2,a:1", "hits:7|g|#a:1,b:2", "size:1|g"]);
    assert_eq!(totals.series_count(), 3);
    let found = flush(&account, &mut totals);
    assert_eq!(found.values().copied().sum::<f64>(), 6.0 * KEYS_MAX as f64 + 7.0 + 1.0);
    for _ in 0..=IDLE_MAX {
        add(&mut totals, &["size:1|g"]);
        flush(&account, &mut totals);
    }
    assert_eq!((totals.series_count(), totals.positions.len()), (1, 2));
    add(&mut totals, &["hits:5|g|#b:2,a:1", "size:2|g"]);
    assert_eq!(flush(&account, &mut totals)["size{}"], 2.0);
}

/// A further key only saves time, so no series is forgotten for it.
#[test]
fn nothing_is_forgotten_for_the_keys_of_other_texts() {
    let (account, mut totals) = totals(1 << 20);
    add(&mut totals, &["last:1|c", "hits:1|c|#a:1,b:2"]);
    for _ in 0..=IDLE_MAX {
        add(&mut totals, &["hits:1|c|#a:1,b:2"]);
        assert_eq!(end_interval(&account, &mut totals, false).1, 0);
    }
    let rest = account.limit_bytes() - account.used_bytes();
    let others = account.reserve(rest).unwrap();
    add(&mut totals, &["hits:1|c|#b:2,a:1"]);
    drop(others);
    assert_eq!(end_interval(&account, &mut totals, false).1, 0);
    assert_eq!(flush(&account, &mut totals)["last{}"], 1.0);
}

#[test]
fn lines_add_up() {
    let (account, mut totals) = totals(1 << 20);
    add(
        &mut totals,
        &["hits:1|c", "hits:2|c|@0.5", "hits:1|c|#code:200", "size:7|g", "size:+3|g", "size:-1|g"],
    );
    add(&mut totals, &["users:a|s", "users:b|s", "users:a|s", "t:3|ms", "t:1:2|ms", "t:4|h|@0.1"]);
    assert_eq!(
        flush(&account, &mut totals),
        expected(&[
            ("hits{}", 5.0),
            (r#"hits{code="200"}"#, 1.0),
            ("size{}", 9.0),
            ("users{}", 2.0),
            ("t_count{}", 13.0),
            ("t_sum{}", 46.0),
            (r#"t{quantile="0.5"}"#, 3.0),
            (r#"t{quantile="0.9"}"#, 4.0),
            (r#"t{quantile="0.99"}"#, 4.0),
        ])
    );
    // counters and gauges go on; sets and quantiles are those of an interval
    add(&mut totals, &["hits:1|c", "users:c|s"]);
    assert_eq!(
        flush(&account, &mut totals),
        expected(&[
            ("hits{}", 6.0),
            (r#"hits{code="200"}"#, 1.0),
            ("size{}", 9.0),
            ("users{}", 1.0),
            ("t_count{}", 13.0),
            ("t_sum{}", 46.0),
        ])
    );
    for _ in 0..IDLE_MAX {
        add(&mut totals, &["hits:1|c"]);
        flush(&account, &mut totals);
    }
    assert_eq!(totals.series_count(), 1, "idle series are forgotten");
    add(&mut totals, &["size:+1|g", "hits:1|c"]);
    let found = flush(&account, &mut totals);
    assert_eq!((found["size{}"], found["hits{}"]), (1.0, 67.0));
    drop(totals);
    assert_eq!(account.used_bytes(), 0);
}

#[test]
fn quantiles_of_many_values_are_those_of_a_sample() {
    let (account, mut totals) = totals(1 << 20);
    for i in 0..100_000 {
        totals.add(format!("t:{}|ms", i % 1000).as_bytes()).unwrap();
    }
    let found = flush(&account, &mut totals);
    assert_eq!((found["t_count{}"], found["t_sum{}"]), (100_000.0, 49_950_000.0));
    for (name, quantile) in QUANTILES {
        let value = found[&format!("t{{quantile={name:?}}}")];
        assert!((value / 1000.0 - quantile).abs() < 0.08, "{name}: {value}");
    }
}

#[test]
fn memory_is_bounded() {
    let (account, mut totals) = totals(400_000);
    let mut dropped = 0;
    for i in 0..2000 {
        dropped += u32::from(totals.add(format!("a{i}:1|c").as_bytes()) == Err(Dropped::Memory));
        assert!(account.used_bytes() <= 100_000);
    }
    assert!((1..1900).contains(&dropped), "{dropped}");
    assert_eq!(totals.add(b"a0:1|c"), Ok(()), "known series go on");
    assert_eq!(totals.add(b"more:1|c"), Err(Dropped::Memory));
    let (account, mut sets) = self::totals(64 << 20);
    for i in 0..SET_MEMBERS_MAX {
        sets.add(format!("s:{i}|s").as_bytes()).unwrap();
    }
    assert_eq!(sets.add(b"s:more|s"), Err(Dropped::SetSize));
    assert_eq!(sets.add(b"s:7|s"), Ok(()));
    assert_eq!(flush(&account, &mut sets)["s{}"], SET_MEMBERS_MAX as f64);
    assert!(account.used_bytes() < 10_000);
    assert_eq!(sets.add(b"x\xff:1|c"), Err(Dropped::Invalid));
    let labelled = |length| format!("x:1|c|#a:{0},b:{0},c:{0}", "y".repeat(length));
    assert_eq!(sets.add(labelled(1400).as_bytes()), Err(Dropped::Invalid));
    assert_eq!(sets.add(labelled(1300).as_bytes()), Ok(()));
    assert_eq!(sets.add(b"x"), Err(Dropped::Malformed));
}

#[test]
fn a_batch_ends_at_each_limit() {
    let account = Account::new("unwritten", 64 << 20);
    let none = Limits { series: usize::MAX, label_bytes: usize::MAX, values: usize::MAX };
    // how many of ten timers with ten values each, of which each becomes five series, are in the first batch
    let check = |limits: Limits, expected: usize| {
        let mut totals = Totals::new(account.clone(), 7);
        (0..100).for_each(|i| add(&mut totals, &[&format!("t{}:{i}|ms|#x:{}", i % 10, "y".repeat(500))]));
        let part = totals.batch(0, limits, 5, account.reserve(0).unwrap());
        assert_eq!(part.batch.floats.series.len(), 5 * expected, "{limits:?}");
        assert_eq!(part.next, (expected < 10).then_some(expected), "{limits:?}");
        assert_eq!(part.left_out, None);
    };
    check(none, 10);
    check(Limits { series: 3, ..none }, 3);
    check(Limits { label_bytes: 1, ..none }, 1);
    check(Limits { label_bytes: 9000, ..none }, 4);
    check(Limits { values: 1, ..none }, 1);
    check(Limits { values: 41, ..none }, 5);
}

/// Series that do not fit together are stored one after the other, and one that does not fit at all holds up no other.
#[test]
fn a_full_memory_keeps_no_series_back() {
    let (account, mut totals) = totals(1 << 20);
    let none = Limits { series: usize::MAX, label_bytes: usize::MAX, values: usize::MAX };
    add(&mut totals, &["a:1|c"]);
    for i in 0..30 {
        add(&mut totals, &[&format!("t{i}:1:2|ms|#x:{}", "y".repeat(3500))]);
    }
    add(&mut totals, &["b:1|c"]);
    // returns the names of what was stored, the number of batches, and how many series were left out
    let flush = |totals: &mut Totals, free_bytes: u64| {
        let (mut names, mut batches, mut left_out) = (Vec::new(), 0, 0);
        let rest = account.limit_bytes() - account.used_bytes() - free_bytes;
        let _others = account.reserve(rest).unwrap();
        let mut from = Some(0);
        while let Some(first) = from {
            let part = totals.batch(first, none, 5, account.reserve(0).unwrap());
            let floats = &part.batch.floats;
            assert_eq!([floats.series.len(), floats.values.len()], [floats.timestamps.len(); 2]);
            let name = |series| describe_labels(part.batch.label_bytes(series));
            names.extend(floats.series.iter().map(|series| name(series).chars().take(9).collect()));
            batches += 1;
            left_out += usize::from(part.left_out.is_some());
            if part.left_out.is_none() {
                totals.stored(part.series);
            }
            from = part.next;
        }
        totals.forget_idle();
        (names, batches, left_out)
    };
    let (names, batches, left_out): (Vec<String>, usize, usize) = flush(&mut totals, 250_000);
    assert_eq!((names.len(), left_out), (2 + 5 * 30, 0));
    assert!((5..=31).contains(&batches), "{batches}");
    let distinct: HashSet<_> = names.iter().filter(|name| name.contains("_count")).collect();
    assert_eq!(distinct.len(), 30, "no series is stored twice: {names:?}");
    // without values, a timer is two series
    let (names, _, left_out) = flush(&mut totals, 40_000);
    assert_eq!((names, left_out), (vec!["a{}".to_owned(), "b{}".to_owned()], 30));
    // all were counted as idle
    for _ in 2..=IDLE_MAX {
        flush(&mut totals, 40_000);
    }
    assert_eq!(totals.series_count(), 0);
    drop(totals);
    assert_eq!(account.used_bytes(), 0);
}

#[test]
fn totals_stay_finite() {
    let (account, mut totals) = totals(1 << 20);
    let most = "1.7e308";
    let check = |totals: &mut Totals, line: String, expected| {
        assert_eq!(totals.add(line.as_bytes()), expected, "{line}");
    };
    for kind in ["c", "g", "ms"] {
        check(&mut totals, format!("{kind}:{most}|{kind}"), Ok(()));
    }
    check(&mut totals, format!("c:{most}|c"), Err(Dropped::Invalid));
    check(&mut totals, "c:10|c|@1e-308".into(), Err(Dropped::Invalid));
    check(&mut totals, "c:0|c|@5e-324".into(), Err(Dropped::Malformed));
    check(&mut totals, format!("g:+{most}|g"), Err(Dropped::Invalid));
    check(&mut totals, format!("ms:{most}|ms"), Err(Dropped::Invalid));
    check(&mut totals, "n:0|ms|@6e-309".into(), Ok(()));
    check(&mut totals, "n:0|ms|@6e-309".into(), Err(Dropped::Invalid));
    check(&mut totals, format!("c:-{most}|c"), Ok(()));
    let found = flush(&account, &mut totals);
    assert_eq!((found["c{}"], found["g{}"], found["ms_count{}"]), (0.0, 1.7e308, 1.0));
    assert!(found.values().all(|value| value.is_finite()), "{found:?}");
}

/// The value comes while the last interval of the series is being stored.
#[test]
fn a_value_keeps_a_series_that_was_about_to_be_forgotten() {
    let (account, mut totals) = totals(1 << 20);
    let none = Limits { series: usize::MAX, label_bytes: usize::MAX, values: usize::MAX };
    add(&mut totals, &["a:1|c", "b:1|c"]);
    for _ in 0..IDLE_MAX {
        assert_eq!(flush(&account, &mut totals).len(), 2);
    }
    totals.batch(0, none, 5, account.reserve(0).unwrap());
    add(&mut totals, &["a:5|c"]);
    totals.forget_idle();
    assert_eq!(flush(&account, &mut totals), expected(&[("a{}", 6.0)]));
}

#[test]
fn a_series_is_kept_until_its_last_value_is_stored() {
    let (account, mut totals) = totals(1 << 20);
    let fail = |totals: &mut Totals| end_interval(&account, totals, false).1;
    add(&mut totals, &["hits:1|c", "size:7|g", "t:3|ms", "users:a|s"]);
    for _ in 0..2 * IDLE_MAX {
        assert_eq!(fail(&mut totals), 0);
    }
    assert_eq!(totals.series_count(), 3, "the members of the set are lost");
    assert_eq!(
        flush(&account, &mut totals),
        expected(&[("hits{}", 1.0), ("size{}", 7.0), ("t_count{}", 1.0), ("t_sum{}", 3.0)])
    );
    assert_eq!(totals.series_count(), 0);
    // a value that comes while the interval is being stored is not stored with it
    add(&mut totals, &["hits:1|c"]);
    let none = Limits { series: usize::MAX, label_bytes: usize::MAX, values: usize::MAX };
    let part = totals.batch(0, none, 5, account.reserve(0).unwrap());
    add(&mut totals, &["hits:2|c"]);
    totals.stored(part.series);
    for _ in 0..2 * IDLE_MAX {
        assert_eq!(fail(&mut totals), 0);
    }
    // others need the memory
    let mut others = 0;
    while totals.add(format!("b{others:03}:1|c").as_bytes()) == Ok(()) {
        others += 1;
    }
    assert_eq!(totals.series_count(), 1 + others);
    assert_eq!(fail(&mut totals), 1);
    assert_eq!(totals.add(b"b999:1|c"), Ok(()));
    assert_eq!((totals.series_count(), fail(&mut totals)), (1 + others, 0));
}
