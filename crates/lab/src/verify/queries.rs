//! Divides the samples to be read back into queries, none of which returns too many samples.

use super::targets::Targets;
use crate::generate::naming::Naming;
use crate::generate::plan::Plan;
use std::ops::Range;

/// Maximum number of metric names in a query. VictoriaMetrics is slow to match more than 100 (`maxOrValues`), and
/// Prometheus more than 256 (`maxSetMatches`).
const NAMES_MAX: u32 = 100;

/// Maximum length of all metric names in a query. VictoriaMetrics accepts queries of up to 16 KiB
/// (`-search.maxQueryLen`).
const NAMES_BYTES_MAX: usize = 12 << 10;

/// With fewer series in a query, the cost of the query itself outweighs that of its series.
const SERIES_MIN: u64 = 10_000;

/// A query for the samples of some metrics of some targets in some rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    /// Metrics that share a name, such as the buckets of a histogram, are always in the same query.
    pub(super) metrics: Range<u32>,
    /// Rounds in which the metrics have the same names.
    pub(super) rounds: Range<u32>,
    pub(super) targets: Targets,
    /// Names of the metrics, without the paths of targets.
    pub(super) names: Vec<String>,
    /// See [`super::VerifyOptions::step_ms`]. A query never ends within a slot.
    step_ms: u64,
}

#[derive(Debug)]
pub(super) struct Queries {
    chunks: Vec<Chunk>,
    metrics: u32,
    /// All targets. Each query is for one part of them.
    parts: Vec<Targets>,
    step_ms: u64,
    len: u64,
}

/// Rounds within which metric names do not change.
#[derive(Debug)]
struct Chunk {
    rounds: Range<u32>,
    step: u32,
    first: u64,
}

impl Queries {
    /// Divides the first `rounds` rounds into queries, each of which returns about `samples_max` samples. Samples in the
    /// same slot of `step_ms` belong to the same query, and only one of them is returned.
    pub(super) fn new(plan: &Plan, rounds: u32, samples_max: u64, step_ms: u64) -> Self {
        // maximum number of series that have the same target and the same name
        let alike = plan.fleet.histograms.alike_max();
        let slot_rounds = slot_rounds(plan, step_ms);
        let slots = u64::from(rounds.div_ceil(slot_rounds)).max(1);
        // the server finds each series again for each query, so that a query preferably has all of its samples
        let series_max = (samples_max / slots).max(SERIES_MIN).min(samples_max);
        let parts = Targets::divide(plan, series_max / u64::from(alike));
        let targets = parts.iter().map(|part| part.len(plan)).max().unwrap_or(0);
        let series = (targets * u64::from(alike)).max(1);
        let narrow = |n: u64| u32::try_from(n.max(1)).unwrap_or(u32::MAX);
        let step = narrow(samples_max / series).saturating_mul(slot_rounds);
        let mut queries = Self { chunks: Vec::new(), metrics: plan.metrics, parts, step_ms, len: 0 };
        let mut begin = 0;
        while begin < rounds {
            let mut end = whole_slots(plan, begin, begin.saturating_add(step), step_ms).min(rounds);
            if let Some(ticks) = plan.metric_churn_ticks {
                // names change at the next renaming, so the chunk ends there
                let left = ticks - plan.tick(begin) % ticks;
                end = end.min(begin.saturating_add(u32::try_from(left).unwrap_or(u32::MAX)));
            }
            let names = samples_max / (series * u64::from((end - begin).div_ceil(slot_rounds)));
            let names = narrow(names).min(names_max(plan, begin));
            queries.push(begin..end, names.saturating_mul(alike));
            begin = end;
        }
        queries
    }

