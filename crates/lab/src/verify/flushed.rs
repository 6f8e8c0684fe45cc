//! The ledger of a target that stores values at times of its own, as those of statsd do.
//!
//! ```text
//!   gauges in datagrams ─▶ target ─▶ at the end of its interval: the last value of each gauge, with the time of the end
//!   during the load:   queries ─▶ each value is that of a round that was sent   ─▶ owed, once it is old enough
//!   later:             queries ─▶ each owed value is still there, bit by bit
//! ```
//!
//! A datagram has no answer. So a value is owed only once a query has returned it, and a promised time has passed since
//! the end of its interval.

use super::check::{Checker, Example, Fault, Found, name_of};
use super::promql::{self, QUERY_TYPE, Unanswered};
use super::queries::{Queries, Query};
use super::{VerifyOptions, VerifyReport, api_path};
use crate::generate::plan::Plan;
use crate::http::{Client, Endpoint, headers, percent};
use crate::scenario::ReadApi;
use crate::show::progress::{Observer, Phase, Progress};
use crate::verify::ledger::Ledger;
use anyhow::{Context, Result, anyhow};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// Missing values are asked for again after this pause, as long as the patience lasts.
const LATE_PAUSE: Duration = Duration::from_millis(200);

/// What queries have returned of the values that a target stores at times of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// Of each slot, in the order of their times.
    slots: Vec<Vec<Flush>>,
    /// Values that had not been sent before they were stored.
    pub wrong: u64,
    /// Values after which another one had been sent in time. A datagram was lost, or the target was behind.
    pub stale: u64,
}

/// The values of a slot's series at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Flush {
    at_ms: i64,
    /// The rounds whose values the series have, one after the other: for how many series, and the round, or none if no
    /// right value was returned.
    rounds: Vec<(u32, Option<u32>)>,
}

impl Flush {
    fn of(at_ms: i64, rounds: &[Option<u32>]) -> Self {
        let mut runs: Vec<(u32, Option<u32>)> = Vec::new();
        for round in rounds {
            match runs.last_mut() {
                Some((count, last)) if last == round => *count += 1,
                _ => runs.push((1, *round)),
            }
        }
        Self { at_ms, rounds: runs }
    }

    fn round_of(&self, index: u32) -> Option<u32> {
        let mut before = 0;
        let run = self.rounds.iter().find(|(count, _)| {
            before += count;
            index < before
        });
        run.and_then(|(_, round)| *round)
    }

    fn owed(&self) -> u64 {
        self.rounds.iter().filter(|(_, round)| round.is_some()).map(|(count, _)| u64::from(*count)).sum()
    }
}

/// A series as its place in the plan: the slot, and the index within the slot.
fn place(plan: &Plan, target: u64, metric: u32) -> Option<(usize, u32)> {
    let slot = plan.slot_of(target, metric)?;
    let range = plan.slot(slot);
    let within = (target - plan.first_target(range.writer)) * u64::from(plan.metrics) + u64::from(metric);
    Some((slot, (within - range.first) as u32))
}

/// What the sender knows of a value of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The value of this round.
    Round(u32),
    /// The value of an earlier round than the target must have had at that time.
    Stale(u32),
    Never,
}

/// A value that a query has returned: the slot of its series, the index within the slot, its time, and its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value {
    pub(crate) slot: usize,
    pub(crate) index: u32,
    pub(crate) at_ms: i64,
    pub(crate) value: f64,
}

