//! Applies the rules on what is stored to the series of a request.
//!
//! ```text
//!   key as sent ─▶ verdict remembered? ─┬─ unchanged ─▶ looked up as sent
//!                                       ├─ stored as another key ─▶ looked up by that key
//!                                       ├─ dropped ─▶ counted
//!                                       └─ none ─▶ labels ─▶ rules ─▶ verdict
//! ```
//!
//! What the rules say depends on the labels alone. So the verdict is remembered by the key of the labels, mixed with a hash of the
//! tenant's list: after a change of the list, no earlier verdict is found, and a change of another list forgets nothing. Graphite's rules on names come before, so
//! a key is also mixed with a hash of these rules if they apply to the request.

mod verdicts;

use super::names::NameRules;
use crate::ingest_rules::{IngestRulesFile, TenantList, WatchedRules};
use model::caps::LABEL_VALUE_BYTES_MAX;
use model::labels::METRIC_NAME;
use model::{
    Labels, LabelsBuilder, Metadata, MetadataRef, SeriesBatch, SeriesKey, SeriesRefusal, TenantId, Value,
};
use parking_lot::Mutex;
use rules::IngestRules;
use rules::ingest::{Decision, LabelSet, RuleList};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::Account;
use stdx::telemetry::{Counter, Registry};
pub(super) use verdicts::Verdict;
use verdicts::{Known, Verdicts};

/// Limit on the pairs of a tenant and a rule whose dropped samples are counted by themselves, and on the tenants whose time is.
const COUNTED_MAX: usize = 1000;

/// Stands for all tenants in a row that counts those without a row of their own.
const OTHERS: &str = "";

#[derive(Debug)]
pub(crate) struct Ingest {
    file: WatchedRules,
    verdicts: Verdicts,
    dropped: Arc<Mutex<DroppedSamples>>,
    applied: Counter,
    rule_seconds: Arc<Mutex<RuleSeconds>>,
}

/// Time of rules by tenant.
type RuleSeconds = BTreeMap<String, f64>;

/// Dropped samples by tenant and rule.
type DroppedSamples = BTreeMap<(String, String), u64>;

impl Ingest {
    /// The file was checked when the settings were read. If it has become invalid since then, there are no rules until it
    /// is valid again.
    pub(crate) fn new(file: Option<IngestRulesFile>, account: Account, r: &Registry) -> Self {
        let file = WatchedRules::new(file, IngestRules::default(), r);
        file.reload();
        let dropped = Arc::new(Mutex::new(DroppedSamples::new()));
        let read = Arc::clone(&dropped);
        r.counters_fn(
            "floodmark_ingest_rules_dropped_samples_total",
            "Samples dropped by rules, by tenant and rule. The row with empty labels counts those without a row of their own.",
            move || {
                let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
                let dropped = read.lock();
                let rows = dropped.iter();
                rows.map(|((tenant, rule), n)| (vec![label("tenant", tenant), label("rule", rule)], *n as f64))
                    .collect()
            },
        );
        let help = "Series to whose labels rules were applied, because what the rules say was not remembered, or because they are new.";
        let applied = r.counter("floodmark_ingest_rules_applied_series_total", help);
        let rule_seconds = Arc::new(Mutex::new(RuleSeconds::new()));
        let read = Arc::clone(&rule_seconds);
        r.counters_fn(
            "floodmark_ingest_rules_seconds_total",
            "Time for which rules were applied to labels, by tenant. The row with an empty label has that of tenants without a row of their own.",
            move || {
                let seconds = read.lock();
                seconds.iter().map(|(name, n)| (vec![("tenant".to_owned(), name.clone())], *n)).collect()
            },
        );
        Self { file, verdicts: Verdicts::new(account), dropped, applied, rule_seconds }
    }

    pub(crate) const fn file(&self) -> &WatchedRules {
        &self.file
    }

    /// The tenant's rules in effect, for one request. `None` if it has none.
    pub(super) fn list_of(&self, tenant: &TenantId) -> Option<TenantList> {
        if !self.file.has_source() {
            return None;
        }
        TenantList::of(self.file.current(), tenant)
    }

    /// The rules for the series of one request. `names` are rules that come before.
    pub(super) fn of<'a>(&self, list: &'a TenantList, names: Option<NameRules<'_>>) -> TenantRules<'a> {
        let names = names.map_or(0, |names| names.names_fingerprint().0);
        TenantRules { list: list.list(), names, known: self.verdicts.known() }
    }

    /// Remembers verdicts by their [`TenantRules::key`].
    pub(super) fn remember(&self, learned: &[(SeriesKey, Verdict)]) {
        learned.iter().for_each(|(key, verdict)| self.verdicts.put(*key, *verdict));
    }

    /// Counts series of a tenant to which rules were applied in a turn that took `time`.
    pub(super) fn count_applied(&self, tenant: &TenantId, series: u64, time: Duration) {
        if series == 0 {
            return;
        }
        self.applied.add(series);
        let mut all = self.rule_seconds.lock();
        let has_room = all.len() < COUNTED_MAX;
        if let Some(seconds) = all.get_mut(tenant.as_str()) {
            *seconds += time.as_secs_f64();
        } else {
            let row = if has_room { tenant.as_str() } else { OTHERS }; // one row more at most
            *all.entry(row.to_owned()).or_default() += time.as_secs_f64();
        }
    }

