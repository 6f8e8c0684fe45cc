//! Applies rules to series, and counts what each rule does.

use anyhow::{Result, ensure};
use model::{LabelsBuilder, LabelsRef, SeriesKey, TenantId};
use rules::IngestRules;
use rules::ingest::{IngestRule, LabelSet, RuleList};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Limit on the series of all tenants. Each takes about 100 bytes.
const SERIES_MAX: usize = 4 << 20;

/// Limit on the refused series that are shown.
const REFUSED_SHOWN_MAX: usize = 5;

#[derive(Debug)]
pub(super) struct Trial<'r> {
    rules: &'r IngestRules,
    /// The tenant whose rules apply to all series.
    tenant: Option<TenantId>,
    examples: usize,
    /// By the number of the list and the index of the rule.
    counts: HashMap<(usize, usize), RuleCounts>,
    /// The counts of a rule to which no series came.
    none: RuleCounts,
    lists: HashSet<usize>,
    seen: HashMap<(TenantId, SeriesKey), Seen>,
    stored: HashSet<(TenantId, SeriesKey)>,
    pub(super) totals: Totals,
    spent: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) series: u64,
    pub(super) samples: u64,
    pub(super) dropped_series: u64,
    pub(super) dropped_samples: u64,
    pub(super) refused_series: u64,
    pub(super) refused_samples: u64,
    /// The first refused series, each with the reason.
    pub(super) refused: Vec<(String, String)>,
}

/// What a rule did.
#[derive(Debug, Default)]
pub(super) struct RuleCounts {
    /// Series that came to the rule.
    pub(super) series: u64,
    pub(super) samples: u64,
    pub(super) changed_series: u64,
    pub(super) changed_samples: u64,
    pub(super) dropped_series: u64,
    pub(super) dropped_samples: u64,
    /// Labels before and after the rule.
    pub(super) examples: Vec<(String, String)>,
}

/// What became of a series.
#[derive(Debug, Default)]
struct Seen {
    list: Option<usize>,
    /// Indexes of the rules that changed it.
    changed: Box<[u16]>,
    /// How many rules it came to.
    reached: u16,
    end: End,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum End {
    #[default]
    Stored,
    Dropped,
    Refused,
}

impl<'r> Trial<'r> {
    pub(super) fn new(rules: &'r IngestRules, tenant: Option<TenantId>, examples: usize) -> Self {
        let (counts, none, lists, seen, stored, totals) = Default::default();
        Self { rules, tenant, examples, counts, none, lists, seen, stored, totals, spent: Duration::ZERO }
    }

    /// Adds samples of a series.
    pub(super) fn add(
        &mut self,
        tenant: &TenantId,
        labels: LabelsRef<'_>,
        samples: u64,
        builder: &mut LabelsBuilder,
    ) -> Result<()> {
        let tenant = self.tenant.as_ref().unwrap_or(tenant).clone();
        let key = (tenant, SeriesKey::of(labels.as_bytes(), 0));
        if !self.seen.contains_key(&key) {
            ensure!(self.seen.len() < SERIES_MAX, "there are more than {SERIES_MAX} series");
            let seen = self.apply(&key.0, labels, builder);
            self.totals.series += 1;
            self.totals.dropped_series += u64::from(seen.end == End::Dropped);
            self.totals.refused_series += u64::from(seen.end == End::Refused);
            self.seen.insert(key.clone(), seen);
        }
        let seen = &self.seen[&key];
        self.totals.samples += samples;
        match seen.end {
            End::Stored => {}
            End::Dropped => self.totals.dropped_samples += samples,
            End::Refused => self.totals.refused_samples += samples,
        }
        let Some(list) = seen.list else { return Ok(()) };
        for rule in 0..seen.reached {
            let counts = self.counts.entry((list, usize::from(rule))).or_default();
            counts.samples += samples;
            if seen.changed.contains(&rule) {
                counts.changed_samples += samples;
            }
            if seen.end == End::Dropped && rule + 1 == seen.reached {
                counts.dropped_samples += samples;
            }
        }
        Ok(())
    }

