//! Translates messages as Prometheus' receiver does, in the simplest way: with maps of strings.

use super::json::base64;
use super::proto::*;
use model::Labels;
use protocol::otlp::{Delta, Naming, Promoted, Translation};
use std::collections::{BTreeMap, BTreeSet};

type LabelMap = BTreeMap<String, String>;

/// Time and value of a sample.
type Sample = (i64, u64);

/// Labels, time and value of an exemplar.
type FoundExemplar = (String, i64, u64);

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Translated {
    /// The samples of each series, in the order in which they were sent.
    pub series: BTreeMap<String, Vec<Sample>>,
    pub exemplars: BTreeMap<String, Vec<FoundExemplar>>,
    pub points: u64,
    pub refused: u64,
    pub refused_exemplars: u64,
    pub converted: u64,
    /// Start and end of the increments of each series, and whether the series is of a histogram.
    pub increments: BTreeMap<String, Vec<(u64, u64, bool)>>,
    /// Type, help and unit of each metric.
    pub metadata: BTreeMap<String, BTreeSet<(String, String, String)>>,
}

/// Names of metrics, with units: as they are with suffixes, then without, each for counters, gauges and others.
pub(crate) const METRICS: [(&str, &str, [&str; 3], [&str; 3]); 5] = [
    (
        "http.server.duration",
        "ms",
        [
            "http_server_duration_milliseconds_total",
            "http_server_duration_milliseconds",
            "http_server_duration_milliseconds",
        ],
        [
            "http.server.duration_milliseconds_total",
            "http.server.duration_milliseconds",
            "http.server.duration_milliseconds",
        ],
    ),
    (
        "requests",
        "{request}",
        ["requests_total", "requests", "requests"],
        ["requests_total", "requests", "requests"],
    ),
    (
        "use.total",
        "1",
        ["use_total", "use_total_ratio", "use_total"],
        ["use.total_total", "use.total_ratio", "use.total"],
    ),
    (
        "sent_bytes",
        "By/s",
        ["sent_bytes_per_second_total", "sent_bytes_per_second", "sent_bytes_per_second"],
        ["sent_bytes_bytes_per_second_total", "sent_bytes_bytes_per_second", "sent_bytes_bytes_per_second"],
    ),
    ("größe", "", ["gr_e_total", "gr_e", "gr_e"], ["größe_total", "größe", "größe"]),
];

fn escaped_metric(name: &str) -> &str {
    match name {
        "http.server.duration" => "http_server_duration",
        "use.total" => "use_total",
        "größe" => "gr_e",
        other => other,
    }
}

/// Keys of attributes, and the labels that they become.
pub(crate) const KEYS: [(&str, &str); 14] = [
    ("job", "job"),
    ("le", "le"),
    ("quantile", "quantile"),
    ("http.method", "http_method"),
    ("http_method", "http_method"),
    ("http/method", "http_method"),
    ("Zone", "Zone"),
    ("a", "a"),
    ("zz", "zz"),
    ("0x", "key_0x"),
    ("_private", "key_private"),
    ("__name__", "__name__"),
    ("größe", "gr__e"),
    ("k8s.pod.name", "k8s_pod_name"),
];

fn metric_name(metric: &Metric, naming: Naming) -> String {
    let kind = match &metric.data {
        Some(Data::Sum(sum)) if sum.is_monotonic => 0,
        Some(Data::Gauge(_)) => 1,
        _ => 2,
    };
    let (name, _, escaped, raw) = METRICS.iter().find(|(name, ..)| *name == metric.name).unwrap();
    match naming {
        Naming::EscapedWithSuffixes => escaped[kind].into(),
        Naming::Escaped => escaped_metric(name).into(),
        Naming::WithSuffixes => raw[kind].into(),
        Naming::Unchanged => (*name).into(),
    }
}

fn label_name(key: &str, naming: Naming) -> String {
    let fixed = ["service.name", "service.namespace", "service.instance.id", "instance"].into_iter();
    let known = KEYS.iter().find(|(known, _)| *known == key).map(|(_, label)| (*label).to_owned());
    let label =
        known.or_else(|| fixed.into_iter().find(|fixed| *fixed == key).map(|key| key.replace('.', "_")));
    match naming {
        Naming::EscapedWithSuffixes | Naming::Escaped => label.unwrap(),
        _ => key.into(),
    }
}

