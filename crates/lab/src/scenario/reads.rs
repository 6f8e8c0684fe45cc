//! Query mixes, which combine queries with values of their variables and time ranges.

use super::error::KeyFault;
use super::units::Span;
use super::variables::{Values, fill};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use stdx::rng::mix;

const QUERIES_MAX: usize = 10_000;

const VALUES_MAX: u64 = 100_000;

const USERS_MAX: u32 = 10_000;

/// Value of `$__range` in instant queries, which have no range of their own.
const RANGE_MS_DEFAULT: u64 = 300_000;

/// Value of `$__rate_interval` in all queries.
const RATE_INTERVAL_MS: u64 = 300_000;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadMix {
    pub name: String,
    /// Number of simulated users, who send queries at the same time. Each waits for an answer before the next query.
    pub users: u32,
    /// Scheduled queries per second. By default, there is no schedule.
    pub rate: Option<f64>,
    /// How long a user pauses between an answer and the next query.
    pub think: Span,
    /// Queries in PromQL, in which `$name` and `${name}` are variables.
    pub queries: Vec<String>,
    /// File of a Grafana dashboard whose queries are added. The path is relative to the scenario's file.
    pub grafana: Option<PathBuf>,
    pub query_log: Option<PathBuf>,
    pub variables: BTreeMap<String, Values>,
    /// Lengths of the time ranges that are queried. If there are none, the queries are instant queries.
    pub periods: Vec<Span>,
    /// Time between the points of a range query. By default, a 60th of the range.
    pub step: Option<Span>,
    /// True to give every query a slightly different time, so that no cache has the answer.
    pub cache_busting: bool,
    /// True if the number of users follows the load's shape.
    pub shaped: bool,
}

impl Default for ReadMix {
    fn default() -> Self {
        Self {
            name: "reads".into(),
            users: 1,
            rate: None,
            think: Span::default(),
            queries: Vec::new(),
            grafana: None,
            query_log: None,
            variables: BTreeMap::new(),
            periods: Vec::new(),
            step: None,
            cache_busting: true,
            shaped: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub query: String,
    /// Start, end and step of a range query in ms. `None` for an instant query.
    pub range_ms: Option<(i64, i64, u64)>,
    /// End of the range, or time of the instant query, in ms since 1970.
    pub end_ms: i64,
}

impl ReadMix {
    /// Chooses the query to be sent at `now_ms`. Its text, variables and range look random, but depend only on the
    /// seed and on the number of the query.
    pub fn question(&self, seed: u64, number: u64, now_ms: i64) -> Question {
        let mut bits = mix(seed ^ mix(number));
        let mut pick = |len: u64| {
            bits = mix(bits);
            bits % len.max(1)
        };
        let query = &self.queries[pick(self.queries.len() as u64) as usize];
        let variables: BTreeMap<&str, String> = self
            .variables
            .iter()
            .map(|(name, values)| (name.as_str(), values.get(pick(values.len()))))
            .collect();
        let period_ms = match self.periods.as_slice() {
            [] => None,
            periods => Some(periods[pick(periods.len() as u64) as usize].ms().max(1)),
        };
        let step_ms = self.step.map_or_else(|| period_ms.unwrap_or(0) / 60, Span::ms).max(1);
        let end_ms = if self.cache_busting {
            now_ms - pick(10_000) as i64
        } else {
            now_ms.div_euclid(step_ms as i64) * step_ms as i64
        };
        let range_ms = period_ms.map(|period_ms| (end_ms - period_ms as i64, end_ms, step_ms));
        let length_ms = period_ms.unwrap_or(RANGE_MS_DEFAULT);
        let query = fill(query, |name| match name {
            "__interval" => Some(format!("{step_ms}ms")),
            "__interval_ms" => Some(step_ms.to_string()),
            "__range" => Some(format!("{length_ms}ms")),
            "__range_s" => Some((length_ms / 1000).to_string()),
            "__range_ms" => Some(length_ms.to_string()),
            "__rate_interval" => Some(format!("{RATE_INTERVAL_MS}ms")),
            name => variables.get(name).cloned(),
        });
        Question { query, range_ms, end_ms }
    }

    pub(super) fn check(&self) -> Result<(), KeyFault> {
        let fault =
            |path, message: String| Err(KeyFault { path, message: format!("{}: {message}", self.name) });
        let elsewhere = self.grafana.is_some() || self.query_log.is_some();
        if self.queries.is_empty() && !elsewhere {
            return fault("reads.queries", "the mix has no queries, no dashboard and no query log".into());
        }
        if self.queries.len() > QUERIES_MAX {
            return fault("reads.queries", format!("there are more than {QUERIES_MAX} queries"));
        }
        if self.users == 0 || self.users > USERS_MAX {
            return fault("reads.users", format!("{} is not between 1 and {USERS_MAX}", self.users));
        }
        if self.rate.is_some_and(|rate| !(rate.is_finite() && (0.001..=1e6).contains(&rate))) {
            return fault(
                "reads.rate",
                "the rate is not between 0.001 and a million queries a second".into(),
            );
        }
        for (name, values) in &self.variables {
            if values.is_empty() || values.len() > VALUES_MAX {
                return fault(
                    "reads.variables",
                    format!("{name} must have between 1 and {VALUES_MAX} values"),
                );
            }
        }
        if self.periods.iter().any(|period| period.ms() == 0) {
            return fault("reads.periods", "a period must be longer than 0".into());
        }
        if self.step.is_some_and(|step| step.ms() == 0) {
            return fault("reads.step", "the step must be longer than 0".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn mix_of(text: &str) -> ReadMix {
        let mix: ReadMix = toml::from_str(text).unwrap();
        mix.check().unwrap();
        mix
    }

    #[test]
    fn every_combination_comes_and_the_same_seed_asks_the_same() {
        let mix = mix_of(
            "queries = ['sum(metric_0{component=\"$component\"})', 'max(metric_${n})']\n\
             periods = ['1h', '6h']\nvariables.component = { prefix = 'c-', count = 3 }\nvariables.n = ['1', '2']",
        );
        let ask = |seed| (0..500).map(|n| mix.question(seed, n, 1_000_000_000)).collect::<Vec<_>>();
        assert_eq!(ask(1), ask(1));
        assert_ne!(ask(1), ask(2));
        let texts: HashSet<_> = ask(1).into_iter().map(|q| q.query).collect();
        assert_eq!(texts.len(), 3 + 2, "{texts:?}");
        assert!(texts.contains("sum(metric_0{component=\"c-2\"})") && texts.contains("max(metric_1)"));
        let ends: HashSet<_> = ask(1).into_iter().map(|q| q.end_ms).collect();
        assert!(ends.len() > 400, "too many queries have the same time");
    }

    #[test]
    fn grafanas_own_variables_and_cached_times() {
        let query = "rate(up[$__rate_interval]) + $__range_s + ${__interval_ms} + max_over_time(up[$__range:$__interval])";
        let mix = mix_of(&format!("queries = ['{query}']\nperiods = ['1h']\ncache_busting = false"));
        let question = mix.question(1, 1, 3_600_123);
        let expected = "rate(up[300000ms]) + 3600 + 60000 + max_over_time(up[3600000ms:60000ms])";
        assert_eq!(question.query, expected);
        assert_eq!(question.range_ms, Some((0, 3_600_000, 60_000)));
    }
}