    fn apply(&mut self, tenant: &TenantId, labels: LabelsRef<'_>, builder: &mut LabelsBuilder) -> Seen {
        let Some(list) = self.rules.of(tenant) else {
            self.stored.insert((tenant.clone(), SeriesKey::of(labels.as_bytes(), 0)));
            return Seen::default();
        };
        self.lists.insert(list.number);
        let began = Instant::now();
        let _ = list.apply(&mut LabelSet::new(labels.iter()));
        self.spent += began.elapsed();
        let (mut set, mut changed, mut reached) = (LabelSet::new(labels.iter()), Vec::new(), 0);
        let mut end = End::Stored;
        for (index, rule) in list.rules().iter().enumerate() {
            let before = pairs(&set);
            reached = index as u16 + 1;
            let counts = self.counts.entry((list.number, index)).or_default();
            counts.series += 1;
            let becomes = match rule.apply(&mut set) {
                Ok(false) => {
                    counts.dropped_series += 1;
                    end = End::Dropped;
                    "(dropped)".to_owned()
                }
                Ok(true) => {
                    let after = pairs(&set);
                    if after == before {
                        continue;
                    }
                    counts.changed_series += 1;
                    changed.push(index as u16);
                    shown(&after)
                }
                Err(error) => {
                    end = End::Refused;
                    self.totals.refuse(&pairs(&set), &format!("rule {}/{}: {error}", list.name, index + 1));
                    break;
                }
            };
            if counts.examples.len() < self.examples {
                counts.examples.push((shown(&before), becomes));
            }
            if end == End::Dropped {
                break;
            }
        }
        if end == End::Stored {
            builder.clear();
            set.iter().for_each(|(name, value)| builder.push(name, value));
            match builder.build_series() {
                Ok(labels) => _ = self.stored.insert((tenant.clone(), SeriesKey::of(labels.as_bytes(), 0))),
                Err(error) => {
                    end = End::Refused;
                    let before: Vec<_> = labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
                    self.totals.refuse(&before, &error.to_string());
                }
            }
        }
        Seen { list: Some(list.number), changed: changed.into(), reached, end }
    }

    /// All rules of the lists that applied to a series: the list, the number in the list counted from 1, the rule, its counts.
    pub(super) fn rules(&self) -> impl Iterator<Item = (&RuleList, usize, &IngestRule, &RuleCounts)> {
        let lists = self.rules.lists().iter().filter(|list| self.lists.contains(&list.number));
        lists.flat_map(move |list| {
            list.rules().iter().enumerate().map(move |(index, rule)| {
                (list, index + 1, rule, self.counts.get(&(list.number, index)).unwrap_or(&self.none))
            })
        })
    }

    /// Number of series that would be stored, after those that rules make one.
    pub(super) fn stored_series(&self) -> usize {
        self.stored.len()
    }

    /// The time that the rules took for each series, on average.
    pub(super) fn ns_per_series(&self) -> f64 {
        self.spent.as_nanos() as f64 / (self.seen.len() as f64).max(1.0)
    }
}

impl Totals {
    fn refuse(&mut self, labels: &[(String, String)], reason: &str) {
        if self.refused.len() < REFUSED_SHOWN_MAX {
            self.refused.push((shown(labels), reason.to_owned()));
        }
    }
}

/// The labels, sorted by name.
fn pairs(set: &LabelSet<'_>) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = set.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    pairs.sort_unstable();
    pairs
}

fn shown(labels: &[(String, String)]) -> String {
    let name = labels.iter().find(|(name, _)| name == model::labels::METRIC_NAME);
    let others = labels.iter().filter(|(name, _)| name != model::labels::METRIC_NAME);
    let others: Vec<_> = others.map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{}{{{}}}", name.map_or("", |(_, value)| value), others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;

    #[test]
    fn rules_are_counted_one_by_one() {
        let rules = IngestRules::parse(
            "
- {source_labels: [__name__], regex: go_.*, action: drop}
- {regex: pod, action: labeldrop}
- {source_labels: [a], regex: x, target_label: __name__, replacement: ''}
",
        )
        .unwrap();
        let mut trial = Trial::new(&rules, None, 1);
        let builder = &mut LabelsBuilder::new();
        let mut add = |labels: &[(&str, &str)], samples| {
            let labels = Labels::from_pairs(labels);
            trial.add(&TenantId::anonymous(), labels.as_ref(), samples, builder).unwrap();
        };
        for _ in 0..2 {
            add(&[("__name__", "go_a")], 10);
            add(&[("__name__", "up"), ("pod", "1")], 1);
            add(&[("__name__", "up"), ("pod", "2")], 1);
            add(&[("__name__", "up"), ("a", "x")], 3);
        }
        let counts: Vec<_> = trial
            .rules()
            .map(|(_, _, _, c)| {
                (
                    c.series,
                    c.samples,
                    c.changed_series,
                    c.changed_samples,
                    c.dropped_series,
                    c.dropped_samples,
                )
            })
            .collect();
        assert_eq!(counts, [(4, 30, 0, 0, 1, 20), (3, 10, 2, 4, 0, 0), (3, 10, 1, 6, 0, 0)]);
        assert_eq!(trial.stored_series(), 1, "two series become one");
        let totals = &trial.totals;
        assert_eq!(
            (totals.series, totals.samples, totals.dropped_samples, totals.refused_samples),
            (4, 30, 20, 6)
        );
        assert_eq!(totals.refused[0].0, "up{a=\"x\"}");
        let (_, _, _, second) = trial.rules().nth(1).unwrap();
        assert_eq!(second.examples, [("up{pod=\"1\"}".to_owned(), "up{}".to_owned())]);
    }
}
