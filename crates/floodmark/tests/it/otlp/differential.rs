//! Sends the same random requests to Floodmark and to a real Prometheus, and compares all series.

use super::{attribute, nanos, post};
use crate::harness::read::{Matrix, data, matrix, seconds};
use crate::harness::{Options, Request, Server, now_ms};
use crate::real_prometheus::servers::Prometheus;
use serde_json::{Value, json};
use stdx::rng::Rng;

const NAMES: [(&str, &str); 10] = [
    ("http.server.duration", "ms"),
    ("requests", "{request}"),
    ("2xx.total", ""),
    ("use", "1"),
    ("io", "By/s"),
    ("io.bytes", "By"),
    ("temperature", "Cel"),
    ("odd unit", "a b/c d"),
    ("größe__x", "%"),
    ("already_total", "1"),
];

const KEYS: [&str; 12] =
    ["http.method", "http_method", "code", "le", "job", "Zone", "0x", "_x", "größe", "a", "quantile", "z.z"];

fn pick<'a, T: ?Sized>(rng: &mut Rng, from: &[&'a T]) -> &'a T {
    from[rng.below(from.len() as u64) as usize]
}

fn value(rng: &mut Rng) -> Value {
    let list = json!({"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "<é\"\n>"}, {"boolValue": true}, {}]}});
    let map = json!({"kvlistValue": {"values": [attribute("b", "1"), {"key": "a", "value": {"doubleValue": 1e21}}]}});
    match rng.below(10) {
        0 => json!({"intValue": rng.below(5).to_string()}),
        1 => json!({"boolValue": rng.below(2) == 0}),
        2 => json!({"doubleValue": ([0.5, 1e21, 1e-7, 123456789.0][rng.below(4) as usize])}),
        3 => json!({"bytesValue": "aGVsbG8="}),
        4 => list,
        5 => map,
        6 => json!({"stringValue": ""}),
        _ => json!({"stringValue": pick(rng, &["GET", "POST", "é", "a;b", "x"])}),
    }
}

/// The keys of a point differ, because Prometheus joins the values of equal keys in any order.
/// The keys in `except` are left out: Prometheus 3.5 panics if a series has a label twice.
fn attributes(rng: &mut Rng, most: u64, except: &[&str]) -> Vec<Value> {
    let mut keys = KEYS.to_vec();
    keys.retain(|key| !except.contains(key));
    let count = rng.below(most + 1);
    let taken =
        (0..count).map(|_| keys.swap_remove(rng.below(keys.len() as u64) as usize)).collect::<Vec<_>>();
    taken.into_iter().map(|key| json!({"key": key, "value": value(rng)})).collect()
}

struct Generator {
    rng: Rng,
    /// The time of the next point. Each point is later than the one before, as Prometheus requires.
    now_ms: i64,
}

impl Generator {
    fn time(&mut self) -> String {
        self.now_ms += 1;
        nanos(self.now_ms)
    }

    fn flags(&mut self) -> u32 {
        u32::from(self.rng.below(10) == 0)
    }

    fn number(&mut self) -> Value {
        let attributes = attributes(&mut self.rng, 4, &[]);
        let mut point = json!({"attributes": attributes, "timeUnixNano": self.time(), "flags": self.flags()});
        match self.rng.below(2) {
            0 => point["asInt"] = json!((self.rng.next_u64() as i64 >> self.rng.below(64)).to_string()),
            _ => point["asDouble"] = json!(self.rng.below(1000) as f64 / 8.0 - 50.0),
        }
        point
    }

    fn histogram(&mut self) -> Value {
        let bounds: &[f64] =
            [&[][..], &[0.005, 0.5, 10.0], &[1.0], &[-1.5, 0.0, 1e21]][self.rng.below(4) as usize];
        let counts: Vec<_> = (0..=bounds.len()).map(|_| self.rng.below(9).to_string()).collect();
        let attributes = attributes(&mut self.rng, 4, &["le"]);
        let mut point = json!({
            "attributes": attributes, "timeUnixNano": self.time(), "flags": self.flags(),
            "count": self.rng.below(50).to_string(), "explicitBounds": bounds, "bucketCounts": counts,
        });
        if self.rng.below(3) > 0 {
            point["sum"] = json!(12.5);
        }
        point
    }

    fn summary(&mut self) -> Value {
        let quantiles =
            (0..self.rng.below(3)).map(|n| json!({"quantile": n as f64 / 2.0 + 0.25, "value": n}));
        let quantiles: Vec<_> = quantiles.collect();
        let attributes = attributes(&mut self.rng, 4, &["quantile"]);
        json!({
            "attributes": attributes, "timeUnixNano": self.time(), "flags": self.flags(),
            "count": "7", "sum": 3.5, "quantileValues": quantiles,
        })
    }

