//! Reports as text: the same rows as a table on a terminal and as plain lines in a pipe.

use super::{Quantiles, WriteReport};
use crate::generate::template::Version;
use crate::show::progress::short;
use crate::verify::VerifyReport;
use comfy_table::{ContentArrangement, Table, presets};

/// Narrower terminals break the lines themselves.
const COLUMNS_MIN: u16 = 60;

type Row = (&'static str, String);

pub(super) fn write_report(report: &WriteReport, table: bool) -> String {
    let mut rows = write_rows(report);
    if let Some(verify) = &report.verify {
        rows.extend(verify_rows(verify));
    }
    let mut out = render(&rows, table);
    for (kind, said) in &report.errors {
        out += &format!("error {kind}: {said}\n");
    }
    if let Some(why) = &report.verify_error {
        out += &format!("error: not verified: {why}\n");
    }
    for warning in &report.warnings {
        out += &format!("warning: {warning}\n");
    }
    if let Some(verify) = &report.verify {
        out += &examples(verify);
    }
    if report.partial {
        out += "PARTIAL: ended before its time\n";
    }
    out
}

pub(super) fn verify_report(report: &VerifyReport, table: bool) -> String {
    render(&verify_rows(report), table) + &examples(report)
}

pub(super) fn render(rows: &[Row], table: bool) -> String {
    if !table {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        return rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    }
    let mut out = Table::new();
    // a terminal that does not know its width says 0, and each letter would get a line of its own
    let wraps = out.width().is_some_and(|columns| columns >= COLUMNS_MIN);
    let arrangement = if wraps { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    out.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(arrangement);
    for (name, value) in rows {
        out.add_row([*name, value.as_str()]);
    }
    format!("{out}\n")
}

fn write_rows(report: &WriteReport) -> Vec<Row> {
    let version = match report.protocol {
        Version::V1 => "1.0",
        Version::V2 => "2.0",
    };
    let pace = match report.offered_samples_per_s {
        Some(rate) => format!("{}/s on a schedule", short(rate)),
        None => "closed loop".to_owned(),
    };
    let churn =
        format!("{} different, {}/s new by churn", report.series_distinct, short(report.series_new_per_s));
    let mut rows: Vec<Row> = vec![
        ("target", format!("{} (remote write {version})", report.url)),
        ("load", load(report)),
        ("pace", format!("{pace}, {} connections", report.connections)),
        ("samples", format!("{} acknowledged in {:.1} s", report.samples_acknowledged, report.wall_s)),
        ("rate", format!("{} samples/s", short(report.samples_per_s))),
        ("series", churn),
        ("times", times(report)),
        ("requests", requests(report)),
        ("sent", sent(report)),
        ("latency", quantiles(&report.latency)),
        ("one attempt", quantiles(&report.service)),
    ];
    if report.refusal.count > 0 {
        rows.push(("refusals", quantiles(&report.refusal)));
    }
    rows.push(("generator lag", quantiles(&report.lag)));
    rows.extend(report.generator_cpu_s.map(|cpu_s| ("generator CPU", format!("{cpu_s:.2} s"))));
    rows.extend(target_rows(report));
    rows
}

fn times(report: &WriteReport) -> String {
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let interval_s = f64::from(report.plan.interval_ms) / 1000.0;
    format!("{} to {} (Unix seconds), every {interval_s} s", seconds(report.first_ms), seconds(report.end_ms))
}

fn load(report: &WriteReport) -> String {
    let plan = &report.plan;
    format!(
        "{} series = {} writers × {} metrics × {} targets, {} labels of {} bytes, {} values",
        report.series,
        plan.writers,
        plan.metrics,
        plan.targets,
        plan.fleet.labels,
        report.label_text_bytes,
        format!("{:?}", plan.values).to_lowercase()
    )
}

fn sent(report: &WriteReport) -> String {
    let bytes = report.requests.bytes as f64;
    let mib = bytes / f64::from(1 << 20);
    match report.samples_acknowledged {
        0 => format!("{mib:.1} MiB"),
        samples => format!("{mib:.1} MiB, {:.1} bytes an acknowledged sample", bytes / samples as f64),
    }
}

fn target_rows(report: &WriteReport) -> Vec<Row> {
    let Some(target) = report.target else { return Vec::new() };
    let gone = || "gone".to_owned();
    let mib =
        |bytes: Option<u64>| bytes.map_or_else(gone, |b| format!("{:.1} MiB", b as f64 / f64::from(1 << 20)));
    let samples = target.samples_per_cpu_s.map_or_else(gone, |n| format!("{} samples", short(n)));
    vec![
        ("target CPU", target.cpu_s.map_or_else(gone, |s| format!("{s:.2} s"))),
        ("a target CPU s", samples),
        ("target memory", format!("{}, at most {}", mib(target.rss_bytes), mib(target.rss_peak_bytes))),
    ]
}

fn requests(report: &WriteReport) -> String {
    let r = &report.requests;
    let mut text = format!("{} of up to {} series", r.sent, report.plan.batch);
    for (status, count) in &r.statuses {
        text += &format!(", {count} × {status}");
    }
    for (count, what) in [
        (r.retries, "repeated"),
        (r.failures_connect, "without connection"),
        (r.failures_broken, "broken off"),
        (r.failures_timeout, "timed out"),
        (r.rejected, "refused for good"),
        (r.given_up, "given up"),
        (r.short, "written short"),
        (r.unsent, "never begun"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

fn quantiles(q: &Quantiles) -> String {
    if q.count == 0 {
        return "none".to_owned();
    }
    let [p50, p90, p99, max] = [q.p50_s, q.p90_s, q.p99_s, q.max_s].map(seconds);
    format!("p50 {p50}  p90 {p90}  p99 {p99}  max {max}")
}

fn seconds(s: f64) -> String {
    match s {
        1.0.. => format!("{s:.2} s"),
        0.01.. => format!("{:.1} ms", s * 1e3),
        _ => format!("{:.2} ms", s * 1e3),
    }
}

fn verify_rows(report: &VerifyReport) -> Vec<Row> {
    let mut rows = vec![
        ("verified", format!("{} acknowledged samples in {:.1} s", report.acknowledged, report.wall_s)),
        ("read back", report.read_back.to_string()),
        ("lost", report.lost.to_string()),
        ("doubled", report.doubled.to_string()),
        ("wrong", report.wrong.to_string()),
        ("unexpected", report.unexpected.to_string()),
    ];
    let rare = [
        ("rounded", report.rounded, "found with values that differ within the tolerance"),
        ("late", report.late, "found only when asked again"),
        ("unacknowledged", report.unacknowledged, "found though their request was not answered with success"),
        ("foreign series", report.foreign_series, "under the same metric names, not of this run"),
    ];
    for (name, count, what) in rare {
        if count > 0 {
            rows.push((name, format!("{count} {what}")));
        }
    }
    rows
}

/// Examples of each fault, and what explains most unexpected samples.
fn examples(report: &VerifyReport) -> String {
    let mut text: String = report.examples.iter().map(|example| format!("{example}\n")).collect();
    if report.unexpected > 0 {
        text += "note: unexpected samples are often those of an earlier run with the same series and other times: \
                 choose another --seed, or an empty target\n";
    }
    text
}
