//! Reads values whose times are those of the target.

use super::{Value, place};
use crate::generate::plan::Plan;
use crate::http::{Client, percent};
use crate::scenario::ReadApi;
use crate::verify::api_path;
use crate::verify::check::Checker;
use crate::verify::promql::{self, QUERY_TYPE, Series, Unanswered};
use crate::verify::queries::{Queries, Query};
use anyhow::{Result, anyhow};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A query for a longer time is divided by its time before it is divided by its series.
const SHORT_MS: i64 = 1_000;

/// If this many queries in a row were not answered in time, the target is gone.
const TOO_SLOW_MAX: u32 = 4;

/// Foreign series are told apart up to this number.
const FOREIGN_MAX: usize = 1_000_000;

/// First and last time of a query, in ms since 1970.
pub(super) type Times = (i64, i64);

pub(crate) struct Reader {
    client: Client,
    path: String,
    pub(super) queries: Queries,
    checker: Checker,
    /// Hashes of series that answers had, and that are not of the plan.
    foreign: HashSet<u64>,
    /// How many queries were sent.
    pub(super) asked: u64,
}

impl Reader {
    /// `path` is the prefix of the path of queries.
    pub(crate) fn new(mut client: Client, path: &str, plan: &Plan, page_samples: u64) -> Self {
        client.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(QUERY_TYPE));
        let path = path.to_owned() + api_path(ReadApi::Promql);
        let (queries, checker) = (Queries::new(plan, 1, page_samples, 1), Checker::new());
        Self { client, path, queries, checker, foreign: HashSet::new(), asked: 0 }
    }

    /// All values of the plan's series from the first time to the second, both in ms.
    pub(crate) async fn all(&mut self, plan: &Plan, from_ms: i64, to_ms: i64) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for number in 0..self.queries.len() {
            if let Some(query) = self.queries.get(plan, number) {
                all.extend(self.read(plan, query, (from_ms, to_ms)).await?);
            }
        }
        Ok(all)
    }

    /// The values of a query. If the target refuses the query for its size, its parts are asked for.
    pub(super) async fn read(&mut self, plan: &Plan, query: Query, times: Times) -> Result<Vec<Value>> {
        let (mut all, mut open, mut too_slow) = (Vec::new(), vec![(query, times)], 0);
        while let Some((query, times)) = open.pop() {
            match self.ask(plan, &query, times).await {
                Ok(values) => {
                    too_slow = 0;
                    all.extend(values);
                }
                Err(Unanswered::Failed(why)) => return Err(why),
                Err(Unanswered::TooMuch { why, is_slow }) => {
                    too_slow = if is_slow { too_slow + 1 } else { 0 };
                    let parts = divide(plan, &query, times);
                    if parts.is_empty() || too_slow == TOO_SLOW_MAX {
                        return Err(why);
                    }
                    open.extend(parts);
                }
            }
        }
        Ok(all)
    }

    async fn ask(&mut self, plan: &Plan, query: &Query, times: Times) -> Result<Vec<Value>, Unanswered> {
        self.asked += 1;
        let (from_ms, to_ms) = times;
        let range = format!("{}[{}ms]", query.selector(plan), to_ms - from_ms + 1);
        let time = format!("{}.{:03}", to_ms / 1000, to_ms % 1000);
        let form = format!("query={}&time={time}&nocache=1", percent(&range));
        let body = promql::ask(&mut self.client, &self.path, &form).await?;
        self.values(plan, query, times, &body).map_err(Unanswered::Failed)
    }

    fn values(&mut self, plan: &Plan, query: &Query, times: Times, body: &[u8]) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for series in promql::parse(body)? {
            let known = self.checker.find(plan, query, &series);
            let Some((slot, index)) = known.and_then(|found| place(plan, found.target, found.metric)) else {
                self.note_foreign(&series);
                continue;
            };
            for (seconds, text) in &series.values {
                let at_ms = (seconds * 1000.0).round() as i64;
                let value = text.parse().map_err(|_| anyhow!("the value {text:?} is not a number"))?;
                if (times.0..=times.1).contains(&at_ms) {
                    values.push(Value { slot, index, at_ms, value });
                }
            }
        }
        Ok(values)
    }

    fn note_foreign(&mut self, series: &Series<'_>) {
        if self.foreign.len() < FOREIGN_MAX {
            let mut hasher = DefaultHasher::new();
            series.metric.hash(&mut hasher);
            self.foreign.insert(hasher.finish());
        }
    }

    /// Number of different series in answers that are not of the plan.
    pub(super) fn foreign_series(&self) -> u64 {
        self.foreign.len() as u64
    }
}

/// Parts of a query, each with its times. Empty if it is for one series, or for series that cannot be told apart, at one
/// time.
fn divide(plan: &Plan, query: &Query, times: Times) -> Vec<(Query, Times)> {
    let (from_ms, to_ms) = times;
    if to_ms - from_ms < SHORT_MS {
        let parts = query.split(plan);
        if !parts.is_empty() {
            return parts.into_iter().map(|part| (part, times)).collect();
        }
    }
    if to_ms <= from_ms {
        return Vec::new();
    }
    let middle = from_ms + (to_ms - from_ms) / 2;
    vec![(query.clone(), (from_ms, middle)), (query.clone(), (middle + 1, to_ms))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::plan::tests::small;
    use std::collections::BTreeSet;

    #[test]
    fn the_parts_of_a_query_have_each_series_at_each_time_once() {
        let plan = small();
        let query = Queries::new(&plan, 1, 1_000_000, 1).get(&plan, 0).unwrap();
        let (mut open, mut seen) = (vec![(query, (1_000, 1_002))], BTreeSet::new());
        let mut longest = vec![(open[0].0.clone(), (0, 60_000))];
        while let Some((query, times)) = longest.pop() {
            if times.1 - times.0 >= SHORT_MS {
                let parts = divide(&plan, &query, times);
                assert!(parts.len() == 2 && parts.iter().all(|(part, _)| *part == query));
                longest.extend(parts);
            }
        }
        while let Some((query, times)) = open.pop() {
            let parts = divide(&plan, &query, times);
            if parts.is_empty() {
                let targets: Vec<u64> = query.targets.iter(&plan).collect();
                assert_eq!((targets.len(), query.names.len(), times.0), (1, 1, times.1));
                assert!(seen.insert((targets[0], query.names[0].clone(), times.0)));
            }
            open.extend(parts);
        }
        assert_eq!(seen.len() as u64, plan.series() * 3);
    }
}
