//! Gauges of statsd, with tags as in DogStatsD, in datagrams. The target stores their values at the end of its own intervals,
//! so that the times of the plan do not matter. Only values that queries returned are owed
//! ([`Flushed`](crate::verify::flushed::Flushed)).

use super::{Driver, LINES_OVER_HTTP, POINT_BYTES, Prepared, Transport, each_sample};
use crate::capture::replay::{Batch, Encoder};
use crate::generate::fleet::BOUND_LABEL;
use crate::generate::plan::Plan;
use crate::generate::protocol::Protocol;
use crate::generate::template::SlotTarget;
use model::LabelsRef;
use model::labels::METRIC_NAME;
use std::io::Write;

pub(super) static DRIVER: Driver = Driver {
    protocol: Protocol::Statsd,
    name: "statsd",
    about: "gauges of statsd over UDP",
    number: 12,
    transport: Transport::Flushed,
    address: "udp://127.0.0.1:8125",
    prepare: Some(|plan, targets, generation| Box::new(Gauges::of(plan, targets, generation))),
    encode: Some(encode),
    ..LINES_OVER_HTTP
};

/// In a recording, this label says what a value is, as the type of a line does. A recorded value without it is a gauge.
pub(crate) const TYPE_LABEL: &str = "statsd_type";

/// In a recording, this label has the sample rate of a value.
pub(crate) const RATE_LABEL: &str = "statsd_rate";

/// The type of a change of a gauge, in a recording.
pub(crate) const CHANGE: &str = "g+";

/// The texts of each line before and after its value.
#[derive(Debug)]
struct Gauges(Vec<[Box<str>; 2]>);

impl Gauges {
    fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Self {
        let (fleet, mut lines) = (&plan.fleet, Vec::new());
        for part in targets {
            let labels = fleet.target_labels(part.target, part.generation);
            for metric in part.first_metric..part.first_metric + part.metrics {
                let name = fleet.metric_name(metric, metric_generation);
                let name = fleet.series_name(part.target, part.generation, &name);
                let le = fleet.histograms.le(metric);
                let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                let end = end_of("g", None, pairs.chain(le.as_deref().map(|le| (BOUND_LABEL, le))));
                lines.push([format!("{name}:").into(), end.into()]);
            }
        }
        Self(lines)
    }
}

impl Prepared for Gauges {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let mut lines = self.0.iter();
        each_sample(plan, targets, round, |_, value| {
            let [begin, end] = lines.next().expect("BUG: a series has no line");
            body.extend_from_slice(begin.as_bytes());
            put_gauge(body, value);
            body.extend_from_slice(end.as_bytes());
        });
    }

    fn body_bytes_expected(&self, _: &[SlotTarget]) -> usize {
        self.0.iter().map(|[begin, end]| begin.len() + end.len() + POINT_BYTES / 2).sum()
    }

    fn memory_bytes(&self) -> usize {
        self.0.iter().map(|line| size_of_val(line) + line[0].len() + line[1].len()).sum()
    }
}

/// Appends the value of a gauge. A sign would make it a change, so that a negative value is a change of zero.
pub(super) fn put_gauge(out: &mut Vec<u8>, value: f64) {
    let zero = if value.is_sign_negative() { "0:" } else { "" };
    write!(out, "{zero}{value}").expect("BUG: writing to memory failed");
}

/// The end of a line, behind its value.
fn end_of<'a>(kind: &str, rate: Option<&str>, tags: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut end = format!("|{kind}");
    if let Some(rate) = rate {
        end += &format!("|@{rate}");
    }
    for (number, (name, value)) in tags.into_iter().enumerate() {
        end.push_str(if number == 0 { "|#" } else { "," });
        put_plain(&mut end, name);
        end.push(':');
        put_plain(&mut end, value);
    }
    end.push('\n');
    end
}

/// Appends text without the characters that separate the parts of a line.
fn put_plain(out: &mut String, text: &str) {
    let plain = |c: char| if c.is_control() || matches!(c, '|' | ',') { '_' } else { c };
    out.extend(text.chars().map(plain));
}

/// A line for each finite sample of a batch.
fn encode(encoder: &mut Encoder, batch: &Batch) -> Vec<u8> {
    let mut body = Vec::new();
    encoder.each(batch, |labels, samples| put_series(&mut body, labels, samples));
    body
}

fn put_series(body: &mut Vec<u8>, labels: LabelsRef<'_>, samples: &[(i64, u64)]) {
    let kind = labels.get(TYPE_LABEL).unwrap_or("g");
    let tags = labels.iter().filter(|(name, _)| ![METRIC_NAME, TYPE_LABEL, RATE_LABEL].contains(name));
    let end = end_of(if kind == CHANGE { "g" } else { kind }, labels.get(RATE_LABEL), tags);
    let mut begin = String::new();
    let name = labels.get(METRIC_NAME).unwrap_or("_");
    begin.extend(name.chars().map(|c| if c == ':' { '_' } else { c }));
    let mut plain = String::new();
    put_plain(&mut plain, &begin);
    for value in samples.iter().map(|(_, bits)| f64::from_bits(*bits)).filter(|value| value.is_finite()) {
        body.extend_from_slice(plain.as_bytes());
        body.push(b':');
        match kind {
            "g" => put_gauge(body, value),
            CHANGE => write!(body, "{value:+}").expect("BUG: writing to memory failed"),
            _ => write!(body, "{value}").expect("BUG: writing to memory failed"),
        }
        body.extend_from_slice(end.as_bytes());
    }
}
