//! Counters, gauges and histograms. They are in a registry that is passed in, so there are no
//! globals. Names follow `floodmark_<subsystem>_<noun>_<unit>[_total]`. [`Registry::render`] writes
//! Prometheus' text format, version 0.0.4.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn inc(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Bounds of buckets in seconds, for latencies from 100 µs to 30 s.
pub const LATENCY_BUCKETS_S: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
];

#[derive(Debug, Clone)]
pub struct Histogram(Arc<HistogramInner>);

#[derive(Debug)]
struct HistogramInner {
    bounds: &'static [f64],
    /// One counter for each upper bound, and one for values above all of them.
    counts: Vec<AtomicU64>,
    /// Sum of the observations in millionths. Only integers can be added atomically.
    sum_micros: AtomicU64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(HistogramInner { bounds, counts, sum_micros: AtomicU64::new(0) }))
    }

    pub fn observe(&self, value: f64) {
        let bucket = self.0.bounds.partition_point(|b| *b < value);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_micros.fetch_add((value.max(0.0) * 1e6) as u64, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }
}

#[derive(Debug, Default, Clone)]
pub struct Registry(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    name: &'static str,
    help: &'static str,
    labels: Vec<(String, String)>,
    metric: Metric,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    pub name: &'static str,
    pub help: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
}

/// Either the description of a metric, or one of its values. [`Registry::read`] passes the description first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found<'a> {
    Family(Family),
    Value(Reading<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading<'a> {
    pub name: &'static str,
    /// Suffix of a histogram's series, such as `_bucket`; otherwise empty.
    pub suffix: &'static str,
    pub labels: &'a [(String, String)],
    /// A label that is not fixed at registration, such as the `le` of a histogram's bucket.
    pub extra: Option<(&'a str, &'a str)>,
    pub value: f64,
}

/// Reads several gauges that differ in one label. Returns the label's value for each gauge, with the gauge's own value.
type ReadMany = Box<dyn Fn() -> Vec<(String, f64)> + Send + Sync>;

/// Reads several counters, each with its labels.
type ReadLabelled = Box<dyn Fn() -> Vec<(Vec<(String, String)>, f64)> + Send + Sync>;

enum Metric {
    Counter(Counter),
    Gauge(Gauge),
    CounterFn(Box<dyn Fn() -> f64 + Send + Sync>),
    GaugeFn(Box<dyn Fn() -> f64 + Send + Sync>),
    GaugesFn(&'static str, ReadMany),
    CountersFn(ReadLabelled),
    Histogram(Histogram),
}

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

impl Metric {
    fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) | Self::CounterFn(_) | Self::CountersFn(_) => "counter",
            Self::Gauge(_) | Self::GaugeFn(_) | Self::GaugesFn(..) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        self.counter_with(name, help, &[])
    }

    pub fn counter_with(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Counter {
        let counter = Counter::default();
        self.push(name, help, labels, Metric::Counter(counter.clone()));
        counter
    }

    /// A counter whose value is asked for by each [`Self::read`] of the registry.
    pub fn counter_fn(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.push(name, help, &[], Metric::CounterFn(Box::new(read)));
    }

    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        let gauge = Gauge::default();
        self.push(name, help, &[], Metric::Gauge(gauge.clone()));
        gauge
    }

    /// A gauge whose value is asked for by each [`Self::read`] of the registry.
    pub fn gauge_fn(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.push(name, help, labels, Metric::GaugeFn(Box::new(read)));
    }

    /// Gauges that differ in the value of one label. At each [`Self::read`] of the registry, `read`
    /// returns the label values and numbers. The caller has to limit how many there are.
    pub fn gauges_fn(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: impl Fn() -> Vec<(String, f64)> + Send + Sync + 'static,
    ) {
        self.push(name, help, &[], Metric::GaugesFn(label, Box::new(read)));
    }

    /// Counters that differ in their labels. At each [`Self::read`] of the registry, `read` returns the labels and
    /// numbers. The caller has to limit how many there are.
    pub fn counters_fn(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<(Vec<(String, String)>, f64)> + Send + Sync + 'static,
    ) {
        self.push(name, help, &[], Metric::CountersFn(Box::new(read)));
    }

    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        bounds: &'static [f64],
    ) -> Histogram {
        let histogram = Histogram::new(bounds);
        self.push(name, help, labels, Metric::Histogram(histogram.clone()));
        histogram
    }

    fn push(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)], metric: Metric) {
        let labels: Vec<_> = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut entries = self.0.lock().expect("BUG: a registry user panicked");
        let clash = entries.iter().any(|e| e.name == name && e.labels == labels);
        assert!(!clash, "BUG: metric {name} with labels {labels:?} is registered twice");
        entries.push(Entry { name, help, labels, metric });
    }

    /// Calls `each` with each family, followed by its values, in the order of registration. `each`
    /// must not use the registry, which is locked.
    pub fn read(&self, each: &mut dyn FnMut(Found<'_>)) {
        let entries = self.0.lock().expect("BUG: a registry user panicked");
        let mut done: Vec<&str> = Vec::new();
        for Entry { name, help, metric, .. } in entries.iter() {
            if done.contains(name) {
                continue;
            }
            done.push(name);
            each(Found::Family(Family { name, help, kind: metric.kind() }));
            for entry in entries.iter().filter(|e| e.name == *name) {
                entry.read(&mut |reading| each(Found::Value(reading)));
            }
        }
    }

    pub fn render(&self) -> String {
        self.render_if(|_| true)
    }

    /// Like [`Self::render`], with only the values for which `is_shown` returns true.
    pub fn render_if(&self, is_shown: impl Fn(&Reading<'_>) -> bool) -> String {
        let mut out = String::new();
        self.read(&mut |found| match found {
            Found::Family(Family { name, help, kind }) => {
                let _ = writeln!(out, "# HELP {name} {help}");
                let _ = writeln!(out, "# TYPE {name} {kind}");
            }
            Found::Value(reading) if is_shown(&reading) => reading.render(&mut out),
            Found::Value(_) => {}
        });
        out
    }
}

impl Entry {
    fn read(&self, each: &mut dyn FnMut(Reading<'_>)) {
        let mut value = |suffix: &'static str, extra: Option<(&str, &str)>, value: f64| {
            each(Reading { name: self.name, suffix, labels: &self.labels, extra, value });
        };
        match &self.metric {
            Metric::Counter(c) => value("", None, c.get() as f64),
            Metric::Gauge(g) => value("", None, g.get()),
            Metric::CounterFn(read) | Metric::GaugeFn(read) => value("", None, read()),
            Metric::GaugesFn(label, read) => {
                read().iter().for_each(|(text, n)| value("", Some((label, text)), *n));
            }
            Metric::CountersFn(read) => read().iter().for_each(|(labels, value)| {
                each(Reading { name: self.name, suffix: "", labels, extra: None, value: *value });
            }),
            Metric::Histogram(h) => {
                let mut cumulative = 0;
                for (i, count) in h.0.counts.iter().enumerate() {
                    cumulative += count.load(Ordering::Relaxed);
                    let bound = h.0.bounds.get(i).map_or("+Inf".to_string(), f64::to_string);
                    value("_bucket", Some(("le", &bound)), cumulative as f64);
                }
                value("_sum", None, h.0.sum_micros.load(Ordering::Relaxed) as f64 / 1e6);
                value("_count", None, cumulative as f64);
            }
        }
    }
}

impl Reading<'_> {
    fn render(&self, out: &mut String) {
        let Self { name, suffix, labels, extra, value } = self;
        out.push_str(name);
        out.push_str(suffix);
        let fixed = labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        for (i, (k, v)) in fixed.chain(*extra).enumerate() {
            let _ = write!(out, "{}{}", if i == 0 { "{" } else { "," }, label_text(k, v));
        }
        if !labels.is_empty() || extra.is_some() {
            out.push('}');
        }
        let _ = writeln!(out, " {value}");
    }
}