impl Flushed {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { slots: vec![Vec::new(); plan.slots_count()], wrong: 0, stale: 0 }
    }

    /// Notes values that are later than all that were noted before. `sent` says what is known of each.
    pub(crate) fn note(&mut self, plan: &Plan, values: &[Value], sent: impl Fn(Value) -> Sent) {
        let mut flushes: BTreeMap<(usize, i64), Vec<Option<u32>>> = BTreeMap::new();
        for value in values {
            let len = plan.slot(value.slot).len as usize;
            let rounds = flushes.entry((value.slot, value.at_ms)).or_insert_with(|| vec![None; len]);
            rounds[value.index as usize] = match sent(*value) {
                Sent::Round(round) => Some(round),
                Sent::Stale(round) => {
                    self.stale += 1;
                    Some(round)
                }
                Sent::Never => {
                    self.wrong += 1;
                    None
                }
            };
        }
        for ((slot, at_ms), rounds) in flushes {
            self.slots[slot].push(Flush::of(at_ms, &rounds));
        }
    }

    /// Number of values that are owed.
    pub fn owed(&self) -> u64 {
        self.slots.iter().flatten().map(Flush::owed).sum()
    }

    /// Fails if the slots are not those of the plan.
    pub(super) fn check(&self, plan: &Plan) -> Result<()> {
        let fits = self.slots.len() == plan.slots_count()
            && self.slots.iter().enumerate().all(|(slot, flushes)| {
                let len = u64::from(plan.slot(slot).len);
                let in_order = flushes.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms);
                let counts =
                    |flush: &Flush| flush.rounds.iter().map(|(count, _)| u64::from(*count)).sum::<u64>();
                in_order && flushes.iter().all(|flush| counts(flush) == len)
            });
        anyhow::ensure!(fits, "the values that the target has stored are not those of the plan");
        Ok(())
    }

    fn round_of(&self, (slot, index): (usize, u32), at_ms: i64) -> Option<u32> {
        let flushes = &self.slots[slot];
        let at = flushes.binary_search_by_key(&at_ms, |flush| flush.at_ms).ok()?;
        flushes[at].round_of(index)
    }

    /// All times, in ascending order.
    fn times(&self) -> Vec<i64> {
        let mut times: Vec<i64> = self.slots.iter().flatten().map(|flush| flush.at_ms).collect();
        times.sort_unstable();
        times.dedup();
        times
    }
}

/// Reads values whose times are those of the target.
pub(crate) struct Reader {
    client: Client,
    path: String,
    queries: Queries,
    checker: Checker,
}

impl Reader {
    /// `path` is the prefix of the path of queries.
    pub(crate) fn new(mut client: Client, path: &str, plan: &Plan, page_samples: u64) -> Self {
        client.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(QUERY_TYPE));
        let path = path.to_owned() + api_path(ReadApi::Promql);
        Self { client, path, queries: Queries::new(plan, 1, page_samples, 1), checker: Checker::new() }
    }

    /// All values of the plan's series from the first time to the second, both in ms, and how many series are foreign.
    pub(crate) async fn all(&mut self, plan: &Plan, from_ms: i64, to_ms: i64) -> Result<(Vec<Value>, u64)> {
        let (mut all, mut foreign) = (Vec::new(), 0);
        for number in 0..self.queries.len() {
            if let Some(query) = self.queries.get(plan, number) {
                let (values, others) = self.ask(plan, &query, from_ms, to_ms).await?;
                all.extend(values);
                foreign += others;
            }
        }
        Ok((all, foreign))
    }

    async fn ask(
        &mut self,
        plan: &Plan,
        query: &Query,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<(Vec<Value>, u64)> {
        let range = format!("{}[{}ms]", query.selector(plan), to_ms - from_ms + 1);
        let time = format!("{}.{:03}", to_ms / 1000, to_ms % 1000);
        let form = format!("query={}&time={time}&nocache=1", percent(&range));
        let body = match promql::ask(&mut self.client, &self.path, &form).await {
            Ok(body) => body,
            Err(Unanswered::Failed(why) | Unanswered::TooMuch { why, .. }) => return Err(why),
        };
        let (mut values, mut foreign) = (Vec::new(), 0);
        for series in promql::parse(&body)? {
            let known = self.checker.find(plan, query, &series);
            let Some((slot, index)) = known.and_then(|found| place(plan, found.target, found.metric)) else {
                foreign += 1;
                continue;
            };
            for (seconds, text) in &series.values {
                let at_ms = (seconds * 1000.0).round() as i64;
                let value = text.parse().map_err(|_| anyhow!("the value {text:?} is not a number"))?;
                if (from_ms..=to_ms).contains(&at_ms) {
                    values.push(Value { slot, index, at_ms, value });
                }
            }
        }
        Ok((values, foreign))
    }
}

