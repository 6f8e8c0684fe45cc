//! Sends requests and collects their answers. That is done by the driver's steps and, while the sealer waits, by
//! the [`Interlude`](server::sim::Interlude).

use crate::check;
use crate::fleet::{Fleet, METRICS};
use crate::model::{Found, Key, MetadataKey, Model, Share};
use crate::plan::Load;
use crate::trace::Trace;
use model::{Metadata, MetricKind, STALE_NAN_BITS};
use protocol::encode::V1Encoder;
use server::sim::{Outcome, Stepped, Written};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use stdx::rng::Rng;
use tables::DAY_MS;

/// The node accepts samples up to this far ahead of its clock.
pub const FUTURE_MS: i64 = 600_000;

/// This many of the last requests are kept, because any of them may be sent again.
const RECENT_MAX: usize = 12;

#[derive(Debug)]
pub struct Traffic {
    pub rng: Rng,
    pub model: Model,
    pub trace: Trace,
    pub failure: Option<String>,
    /// This tenant sends no requests for now.
    pub reserved: Option<usize>,
    load: Load,
    accepted_ms: i64,
    underway: Vec<Underway>,
    /// Shares that were stored only in part, with the number of stored samples. A query will show which
    /// samples these are.
    unclear: Vec<(Share, u64)>,
    recent: VecDeque<Rc<Request>>,
    requests: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub senders_ms: i64,
    pub node_ms: i64,
}

#[derive(Debug)]
struct Request {
    tenant: usize,
    body: Vec<u8>,
    shares: BTreeMap<usize, Share>,
}

/// A request that was sent, with those of its shares that have no answer yet.
#[derive(Debug)]
struct Underway {
    written: Written,
    shares: BTreeMap<usize, Share>,
}

/// For each series by its number, the timestamps in milliseconds and the bits of the values.
type DrawnSamples = BTreeMap<usize, Vec<(i64, u64)>>;

impl Traffic {
    pub fn new(rng: Rng, model: Model, trace: Trace, load: Load) -> Self {
        let accepted_ms = load.past_ms.unwrap_or(i64::MAX);
        Self {
            accepted_ms,
            rng,
            model,
            trace,
            failure: None,
            reserved: None,
            load,
            underway: Vec::new(),
            unclear: Vec::new(),
            recent: VecDeque::new(),
            requests: 0,
        }
    }

    pub const fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    pub const fn last_request(&self) -> u64 {
        self.requests
    }

    pub const fn is_answered(&self) -> bool {
        self.underway.is_empty()
    }

    /// True if all requests are answered, and it is known which of their samples were stored.
    pub const fn is_quiet(&self) -> bool {
        self.is_answered() && self.unclear.is_empty()
    }

    /// Sends a new request of a random tenant, or sends an earlier request again.
    pub fn write(&mut self, node: &Stepped, fleet: &Fleet, now: Times) {
        let again = self.rng.chance(self.load.resends).then(|| self.choose_recent()).flatten();
        let request = match again {
            Some(request) => {
                let number = request.shares.values().next().map_or(0, |share| share.request);
                self.trace.note(format!("request {number} again"));
                request
            }
            None => {
                let request = Rc::new(self.make(node, fleet, now.senders_ms));
                self.recent.push_back(Rc::clone(&request));
                if self.recent.len() > RECENT_MAX {
                    self.recent.pop_front();
                }
                request
            }
        };
        self.send(node, fleet, &request, now.node_ms);
    }

    /// Chooses an earlier request. Returns `None` if another request without a result has some of the same
    /// samples.
    fn choose_recent(&mut self) -> Option<Rc<Request>> {
        let chosen = self.rng.below(self.recent.len().max(1) as u64) as usize;
        let request = self.recent.get(chosen)?;
        request.shares.values().all(|share| self.model.may_repeat(share)).then(|| Rc::clone(request))
    }

