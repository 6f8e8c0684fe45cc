//! Influx' line protocol over HTTP. The name of a metric is split at its last underscore into a measurement and the name
//! of a field, so that metrics with the same measurement share a line.

use super::{Driver, LINES_OVER_HTTP, POINT_BYTES, Prepared, each_sample};
use crate::capture::replay::{Batch, Encoder};
use crate::generate::plan::Plan;
use crate::generate::protocol::Protocol;
use crate::generate::template::SlotTarget;
use model::labels::METRIC_NAME;
use protocol::encode::influx;

pub(super) static DRIVER: Driver = Driver {
    protocol: Protocol::Influx,
    name: "influx",
    about: "Influx' line protocol over HTTP",
    number: 5,
    address: "http://127.0.0.1:9009/write",
    no_timers: Some("timers have no measurements, which Influx' lines need"),
    prepare: Some(|plan, targets, generation| Box::new(Heads::of(plan, targets, generation))),
    encode: Some(encode),
    ..LINES_OVER_HTTP
};

/// Fields of a line. Telegraf's plug-in `cpu` has as many.
const FIELDS_MAX: usize = 10;

/// Heads of lines, in the order in which they are sent.
#[derive(Debug)]
struct Heads(Vec<Line>);

#[derive(Debug)]
struct Line {
    head: Box<[u8]>,
    fields: Vec<Box<str>>,
}

impl Heads {
    fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Self {
        let fleet = &plan.fleet;
        let mut lines: Vec<Line> = Vec::new();
        for part in targets {
            let labels = fleet.target_labels(part.target, part.generation);
            let first_line = lines.len();
            for metric in part.first_metric..part.first_metric + part.metrics {
                let name = fleet.metric_name(metric, metric_generation);
                let (measurement, field) =
                    name.rsplit_once('_').expect("BUG: the name of a metric has no underscore");
                let le = fleet.histograms.le(metric);
                let tags = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                let tags = tags.chain(le.as_deref().map(|le| ("le", le)));
                let mut head = Vec::new();
                influx::head(&mut head, measurement, tags);
                match lines[first_line..].last_mut() {
                    Some(last) if *last.head == *head && last.fields.len() < FIELDS_MAX => {
                        last.fields.push(field.into());
                    }
                    _ => lines.push(Line { head: head.into(), fields: vec![field.into()] }),
                }
            }
        }
        Self(lines)
    }
}

impl Prepared for Heads {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let (mut lines, mut begun) = (self.0.iter(), None);
        each_sample(plan, targets, round, |timestamp_ms, value| {
            let (line, next): (&Line, usize) = match begun.take() {
                Some(begun) => begun,
                None => (lines.next().expect("BUG: a sample has no line"), 0),
            };
            if next == 0 {
                body.extend_from_slice(&line.head);
            }
            influx::field(body, next == 0, &line.fields[next], value);
            if next + 1 == line.fields.len() {
                influx::end(body, timestamp_ms);
            } else {
                begun = Some((line, next + 1));
            }
        });
    }

    fn body_bytes_expected(&self, _: &[SlotTarget]) -> usize {
        let line = |Line { head, fields }: &Line| {
            head.len() + fields.iter().map(|field| field.len() + POINT_BYTES).sum::<usize>()
        };
        self.0.iter().map(line).sum()
    }

    fn memory_bytes(&self) -> usize {
        let line = |line: &Line| {
            let fields = line.fields.iter().map(|field| size_of_val(field) + field.len());
            size_of_val(line) + line.head.len() + fields.sum::<usize>()
        };
        self.0.iter().map(line).sum()
    }
}

/// A line for each sample that Influx' lines can have: no NaN, and no infinity.
fn encode(encoder: &mut Encoder, batch: &Batch) -> Vec<u8> {
    let (mut body, mut head) = (Vec::new(), Vec::new());
    encoder.each(batch, |labels, samples| {
        let name = labels.get(METRIC_NAME).unwrap_or_default();
        let parts = name.rsplit_once('_').filter(|(first, last)| !first.is_empty() && !last.is_empty());
        let (measurement, field) = parts.unwrap_or((name, "value"));
        head.clear();
        influx::head(&mut head, measurement, labels.iter().filter(|(name, _)| *name != METRIC_NAME));
        for (timestamp_ms, bits) in samples {
            let value = f64::from_bits(*bits);
            if value.is_finite() {
                body.extend_from_slice(&head);
                influx::field(&mut body, true, field, value);
                influx::end(&mut body, *timestamp_ms);
            }
        }
    });
    body
}
