//! Runs a scenario several times to find its limit, the smallest sufficient target, or the better of two targets.

pub mod search;

use crate::campaign::search::{Next, Search};
use crate::drive::options::RunOptions;
use crate::drive::run::run;
use crate::drive::stop::Stop;
use crate::result::RunResult;
use crate::result::figures;
use crate::scenario::{Count, Load, Scenario, Span};
use crate::show::progress::Observer;
use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// Parameter that `find-limit` raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Samples per second. The number of series does not change.
    Rate,
    /// Number of series. The sample rate grows in proportion.
    Series,
    /// Queries per second of the first mix of reads.
    Qps,
}

impl std::str::FromStr for Axis {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "rate" => Self::Rate,
            "series" => Self::Series,
            "qps" => Self::Qps,
            _ => bail!("{text:?} must be one of rate, series, qps"),
        })
    }
}

/// Resource of the target that `find-minimum` lowers. The target's start command contains it as a placeholder, which
/// each trial replaces by another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Placeholder `{memory}`, in bytes.
    Memory,
    /// Placeholder `{cores}`. The value may have a fraction, such as 1.50.
    Cores,
}

impl std::str::FromStr for Resource {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "memory" => Self::Memory,
            "cores" => Self::Cores,
            _ => bail!("{text:?} must be memory or cores"),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub value: f64,
    /// True if this trial repeats a value that passed before.
    pub confirming: bool,
    pub passed: bool,
    pub failed: Vec<String>,
    pub unmeasured: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub what: String,
    pub limit: Option<f64>,
    /// Rules that broke in the last failed trial.
    pub breaks_first: Vec<String>,
    pub trials: Vec<Trial>,
    pub partial: bool,
    /// The value whose trial ended the search because some rules could not be measured, followed by the reasons.
    pub undecided: Option<String>,
    pub best: Option<RunResult>,
}

pub fn amount(what: &str, value: f64) -> String {
    match what {
        "memory" => figures::show(value, "bytes"),
        "cores" => format!("{value:.2} cores"),
        "qps" => format!("{value:.2} queries/s"),
        "rate" => format!("{value:.0} samples/s"),
        _ => format!("{value:.0} {what}"),
    }
}

pub async fn find_limit(
    scenario: &Scenario,
    options: &RunOptions,
    axis: Axis,
    search: Search,
    observer: &dyn Observer,
) -> Result<Found> {
    let what = format!("{axis:?}").to_lowercase();
    let with = move |value: f64, number: u64| {
        let (mut changed, changes) = with_axis(scenario, axis, value)?;
        // each trial needs new series: a target that knows them from an earlier trial has less work
        changed.seed = scenario.seed.wrapping_add(number);
        let mut options = options.clone();
        options.overrides.extend(changes);
        options.overrides.push(format!("seed={}", changed.seed));
        Ok((changed, options))
    };
    find(what, options, search, with, observer).await
}

pub async fn find_minimum(
    scenario: &Scenario,
    options: &RunOptions,
    resource: Resource,
    search: Search,
    observer: &dyn Observer,
) -> Result<Found> {
    let what = format!("{resource:?}").to_lowercase();
    let command = scenario.target.start.clone().unwrap_or_default();
    ensure!(
        command.contains(&format!("{{{what}}}")),
        "target.start must contain {{{what}}} as the placeholder for the size"
    );
    let word = what.clone();
    let with = move |value: f64, _| {
        let text = match resource {
            Resource::Memory => format!("{value:.0}"),
            Resource::Cores => format!("{value:.2}"),
        };
        let start = command.replace(&format!("{{{word}}}"), &text);
        let (mut changed, mut options) = (scenario.clone(), options.clone());
        options.overrides.push(format!("target.start={}", toml::Value::from(start.as_str())));
        changed.target.start = Some(start);
        Ok((changed, options))
    };
    find(what, options, search, with, observer).await
}

