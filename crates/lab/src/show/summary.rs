//! A result for the terminal: the same rows as a table and as plain lines in a pipe.

use crate::result::RunResult;
use crate::result::figures::{FIGURES, show};

/// Figures that the terminal shows; the HTML file has all of them.
const SHOWN: [&str; 20] = [
    "samples_per_s",
    "samples_acknowledged",
    "series_active",
    "series_distinct",
    "pass_rate",
    "p50_s",
    "p99_s",
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
    "lost",
];

/// The result as text: a table on a terminal (`table`), plain lines in a pipe. It ends with the verdict.
pub fn text(result: &RunResult, table: bool) -> String {
    let mut rows: Vec<(&'static str, String)> =
        vec![("run", result.name.clone()), ("target", target(result))];
    for figure in FIGURES.iter().filter(|figure| SHOWN.contains(&figure.name)) {
        rows.extend(figure.of(result).map(|value| (figure.label, show(value, figure.unit))));
    }
    let statuses: Vec<String> = result.totals.by_reason.iter().map(|(r, n)| format!("{n} × {r}")).collect();
    if !statuses.is_empty() {
        rows.push(("answers", statuses.join(", ")));
    }
    if let Some(v) = result.verify.as_ref().filter(|v| v.doubled + v.wrong + v.unexpected > 0) {
        rows.push((
            "damaged",
            format!("{} doubled, {} wrong, {} unexpected", v.doubled, v.wrong, v.unexpected),
        ));
    }
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
    let mut out = crate::result::report::rows(&rows, table);
    for (reason, said) in &result.totals.said {
        out += &format!("said with {reason}: {}\n", printable(said));
    }
    for warning in &result.warnings {
        out += &format!("warning: {warning}\n");
    }
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

/// What a target says goes to a terminal: without control characters it can only be read.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
