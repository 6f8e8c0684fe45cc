//! Counts a tenant's series, label pairs and values in memory, and finds the metrics, pairs and names with the
//! largest counts. This does not look at each series.
//!
//! Each partition lists its own largest metrics, pairs and names. For each of these, the exact counts in all
//! partitions are then added up.
//!
//! The number of distinct values is estimated from a sample: a value in `n` partitions counts as 1/`n` in each. For one
//! tenant, the number is exact with up to [`SAMPLES`] values, or with one partition. Several tenants share [`SAMPLES`].
//!
//! For several tenants, the partitions of all tenants are counted as if they were those of one tenant. The label that names the
//! tenant is added: it has a value for each tenant with series.

use super::{ENTRY_BYTES, LabelQueries, LabelsAcross, Room, TURN_SERIES};
use crate::query_source::tenant_label::{ORIGINAL_LABEL, TENANT_LABEL, shown_name};
use crate::query_source::{Canceled, Turns};
use crate::refusal::Refusal;
use head::{Largest, NameCount, PairCount, TenantHead};
use model::labels::METRIC_NAME;
use std::collections::BTreeSet;

/// At most this many values are examined for an estimate. The standard error is at most 0.5 / √256, or 3 %.
const SAMPLES: usize = 256;

/// If a tenant has more than [`SAMPLES`] labels, this many values of each label are examined. The standard error is
/// at most 9 %.
const SAMPLES_MIN: usize = 32;

/// For several tenants, [`SAMPLES`] and [`SAMPLES_MIN`] are divided by their number, because each value is looked up in the partitions of
/// all of them. At least this many values are examined in each partition, so the standard error of a partition's number is at most 18 %.
const SAMPLES_OF_TENANT_MIN: usize = 8;

/// Each partition lists twice as many entries as were requested, and this many more.
pub(super) const SPARE: usize = 16;

/// In each partition, series are counted for at most this many values of a label. The other values are extrapolated.
const VALUES_MAX: usize = 100_000;
/// Number of values that are counted in one turn, which takes about 0.1 ms.
const TURN_VALUES: usize = 4_000;

pub(crate) type Counts = Vec<(String, u64)>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cardinality {
    pub(crate) series: u64,
    pub(crate) label_pairs: u64,
    pub(crate) series_by_metric: Counts,
    pub(crate) series_by_pair: Counts,
    pub(crate) values_by_name: Counts,
    /// For each label name, the memory that its values take in all partitions, in bytes.
    pub(crate) value_bytes_by_name: Counts,
}

/// The label pairs and names that at least one partition has listed as its largest.
struct Named<'a> {
    pairs: BTreeSet<(String, String)>,
    names: BTreeSet<String>,
    room: Room<'a>,
}

