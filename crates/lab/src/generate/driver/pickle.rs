//! Carbon's pickle protocol, with the paths of the plaintext protocol.

use super::graphite::{Paths, replayed};
use super::{Driver, LINES_OVER_HTTP, Prepared, Transport};
use crate::capture::replay::Batch;
use crate::generate::plan::Plan;
use crate::generate::protocol::{GRAPHITE_RESOLUTION_MS, Protocol};
use crate::generate::template::SlotTarget;
use crate::scenario::ReadApi;
use protocol::encode::graphite::PickleEncoder;

pub(super) static DRIVER: Driver = Driver {
    protocol: Protocol::GraphitePickle,
    name: "graphite-pickle",
    about: "Graphite's pickled points",
    number: 4,
    transport: Transport::Stream,
    address: "tcp://127.0.0.1:2004",
    resolution_ms: GRAPHITE_RESOLUTION_MS,
    read_api: ReadApi::Render,
    prepare: Some(|plan, targets, generation| Box::new(Frames(Paths::of(plan, targets, generation)))),
    encode: Some(|_, batch| encode(batch)),
    ..LINES_OVER_HTTP
};

#[derive(Debug)]
struct Frames(Paths);

impl Prepared for Frames {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let mut frames = PickleEncoder::new(body);
        self.0.points(plan, targets, round, |path, value, time_s| frames.point(path, value, time_s));
        frames.finish();
    }

    fn body_bytes_expected(&self, targets: &[SlotTarget]) -> usize {
        self.0.body_bytes_expected(targets)
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

fn encode(batch: &Batch) -> Vec<u8> {
    let mut body = Vec::new();
    let mut frames = PickleEncoder::new(&mut body);
    replayed(batch, |path, value, time_s| frames.point(&[path], value, time_s));
    frames.finish();
    body
}
