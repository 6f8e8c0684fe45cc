//! Runs a scenario.
//!
//! ```text
//!   Scenario ─▶ tenants: a plan, headers and a time share each        (pure; `part i/n` takes some writers of each)
//!            ─▶ estimate: memory and CPU, before anything is sent
//!            ─▶ launch the target, if asked to; write the past, if asked to
//!            ─▶ load:  senders ─┬─▶ tallies ─▶ second by second ─▶ timeline, steps
//!                      readers ─┤
//!                      probes ──┤   faults, observation, bounds, Ctrl-C
//!            ─▶ read everything back ─▶ verdict ─▶ RunResult
//! ```
//!
//! Returns an error only if the run did not take place. A target that refuses, crashes, hangs or loses data is a result.

mod estimate;
mod prepare;
mod preview;
mod read_back;
mod seconds;
mod totals;
mod traffic;

pub use estimate::Estimate;
pub use preview::print_round;

use super::addresses::{Addresses, read_url};
use super::log::Log;
use super::options::RunOptions;
use super::target::Target;
use super::target::sandbox::Sandbox;
use super::tenants::Tenant;
use super::watch::Watch;
use super::{faults, probe, readers, tenants};
use crate::drive::send::sender::Times;
use crate::http::TlsFiles;
use crate::observe::{Observation, ObserveOptions};
use crate::result::verdict::{SoFar, broken_for_good};
use crate::result::{EventKind, FORMAT, Machine, RunResult};
use crate::scenario::{Model, Scenario, secrets};
use crate::show::live::block;
use crate::show::progress::Observer;
use crate::socket::Killed;
use crate::verify::ledger::Ledger;
use anyhow::{Context, Result, ensure};
use prepare::{ledgers, write_past};
use read_back::read_back;
use seconds::Seconds;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::{Clock, SystemClock};
use stdx::rng::Rng;
use tokio::task::JoinSet;
use traffic::{Ended, Ready, Traffic};

#[derive(Debug)]
pub struct Outcome {
    pub result: RunResult,
    /// Ledgers of all tenants. A tenant's history has a ledger of its own, which precedes the ledger of the run.
    pub ledgers: Vec<Ledger>,
}

pub async fn run(scenario: &Scenario, options: &RunOptions, observer: &dyn Observer) -> Result<RunResult> {
    Ok(carry_out(scenario, options, observer).await?.result)
}

