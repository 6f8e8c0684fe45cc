//! Work before the load begins: requests are built, connections are opened, and the history is written.

use crate::drive::addresses::Addresses;
use crate::drive::options::RunOptions;
use crate::drive::send::generated::{Generated, OwnSlot, Run};
use crate::drive::send::sender::{Sender, Times};
use crate::drive::tally::Counts;
use crate::drive::tenants::Tenant;
use crate::scenario::Scenario;
use crate::show::progress::{Observer, Phase, Progress};
use crate::verify::ledger::Ledger;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const TICK: Duration = Duration::from_millis(250);

/// Builds all requests of a tenant and opens its connections, so that the load begins at full speed.
pub(crate) async fn prepare(
    run: &Arc<Run>,
    tenant: &Tenant,
    scenario: &Scenario,
    addresses: &Addresses,
    observer: &dyn Observer,
) -> Result<Vec<Sender<Generated>>> {
    let per_writer = scenario.load.connections as usize;
    let slots_of_writer = run.plan.writer_slots();
    let mut tasks = JoinSet::new();
    for number in 0..run.plan.writers as usize * per_writer {
        let (writer, lane) = (number / per_writer, number % per_writer);
        let client = addresses.writer(tenant, run.plan.first_writer as usize + writer)?;
        let slots = (lane..slots_of_writer).step_by(per_writer).map(|slot| writer * slots_of_writer + slot);
        let sender = Sender::new(client, Generated::new(run, number, slots));
        tasks.spawn(sender.prepare());
    }
    let (begin, series) = (Instant::now(), run.plan.series() as f64);
    let made = |counts: &Counts| counts.series_made as f64 / series;
    let prepared = join(&mut tasks, || report(run, begin, observer, made)).await?;
    let senders: Result<Vec<Sender<Generated>>, _> = prepared.into_iter().collect();
    senders.with_context(|| format!("cannot reach {}", scenario.target.write.all().join(", ")))
}

/// Writes the history that precedes the run, as fast as the target accepts it.
pub(crate) async fn write_past(
    scenario: &Scenario,
    tenants: &[Tenant],
    addresses: &Addresses,
    options: &RunOptions,
    observer: &dyn Observer,
) -> Result<Vec<(usize, Ledger)>> {
    let mut past = Vec::new();
    for tenant in tenants {
        let Some(plan) = tenant.past(scenario)? else { continue };
        let run =
            Arc::new(tenant.closed_run(plan, scenario, addresses.write_path(tenant.number), &options.stop));
        let senders = prepare(&run, tenant, scenario, addresses, observer).await?;
        let times = Times { begin: Instant::now(), end: None };
        let mut tasks = JoinSet::new();
        for sender in senders {
            let lane = Arc::clone(&run.lane);
            tasks.spawn(async move { sender.run(&lane, times).await.source.slots });
        }
        let requests = run.plan.slots_count() as f64 * f64::from(run.plan.rounds_max);
        let sent = |counts: &Counts| counts.totals.requests as f64 / requests;
        let done = join(&mut tasks, || report(&run, times.begin, observer, sent)).await?;
        let done = done.into_iter().map(|slots| (0, slots));
        past.push((tenant.number, ledgers(&[run], done).remove(0).1));
    }
    Ok(past)
}

pub(crate) fn ledgers(
    runs: &[Arc<Run>],
    done: impl Iterator<Item = (usize, Vec<OwnSlot>)>,
) -> Vec<(usize, Ledger)> {
    let mut ledgers: Vec<(usize, Ledger)> =
        runs.iter().enumerate().map(|(number, run)| (number, Ledger::new(run.plan.clone()))).collect();
    for (number, slots) in done {
        for slot in slots {
            ledgers[number].1.slots[slot.number] = slot.ledger;
        }
    }
    ledgers
}

async fn join<T: 'static>(tasks: &mut JoinSet<T>, mut report: impl FnMut()) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    let mut tick = tokio::time::interval(TICK);
    // this reports even the shortest phase once
    report();
    loop {
        tokio::select! {
            joined = tasks.join_next() => match joined {
                Some(result) => results.push(result.context("a connection's task failed")?),
                None => return Ok(results),
            },
            _ = tick.tick() => report(),
        }
    }
}

/// Reports progress. The function `part` computes from the counts which share of the phase is completed.
fn report(run: &Run, begin: Instant, observer: &dyn Observer, part: impl Fn(&Counts) -> f64) {
    let counts = run.lane.tally.lock();
    let progress = Progress {
        phase: Phase::Preparing,
        part: part(&counts),
        elapsed: begin.elapsed(),
        samples: counts.totals.samples_acknowledged,
        samples_per_s: counts.totals.samples_acknowledged as f64 / begin.elapsed().as_secs_f64().max(1e-3),
        p99_s: None,
        refused: counts.refused_total(),
        broken: counts.broken,
    };
    drop(counts);
    observer.progress(&progress);
}
