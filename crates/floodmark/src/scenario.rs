//! `floodmark lab run` and what repeats it: carries scenarios out and prints what came of them.

use crate::cli::scenario::{
    Bounds, FindLimitArgs, FindMinimumArgs, MergeArgs, RaceArgs, RunArgs, ScenarioArgs,
};
use crate::load::observer;
use anyhow::{Context, Result, ensure};
use lab::campaign::{Found, Race, find_limit, find_minimum, race};
use lab::run::RunOptions;
use lab::search::Search;
use lab::{RunResult, Scenario, Stop, verdict};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

/// Carries out one scenario; true where it passed.
pub(crate) async fn run(args: &RunArgs) -> Result<bool> {
    let (scenario, mut options) = read(&args.scenario)?;
    if args.check {
        println!("{}: valid", scenario.name);
        return Ok(true);
    }
    options.part = args.part;
    let result = lab::run::run(&scenario, &options, &*observer(args.scenario.changes.quiet)).await?;
    tell(&result, args.scenario.changes.json, args.scenario.out.as_deref(), args.report.as_deref())
}

/// Searches for the largest load that passes; true where there is one.
pub(crate) async fn limit(args: &FindLimitArgs) -> Result<bool> {
    let (scenario, options) = read(&args.scenario)?;
    let Bounds { min, max, precision, confirm } = checked(&args.bounds)?;
    let search = Search::for_largest(*min, *max, *precision, *confirm);
    let found =
        find_limit(&scenario, &options, args.axis, search, &*observer(args.scenario.changes.quiet)).await?;
    tell_found(&found, &args.scenario)
}

/// Searches for the smallest target that passes; true where there is one.
pub(crate) async fn minimum(args: &FindMinimumArgs) -> Result<bool> {
    let (scenario, options) = read(&args.scenario)?;
    let Bounds { min, max, precision, confirm } = checked(&args.bounds)?;
    let search = Search::for_smallest(*min, *max, *precision, *confirm);
    let found =
        find_minimum(&scenario, &options, args.resource, search, &*observer(args.scenario.changes.quiet))
            .await?;
    tell_found(&found, &args.scenario)
}

/// Runs the scenario against several targets in turn; true where all laps passed.
pub(crate) async fn run_race(args: &RaceArgs) -> Result<bool> {
    ensure!(args.laps >= 1 && args.laps <= 1_000, "laps: between 1 and 1000");
    let (text, folder) = text_of(&args.scenario)?;
    let mut scenarios = Vec::new();
    for target in &args.targets {
        let mut changes = args.changes.overrides();
        let (write, read) = target.split_once(',').map_or((target.as_str(), None), |(w, r)| (w, Some(r)));
        changes.push(format!("target.write={write}"));
        changes.extend(read.map(|read| format!("target.read={read}")));
        scenarios.push(parse(&args.scenario, &text, &changes)?);
    }
    let options = RunOptions { text, folder, access: args.changes.access.access(), ..RunOptions::default() };
    stop_on_signals(&options.stop)?;
    let race = race(&scenarios, &options, args.laps, &*observer(args.changes.quiet)).await?;
    if args.changes.json {
        println!("{}", serde_json::to_string_pretty(&race)?);
    } else {
        print!("{}", race_text(&race, &args.targets));
    }
    Ok(!race.partial && race.laps.iter().all(|(_, result)| result.passed()))
}

/// Puts the results of several machines together; true where the whole passed.
pub(crate) fn merge(args: &MergeArgs) -> Result<bool> {
    let parts: Result<Vec<RunResult>> = args.results.iter().map(|path| RunResult::load(path)).collect();
    let whole = lab::merge::merge(&parts?)?;
    tell(&whole, args.json, args.out.as_deref(), args.report.as_deref())
}