    /// Must be called once the request in which rules had these effects is durable. `discarded` is the metadata for which
    /// there was no room.
    pub(super) fn settle(&self, tenant: &TenantId, effects: &Effects, discarded: &[Metadata], seed: u64) {
        let content = |metadata: &Metadata| {
            let Metadata { metric, kind, help, unit } = metadata;
            Verdict::Stored(content_of(MetadataRef { metric, kind: *kind, help, unit }, seed))
        };
        let mut discarded: Vec<_> = discarded.iter().map(content).collect();
        discarded.sort_unstable();
        let written = effects.written.iter();
        let kept = written.filter(|(_, content)| discarded.binary_search(content).is_err());
        kept.for_each(|(slot, content)| self.verdicts.put(*slot, *content));
        for (index, samples) in effects.dropped.iter().enumerate().filter(|(_, samples)| **samples > 0) {
            let rule = format!("{}/{}", effects.list, index + 1);
            let mut all = self.dropped.lock();
            let own = (tenant.to_string(), rule);
            let has_room = all.len() < COUNTED_MAX;
            if let Some(count) = all.get_mut(&own) {
                *count += samples;
            } else if has_room {
                all.insert(own, *samples);
            } else {
                // one row more at most
                *all.entry((OTHERS.to_owned(), OTHERS.to_owned())).or_default() += samples;
            }
        }
    }
}

/// What rules did in a request that is not durable yet. If it is refused, its sender repeats it, and nothing is counted twice.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Name of the list.
    list: String,
    /// Samples that were dropped, for each rule.
    dropped: Vec<u64>,
    /// Which metadata of which metric is written. It must not be remembered before it is durable.
    pub(super) written: Vec<(SeriesKey, Verdict)>,
}

impl Effects {
    pub(super) fn of(rules: &TenantRules<'_>, dropped: Vec<u64>, written: Vec<(SeriesKey, Verdict)>) -> Self {
        Self { list: rules.list.name.clone(), dropped, written }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.written.is_empty()
    }

    /// Memory besides that of `written`.
    pub(super) const fn bytes(&self) -> usize {
        size_of::<Self>() + self.list.capacity() + self.dropped.capacity() * size_of::<u64>()
    }
}

/// What is known of what the rules say about a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remembered {
    /// The series is stored as sent, or was dropped.
    Unchanged,
    /// The series has the key of its other labels.
    Renamed,
    /// Like `Renamed`, but there is no such series. Rules must make its labels.
    Absent,
    /// Like `Renamed`, and its labels were made for this request.
    Ready,
    /// Nothing of the series is stored.
    Settled,
    /// The series was refused before, because the rules cannot be applied to it.
    Refused,
    /// The rules must be asked.
    Nothing,
}

impl Remembered {
    pub(super) const fn needs_rules(self) -> bool {
        matches!(self, Self::Absent | Self::Refused | Self::Nothing)
    }

    /// Whether the series has the key under which it is stored.
    pub(super) const fn has_key(self) -> bool {
        matches!(self, Self::Unchanged | Self::Renamed | Self::Ready)
    }
}

/// The rules for the series of one request.
#[derive(Debug)]
pub(super) struct TenantRules<'a> {
    list: &'a RuleList,
    /// Hash of the rules on names, or 0 if there are none.
    names: u128,
    known: Known,
}

/// What is known of a request's series after [`TenantRules::recall`].
#[derive(Debug, Default)]
pub(super) struct Recalled {
    /// Samples that are dropped, for each rule.
    pub(super) dropped: Vec<u64>,
    pub(super) dropped_exemplars: u64,
    /// Series to whose labels the rules were applied.
    pub(super) applied: u64,
}

impl Recalled {
    pub(super) fn drop_samples(&mut self, rule: usize, samples: u64) {
        if self.dropped.len() <= rule {
            self.dropped.resize(rule + 1, 0);
        }
        self.dropped[rule] += samples;
    }

