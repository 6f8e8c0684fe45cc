//! How each protocol is sent. A driver is everything that the generator knows of a protocol. Each has a
//! line in [`DRIVERS`]; versions of a protocol, and its transports, may share a file.
//!
//! ```text
//!   facts              name, addresses, what the protocol can carry
//!   prepare ─▶ put     bodies of generated samples, from texts that are prepared once for each slot
//!   encode             bodies of a replay
//! ```
//!
//! The ledger does not depend on the protocol: it has the slots and rounds that were acknowledged, or that a target
//! without answers owes.

pub(crate) mod csv;
pub(crate) mod graphite;
mod influx;
mod json_lines;
pub(crate) mod otlp;
mod otlp_json;
mod pickle;
mod remote_write;
pub(crate) mod statsd;
mod text;

use super::fleet::{series_labels, target_bytes};
use super::plan::Plan;
use super::protocol::Protocol;
use super::template::SlotTarget;
use crate::capture::replay::{Batch, Encoder};
use crate::scenario::ReadApi;

/// All drivers, in the order in which the help lists them.
pub(super) static DRIVERS: &[&Driver] = &[
    &remote_write::V1,
    &remote_write::V2,
    &otlp::HTTP,
    &otlp::GRPC,
    &otlp_json::DRIVER,
    &graphite::DRIVER,
    &pickle::DRIVER,
    &influx::DRIVER,
    &json_lines::DRIVER,
    &text::DRIVER,
    &csv::DRIVER,
    &statsd::DRIVER,
];

/// Bytes that a value takes together with its time and with what separates them.
const POINT_BYTES: usize = 40;

#[derive(Debug)]
pub(crate) struct Driver {
    pub(super) protocol: Protocol,
    /// Name in scenarios and on the command line.
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Number in a recording.
    pub(super) number: u8,
    pub(super) transport: Transport,
    /// The usual address of a target on this machine.
    pub(super) address: &'static str,
    /// The header `Content-Type` of a write request over HTTP.
    pub(super) content_type: &'static str,
    /// Timestamps are multiples of this many milliseconds.
    pub(super) resolution_ms: u32,
    /// The usual API to read from.
    pub(super) read_api: ReadApi,
    /// Why series without labels, whose names are paths, cannot be sent. `None` if they can.
    pub(super) no_timers: Option<&'static str>,
    /// `None` for remote write, whose bodies are compressed once and then patched.
    pub(super) prepare: Option<Prepare>,
    /// `None` if a replay cannot be sent in this protocol.
    pub(super) encode: Option<fn(&mut Encoder, &Batch) -> Vec<u8>>,
}

/// Prepares the requests of a slot, with the names that metrics have in a generation.
type Prepare = fn(&Plan, &[SlotTarget], u64) -> Box<dyn Prepared>;

/// What carries the bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Grpc,
    /// Lines without answers, over a connection or in datagrams. What is sent in datagrams is never owed.
    Lines,
    /// Frames without answers, over a connection only.
    Stream,
    /// Datagrams, whose values the target stores at the end of each of its own intervals.
    Flushed,
}

/// A driver of which most facts are those of lines over HTTP.
const LINES_OVER_HTTP: Driver = Driver {
    protocol: Protocol::Text,
    name: "",
    about: "",
    number: 0,
    transport: Transport::Http,
    address: "",
    content_type: "text/plain; charset=utf-8",
    resolution_ms: 1,
    read_api: ReadApi::Promql,
    no_timers: None,
    prepare: None,
    encode: None,
};

/// The requests of a slot, as long as its series do not change.
pub(super) trait Prepared: std::fmt::Debug + Send + Sync {
    /// Appends the body with the samples of a round.
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32);

    /// Estimated length of the first body.
    fn body_bytes_expected(&self, targets: &[SlotTarget]) -> usize;

    fn memory_bytes(&self) -> usize;

    /// Parameters that each request adds to the URL of the target.
    fn query(&self) -> Option<&str> {
        None
    }
}

/// Calls `sample` with the time and the value of each series of a slot.
fn each_sample(plan: &Plan, targets: &[SlotTarget], round: u32, mut sample: impl FnMut(i64, f64)) {
    for part in targets {
        let key = plan.target_key(part.target, part.generation);
        let timestamp_ms = plan.timestamp_ms(part.target, round);
        for metric in part.first_metric..part.first_metric + part.metrics {
            sample(timestamp_ms, plan.value(key, metric, round));
        }
    }
}

/// The labels of each series of a slot in canonical form, in the order in which they are sent.
fn labels_of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Vec<Box<[u8]>> {
    let (fleet, mut all, mut labels) = (&plan.fleet, Vec::new(), Vec::new());
    for part in targets {
        let target = target_bytes(&fleet.target_labels(part.target, part.generation));
        for metric in part.first_metric..part.first_metric + part.metrics {
            let name = fleet.metric_name(metric, metric_generation);
            let name = fleet.series_name(part.target, part.generation, &name);
            let le = fleet.histograms.le(metric);
            series_labels(&mut labels, &name, le.as_deref(), &target);
            all.push(labels.as_slice().into());
        }
    }
    all
}

/// Memory of texts, and of the list that holds them.
fn memory_of<T: AsRef<[u8]>>(texts: &[T]) -> usize {
    size_of_val(texts) + texts.iter().map(|text| text.as_ref().len()).sum::<usize>()
}

#[cfg(test)]
mod tests;
