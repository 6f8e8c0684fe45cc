//! Rules on the names of Graphite's series: which are stored, and under which name.
//!
//! ```text
//!   key ─▶ known series, vetted ─────────────────────────────────▶ stored, without a look at the rules
//!      └─▶ other ─▶ remembered decision ─┬─▶ left out
//!                    └─▶ rules ──────────┼─▶ another name ─▶ known or new series
//!                                        └─▶ the same name ─▶ known series: vetted from now on; or new series
//! ```
//!
//! The decision depends on the name alone. That the rules of a version leave the name of a known series as it is, is noted with the series
//! ([`head::TenantHead::vet`]). Other decisions are remembered by the key of the name, as far as there is room.

use super::turns::RuleCost;
use crate::graphite_rules::Rules;
use model::labels::METRIC_NAME;
use model::{Labels, LabelsBuilder, SeriesKey, SeriesRefusal};
use parking_lot::Mutex;
use query::graphite::label_source::write_name;
use query::graphite::tag::label_of;
use std::borrow::Cow;
use std::num::NonZeroU16;
use stdx::budget::{Account, Reservation};
use stdx::telemetry::{Counter, Registry};

/// Remembered decisions may take 1/`ACCOUNT_PART` of the account `decoders`.
const ACCOUNT_PART: u64 = 8;

/// States of a usual expression. Each takes a step for each byte of a name, at most.
const STATES: usize = 64;

/// Number of locks, so that requests rarely wait for each other.
const SHARDS: usize = 16;

const DECISIONS_MAX: u64 = 1 << 20;

/// A list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Allow,
    Deny,
}

/// What the rules say about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    LeftOut(List),
    /// The key of the name under which the series is stored.
    Stored(SeriesKey),
    /// The series is stored under its own name. This is remembered only of series that do not exist.
    Kept,
}

/// The labels under which a series is stored.
#[derive(Debug)]
pub(super) enum Named {
    Kept(Labels),
    Rewritten(Labels),
    LeftOut(List),
}

/// A version of the rules on names, by their fingerprint.
#[derive(Debug)]
struct Version {
    fingerprint: SeriesKey,
    number: NonZeroU16,
}

/// Decisions on names. If there is no room, older ones are forgotten.
#[derive(Debug)]
pub(crate) struct NameDecisions {
    shards: [Mutex<Shard>; SHARDS],
    account: Account,
    slots: usize,
    newest: Mutex<Version>,
    left_out: [Counter; 2],
}

#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Option<(SeriesKey, Decision)>>,
    memory: Option<Reservation>,
}

impl NameDecisions {
    pub(crate) fn new(account: Account, r: &Registry) -> Self {
        let slot_bytes = size_of::<Option<(SeriesKey, Decision)>>() as u64;
        let decisions = (account.limit_bytes() / ACCOUNT_PART / slot_bytes).clamp(1024, DECISIONS_MAX);
        let help = "Points left out because of their names, by the list of names that decided it.";
        let counter =
            |list| r.counter_with("floodmark_graphite_denied_points_total", help, &[("list", list)]);
        Self {
            shards: Default::default(),
            account,
            slots: decisions as usize / SHARDS,
            newest: Mutex::new(Version { fingerprint: SeriesKey(0), number: NonZeroU16::MIN }),
            left_out: ["allow", "deny"].map(counter),
        }
    }

    /// The number of the rules on names, by which known series are vetted. Rules that were read again, but have not changed, keep
    /// their number. Numbers come again after 65,535 changes, so a series that got no point meanwhile could be mistaken for one
    /// that was vetted.
    fn version_of(&self, rules: &Rules) -> NonZeroU16 {
        *rules.names_version.get_or_init(|| {
            let Version { fingerprint, number } = &mut *self.newest.lock();
            if *fingerprint != rules.names_fingerprint {
                *fingerprint = rules.names_fingerprint;
                *number = number.checked_add(1).unwrap_or(NonZeroU16::MIN);
            }
            *number
        })
    }

    pub(super) fn count(&self, list: List, points: u64) {
        self.left_out[list as usize].add(points);
    }

    fn get(&self, key: SeriesKey) -> Option<Decision> {
        let (shard, slot) = self.place(key);
        let shard = self.shards[shard].lock();
        let (found, decision) = shard.slots.get(slot)?.as_ref()?;
        (*found == key).then(|| decision.clone())
    }

