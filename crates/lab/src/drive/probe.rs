//! Measures freshness: the time from the acknowledgement of a sample until queries return it.

use crate::drive::addresses::Addresses;
use crate::drive::send::generated::{Acknowledged, Run};
use crate::drive::tally::{histogram, record};
use crate::drive::tenants::Tenant;
use crate::generate::plan::Plan;
use crate::http::{Client, percent};
use crate::scenario::{ReadApi, Scenario};
use crate::verify::{Answers, api_path, render};
use bytes::Bytes;
use hdrhistogram::Histogram;
use hyper::Method;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Number of probes that wait for samples at the same time.
const PROBES: usize = 4;

/// First pause between two queries for a sample. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(2);

const PAUSE_MAX: Duration = Duration::from_millis(100);

pub(crate) struct Channel {
    per_s: f64,
    sender: mpsc::Sender<Acknowledged>,
    receiver: mpsc::Receiver<Acknowledged>,
}

/// Creates a channel for `per_s` probes per second. It holds a single acknowledgement, because a probe is useful only
/// right after the acknowledgement.
pub(crate) fn channel(per_s: f64) -> Channel {
    let (sender, receiver) = mpsc::channel(1);
    Channel { per_s, sender, receiver }
}

#[derive(Debug)]
pub(crate) struct Probing(Mutex<Seen>);

#[derive(Debug)]
pub(crate) struct Seen {
    /// Time from the acknowledgement of a sample until the first answer that contained it. A sample that no answer
    /// contained in time counts as well, with the time for which the probe has waited.
    pub(crate) freshness: Histogram<u64>,
    /// Like `freshness`, but only since the last point of the timeline.
    pub(crate) recent: Histogram<u64>,
    /// Probed samples that the target did not return in time, although it answered the queries.
    pub(crate) invisible: u64,
    pub(crate) wrong: u64,
}

impl Probing {
    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().expect("BUG: a probe panicked while counting")
    }
}

impl Channel {
    /// Passes acknowledged requests to the probes. `None` if the scenario has no probes.
    pub(crate) fn sender(&self) -> Option<mpsc::Sender<Acknowledged>> {
        (self.per_s > 0.0).then(|| self.sender.clone())
    }

    pub(crate) fn start(
        self,
        scenario: &Scenario,
        runs: &[Arc<Run>],
        tenants: &[Tenant],
        addresses: &Addresses,
        tasks: &mut JoinSet<()>,
    ) -> Arc<Probing> {
        let seen = Seen { freshness: histogram(), recent: histogram(), invisible: 0, wrong: 0 };
        let probing = Arc::new(Probing(Mutex::new(seen)));
        if self.per_s <= 0.0 {
            return probing;
        }
        let pause = Duration::from_secs_f64(PROBES as f64 / self.per_s);
        let receiver = Arc::new(tokio::sync::Mutex::new(self.receiver));
        for _ in 0..PROBES {
            let clients: Vec<(Client, String)> =
                tenants.iter().filter_map(|tenant| addresses.reader(tenant).ok()).collect();
            let probe = Probe {
                clients,
                runs: runs.to_vec(),
                patience: scenario.verify.invisible_after.0,
                tolerance: scenario.verify.tolerance,
                answers: Answers { api: scenario.read_api(), step_ms: scenario.read_step_ms() },
                probing: Arc::clone(&probing),
            };
            let receiver = Arc::clone(&receiver);
            tasks.spawn(probe.run(receiver, pause));
        }
        probing
    }
}

struct Probe {
    clients: Vec<(Client, String)>,
    runs: Vec<Arc<Run>>,
    patience: Duration,
    tolerance: f64,
    answers: Answers,
    probing: Arc<Probing>,
}

impl Probe {
    async fn run(mut self, receiver: Arc<tokio::sync::Mutex<mpsc::Receiver<Acknowledged>>>, pause: Duration) {
        loop {
            let acknowledged = {
                let mut receiver = receiver.lock().await;
                // acknowledgements that waited in the channel are too old
                while receiver.try_recv().is_ok() {}
                let Some(acknowledged) = receiver.recv().await else { return };
                acknowledged
            };
            let begin = Instant::now();
            self.find(acknowledged).await;
            tokio::time::sleep(pause.saturating_sub(begin.elapsed())).await;
        }
    }