async fn find(
    what: String,
    options: &RunOptions,
    mut search: Search,
    with: impl Fn(f64, u64) -> Result<(Scenario, RunOptions)>,
    observer: &dyn Observer,
) -> Result<Found> {
    let mut found = Found {
        what,
        limit: None,
        breaks_first: Vec::new(),
        trials: Vec::new(),
        partial: false,
        undecided: None,
        best: None,
    };
    loop {
        let (value, confirming) = match search.choose_next() {
            Next::Try { value, confirming } => (value, confirming),
            Next::Found(value) => {
                found.limit = Some(value);
                return Ok(found);
            }
            Next::Nothing => return Ok(found),
        };
        let (scenario, run_options) = with(value, found.trials.len() as u64)?;
        let label = amount(&found.what, value);
        observer.note(&format!("{label}{}", if confirming { ", to confirm the result" } else { "" }));
        let result = run_once(&scenario, &run_options, observer).await;
        if options.stop.is_set() {
            found.partial = true;
            return Ok(found);
        }
        let (result, failed, unmeasured) = match result {
            Ok(result) => {
                let (failed, unmeasured) = (broken_rules(&result), unmeasured_rules(&result));
                (Some(result), failed, unmeasured)
            }
            // the first trial is the easiest one, so if it cannot run, the size of load or target is not the cause
            Err(why) if found.trials.is_empty() => return Err(why),
            // the target may be too small to start
            Err(why) => (None, vec![format!("{why:#}")], Vec::new()),
        };
        let passed = failed.is_empty() && unmeasured.is_empty();
        if failed.is_empty() && !passed {
            found.undecided = Some(format!("{label}: {}", unmeasured.join(", ")));
            found.trials.push(Trial { value, confirming, passed, failed, unmeasured });
            return Ok(found);
        }
        observer.note(&format!(
            "{label}: {}",
            if passed { "PASS".to_owned() } else { format!("FAIL: {}", failed.join(", ")) }
        ));
        search.report(passed);
        if passed {
            found.best = result;
        } else {
            found.breaks_first.clone_from(&failed);
        }
        found.trials.push(Trial { value, confirming, passed, failed, unmeasured });
    }
}

/// Runs one trial with a stop signal of its own, so that a trial that ends early does not end the whole search.
async fn run_once(scenario: &Scenario, options: &RunOptions, observer: &dyn Observer) -> Result<RunResult> {
    let own = Stop::default();
    let own_options = RunOptions { stop: own.clone(), ..options.clone() };
    let running = run(scenario, &own_options, observer);
    tokio::pin!(running);
    tokio::select! {
        done = &mut running => done,
        () = options.stop.wait() => {
            own.now();
            running.await
        }
    }
}

fn broken_rules(result: &RunResult) -> Vec<String> {
    let broken = result.verdict.iter().filter(|judgement| !judgement.pass && !judgement.unmeasured);
    let broken = broken.map(|j| format!("{} {} (limit {})", j.rule, j.measured, j.limit));
    broken.chain(result.partial.then(|| "stopped early by the limits of the scenario".to_owned())).collect()
}

fn unmeasured_rules(result: &RunResult) -> Vec<String> {
    let unmeasured = result.verdict.iter().filter(|judgement| judgement.unmeasured);
    unmeasured.map(|j| format!("{} {}", j.rule, j.measured)).collect()
}

