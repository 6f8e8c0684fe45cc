//! Flags of `floodmark lab run` and of what repeats it.

use super::access::LabAccess;
use clap::Args;
use lab::campaign::{Axis, Resource};
use lab::parse;
use std::path::PathBuf;
use std::time::Duration;

/// A scenario and what is changed in it.
#[derive(Debug, Args)]
pub(crate) struct ScenarioArgs {
    /// The scenario: a TOML file, or the name of a preset, such as cortex-110k
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// Write here instead of to the scenario's target
    #[arg(long, value_name = "URL")]
    pub(crate) target: Option<String>,
    /// Read here [default: follows from where is written]
    #[arg(long, value_name = "URL")]
    pub(crate) read_url: Option<String>,
    /// The target's process on this machine
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) changes: Changes,
    /// Keep the result in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// How a scenario is changed, and how it is told.
#[derive(Debug, Args)]
pub(crate) struct Changes {
    /// The size of the load: 1 is the scenario as it was written
    #[arg(long, value_name = "FACTOR")]
    scale: Option<f64>,
    /// How long the load goes on
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    duration: Option<Duration>,
    /// Change any value of the scenario, such as load.tenants=20; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    pub(crate) access: LabAccess,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress on stderr
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// `floodmark lab run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// Which part of the fleet this machine is, such as 1/3; `lab merge` puts the results together
    #[arg(long, value_name = "I/N", value_parser = part, default_value = "1/1")]
    pub(crate) part: (u32, u32),
    /// Write the report here: one HTML file that opens offline
    #[arg(long, visible_alias = "html", value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Only check the scenario
    #[arg(long)]
    pub(crate) check: bool,
}

/// `floodmark lab find-limit`
#[derive(Debug, Args)]
pub(crate) struct FindLimitArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// What is raised: rate (samples a second), series, qps (queries a second)
    #[arg(long, default_value = "rate")]
    pub(crate) axis: Axis,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

/// `floodmark lab find-minimum`
#[derive(Debug, Args)]
pub(crate) struct FindMinimumArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// What is lowered: memory or cores; target.start has {memory} or {cores} where it stands
    #[arg(long, default_value = "memory")]
    pub(crate) resource: Resource,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

/// Between what to search, and how closely.
#[derive(Debug, Args)]
pub(crate) struct Bounds {
    /// The lowest value
    #[arg(long, value_parser = amount)]
    pub(crate) min: f64,
    /// The highest value
    #[arg(long, value_parser = amount)]
    pub(crate) max: f64,
    /// The search ends when what passes and what fails differ by this factor
    #[arg(long, default_value_t = lab::search::PRECISION_DEFAULT)]
    pub(crate) precision: f64,
    /// How often the limit must pass again
    #[arg(long, default_value_t = 1)]
    pub(crate) confirm: u32,
}

/// `floodmark lab race`
#[derive(Debug, Args)]
pub(crate) struct RaceArgs {
    /// The scenario: a TOML file, or the name of a preset, such as cortex-110k
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// Who races: where to write, and after a comma where to read; at least two
    #[arg(long = "target", value_name = "URL[,URL]", required = true)]
    pub(crate) targets: Vec<String>,
    /// How often each is run
    #[arg(long, default_value_t = 3)]
    pub(crate) laps: u32,
    #[command(flatten)]
    pub(crate) changes: Changes,
}

/// `floodmark lab merge`
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Results of all parts, in any order
    #[arg(value_name = "RESULT", required = true)]
    pub(crate) results: Vec<PathBuf>,
    /// Keep the whole in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the report here: one HTML file that opens offline
    #[arg(long, visible_alias = "html", value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print the whole as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `2/5`
fn part(text: &str) -> anyhow::Result<(u32, u32)> {
    let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match numbers {
        Some((i, n)) if i >= 1 && i <= n => Ok((i, n)),
        _ => anyhow::bail!("read {text:?} as a part, such as 1/3"),
    }
}

/// A count such as 200k, or a size such as 512MiB.
fn amount(text: &str) -> anyhow::Result<f64> {
    let amount = match lab::scenario::size(text) {
        Ok(bytes) => bytes as f64,
        Err(_) => parse::count(text)?,
    };
    anyhow::ensure!(amount > 0.0, "nothing is no bound");
    Ok(amount)
}

impl ScenarioArgs {
    /// All changes, in the form of `--set`.
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
    /// In the form of `--set`.
    pub(crate) fn overrides(&self) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(self.scale.map(|scale| format!("scale={scale:?}")));
        // the flag is about this run, as long as it really takes
        all.extend(self.duration.map(|duration| format!("duration={:?}", duration.as_secs_f64())));
        all.extend(self.duration.map(|_| "compress=1.0".to_owned()));
        all.extend(self.set.iter().cloned());
        all
    }
}