/// Like [`run`], but also returns the ledgers, which say what was sent and acknowledged.
pub async fn carry_out(
    scenario: &Scenario,
    options: &RunOptions,
    observer: &dyn Observer,
) -> Result<Outcome> {
    let (part, parts) = options.part;
    ensure!(
        part >= 1 && part <= parts && parts <= 10_000,
        "there is no part {part} of {parts}; there can be 1 to 10,000 parts"
    );
    let (mut scenario, mut options) = (scenario.clone(), options.clone());
    if options.access.tls == TlsFiles::default() {
        options.access.tls = scenario.target.tls.within(&options.folder);
    }
    let options = &options;
    readers::import(&mut scenario, &options.folder)?;
    // variables are dropped in reverse order: the directory is created before the target, so that it is removed only
    // after the target has ended
    let _sandbox = Sandbox::fill(&mut scenario.target)?;
    scenario.apply_replay();
    scenario.value_seed.get_or_insert_with(new_value_seed);
    let tenants = tenants::of(&scenario, options.part, SystemClock.now_ms())?;
    if scenario.replay.is_none() {
        let estimate = Estimate::of(&scenario, &tenants);
        estimate.check(scenario.limits.memory.map(|size| size.0))?;
        observer.note(&estimate.to_string());
    }
    let killed = Killed::default();
    let addresses = Addresses::resolve(&scenario, &tenants, &options.access, &killed).await?;
    let target = Target::start(&scenario.target, &options.access, &options.stop).await?;
    let target = Arc::new(target.telling(killed));
    if scenario.protocol().has_no_answers() {
        // the whole load would be in vain if an address is wrong, and that for queries may be a guess
        addresses.check_write(&scenario, &tenants).await?;
        if scenario.verify.after || scenario.protocol().is_flushed() && options.keeps_ledger {
            addresses.check_read(&scenario, &tenants).await?;
        }
    }

    let mut ledgers = Vec::new();
    if scenario.load.history.is_some() {
        ledgers = write_past(&scenario, &tenants, &addresses, options, observer).await?;
    }
    // probes look for the times of samples, which targets of statsd choose themselves
    let is_flushed = scenario.protocol().is_flushed();
    let probes = probe::channel(if is_flushed { 0.0 } else { scenario.verify.probes_per_s });
    let (traffic, ready) =
        Traffic::prepare(&scenario, &tenants, &addresses, options, &probes, observer).await?;
    if options.stop.is_set() && traffic.replay.is_none() {
        anyhow::bail!("stopped before the load began");
    }
    let loaded = load(
        Loading { scenario: &scenario, options, tenants: &tenants, addresses: &addresses, observer },
        traffic,
        ready,
        probes,
        &target,
    )
    .await?;
    let Loaded { mut result, ledgers: new } = loaded;
    if scenario.replay.is_none() && !is_flushed {
        let owed = new.iter().map(|(_, ledger)| ledger.acknowledged_samples()).sum();
        result.totals.samples_owed = Some(owed);
    }
    result.warnings.extend(totals::not_owed(&result.totals));
    ledgers.extend(new);
    for (_, ledger) in &mut ledgers {
        (ledger.read_api, ledger.step_ms) = (scenario.read_api(), scenario.read_step_ms());
        ledger.datagrams = scenario.target.is_datagrams();
    }
    if scenario.verify.after {
        read_back(&scenario, &ledgers, &tenants, &addresses, options, observer, &mut result).await;
    }
    result.verdict = crate::result::verdict::judge(&scenario, &result);
    target.end().await;
    let with_url = |(number, mut ledger): (usize, Ledger)| {
        ledger.read_url = Some(tenants[number].fill(&read_url(&scenario)));
        ledger
    };
    Ok(Outcome { result, ledgers: ledgers.into_iter().map(with_url).collect() })
}

/// A random seed of values. It has 53 bits, so that every reader of JSON and TOML reads it exactly.
fn new_value_seed() -> u64 {
    (Rng::fresh_seed() >> 11).max(1)
}

struct Loading<'a> {
    scenario: &'a Scenario,
    options: &'a RunOptions,
    tenants: &'a [Tenant],
    addresses: &'a Addresses,
    observer: &'a dyn Observer,
}

struct Loaded {
    result: RunResult,
    /// Ledgers, each with the index of its tenant.
    ledgers: Vec<(usize, Ledger)>,
}

