//! `floodmark inspect file`: shows a Parquet file, or a block of Prometheus.

use super::{columns, time};
use crate::cli::inspect::InspectFile;
use crate::import::{Block, FilePart};
use crate::output::say;
use anyhow::Context;
use model::Samples;
use protocol::tsdb::SeriesEntry;
use serde_json::{Value, json};
use std::sync::Arc;
use tables::METRICS;
use tables::read::{Cursor, Footer, Select, WINDOW_BYTES};

struct Line {
    series: String,
    /// The number of samples in a row of a Parquet file, or the number of chunks of a series in a block.
    count: usize,
    first_ms: i64,
    last_ms: i64,
}

pub(super) fn run(args: &InspectFile) -> anyhow::Result<()> {
    let (summary, lines, unit) = match args.path.is_dir() {
        true => block(args)?,
        false => parquet(args)?,
    };
    if args.json {
        let rows = lines.iter().map(|line| {
            json!({ "series": line.series, unit: line.count, "start_ms": line.first_ms, "end_ms": line.last_ms })
        });
        let mut summary = summary;
        summary["rows"] = rows.collect();
        say(format_args!("{summary:#}"))?;
        return Ok(());
    }
    for (name, value) in summary.as_object().into_iter().flatten() {
        say(format_args!("{name}: {value}"))?;
    }
    let rows = lines
        .into_iter()
        .map(|line| vec![line.count.to_string(), time(line.first_ms), time(line.last_ms), line.series]);
    say(columns(&[unit, "start", "end", "series"], rows.collect()))?;
    Ok(())
}

fn parquet(args: &InspectFile) -> anyhow::Result<(Value, Vec<Line>, &'static str)> {
    let file = FilePart::open(&args.path).with_context(|| format!("cannot open {}", args.path.display()))?;
    let footer = Footer::read(&METRICS, &file)?;
    let bytes = file.byte_len();
    let (stretches, row_groups) = (footer.rows(), footer.row_groups());
    let mut rows = Cursor::new(file, Arc::new(footer), Arc::new(Select::ALL), WINDOW_BYTES);
    let mut lines = Vec::new();
    let mut last = None;
    let (mut series, mut samples) = (0u64, 0u64);
    let mut row = Samples::default();
    while rows.advance()? {
        row.clear();
        rows.read(&mut row)?;
        samples += row.len() as u64;
        series += u64::from(last != Some(rows.key()));
        last = Some(rows.key());
        if lines.len() < args.rows {
            let span = rows.span();
            let labels = rows.labels().to_owned().to_string();
            lines.push(Line {
                series: labels,
                count: row.len(),
                first_ms: span.start_ms,
                last_ms: span.end_ms,
            });
        }
    }
    let summary = json!({
        "format": "parquet",
        "bytes": bytes,
        "row_groups": row_groups,
        "stretches": stretches,
        "series": series,
        "samples": samples,
        "bytes_per_sample": bytes as f64 / samples.max(1) as f64,
    });
    Ok((summary, lines, "samples"))
}

fn block(args: &InspectFile) -> anyhow::Result<(Value, Vec<Line>, &'static str)> {
    let (meta, mut index, _, tombstones) = Block::open(&args.path)?.into_parts();
    let symbols = index.symbols();
    let mut entry = SeriesEntry::default();
    let mut lines = Vec::new();
    let (mut series, mut chunks) = (0u64, 0u64);
    while index.next(&mut entry)? {
        series += 1;
        chunks += entry.chunks.len() as u64;
        if lines.len() < args.rows {
            let labels = match &entry.labels {
                Some(Ok(labels)) => labels.to_string(),
                Some(Err(error)) => format!("({error})"),
                None => String::new(),
            };
            lines.push(Line {
                series: labels,
                count: entry.chunks.len(),
                first_ms: entry.chunks.iter().map(|c| c.min_time_ms).min().unwrap_or(0),
                last_ms: entry.chunks.iter().map(|c| c.max_time_ms).max().unwrap_or(0),
            });
        }
    }
    let summary = json!({
        "format": "tsdb",
        "ulid": meta.ulid,
        "start_ms": meta.min_time_ms,
        "end_ms": meta.max_time_ms,
        "symbols": symbols,
        "series": series,
        "chunks": chunks,
        "samples_by_meta": meta.samples,
        "series_with_deletions": tombstones.series(),
    });
    Ok((summary, lines, "chunks"))
}