pub(crate) fn text_of(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        None => String::new(),
        Some(Value::Text(text)) => text.clone(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Int(n)) => n.to_string(),
        Some(Value::Double(n)) => n.to_string(), // the doubles of the tests have no exponent
        Some(Value::Bytes(bytes)) => base64(bytes),
        Some(Value::List(List { values })) => {
            let values: Vec<_> = values.iter().map(json_of).collect();
            format!("[{}]", values.join(","))
        }
        Some(Value::Map(Map { values })) => {
            // of entries with the same key, the last one counts
            let values: BTreeMap<_, _> =
                values.iter().map(|entry| (&entry.key, entry.value.as_ref())).collect();
            let null = AnyValue::default();
            let entry = |(key, value): (&&String, &Option<&AnyValue>)| {
                format!("\"{key}\":{}", json_of(value.unwrap_or(&null)))
            };
            format!("{{{}}}", values.iter().map(entry).collect::<Vec<_>>().join(","))
        }
    }
}

fn json_of(value: &AnyValue) -> String {
    match &value.value {
        None => "null".into(),
        Some(Value::Text(_) | Value::Bytes(_)) => format!("\"{}\"", text_of(Some(value))),
        _ => text_of(Some(value)),
    }
}

fn attributes_of(attributes: &[KeyValue]) -> Vec<(&str, String)> {
    attributes.iter().map(|KeyValue { key, value }| (key.as_str(), text_of(value.as_ref()))).collect()
}

struct Reference<'a> {
    translation: &'a Translation,
    out: Translated,
    /// Attributes of the resource and of the scope.
    resource: Vec<(&'a str, String)>,
    scope: Vec<(String, String)>,
    newest: u64,
    /// Set while the samples are increments.
    increment: Option<(u64, u64, bool)>,
    is_accumulated: bool,
    is_monotonic: bool,
}

pub(crate) fn translate(request: &Request, translation: &Translation) -> Translated {
    let (out, resource, scope) = Default::default();
    let (increment, is_accumulated, is_monotonic) = Default::default();
    let mut reference =
        Reference { translation, out, resource, scope, newest: 0, increment, is_accumulated, is_monotonic };
    for metrics in &request.resource_metrics {
        reference.newest = 0;
        let attributes = metrics.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        reference.resource = attributes_of(attributes);
        for scope in &metrics.scope_metrics {
            reference.set_scope(scope);
            scope.metrics.iter().for_each(|metric| reference.metric(metric));
        }
        reference.target_info();
    }
    reference.out
}

impl<'a> Reference<'a> {
    fn set_scope(&mut self, scope: &'a ScopeMetrics) {
        self.scope.clear();
        if !self.translation.has_scope_labels {
            return;
        }
        let Scope { name, version, attributes } = scope.scope.clone().unwrap_or_default();
        for (key, value) in attributes_of(&attributes) {
            // the prefix makes every name begin with a letter
            let label = label_name(key, self.translation.naming);
            let label = match (key, label.strip_prefix("key_")) {
                ("0x", Some(rest)) => rest.to_owned(),
                ("_private", Some(rest)) => format!("_{rest}"),
                _ => label,
            };
            self.scope.push((format!("otel_scope_{label}"), value));
        }
        for (label, value) in [("name", name), ("version", version), ("schema_url", scope.schema_url.clone())]
        {
            self.scope.push((format!("otel_scope_{label}"), value));
        }
    }

