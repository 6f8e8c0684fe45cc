//! What is asked: queries × variables × periods.

use super::error::KeyFault;
use super::units::{Count, Span};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use stdx::rng::mix;

/// Queries of a mix.
const QUERIES_MAX: usize = 10_000;

/// Values of a variable.
const VALUES_MAX: u64 = 100_000;

/// Users of a mix.
const USERS_MAX: u32 = 10_000;

/// A mix of queries and who asks them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadMix {
    /// What it is called in the report.
    pub name: String,
    /// Who ask at a time, each the next query when the last is answered.
    pub users: u32,
    /// Queries a second by a schedule, latency counted from the intended start; without it the next query
    /// follows the answer.
    pub rate: Option<f64>,
    /// Between an answer and the next query.
    pub think: Span,
    /// PromQL; `$name` stands for a variable's value.
    pub queries: Vec<String>,
    /// A dashboard of Grafana whose queries are taken too; beside the scenario's file.
    pub grafana: Option<PathBuf>,
    /// A log of queries that are taken too: Prometheus' query log, or a query a line.
    pub query_log: Option<PathBuf>,
    /// By name.
    pub variables: BTreeMap<String, Values>,
    /// How far back a query looks; none makes instant queries.
    pub periods: Vec<Span>,
    /// Between two points of an answer; such that there are 60 points, if not given.
    pub step: Option<Span>,
    /// Every query is about another time, so that no cache has its answer.
    pub cache_busting: bool,
    /// The users come and go with the shape.
    pub shaped: bool,
}

/// The values of a variable.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// These.
    List(Vec<String>),
    /// A prefix and numbers from 0.
    Numbered {
        /// What stands before the number.
        prefix: String,
        /// How many.
        count: Count,
    },
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> u64 {
        match self {
            Self::List(values) => values.len() as u64,
            Self::Numbered { count, .. } => count.whole(),
        }
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, at: u64) -> String {
        match self {
            Self::List(values) => values[at as usize].clone(),
            Self::Numbered { prefix, .. } => format!("{prefix}{at}"),
        }
    }
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

/// A question of a mix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// PromQL with all variables filled in.
    pub query: String,
    /// Begin, end and step in ms; an instant query has none, and is about the end.
    pub range_ms: Option<(i64, i64, u64)>,
    /// The time that it is about.
    pub end_ms: i64,
}

impl ReadMix {
    /// How many different questions there are, apart from their times.
    pub fn combinations(&self) -> u64 {
        let variables: u64 = self.variables.values().map(|v| v.len().max(1)).product();
        (self.queries.len() as u64).saturating_mul(variables).saturating_mul(self.periods.len().max(1) as u64)
    }

    /// The question with the number `number`, asked at `now_ms`. Consecutive numbers of one seed go through
    /// the combinations as if shuffled.
    pub fn question(&self, seed: u64, number: u64, now_ms: i64) -> Question {
        let mut bits = mix(seed ^ mix(number));
        let mut pick = |len: u64| {
            bits = mix(bits);
            bits % len.max(1)
        };
        let mut query = self.queries[pick(self.queries.len() as u64) as usize].clone();
        // longer names first, for `$a` is in `$ab`
        let mut names: Vec<&String> = self.variables.keys().collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in names {
            let values = &self.variables[name];
            let value = values.get(pick(values.len()));
            for form in [format!("${{{name}}}"), format!("${name}"), format!("[[{name}]]")] {
                query = query.replace(&form, &value);
            }
        }
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
        for (form, ms) in [("$__range", period_ms.unwrap_or(300_000)), ("$__rate_interval", 300_000)] {
            query = query.replace(form, &format!("{ms}ms"));
        }
        query = query.replace("$__interval", &format!("{step_ms}ms"));
        Question { query, range_ms, end_ms }
    }

    pub(super) fn check(&self) -> Result<(), KeyFault> {
        let fault =
            |path, message: String| Err(KeyFault { path, message: format!("{}: {message}", self.name) });
        let elsewhere = self.grafana.is_some() || self.query_log.is_some();
        if self.queries.is_empty() && !elsewhere {
            return fault("reads.queries", "no query, no dashboard, no log".into());
        }
        if self.queries.len() > QUERIES_MAX {
            return fault("reads.queries", format!("more than {QUERIES_MAX}"));
        }
        if self.users == 0 || self.users > USERS_MAX {
            return fault("reads.users", format!("{} is not between 1 and {USERS_MAX}", self.users));
        }
        if self.rate.is_some_and(|rate| !(rate.is_finite() && (0.001..=1e6).contains(&rate))) {
            return fault("reads.rate", "not between 0.001 and a million queries a second".into());
        }
        for (name, values) in &self.variables {
            if values.is_empty() || values.len() > VALUES_MAX {
                return fault("reads.variables", format!("{name}: between 1 and {VALUES_MAX} values"));
            }
        }
        if self.periods.iter().any(|period| period.ms() == 0) {
            return fault("reads.periods", "a period of no length".into());
        }
        if self.step.is_some_and(|step| step.ms() == 0) {
            return fault("reads.step", "a step of no length".into());
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
        assert_eq!(mix.combinations(), 2 * 3 * 2 * 2);
        let ask = |seed| (0..500).map(|n| mix.question(seed, n, 1_000_000_000)).collect::<Vec<_>>();
        assert_eq!(ask(1), ask(1));
        assert_ne!(ask(1), ask(2));
        let texts: HashSet<_> = ask(1).into_iter().map(|q| q.query).collect();
        assert_eq!(texts.len(), 3 + 2, "{texts:?}");
        assert!(texts.contains("sum(metric_0{component=\"c-2\"})") && texts.contains("max(metric_1)"));
        let ends: HashSet<_> = ask(1).into_iter().map(|q| q.end_ms).collect();
        assert!(ends.len() > 400, "each is about another time");
    }

    #[test]
    fn grafanas_own_variables_and_cached_times() {
        let mix = mix_of("queries = ['rate(up[$__rate_interval])']\nperiods = ['1h']\ncache_busting = false");
        let question = mix.question(1, 1, 3_600_123);
        assert_eq!(question.query, "rate(up[300000ms])");
        assert_eq!(question.range_ms, Some((0, 3_600_000, 60_000)));
    }
}