/// Reads back all values that the target owes.
pub(super) async fn verify(
    options: &VerifyOptions,
    ledger: &Ledger,
    flushed: &Flushed,
    observer: &dyn Observer,
) -> Result<VerifyReport> {
    let begin = Instant::now();
    let endpoint = Endpoint::resolve(&options.read_url, &options.access).await?;
    let path = endpoint.path().trim_end_matches('/').to_owned();
    let client = Client::new(endpoint, headers(&options.headers)?, options.timeout)
        .with_answers_of(options.answer_bytes_max);
    let plan = &ledger.plan;
    let mut reader = Reader::new(client, &path, plan, options.page_samples);
    let times = flushed.times();
    let mut report = VerifyReport {
        acknowledged: flushed.owed(),
        wrong: flushed.wrong,
        stale: flushed.stale,
        ..VerifyReport::default()
    };
    for number in 0..reader.queries.len() {
        let Some(query) = reader.queries.get(plan, number) else { continue };
        let series = query.targets.len(plan) * query.metrics.len() as u64;
        let step = (options.page_samples / series.max(1)).max(1) as usize;
        for times in times.chunks(step) {
            let page = Page { ledger, flushed, query: &query, times, options };
            let mut found = page
                .read(&mut reader)
                .await
                .with_context(|| format!("cannot read back from {}", options.read_url))?;
            let lost_at_first = found.lost;
            while found.lost > 0 && begin.elapsed() < options.patience {
                tokio::time::sleep(LATE_PAUSE).await;
                found = page.read(&mut reader).await?;
            }
            report.late += lost_at_first.saturating_sub(found.lost);
            report.join(&found, options.examples_max);
        }
        observer.progress(&Progress {
            phase: Phase::Verifying,
            part: (number + 1) as f64 / reader.queries.len() as f64,
            elapsed: begin.elapsed(),
            samples: report.read_back,
            samples_per_s: report.read_back as f64 / begin.elapsed().as_secs_f64().max(1e-3),
            p99_s: None,
            refused: report.faults(),
            broken: 0,
        });
    }
    report.wall_s = begin.elapsed().as_secs_f64();
    let checked = report.read_back + report.lost;
    assert_eq!(report.acknowledged, checked, "BUG: some owed values were never queried");
    Ok(report)
}

/// Some series at some times.
struct Page<'a> {
    ledger: &'a Ledger,
    flushed: &'a Flushed,
    query: &'a Query,
    times: &'a [i64],
    options: &'a VerifyOptions,
}

