//! What is sent and answered, noted in the model and the trace.
//!
//! Steps change it, and so does what comes while the sealer waits: the driver shares it with both.

use crate::check;
use crate::fleet::{Fleet, METRICS};
use crate::model::{About, Key, Model, Share};
use crate::trace::Trace;
use model::{Metadata, MetricKind, STALE_NAN_BITS};
use protocol::encode::V1Encoder;
use server::sim::{Stepped, Written};
use std::collections::{BTreeMap, BTreeSet};
use stdx::rng::Rng;

/// What is sent and answered.
#[derive(Debug)]
pub struct Traffic {
    /// Draws all that a run leaves to chance.
    pub rng: Rng,
    /// What must be there.
    pub model: Model,
    /// What was done.
    pub trace: Trace,
    /// What was found wrong while the sealer waited.
    pub failure: Option<String>,
    underway: Vec<Underway>,
    sends_metadata: bool,
}

/// A request without all its answers.
#[derive(Debug)]
struct Underway {
    written: Written,
    /// Its shares that are not answered, by partition.
    shares: BTreeMap<usize, Share>,
}

/// Samples by the number of their series: milliseconds, and values as bits.
type Drawn = BTreeMap<usize, Vec<(i64, u64)>>;

impl Traffic {
    /// Nothing is sent yet.
    pub const fn new(rng: Rng, model: Model, trace: Trace, sends_metadata: bool) -> Self {
        Self { rng, model, trace, failure: None, underway: Vec::new(), sends_metadata }
    }

    /// Every request has all its answers.
    pub const fn is_quiet(&self) -> bool {
        self.underway.is_empty()
    }

    /// Sends a request of some samples of one tenant, no older than `span_ms`.
    pub fn write(&mut self, node: &Stepped, fleet: &Fleet, now_ms: i64, span_ms: u64) {
        let tenant = self.rng.below(fleet.tenants.len() as u64) as usize;
        let drawn = self.draw_samples(tenant, fleet.series.len(), now_ms, span_ms);
        let mut encoder = V1Encoder::new();
        let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
        if let Some((about, help)) = self.draw_metadata(tenant) {
            encoder.metadata(&Metadata {
                metric: about.1.clone(),
                kind: MetricKind::Gauge,
                help: help.clone(),
                unit: String::new(),
            });
            shares.entry(node.partition_of_metric(&about.1)).or_default().metadata.push((about, help));
        }
        for (number, samples) in &drawn {
            let labels = fleet.series[*number].as_ref();
            let (timestamps, values): (Vec<_>, Vec<_>) =
                samples.iter().map(|(t, bits)| (*t, f64::from_bits(*bits))).unzip();
            encoder.series(labels, &timestamps, &values);
            let share = shares.entry(node.partition_of(labels)).or_default();
            share.samples.extend(samples.iter().map(|(t, bits)| ((tenant, *number, *t), *bits)));
        }
        let samples: usize = drawn.values().map(Vec::len).sum();
        self.trace.note(format!("{samples} samples of {} series of {tenant}", drawn.len()));
        shares.values().for_each(|share| self.model.send(share));
        match node.write(&fleet.tenants[tenant], encoder.finish().to_vec()) {
            Ok(written) => self.underway.push(Underway { written, shares }),
            Err(refusal) => {
                self.trace.note(refusal);
                shares.into_values().for_each(|share| self.model.leave_open(share));
            }
        }
    }

    /// Samples that are not on their way already.
    fn draw_samples(&mut self, tenant: usize, series: usize, now_ms: i64, span_ms: u64) -> Drawn {
        let mut drawn = Drawn::new();
        let mut keys = BTreeSet::new();
        for _ in 0..1 + self.rng.below(12) {
            let number = self.rng.below(series as u64) as usize;
            let back_ms = if self.rng.chance(0.7) { self.rng.below(5000) } else { self.rng.below(span_ms) };
            let key: Key = (tenant, number, (now_ms - back_ms as i64).max(0));
            if self.model.is_busy(key) || !keys.insert(key) {
                continue;
            }
            let value = match self.rng.below(5) {
                0 => self.rng.unit(),
                1 => f64::from_bits(STALE_NAN_BITS),
                _ => self.rng.below(1000) as f64 / 10.0,
            };
            drawn.entry(number).or_default().push((key.2, value.to_bits()));
        }
        drawn
    }

    /// Now and then, what is said of a metric: news, and not on its way already.
    fn draw_metadata(&mut self, tenant: usize) -> Option<(About, String)> {
        let metric = METRICS[self.rng.below(METRICS.len() as u64) as usize];
        let (about, help) = ((tenant, metric.to_string()), format!("{:x}", self.rng.below(100)));
        let is_news = self.model.metadata_of(&about) != Some(&help) && !self.model.is_metadata_busy(&about);
        (self.sends_metadata && self.rng.chance(0.1) && is_news).then_some((about, help))
    }

    /// What queries find must be what was said.
    pub fn compare(&self, node: &Stepped, fleet: &Fleet) -> Result<(), String> {
        self.model.check(&check::found(node, fleet)?)
    }

    /// Takes the answers that have come.
    pub fn hear(&mut self) -> Result<(), String> {
        for mut underway in std::mem::take(&mut self.underway) {
            for (partition, answer) in underway.written.answers() {
                let share = underway.shares.remove(&partition).expect("BUG: one answer for each share");
                match answer {
                    Ok(outcome) if outcome.samples == share.samples.len() as u64 => {
                        self.trace.note(format!("{} stored", outcome.samples));
                        self.model.acknowledge(&share);
                    }
                    Ok(outcome) => return Err(format!("of {share:?} was left out: {outcome:?}")),
                    Err(refusal) => {
                        self.trace.note(refusal);
                        self.model.leave_open(share);
                    }
                }
            }
            if !underway.shares.is_empty() {
                self.underway.push(underway);
            }
        }
        Ok(())
    }

    /// The process is gone: what has no answer gets none.
    pub fn hang_up(&mut self) {
        let unanswered =
            std::mem::take(&mut self.underway).into_iter().flat_map(|underway| underway.shares.into_values());
        unanswered.for_each(|share| self.model.leave_open(share));
    }
}
