use super::*;
use crate::memory::MemorySource;
use std::sync::atomic::Ordering;

fn source() -> MemorySource {
    let mut source = MemorySource::new();
    for (name, factor) in [("a", 1.0), ("b", 2.0)] {
        let labels = Labels::from_pairs(&[("__name__", "requests_total"), ("job", name), ("zone", "x")]);
        for i in 0..60 {
            source.push(&labels, i * 10_000, i as f64 * factor);
        }
    }
    source
}

fn run(text: &str) -> Result<Value, QueryError> {
    let cancelled = AtomicBool::new(false);
    instant(&parse(text)?, 300_000, &source(), &Options::new(&cancelled)).map(|a| a.value)
}

fn vector(text: &str) -> Vec<(String, f64)> {
    match run(text).unwrap() {
        Value::Vector(rows) => rows.into_iter().map(|(l, _, v)| (l.to_string(), v)).collect(),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn selects_and_adds_up() {
    assert_eq!(vector(r#"requests_total{job="a"}"#), [(r#"requests_total{job="a", zone="x"}"#.into(), 30.0)]);
    assert_eq!(vector("sum by (zone) (rate(requests_total[1m]))"), [(r#"{zone="x"}"#.into(), 0.1 + 0.2)]);
    assert_eq!(vector("count(requests_total) + 1"), [("{}".into(), 3.0)]);
    assert_eq!(
        vector(r#"requests_total{job="b"} / ignoring(job) requests_total{job="a"}"#),
        [(r#"{zone="x"}"#.into(), 2.0)]
    );
}

#[test]
fn clamping_keeps_the_sign_of_zero() {
    let check = |text: &str, value: f64| assert_eq!(vector(text)[0].1.to_bits(), value.to_bits(), "{text}");
    check("clamp_max(vector(-0), 0)", -0.0);
    check("clamp_max(vector(0), -0)", -0.0);
    check("clamp_min(vector(-0), 0)", 0.0);
    check("clamp_min(vector(0), -0)", 0.0);
    check("clamp_min(vector(-0), -0)", -0.0);
    check("clamp(vector(-0), -1, 0)", -0.0);
    check("clamp(vector(-0), 0, 1)", 0.0);
    check("clamp(vector(-0), -0, 1)", -0.0);
}

#[test]
fn a_cancelled_query_ends() {
    let cancelled = AtomicBool::new(false);
    let options = Options::new(&cancelled);
    cancelled.store(true, Ordering::Relaxed);
    let error = instant(&parse("sum(requests_total)").unwrap(), 0, &source(), &options).unwrap_err();
    assert_eq!((error.clone(), error.kind()), (QueryError::Canceled, QueryErrorKind::Canceled));
}

#[test]
fn a_query_holds_no_more_than_it_may() {
    let cancelled = AtomicBool::new(false);
    let options = Options { samples_max: 450, ..Options::new(&cancelled) };
    let source = source();
    let check = |text: &str, ok: bool| {
        let result = range(&parse(text).unwrap(), 0, 600_000, 10_000, &source, &options);
        assert_eq!(result.err(), if ok { None } else { Some(QueryError::TooLarge) }, "{text}");
    };
    check("sum(requests_total)", true);
    check("requests_total", true);
    check("requests_total + requests_total + (requests_total + (requests_total + requests_total))", false);
    check("max_over_time(requests_total[1h:1ms])", false);
    check("count_over_time(vector(1)[1000y:1ms])", false);
}
