//! Prometheus' text over HTTP, with times.

use super::{Driver, LINES_OVER_HTTP, POINT_BYTES, Prepared, each_sample, labels_of, memory_of};
use crate::capture::replay::{Batch, Encoder};
use crate::generate::plan::Plan;
use crate::generate::protocol::Protocol;
use crate::generate::template::SlotTarget;
use model::LabelsRef;
use protocol::exposition::{Dialect, put_samples};

pub(super) static DRIVER: Driver = Driver {
    protocol: Protocol::Text,
    name: "text",
    about: "Prometheus' text over HTTP",
    number: 7,
    address: "http://127.0.0.1:9009/api/v1/import/prometheus",
    prepare: Some(|plan, targets, generation| Box::new(Text(labels_of(plan, targets, generation)))),
    encode: Some(encode),
    ..LINES_OVER_HTTP
};

/// The labels of each series.
#[derive(Debug)]
struct Text(Vec<Box<[u8]>>);

impl Prepared for Text {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let mut labels = self.0.iter();
        each_sample(plan, targets, round, |timestamp_ms, value| {
            let labels = labels.next().expect("BUG: a series has no labels");
            let labels = LabelsRef::from_canonical(labels);
            put_samples(body, Dialect::Prometheus, labels, &[timestamp_ms], &[value]);
        });
    }

    fn body_bytes_expected(&self, _: &[SlotTarget]) -> usize {
        self.0.iter().map(|labels| labels.len() + 2 * POINT_BYTES).sum()
    }

    fn memory_bytes(&self) -> usize {
        memory_of(&self.0)
    }
}

/// A line for each sample of a batch, except for staleness markers, which cannot be written as text.
fn encode(encoder: &mut Encoder, batch: &Batch) -> Vec<u8> {
    let (mut body, mut timestamps, mut values) = (Vec::new(), Vec::new(), Vec::new());
    encoder.each(batch, |labels, samples| {
        timestamps.clear();
        timestamps.extend(samples.iter().map(|(timestamp_ms, _)| *timestamp_ms));
        values.clear();
        values.extend(samples.iter().map(|(_, bits)| f64::from_bits(*bits)));
        put_samples(&mut body, Dialect::Prometheus, labels, &timestamps, &values);
    });
    body
}
