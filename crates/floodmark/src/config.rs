//! `floodmark config`: checks a file, and shows the settings in effect.

use crate::cli::config::{CheckArgs, ConfigCommand, PrintArgs};
use crate::output::{note, print, say};
use serde_json::{Value, json};
use server::settings::{EffectiveSetting, Given, Settings};

pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check(args) => check(&args),
        ConfigCommand::Print(args) => show(&args),
    }
}

fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let settings = Settings::resolve(&Given::default().file(&args.file)?)?;
    for warning in settings.warnings.iter().cloned().chain(settings.warning_of_access()) {
        note(format_args!("warning: {warning}"));
    }
    say(format_args!("{}: valid", args.file.display()))
}

fn show(args: &PrintArgs) -> anyhow::Result<()> {
    let (settings, rows) = Settings::effective(&args.serve.given()?)?;
    if args.json {
        let rows = rows.into_iter().map(|EffectiveSetting { key, value, origin }| {
            json!({ "key": key, "value": value, "origin": origin.kind(), "from": origin.detail() })
        });
        return say(format_args!("{:#}", Value::from_iter(rows)));
    }
    let rows = rows.into_iter().map(|EffectiveSetting { key, value, origin }| {
        let detail = origin.detail().map_or_else(String::new, |detail| format!(": {detail}"));
        [key, text(value), format!("{}{detail}", origin.kind())]
    });
    let rows: Vec<[String; 3]> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(60);
    let (keys, values) = (width(0), width(1));
    for [key, value, origin] in rows {
        print(format_args!("{key:keys$}  {value:values$}  {origin}\n"))?;
    }
    say(format_args!("\nMemory budget: {}", settings.budget))
}

/// Formats a setting's value in the way that its flag accepts.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.into_iter().map(text).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}
