//! What is done before any clock starts: requests and connections are made, and what lies before the run is written.

use super::RunOptions;
use crate::drive::addresses::Addresses;
use crate::drive::send::sender::{Run, Sender, Times};
use crate::drive::tenants::Tenant;
use crate::drive::write::{Watch, join};
use crate::scenario::Scenario;
use crate::show::progress::{Observer, Phase};
use crate::verify::ledger::Ledger;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Makes all requests of a tenant and opens its connections, before any clock starts.
pub(crate) async fn prepare(
    run: &Arc<Run>,
    tenant: &Tenant,
    scenario: &Scenario,
    addresses: &Addresses,
    observer: &dyn Observer,
) -> Result<Vec<Sender>> {
    let per_writer = scenario.load.connections as usize;
    let slots_of_writer = run.plan.writer_slots();
    let mut tasks = JoinSet::new();
    for number in 0..run.plan.writers as usize * per_writer {
        let (writer, lane) = (number / per_writer, number % per_writer);
        let client = addresses.writer(tenant, run.plan.first_writer as usize + writer)?;
        let slots = (lane..slots_of_writer).step_by(per_writer).map(|slot| writer * slots_of_writer + slot);
        let sender = Sender::new(run, number, client, slots);
        let run = Arc::clone(run);
        tasks.spawn(async move { sender.prepare(&run).await });
    }
    let mut watch = Watch::new(run, Times { begin: Instant::now(), end: None }, Phase::Preparing);
    let prepared = join(&mut tasks, || watch.tell(observer)).await?;
    let senders: Result<Vec<Sender>, _> = prepared.into_iter().collect();
    senders.with_context(|| format!("cannot reach {}", scenario.target.write.all().join(", ")))
}

/// Writes what lies before the run, as fast as it is taken.
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
        let run = Arc::new(tenant.past_run(plan, scenario, addresses, &options.stop));
        let senders = prepare(&run, tenant, scenario, addresses, observer).await?;
        let times = Times { begin: Instant::now(), end: None };
        let mut tasks = JoinSet::new();
        for sender in senders {
            let run = Arc::clone(&run);
            tasks.spawn(async move { sender.run(&run, times).await });
        }
        let mut watch = Watch::new(&run, times, Phase::Preparing);
        let done = join(&mut tasks, || watch.tell(observer)).await?;
        let done = done.into_iter().map(|sender| (0, sender)).collect();
        let ledger = ledgers(&[run], done).remove(0).1;
        past.push((tenant.number, ledger));
    }
    Ok(past)
}

/// Puts the slots' accounts together, by tenant.
pub(crate) fn ledgers(runs: &[Arc<Run>], done: Vec<(usize, Sender)>) -> Vec<(usize, Ledger)> {
    let mut ledgers: Vec<(usize, Ledger)> =
        runs.iter().enumerate().map(|(number, run)| (number, Ledger::new(run.plan.clone()))).collect();
    for (number, sender) in done {
        for slot in sender.slots {
            ledgers[number].1.slots[slot.number] = slot.ledger;
        }
    }
    ledgers
}
