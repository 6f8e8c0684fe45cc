//! Flags of `floodmark lab run` and of the commands that run a scenario several times.

use super::access::LabAccess;
use super::result::{PrintArgs, ResultArgs};
use super::values;
use clap::Args;
use lab::campaign::{Axis, Resource};
use lab::scenario::notation;
use std::path::PathBuf;
use std::time::Duration;

/// A scenario and the changes to it.
#[derive(Debug, Args)]
pub(crate) struct ScenarioArgs {
    /// A TOML file, or the name of a preset such as cortex-110k; `lab scenarios` lists them
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// URL to write to [default: the scenario's target.write]
    #[arg(long, value_name = "URL", help_heading = "Target")]
    pub(crate) target: Option<String>,
    /// URL to read from, without /api/v1/query [default: derived from the URL written to]
    #[arg(long, value_name = "URL", help_heading = "Target")]
    pub(crate) read_url: Option<String>,
    /// The target's process on this machine: watch its CPU time, memory and files
    #[arg(long, value_name = "PID", help_heading = "Target")]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) changes: Changes,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

/// Changes to a scenario.
#[derive(Debug, Args)]
pub(crate) struct Changes {
    /// Size of the load, relative to the scenario
    #[arg(long, value_name = "FACTOR", help_heading = "Changes to the scenario")]
    scale: Option<f64>,
    /// Duration of the load
    #[arg(long, value_name = "DURATION", value_parser = notation::duration, help_heading = "Changes to the scenario")]
    duration: Option<Duration>,
    /// Change any value of the scenario, such as load.tenants=20; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Changes to the scenario")]
    set: Vec<String>,
    #[command(flatten)]
    pub(crate) access: LabAccess,
}

/// `floodmark lab run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// Part of the fleet that this machine simulates, such as 1/3; `lab merge` merges the results
    #[arg(long, value_name = "I/N", value_parser = part, default_value = "1/1", help_heading = "Changes to the scenario")]
    pub(crate) part: (u32, u32),
    /// Check the scenario without running it
    #[arg(long)]
    pub(crate) check: bool,
}

/// `floodmark lab find-limit`
#[derive(Debug, Args)]
pub(crate) struct FindLimitArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// Load to increase
    #[arg(long, value_name = "AXIS", default_value = "rate", value_parser = values::axis(), help_heading = "Search")]
    pub(crate) axis: Axis,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

/// `floodmark lab find-minimum`
#[derive(Debug, Args)]
pub(crate) struct FindMinimumArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// Resource to lower
    #[arg(long, value_name = "RESOURCE", default_value = "memory", value_parser = values::resource(), help_heading = "Search")]
    pub(crate) resource: Resource,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

/// Bounds and precision of a search.
#[derive(Debug, Args)]
pub(crate) struct Bounds {
    /// The lowest value, such as 10k or 64MiB
    #[arg(long, value_name = "VALUE", value_parser = amount, help_heading = "Search")]
    pub(crate) min: f64,
    /// The highest value
    #[arg(long, value_name = "VALUE", value_parser = amount, help_heading = "Search")]
    pub(crate) max: f64,
    /// Stop when the best passing and the nearest failing value differ by at most this factor [above 1, up to 10]
    #[arg(long, value_name = "FACTOR", default_value_t = lab::campaign::search::PRECISION_DEFAULT, help_heading = "Search")]
    pub(crate) precision: f64,
    /// Number of further runs in which the limit must pass
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Search")]
    pub(crate) confirm: u32,
}

/// `floodmark lab race`
#[derive(Debug, Args)]
pub(crate) struct RaceArgs {
    /// A TOML file, or the name of a preset such as cortex-110k; `lab scenarios` lists them
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// URL to write to, and optionally, after a comma, the URL to read from; give at least two targets
    #[arg(long = "target", value_name = "URL[,URL]", required = true, help_heading = "Target")]
    pub(crate) targets: Vec<String>,
    /// Number of runs of each target [1 to 1000]
    #[arg(long, value_name = "N", default_value = "3", value_parser = values::whole::<u32>(1..=1_000))]
    pub(crate) laps: u32,
    #[command(flatten)]
    pub(crate) changes: Changes,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}

/// `floodmark lab merge`
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Results of all parts, in any order
    #[arg(value_name = "RESULT", required = true)]
    pub(crate) results: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

/// Parses a part of the fleet, such as `2/5`.
fn part(text: &str) -> anyhow::Result<(u32, u32)> {
    let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match numbers {
        Some((i, n)) if i >= 1 && i <= n => Ok((i, n)),
        _ => anyhow::bail!("expected I/N with I from 1 to N, such as 1/3"),
    }
}

/// A count such as 200k, or a size such as 512MiB.
fn amount(text: &str) -> anyhow::Result<f64> {
    let amount = match lab::scenario::size(text) {
        Ok(bytes) => bytes as f64,
        Err(_) => notation::count(text)?,
    };
    anyhow::ensure!(amount > 0.0, "a bound must be above 0");
    Ok(amount)
}

impl ScenarioArgs {
    pub(crate) fn overrides(&self) -> Vec<String> {
        let mut all = self.changes.overrides();
        if let Some(url) = &self.target {
            all.push(format!("target.write={url}"));
        }
        if let Some(url) = &self.read_url {
            all.push(format!("target.read={url}"));
        }
        if let Some(pid) = self.pid {
            all.push(format!("target.pid={pid}"));
        }
        all
    }
}

impl Changes {
    pub(crate) fn overrides(&self) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(self.scale.map(|scale| format!("scale={scale:?}")));
        all.extend(self.duration.map(|duration| format!("duration={:?}", duration.as_secs_f64())));
        // the load is to take exactly as long as --duration says, so the scenario's `compress` must not divide it
        all.extend(self.duration.map(|_| "compress=1.0".to_owned()));
        all.extend(self.set.iter().cloned());
        all
    }
}