    /// Queries one sample of an acknowledged request until an answer contains it.
    async fn find(&mut self, acknowledged: Acknowledged) {
        let Acknowledged { tenant, slot, round, at } = acknowledged;
        let tenant = tenant as usize;
        let run = Arc::clone(&self.runs[tenant]);
        let plan = &run.plan;
        let (target, metric) = plan.series_at(slot, slot.len - 1);
        let generation = plan.generation(target, round);
        let shown = Shown::of(plan, self.answers, (target, generation, metric), round);
        let answers = self.answers;
        let stamp = answers.stamp_ms(plan.timestamp_ms(target, round));
        let (client, before) = &mut self.clients[tenant];
        let question = question(before, answers, plan, (target, generation, metric), round);
        let mut pause = PAUSE_MIN;
        let mut waiting = Waiting { probing: Arc::clone(&self.probing), at, answered: false, settled: false };
        while at.elapsed() < self.patience && !run.lane.stop.is_set() {
            if let Ok(answer) = client.send(Method::GET, &question, Bytes::new()).await
                && answer.status.is_success()
                && let Ok(series) = answers.parse(&answer.body)
            {
                waiting.answered = true;
                let values = series.iter().flat_map(|series| &series.values);
                let mut found = values.filter(|(s, _)| (s * 1000.0).round() as i64 == stamp).map(|(_, v)| v);
                let sight = found.next_back().map_or(Sight::Hidden, |value| shown.by(value, self.tolerance));
                if sight != Sight::Hidden {
                    waiting.settled = true;
                    let mut seen = self.probing.lock();
                    seen.saw(at.elapsed());
                    seen.wrong += u64::from(sight == Sight::Wrong);
                    return;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        waiting.settled = true;
        // if the target answered no query at all, it is down rather than slow, and other figures show that
        if waiting.answered && !run.lane.stop.is_set() {
            let mut seen = self.probing.lock();
            seen.invisible += 1;
            seen.saw(self.patience);
        }
    }
}

impl Seen {
    fn saw(&mut self, after: Duration) {
        record(&mut self.freshness, after);
        record(&mut self.recent, after);
    }
}

/// A sample that a probe waits for. If the load ends meanwhile, it has been invisible for at least the time so far.
struct Waiting {
    probing: Arc<Probing>,
    at: Instant,
    /// True if the target has answered a query.
    answered: bool,
    settled: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let waited = self.at.elapsed();
        if self.settled || !self.answered {
            return;
        }
        let mut seen = self.probing.lock();
        // a shorter wait says nothing
        if waited.as_micros() > u128::from(seen.freshness.max()) {
            seen.saw(waited);
        }
    }
}

/// Values that show that a sample is visible.
#[derive(Debug)]
struct Shown {
    /// Value of the sample, and of the later samples in its slot, which take its place.
    values: Vec<f64>,
    /// True if samples share slots. Until a sample arrives, its slot may hold an earlier one.
    is_shared: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Sight {
    Hidden,
    Right,
    Wrong,
}

impl Shown {
    fn of(plan: &Plan, answers: Answers, (target, generation, metric): (u64, u64, u32), round: u32) -> Self {
        let key = plan.target_key(target, generation);
        let stamp = |round| answers.stamp_ms(plan.timestamp_ms(target, round));
        let is_alike = |other: &u32| {
            stamp(*other) == stamp(round)
                && plan.generation(target, *other) == generation
                && plan.metric_generation(*other) == plan.metric_generation(round)
        };
        let rounds = (round..plan.rounds_max.max(round + 1)).take_while(is_alike);
        Self {
            values: rounds.map(|round| plan.value(key, metric, round)).collect(),
            is_shared: answers.step_ms > u64::from(plan.interval_ms),
        }
    }

    fn by(&self, text: &str, tolerance: f64) -> Sight {
        let is_right = |value: f64| {
            self.values.iter().any(|sent| {
                value.to_bits() == sent.to_bits() || (value - sent).abs() <= sent.abs() * tolerance
            })
        };
        match text.parse().is_ok_and(is_right) {
            true => Sight::Right,
            false if self.is_shared => Sight::Hidden,
            false => Sight::Wrong,
        }
    }
}

/// Path and parameters of a query for one sample.
fn question(
    before: &str,
    answers: Answers,
    plan: &Plan,
    (target, generation, metric): (u64, u64, u32),
    round: u32,
) -> String {
    let fleet = &plan.fleet;
    let name = fleet.metric_name(metric, plan.metric_generation(round));
    let full = fleet.series_name(target, generation, &name);
    let stamp = plan.timestamp_ms(target, round);
    let path = api_path(answers.api);
    match answers.api {
        ReadApi::Promql => {
            // the label `pod` is unique, so that it identifies a target
            let labels = fleet.target_labels(target, generation);
            let pod = labels.into_iter().find(|(name, _)| name == "pod");
            let matcher = pod.map(|(_, pod)| format!(",pod=\"{pod}\"")).unwrap_or_default();
            let selector = format!("{{__name__=\"{full}\"{matcher}}}[1ms]");
            let time = format!("{}.{:03}", stamp / 1000, stamp % 1000);
            format!("{before}{path}?query={}&time={time}&nocache=1", percent(&selector))
        }
        ReadApi::Render => {
            let series = render::one(plan, (target, generation, metric), round);
            let slot_ms = answers.stamp_ms(stamp);
            format!("{before}{path}?{}", render::form(&series, slot_ms, slot_ms))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::plan::tests::small;

    #[test]
    fn later_samples_of_a_slot_show_that_a_sample_was_visible() {
        // a slot has four rounds of 15 s
        let plan = Plan { values: crate::generate::values::ValueModel::Random, ..small() };
        let answers = |step_ms| Answers { api: ReadApi::Render, step_ms };
        let (target, first) = (17, (0..).find(|round| plan.tick(*round).is_multiple_of(4)).unwrap());
        let value = |round| plan.value(plan.target_key(target, 0), 2, round).to_string();
        let shown = Shown::of(&plan, answers(60_000), (target, 0, 2), first + 1);
        let sights = (first..first + 5).map(|round| shown.by(&value(round), 0.0)).collect::<Vec<_>>();
        assert_eq!(sights, [Sight::Hidden, Sight::Right, Sight::Right, Sight::Right, Sight::Hidden]);
        let alone = Shown::of(&plan, answers(15_000), (target, 0, 2), first + 1);
        assert_eq!(alone.by(&value(first + 1), 0.0), Sight::Right);
        assert_eq!(alone.by(&value(first + 2), 0.0), Sight::Wrong);
        assert_eq!(alone.by("nonsense", 0.0), Sight::Wrong);
    }
}
