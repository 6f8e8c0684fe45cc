//! `floodmark inspect table` and `inspect floodmarks`: show a tenant's live files and floodmarks.

use super::{columns, time};
use crate::cli::inspect::InspectTable;
use crate::import::{Lines, Place, runtime};
use crate::output::say;
use anyhow::Context;
use protocol::jsonl;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use tables::METRICS;
use tables::delta::Table;
use tables::read::Footer;

/// Opens the table, and calls `f` with it. The runtime must live during the call, because the table sends its
/// requests on it. Fails if there is no table.
fn with_table<T>(
    args: &InspectTable,
    f: impl FnOnce(&Place, &Table) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = runtime()?;
    let place = Place::of(&args.place, false)?;
    let table = place.required(&runtime)?;
    f(&place, &table)
}

pub(super) fn files(args: &InspectTable) -> anyhow::Result<()> {
    with_table(args, |_, table| {
        let files = table.files()?;
        let mut all = Vec::with_capacity(files.all().len());
        for file in files.all() {
            let samples = Footer::read(&METRICS, &table.file(file)?)?.samples();
            all.push((file, samples));
        }
        if args.json {
            let files = all.iter().map(|(file, samples)| {
                json!({
                    "path": file.path,
                    "date": file.date.to_string(),
                    "rows": file.rows,
                    "samples": samples,
                    "bytes": file.bytes,
                    "bytes_per_sample": file.bytes as f64 / (*samples).max(1) as f64,
                    "start_ms": file.range.start_ms,
                    "end_ms": file.range.end_ms,
                    "sequence": file.sequence,
                    "names": file.names,
                })
            });
            let files: Vec<Value> = files.collect();
            say(format_args!("{:#}", json!({ "version": table.version(), "files": files })))?;
            return Ok(());
        }
        let names = ["date", "rows", "samples", "bytes", "B/sample", "start", "end", "sequence", "path"];
        let rows = all.iter().map(|(file, samples)| {
            vec![
                file.date.to_string(),
                file.rows.to_string(),
                samples.to_string(),
                file.bytes.to_string(),
                format!("{:.3}", file.bytes as f64 / (*samples).max(1) as f64),
                time(file.range.start_ms),
                time(file.range.end_ms),
                file.sequence.to_string(),
                file.path.clone(),
            ]
        });
        say(columns(&names, rows.collect()))?;
        let bytes: u64 = all.iter().map(|(file, _)| file.bytes).sum();
        let samples: u64 = all.iter().map(|(_, samples)| samples).sum();
        say(format_args!(
            "version {}, {} files, {bytes} bytes, {samples} samples, {:.3} bytes a sample",
            table.version(),
            all.len(),
            bytes as f64 / samples.max(1) as f64
        ))?;
        Ok(())
    })
}

/// At most this many entries of the table's log are searched for the names of sources.
const ENTRIES_MAX: usize = 100_000;

pub(super) fn floodmarks(args: &InspectTable) -> anyhow::Result<()> {
    with_table(args, |place, table| {
        let sources = sources(place)?;
        let of_table = table.floodmarks(sources.iter().map(String::as_str))?;
        // the server also keeps the floodmarks in its data directory, but this file may be missing
        let manifest = fs::read(place.data_dir.join("floodmarks.json")).ok();
        let manifest: Option<Value> = manifest.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if args.json {
            say(format_args!("{:#}", json!({ "table": of_table, "data_directory": manifest })))?;
            return Ok(());
        }
        let rows = of_table.iter().map(|(source, offset)| vec![source.clone(), offset.to_string()]);
        say(columns(&["source", "floodmark"], rows.collect()))?;
        match manifest {
            Some(manifest) => say(format_args!("floodmarks.json, for all tenants: {manifest}"))?,
            None => say("the data directory has no readable floodmarks.json")?,
        }
        Ok(())
    })
}

/// Finds the names of sources (`txn.appId`) in the entries of the table's log that still exist.
fn sources(place: &Place) -> anyhow::Result<BTreeSet<String>> {
    let url = place.url("metrics");
    let path =
        url::Url::parse(&url).ok().filter(|u| u.scheme() == "file").and_then(|u| u.to_file_path().ok());
    let path = path.context(
        "floodmarks can be listed only for tables on this machine (file://): the names of the journals are read from the \
         table's log",
    )?;
    let mut sources = BTreeSet::new();
    let log = path.join("_delta_log");
    for entry in
        fs::read_dir(&log).with_context(|| format!("cannot read {}", log.display()))?.take(ENTRIES_MAX)
    {
        let entry = entry?.path();
        if entry.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let mut lines = Lines::open(&entry, jsonl::LINE_BYTES_MAX)?;
        while let Some(line) = lines.next()? {
            let action: Value = serde_json::from_slice(line).unwrap_or_default();
            sources.extend(action["txn"]["appId"].as_str().map(String::from));
        }
    }
    Ok(sources)
}