impl Named<'_> {
    fn pair(&mut self, pair: PairCount<'_>) -> Result<(), Refusal> {
        self.room.reserve(2 * (pair.name.len() + pair.value.len() + ENTRY_BYTES))?;
        self.pairs.insert((pair.name.to_owned(), pair.value.to_owned()));
        Ok(())
    }

    fn name(&mut self, name: NameCount<'_>) -> Result<(), Refusal> {
        self.room.reserve(3 * (name.name.len() + ENTRY_BYTES))?;
        self.names.insert(name.name.to_owned());
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LabelNames {
    pub(crate) names: u64,
    pub(crate) values: u64,
    pub(crate) values_by_name: Counts,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LabelValues {
    pub(crate) name: String,
    pub(crate) values: u64,
    pub(crate) series: u64,
    pub(crate) series_by_value: Counts,
}

impl LabelQueries<'_> {
    pub(crate) fn series_count(&self) -> Result<u64, Refusal> {
        Ok(sum(&self.turns().collect::<Vec<_>>(), TenantHead::listed_count)?)
    }

    fn largest(
        &self,
        all: &[Turns<'_>],
        limit: usize,
        search: impl Fn(usize) -> Largest,
    ) -> Result<Named<'_>, Refusal> {
        let mut named = Named { pairs: BTreeSet::new(), names: BTreeSet::new(), room: self.room() };
        let count = 2 * limit + SPARE;
        named.room.reserve(count * Largest::BYTES)?;
        for turns in all {
            let mut largest = search(count);
            turns.until_done(|head| largest.advance(head))?;
            resolve(turns, largest.pairs(), |head, number| {
                head.pair(number).map_or(Ok(()), |pair| named.pair(pair))
            })?;
            resolve(turns, largest.names(), |head, number| {
                head.name(number).map_or(Ok(()), |name| named.name(name))
            })?;
        }
        Ok(named)
    }
}

impl LabelsAcross<'_> {
    /// Counts the series and labels of the tenants. Of each kind, lists the `limit` entries with the largest counts. If there are
    /// several tenants, the tenant label is included.
    pub(crate) fn cardinality(&self, limit: usize) -> Result<Cardinality, Refusal> {
        let mut found = cardinality(&self.0, limit)?;
        if let Some(tenants) = self.series_by_tenant()? {
            found.label_pairs += tenants.len() as u64;
            found.values_by_name.push((TENANT_LABEL.to_owned(), tenants.len() as u64));
            let pair = |(tenant, series): (String, u64)| (format!("{TENANT_LABEL}={tenant}"), series);
            found.series_by_pair.extend(tenants.into_iter().map(pair));
            found.values_by_name = largest_of(found.values_by_name, limit);
            found.series_by_pair = largest_of(found.series_by_pair, limit);
        }
        Ok(found)
    }

    pub(crate) fn label_names_cardinality(&self, limit: usize) -> Result<LabelNames, Refusal> {
        let mut found = label_names(&self.0, limit)?;
        if let Some(tenants) = self.series_by_tenant()? {
            found.names += u64::from(!tenants.is_empty());
            found.values += tenants.len() as u64;
            found.values_by_name.push((TENANT_LABEL.to_owned(), tenants.len() as u64));
            found.values_by_name = largest_of(found.values_by_name, limit);
        }
        Ok(found)
    }

    pub(crate) fn label_values_cardinality(&self, name: &str, limit: usize) -> Result<LabelValues, Refusal> {
        let Some(tenants) = self.series_by_tenant()? else { return label_values(&self.0, name, limit) };
        if name == TENANT_LABEL {
            return Ok(LabelValues {
                name: name.to_owned(),
                values: tenants.len() as u64,
                series: tenants.iter().map(|(_, series)| series).sum(),
                series_by_value: largest_of(tenants, limit),
            });
        }
        let stored = if name == ORIGINAL_LABEL { TENANT_LABEL } else { name };
        Ok(LabelValues { name: name.to_owned(), ..label_values(&self.0, stored, limit)? })
    }

    pub(crate) fn series_count(&self) -> Result<u64, Refusal> {
        self.0.iter().map(LabelQueries::series_count).sum()
    }

    /// Number of series of each tenant that has any. `None` if there is only one tenant, which has no tenant label.
    fn series_by_tenant(&self) -> Result<Option<Counts>, Refusal> {
        if self.0.len() == 1 {
            return Ok(None);
        }
        let count =
            |queries: &LabelQueries<'_>| Ok((queries.tenant.as_str().to_owned(), queries.series_count()?));
        let mut counts = self.0.iter().map(count).collect::<Result<Counts, Refusal>>()?;
        counts.retain(|(_, series)| *series > 0);
        Ok(Some(counts))
    }
}

/// The partitions of each tenant.
pub(super) fn turns_of<'a>(queries: &'a [LabelQueries<'_>]) -> Vec<Turns<'a>> {
    queries.iter().flat_map(|queries| queries.turns()).collect()
}

/// The name under which a stored label is counted.
fn name_among<'a>(queries: &[LabelQueries<'_>], stored: &'a str) -> &'a str {
    if queries.len() == 1 { stored } else { shown_name(stored) }
}

fn first<'a, 'q>(queries: &'a [LabelQueries<'q>]) -> &'a LabelQueries<'q> {
    queries.first().expect("BUG: a request has no tenant")
}

/// Number of values to examine in each partition of one of so many tenants.
fn samples_of_each(samples: usize, tenants: usize) -> usize {
    (samples / tenants).max(SAMPLES_OF_TENANT_MIN)
}

