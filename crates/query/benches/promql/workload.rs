//! The queries of the load tool, and the data that they run over.

use model::{Labels, Samples, SeriesSamples, TimeRange};
use query::memory_source::MemorySource;
use query::{Options, Select, SeriesSource, Value};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) metrics: usize,
    pub(crate) series: usize,
    /// Number of samples of each series, which are 15 s apart.
    pub(crate) samples: usize,
    /// Number of steps of each range query, which are a minute apart.
    pub(crate) steps: i64,
}

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) expr: &'static str,
    instant: bool,
    selects: &'static str,
    range_ms: i64,
}

const fn case(name: &'static str, expr: &'static str, selects: &'static str, range_ms: i64) -> Case {
    Case { name, expr, instant: false, selects, range_ms }
}

const MINUTES: i64 = 60_000;
const LOOKBACK: i64 = 5 * MINUTES;

pub(crate) const CASES: [Case; 18] = [
    case("sum_rate", "sum(rate(metric_0[5m]))", "metric_0", 5 * MINUTES),
    case(
        "last_by_ns",
        r#"sum by (namespace)(last_over_time({__name__=~"metric_1.*"}[5m]))"#,
        r#"{__name__=~"metric_1.*"}"#,
        5 * MINUTES,
    ),
    case("topk", "topk(10, metric_5)", "metric_5", LOOKBACK),
    case("quantile", "quantile(0.99, metric_3)", "metric_3", LOOKBACK),
    case("avg_30m", "avg_over_time(metric_2[30m])", "metric_2", 30 * MINUTES),
    case("count_job", r#"count({job="checkout-api"})"#, r#"{job="checkout-api"}"#, LOOKBACK),
    Case {
        name: "count_all",
        expr: r#"count({job=~".+"})"#,
        instant: true,
        selects: r#"{job=~".+"}"#,
        range_ms: LOOKBACK,
    },
    Case {
        name: "instant_rate",
        expr: "sum by (job)(rate(metric_0[5m]))",
        instant: true,
        selects: "metric_0",
        range_ms: 5 * MINUTES,
    },
    case(
        "sum_rate_all",
        r#"sum(rate({__name__=~"metric_1.*"}[5m]))"#,
        r#"{__name__=~"metric_1.*"}"#,
        5 * MINUTES,
    ),
    case("sum", "sum(metric_0)", "metric_0", LOOKBACK),
    case("select", "metric_0", "metric_0", LOOKBACK),
    case("sum_30m", "sum_over_time(metric_2[30m])", "metric_2", 30 * MINUTES),
    case("max_30m", "max_over_time(metric_2[30m])", "metric_2", 30 * MINUTES),
    case("stddev_30m", "stddev_over_time(metric_2[30m])", "metric_2", 30 * MINUTES),
    case("quantile_30m", "quantile_over_time(0.9, metric_2[30m])", "metric_2", 30 * MINUTES),
    case("deriv_30m", "deriv(metric_2[30m])", "metric_2", 30 * MINUTES),
    case("divide", "rate(metric_0[5m]) / ignoring(x) rate(metric_0[5m])", "metric_0", 5 * MINUTES),
    case("group_left", "metric_0 * on() group_left() sum(metric_1)", "metric_0", LOOKBACK),
];

#[derive(Debug)]
pub(crate) struct Workload {
    size: Size,
    source: MemorySource,
}

#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) total: Duration,
    pub(crate) source: Duration,
    pub(crate) rows: usize,
}

impl Workload {
    /// Fills a source with counters that reset now and then.
    pub(crate) fn new(size: Size) -> Self {
        let mut source = MemorySource::new();
        let mut state = 1u64;
        for metric in 0..size.metrics {
            for series in 0..size.series {
                let mut samples = Samples::default();
                let mut value = 0.0;
                for i in 0..size.samples {
                    state = stdx::rng::mix(state);
                    value = if state.is_multiple_of(997) { 0.0 } else { value + (state % 100) as f64 };
                    samples.push(i as i64 * 15_000, value);
                }
                source.add(labels(metric, series), samples);
            }
        }
        Self { size, source }
    }

    pub(crate) fn series(&self) -> usize {
        self.source.len()
    }

    fn end_ms(&self) -> i64 {
        (self.size.samples as i64 - 1) * 15_000
    }

    fn start_ms(&self, case: &Case) -> i64 {
        if case.instant { self.end_ms() } else { self.end_ms() - (self.size.steps - 1) * MINUTES }
    }

    pub(crate) fn run(&self, case: &Case) -> usize {
        let canceled = AtomicBool::new(false);
        let options = Options::new(&canceled);
        let expr = query::parse(case.expr).expect("parse a query of the benchmark");
        let answer = if case.instant {
            query::instant(&expr, self.end_ms(), &self.source, &options)
        } else {
            let (start_ms, end_ms) = (self.start_ms(case), self.end_ms());
            query::range(&expr, start_ms, end_ms, MINUTES, &self.source, &options)
        };
        match answer.expect("evaluate a query of the benchmark").value {
            Value::Vector(rows) => rows.len(),
            Value::Matrix(rows) => rows.len(),
            other => panic!("a scalar or a string: {other:?}"),
        }
    }

    /// Reads the samples that a case selects. Returns their number.
    fn drain(&self, case: &Case) -> usize {
        let matchers = query::parse_selector(case.selects).expect("parse a selector of the benchmark");
        let range = TimeRange::new(self.start_ms(case) - case.range_ms + 1, self.end_ms());
        let mut set = self.source.select(&Select { matchers: &matchers, range }).expect("select");
        let (mut samples, mut count) = (SeriesSamples::default(), 0);
        while set.next(&mut samples).expect("read") {
            count += samples.len();
        }
        count
    }

    pub(crate) fn measure(&self, case: &Case, runs: usize) -> Measured {
        let best = |run: &dyn Fn() -> usize| {
            let times = (0..runs).map(|_| {
                let start = Instant::now();
                std::hint::black_box(run());
                start.elapsed()
            });
            times.min().expect("at least one run")
        };
        Measured { total: best(&|| self.run(case)), source: best(&|| self.drain(case)), rows: self.run(case) }
    }
}

fn labels(metric: usize, series: usize) -> Labels {
    let job = ["checkout-api", "cart", "search", "payments", "frontend"][series % 5];
    Labels::from_pairs(&[
        ("__name__", &format!("metric_{metric}")),
        ("cluster", "eu-west-1"),
        ("container", "main"),
        ("endpoint", "http-metrics"),
        ("env", "production"),
        ("instance", &format!("10.0.{}.{}:8080", metric, series)),
        ("job", job),
        ("namespace", &format!("team-{}", series % 10)),
        ("pod", &format!("{job}-7d9f8b6c5-{series:05}")),
        ("region", "eu"),
        ("service", job),
    ])
}