    fn get(&self, key: &str) -> Option<&String> {
        self.resource.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    /// The labels of a series, except for its name.
    fn labels(&self, attributes: &[(&str, String)], is_target: bool) -> LabelMap {
        let naming = self.translation.naming;
        let mut labels = LabelMap::new();
        let mut sorted = attributes.to_vec();
        sorted.sort_by_key(|(key, _)| *key);
        for (key, value) in sorted {
            let label = labels.entry(label_name(key, naming));
            label.and_modify(|joined| *joined = format!("{joined};{value}")).or_insert(value);
        }
        let mut promoted: Vec<_> = self
            .resource
            .iter()
            .filter(|(key, _)| match &self.translation.promoted {
                Promoted::All => true,
                Promoted::These(keys) => keys.iter().any(|promoted| **promoted == **key),
            })
            .collect();
        promoted.sort_by_key(|(key, _)| *key);
        for (key, value) in promoted.into_iter().filter(|_| !is_target) {
            labels.entry(label_name(key, naming)).or_insert_with(|| value.clone());
        }
        if !is_target {
            labels.extend(self.scope.iter().cloned());
        }
        if let Some(name) = self.get("service.name") {
            let job = match self.get("service.namespace") {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name.clone(),
            };
            labels.insert("job".into(), job);
        }
        if let Some(instance) = self.get("service.instance.id") {
            labels.insert("instance".into(), instance.clone());
        }
        labels
    }

    fn add(
        &mut self,
        labels: &LabelMap,
        name: &str,
        part: Option<(&str, String)>,
        time: u64,
        value: f64,
    ) -> String {
        let mut labels = labels.clone();
        labels.extend(part.map(|(label, value)| (label.to_owned(), value)));
        labels.insert("__name__".into(), name.into());
        let pairs: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let series = Labels::from_pairs(&pairs).to_string();
        let sample = ((time / 1_000_000) as i64, value.to_bits());
        self.out.series.entry(series.clone()).or_default().push(sample);
        if let Some(increment) = self.increment {
            self.out.increments.entry(series.clone()).or_default().push(increment);
        }
        series
    }

    fn metric(&mut self, metric: &'a Metric) {
        let (temporality, kind) = match &metric.data {
            None => return,
            Some(Data::Gauge(_)) => (2, "gauge"),
            Some(Data::Sum(sum)) => (sum.temporality, if sum.is_monotonic { "counter" } else { "gauge" }),
            Some(Data::Histogram(histogram)) => (histogram.temporality, "histogram"),
            Some(Data::Exponential(histogram)) => (histogram.temporality, "histogram"),
            Some(Data::Summary(_)) => (2, "summary"),
        };
        let is_stored = temporality == 2 || temporality == 1 && self.translation.delta != Delta::Refused;
        self.is_accumulated = temporality == 1 && self.translation.delta == Delta::Accumulated;
        self.is_monotonic = kind == "counter";
        let name = metric_name(metric, self.translation.naming);
        if is_stored {
            let kind = if temporality == 1 && !self.is_accumulated { "unknown" } else { kind };
            let metadata = (kind.to_owned(), metric.description.clone(), metric.unit.clone());
            self.out.metadata.entry(name.clone()).or_default().insert(metadata);
        }
        match metric.data.as_ref().unwrap() {
            Data::Gauge(Gauge { points }) | Data::Sum(Sum { points, .. }) => {
                points.iter().for_each(|point| self.number(&name, point, is_stored));
            }
            Data::Histogram(histogram) => {
                histogram.points.iter().for_each(|point| self.histogram(&name, point, is_stored));
            }
            Data::Summary(summary) => summary.points.iter().for_each(|point| self.summary(&name, point)),
            Data::Exponential(_) => panic!("BUG: the reference has no exponential histograms"),
        }
        self.increment = None;
    }

    fn takes(&mut self, time: u64, is_stored: bool) -> bool {
        self.out.points += 1;
        self.newest = self.newest.max(time);
        let is_taken = is_stored && time > 0;
        self.out.refused += u64::from(!is_taken);
        is_taken
    }

    fn number(&mut self, name: &str, point: &NumberPoint, is_stored: bool) {
        let is_stale = point.flags & 1 != 0;
        let value = match point.value {
            Some(Number::Double(n)) => Some(n),
            Some(Number::Int(n)) => Some(n as f64),
            None => is_stale.then_some(0.0),
        };
        let is_increment = self.is_accumulated && !is_stale;
        let can_be_added = |value: f64| value.is_finite() && !(self.is_monotonic && value < 0.0);
        let is_stored = is_stored && value.is_some_and(|value| !is_increment || can_be_added(value));
        if self.takes(point.time, is_stored) {
            self.increment = is_increment.then_some((point.start, point.time, false));
            let labels = self.labels(&attributes_of(&point.attributes), false);
            let series = self.add(&labels, name, None, point.time, stale_or(is_stale, value.unwrap()));
            self.exemplars(&point.exemplars, |_| Some(series.clone()));
        }
    }

    fn histogram(&mut self, name: &str, point: &HistogramPoint, is_stored: bool) {
        if !self.takes(point.time, is_stored) {
            return;
        }
        let labels = self.labels(&attributes_of(&point.attributes), false);
        let is_increment = self.is_accumulated && point.flags & 1 == 0;
        self.increment = is_increment.then_some((point.start, point.time, true));
        let value = |n| stale_or(point.flags & 1 != 0, n);
        if let Some(sum) = point.sum {
            self.add(&labels, &format!("{name}_sum"), None, point.time, value(sum));
        }
        self.add(&labels, &format!("{name}_count"), None, point.time, value(point.count as f64));
        let (mut below, mut buckets) = (0, Vec::new());
        let bucket = format!("{name}_bucket");
        for (bound, count) in point.bounds.iter().zip(&point.counts) {
            below += count;
            let le = Some(("le", bound.to_string()));
            buckets.push((*bound, self.add(&labels, &bucket, le, point.time, value(below as f64))));
        }
        let le = Some(("le", "+Inf".to_owned()));
        buckets.push((f64::INFINITY, self.add(&labels, &bucket, le, point.time, value(point.count as f64))));
        let of = |n| buckets.iter().find(|(bound, _)| n <= *bound).map(|(_, series)| series.clone());
        self.exemplars(&point.exemplars, of);
    }

    fn summary(&mut self, name: &str, point: &SummaryPoint) {
        if !self.takes(point.time, true) {
            return;
        }
        let labels = self.labels(&attributes_of(&point.attributes), false);
        let value = |n| stale_or(point.flags & 1 != 0, n);
        self.add(&labels, &format!("{name}_sum"), None, point.time, value(point.sum));
        self.add(&labels, &format!("{name}_count"), None, point.time, value(point.count as f64));
        for quantile in &point.quantiles {
            let part = Some(("quantile", quantile.quantile.to_string()));
            self.add(&labels, name, part, point.time, value(quantile.value));
        }
    }

    fn exemplars(&mut self, exemplars: &[Exemplar], series_of: impl Fn(f64) -> Option<String>) {
        for exemplar in exemplars {
            let value = match exemplar.value {
                Some(ExemplarNumber::Double(n)) => n,
                Some(ExemplarNumber::Int(n)) => n as f64,
                None => f64::NAN,
            };
            let Some(series) = series_of(value).filter(|_| exemplar.value.is_some()) else {
                self.out.refused_exemplars += 1;
                continue;
            };
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let mut labels: Vec<(&str, String)> = Vec::new();
            for (label, id) in [("trace_id", &exemplar.trace_id), ("span_id", &exemplar.span_id)] {
                if !id.is_empty() {
                    labels.push((label, hex(id)));
                }
            }
            let attributes = attributes_of(&exemplar.attributes);
            let all = || labels.iter().chain(&attributes);
            let chars: usize = all().map(|(key, value)| key.chars().count() + value.chars().count()).sum();
            if chars <= 128 {
                labels.extend(attributes);
            }
            let pairs: Vec<_> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let labels = Labels::from_pairs(&pairs).to_string();
            let found = (labels, (exemplar.time / 1_000_000) as i64, value.to_bits());
            self.out.exemplars.entry(series).or_default().push(found);
        }
    }

    fn target_info(&mut self) {
        const IDENTIFYING: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];
        let identifying = IDENTIFYING.iter().filter(|key| self.get(key).is_some()).count();
        if !self.translation.has_target_info || self.newest == 0 || self.resource.len() == identifying {
            return;
        }
        let mut attributes = self.resource.clone();
        if !self.translation.keeps_identifying {
            attributes.retain(|(key, _)| !IDENTIFYING.contains(key));
        }
        let labels = self.labels(&attributes, true);
        let is_identified =
            ["job", "instance"].iter().any(|label| labels.get(*label).is_some_and(|v| !v.is_empty()));
        if is_identified {
            self.add(&labels, "target_info", None, self.newest, 1.0);
        }
    }
}

fn stale_or(is_stale: bool, value: f64) -> f64 {
    if is_stale { f64::from_bits(model::STALE_NAN_BITS) } else { value }
}
