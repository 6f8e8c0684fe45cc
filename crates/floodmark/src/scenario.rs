//! `floodmark lab run`, and the commands that run a scenario more than once.

use crate::cli::lab::{InitArgs, ScenariosArgs};
use crate::cli::scenario::{
    Bounds, FindLimitArgs, FindMinimumArgs, MergeArgs, RaceArgs, RunArgs, ScenarioArgs,
};
use crate::output::{observer, print, save, say, show};
use crate::signals::stoppable;
use anyhow::{Context, Result, bail, ensure};
use lab::campaign::search::Search;
use lab::campaign::{Found, Race, amount, find_limit, find_minimum, race};
use lab::drive::options::RunOptions;
use lab::result::verdict;
use lab::scenario::{PRESETS, preset};
use lab::{RunResult, Scenario, Stop};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Lists the presets, each with the first sentence of its description.
pub(crate) fn list(args: &ScenariosArgs) -> Result<bool> {
    let about = |text: &str| -> Result<String> {
        let about = Scenario::parse(text)?.about;
        Ok(about.split_once(". ").map_or(about.as_str(), |(first, _)| first).trim_end_matches('.').to_owned())
    };
    let mut rows = Vec::with_capacity(PRESETS.len());
    for (name, text) in PRESETS {
        rows.push((name, about(text)?));
    }
    if args.json {
        let rows = rows.iter().map(|(name, about)| json!({ "name": name, "about": about }));
        say(format_args!("{:#}", rows.collect::<Value>()))?;
        return Ok(true);
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in rows {
        say(format_args!("{name:width$}  {about}"))?;
    }
    Ok(true)
}

pub(crate) fn init(args: &InitArgs) -> Result<bool> {
    let text = preset(&args.preset).with_context(|| format!("there is no preset {}", args.preset))?;
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(&args.preset).with_extension("toml"));
    let mut file = File::create_new(&path).with_context(|| {
        let why = if path.exists() { ": the file exists; name another file with --output" } else { "" };
        format!("cannot create {}{why}", path.display())
    })?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    say(format_args!("wrote {}; edit the file, then run: floodmark lab run {0}", path.display()))?;
    Ok(true)
}

/// Runs a scenario. Returns true if all its checks passed.
pub(crate) async fn run(args: &RunArgs) -> Result<bool> {
    let (scenario, mut options) = read(&args.scenario)?;
    if args.check {
        say(format_args!("{}: valid", scenario.name))?;
        return Ok(true);
    }
    options.part = args.part;
    let observer = observer(args.scenario.result.print.quiet);
    let result = stoppable(&options.stop, lab::drive::run::run(&scenario, &options, &*observer)).await?;
    show(&result, &args.scenario.result)?;
    Ok(result.passed())
}

pub(crate) async fn limit(args: &FindLimitArgs) -> Result<bool> {
    let (scenario, options) = read(&args.scenario)?;
    let Bounds { min, max, precision, confirm } = checked(&args.bounds)?;
    let search = Search::for_largest(*min, *max, *precision, *confirm);
    let observer = observer(args.scenario.result.print.quiet);
    let finding = find_limit(&scenario, &options, args.axis, search, &*observer);
    tell_found(&stoppable(&options.stop, finding).await?, &args.scenario)
}

pub(crate) async fn minimum(args: &FindMinimumArgs) -> Result<bool> {
    let (scenario, options) = read(&args.scenario)?;
    let Bounds { min, max, precision, confirm } = checked(&args.bounds)?;
    let search = Search::for_smallest(*min, *max, *precision, *confirm);
    let observer = observer(args.scenario.result.print.quiet);
    let finding = find_minimum(&scenario, &options, args.resource, search, &*observer);
    tell_found(&stoppable(&options.stop, finding).await?, &args.scenario)
}

pub(crate) async fn run_race(args: &RaceArgs) -> Result<bool> {
    let (text, folder) = text_of(&args.scenario)?;
    let (stop, access) = (Stop::default(), args.changes.access.access());
    let mut racers = Vec::new();
    for target in &args.targets {
        let mut overrides = args.changes.overrides();
        let (write, read) = target.split_once(',').map_or((target.as_str(), None), |(w, r)| (w, Some(r)));
        overrides.push(format!("target.write={write}"));
        overrides.extend(read.map(|read| format!("target.read={read}")));
        let scenario = parse(&args.scenario, &text, &overrides)?;
        let options = RunOptions {
            text: text.clone(),
            overrides,
            folder: folder.clone(),
            access: access.clone(),
            stop: stop.clone(),
            ..RunOptions::default()
        };
        racers.push((scenario, options));
    }
    let observer = observer(args.print.quiet);
    let race = stoppable(&stop, race(&racers, args.laps, &*observer)).await?;
    if args.print.json {
        say(serde_json::to_string_pretty(&race)?)?;
    } else {
        print(race_text(&race, &args.targets))?;
    }
    Ok(!race.partial && race.missing.is_empty() && race.laps.iter().all(|(_, result)| result.passed()))
}

