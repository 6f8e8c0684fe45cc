//! `floodmark rules test`: shows what rules would do to recorded series.
//!
//! ```text
//!   recording, or text ─ input ─▶ series, number of samples ─ trial ─▶ counts and examples of each rule ─▶ table, or JSON
//! ```

mod input;
mod trial;

use crate::cli::rules::{RulesCommand, RulesTest};
use crate::output::{print, say};
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};
use server::IngestRulesFile;
use std::fmt::Write;
use std::io::IsTerminal;
use trial::{RuleCounts, Trial};

pub(crate) fn run(command: RulesCommand) -> Result<()> {
    let RulesCommand::Test(args) = command;
    test(&args)
}

fn test(args: &RulesTest) -> Result<()> {
    let file = IngestRulesFile { path: args.rules.clone() };
    let rules = file.load().map_err(anyhow::Error::msg)?;
    let mut trial = Trial::new(&rules, args.tenant.clone(), args.examples);
    let damage = match &args.series {
        Some(path) => {
            let file =
                std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            input::read(file, &mut trial).with_context(|| format!("cannot read {}", path.display()))?
        }
        None => input::read(std::io::stdin().lock(), &mut trial).context("cannot read stdin")?,
    };
    if args.json {
        return say(format_args!("{:#}", document(&trial, damage.as_deref())));
    }
    print(text(&trial, damage.as_deref(), std::io::stdout().is_terminal()))
}

fn document(trial: &Trial<'_>, damage: Option<&str>) -> Value {
    let pairs = |pairs: &[(String, String)], after: &str| {
        pairs.iter().map(|(before, second)| json!({ "series": before, after: second })).collect::<Vec<_>>()
    };
    let rules = trial.rules().map(|(list, number, rule, counts)| {
        json!({
            "list": list.name,
            "rule": number,
            "line": rule.line,
            "summary": rule.summary(),
            "series": counts.series,
            "samples": counts.samples,
            "changed_series": counts.changed_series,
            "changed_samples": counts.changed_samples,
            "dropped_series": counts.dropped_series,
            "dropped_samples": counts.dropped_samples,
            "examples": pairs(&counts.examples, "becomes"),
        })
    });
    let totals = &trial.totals;
    json!({
        "series": totals.series,
        "samples": totals.samples,
        "dropped_series": totals.dropped_series,
        "dropped_samples": totals.dropped_samples,
        "refused_series": totals.refused_series,
        "refused_samples": totals.refused_samples,
        "refused": pairs(&totals.refused, "reason"),
        "stored_series": trial.stored_series(),
        "stored_samples": totals.samples - totals.dropped_samples - totals.refused_samples,
        "ns_per_series": trial.ns_per_series(),
        "damage": damage,
        "rules": rules.collect::<Vec<_>>(),
    })
}

fn text(trial: &Trial<'_>, damage: Option<&str>, is_terminal: bool) -> String {
    let mut out = String::new();
    let totals = &trial.totals;
    let _ = writeln!(
        out,
        "{} series with {} samples; {} series dropped, {} refused, {} stored",
        totals.series,
        totals.samples,
        totals.dropped_series,
        totals.refused_series,
        trial.stored_series()
    );
    let _ = writeln!(out, "{:.0} ns for the rules of one series", trial.ns_per_series());
    if let Some(damage) = damage {
        let _ = writeln!(out, "{damage}");
    }
    let rules: Vec<_> = trial.rules().collect();
    if rules.is_empty() {
        out.push_str("no rule was applied\n");
        return out;
    }
    let _ = writeln!(out, "\n{}", table(&rules, is_terminal));
    for (list, number, _, counts) in &rules {
        for (before, after) in &counts.examples {
            let _ =
                writeln!(out, "\n{}/{number}  {before}\n{}  {after}", list.name, arrow(&list.name, *number));
        }
    }
    for (series, reason) in &totals.refused {
        let _ = writeln!(out, "\nrefused  {series}\n         {reason}");
    }
    out
}

/// An arrow that ends where the name of a rule ends.
fn arrow(list: &str, number: usize) -> String {
    format!("{:>width$}", "→", width = format!("{list}/{number}").chars().count())
}

type Row<'a> = (&'a rules::ingest::RuleList, usize, &'a rules::ingest::IngestRule, &'a RuleCounts);

fn table(rules: &[Row<'_>], is_terminal: bool) -> String {
    let mut table = Table::new();
    table.load_style(if is_terminal { presets::UTF8_HORIZONTAL_ONLY } else { presets::NOTHING });
    if is_terminal {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(["rule", "line", "series", "changed", "dropped", "samples dropped", "does"]);
    for (list, number, rule, counts) in rules {
        table.add_row([
            format!("{}/{number}", list.name),
            rule.line.to_string(),
            counts.series.to_string(),
            counts.changed_series.to_string(),
            counts.dropped_series.to_string(),
            counts.dropped_samples.to_string(),
            rule.summary(),
        ]);
    }
    for column in 1..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
