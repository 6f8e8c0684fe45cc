//! Formats names and values, as a table on a terminal and as plain lines in a pipe.

use crate::verify::VerifyReport;
use comfy_table::{ContentArrangement, Table, presets};

/// In narrower terminals, lines are not wrapped.
const COLUMNS_MIN: u16 = 60;

pub(crate) type Row = (&'static str, String);

/// Formats rows as a table if `table` is true, otherwise as plain lines.
pub(crate) fn render(rows: &[Row], table: bool) -> String {
    if !table {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        return rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    }
    let mut out = Table::new();
    // a terminal that does not know its width reports 0
    let wraps = out.width().is_some_and(|columns| columns >= COLUMNS_MIN);
    let arrangement = if wraps { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    out.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(arrangement);
    for (name, value) in rows {
        out.add_row([*name, value.as_str()]);
    }
    format!("{out}\n")
}

pub fn verify_report(report: &VerifyReport, table: bool) -> String {
    render(&verify_rows(report), table) + &examples(report)
}

pub(crate) fn verify_rows(report: &VerifyReport) -> Vec<Row> {
    let none = if report.datagrams { " (datagrams are not owed)" } else { "" };
    let verified = format!("{} acknowledged samples in {:.1} s{none}", report.acknowledged, report.wall_s);
    let mut rows = vec![
        ("verified", verified),
        ("read back", report.read_back.to_string()),
        ("lost", report.lost.to_string()),
        ("doubled", report.doubled.to_string()),
        ("wrong", report.wrong.to_string()),
        ("unexpected", report.unexpected.to_string()),
    ];
    let rare = [
        ("rounded", report.rounded, "found with values that differ within the tolerance"),
        ("late", report.late, "found only by a repeated query"),
        (
            "superseded",
            report.superseded,
            "of those read back are not readable: a later sample is in their slot",
        ),
        (
            "stale",
            report.stale,
            "stored although a later value had been sent two seconds before: datagrams were lost or late, or the target's clock \
             is ahead",
        ),
        (
            "early",
            report.early,
            "sent later than their time: the target's clock is behind, or its times are the beginnings of intervals",
        ),
        ("absent", report.absent, "not stored, although the target should have stored them"),
        ("unknown", report.unknown, "of which it is not known whether they were sent; they are not owed"),
        ("not noted", report.unnoted, "not owed, because the ledger was full"),
        ("cut short", report.cut_short, "found only by queries for less, because larger answers lacked them"),
        ("unacknowledged", report.unacknowledged, "found, although their request was not acknowledged"),
        ("foreign series", report.foreign_series, "with the same metric names, but not of this run"),
    ];
    for (name, count, what) in rare {
        if count > 0 {
            rows.push((name, format!("{count} {what}")));
        }
    }
    if report.intervals > 0 {
        let distance = format!("the target stored values at {} times", report.intervals);
        rows.push(("intervals", format!("{distance}, {:.1} s apart", report.interval_s)));
        let stored = report.stored().map_or_else(str::to_owned, |share| {
            format!("{:.1} % of what the target should have stored is owed, and is not stale", share * 100.0)
        });
        rows.push(("stored", stored));
    }
    if report.early > 0 {
        rows.push(("early by", format!("up to {:.1} s", report.early_s)));
    }
    if report.looks_failed > 0 {
        let why = report.look_error.as_deref().unwrap_or_default();
        let failed = format!("{} of {} looks for new values failed", report.looks_failed, report.looks);
        rows.push(("not seen", format!("{failed}; the last one: {}", super::summary::printable(why))));
    }
    rows
}

/// Formats examples of each kind of fault. For unexpected and wrong samples, it adds a usual cause. It also says if
/// answers were not complete, and if nothing could be verified.
pub(crate) fn examples(report: &VerifyReport) -> String {
    let mut text: String = report.examples.iter().map(|example| format!("{example}\n")).collect();
    if report.unexpected > 0 {
        text += "note: unexpected samples often remain from an earlier run with the same series and other times: \
                 use another --seed, or an empty target\n";
    }
    if report.incomplete > 0 {
        let said = report.said.as_deref().unwrap_or_default();
        text += &format!(
            "note: {} answers lacked samples, and said that they may not be complete: {}\n",
            report.incomplete,
            super::summary::printable(said)
        );
    }
    if report.wrong > 0 {
        text += "note: wrong samples may remain from an earlier run with the same series and times, but other values: \
                 use another --seed, or an empty target\n";
    }
    if report.acknowledged == 0 && !report.datagrams {
        text += "note: no sample is owed, so that nothing was verified\n";
    }
    text
}
