//! Clients that query during the load.

use crate::drive::addresses::Addresses;
use crate::drive::send::sender::Times;
use crate::drive::stop::Stop;
use crate::drive::tally::{count, histogram, keep_first, record};
use crate::drive::tenants::Tenant;
use crate::http::{Answer, Client, Failure, percent};
use crate::result::ReadTotals;
use crate::scenario::import;
use crate::scenario::shape::Course;
use crate::scenario::{ReadMix, Scenario};
use bytes::Bytes;
use hdrhistogram::Histogram;
use hyper::Method;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use stdx::clock::{Clock, SystemClock};
use stdx::rng::mix;
use tokio::task::JoinSet;

/// A user that should not send queries at the moment checks again after this pause.
const ABSENT_PAUSE: Duration = Duration::from_millis(50);

/// Reads the dashboards and query logs that the scenario names, and adds their queries to its mixes.
pub(crate) fn import(scenario: &mut Scenario, folder: &Path) -> anyhow::Result<()> {
    for mix in &mut scenario.reads {
        if let Some(path) = mix.grafana.take() {
            let dashboard = import::grafana(&import::read(&folder.join(path))?)?;
            mix.queries.extend(dashboard.queries);
            for (name, values) in dashboard.variables {
                mix.variables.entry(name).or_insert(values);
            }
        }
        if let Some(path) = mix.query_log.take() {
            mix.queries.extend(import::query_log(&import::read(&folder.join(path))?)?);
        }
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Reading(Mutex<Counts>);

#[derive(Debug)]
pub(crate) struct Counts {
    /// Totals without the figures that are known only after the load.
    pub(crate) totals: ReadTotals,
    /// Latency of successful queries, from the scheduled start to the end of the answer.
    pub(crate) latency: Histogram<u64>,
    pub(crate) recent: Histogram<u64>,
}

impl Reading {
    fn new(name: String) -> Self {
        let totals = ReadTotals { name, ..ReadTotals::default() };
        Self(Mutex::new(Counts { totals, latency: histogram(), recent: histogram() }))
    }

    fn settle(&self, answer: Result<Answer, Failure>, intended: Instant) {
        let mut counts = self.lock();
        let Counts { totals, latency, recent } = &mut *counts;
        totals.queries += 1;
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                count(&mut totals.by_reason, failure.kind());
                keep_first(&mut totals.said, failure.kind(), || failure.to_string());
                return;
            }
        };
        count(&mut totals.by_reason, answer.status.as_str());
        if answer.status.is_success() {
            totals.succeeded += 1;
            totals.bytes += answer.body.len() as u64;
            totals.empty += u64::from(is_empty(&answer.body));
            record(latency, intended.elapsed());
            record(recent, intended.elapsed());
        } else {
            keep_first(&mut totals.said, answer.status.as_str(), || answer.text());
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("BUG: a reader panicked while counting")
    }
}

pub(crate) fn start(
    scenario: &Scenario,
    tenants: &[Tenant],
    addresses: &Addresses,
    times: Times,
    stop: &Stop,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Vec<Arc<Reading>>> {
    let course = Arc::new(scenario.course());
    let mut all = Vec::new();
    for (number, mix_spec) in scenario.reads.iter().enumerate() {
        let reading = Arc::new(Reading::new(mix_spec.name.clone()));
        let mix_spec = Arc::new(mix_spec.clone());
        let factor = if mix_spec.shaped { course.factor_max() } else { 1.0 };
        let users = (f64::from(mix_spec.users) * factor).ceil().max(1.0) as u32;
        for user in 0..users {
            let (client, before) = addresses.reader(&tenants[user as usize % tenants.len()])?;
            let user = User {
                user,
                users,
                seed: mix(scenario.seed ^ mix(number as u64) ^ u64::from(user) << 32),
                mix: Arc::clone(&mix_spec),
                course: Arc::clone(&course),
                client,
                before,
                reading: Arc::clone(&reading),
            };
            tasks.spawn(user.ask(times, stop.clone()));
        }
        all.push(reading);
    }
    Ok(all)
}

struct User {
    user: u32,
    users: u32,
    seed: u64,
    mix: Arc<ReadMix>,
    course: Arc<Course>,
    client: Client,
    before: String,
    reading: Arc<Reading>,
}

impl User {
    async fn ask(mut self, times: Times, stop: Stop) {
        for number in 0.. {
            let due = self.mix.rate.map(|rate| {
                let turn = f64::from(self.user) + number as f64 * f64::from(self.users);
                times.begin + Duration::from_secs_f64(turn / rate)
            });
            if let Some(due) = due {
                tokio::time::sleep_until(due.into()).await;
            }
            while !self.is_there(times) && times.end.is_some_and(|end| Instant::now() < end) {
                tokio::time::sleep(ABSENT_PAUSE).await;
            }
            if stop.is_set() || times.end.is_some_and(|end| due.unwrap_or_else(Instant::now) >= end) {
                return;
            }
            self.one(number, due.unwrap_or_else(Instant::now)).await;
            if !self.mix.think.0.is_zero() {
                tokio::time::sleep(self.mix.think.0).await;
            }
        }
    }

    fn is_there(&self, times: Times) -> bool {
        let factor =
            if self.mix.shaped { self.course.factor(times.begin.elapsed().as_secs_f64()) } else { 1.0 };
        f64::from(self.user) < f64::from(self.mix.users) * factor
    }

    async fn one(&mut self, number: u64, intended: Instant) {
        let question = self.mix.question(self.seed, number, SystemClock.now_ms());
        let seconds = |ms: i64| format!("{}.{:03}", ms.div_euclid(1000), ms.rem_euclid(1000));
        let path = match question.range_ms {
            Some((start, end, step)) => format!(
                "{}/api/v1/query_range?query={}&start={}&end={}&step={}",
                self.before,
                percent(&question.query),
                seconds(start),
                seconds(end),
                step as f64 / 1000.0
            ),
            None => format!(
                "{}/api/v1/query?query={}&time={}",
                self.before,
                percent(&question.query),
                seconds(question.end_ms)
            ),
        };
        let answer = self.client.send(Method::GET, &path, Bytes::new()).await;
        let broken = answer.is_err();
        self.reading.settle(answer, intended);
        if broken {
            // pause, because the target may be down
            tokio::time::sleep(ABSENT_PAUSE).await;
        }
    }
}

/// True if the answer to a query has no series. It looks only at short answers, because others have series.
fn is_empty(body: &[u8]) -> bool {
    body.len() < 300 && body.windows(11).any(|w| w == b"\"result\":[]")
}