fn checked(bounds: &Bounds) -> Result<&Bounds> {
    ensure!(bounds.min <= bounds.max, "--min is above --max");
    ensure!(bounds.precision > 1.0 && bounds.precision <= 10.0, "--precision: a factor above 1, up to 10");
    Ok(bounds)
}

fn read(args: &ScenarioArgs) -> Result<(Scenario, RunOptions)> {
    let (text, folder) = text_of(&args.scenario)?;
    let overrides = args.overrides();
    let scenario = parse(&args.scenario, &text, &overrides)?;
    let options =
        RunOptions { text, overrides, folder, access: args.changes.access.access(), ..RunOptions::default() };
    stop_on_signals(&options.stop)?;
    Ok((scenario, options))
}

/// The text of a scenario, and where it lies. A bare name is looked for in `scenarios/` too.
fn text_of(path: &Path) -> Result<(String, PathBuf)> {
    let preset = Path::new("scenarios").join(path).with_extension("toml");
    let path = if !path.exists() && preset.exists() { preset } else { path.to_owned() };
    let text = lab::import::read(&path)?;
    Ok((text, path.parent().unwrap_or(Path::new(".")).to_owned()))
}

fn parse(path: &Path, text: &str, overrides: &[String]) -> Result<Scenario> {
    Scenario::parse_with(text, overrides).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// Ctrl-C, an end from outside and a terminal that goes away all end the load; a second one ends the program.
pub(crate) fn stop_on_signals(stop: &Stop) -> Result<()> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind).context("listen to signals")?;
        let stop = stop.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if stop.is_set() {
                    std::process::exit(130);
                }
                stop.now();
            }
        });
    }
    Ok(())
}

/// Prints a result, and keeps it where asked to. A full disk does not cost the verdict.
fn tell(result: &RunResult, json: bool, out: Option<&Path>, report: Option<&Path>) -> Result<bool> {
    let saved = out.map(|path| result.save(path));
    let page = report.map(|path| lab::page::save(&lab::page::html(result), path));
    if json {
        println!("{}", result.to_json()?);
    } else {
        print!("{}", lab::summary::text(result, std::io::stdout().is_terminal()));
    }
    saved.transpose()?;
    page.transpose()?;
    Ok(result.passed())
}

fn tell_found(found: &Found, args: &ScenarioArgs) -> Result<bool> {
    let saved = args.out.as_deref().zip(found.best.as_ref()).map(|(path, best)| best.save(path));
    if args.changes.json {
        println!("{}", serde_json::to_string_pretty(found)?);
    } else {
        for trial in &found.trials {
            let word = if trial.passed { "pass" } else { "FAIL" };
            let again = if trial.confirming { " again" } else { "" };
            println!("{:>16.2}  {word}{again}  {}", trial.value, trial.failed.join(", "));
        }
        match (found.limit, found.partial) {
            (_, true) => println!("{}: STOPPED before anything was found", found.what),
            (Some(limit), _) if found.trials.iter().all(|trial| trial.passed) => {
                println!("{}: {limit:.2}, the bound itself: all that was tried passed", found.what);
            }
            (Some(limit), _) => println!("{}: {limit:.2}", found.what),
            (None, _) => println!("{}: nothing within the bounds passes", found.what),
        }
        if !found.breaks_first.is_empty() {
            println!("gives way first: {}", found.breaks_first.join(", "));
        }
    }
    saved.transpose()?;
    Ok(found.limit.is_some())
}

fn race_text(race: &Race, targets: &[String]) -> String {
    let mut out = String::new();
    for (number, result) in &race.laps {
        out += &format!("{}\n{}", targets[*number], verdict::to_text(result));
    }
    let number = |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.5}"));
    for ratio in &race.ratios {
        let medians: Vec<String> = ratio.medians.iter().map(number).collect();
        let ratios: Vec<String> = ratio.first_to.iter().map(number).collect();
        out += &format!("{:16}  {}  ratio {}\n", ratio.figure, medians.join("  "), ratios.join("  "));
    }
    out
}
