use super::*;
use crate::allowance::{MATCHERS_MAX, NODES_MAX, PATTERNS_MAX};
use crate::memory_source::MemorySource;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    let canceled = AtomicBool::new(false);
    instant(&parse(text)?, 300_000, &source(), &Options::new(&canceled)).map(|a| a.value)
}

fn vector(text: &str) -> Vec<(String, f64)> {
    match run(text).unwrap() {
        Value::Vector(rows) => rows.into_iter().map(|(l, _, v)| (l.to_string(), v)).collect(),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn native_histograms_are_an_error_and_not_missing() {
    use model::histogram::{CounterReset, Counts, HistogramParts, Layout};
    let (reset, layout) = (CounterReset::Unknown, Layout::default());
    let parts = HistogramParts { reset, layout, counts: Counts::Whole(vec![1, 1]), sum: 0.0 };
    let histogram = model::Histogram::new(&parts).unwrap();
    let mut source = source();
    let labels = Labels::from_pairs(&[("__name__", "latency"), ("job", "a")]);
    source.push(&labels, 295_000, 7.0);
    source.add(labels, Samples { timestamps: vec![290_000], values: vec![histogram] });
    let canceled = AtomicBool::new(false);
    let options = Options::new(&canceled);
    let ask = |text, at_ms| instant(&parse(text).unwrap(), at_ms, &source, &options).map(|a| a.value);
    for text in ["latency", "sum(latency)", "rate(latency[1m])", "latency[1m]"] {
        let error = ask(text, 300_000).unwrap_err();
        assert!(
            matches!(&error, QueryError::Execution(text) if text.starts_with("latency has native")),
            "{error}"
        );
    }
    assert!(ask("requests_total", 300_000).is_ok());
    assert!(ask("latency", 2_000_000).is_ok(), "no histograms in the range");
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
fn a_canceled_query_ends() {
    let canceled = AtomicBool::new(false);
    let options = Options::new(&canceled);
    canceled.store(true, Ordering::Relaxed);
    let error = instant(&parse("sum(requests_total)").unwrap(), 0, &source(), &options).unwrap_err();
    assert_eq!((error.clone(), error.kind()), (QueryError::Canceled, QueryErrorKind::Canceled));
}

#[test]
fn usage_counts_samples_and_returns_to_zero_memory() {
    let (canceled, usage, source) = (AtomicBool::new(false), Usage::default(), source());
    let options = Options { usage: Some(&usage), ..Options::new(&canceled) };
    let expr = parse("requests_total + on (job, zone) requests_total").unwrap();
    let ask = || range(&expr, 0, 600_000, 10_000, &source, &options).unwrap();
    ask();
    let (samples, peak) = (usage.samples(), usage.peak_memory_bytes());
    assert_eq!(samples, 2 * 2 * 60, "two series of 60 samples, each read by both selectors");
    assert!(peak >= 4 * 61 * 16, "four rows of 61 steps are held at once: {peak} bytes");
    assert_eq!(usage.memory_bytes(), 0);
    ask();
    assert_eq!((usage.samples(), usage.peak_memory_bytes()), (2 * samples, peak));
}

#[test]
fn a_query_holds_at_most_samples_max() {
    let canceled = AtomicBool::new(false);
    let options = Options { samples_max: 450, ..Options::new(&canceled) };
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

/// Interrupt that counts checks, and is set after `set_after` checks.
#[derive(Debug)]
struct After {
    asked: AtomicU64,
    set_after: u64,
}

impl Interrupt for After {
    fn is_set(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.set_after
    }
}

#[test]
fn long_evaluations_check_the_interrupt() {
    const SERIES: u64 = 300;
    const STEPS: u64 = 11_000;
    let mut source = MemorySource::new();
    let bounds = ["1", "2", "5", "+Inf"];
    for i in 0..SERIES {
        let (job, le) = (format!("job{i}"), bounds[i as usize % 4]);
        let labels = Labels::from_pairs(&[("__name__", "m_bucket"), ("job", &job), ("le", le)]);
        let samples = Samples { timestamps: vec![0, 1000], values: vec![i as f64, f64::INFINITY] };
        source.add(labels, samples);
    }
    // evaluates an expression at `steps` steps, and expects at least `least` checks of the interrupt
    let check = |text: &str, steps: u64, least: u64| {
        let evaluate = |set_after: u64| {
            let interrupt = After { asked: AtomicU64::new(0), set_after };
            let options = Options::new(&interrupt);
            let (expr, end_ms) = (parse(text).unwrap(), steps as i64 - 1);
            let answer = match steps {
                1 => instant(&expr, 1000, &source, &options),
                _ => range(&expr, 0, end_ms, 1, &source, &options),
            };
            (answer.map(|_| ()), interrupt.asked.into_inner())
        };
        let (answer, asked) = evaluate(u64::MAX);
        assert_eq!(answer, Ok(()), "{text}");
        assert!(asked >= least, "{text}: checked the interrupt {asked} times, expected at least {least}");
        let (answer, asked_until_set) = evaluate(asked / 2);
        assert_eq!(answer, Err(QueryError::Canceled), "{text}");
        assert!(
            asked_until_set <= asked / 2 + 2,
            "{text}: ended after {asked_until_set} of {asked} checks of the interrupt"
        );
    };
    for function in ["mad_over_time", "quantile_over_time", "double_exponential_smoothing"] {
        let param = if function == "quantile_over_time" { "0.5, " } else { "" };
        let params = if function.starts_with("double") { ", 0.5, 0.5" } else { "" };
        // moving a sorted window takes a hundredth of the time of visiting all its samples
        let least = if function.starts_with("double") { 1100 * 1000 / 10_000 } else { 1100 / 100 };
        check(&format!("{function}({param}vector(time())[5s:1ms]{params})"), 1100, least);
    }
    check("avg_over_time(vector(1e308)[5s:1ms])", 1100, 1100 * 1000 / 10_000);
    check("rate(vector(time() % 2)[5s:1ms])", STEPS, STEPS / 5000);
    check("absent(m_bucket)", 1, SERIES);
    check("sort(m_bucket)", 1, SERIES);
    check("sort_by_label(m_bucket, \"le\", \"job\")", 1, 8 * SERIES);
    check("m_bucket + on(job, le) m_bucket", 100, 4 * SERIES);
    // the interrupt is checked in the loops over active steps, partners and pairs, and in the cleanup of
    // groups
    check("m_bucket * on(job, le) group_left m_bucket", 100, 9 * SERIES);
    check("m_bucket or m_bucket", 100, 8 * SERIES);
    check("count by (job) (m_bucket)", 100, 2 * SERIES);
    check("count_values(\"v\", m_bucket)", 100, 2 * SERIES);
    check("topk by (job) (3, m_bucket)", 100, 100 * SERIES);
    check("quantile by (le) (0.5, m_bucket)", 1000, 4000);
    check("histogram_quantile(0.9, m_bucket)", 1000, 1000);
    check("histogram_fraction(1, 2, m_bucket)", 1000, 1000);
    check("label_replace(m_bucket, \"a\", \"$1\", \"job\", \"(.*)1\")", 1, SERIES);
}

#[test]
fn limits_are_those_of_a_request() {
    let check = |texts: &[&str], refusal: Option<&str>| {
        let mut allowance = Allowance::new(64 << 20);
        let refused = texts.iter().try_for_each(|text| parse_within(text, &mut allowance).map(|_| ()));
        match (refused, refusal) {
            (Ok(()), None) => {}
            (Err(QueryError::Parse(message)), Some(part)) => assert!(message.contains(part), "{message}"),
            (other, expected) => panic!("{other:?}, expected {expected:?}"),
        }
    };
    let list = |one: &str, count: usize| vec![one; count].join(",");
    let selector = |one: &str, count: usize| format!("up{{{}}}", list(one, count));
    let (matchers, patterns) = (MATCHERS_MAX.to_string(), PATTERNS_MAX.to_string());
    check(&[&selector("a=\"b\"", MATCHERS_MAX - 1)], None);
    check(&[&selector("a=\"b\"", MATCHERS_MAX)], Some(&matchers));
    check(
        &[&selector("a=\"b\"", MATCHERS_MAX / 2), &selector("a=~\".+\"", MATCHERS_MAX / 2)],
        Some(&matchers),
    );
    check(&vec!["up{a=~\"a[bc]\"}"; PATTERNS_MAX], None);
    check(&vec!["up{a=~\"a[bc]\"}"; PATTERNS_MAX + 1], Some(&patterns));
    // each label_replace has a pattern
    let replaced = "label_replace(up, \"a\", \"b\", \"c\", \"d[ef]\")";
    check(&[&vec![replaced; PATTERNS_MAX].join(" or ")], None);
    check(&[&vec![replaced; PATTERNS_MAX].join(" or "), "up{a!~\"a[bc]\"}"], Some(&patterns));
    let join = |count: usize| format!("label_join(up, \"a\", \",\", {})", list("\"b\"", count));
    check(&[&join(NODES_MAX - 100)], None);
    check(&[&join(NODES_MAX)], Some("arguments"));
    check(&[&join(NODES_MAX / 2), &join(NODES_MAX / 2)], Some("arguments"));
    check(&[&format!("sum by ({}) (up)", list("b", NODES_MAX))], Some("arguments"));
}

#[test]
fn parsing_checks_the_interrupt_between_patterns() {
    let parse_until = |text: &str, set_after: u64| {
        let interrupt = Arc::new(After { asked: AtomicU64::new(0), set_after });
        let mut allowance = Allowance::new(64 << 20).until(Arc::clone(&interrupt) as _);
        (parse_within(text, &mut allowance).map(|_| ()), interrupt.asked.load(Ordering::Relaxed))
    };
    let text = vec!["up{a=~\"a[bc]\"}"; PATTERNS_MAX].join(" or ");
    assert_eq!(parse_until(&text, u64::MAX), (Ok(()), PATTERNS_MAX as u64));
    let (ended, asked) = parse_until(&text, 10);
    assert_eq!(ended, Err(QueryError::Canceled));
    assert!(asked <= 12, "{asked}");
    // without patterns to compile, the interrupt is not checked
    assert_eq!(parse_until("up{a=\"b\", c=~\"d.*\"}", 0), (Ok(()), 0));
}

#[test]
fn memory_of_trees_and_patterns_is_counted() {
    let spent = |text: &str| {
        let mut allowance = Allowance::new(64 << 20);
        parse_within(text, &mut allowance).unwrap();
        let spent = allowance.spent_bytes();
        // with less memory, the message names the setting
        let refused = parse_within(text, &mut Allowance::new(spent - 1)).unwrap_err().to_string();
        assert!(refused.contains("--memory"), "{refused}");
        spent
    };
    assert!(spent("up{a=~\"(a|b).*c[de]{50}\"}") > 10_000);
    assert!(
        spent(&format!("up{{a=~\"{}\"}}", (0..5_000).map(|i| i.to_string()).collect::<Vec<_>>().join("|")))
            > 5_000 * 24
    );
    assert!(spent(&vec!["1"; 100].join("+")) > 100 * size_of::<ast::Node>() as u64);
}

#[test]
fn labels_that_grow_are_refused_while_they_are_built() {
    let long = "x".repeat(2000);
    let refused = |text: &str| run(text).unwrap_err();
    for text in [
        format!("label_replace(requests_total, \"a\", \"{}\", \"\", \"\")", long.repeat(20)),
        format!("label_join(requests_total, \"a\", \"{long}\", {})", vec!["\"job\""; 100].join(",")),
    ] {
        let error = refused(&text);
        assert_eq!(error.kind(), QueryErrorKind::Execution);
        let message = error.to_string();
        assert!(message.contains("16384 bytes") && message.contains("\"a\""), "{message}");
    }
}

#[test]
fn memory_of_keys_and_patterns_and_state_is_counted() {
    let mut source = MemorySource::new();
    for i in 0..1000 {
        let labels = Labels::from_pairs(&[("__name__", &format!("m{i}")), ("i", &i.to_string())]);
        source.push(&labels, 0, 1.0);
    }
    let canceled = AtomicBool::new(false);
    let check = |text: &str, samples_max: u64, ok: bool| {
        let options = Options { samples_max, ..Options::new(&canceled) };
        let result = instant(&parse(text).unwrap(), 0, &source, &options);
        assert_eq!(result.err(), if ok { None } else { Some(QueryError::TooLarge) }, "{text}");
    };
    // `max_over_time` drops names, and then keeps a key for each series to detect duplicates
    check("count(last_over_time({i=~\".+\"}[5m]))", 300, true);
    check("count(max_over_time({i=~\".+\"}[5m]))", 300, false);
    check("count(max_over_time({i=~\".+\"}[5m]))", 6_000, true);
    // the memory of a compiled pattern counts
    check("label_replace(vector(1), \"a\", \"b\", \"c\", \"(d|e)*f\")", 2_000, false);
    check("label_replace(vector(1), \"a\", \"b\", \"c\", \"(d|e)*f\")", 100_000, true);
    // the state that a regression keeps for each sample counts, too
    check("max_over_time(vector(1)[1s:1ms])", 6_000, true);
    check("deriv(vector(1)[1s:1ms])", 6_000, false);
}

#[test]
fn memory_of_written_steps_of_group_matching_is_counted() {
    const SERIES: u64 = 50;
    const STEPS: u64 = 1000;
    let mut source = MemorySource::new();
    for i in 0..SERIES {
        source.push(&Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]), 0, 1.0);
    }
    let canceled = AtomicBool::new(false);
    // the smallest limit that is enough for an expression
    let least = |text: &str| {
        let expr = parse(text).unwrap();
        let (mut refused, mut enough) = (0, 1 << 20);
        while enough - refused > 1 {
            let samples_max = (refused + enough) / 2;
            let options = Options { samples_max, ..Options::new(&canceled) };
            match range(&expr, 0, STEPS as i64 - 1, 1, &source, &options) {
                Ok(_) => enough = samples_max,
                Err(error) => {
                    assert_eq!(error, QueryError::TooLarge);
                    refused = samples_max;
                }
            }
        }
        enough
    };
    let (plain, grouped) = (least("m * on(i) m"), least("m * on(i) group_left m"));
    let taken = SERIES * STEPS / crate::meter::VALUE_BYTES as u64;
    assert!(grouped >= plain + taken, "{grouped} and {plain}");
}
