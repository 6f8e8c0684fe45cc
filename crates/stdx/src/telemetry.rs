//! Counters, gauges and histograms in a registry that is passed in.
//!
//! A component declares one struct of metrics next to the code it counts and registers it once; there
//! are no globals, so ten nodes can live in one test. Names follow
//! `floodmark_<subsystem>_<noun>_<unit>[_total]`. [`Registry::render`] writes the Prometheus text
//! exposition format, version 0.0.4.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A number that only grows.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// The value set last.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Upper bounds in seconds for latencies from 100 µs to 30 s.
pub const LATENCY_BUCKETS_S: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
];

/// A distribution over fixed buckets.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<HistogramInner>);

#[derive(Debug)]
struct HistogramInner {
    bounds: &'static [f64],
    /// One for each bound, and one for everything above the last.
    counts: Vec<AtomicU64>,
    /// Sum in millionths, so that it can be added to atomically.
    sum_micros: AtomicU64,
}

impl Histogram {
    /// An empty histogram whose buckets end at `bounds` (ascending).
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(HistogramInner { bounds, counts, sum_micros: AtomicU64::new(0) }))
    }

    /// Counts one observation.
    pub fn observe(&self, value: f64) {
        let bucket = self.0.bounds.partition_point(|b| *b < value);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_micros.fetch_add((value.max(0.0) * 1e6) as u64, Ordering::Relaxed);
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }
}

/// Every metric of a process (or of one node in a test).
#[derive(Debug, Default, Clone)]
pub struct Registry(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    name: &'static str,
    help: &'static str,
    /// Rendered, without braces: `reason="full"`.
    labels: String,
    metric: Metric,
}

/// Reads the values of a label, and the gauge's value for each.
type ReadMany = Box<dyn Fn() -> Vec<(String, f64)> + Send + Sync>;

enum Metric {
    Counter(Counter),
    Gauge(Gauge),
    CounterFn(Box<dyn Fn() -> f64 + Send + Sync>),
    GaugeFn(Box<dyn Fn() -> f64 + Send + Sync>),
    GaugesFn(&'static str, ReadMany),
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
            Self::Counter(_) | Self::CounterFn(_) => "counter",
            Self::Gauge(_) | Self::GaugeFn(_) | Self::GaugesFn(..) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter without labels.
    pub fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        self.counter_with(name, help, &[])
    }

    /// A counter with fixed labels.
    pub fn counter_with(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Counter {
        let counter = Counter::default();
        self.push(name, help, labels, Metric::Counter(counter.clone()));
        counter
    }

    /// A counter kept elsewhere; `read` is called at each [`Self::render`].
    pub fn counter_fn(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.push(name, help, &[], Metric::CounterFn(Box::new(read)));
    }

    /// A gauge without labels.
    pub fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        let gauge = Gauge::default();
        self.push(name, help, &[], Metric::Gauge(gauge.clone()));
        gauge
    }

    /// A gauge whose value `read` supplies at each [`Self::render`].
    pub fn gauge_fn(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.push(name, help, labels, Metric::GaugeFn(Box::new(read)));
    }

    /// Gauges that differ in one label, whose values come and go. `read` supplies them at each
    /// [`Self::render`]; the caller bounds their number.
    pub fn gauges_fn(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: impl Fn() -> Vec<(String, f64)> + Send + Sync + 'static,
    ) {
        self.push(name, help, &[], Metric::GaugesFn(label, Box::new(read)));
    }

    /// A histogram with fixed labels.
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
        let mut rendered = String::new();
        for (k, v) in labels {
            let comma = if rendered.is_empty() { "" } else { "," };
            let _ = write!(rendered, "{comma}{}", label_text(k, v));
        }
        let mut entries = self.0.lock().expect("BUG: a registry user panicked");
        let clash = entries.iter().any(|e| e.name == name && e.labels == rendered);
        assert!(!clash, "BUG: metric {name}{{{rendered}}} is registered twice");
        entries.push(Entry { name, help, labels: rendered, metric });
    }

    /// All metrics as Prometheus text, families together, in order of first registration.
    pub fn render(&self) -> String {
        let entries = self.0.lock().expect("BUG: a registry user panicked");
        let mut out = String::new();
        let mut done: Vec<&str> = Vec::new();
        for family in entries.iter() {
            if done.contains(&family.name) {
                continue;
            }
            done.push(family.name);
            let _ = writeln!(out, "# HELP {} {}", family.name, family.help);
            let _ = writeln!(out, "# TYPE {} {}", family.name, family.metric.kind());
            for entry in entries.iter().filter(|e| e.name == family.name) {
                entry.render(&mut out);
            }
        }
        out
    }
}

impl Entry {
    fn render(&self, out: &mut String) {
        match &self.metric {
            Metric::Counter(c) => self.line(out, "", "", c.get() as f64),
            Metric::Gauge(g) => self.line(out, "", "", g.get()),
            Metric::CounterFn(read) | Metric::GaugeFn(read) => self.line(out, "", "", read()),
            Metric::GaugesFn(label, read) => {
                read().iter().for_each(|(value, n)| self.line(out, "", &label_text(label, value), *n));
            }
            Metric::Histogram(h) => {
                let mut cumulative = 0;
                for (i, count) in h.0.counts.iter().enumerate() {
                    cumulative += count.load(Ordering::Relaxed);
                    let bound = h.0.bounds.get(i).map_or("+Inf".to_string(), f64::to_string);
                    self.line(out, "_bucket", &format!("le=\"{bound}\""), cumulative as f64);
                }
                self.line(out, "_sum", "", h.0.sum_micros.load(Ordering::Relaxed) as f64 / 1e6);
                self.line(out, "_count", "", cumulative as f64);
            }
        }
    }

    fn line(&self, out: &mut String, suffix: &str, extra: &str, value: f64) {
        let comma = if self.labels.is_empty() || extra.is_empty() { "" } else { "," };
        let labels = format!("{}{comma}{extra}", self.labels);
        let _ = match labels.is_empty() {
            true => writeln!(out, "{}{suffix} {value}", self.name),
            false => writeln!(out, "{}{suffix}{{{labels}}} {value}", self.name),
        };
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
        assert_eq!(
            r.render(),
            "# HELP x_total Xs.\n# TYPE x_total counter\nx_total{reason=\"a\\\"b\"} 3\nx_total{reason=\"c\"} 0\n\
             # HELP y Y.\n# TYPE y gauge\ny 1.5\n\
             # HELP z_seconds Z.\n# TYPE z_seconds histogram\nz_seconds_bucket{k=\"v\",le=\"0.1\"} 1\n\
             z_seconds_bucket{k=\"v\",le=\"1\"} 1\nz_seconds_bucket{k=\"v\",le=\"+Inf\"} 2\n\
             z_seconds_sum{k=\"v\"} 5.1\nz_seconds_count{k=\"v\"} 2\n\
             # HELP v_seconds_total V.\n# TYPE v_seconds_total counter\nv_seconds_total 0.5\n\
             # HELP w W.\n# TYPE w gauge\nw{who=\"a\\\"\"} 1\nw{who=\"b\"} 2\n"
        );
    }
}
