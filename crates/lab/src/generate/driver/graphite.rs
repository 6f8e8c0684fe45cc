//! Carbon's plaintext protocol. Labels become tags.

use super::{Driver, LINES_OVER_HTTP, POINT_BYTES, Prepared, Transport, memory_of};
use crate::capture::replay::{Batch, COPY_LABEL};
use crate::generate::plan::Plan;
use crate::generate::protocol::{GRAPHITE_RESOLUTION_MS, Protocol};
use crate::generate::template::SlotTarget;
use crate::scenario::ReadApi;
use model::LabelsRef;
use model::labels::METRIC_NAME;
use protocol::encode::graphite::line;

pub(super) static DRIVER: Driver = Driver {
    protocol: Protocol::Graphite,
    name: "graphite",
    about: "Graphite's lines",
    number: 3,
    transport: Transport::Lines,
    address: "tcp://127.0.0.1:2003",
    resolution_ms: GRAPHITE_RESOLUTION_MS,
    read_api: ReadApi::Render,
    prepare: Some(|plan, targets, generation| Box::new(Lines(Paths::of(plan, targets, generation)))),
    encode: Some(|_, batch| encode(batch)),
    ..LINES_OVER_HTTP
};

#[derive(Debug)]
struct Lines(Paths);

impl Prepared for Lines {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        self.0.points(plan, targets, round, |path, value, time_s| line(body, path, value, time_s));
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
    replayed(batch, |path, value, time_s| line(&mut body, &[path], value, time_s));
    body
}

/// The paths of a slot's series.
#[derive(Debug)]
pub(super) struct Paths {
    /// Names of the metrics from `first_metric` on.
    names: Vec<Box<str>>,
    first_metric: u32,
    /// Text before and after the metric's name, for each target of the slot.
    around: Vec<(Box<str>, Box<str>)>,
}

impl Paths {
    pub(super) fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Self {
        let fleet = &plan.fleet;
        let first_metric = targets.iter().map(|part| part.first_metric).min().unwrap_or(0);
        let end = targets.iter().map(|part| part.first_metric + part.metrics).max().unwrap_or(0);
        let name = |metric| {
            let mut name = fleet.metric_name(metric, metric_generation);
            if let Some(le) = fleet.histograms.le(metric) {
                name.push_str(";le=");
                name.push_str(&le);
            }
            name.into()
        };
        let around = targets.iter().map(|part| {
            let prefix = fleet.naming.prefix(part.target, part.generation);
            let labels = fleet.target_labels(part.target, part.generation);
            let tags: String = labels.iter().map(|(name, value)| format!(";{name}={value}")).collect();
            (prefix.into(), tags.into())
        });
        Self { names: (first_metric..end).map(name).collect(), first_metric, around: around.collect() }
    }

    /// Calls `point` with the pieces of each path, its value, and its time in seconds.
    pub(super) fn points(
        &self,
        plan: &Plan,
        targets: &[SlotTarget],
        round: u32,
        mut point: impl FnMut(&[&str], f64, i64),
    ) {
        for (part, (prefix, tags)) in targets.iter().zip(&self.around) {
            let key = plan.target_key(part.target, part.generation);
            let time_s = plan.timestamp_ms(part.target, round) / 1000;
            for metric in part.first_metric..part.first_metric + part.metrics {
                let name = &self.names[(metric - self.first_metric) as usize];
                point(&[prefix, name, tags], plan.value(key, metric, round), time_s);
            }
        }
    }

    pub(super) fn body_bytes_expected(&self, targets: &[SlotTarget]) -> usize {
        let name = self.names.iter().map(|name| name.len()).max().unwrap_or(0);
        let series = targets.iter().zip(&self.around);
        series
            .map(|(part, (prefix, tags))| {
                part.metrics as usize * (prefix.len() + name + tags.len() + POINT_BYTES)
            })
            .sum()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let around = self.around.iter().map(|pair| size_of_val(pair) + pair.0.len() + pair.1.len());
        memory_of(&self.names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>()) + around.sum::<usize>()
    }
}

/// Calls `point` with each sample of a batch that is not a native histogram and not a NaN, because Graphite has neither.
pub(super) fn replayed(batch: &Batch, mut point: impl FnMut(&str, f64, i64)) {
    for part in &batch.parts {
        let path = path(LabelsRef::from_canonical(&part.labels), batch.copy);
        for (timestamp_ms, bits) in &part.samples {
            let value = f64::from_bits(*bits);
            if !value.is_nan() {
                point(&path, value, timestamp_ms.div_euclid(1000));
            }
        }
    }
}

/// Name of a series with its tags. Copies of a series without tags differ by the first part of their path, because not
/// every server has tags.
fn path(labels: LabelsRef<'_>, copy: Option<u32>) -> String {
    let mut path = String::new();
    let tagged = labels.iter().any(|(name, _)| name != METRIC_NAME);
    if let Some(copy) = copy.filter(|_| !tagged) {
        path += &format!("{COPY_LABEL}_{copy}.");
    }
    put_plain(&mut path, labels.iter().find(|(name, _)| *name == METRIC_NAME).map_or("_", |(_, name)| name));
    for (name, value) in labels.iter().filter(|(name, _)| ![METRIC_NAME, COPY_LABEL].contains(name)) {
        path.push(';');
        put_plain(&mut path, name);
        path.push('=');
        put_plain(&mut path, value);
    }
    if let Some(copy) = copy.filter(|_| tagged) {
        path += &format!(";{COPY_LABEL}={copy}");
    }
    path
}

/// Appends text without the characters that separate the parts of a line.
fn put_plain(out: &mut String, text: &str) {
    let plain = |c: char| if c.is_whitespace() || c.is_control() || c == ';' { '_' } else { c };
    out.extend(text.chars().map(plain));
}
