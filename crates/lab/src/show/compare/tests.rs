use super::*;
use crate::result::Judgement;
use crate::show::html::tests::sample;
use expect_test::{expect, expect_file};

#[test]
fn ratios_show_the_better_result() {
    let (a, mut b) = (sample(100_000.0), sample(150_000.0));
    b.totals.latency.p99_s = a.totals.latency.p99_s * 1.01;
    b.observed.insert("rss_peak_bytes".into(), 5.5e8);
    b.versions.insert("target".into(), "Prometheus 3.1".into());
    b.verdict[2].pass = true;
    b.verdict.push(Judgement {
        rule: "memory".into(),
        limit: "≤ 1 GiB".into(),
        pass: true,
        ..Judgement::default()
    });
    b.seed += 1;
    let both = Comparison::of(&a, &b);
    assert_eq!((both.a.as_str(), both.b.as_str()), ("Floodmark 0.1.0", "Prometheus 3.1"));
    let figure = |name: &str| both.figures.iter().find(|f| f.name == name).unwrap();
    assert_eq!((figure("samples_per_s").ratio, figure("samples_per_s").better), (Some(1.5), Some('b')));
    assert_eq!((figure("rss_peak_bytes").ratio, figure("rss_peak_bytes").better), (Some(0.5), Some('b')));
    assert_eq!(figure("p99_s").better, None, "a hundredth is noise");
    assert_eq!((figure("lost").ratio, figure("lost").better), (None, None));
    assert_eq!(both.passed, (Some(false), Some(true)));
    assert_eq!(both.rules.len(), 4);
    assert_eq!((&both.rules[3].a, both.rules[3].b.as_ref().unwrap().1), (&None, true));

    expect![[r#"
                                             Floodmark 0.1.0   Prometheus 3.1  B / A  better
        samples acknowledged a second        100k/s            150k/s          1.50   B
        samples acknowledged                 26 000 000        26 000 000      1.00
        series at a time                     100 000           100 000         1.00
        different series                     500 000           500 000         1.00
        requests accepted                    97.74 %           97.74 %         1.00
        latency p50                          4 ms              4 ms            1.00
        latency p90                          8 ms              8 ms            1.00
        latency p99                          36 ms             36.36 ms        1.01
        longest latency                      120 ms            120 ms          1.00
        latency p99, known series            27 ms             27 ms           1.00
        latency p99, new series              180 ms            180 ms          1.00
        one attempt p99                      27 ms             27 ms           1.00
        one refusal p99                      3.6 ms            3.6 ms          1.00
        time until visible, p99              900 ms            900 ms          1.00
        samples lost                         0                 0               –
        restarts of the target               0                 0               –
        longest time without success         0 s               0 s             –
        recovery time                        6 s               6 s             1.00
        queries a second                     40/s              40/s            1.00
        queries answered                     99 %              99 %            1.00
        query latency p99                    180 ms            180 ms          1.00
        target CPU, mean                     1.05 cores        1.05 cores      1.00
        target memory, maximum               1.02 GiB          524.5 MiB       0.50   B
        samples a second for each core used  95.2k/s           143k/s          1.50   B
        memory a series                      10.7 KiB          10.7 KiB        1.00
        samples on the schedule              26 400 000        26 400 000      1.00
        sent for each acknowledged sample    0 B               0 B             –
        generator lag p99                    270 µs            270 µs          1.00
        duration of the run                  240 s             240 s           1.00
        p99 ≤ 1 s                            kept (36 ms)      kept (36 ms)
        lost = 0                             kept (0)          kept (0)
        pass rate ≥ 99 %                     BROKEN (97.74 %)  kept (97.74 %)
        memory ≤ 1 GiB                       –                 kept ()
        verdict                              FAIL              PASS
        note: the seeds differ, and so the series and values
        note: A: target and generator together used all 2 cores
        note: B: target and generator together used all 2 cores
    "#]]
    .assert_eq(&both.to_text(false));
    expect![[r#"
        ┌──────────────────────────────────────────────────────────────────────────────────────────┐
        │                                       Floodmark 0.1.0    Prometheus 3.1   B / A   better │
        │ samples acknowledged a second         100k/s             150k/s           1.50    B      │
        │ samples acknowledged                  26 000 000         26 000 000       1.00           │
        │ series at a time                      100 000            100 000          1.00           │
        │ different series                      500 000            500 000          1.00           │
        │ requests accepted                     97.74 %            97.74 %          1.00           │
        │ latency p50                           4 ms               4 ms             1.00           │
        │ latency p90                           8 ms               8 ms             1.00           │
        │ latency p99                           36 ms              36.36 ms         1.01           │
        │ longest latency                       120 ms             120 ms           1.00           │
        │ latency p99, known series             27 ms              27 ms            1.00           │
        │ latency p99, new series               180 ms             180 ms           1.00           │
        │ one attempt p99                       27 ms              27 ms            1.00           │
        │ one refusal p99                       3.6 ms             3.6 ms           1.00           │
        │ time until visible, p99               900 ms             900 ms           1.00           │
        │ samples lost                          0                  0                –              │
        │ restarts of the target                0                  0                –              │
        │ longest time without success          0 s                0 s              –              │
        │ recovery time                         6 s                6 s              1.00           │
        │ queries a second                      40/s               40/s             1.00           │
        │ queries answered                      99 %               99 %             1.00           │
        │ query latency p99                     180 ms             180 ms           1.00           │
        │ target CPU, mean                      1.05 cores         1.05 cores       1.00           │
        │ target memory, maximum                1.02 GiB           524.5 MiB        0.50    B      │
        │ samples a second for each core used   95.2k/s            143k/s           1.50    B      │
        │ memory a series                       10.7 KiB           10.7 KiB         1.00           │
        │ samples on the schedule               26 400 000         26 400 000       1.00           │
        │ sent for each acknowledged sample     0 B                0 B              –              │
        │ generator lag p99                     270 µs             270 µs           1.00           │
        │ duration of the run                   240 s              240 s            1.00           │
        │ p99 ≤ 1 s                             kept (36 ms)       kept (36 ms)                    │
        │ lost = 0                              kept (0)           kept (0)                        │
        │ pass rate ≥ 99 %                      BROKEN (97.74 %)   kept (97.74 %)                  │
        │ memory ≤ 1 GiB                        –                  kept ()                         │
        │ verdict                               FAIL               PASS                            │
        └──────────────────────────────────────────────────────────────────────────────────────────┘
        note: the seeds differ, and so the series and values
        note: A: target and generator together used all 2 cores
        note: B: target and generator together used all 2 cores
    "#]]
    .assert_eq(&both.to_text(true));
    let json: serde_json::Value = serde_json::from_str(&both.to_json().unwrap()).unwrap();
    assert_eq!(json["figures"][0]["ratio"], 1.5);

    let page = both.to_html(&a, &b);
    if let Ok(dir) = std::env::var("FLOODMARK_PAGES") {
        std::fs::write(std::path::Path::new(&dir).join("compare.html"), &page).unwrap();
    }
    assert_eq!(page.matches("<script").count(), 2);
    let (_, body) = page.split_once("<body>").unwrap();
    expect_file!["../html/snapshots/compare.html"].assert_eq(body.split_once("<script").unwrap().0);
}

#[test]
fn equal_and_empty_results() {
    let a = sample(10.0);
    let both = Comparison::of(&a, &a);
    assert_eq!((both.a.as_str(), both.b.as_str()), ("A", "B"));
    assert!(both.figures.iter().all(|f| f.better.is_none() && f.ratio.is_none_or(|r| r == 1.0)));
    let empty = RunResult { partial: true, ..RunResult::default() };
    let both = Comparison::of(&empty, &a);
    assert_eq!(both.passed.0, None);
    assert!(both.caveats.iter().any(|c| c == "A ended early"));
    both.to_html(&empty, &a);
    for (r, text) in [(1.5, "1.50"), (12.34, "12.3"), (250.0, "250"), (1e-5, "1.0e-5"), (0.0, "0.00")] {
        assert_eq!(ratio(r), text);
    }
}