    pub(super) fn dropped_samples(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

/// What the rules say about labels.
#[derive(Debug)]
pub(super) enum Ruled {
    Stored(Labels),
    /// By the rule with this index.
    Dropped(usize),
}

impl TenantRules<'_> {
    /// Gives series the keys under which they are stored, and takes the samples of dropped ones, as far as verdicts are
    /// remembered. Before, `remembered` has [`Remembered::Unchanged`] for those whose keys are those of their labels.
    pub(super) fn recall<V: Value>(
        &self,
        batch: &mut SeriesBatch<V>,
        remembered: &mut [Remembered],
        recalled: &mut Recalled,
    ) {
        let mut dropped = Vec::new();
        for (position, series) in batch.series.iter_mut().enumerate() {
            if remembered[position] != Remembered::Unchanged {
                continue;
            }
            match self.known.get(self.key(series.key)) {
                Some(Verdict::Unchanged) => {}
                Some(Verdict::Stored(key)) => {
                    series.key = key;
                    remembered[position] = Remembered::Renamed;
                }
                Some(Verdict::Dropped(rule)) => {
                    recalled.drop_samples(rule as usize, series.samples.len() as u64);
                    series.samples.end = series.samples.start;
                    if !batch.exemplars.is_empty() {
                        dropped.push(position as u32);
                    }
                }
                Some(Verdict::Refused) => remembered[position] = Remembered::Refused,
                None => remembered[position] = Remembered::Nothing,
            }
        }
        if !dropped.is_empty() {
            let before = batch.exemplars.len();
            batch.exemplars.retain(|(position, _)| dropped.binary_search(position).is_err());
            recalled.dropped_exemplars += (before - batch.exemplars.len()) as u64;
        }
    }

    /// Applies the rules to labels.
    pub(super) fn apply(&self, labels: Labels, builder: &mut LabelsBuilder) -> Result<Ruled, SeriesRefusal> {
        let mut set = LabelSet::new(labels.iter());
        let decision = self.list.apply(&mut set).map_err(|error| refusal(&error))?;
        if let Decision::Dropped(rule) = decision {
            return Ok(Ruled::Dropped(rule));
        }
        if !set.is_changed() {
            drop(set);
            return Ok(Ruled::Stored(labels));
        }
        builder.clear();
        set.iter().for_each(|(name, value)| builder.push(name, value));
        builder.build_series().map(Ruled::Stored).map_err(|error| refusal(&error))
    }

    /// What is remembered of the metadata of a metric whose name has this key. Names that rules change are not remembered.
    pub(super) fn recall_metric(&self, key: SeriesKey) -> Option<Verdict> {
        self.known.get(self.key_of_metric(key))
    }

    /// Returns the name under which the metadata of a metric is stored. `None` if its series are dropped. `key` is that of
    /// the name. Appends to `learned` what should be remembered, by its key.
    pub(super) fn metric<'m>(
        &self,
        metric: &'m str,
        key: SeriesKey,
        learned: &mut Vec<(SeriesKey, Verdict)>,
    ) -> Option<Cow<'m, str>> {
        let key = self.key_of_metric(key);
        let mut set = LabelSet::new([(METRIC_NAME, metric)].into_iter());
        match self.list.apply_to_name(&mut set) {
            Ok(Decision::Kept) if !set.is_changed() => {
                learned.push((key, Verdict::Unchanged));
                Some(metric.into())
            }
            Ok(Decision::Kept) => {
                let is_valid = |name: &String| (1..=LABEL_VALUE_BYTES_MAX).contains(&name.len());
                Some(set.get(METRIC_NAME).to_owned()).filter(is_valid).map(Cow::Owned)
            }
            Ok(Decision::Dropped(rule)) => {
                learned.push((key, Verdict::Dropped(rule as u32)));
                None
            }
            Err(_) => {
                learned.push((key, Verdict::Refused));
                None
            }
        }
    }

    /// True if the metadata of a metric was written before, and has not changed since then. The rules may have given another
    /// metric the same name, whose metadata was written later.
    pub(super) fn has_written(&self, slot: SeriesKey, content: SeriesKey) -> bool {
        self.known.get(slot) == Some(Verdict::Stored(content))
    }

    /// Where it is remembered which metadata of a metric was written. Tenants with equal lists have different metadata.
    pub(super) fn slot_of_metadata(&self, metric: SeriesKey, tenant: &TenantId, seed: u64) -> SeriesKey {
        // any number does that nothing else mixes into the seed
        let tenant = SeriesKey::of(tenant.as_str().as_bytes(), seed ^ 0x7772_6974_7465_6e20);
        self.key(SeriesKey(metric.0 ^ tenant.0))
    }

    /// Metrics and series have different verdicts.
    const fn key_of_metric(&self, metric: SeriesKey) -> SeriesKey {
        // any number does. It keeps these keys apart from those of series
        self.key(SeriesKey(metric.0 ^ 0x6d65_7461_6461_7461_206f_6620_6d65_7472))
    }

    /// The key of a verdict. Verdicts of other rules have other keys, so that they are never found.
    pub(super) const fn key(&self, sent: SeriesKey) -> SeriesKey {
        SeriesKey(sent.0 ^ self.list.fingerprint ^ self.names)
    }
}

/// Stands for metadata. Different metadata differs in it.
pub(super) fn content_of(metadata: MetadataRef<'_>, seed: u64) -> SeriesKey {
    let MetadataRef { metric, kind, help, unit } = metadata;
    let of = |text: &str, number: u64| SeriesKey::of(text.as_bytes(), seed ^ number).0;
    // different numbers, so that texts of different fields differ
    SeriesKey(of(metric, 4) ^ of(kind.as_str(), 1) ^ of(help, 2) ^ of(unit, 3))
}

fn refusal(reason: &dyn std::fmt::Display) -> SeriesRefusal {
    SeriesRefusal::Ruled { reason: reason.to_string() }
}
