//! Finds the metrics and label pairs of a tenant with the most new series in about the last hour. This does
//! not look at each series.
//!
//! Each partition counts the new series of only some pairs ([`TenantHead::gained`]). For every other pair, it knows
//! an upper bound.

use super::cardinality::{sum, turns_of};
use super::{ENTRY_BYTES, LabelsAcross, Room};
use crate::query_source::tenant_label::{TENANT_LABEL, shown_name};
use crate::refusal::Refusal;
use head::{Gain, Gains, TenantHead};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// New series of a tenant since [`TenantHead::growth_since_s`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Number of all new series. This number is exact.
    pub(crate) created: u64,
    pub(crate) metrics: Top,
    /// The label pairs with the most new series. Metric names are not included.
    pub(crate) pairs: Top,
}

/// The metrics or label pairs with the most new series. They are chosen by the lower bounds on their numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Top {
    pub(crate) top: Vec<Grown>,
    /// A metric or pair that no partition counts has at most this many new series.
    pub(crate) others_max: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grown {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The number of new series is between `least` and `most`.
    pub(crate) least: u64,
    pub(crate) most: u64,
    pub(crate) series: u64,
}

/// For a pair: a lower bound, an upper bound, and the sum of `others_max` of the partitions that count this pair.
type Bounds = (u64, u64, u64);

#[derive(Debug, Default)]
struct Sum {
    pairs: BTreeMap<(String, String), Bounds>,
    others_max: u64,
}

impl Sum {
    fn add(&mut self, gains: &Gains<'_>, room: &mut Room<'_>) -> Result<(), Refusal> {
        self.others_max += gains.others_max;
        for Gain { name, value, least, most } in &gains.gains {
            room.reserve(name.len() + value.len() + ENTRY_BYTES)?;
            let sum = self.pairs.entry(((*name).to_owned(), (*value).to_owned())).or_default();
            (sum.0, sum.1, sum.2) = (sum.0 + least, sum.1 + most, sum.2 + gains.others_max);
        }
        Ok(())
    }

    fn top(self, limit: usize, series: impl Fn(&str, &str) -> Result<u64, Refusal>) -> Result<Top, Refusal> {
        let Self { pairs, others_max } = self;
        let grown = |((name, value), (least, most, counted)): (_, Bounds)| Grown {
            name,
            value,
            least,
            most: most + others_max - counted,
            series: 0,
        };
        let mut all = Top { top: pairs.into_iter().map(grown).collect(), others_max };
        all.sort();
        all.top.truncate(limit);
        for grown in &mut all.top {
            grown.series = series(&grown.name, &grown.value)?;
        }
        Ok(all)
    }
}

impl Top {
    /// Entries with equal numbers stay in the order in which they are, which is that of their names.
    fn sort(&mut self) {
        self.top.sort_by_key(|grown| Reverse((grown.least, grown.most)));
    }
}

impl LabelsAcross<'_> {
    /// Finds the `limit` metrics and the `limit` label pairs with the most new series. `now_s` is the present time of
    /// the steady clock. If there are several tenants, the tenant label is included, whose numbers are exact.
    pub(crate) fn growth(&self, limit: usize, now_s: u32) -> Result<Growth, Refusal> {
        let (mut created, mut metrics, mut pairs, mut room) =
            (0, Sum::default(), Sum::default(), self.first().room());
        let mut by_tenant = Vec::new();
        for of_tenant in &self.0 {
            let before = created;
            for turns in of_tenant.turns() {
                let mut added = Ok(());
                turns.turn(|head| {
                    let gained = head.gained(now_s);
                    created += gained.created;
                    let sums = [(&mut metrics, &gained.metrics), (&mut pairs, &gained.pairs)];
                    added = sums.into_iter().try_for_each(|(sum, gains)| sum.add(gains, &mut room));
                    true
                })?;
                added?;
            }
            by_tenant.push((of_tenant, created - before));
        }
        let all = turns_of(&self.0);
        let series =
            |name: &str, value: &str| Ok(sum(&all, |head: &TenantHead| head.series_with(name, value))?);
        let (metrics, mut pairs) = (metrics.top(limit, series)?, pairs.top(limit, series)?);
        if self.0.len() > 1 {
            for pair in &mut pairs.top {
                pair.name = shown_name(&pair.name).to_owned();
            }
            for (of_tenant, created) in by_tenant.into_iter().filter(|(_, created)| *created > 0) {
                let (name, value) = (TENANT_LABEL.to_owned(), of_tenant.tenant.as_str().to_owned());
                let series = of_tenant.series_count()?;
                pairs.top.push(Grown { name, value, least: created, most: created, series });
            }
            pairs.sort();
            pairs.top.truncate(limit);
        }
        Ok(Growth { created, metrics, pairs })
    }
}
