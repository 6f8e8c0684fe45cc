//! Compares what the node returns with the model, and checks what must always be true of tables and journals.

use crate::fleet::Fleet;
use crate::model::{Found, Key, Model};
use model::{Labels, Samples, Statistic, TenantId};
use server::sim::Stepped;
use std::collections::BTreeMap;
use std::sync::Arc;
use tables::DAY_MS;
use tables::METRICS;
use tables::read::{Cursor, Footer, Select, WINDOW_BYTES};
use tables::rollup::{self, Resolution};
use tables::{Date, Table, TableError};

/// Rollups are checked for this many days, beginning with the first imported day.
pub const ROLLED_DAYS: i64 = 7;

pub fn found(node: &Stepped, fleet: &Fleet) -> Result<Found, String> {
    let mut all = Found::default();
    for (tenant, id) in fleet.tenants.iter().enumerate() {
        let content = node.read(id).map_err(|e| format!("cannot read {id}: {e}"))?;
        for (labels, samples) in content {
            let series =
                fleet.series_of(&labels).ok_or_else(|| format!("{labels} is not a series of the fleet"))?;
            for (timestamp_ms, bits) in samples {
                if all.samples.insert((tenant, series, timestamp_ms), bits).is_some() {
                    return Err(format!("{labels} has two samples at {timestamp_ms}"));
                }
            }
        }
        all.metadata.extend(node.metadata(id).into_iter().map(|(metric, help)| ((tenant, metric), help)));
    }
    Ok(all)
}

/// Checks that no sample is stored more often than it was sent.
pub fn tables(node: &Stepped, fleet: &Fleet, model: &Model) -> Result<(), String> {
    for (key, count) in in_tables(node, fleet)? {
        let times = model.times(key);
        if count > times {
            return Err(format!("{key:?} was sent {times} times, but is in {count} rows"));
        }
    }
    Ok(())
}

/// Counts for each sample the rows in which it is stored, over all live files.
pub fn in_tables(node: &Stepped, fleet: &Fleet) -> Result<BTreeMap<Key, usize>, String> {
    let mut all = BTreeMap::new();
    for (tenant, id) in fleet.tenants.iter().enumerate() {
        let table = node.table(id).map_err(|e| format!("cannot open the table of {id}: {e}"))?;
        let Some(table) = table else { continue };
        let stored = stored(&table).map_err(|e| format!("cannot read the table of {id}: {e}"))?;
        for ((labels, timestamp_ms), count) in stored {
            let series =
                fleet.series_of(&labels).ok_or_else(|| format!("{labels} is not a series of the fleet"))?;
            all.insert((tenant, series, timestamp_ms), count);
        }
    }
    Ok(all)
}

fn stored(table: &Table) -> Result<BTreeMap<(String, i64), usize>, TableError> {
    table.refresh()?;
    let mut stored = BTreeMap::new();
    each_row(table, |labels, samples| {
        let labels = labels.to_string();
        for timestamp_ms in &samples.timestamps {
            *stored.entry((labels.clone(), *timestamp_ms)).or_insert(0) += 1;
        }
    })?;
    Ok(stored)
}

fn each_row(table: &Table, mut visit: impl FnMut(&Labels, &Samples)) -> Result<(), TableError> {
    for live in table.files()?.all() {
        let file = table.file(live)?;
        let footer = Arc::new(Footer::read(&METRICS, &file)?);
        let mut cursor = Cursor::new(file, footer, Arc::new(Select::ALL), WINDOW_BYTES);
        let mut samples = Samples::default();
        while cursor.advance()? {
            samples.clear();
            cursor.read(&mut samples)?;
            visit(&cursor.labels().to_owned(), &samples);
        }
    }
    Ok(())
}

/// Checks that no table has a sample that was deleted, and that no tombstone is left.
pub fn deleted(node: &Stepped, fleet: &Fleet, model: &Model) -> Result<(), String> {
    for key in in_tables(node, fleet)?.into_keys() {
        if !model.samples().contains_key(&key) && !model.may_be_expired(key) {
            return Err(format!("{key:?} was deleted, but is in a file"));
        }
    }
    for id in &fleet.tenants {
        let rollups = Resolution::ALL.map(|resolution| node.rollup(id, resolution));
        for table in std::iter::once(node.table(id)).chain(rollups) {
            let files = table.and_then(|table| table.map(|table| table.files()).transpose());
            let Some(files) = files.map_err(|e| format!("cannot read a table of {id}: {e}"))? else {
                continue;
            };
            let left = files.tombstones().list.len();
            if left > 0 {
                return Err(format!("tombstones of {id} left after a compaction: {left}"));
            }
        }
    }
    Ok(())
}