impl Page<'_> {
    async fn read(&self, reader: &mut Reader) -> Result<VerifyReport> {
        let plan = &self.ledger.plan;
        let (Some(first_ms), Some(last_ms)) = (self.times.first(), self.times.last()) else {
            return Ok(VerifyReport::default());
        };
        let (values, foreign_series) = reader.ask(plan, self.query, *first_ms, *last_ms).await?;
        let mut report = VerifyReport { foreign_series, queries: 1, ..VerifyReport::default() };
        let mut seen = HashSet::new();
        for value in &values {
            self.compare(*value, &mut report);
            seen.insert((value.slot, value.index, value.at_ms));
        }
        for target in self.query.targets.iter(plan) {
            for metric in self.query.metrics.clone() {
                let place = place(plan, target, metric).expect("BUG: a target of the plan has a slot");
                for at_ms in self.times {
                    if let Some(round) = self.flushed.round_of(place, *at_ms)
                        && !seen.contains(&(place.0, place.1, *at_ms))
                    {
                        report.lost += 1;
                        let sent = self.value_of(place, round);
                        self.example(&mut report, (Fault::Lost, place, *at_ms), Some(sent), None);
                    }
                }
            }
        }
        Ok(report)
    }

    fn compare(&self, found: Value, report: &mut VerifyReport) {
        let place = (found.slot, found.index);
        let Some(round) = self.flushed.round_of(place, found.at_ms) else {
            // stored after the last query during the load, or wrong and counted then
            report.unacknowledged += 1;
            return;
        };
        report.read_back += 1;
        let sent = self.value_of(place, round);
        if sent.to_bits() == found.value.to_bits() {
            return;
        }
        if (found.value - sent).abs() <= sent.abs() * self.options.tolerance {
            report.rounded += 1;
        } else {
            report.wrong += 1;
            let about = (Fault::Wrong, place, found.at_ms);
            self.example(report, about, Some(sent), Some(found.value));
        }
    }

    fn value_of(&self, (slot, index): (usize, u32), round: u32) -> f64 {
        value_of(&self.ledger.plan, slot, index, round)
    }

    fn example(
        &self,
        report: &mut VerifyReport,
        (fault, (slot, index), timestamp_ms): (Fault, (usize, u32), i64),
        sent: Option<f64>,
        found: Option<f64>,
    ) {
        let alike = report.examples.iter().filter(|example| example.fault == fault).count();
        if alike < self.options.examples_max {
            let plan = &self.ledger.plan;
            let (target, metric) = plan.series_at(plan.slot(slot), index);
            let series = name_of(plan, Found { target, generation: 0, metric }, 0);
            report.examples.push(Example { fault, series, timestamp_ms, sent, found });
        }
    }
}

/// Value of a series in a round. Series of such targets are never replaced.
pub(crate) fn value_of(plan: &Plan, slot: usize, index: u32, round: u32) -> f64 {
    let (target, metric) = plan.series_at(plan.slot(slot), index);
    plan.value(plan.target_key(target, 0), metric, round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::plan::tests::small;

    #[test]
    fn rounds_are_kept_by_series() {
        let plan = small();
        let mut flushed = Flushed::new(&plan);
        let value = |index, at_ms| Value { slot: 1, index, at_ms, value: f64::from(index) };
        let sent = |value: Value| match value.index {
            0..3 => Sent::Round(7),
            3 => Sent::Stale(6),
            _ => Sent::Never,
        };
        flushed.note(&plan, &[value(0, 10), value(2, 10), value(3, 10), value(4, 10), value(1, 20)], sent);
        flushed.note(&plan, &[value(7, 30)], |_| Sent::Round(9));
        assert_eq!((flushed.owed(), flushed.wrong, flushed.stale), (5, 1, 1));
        let found = |at_ms| (0..8).map(|index| flushed.round_of((1, index), at_ms)).collect::<Vec<_>>();
        assert_eq!(found(10), [Some(7), None, Some(7), Some(6), None, None, None, None]);
        assert_eq!(found(20), [None, Some(7), None, None, None, None, None, None]);
        assert_eq!(found(30).last(), Some(&Some(9)));
        assert_eq!((found(15), flushed.times()), (vec![None; 8], vec![10, 20, 30]));
        let json = serde_json::to_string(&flushed).unwrap();
        let read: Flushed = serde_json::from_str(&json).unwrap();
        assert_eq!(read, flushed);
        read.check(&plan).unwrap();
        assert!(read.check(&Plan { batch: 7, ..plan.clone() }).is_err());
        for slot in 0..plan.slots_count() {
            for index in 0..plan.slot(slot).len {
                let (target, metric) = plan.series_at(plan.slot(slot), index);
                assert_eq!(place(&plan, target, metric), Some((slot, index)));
            }
        }
    }
}