/// Returns the scenario with its load set to `value`, and the changes as arguments of `--set`.
fn with_axis(scenario: &Scenario, axis: Axis, value: f64) -> Result<(Scenario, Vec<String>)> {
    let mut changed = scenario.clone();
    let load = scenario.scaled();
    let per_metric = f64::from(load.tenants) * f64::from(load.writers) * load.metrics.0;
    let series = per_metric * load.series_per_metric.0;
    let changes = match axis {
        Axis::Rate => {
            let interval_s = series / value;
            ensure!(
                interval_s >= 0.001,
                "{series} series cannot make {value} samples a second: the interval between two samples of a series would be \
                 less than a millisecond"
            );
            changed.load.interval = Some(Span::seconds(interval_s));
            let mut changes = vec![format!("load.interval={interval_s:?}")];
            if let Some(rate) = &mut changed.load.rate {
                *rate = Count(value);
                changes.push(format!("load.rate={value:?}"));
            }
            changes
        }
        Axis::Series => {
            changed.scale = 1.0;
            changed.load = load;
            changed.load.series_per_metric = Count((value / per_metric).round().max(1.0));
            let Load { tenants, writers, metrics, series_per_metric, .. } = &changed.load;
            vec![
                "scale=1.0".into(),
                format!("load.tenants={tenants}"),
                format!("load.writers={writers}"),
                format!("load.metrics={:?}", metrics.0),
                format!("load.series_per_metric={:?}", series_per_metric.0),
            ]
        }
        Axis::Qps => {
            let Some(mix) = changed.reads.first_mut() else { bail!("the scenario has no reads") };
            mix.rate = Some(value);
            vec![format!("reads.0.rate={value:?}")]
        }
    };
    Ok((changed, changes))
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Race {
    pub laps: Vec<(usize, RunResult)>,
    /// Runs that failed, each with the index of its target and the reason.
    pub missing: Vec<(usize, String)>,
    pub ratios: Vec<Ratio>,
    pub partial: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub figure: String,
    /// Median of each target's runs, in the order of the targets.
    pub medians: Vec<Option<f64>>,
    pub first_to: Vec<Option<f64>>,
}

const RACED: [&str; 10] = [
    "samples_per_s",
    "pass_rate",
    "p50_s",
    "p99_s",
    "p99_new_s",
    "p99_known_s",
    "freshness_p99_s",
    "silence_s",
    "queries_per_s",
    "read_p99_s",
];

/// Runs the same scenario against each of `racers` in turn, `laps` times. Every second lap has the reverse order,
/// because a run warms the machine for the next.
///
/// # Errors
/// Only if a run of the first lap fails.
pub async fn race(racers: &[(Scenario, RunOptions)], laps: u32, observer: &dyn Observer) -> Result<Race> {
    ensure!(racers.len() >= 2, "a race needs at least two targets");
    let mut race = Race { laps: Vec::new(), missing: Vec::new(), ratios: Vec::new(), partial: false };
    'laps: for lap in 0..laps {
        let mut order: Vec<usize> = (0..racers.len()).collect();
        if lap % 2 == 1 {
            order.reverse();
        }
        for number in order {
            let (mut scenario, mut options) = racers[number].clone();
            scenario.seed = scenario.seed.wrapping_add(lap.into());
            options.overrides.push(format!("seed={}", scenario.seed));
            observer.note(&format!("lap {} of {laps}: {}", lap + 1, scenario.target.write.all().join(", ")));
            match run_once(&scenario, &options, observer).await {
                Ok(result) => race.laps.push((number, result)),
                Err(why) if lap == 0 => return Err(why),
                // figures of the other runs are still useful
                Err(why) => race.missing.push((number, format!("{why:#}"))),
            }
            if options.stop.is_set() {
                race.partial = true;
                break 'laps;
            }
        }
    }
    race.ratios = RACED.iter().filter_map(|figure| ratio(figure, &race.laps, racers.len())).collect();
    Ok(race)
}

fn ratio(figure: &str, laps: &[(usize, RunResult)], targets: usize) -> Option<Ratio> {
    let median = |target: usize| {
        let of_target = laps.iter().filter(|(number, _)| *number == target);
        let mut values: Vec<f64> = of_target.filter_map(|(_, result)| result.figure(figure)).collect();
        values.sort_by(f64::total_cmp);
        let upper = values.get(values.len() / 2)?;
        let lower = values.get((values.len() - 1) / 2)?;
        Some(lower.midpoint(*upper))
    };
    let medians: Vec<Option<f64>> = (0..targets).map(median).collect();
    if medians.iter().all(Option::is_none) {
        return None;
    }
    let first = medians[0];
    let first_to = medians
        .iter()
        .skip(1)
        .map(|other| Some(first? / (*other)?).filter(|ratio| ratio.is_finite()))
        .collect();
    Some(Ratio { figure: figure.to_owned(), medians, first_to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_axis_changes_its_value() {
        let text = "scale = 0.5\nscales = 'metrics'\n[load]\nmetrics = 200\n[[reads]]\nqueries = ['up']";
        let scenario = Scenario::parse(text).unwrap();
        let with = |axis, value| {
            let (changed, changes) = with_axis(&scenario, axis, value).unwrap();
            assert_eq!(
                Scenario::parse_with(text, &changes).unwrap(),
                changed,
                "the changes do not give the same scenario"
            );
            changed
        };
        assert_eq!(with(Axis::Rate, 8_000.0).load.interval, Some(Span::seconds(0.5)), "4 × 100 × 10 series");
        assert_eq!(with(Axis::Series, 40_000.0).load.series_per_metric, Count(100.0));
        assert_eq!(with(Axis::Qps, 7.0).reads[0].rate, Some(7.0));
        assert!(with_axis(&scenario, Axis::Rate, 1e9).is_err());
    }

    #[test]
    fn ratios_are_of_medians() {
        let lap = |number, rate: f64| {
            let mut result = RunResult::default();
            result.totals.samples_per_s = rate;
            (number, result)
        };
        let laps = [lap(0, 100.0), lap(1, 50.0), lap(1, 40.0), lap(0, 1_000.0), lap(0, 90.0), lap(1, 60.0)];
        let ratio = ratio("samples_per_s", &laps, 2).unwrap();
        assert_eq!((ratio.medians, ratio.first_to), (vec![Some(100.0), Some(50.0)], vec![Some(2.0)]));
        assert_eq!(super::ratio("p99_s", &laps, 2), None);
    }
}
