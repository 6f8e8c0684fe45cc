//! `floodmark inspect journal`: shows the segments of the journal.

use super::columns;
use crate::cli::inspect::InspectJournal;
use crate::output::say;
use anyhow::Context;
use journal::files::inspect::{self, SegmentReport};
use serde_json::{Value, json};

pub(super) fn run(args: &InspectJournal) -> anyhow::Result<()> {
    let dir = args.data_dir.join("journal");
    let partitions = match args.partition {
        Some(partition) => vec![partition],
        None => inspect::partitions(&dir).with_context(|| format!("no journal in {}", dir.display()))?,
    };
    let mut all = Vec::new();
    for partition in partitions {
        inspect::inspect(&dir, partition, |report| all.push((partition, report)))?;
    }
    if args.json {
        say(format_args!(
            "{:#}",
            Value::from_iter(all.iter().map(|(partition, report)| to_json(*partition, report)))
        ))?;
        return Ok(());
    }
    let names = [
        "partition",
        "first",
        "end",
        "records",
        "series",
        "samples",
        "bytes",
        "file bytes",
        "damaged",
        "dictionary",
    ];
    let rows = all.iter().map(|(partition, r)| {
        let dictionary = r.dictionary.map_or("-".into(), |d| format!("{:016x}", d.0));
        let numbers = [
            u64::from(*partition),
            r.offsets.start,
            r.offsets.end,
            r.records,
            r.series,
            r.samples,
            r.bytes,
            r.file_bytes,
            r.damaged + r.unreadable,
        ];
        numbers.iter().map(ToString::to_string).chain([dictionary]).collect()
    });
    say(columns(&names, rows.collect()))?;
    for (_, report) in &all {
        for (bytes, lost, what) in &report.damage {
            let path = report.path.display();
            say(format_args!(
                "{path}: bytes {}..{}: {what}, {} records lost",
                bytes.start,
                bytes.end,
                lost.end - lost.start
            ))?;
        }
        if report.unreadable > 0 {
            say(format_args!(
                "{}: {} records have a version that this build cannot read",
                report.path.display(),
                report.unreadable
            ))?;
        }
    }
    Ok(())
}

fn to_json(partition: u32, r: &SegmentReport) -> Value {
    let damage = r.damage.iter().map(|(bytes, lost, what)| {
        json!({ "bytes": [bytes.start, bytes.end], "lost": [lost.start, lost.end], "what": what })
    });
    json!({
        "partition": partition,
        "path": r.path.display().to_string(),
        "offsets": [r.offsets.start, r.offsets.end],
        "dictionary": r.dictionary.map(|d| format!("{:016x}", d.0)),
        "records": r.records,
        "series": r.series,
        "samples": r.samples,
        "unreadable": r.unreadable,
        "bytes": r.bytes,
        "file_bytes": r.file_bytes,
        "damaged": r.damaged,
        "damage": damage.collect::<Vec<_>>(),
    })
}