fn label_text(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_families_together() {
        let r = Registry::new();
        let a = r.counter_with("x_total", "Xs.", &[("reason", "a\"b")]);
        r.gauge("y", "Y.").set(1.5);
        r.counter_with("x_total", "Xs.", &[("reason", "c")]);
        a.add(3);
        let h = r.histogram("z_seconds", "Z.", &[("k", "v")], &[0.1, 1.0]);
        h.observe(0.1);
        h.observe(5.0);
        r.counter_fn("v_seconds_total", "V.", || 0.5);
        r.gauges_fn("w", "W.", "who", || vec![("a\"".into(), 1.0), ("b".into(), 2.0)]);
        let labels = |a: &str| vec![("a".to_owned(), a.to_owned()), ("b".to_owned(), "1".to_owned())];
        r.counters_fn("u_total", "U.", move || vec![(labels("x"), 3.0), (labels("y"), 4.0)]);
        assert_eq!(
            r.render(),
            "# HELP x_total Xs.\n# TYPE x_total counter\nx_total{reason=\"a\\\"b\"} 3\nx_total{reason=\"c\"} 0\n\
             # HELP y Y.\n# TYPE y gauge\ny 1.5\n\
             # HELP z_seconds Z.\n# TYPE z_seconds histogram\nz_seconds_bucket{k=\"v\",le=\"0.1\"} 1\n\
             z_seconds_bucket{k=\"v\",le=\"1\"} 1\nz_seconds_bucket{k=\"v\",le=\"+Inf\"} 2\n\
             z_seconds_sum{k=\"v\"} 5.1\nz_seconds_count{k=\"v\"} 2\n\
             # HELP v_seconds_total V.\n# TYPE v_seconds_total counter\nv_seconds_total 0.5\n\
             # HELP w W.\n# TYPE w gauge\nw{who=\"a\\\"\"} 1\nw{who=\"b\"} 2\n\
             # HELP u_total U.\n# TYPE u_total counter\nu_total{a=\"x\",b=\"1\"} 3\nu_total{a=\"y\",b=\"1\"} 4\n"
        );
        let some = r.render_if(|reading| reading.labels.iter().any(|(_, value)| value == "y"));
        let values: Vec<_> = some.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(values, ["u_total{a=\"y\",b=\"1\"} 4"]);
    }
}