    fn put(&self, key: SeriesKey, decision: Decision) {
        let (shard, slot) = self.place(key);
        let mut shard = self.shards[shard].lock();
        if shard.slots.is_empty() {
            let bytes = self.slots * size_of::<Option<(SeriesKey, Decision)>>();
            // without memory, the rules decide each time
            let Ok(memory) = self.account.reserve(bytes as u64) else { return };
            shard.memory = Some(memory);
            shard.slots.resize(self.slots, None);
        }
        shard.slots[slot] = Some((key, decision));
    }

    const fn place(&self, key: SeriesKey) -> (usize, usize) {
        (key.0 as usize % SHARDS, (key.0 >> 32) as u32 as usize % self.slots)
    }
}

/// The rules for the series of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameRules<'a> {
    rules: &'a Rules,
    decisions: &'a NameDecisions,
}

impl<'a> NameRules<'a> {
    /// Returns `None` if no rule is about names.
    pub(super) fn of(rules: &'a Rules, decisions: &'a NameDecisions) -> Option<Self> {
        rules.are_about_names().then_some(Self { rules, decisions })
    }

    /// Returns an earlier decision. `sent` is the key of the name that was sent.
    pub(super) fn remembered(&self, sent: SeriesKey) -> Option<Decision> {
        self.decisions.get(self.key(sent))
    }

    /// The version by which series are vetted.
    pub(super) fn version(&self) -> NonZeroU16 {
        self.decisions.version_of(self.rules)
    }

    pub(super) fn cost(&self) -> RuleCost {
        let Rules { rewrites, allow, deny, .. } = self.rules;
        RuleCost {
            per_byte: STATES * (rewrites.len() + allow.len() + deny.len()),
            per_searched_byte: if rewrites.is_empty() { 0 } else { STATES },
        }
    }

    /// Remembers that a series that does not exist keeps its name.
    pub(super) fn remember_kept(&self, sent: SeriesKey) {
        self.decisions.put(self.key(sent), Decision::Kept);
    }

    /// Decides on a name.
    pub(super) fn decide(
        &self,
        sent: SeriesKey,
        labels: Labels,
        builder: &mut LabelsBuilder,
        seed: u64,
    ) -> Result<Named, SeriesRefusal> {
        let mut name = String::new();
        write_name(&mut name, labels.as_ref());
        if let Some(list) = listed(self.rules, &name) {
            self.decisions.put(self.key(sent), Decision::LeftOut(list));
            return Ok(Named::LeftOut(list));
        }
        let rewrites = &self.rules.rewrites;
        let rewritten = rewrites.pre(&name).and_then(|name| rewrites.post(&name).map(Cow::into_owned));
        let rewritten = rewritten.map_err(|error| refusal(&error.to_string()))?;
        if rewritten == name {
            return Ok(Named::Kept(labels));
        }
        let labels = labels_of_name(&rewritten, builder)?;
        let key = SeriesKey::of(labels.as_bytes(), seed);
        if key == sent {
            return Ok(Named::Kept(labels));
        }
        self.decisions.put(self.key(sent), Decision::Stored(key));
        Ok(Named::Rewritten(labels))
    }

    /// Differs between versions of the rules.
    pub(super) const fn names_fingerprint(&self) -> SeriesKey {
        self.rules.names_fingerprint
    }

    /// Decisions of other rules have other keys, so that they are never found.
    const fn key(&self, sent: SeriesKey) -> SeriesKey {
        SeriesKey(sent.0 ^ self.rules.fingerprint.0)
    }
}

/// Returns the list that leaves a name out.
pub(super) fn listed(rules: &Rules, name: &str) -> Option<List> {
    let Rules { allow, deny, .. } = rules;
    if deny.contains(name) {
        return Some(List::Deny);
    }
    (!allow.is_empty() && !allow.contains(name)).then_some(List::Allow)
}

/// Parses a name with its tags.
pub(super) fn labels_of_name(name: &str, builder: &mut LabelsBuilder) -> Result<Labels, SeriesRefusal> {
    let mut parts = name.split(';');
    builder.clear();
    builder.push(METRIC_NAME, parts.next().unwrap_or_default());
    for part in parts {
        let tag = part.split_once('=').filter(|(tag, _)| !tag.is_empty() && *tag != "name");
        let (tag, value) = tag.ok_or_else(|| refusal("a rewrite rule makes a tag that is not name=value"))?;
        builder.push(label_of(tag), value);
    }
    builder.build_series()
}

fn refusal(what: &str) -> SeriesRefusal {
    SeriesRefusal::Rewritten { reason: what.to_owned() }
}
