//! OpenTelemetry's protocol in JSON, over HTTP. Times and values are texts without a fixed length, so they are put between
//! the prepared pieces of a body.
//!
//! ```text
//!   {"resourceMetrics":[{"resource":{"attributes":[…]},"scopeMetrics":[{"metrics":[
//!     {"name":"metric_0","gauge":{"dataPoints":[{"attributes":[…],"timeUnixNano":"│1795284000000000000","asDouble":1.5│},
//! ```

use super::otlp::{NS_PER_MS, key_of};
use super::{Driver, LINES_OVER_HTTP, POINT_BYTES, Prepared, each_sample};
use crate::capture::replay::{Batch, Encoder};
use crate::generate::fleet::BOUND_LABEL;
use crate::generate::plan::Plan;
use crate::generate::protocol::Protocol;
use crate::generate::template::SlotTarget;
use model::labels::METRIC_NAME;
use std::io::Write;

pub(super) static DRIVER: Driver = Driver {
    protocol: Protocol::OtlpJson,
    name: "otlp-json",
    about: "OpenTelemetry's protocol in JSON over HTTP",
    number: 10,
    address: "http://127.0.0.1:9009/v1/metrics",
    content_type: "application/json",
    prepare: Some(|plan, targets, generation| Box::new(Points::of(plan, targets, generation))),
    encode: Some(encode),
    ..LINES_OVER_HTTP
};

#[derive(Debug)]
struct Points {
    bytes: Vec<u8>,
    /// Where in `bytes` the samples belong, in the order of the series.
    samples: Vec<u32>,
}

impl Points {
    fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Self {
        let fleet = &plan.fleet;
        let (mut json, mut samples) = (Json::default(), Vec::new());
        for part in targets {
            let labels = fleet.target_labels(part.target, part.generation);
            let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let (of_resource, others): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| key_of(name).is_some());
            json.resource(of_resource.iter().filter_map(|(name, value)| Some((key_of(name)?, *value))));
            let mut name_before = None;
            for metric in part.first_metric..part.first_metric + part.metrics {
                let name = fleet.metric_name(metric, metric_generation);
                let name = fleet.series_name(part.target, part.generation, &name);
                if name_before.as_ref() != Some(&name) {
                    json.gauge(&name);
                    name_before = Some(name);
                }
                let le = fleet.histograms.le(metric);
                let le = le.iter().map(|le| (BOUND_LABEL, le.as_str()));
                json.begin_point(others.iter().copied().chain(le));
                samples.push(json.body.len() as u32);
                json.end_point();
            }
        }
        Self { bytes: json.finish(), samples }
    }
}

impl Prepared for Points {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let (mut samples, mut from) = (self.samples.iter(), 0);
        each_sample(plan, targets, round, |timestamp_ms, value| {
            let at = *samples.next().expect("BUG: a sample has no place") as usize;
            body.extend_from_slice(&self.bytes[from..at]);
            put_sample(body, timestamp_ms as u64 * NS_PER_MS, value);
            from = at;
        });
        body.extend_from_slice(&self.bytes[from..]);
    }

    fn body_bytes_expected(&self, _: &[SlotTarget]) -> usize {
        self.bytes.len() + self.samples.len() * POINT_BYTES
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + size_of_val(self.samples.as_slice())
    }
}

fn encode(encoder: &mut Encoder, batch: &Batch) -> Vec<u8> {
    let mut json = Json::default();
    encoder.each(batch, |labels, samples| {
        json.resource(labels.iter().filter_map(|(name, value)| Some((key_of(name)?, value))));
        json.gauge(labels.get(METRIC_NAME).unwrap_or_default());
        for (timestamp_ms, bits) in samples {
            json.begin_point(
                labels.iter().filter(|(name, _)| *name != METRIC_NAME && key_of(name).is_none()),
            );
            let time_ns = (*timestamp_ms as u64).wrapping_mul(NS_PER_MS);
            put_sample(&mut json.body, time_ns, f64::from_bits(*bits));
            json.end_point();
        }
    });
    json.finish()
}

/// Writes a request. Points belong to the metric, and metrics to the resource, that were named last.
#[derive(Debug, Default)]
struct Json {
    body: Vec<u8>,
    has_resource: bool,
    has_metric: bool,
    has_point: bool,
}

impl Json {
    fn resource<'a>(&mut self, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.end_resource();
        self.put(if self.has_resource { "," } else { "{\"resourceMetrics\":[" });
        self.put("{\"resource\":{\"attributes\":[");
        self.attributes(attributes);
        self.put("]},\"scopeMetrics\":[{\"metrics\":[");
        self.has_resource = true;
    }

    fn gauge(&mut self, name: &str) {
        self.end_metric();
        self.put("{\"name\":");
        self.text(name);
        self.put(",\"gauge\":{\"dataPoints\":[");
        self.has_metric = true;
    }

    /// A sample follows.
    fn begin_point<'a>(&mut self, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.put(if self.has_point { ",{\"attributes\":[" } else { "{\"attributes\":[" });
        self.attributes(attributes);
        self.put("],\"timeUnixNano\":\"");
        self.has_point = true;
    }

    fn end_point(&mut self) {
        self.put("}");
    }

    fn finish(mut self) -> Vec<u8> {
        self.end_resource();
        self.put(if self.has_resource { "]}" } else { "{}" });
        self.body
    }

    /// Ends a metric, after which another one may follow.
    fn end_metric(&mut self) {
        if self.has_metric {
            self.put("]}},");
        }
        (self.has_metric, self.has_point) = (false, false);
    }

    fn end_resource(&mut self) {
        self.end_metric();
        if self.has_resource {
            if self.body.last() == Some(&b',') {
                self.body.pop();
            }
            self.put("]}]}");
        }
    }

    fn attributes<'a>(&mut self, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (number, (key, value)) in attributes.into_iter().enumerate() {
            self.put(if number > 0 { ",{\"key\":" } else { "{\"key\":" });
            self.text(key);
            self.put(",\"value\":{\"stringValue\":");
            self.text(value);
            self.put("}}");
        }
    }

    fn text(&mut self, text: &str) {
        serde_json::to_writer(&mut self.body, text).expect("BUG: writing to memory failed");
    }

    fn put(&mut self, text: &str) {
        self.body.extend_from_slice(text.as_bytes());
    }
}

/// Appends the time and the value of a point. Values that are no numbers in JSON are texts.
fn put_sample(out: &mut Vec<u8>, time_ns: u64, value: f64) {
    match value {
        _ if value.is_finite() => write!(out, "{time_ns}\",\"asDouble\":{value}"),
        f64::INFINITY => write!(out, "{time_ns}\",\"asDouble\":\"Infinity\""),
        f64::NEG_INFINITY => write!(out, "{time_ns}\",\"asDouble\":\"-Infinity\""),
        _ => write!(out, "{time_ns}\",\"asDouble\":\"NaN\""),
    }
    .expect("BUG: writing to memory failed");
}