pub(crate) fn merge(args: &MergeArgs) -> Result<bool> {
    let parts: Result<Vec<RunResult>> = args.results.iter().map(|path| RunResult::load(path)).collect();
    let whole = lab::result::merge::merge(&parts?)?;
    show(&whole, &args.result)?;
    Ok(whole.passed())
}

fn checked(bounds: &Bounds) -> Result<&Bounds> {
    ensure!(bounds.min <= bounds.max, "--min is above --max");
    ensure!(
        bounds.precision > 1.0 && bounds.precision <= 10.0,
        "--precision is a factor above 1 and at most 10"
    );
    Ok(bounds)
}

fn read(args: &ScenarioArgs) -> Result<(Scenario, RunOptions)> {
    let (text, folder) = text_of(&args.scenario)?;
    let overrides = args.overrides();
    let scenario = parse(&args.scenario, &text, &overrides)?;
    let access = args.changes.access.access();
    Ok((scenario, RunOptions { text, overrides, folder, access, ..RunOptions::default() }))
}

/// Finds a scenario by path, by its name in `scenarios/`, or among the presets. Returns its text and its
/// directory.
fn text_of(path: &Path) -> Result<(String, PathBuf)> {
    let beside = Path::new("scenarios").join(path).with_extension("toml");
    let path = if !path.exists() && beside.exists() { beside } else { path.to_owned() };
    let text = match path.to_str().and_then(preset).filter(|_| !path.exists()) {
        Some(text) => text.to_owned(),
        None if path.exists() => lab::scenario::import::read(&path)?,
        None => {
            let names = PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            bail!("there is no file {}, and no preset of that name; presets: {names}", path.display());
        }
    };
    Ok((text, path.parent().unwrap_or(Path::new(".")).to_owned()))
}

fn parse(path: &Path, text: &str, overrides: &[String]) -> Result<Scenario> {
    Scenario::parse_with(text, overrides).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

fn tell_found(found: &Found, args: &ScenarioArgs) -> Result<bool> {
    let saved = found.best.as_ref().map_or(Ok(()), |best| save(best, &args.result));
    match args.result.print.json {
        true => say(serde_json::to_string_pretty(found)?)?,
        false => print(found_text(found))?,
    }
    saved?;
    Ok(found.limit.is_some())
}

fn found_text(found: &Found) -> String {
    let mut out = String::new();
    for trial in &found.trials {
        let word = match (trial.passed, trial.failed.is_empty()) {
            (true, _) => "pass",
            (false, false) => "FAIL",
            (false, true) => "????",
        };
        let again = if trial.confirming { " again" } else { "" };
        let why: Vec<&str> = trial.failed.iter().chain(&trial.unmeasured).map(String::as_str).collect();
        out += &format!("{:>20}  {word}{again}  {}\n", amount(&found.what, trial.value), why.join(", "));
    }
    let what = &found.what;
    let limit = found.limit.map(|limit| amount(what, limit));
    out += &match (limit, &found.undecided) {
        _ if found.partial => format!("{what}: STOPPED before the search ended\n"),
        (_, Some(why)) => format!("{what}: UNKNOWN: cannot judge the run at {why}\n"),
        (Some(limit), _) if found.trials.iter().all(|trial| trial.passed) => {
            format!("{what}: {limit}, which is the bound of the search: every trial passed\n")
        }
        (Some(limit), _) => format!("{what}: {limit}\n"),
        (None, _) => format!("{what}: no value within the bounds passed\n"),
    };
    if !found.breaks_first.is_empty() {
        out += &format!("rules broken first: {}\n", found.breaks_first.join(", "));
    }
    out
}

fn race_text(race: &Race, targets: &[String]) -> String {
    let mut out = String::new();
    for (number, result) in &race.laps {
        out += &format!("{}\n{}", targets[*number], verdict::to_text(result));
    }
    for (number, why) in &race.missing {
        out += &format!("{}\nnot run: {why}\n", targets[*number]);
    }
    let number = |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.5}"));
    for ratio in &race.ratios {
        let medians: Vec<String> = ratio.medians.iter().map(number).collect();
        let ratios: Vec<String> = ratio.first_to.iter().map(number).collect();
        out += &format!("{:16}  {}  ratio {}\n", ratio.figure, medians.join("  "), ratios.join("  "));
    }
    out
}