fn cardinality(queries: &[LabelQueries<'_>], limit: usize) -> Result<Cardinality, Refusal> {
    let all = turns_of(queries);
    let Named { pairs, names, .. } = first(queries).largest(&all, limit, Largest::of_all)?;
    let (mut series_by_metric, mut series_by_pair) = (Counts::new(), Counts::new());
    for (name, value) in pairs {
        let series = sum(&all, |head| head.series_with(&name, &value))?;
        series_by_pair.push((format!("{}={value}", name_among(queries, &name)), series));
        if name == METRIC_NAME {
            series_by_metric.push((value, series));
        }
    }
    let mut value_bytes_by_name = Counts::new();
    for name in &names {
        let bytes = sum(&all, |head| head.name_count(name).map_or(0, |name| name.bytes))?;
        value_bytes_by_name.push((name_among(queries, name).to_owned(), bytes));
    }
    Ok(Cardinality {
        series: sum(&all, TenantHead::listed_count)?,
        label_pairs: distinct_pairs(&all, queries.len())?,
        series_by_metric: largest_of(series_by_metric, limit),
        series_by_pair: largest_of(series_by_pair, limit),
        values_by_name: values_by_name(&all, queries, names, limit)?,
        value_bytes_by_name: largest_of(value_bytes_by_name, limit),
    })
}

fn label_names(queries: &[LabelQueries<'_>], limit: usize) -> Result<LabelNames, Refusal> {
    let all = turns_of(queries);
    let Named { names, .. } = first(queries).largest(&all, limit, Largest::label_names)?;
    let count = distinct(
        &all,
        samples_of_each(SAMPLES, queries.len()),
        TenantHead::names_count,
        |head, number, found| found.pair(head.name(number)?.name, ""),
        |head, found| head.name_count(&found.name).is_some(),
    )?;
    let values = distinct_pairs(&all, queries.len())?;
    Ok(LabelNames { names: count, values, values_by_name: values_by_name(&all, queries, names, limit)? })
}

fn label_values(queries: &[LabelQueries<'_>], name: &str, limit: usize) -> Result<LabelValues, Refusal> {
    let all = turns_of(queries);
    let Named { pairs, .. } = first(queries).largest(&all, limit, |count| Largest::values_of(name, count))?;
    let mut series_by_value = Counts::new();
    for (_, value) in pairs {
        let series = sum(&all, |head| head.series_with(name, &value))?;
        series_by_value.push((value, series));
    }
    Ok(LabelValues {
        name: name.to_owned(),
        values: distinct_values(&all, name, samples_of_each(SAMPLES, queries.len()))?,
        series: series_of(&all, name)?,
        series_by_value: largest_of(series_by_value, limit),
    })
}

/// Counts the series that have a label. If it has more than [`VALUES_MAX`] values, the number is extrapolated.
fn series_of(all: &[Turns<'_>], name: &str) -> Result<u64, Canceled> {
    let mut sum = 0;
    for turns in all {
        let (mut next, mut values, mut series, mut of_all) = (0, 0, 0, 0);
        turns.until_done(|head| {
            of_all = head.name_count(name).map_or(0, |name| name.values);
            let (from, before) = (next, values);
            for (number, count) in head.values_from(name, from).take(TURN_VALUES) {
                (next, values, series) = (number + 1, values + 1, series + count as u64);
            }
            values < before + TURN_VALUES || values >= VALUES_MAX
        })?;
        sum += if values >= VALUES_MAX { series * of_all.max(values) as u64 / values as u64 } else { series };
    }
    Ok(sum)
}

fn values_by_name(
    all: &[Turns<'_>],
    queries: &[LabelQueries<'_>],
    names: BTreeSet<String>,
    limit: usize,
) -> Result<Counts, Canceled> {
    let samples = if names.len() <= SAMPLES { SAMPLES } else { SAMPLES_MIN };
    let samples = samples_of_each(samples, queries.len());
    let count = |name: String| {
        let values = distinct_values(all, &name, samples)?;
        Ok::<_, Canceled>((name_among(queries, &name).to_owned(), values))
    };
    Ok(largest_of(names.into_iter().map(count).collect::<Result<_, _>>()?, limit))
}

fn distinct_values(all: &[Turns<'_>], name: &str, samples: usize) -> Result<u64, Canceled> {
    let count = |head: &TenantHead| head.name_count(name).map_or((0, 0), |name| (name.values, name.values));
    distinct(
        all,
        samples,
        count,
        |head, position, found| found.pair(name, head.nth_value(name, position)?),
        has_pair,
    )
}

fn distinct_pairs(all: &[Turns<'_>], tenants: usize) -> Result<u64, Canceled> {
    let count = |head: &TenantHead| (head.pair_count(), head.pairs_end());
    let copy = |head: &TenantHead, number, found: &mut Sampled| {
        let pair = head.pair(number)?;
        found.pair(pair.name, pair.value)
    };
    distinct(all, samples_of_each(SAMPLES, tenants), count, copy, has_pair)
}

fn has_pair(head: &TenantHead, pair: &Sampled) -> bool {
    head.has_value(&pair.name, &pair.value)
}

/// Calls `each` for each of the label pairs or names that are identified by `numbers`. The head is unlocked at
/// intervals.
pub(super) fn resolve(
    turns: &Turns<'_>,
    numbers: impl Iterator<Item = usize>,
    mut each: impl FnMut(&TenantHead, usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut numbers: Vec<_> = numbers.collect();
    let mut done = Ok(());
    turns.until_done(|head| {
        let turn = numbers.len().saturating_sub(TURN_SERIES);
        done = numbers.drain(turn..).try_for_each(|number| each(head, number));
        numbers.is_empty() || done.is_err()
    })?;
    done
}

pub(super) fn sum(all: &[Turns<'_>], number: impl Fn(&TenantHead) -> usize) -> Result<u64, Canceled> {
    let mut sum = 0;
    for turns in all {
        turns.turn(|head| {
            sum += number(head) as u64;
            true
        })?;
    }
    Ok(sum)
}

#[derive(Debug, Default)]
struct Sampled {
    name: String,
    value: String,
}

impl Sampled {
    fn pair(&mut self, name: &str, value: &str) -> Option<()> {
        name.clone_into(&mut self.name);
        value.clone_into(&mut self.value);
        Some(())
    }
}

/// Estimates the number of distinct items in all partitions. `count` returns how many items a partition has, and at
/// how many positions they can be; `copy` copies the item at a position; `has` tells whether a partition has an item.
fn distinct(
    all: &[Turns<'_>],
    samples: usize,
    count: impl Fn(&TenantHead) -> (usize, usize),
    copy: impl Fn(&TenantHead, usize, &mut Sampled) -> Option<()>,
    has: impl Fn(&TenantHead, &Sampled) -> bool,
) -> Result<u64, Canceled> {
    let (mut distinct, mut sampled) = (0.0, Sampled::default());
    for (i, turns) in all.iter().enumerate() {
        let (mut here, mut positions) = (0, 0);
        turns.turn(|head| {
            (here, positions) = count(head);
            true
        })?;
        if all.len() == 1 {
            return Ok(here as u64);
        }
        let (looked_at, mut found, mut share) = (positions.min(samples), 0, 0.0);
        for sample in 0..looked_at {
            let mut is_found = false;
            turns.turn(|head| {
                is_found = copy(head, sample * positions / looked_at, &mut sampled).is_some();
                true
            })?;
            if is_found {
                let others = all.iter().enumerate().filter(|(other, _)| *other != i);
                let mut holders = 1;
                for (_, other) in others {
                    other.turn(|head| {
                        holders += u32::from(has(head, &sampled));
                        true
                    })?;
                }
                found += 1;
                share += 1.0 / f64::from(holders);
            }
        }
        distinct += if found == 0 { here as f64 } else { here as f64 * share / f64::from(found) };
    }
    Ok(distinct.round() as u64)
}

pub(super) fn largest_of(mut counts: Counts, limit: usize) -> Counts {
    counts.retain(|(_, count)| *count > 0);
    counts.sort_unstable_by(|(a_name, a), (b_name, b)| b.cmp(a).then_with(|| a_name.cmp(b_name)));
    counts.truncate(limit);
    counts
}