    fn push(&mut self, rounds: Range<u32>, step: u32) {
        self.chunks.push(Chunk { rounds, step, first: self.len });
        self.len += u64::from(self.metrics.div_ceil(step)) * self.parts.len() as u64;
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the query with this number, which may turn out to have no metrics. Queries for the same rounds have
    /// consecutive numbers.
    pub(super) fn get(&self, plan: &Plan, number: u64) -> Option<Query> {
        if number >= self.len {
            return None;
        }
        let chunk = &self.chunks[self.chunks.partition_point(|chunk| chunk.first <= number) - 1];
        let within = number - chunk.first;
        let steps = u64::from(self.metrics.div_ceil(chunk.step));
        let (part, step) = (&self.parts[(within / steps) as usize], (within % steps) as u32);
        // metrics with the same name belong to the query that contains the first of them
        let cut = |step: u32| {
            let edge = chunk.step.saturating_mul(step).min(self.metrics);
            if edge == self.metrics { edge } else { plan.fleet.histograms.first_alike(edge) }
        };
        let metrics = cut(step)..cut(step + 1);
        let generation = plan.metric_generation(chunk.rounds.start);
        let mut names: Vec<String> =
            metrics.clone().map(|metric| plan.fleet.metric_name(metric, generation)).collect();
        names.dedup();
        let (rounds, step_ms) = (chunk.rounds.clone(), self.step_ms);
        Some(Query { metrics, rounds, targets: part.clone(), names, step_ms })
    }
}

/// Moves the end of some rounds to the end of a slot: to an earlier one, or else to the first.
fn whole_slots(plan: &Plan, begin: u32, end: u32, step_ms: u64) -> u32 {
    let slot_rounds = slot_rounds(plan, step_ms);
    let within = |round: u32| (plan.tick(round) % u64::from(slot_rounds)) as u32;
    let earlier = end - within(end).min(end);
    if earlier > begin { earlier } else { begin.saturating_add(slot_rounds - within(begin)) }
}

/// Number of rounds whose samples are in one slot.
fn slot_rounds(plan: &Plan, step_ms: u64) -> u32 {
    u32::try_from(step_ms / u64::from(plan.interval_ms)).unwrap_or(u32::MAX).max(1)
}

impl Query {
    /// Divides the query: first its names, then its targets, then its rounds. Empty if it has one name of one target in
    /// one slot, or if its targets cannot be told apart.
    pub(super) fn split(&self, plan: &Plan) -> Vec<Self> {
        let (mut first, mut second) = (self.clone(), self.clone());
        let middle = self.names.len() / 2;
        if middle > 0 {
            let histograms = plan.fleet.histograms;
            let mut begins = self.metrics.clone().filter(|metric| histograms.first_alike(*metric) == *metric);
            let cut = begins.nth(middle).expect("BUG: a query has more names than metrics");
            (first.metrics.end, second.metrics.start) = (cut, cut);
            second.names = first.names.split_off(middle);
            return vec![first, second];
        }
        let parts = self.targets.split(plan);
        if !parts.is_empty() {
            return parts.into_iter().map(|part| Self { targets: part, ..self.clone() }).collect();
        }
        let middle = self.rounds.start + self.rounds.len() as u32 / 2;
        let cut = whole_slots(plan, self.rounds.start, middle, self.step_ms);
        if self.rounds.len() < 2 || cut >= self.rounds.end {
            return Vec::new();
        }
        (first.rounds.end, second.rounds.start) = (cut, cut);
        vec![first, second]
    }
}

fn names_max(plan: &Plan, round: u32) -> u32 {
    let longest = plan.fleet.metric_name(plan.metrics - 1, plan.metric_generation(round));
    let fit = NAMES_BYTES_MAX / (longest.len() + 1);
    u32::try_from(fit).unwrap_or(u32::MAX).clamp(1, NAMES_MAX)
}

impl Query {
    pub(super) fn selector(&self, plan: &Plan) -> String {
        let fleet = &plan.fleet;
        if let Naming::Timers { prefix, .. } = &fleet.naming {
            let host = self.targets.number(0).unwrap_or("[0-9]+".into());
            let timer = match self.targets.number(1) {
                None => "[^.]+".to_owned(),
                Some(timer) if plan.replaces_targets() => timer + "(-g[0-9]+)?",
                Some(timer) => timer,
            };
            let (prefix, names) = (prefix.replace('.', "[.]"), self.names.join("|"));
            return format!("{{__name__=~\"{prefix}[.]host-{host}[.]timer-{timer}[.]({names})\"}}");
        }
        let fixed = fleet.fixed.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let job = self.targets.job().map(|job| format!("job={}", quoted(&fleet.job(job))));
        let instance = self.targets.instance(plan).map(|pattern| format!("instance=~\"{pattern}\""));
        let mut matchers: Vec<String> = fixed.chain(job).chain(instance).collect();
        let name = match self.names.as_slice() {
            [name] => name.as_str(),
            // the generated names have no characters that need escaping
            names => {
                matchers.insert(0, format!("__name__=~\"{}\"", names.join("|")));
                ""
            }
        };
        if matchers.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", matchers.join(",")) }
    }