/// Compares complete rollups of [`ROLLED_DAYS`] days with the acknowledged samples: they must count every
/// sample. Only importers write to these days.
pub fn rollups(node: &Stepped, fleet: &Fleet, model: &Model, from_ms: i64) -> Result<(), String> {
    let days_ms = from_ms..from_ms + ROLLED_DAYS * DAY_MS;
    for (tenant, id) in fleet.tenants.iter().enumerate() {
        let mut samples: BTreeMap<(Date, String), f64> = BTreeMap::new();
        let own = model.samples().keys().filter(|key| key.0 == tenant && days_ms.contains(&key.2));
        for (_, series, timestamp_ms) in own {
            let series = fleet.series[*series].to_string();
            *samples.entry((Date::of(*timestamp_ms), series)).or_default() += 1.0;
        }
        for resolution in Resolution::ALL {
            let counted = counted(node, id, resolution).map_err(|e| format!("rollups of {id}: {e}"))?;
            let Some((complete, counted)) = counted else { continue };
            for ((date, series), count) in samples.iter().filter(|((date, _), _)| complete.contains(date)) {
                let found = counted.get(&(*date, series.clone())).copied().unwrap_or(0.0);
                if found != *count {
                    return Err(format!(
                        "{id}, {date}, {series}: the table has {count} samples, the rollup {resolution:?} counts {found}"
                    ));
                }
            }
            let is_rolled = |date: &Date| complete.contains(date) && days_ms.contains(&date.start_ms());
            for ((date, series), count) in counted.iter().filter(|((date, _), _)| is_rolled(date)) {
                if !samples.contains_key(&(*date, series.clone())) {
                    return Err(format!(
                        "{id}, {date}, {series}: the table has no samples, the rollup {resolution:?} counts {count}"
                    ));
                }
            }
        }
    }
    Ok(())
}

type Counts = BTreeMap<(Date, String), f64>;

/// The days for which a rollup is complete, and how many samples it counts for each series and day.
fn counted(
    node: &Stepped,
    tenant: &TenantId,
    resolution: Resolution,
) -> Result<Option<(Vec<Date>, Counts)>, TableError> {
    let (Some(table), Some(rollup)) = (node.table(tenant)?, node.rollup(tenant, resolution)?) else {
        return Ok(None);
    };
    table.refresh()?;
    rollup.refresh()?;
    let files = table.files()?;
    // queries ignore a rollup until the last delete was applied to it, so this check does the same
    if files
        .tombstones()
        .list
        .last()
        .is_some_and(|last| rollup::applied_deletes(&rollup).is_ok_and(|applied| applied < last.sequence))
    {
        return Ok(None);
    }
    let complete = rollup::days(&files, &rollup)?.complete;
    let mut counted = Counts::new();
    each_row(&rollup, |labels, samples| {
        if labels.as_ref().iter().any(|pair| pair == (rollup::label::LABEL, Statistic::Count.name())) {
            let series = rollup::labels_without(labels.as_ref()).to_string();
            for (timestamp_ms, count) in samples.timestamps.iter().zip(&samples.values) {
                *counted.entry((Date::of(*timestamp_ms), series.clone())).or_default() += count;
            }
        }
    })?;
    Ok(Some((complete, counted)))
}

pub fn describe(node: &Stepped, fleet: &Fleet) -> String {
    let mut text = String::new();
    for progress in node.progress() {
        text += &format!("\n{progress:?}");
        for id in &fleet.tenants {
            let Ok(Some(table)) = node.table(id) else { continue };
            let floodmark = table.floodmarks([progress.source.as_str()]).unwrap_or_default();
            let files = table.files().map_or(0, |files| files.all().len());
            text += &format!("\n  {id}: version {}, {files} files, {floodmark:?}", table.version());
        }
    }
    text
}

/// Checks that no floodmark is beyond the end of its journal, and that the journal still has every record
/// beyond the floodmark.
pub fn floodmarks(node: &Stepped, fleet: &Fleet, lost_marks: bool) -> Result<(), String> {
    for progress in node.progress() {
        let (start, end) = progress.offsets;
        // if `floodmarks.json` was lost, a tenant without samples may have a floodmark below the start of the
        // journal
        if !lost_marks && progress.upto > 0 && start > progress.upto {
            return Err(format!("records that are not in all tables were truncated: {progress:?}"));
        }
        for id in &fleet.tenants {
            let Some(table) = node.table(id).map_err(|e| e.to_string())? else { continue };
            let source = progress.source.as_str();
            let floodmark = table.floodmarks([source]).map_err(|e| e.to_string())?.remove(source);
            if floodmark.is_some_and(|floodmark| floodmark > end) {
                return Err(format!(
                    "the floodmark of {id} is {floodmark:?}, beyond the durable end: {progress:?}"
                ));
            }
        }
    }
    Ok(())
}
