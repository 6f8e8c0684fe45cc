//! VictoriaMetrics' JSON lines over HTTP. Each line has one sample.

use super::{Driver, LINES_OVER_HTTP, POINT_BYTES, Prepared, each_sample, labels_of, memory_of};
use crate::capture::replay::{Batch, Encoder};
use crate::generate::plan::Plan;
use crate::generate::protocol::Protocol;
use crate::generate::template::SlotTarget;
use model::LabelsRef;
use protocol::jsonl::put_line;

pub(super) static DRIVER: Driver = Driver {
    protocol: Protocol::JsonLines,
    name: "json-lines",
    about: "VictoriaMetrics' JSON lines over HTTP",
    number: 6,
    address: "http://127.0.0.1:9009/api/v1/import",
    prepare: Some(|plan, targets, generation| Box::new(Lines(labels_of(plan, targets, generation)))),
    encode: Some(encode),
    ..LINES_OVER_HTTP
};

/// The labels of each series.
#[derive(Debug)]
struct Lines(Vec<Box<[u8]>>);

impl Prepared for Lines {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let mut labels = self.0.iter();
        each_sample(plan, targets, round, |timestamp_ms, value| {
            let labels = labels.next().expect("BUG: a series has no labels");
            put_line(body, LabelsRef::from_canonical(labels), &[timestamp_ms], &[value]);
        });
    }

    fn body_bytes_expected(&self, _: &[SlotTarget]) -> usize {
        self.0.iter().map(|labels| labels.len() + 2 * POINT_BYTES).sum()
    }

    fn memory_bytes(&self) -> usize {
        memory_of(&self.0)
    }
}

/// A line for each series of a batch.
fn encode(encoder: &mut Encoder, batch: &Batch) -> Vec<u8> {
    let (mut body, mut timestamps, mut values) = (Vec::new(), Vec::new(), Vec::new());
    encoder.each(batch, |labels, samples| {
        timestamps.clear();
        timestamps.extend(samples.iter().map(|(timestamp_ms, _)| *timestamp_ms));
        values.clear();
        values.extend(samples.iter().map(|(_, bits)| f64::from_bits(*bits)));
        put_line(&mut body, labels, &timestamps, &values);
    });
    body
}
