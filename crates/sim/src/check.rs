//! What is there, as the model sees it, and what must be true of tables and journals beside.

use crate::fleet::Fleet;
use crate::model::{Found, Key, Model};
use model::Samples;
use server::sim::Stepped;
use std::collections::BTreeMap;
use std::sync::Arc;
use tables::read::{Cursor, Footer, Select, WINDOW_BYTES};
use tables::{Table, TableError};

/// All that queries find, heads and tables together.
pub fn found(node: &Stepped, fleet: &Fleet) -> Result<Found, String> {
    let mut all = Found::default();
    for (tenant, id) in fleet.tenants.iter().enumerate() {
        let content = node.read(id).map_err(|e| format!("{id} cannot be read: {e}"))?;
        for (labels, samples) in content {
            let series = fleet.series_of(&labels).ok_or_else(|| format!("{labels} is nobody's series"))?;
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

/// No sample lies in more live files than it was sent.
pub fn tables(node: &Stepped, fleet: &Fleet, model: &Model) -> Result<(), String> {
    for (key, count) in in_tables(node, fleet)? {
        let times = model.times(key);
        if count > times {
            return Err(format!("{key:?} was sent {times} times, and is in {count} rows"));
        }
    }
    Ok(())
}

/// In how many live files each sample is.
pub fn in_tables(node: &Stepped, fleet: &Fleet) -> Result<BTreeMap<Key, usize>, String> {
    let mut all = BTreeMap::new();
    for (tenant, id) in fleet.tenants.iter().enumerate() {
        let table = node.table(id).map_err(|e| format!("the table of {id} cannot be opened: {e}"))?;
        let Some(table) = table else { continue };
        let stored = stored(&table).map_err(|e| format!("the table of {id} cannot be read: {e}"))?;
        for ((labels, timestamp_ms), count) in stored {
            let series = fleet.series_of(&labels).ok_or_else(|| format!("{labels} is nobody's series"))?;
            all.insert((tenant, series, timestamp_ms), count);
        }
    }
    Ok(all)
}

/// How often each sample lies in live files.
fn stored(table: &Table) -> Result<BTreeMap<(String, i64), usize>, TableError> {
    table.refresh()?;
    let mut stored = BTreeMap::new();
    for live in table.files()?.all() {
        let file = table.file(live)?;
        let footer = Arc::new(Footer::read(&file)?);
        let mut cursor = Cursor::new(file, footer, Arc::new(Select::ALL), WINDOW_BYTES);
        let mut samples = Samples::default();
        while cursor.advance()? {
            samples.clear();
            cursor.read(&mut samples)?;
            let labels = cursor.labels().to_owned().to_string();
            for timestamp_ms in &samples.timestamps {
                *stored.entry((labels.clone(), *timestamp_ms)).or_insert(0) += 1;
            }
        }
    }
    Ok(stored)
}

/// Where journals and tables are, for who has to find out why something is wrong.
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

/// No floodmark lies beyond what is durable, and nothing has left a journal that lies beyond its floodmark.
pub fn floodmarks(node: &Stepped, fleet: &Fleet, lost_marks: bool) -> Result<(), String> {
    for progress in node.progress() {
        let (start, end) = progress.offsets;
        // of lost marks nothing is known but what tables say, and those of a tenant that had nothing say less
        if !lost_marks && progress.upto > 0 && start > progress.upto {
            return Err(format!("{progress:?}: records are gone that are not in all tables"));
        }
        for id in &fleet.tenants {
            let Some(table) = node.table(id).map_err(|e| e.to_string())? else { continue };
            let source = progress.source.as_str();
            let floodmark = table.floodmarks([source]).map_err(|e| e.to_string())?.remove(source);
            if floodmark.is_some_and(|floodmark| floodmark > end) {
                return Err(format!("{id} is at {floodmark:?}, beyond what is durable: {progress:?}"));
            }
        }
    }
    Ok(())
}