    fn make(&mut self, node: &Stepped, fleet: &Fleet, now_ms: i64) -> Request {
        let number = self.next_request();
        let mut tenant = self.rng.below(fleet.tenants.len() as u64) as usize;
        if self.reserved == Some(tenant) {
            tenant = (tenant + 1) % fleet.tenants.len();
        }
        let drawn = self.draw_samples(tenant, fleet.series.len(), now_ms);
        let mut encoder = V1Encoder::new();
        let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
        let empty = || Share { request: number, ..Share::default() };
        if let Some((key, help)) = self.draw_metadata(tenant) {
            encoder.metadata(&Metadata {
                metric: key.1.clone(),
                kind: MetricKind::Gauge,
                help: help.clone(),
                unit: String::new(),
            });
            let partition = node.partition_of_metric(&key.1);
            shares.entry(partition).or_insert_with(empty).metadata.push((key, help));
        }
        for (series, samples) in &drawn {
            let labels = fleet.series[*series].as_ref();
            let (timestamps, values): (Vec<_>, Vec<_>) =
                samples.iter().map(|(t, bits)| (*t, f64::from_bits(*bits))).unzip();
            encoder.series(labels, &timestamps, &values);
            let share = shares.entry(node.partition_of(labels)).or_insert_with(empty);
            share.samples.extend(samples.iter().map(|(t, bits)| ((tenant, *series, *t), *bits)));
        }
        let samples: usize = drawn.values().map(Vec::len).sum();
        self.trace.note(format!("{samples} samples of {} series of {tenant}", drawn.len()));
        Request { tenant, body: encoder.finish().to_vec(), shares }
    }

    fn send(&mut self, node: &Stepped, fleet: &Fleet, request: &Request, now_ms: i64) {
        let shares = self.accepted(request, now_ms);
        shares.values().for_each(|share| self.model.send(share));
        match node.write(&fleet.tenants[request.tenant], request.body.clone()) {
            Ok(written) => {
                let asked: BTreeSet<_> = written.partitions().collect();
                let is_known = |partition: &usize| !asked.contains(partition);
                let (known, shares): (BTreeMap<_, _>, _) =
                    shares.into_iter().partition(|(partition, _)| is_known(partition));
                for share in known.values() {
                    assert!(share.samples.is_empty(), "BUG: no partition was given {share:x?}");
                    // metadata that is already durable is not sent to a partition again
                    self.model.acknowledge(share);
                }
                self.underway.push(Underway { written, shares });
            }
            Err(refusal) => {
                self.trace.note(refusal);
                shares.into_values().for_each(|share| self.model.leave_open(share));
            }
        }
    }

    /// The shares of a request without those samples that the node must refuse, because they are too old or
    /// too far ahead of its clock.
    fn accepted(&self, request: &Request, now_ms: i64) -> BTreeMap<usize, Share> {
        let earliest_ms = now_ms.saturating_sub(self.accepted_ms);
        let mut shares = request.shares.clone();
        for share in shares.values_mut() {
            share.samples.retain(|(key, _)| (earliest_ms..=now_ms + FUTURE_MS).contains(&key.2));
        }
        shares.retain(|_, share| !(share.samples.is_empty() && share.metadata.is_empty()));
        shares
    }

