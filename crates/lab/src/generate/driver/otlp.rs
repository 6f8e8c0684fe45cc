//! OpenTelemetry's protocol in protobuf, over HTTP and over gRPC. Time and value of a point have fixed places and lengths, so
//! a body is built once and then updated in place.

use super::{Driver, LINES_OVER_HTTP, Prepared, Transport};
use crate::capture::replay::{Batch, Encoder};
use crate::generate::fleet::BOUND_LABEL;
use crate::generate::plan::Plan;
use crate::generate::protocol::Protocol;
use crate::generate::template::{Fields, SlotTarget};
use anyhow::{Result, ensure};
use model::labels::METRIC_NAME;
use protocol::encode::OtlpEncoder;
use std::ops::Range;

pub(super) static HTTP: Driver = Driver {
    protocol: Protocol::Otlp,
    name: "otlp",
    about: "OpenTelemetry's protocol over HTTP",
    number: 8,
    address: "http://127.0.0.1:9009/v1/metrics",
    content_type: "application/x-protobuf",
    prepare: Some(|plan, targets, generation| Box::new(Points::of(plan, targets, generation))),
    encode: Some(encode),
    ..LINES_OVER_HTTP
};

pub(super) static GRPC: Driver = Driver {
    protocol: Protocol::OtlpGrpc,
    name: "otlp-grpc",
    about: "OpenTelemetry's protocol over gRPC",
    number: 9,
    transport: Transport::Grpc,
    address: "http://127.0.0.1:4317",
    content_type: "application/grpc",
    prepare: Some(|plan, targets, generation| Box::new(Points::of(plan, targets, generation))),
    encode: Some(encode),
    ..LINES_OVER_HTTP
};

/// The labels that are attributes of a resource, with their keys. All others are attributes of points.
const RESOURCE: [(&str, &str); 2] = [("job", "service.name"), ("instance", "service.instance.id")];

pub(super) const NS_PER_MS: u64 = 1_000_000;

/// Bytes of a time, and of a value.
const FIXED_BYTES: usize = 8;

/// The value comes this far behind the time: the time's bytes, and a tag.
const VALUE_BEHIND: usize = FIXED_BYTES + 1;

#[derive(Debug)]
struct Points {
    bytes: Vec<u8>,
    /// Where the times of the points are, in the order of the series.
    times: Vec<u32>,
}

impl Points {
    fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Self {
        let fleet = &plan.fleet;
        let mut encoder = OtlpEncoder::new();
        for part in targets {
            let labels = fleet.target_labels(part.target, part.generation);
            let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let (of_resource, others): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| key_of(name).is_some());
            encoder.resource(of_resource.iter().filter_map(|(name, value)| Some((key_of(name)?, *value))));
            let mut name_before = None;
            for metric in part.first_metric..part.first_metric + part.metrics {
                let name = fleet.metric_name(metric, metric_generation);
                let name = fleet.series_name(part.target, part.generation, &name);
                if name_before.as_ref() != Some(&name) {
                    encoder.gauge(&name);
                    name_before = Some(name);
                }
                let le = fleet.histograms.le(metric);
                let le = le.iter().map(|le| (BOUND_LABEL, le.as_str()));
                encoder.point(others.iter().copied().chain(le), 0, 0.0);
            }
        }
        let (bytes, mut times) = (encoder.finish(), Vec::new());
        find_times(&bytes, 0..bytes.len(), &PATH, &mut times)
            .expect("BUG: a template cannot patch the layout of an encoder's message");
        let points: u32 = targets.iter().map(|part| part.metrics).sum();
        assert_eq!(times.len(), points as usize, "BUG: the number of points is not the number of series");
        Self { bytes, times }
    }
}

impl Prepared for Points {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let mut times = self.times.iter();
        for part in targets {
            let key = plan.target_key(part.target, part.generation);
            let time = (plan.timestamp_ms(part.target, round) as u64 * NS_PER_MS).to_le_bytes();
            let metrics = part.first_metric..part.first_metric + part.metrics;
            for (metric, at) in metrics.zip(times.by_ref()) {
                let (time_at, value_at) = (*at as usize, *at as usize + VALUE_BEHIND);
                let value = plan.value(key, metric, round).to_bits().to_le_bytes();
                self.bytes[time_at..][..FIXED_BYTES].copy_from_slice(&time);
                self.bytes[value_at..][..FIXED_BYTES].copy_from_slice(&value);
            }
        }
        body.extend_from_slice(&self.bytes);
    }

    fn body_bytes_expected(&self, _: &[SlotTarget]) -> usize {
        self.bytes.len()
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + size_of_val(self.times.as_slice())
    }
}

fn encode(encoder: &mut Encoder, batch: &Batch) -> Vec<u8> {
    let mut points = OtlpEncoder::new();
    encoder.each(batch, |labels, samples| {
        points.resource(labels.iter().filter_map(|(name, value)| Some((key_of(name)?, value))));
        points.gauge(labels.get(METRIC_NAME).unwrap_or_default());
        for (timestamp_ms, bits) in samples {
            let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME && key_of(name).is_none());
            let time_ns = (*timestamp_ms as u64).wrapping_mul(NS_PER_MS);
            points.point(others, time_ns, f64::from_bits(*bits));
        }
    });
    points.finish()
}

/// The key of the attribute of a resource that becomes this label.
pub(super) fn key_of(label: &str) -> Option<&'static str> {
    RESOURCE.iter().find(|(name, _)| *name == label).map(|(_, key)| *key)
}

/// The fields that lead to a point: of a request, a resource, a scope, a metric, and a gauge.
const PATH: [u8; 5] = [0x0a, 0x12, 0x12, 0x2a, 0x0a];

/// Finds the times of the points in a part of a message. `path` are the fields that lead from there to the points, each of
/// which begins with its time and its value.
fn find_times(message: &[u8], part: Range<usize>, path: &[u8], times: &mut Vec<u32>) -> Result<()> {
    let Some((wanted, deeper)) = path.split_first() else {
        let point = &message[part.clone()];
        let is_usual = point.len() >= 2 * VALUE_BEHIND
            && (point[0], point[VALUE_BEHIND]) == (OtlpEncoder::TIME, OtlpEncoder::AS_DOUBLE);
        ensure!(is_usual, "a point of {} bytes does not begin with its time and value", point.len());
        times.push(part.start as u32 + 1);
        return Ok(());
    };
    let mut fields = Fields { message: &message[..part.end], at: part.start };
    while let Some((tag, content)) = fields.next()? {
        if tag == *wanted {
            find_times(message, content, deeper, times)?;
        }
    }
    Ok(())
}
