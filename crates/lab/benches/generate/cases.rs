//! Benchmark cases.

use lab::generate::fleet::{Fleet, series_labels, target_bytes};
use lab::generate::plan::Plan;
use lab::generate::template::{Renderer, Template};
use lab::{ValueModel, Version};
use model::LabelsRef;
use protocol::encode::V1Encoder;
use std::hint::black_box;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    metrics: u32,
    targets: u64,
    rounds: u32,
}

impl Size {
    pub(crate) const LARGE: Self = Self { metrics: 500, targets: 200, rounds: 100 };
    pub(crate) const SMALL: Self = Self { metrics: 5, targets: 8, rounds: 2 };
}

fn plan(size: Size, values: ValueModel) -> Plan {
    Plan {
        fleet: Fleet::default(),
        metrics: size.metrics,
        targets: size.targets,
        writers: 1,
        first_writer: 0,
        batch: 2_000,
        values,
        interval_ms: 15_000,
        first_tick: 119_685_600,
        rounds_max: size.rounds,
        series_churn_ticks: None,
        series_churn_staggered: false,
        metric_churn_ticks: None,
        series_churn_spread: 0,
        value_ticks: 0,
        relabel_ticks: Vec::new(),
        resolution_ms: 1,
        value_seed: 0,
    }
}

pub(crate) fn run_all(size: Size) -> Vec<String> {
    let mut lines = vec![encoder(size)];
    for version in [Version::V1, Version::V2] {
        lines.push(render(size, version));
        lines.push(fill(size, version, ValueModel::Mix));
    }
    lines.push(fill(size, Version::V1, ValueModel::Constant));
    lines.push(fill(size, Version::V1, ValueModel::Walk));
    lines
}

fn templates(plan: &Plan, version: Version) -> Vec<Template> {
    let mut renderer = Renderer::new(version);
    (0..plan.slots_count()).map(|slot| renderer.render(plan, plan.slot(slot), 0)).collect()
}

/// For comparison: encodes and compresses every request anew, without templates.
fn encoder(size: Size) -> String {
    let plan = plan(size, ValueModel::Mix);
    let targets: Vec<_> = (0..plan.targets).map(|t| target_bytes(&plan.fleet.target_labels(t, 0))).collect();
    let names: Vec<_> = (0..plan.metrics).map(|m| plan.fleet.metric_name(m, 0)).collect();
    let (mut encoder, mut labels, mut bytes) = (V1Encoder::new(), Vec::new(), 0);
    let rounds = size.rounds.div_ceil(20);
    let begin = Instant::now();
    for round in 0..rounds {
        for slot in (0..plan.slots_count()).map(|s| plan.slot(s)) {
            for (target, metric) in (0..slot.len).map(|index| plan.series_at(slot, index)) {
                series_labels(&mut labels, &names[metric as usize], None, &targets[target as usize]);
                let value = plan.value(plan.target_key(target, 0), metric, round);
                let stamp = plan.timestamp_ms(target, round);
                encoder.series(LabelsRef::from_canonical(&labels), &[stamp], &[value]);
            }
            bytes += black_box(encoder.finish()).len() as u64;
        }
    }
    let samples = plan.series() * u64::from(rounds);
    line("encode and compress anew, 1.0", samples, begin, bytes)
}

/// Measures the cost of a new series, which includes building its template.
fn render(size: Size, version: Version) -> String {
    let plan = plan(size, ValueModel::Mix);
    let begin = Instant::now();
    let templates = templates(&plan, version);
    let memory = templates.iter().map(|t| t.memory_bytes() as u64).sum();
    line(&format!("build templates, {version:?} (bytes of memory)"), plan.series(), begin, memory)
}

/// Measures the cost of one more sample of a known series, which is written into an existing template.
fn fill(size: Size, version: Version, values: ValueModel) -> String {
    let plan = plan(size, values);
    let mut templates = templates(&plan, version);
    let mut bytes = 0;
    let begin = Instant::now();
    for round in 0..size.rounds {
        for template in &mut templates {
            let body = template.body(&plan, round);
            bytes += black_box(body).len() as u64;
        }
    }
    let samples = plan.series() * u64::from(size.rounds);
    line(&format!("fill templates, {version:?}, {values:?}"), samples, begin, bytes)
}

fn line(what: &str, samples: u64, begin: Instant, bytes: u64) -> String {
    let seconds = begin.elapsed().as_secs_f64();
    format!(
        "{what:48} {:8.2} M/s  {:6.1} ns  {:5.1} bytes each",
        samples as f64 / seconds / 1e6,
        seconds * 1e9 / samples as f64,
        bytes as f64 / samples as f64
    )
}