    fn metric(&mut self) -> Value {
        let (name, unit) = NAMES[self.rng.below(NAMES.len() as u64) as usize];
        let count = 1 + self.rng.below(3);
        let temporality = if self.rng.below(5) == 0 { 1 } else { 2 };
        let (key, data) = match self.rng.below(4) {
            0 => ("gauge", json!({"dataPoints": (0..count).map(|_| self.number()).collect::<Vec<_>>()})),
            1 => {
                let points: Vec<_> = (0..count).map(|_| self.histogram()).collect();
                ("histogram", json!({"dataPoints": points, "aggregationTemporality": temporality}))
            }
            2 => ("summary", json!({"dataPoints": (0..count).map(|_| self.summary()).collect::<Vec<_>>()})),
            _ => {
                let points: Vec<_> = (0..count).map(|_| self.number()).collect();
                let is_monotonic = self.rng.below(2) == 0;
                (
                    "sum",
                    json!({
                        "dataPoints": points, "aggregationTemporality": temporality, "isMonotonic": is_monotonic,
                    }),
                )
            }
        };
        json!({"name": name, "unit": unit, "description": "Help.", key: data})
    }

    fn request(&mut self) -> Value {
        let resources = (0..1 + self.rng.below(2)).map(|_| {
            let rng = &mut self.rng;
            let mut resource = attributes(rng, 3, &["le", "quantile"]);
            for (key, values) in [
                ("service.name", ["shop", "billing"]),
                ("service.namespace", ["eu", "us"]),
                ("service.instance.id", ["i1", "i2"]),
            ] {
                if rng.below(3) > 0 {
                    resource.push(attribute(key, pick(rng, &values)));
                }
            }
            let metrics: Vec<_> = (0..1 + self.rng.below(4)).map(|_| self.metric()).collect();
            json!({"resource": {"attributes": resource}, "scopeMetrics": [{"metrics": metrics}]})
        });
        json!({"resourceMetrics": resources.collect::<Vec<_>>()})
    }
}

fn all_samples(send: impl Fn(&Request) -> crate::harness::Reply, at_ms: i64) -> Matrix {
    let query = [("query", r#"{__name__!=""}[10m]"#), ("time", &*seconds(at_ms))];
    let mut all = matrix(&data(&send(&Request::form("/api/v1/query", &query))));
    // what Prometheus scrapes from itself, if anything
    all.retain(|series, _| !series.contains(r#""__name__":"up""#));
    all
}

#[test]
fn a_real_prometheus_makes_the_same_series() {
    // settings of Floodmark, and the same ones of Prometheus
    let variants = [
        ("", "{}"),
        (
            "otlp_translation = \"NoTranslation\"\notlp_promote = [\"http.method\", \"service.name\", \"a\"]\notlp_keep_identifying = true\n",
            "{ translation_strategy: NoTranslation, promote_resource_attributes: [http.method, service.name, a], \
             keep_identifying_resource_attributes: true }",
        ),
        (
            "otlp_translation = \"NoUTF8EscapingWithSuffixes\"\notlp_promote = [\"*\"]\n",
            "{ translation_strategy: NoUTF8EscapingWithSuffixes, promote_all_resource_attributes: true }",
        ),
        ("otlp_promote = [\"*\"]\n", "{ promote_all_resource_attributes: true }"),
    ];
    for (number, (ours, theirs)) in variants.into_iter().enumerate() {
        let Some(prometheus) = Prometheus::find() else { return };
        let prometheus = prometheus.start_with_otlp(theirs);
        // Prometheus 3.5 leaves out deltas
        let ours = format!("otlp_delta = \"refuse\"\n{ours}");
        let server = Server::start(Options::default().config(&ours));
        let mut generator = Generator { rng: Rng::announced(), now_ms: now_ms() - 200_000 };
        for _ in 0..40 {
            let body = generator.request();
            let reply = server.send(&post(&body));
            assert_eq!(reply.status, 200, "{} {body}", reply.text());
            let reply = prometheus.send(&post(&body).path("/api/v1/otlp/v1/metrics"));
            assert!(reply.status == 200, "{} {} {body}", reply.status, reply.text());
        }
        let at_ms = generator.now_ms + 1;
        let ours = all_samples(|request| server.send(request), at_ms);
        let mut theirs = all_samples(|request| prometheus.send(request), at_ms);
        // Prometheus keeps `target_info` of what nothing identifies if an attribute `job` has no value
        let is_identified = |series: &str| [r#""job":"#, r#""instance":"#].iter().any(|l| series.contains(l));
        theirs.retain(|series, _| !series.contains(r#""target_info""#) || is_identified(series));
        assert!(ours.len() > 100, "{} series", ours.len());
        for (series, samples) in &theirs {
            assert_eq!(ours.get(series), Some(samples), "{series}, variant {number}");
        }
        let more: Vec<_> = ours.keys().filter(|series| !theirs.contains_key(*series)).collect();
        assert!(more.is_empty(), "only Floodmark has {more:#?}, variant {number}");
    }
}