    fn draw_samples(&mut self, tenant: usize, series: usize, now_ms: i64) -> DrawnSamples {
        let mut drawn = DrawnSamples::new();
        let mut keys = BTreeSet::new();
        if self.load.backfill_days > 0 && self.rng.chance(0.2) {
            return self.draw_backfill(tenant, series, now_ms);
        }
        for _ in 0..1 + self.rng.below(self.load.samples) {
            let number = self.rng.below(series as u64) as usize;
            let key: Key = (tenant, number, (now_ms - self.draw_age_ms()).max(0));
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

    fn draw_backfill(&mut self, tenant: usize, series: usize, now_ms: i64) -> DrawnSamples {
        let number = self.rng.below(series as u64) as usize;
        let most = self.load.backfill_days;
        let days = if self.rng.chance(0.3) { most } else { 1 + self.rng.below(most) } as i64;
        let last_ms = now_ms - self.rng.below(self.load.span_ms) as i64;
        let at = |day: i64| (last_ms - (days - day) * DAY_MS).max(0);
        let times: BTreeSet<i64> = (1..=days).map(at).collect();
        let is_free = |timestamp_ms: &i64| !self.model.is_busy((tenant, number, *timestamp_ms));
        let times: Vec<_> = times.into_iter().filter(is_free).collect();
        let samples =
            times.into_iter().map(|t| (t, (self.rng.below(1000) as f64 / 10.0).to_bits())).collect();
        DrawnSamples::from([(number, samples)])
    }

    /// Draws the age of a sample. It is mostly a few seconds, and often close to the limit, if there is one.
    fn draw_age_ms(&mut self) -> i64 {
        let Load { span_ms, past_ms, .. } = self.load;
        let most = match (self.rng.below(10), past_ms) {
            (0..4, _) | (4..7, None) => 5000,
            (4..6, Some(past_ms)) => return past_ms + self.rng.below(5000) as i64 - 2500,
            (6, Some(past_ms)) => 4 * past_ms.unsigned_abs(),
            _ => span_ms,
        };
        self.rng.below(most) as i64
    }

    /// Draws metadata that differs from what was acknowledged. Returns `None` if a request without a result
    /// already has metadata of this metric.
    fn draw_metadata(&mut self, tenant: usize) -> Option<(MetadataKey, String)> {
        let metric = METRICS[self.rng.below(METRICS.len() as u64) as usize];
        let (key, help) = ((tenant, metric.to_string()), format!("{:x}", self.rng.below(100)));
        let is_news = self.model.metadata_of(&key) != Some(&help) && !self.model.is_metadata_busy(&key);
        (self.load.metadata && self.rng.chance(0.1) && is_news).then_some((key, help))
    }

    pub fn compare(&mut self, node: &Stepped, fleet: &Fleet) -> Result<(), String> {
        let found = check::found(node, fleet)?;
        self.clear_up(&found)?;
        self.model.settle_deletes(&found);
        self.model.check(&found)
    }

    pub fn collect_answers(&mut self, node: &Stepped, fleet: &Fleet) -> Result<(), String> {
        for mut underway in std::mem::take(&mut self.underway) {
            for (partition, answer) in underway.written.answers() {
                let share = underway.shares.remove(&partition).expect("BUG: the answer has no share");
                match answer {
                    Ok(outcome) => self.settle_outcome(share, &outcome)?,
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
        if self.unclear.is_empty() {
            return Ok(());
        }
        match check::found(node, fleet) {
            Ok(found) => self.clear_up(&found),
            // nothing can be read while the store or the power fails, so the next call tries again
            Err(_) => Ok(()),
        }
    }

    fn settle_outcome(&mut self, share: Share, outcome: &Outcome) -> Result<(), String> {
        let count = share.samples.len() as u64;
        self.trace.note(format!("{} of {count} stored", outcome.samples));
        if outcome.samples + outcome.refused_samples != count {
            return Err(format!("unexpected answer {outcome:?} to {share:x?}"));
        }
        match outcome.refused_samples {
            0 => self.model.acknowledge(&share),
            _ => self.unclear.push((share, outcome.samples)),
        }
        Ok(())
    }

    /// For each share that was stored only in part, finds out which of its samples were stored.
    fn clear_up(&mut self, found: &Found) -> Result<(), String> {
        let mut unclear = std::mem::take(&mut self.unclear).into_iter();
        unclear.try_for_each(|(share, stored)| self.model.acknowledge_some(&share, stored, found))
    }

    /// Requests without an answer will never get one, because the process has died.
    pub fn lose_connection(&mut self) {
        let unanswered =
            std::mem::take(&mut self.underway).into_iter().flat_map(|underway| underway.shares.into_values());
        let unclear = std::mem::take(&mut self.unclear).into_iter().map(|(share, _)| share);
        unanswered.chain(unclear).for_each(|share| self.model.leave_open(share));
    }
}