async fn load(
    about: Loading<'_>,
    mut traffic: Traffic,
    ready: Vec<Ready>,
    probes: probe::Channel,
    target: &Arc<Target>,
) -> Result<Loaded> {
    let Loading { scenario, options, tenants, addresses, observer } = about;
    let mut result = begin_result(scenario, options);
    let mut observation = Observation::begin(&observe_options(scenario, options, target)).await?;
    let log = Log::new();
    let begin = log.begin;
    let end = begin + Duration::from_secs_f64(scenario.length_s());
    let times = Times { begin, end: Some(end) };
    result.begun_ms = SystemClock.now_ms();
    let mut sending = JoinSet::new();
    for start in ready {
        sending.spawn(start(times));
    }
    let distribution =
        traffic.replay.as_mut().map(|replay| replay.distribute(times, result.begun_ms, &options.stop));
    let distribution = distribution.transpose()?;
    let mut beside = JoinSet::new();
    let reading = readers::start(scenario, tenants, addresses, times, &options.stop, &mut beside)?;
    let probing = probes.start(scenario, &traffic.runs, tenants, addresses, &mut beside);
    let watches = scenario.protocol().is_flushed() && scenario.replay.is_none();
    let watch = (watches && (scenario.verify.after || options.keeps_ledger))
        .then(|| Watch::start(scenario, &traffic.runs, tenants, addresses, &mut beside))
        .transpose()?;
    let mut faults = faults::start(scenario, target, times, &log, &options.stop);

    let mut seconds = Seconds::new(scenario, &traffic, &reading, &probing, begin);
    let mut done = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.tick().await;
    let ends_when_sent =
        scenario.load.rounds.is_some() || scenario.load.model == Model::Closed || scenario.replay.is_some();
    loop {
        let is_second = tokio::select! {
            joined = sending.join_next(), if !sending.is_empty() => {
                done.push(joined.expect("BUG: the set of tasks is empty").context("a connection's task failed")?);
                false
            }
            _ = tick.tick() => {
                if let Some(gap) = seconds.stood_still() {
                    log.add(EventKind::Run, format!("the generator was suspended for {:.0} s", gap.as_secs_f64()));
                }
                seconds.tick(&mut result.timeline, observer);
                if let Some(pid) = target.changed_pid() {
                    observation.target_is(pid);
                }
                observation.second(&mut result.timeline).await;
                target.check_running(&log).await;
                let so_far = SoFar {
                    restarts: target.crashes(),
                    silence_s: seconds.meter.silence_s(),
                    memory: result.timeline.max("target/memory").or(result.timeline.max("cgroup/memory")),
                };
                let broken = broken_for_good(&scenario.verdict, so_far);
                observer.second(&|| block(&result.timeline, broken.as_deref()));
                if let Some(why) = seconds.beyond(&scenario.limits).or(broken.filter(|_| scenario.verdict.abort)) {
                    log.add(EventKind::Run, format!("stopped: {why}"));
                    options.stop.now();
                }
                while faults.try_join_next().is_some() {}
                true
            }
        };
        if !sending.is_empty() || !faults.is_empty() {
            continue;
        }
        let is_sent = ends_when_sent || done.iter().all(|ended: &Ended| ended.gave_up);
        // the limits are checked once a second, so the load ends only after the check of its last second
        let is_over = is_second && (Instant::now() >= end || options.stop.is_set());
        if is_over {
            break;
        }
        if is_sent {
            if !is_second {
                // the last second is shorter than the others, and has no tick of its own
                seconds.tick(&mut result.timeline, observer);
                observation.second(&mut result.timeline).await;
            }
            break;
        }
    }
    beside.abort_all();
    while beside.join_next().await.is_some() {}
    target.resume(&log);
    seconds.finish(&mut result);
    result.wall_s =
        begin.elapsed().as_secs_f64().min((end - begin).as_secs_f64().max(seconds.meter.last_success_s()));
    result.partial = options.stop.is_set();
    if result.partial {
        log.add(EventKind::Run, "the run ended early");
    }
    totals::fill(&mut result, scenario, &traffic, &reading, &probing, &seconds, target);
    result.events = log.take();
    observation.end(&mut result).await;
    result.warnings.extend(totals::doubts(&result, scenario, &traffic));
    if let (Some(replay), Some(distribution)) = (&traffic.replay, distribution) {
        replay.finish(distribution.await.context("cannot read the recording")??, &mut result);
    }
    result.timeline.finish();
    result.observe_steps();
    let done = done.into_iter().map(|ended| (ended.tenant, ended.slots));
    let mut ledgers = ledgers(&traffic.runs, done);
    if let Some(watch) = watch {
        for ((_, ledger), flushed) in ledgers.iter_mut().zip(watch.finish().await) {
            ledger.flushed = Some(flushed);
        }
    }
    Ok(Loaded { result, ledgers })
}

fn begin_result(scenario: &Scenario, options: &RunOptions) -> RunResult {
    let (text, overrides) = secrets::hide(scenario, &options.text, &options.overrides);
    let mut result = RunResult {
        format: FORMAT,
        name: scenario.name.clone(),
        scenario: text,
        overrides,
        seed: scenario.seed,
        value_seed: scenario.value_seed.filter(|_| scenario.replay.is_none()),
        target: scenario.target.write.all().join(", "),
        machine: Machine::this(),
        part: options.part,
        account: scenario.account.clone(),
        notes: totals::notes(scenario),
        ..RunResult::default()
    };
    result.versions.insert("lab".into(), env!("CARGO_PKG_VERSION").into());
    result
}

fn observe_options(scenario: &Scenario, options: &RunOptions, target: &Target) -> ObserveOptions {
    let spec = &scenario.target;
    ObserveOptions {
        pid: target.pid(),
        cgroup: spec.cgroup.clone(),
        metrics_url: spec.metrics.clone(),
        headers: spec.headers.0.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        access: options.access.clone(),
        data_dir: spec.data_dir.clone(),
    }
}
