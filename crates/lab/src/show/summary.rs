//! A result for the terminal: the same rows as a table and as plain lines in a pipe.

use crate::result::RunResult;
use crate::result::figures::{FIGURES, show};
use crate::show::text::{Row, examples, render, verify_rows};

/// Figures that the terminal shows; the HTML file has all of them.
const SHOWN: [&str; 25] = [
    "samples_per_s",
    "samples_acknowledged",
    "series_active",
    "series_distinct",
    "pass_rate",
    "p50_s",
    "p90_s",
    "p99_s",
    "max_s",
    "service_p99_s",
    "refusal_p99_s",
    "lag_p99_s",
    "bytes_per_sample",
    "p99_known_s",
    "p99_new_s",
    "freshness_p99_s",
    "queries_per_s",
    "read_pass_rate",
    "read_p99_s",
    "restarts",
    "cpu_cores_mean",
    "rss_peak_bytes",
    "samples_per_s_per_core",
    "bytes_per_series",
    "disk_util_peak",
];

/// The result as text: a table on a terminal (`table`), plain lines in a pipe. It ends with the verdict.
pub fn text(result: &RunResult, table: bool) -> String {
    let mut rows: Vec<Row> = vec![("run", result.name.clone()), ("target", target(result))];
    for figure in FIGURES.iter().filter(|figure| SHOWN.contains(&figure.name)) {
        rows.extend(figure.of(result).map(|value| (figure.label, show(value, figure.unit))));
    }
    let statuses: Vec<String> = result.totals.by_reason.iter().map(|(r, n)| format!("{n} × {r}")).collect();
    if !statuses.is_empty() {
        rows.push(("answers", statuses.join(", ")));
    }
    rows.extend(result.verify.as_ref().map(verify_rows).unwrap_or_default());
    if let Some(first) = &result.saturated {
        rows.push(("used up first", format!("{} after {:.0} s: {}", first.resource, first.at_s, first.why)));
    }
    for j in &result.verdict {
        rows.push((
            "rule",
            match (j.pass, j.unmeasured) {
                (true, _) => format!("kept: {} {} (measured: {})", j.rule, j.limit, j.measured),
                (false, false) => format!("BROKEN: {} {} (measured: {})", j.rule, j.limit, j.measured),
                (false, true) => format!("UNKNOWN: {} {} ({})", j.rule, j.limit, j.measured),
            },
        ));
    }
    let mut out = render(&rows, table);
    for (reason, said) in &result.totals.said {
        out += &format!("said with {reason}: {}\n", printable(said));
    }
    for warning in &result.warnings {
        out += &format!("warning: {warning}\n");
    }
    out += &result.verify.as_ref().map(examples).unwrap_or_default();
    out + verdict(result)
}

fn target(result: &RunResult) -> String {
    match result.versions.get("target") {
        Some(version) => format!("{} ({version})", result.target),
        None => result.target.clone(),
    }
}

fn verdict(result: &RunResult) -> &'static str {
    match () {
        () if result.partial => "PARTIAL: ended before its time, no verdict\n",
        () if result.verdict.is_empty() => "",
        () if result.passed() => "PASS\n",
        () => "FAIL\n",
    }
}

/// Removes control characters from a target's text, so that printing it to a terminal is safe.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
