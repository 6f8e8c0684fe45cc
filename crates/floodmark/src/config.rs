//! `floodmark config`: is a file usable, and what is in effect.

use crate::cli::config::{CheckArgs, ConfigCommand, PrintArgs};
use crate::output::{note, print, say};
use clap::ArgMatches;
use clap::parser::ValueSource;
use serde_json::{Value, json};
use server::{EffectiveSetting, Flags, Origin, Settings};
use std::path::Path;

/// `matches` are those of the whole command line: they tell flags from the environment.
pub(crate) fn run(command: ConfigCommand, matches: &ArgMatches) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check(args) => check(&args),
        ConfigCommand::Print(args) => {
            let matches =
                ["config", "print"].iter().try_fold(matches, |at, name| at.subcommand_matches(name));
            show(*args, matches.expect("BUG: another command was given"))
        }
    }
}

fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let settings = Settings::resolve(Flags { config: Some(args.file.clone()), ..Flags::default() })?;
    if !settings.http.ip().is_loopback() {
        note(format_args!(
            "warning: http = {} is reachable from other machines, and there is no authentication",
            settings.http
        ));
    }
    say(format_args!("{}: valid", args.file.display()))
}

fn show(args: PrintArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let file = args.serve.config.clone();
    let flags = Flags::from(args.serve);
    let budget = Settings::resolve(flags.clone())?.budget;
    let rows = Settings::effective(flags)?;
    let rows = rows.into_iter().map(|row| (source(&row, file.as_deref(), matches), row));
    if args.json {
        let rows = rows.map(|((kind, detail), EffectiveSetting { key, value, .. })| {
            json!({ "key": key, "value": value, "origin": kind, "from": detail })
        });
        return say(format_args!("{:#}", Value::from_iter(rows)));
    }
    let rows: Vec<[String; 3]> = rows
        .map(|((kind, detail), row)| {
            let origin = detail.map_or_else(|| kind.to_owned(), |detail| format!("{kind}: {detail}"));
            [row.key, text(&row.value), origin]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(60);
    let (keys, values) = (width(0), width(1));
    for [key, value, origin] in rows {
        print(format_args!("{key:keys$}  {value:values$}  {origin}\n"))?;
    }
    say(format_args!("\nThe memory is shared out: {budget}"))
}

/// The kind of origin, and which one.
fn source(
    row: &EffectiveSetting,
    file: Option<&Path>,
    matches: &ArgMatches,
) -> (&'static str, Option<String>) {
    match &row.origin {
        Origin::Default => ("default", None),
        Origin::Derived(why) => ("derived", Some(why.clone())),
        Origin::File => ("file", file.map(|file| file.display().to_string())),
        Origin::Environment(variable) => ("environment", Some(variable.clone())),
        Origin::Flags => match matches.value_source(&row.key) {
            Some(ValueSource::EnvVariable) => {
                ("environment", Some(format!("FLOODMARK_{}", row.key.to_ascii_uppercase())))
            }
            _ => ("flag", Some(format!("--{}", row.key.replace('_', "-")))),
        },
    }
}

/// A value as a person writes it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