    /// Time range that contains all samples of the query, or the beginnings of all their slots, in ms. Both ends are
    /// included.
    pub(super) fn times(&self, plan: &Plan) -> (i64, i64) {
        let (first, last) = (plan.round_ms(self.rounds.start), plan.round_ms(self.rounds.end) - 1);
        (slot_ms(first, self.step_ms), slot_ms(last, self.step_ms))
    }
}

/// Beginning of the slot that holds a sample.
pub(super) fn slot_ms(timestamp_ms: i64, step_ms: u64) -> i64 {
    timestamp_ms - timestamp_ms.rem_euclid(step_ms as i64)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::fleet::{Fleet, Histograms};
    use crate::generate::plan::tests::small;
    use std::collections::HashSet;

    #[test]
    fn queries_cover_each_metric_and_round_once_and_stay_small() {
        for (samples_max, churn) in [(1_000_000, None), (100, None), (21, Some(7)), (5, None)] {
            let plan = Plan { metric_churn_ticks: churn, ..small() };
            let queries = Queries::new(&plan, 50, samples_max, 1);
            let mut seen = HashSet::new();
            for number in 0..queries.len() {
                let query = queries.get(&plan, number).unwrap();
                let targets = query.targets.iter(&plan);
                let samples = targets.clone().count() * query.rounds.len() * query.metrics.len();
                assert!(samples as u64 <= samples_max.max(2), "{samples} of {samples_max}");
                for (target, round) in targets.flat_map(|t| query.rounds.clone().map(move |r| (t, r))) {
                    assert!(query.metrics.clone().all(|metric| seen.insert((target, metric, round))));
                    let names = |r| plan.metric_generation(r);
                    assert_eq!(names(round), names(query.rounds.start), "the same names");
                }
            }
            assert_eq!(seen.len(), 21 * 5 * 50);
            assert_eq!(queries.get(&plan, queries.len()), None);
        }
    }

    #[test]
    fn the_smallest_parts_ask_for_all_of_a_query() {
        let fleet = Fleet { histograms: Histograms { count: 2, buckets: 3 }, ..Fleet::default() };
        let plan = Plan { fleet, metrics: 17, ..small() };
        let all = Queries::new(&plan, 7, 1_000_000, 1);
        let mut open = vec![all.get(&plan, 0).unwrap()];
        let mut seen = HashSet::new();
        let mut queries = 0;
        while let Some(query) = open.pop() {
            let split = query.split(&plan);
            if !split.is_empty() {
                open.extend(split);
                continue;
            }
            queries += 1;
            assert_eq!((query.names.len(), query.rounds.len(), query.targets.len(&plan)), (1, 1, 1));
            let (_, part) = plan.fleet.histograms.part(query.metrics.start);
            let name = plan.fleet.metric_name(query.metrics.start, 0);
            assert_eq!(query.names, [name], "{part:?}");
            let target = query.targets.iter(&plan).next().unwrap();
            assert!(query.metrics.clone().all(|metric| seen.insert((metric, query.rounds.start, target))));
        }
        assert_eq!((seen.len(), all.len()), (17 * 7 * 21, 1));
        assert!(queries < 17 * 7 * 21, "the buckets of a histogram have one name");
    }

    #[test]
    fn slots_are_never_divided() {
        // a slot has four rounds of 15 s, and the run begins within one
        let plan = Plan { first_tick: small().first_tick + 3, ..small() };
        for samples_max in [1, 21 * 5, 21 * 5 * 9, 1_000_000] {
            let queries = Queries::new(&plan, 50, samples_max, 60_000);
            let mut open: Vec<Query> = (0..queries.len()).map(|n| queries.get(&plan, n).unwrap()).collect();
            let mut seen = HashSet::new();
            while let Some(query) = open.pop() {
                let split = query.split(&plan);
                if !split.is_empty() {
                    open.extend(split);
                    continue;
                }
                let Query { rounds, metrics, .. } = &query;
                let target = query.targets.iter(&plan).next();
                assert!(rounds.end == 50 || plan.tick(rounds.end).is_multiple_of(4), "{rounds:?}");
                assert!(rounds.start == 0 || plan.tick(rounds.start).is_multiple_of(4), "{rounds:?}");
                assert!(rounds.len() <= 4 && rounds.clone().all(|r| seen.insert((r, target, metrics.start))));
            }
            assert_eq!(seen.len(), 50 * 5 * 21);
        }
    }

    #[test]
    fn names_that_live_briefly_share_a_query() {
        // one target with many metrics that are often renamed, as in a published test
        let fleet = Fleet { metric_name_bytes: Some(90), ..Fleet::default() };
        let plan =
            Plan { fleet, metrics: 16_000, targets: 1, writers: 1, metric_churn_ticks: Some(80), ..small() };
        let queries = Queries::new(&plan, 80, 100_000, 1);
        assert!(queries.len() <= 2 * 16_000 / 100, "{}", queries.len());
        for number in 0..queries.len() {
            let selector = queries.get(&plan, number).unwrap().selector(&plan);
            assert!(selector.starts_with("{__name__=~\"metric_") && selector.len() < 16 << 10);
        }
    }

    #[test]
    fn selectors_name_what_all_series_share() {
        let fixed = vec![("tenant".to_owned(), "a \"b\"".to_owned())];
        let plan = Plan { fleet: Fleet { fixed, ..Fleet::default() }, ..small() };
        let selector =
            |samples_max| Queries::new(&plan, 1, samples_max, 1).get(&plan, 1).unwrap().selector(&plan);
        assert_eq!(selector(21 * 3), r#"{__name__=~"metric_3|metric_4",tenant="a \"b\""}"#);
        assert_eq!(selector(21), r#"metric_1{tenant="a \"b\""}"#);
        assert_eq!(selector(3), r#"metric_1{tenant="a \"b\"",job="checkout-api"}"#);
        let last = Queries::new(&plan, 1, 1, 1);
        assert_eq!(
            last.get(&plan, last.len() - 1).unwrap().selector(&plan),
            r#"metric_4{tenant="a \"b\"",job="shipment-eta",instance=~"10[.]96[.]0[.]3[0-5]:.*"}"#
        );
    }

    #[test]
    fn series_of_one_name_are_in_one_page() {
        let fleet = Fleet { histograms: Histograms { count: 3, buckets: 4 }, ..Fleet::default() };
        let plan = Plan { fleet, metrics: 25, ..small() };
        for samples_max in [1, 21, 50, 21 * 9, 1_000_000] {
            let queries = Queries::new(&plan, 3, samples_max, 1);
            let all = (0..queries.len()).map(|number| queries.get(&plan, number).unwrap());
            let mut names = HashSet::new();
            let mut series = 0;
            for query in all {
                for name in query.names {
                    let target = query.targets.iter(&plan).next();
                    assert!(names.insert((name.clone(), target, query.rounds.start)), "{name}");
                }
                series += query.metrics.len() * query.rounds.len() * query.targets.len(&plan) as usize;
            }
            assert_eq!(series, 25 * 3 * 21, "{samples_max}");
        }
    }
}
