//! Decisions of rules, and which of them are counted and remembered.

use super::*;
use crate::seal::tests::stop;
use model::SeriesKey;

/// The sender repeats a request that was refused, so the samples that rules dropped from it would be counted again.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_samples_of_a_request_that_is_refused_are_not_counted() {
    let ruled = Ruled::new(RENAME, Arc::new(SystemClock), |settings| {
        settings.tenants.general.limits.active_series = Some(1);
    });
    let dropped =
        || ruled.metric("floodmark_ingest_rules_dropped_samples_total{tenant=\"a\",rule=\"default/3\"}");
    for _ in 0..3 {
        let all = [series("m", 0..2), series("gone", 0..5)].concat();
        let Unwritten { refusal, .. } = ruled.send("a", &all).await.unwrap_err();
        assert_eq!((refusal.reason, dropped()), ("active_series", 0.0));
    }
    for round in 1..=3 {
        let all = [series("m", 0..1), series("gone", 0..5)].concat();
        assert_eq!(ruled.send("a", &all).await.unwrap().dropped_samples, 5);
        assert_eq!(dropped(), f64::from(5 * round));
    }
    stop(ruled.node).await;
}

/// Two tenants have contradicting rules for the same series, and more series than verdicts can be remembered.
#[tokio::test(flavor = "multi_thread")]
async fn displaced_verdicts_are_decided_again_and_never_those_of_others() {
    let rules = "
tenants:
  a: [{source_labels: [__name__], regex: 'm(.*)', target_label: __name__, replacement: 'new$1'}]
  b: [{source_labels: [__name__], regex: 'm(.*)', action: drop}]
  c: [{source_labels: [__name__], regex: 'x(.*)', action: drop}]
";
    const OF_A: u32 = 9000;
    const OF_B: u32 = 27_000;
    let ruled = Ruled::new(rules, Arc::new(SystemClock), |_| ());
    let mut applied = Vec::new();
    for round in 0..3 {
        for from in (0..OF_B).step_by(3000) {
            let all = series("m", from..from + 3000);
            let of_b = ruled.send("b", &all).await.unwrap();
            assert_eq!((of_b.samples, of_b.dropped_samples), (0, 3000), "round {round}");
            if from < OF_A {
                let of_a = ruled.send("a", &all).await.unwrap();
                assert_eq!((of_a.samples, of_a.dropped_samples), (3000, 0), "round {round}");
            }
            if from == 0 {
                let of_c = ruled.send("c", &all).await.unwrap();
                assert_eq!((of_c.samples, of_c.dropped_samples), (3000, 0), "round {round}");
            }
        }
        applied.push(ruled.applied());
    }
    let (first, last) = (applied[0], applied[2] - applied[1]);
    assert_eq!(first, f64::from(OF_A + OF_B + 3000));
    assert!(last > 1000.0, "the rules decided again on {last} series, so all were remembered");
    assert!(last < first, "the rules decided again on all {last} series");
    let seed = ruled.node.reads().seed;
    let has = |tenant: &str, name: &str, number: u32| {
        let labels = Labels::from_pairs(&[("__name__", name), ("n", &number.to_string())]);
        let key = SeriesKey::of(labels.as_bytes(), seed);
        let tenant = TenantId::parse(tenant).unwrap();
        let heads = ruled.node.reads().partitions.iter();
        heads
            .map(|partition| partition.head.read())
            .any(|head| head.tenant(&tenant).is_some_and(|head| head.resolve(key).is_some()))
    };
    for number in 0..OF_B {
        let found = [("a", "m"), ("a", "new"), ("b", "m"), ("b", "new"), ("c", "m"), ("c", "new")]
            .map(|(tenant, name)| has(tenant, name, number));
        assert_eq!(found, [false, number < OF_A, false, false, number < 3000, false], "series {number}");
    }
    stop(ruled.node).await;
}
