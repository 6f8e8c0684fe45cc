//! The traffic of a run, either generated or recorded, with all connections open before the load begins.

use super::prepare::prepare;
use crate::capture::replay::Replay;
use crate::drive::addresses::Addresses;
use crate::drive::options::RunOptions;
use crate::drive::probe;
use crate::drive::send::generated::{OwnSlot, Run};
use crate::drive::send::sender::{Lane, Sender, Source, Times};
use crate::drive::tenants::Tenant;
use crate::scenario::Scenario;
use crate::show::progress::Observer;
use anyhow::Result;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// An open connection that starts to send when it is called with the begin and end of the run.
pub(crate) type Ready = Box<dyn FnOnce(Times) -> Pin<Box<dyn Future<Output = Ended> + Send>> + Send>;

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) tenant: usize,
    /// Slots of generated traffic with their ledgers, from which the samples are read back.
    pub(crate) slots: Vec<OwnSlot>,
    /// True if the connection gave up before the end of the load, because the target refused everything or stopped
    /// answering with success.
    pub(crate) gave_up: bool,
}

pub(crate) struct Traffic {
    /// One lane for each tenant. A replay has a single lane for all its tenants.
    pub(crate) lanes: Vec<Arc<Lane>>,
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) replay: Option<Replay>,
    pub(crate) connections: usize,
}

impl Traffic {
    pub(crate) async fn prepare(
        scenario: &Scenario,
        tenants: &[Tenant],
        addresses: &Addresses,
        options: &RunOptions,
        probes: &probe::Channel,
        observer: &dyn Observer,
    ) -> Result<(Self, Vec<Ready>)> {
        let mut traffic = Self { lanes: Vec::new(), runs: Vec::new(), replay: None, connections: 0 };
        let mut ready = Vec::new();
        if let Some(spec) = &scenario.replay {
            let mut replay = Replay::open(spec, scenario, options).await?;
            observer.note(&replay.announcement());
            let lane = Arc::new(tenants[0].lane(scenario, addresses.write_path(0), &options.stop));
            for sender in replay.connect(&tenants[0], addresses, &lane).await? {
                ready.push(starter(sender, &lane, 0, |_| Vec::new()));
            }
            traffic.lanes.push(lane);
            traffic.replay = Some(replay);
        } else {
            for (number, tenant) in tenants.iter().enumerate() {
                let path = addresses.write_path(number);
                let run = Arc::new(tenant.run(scenario, path, &options.stop, probes.sender()));
                for sender in prepare(&run, tenant, scenario, addresses, observer).await? {
                    ready.push(starter(sender, &run.lane, number, |source| source.slots));
                }
                traffic.lanes.push(Arc::clone(&run.lane));
                traffic.runs.push(run);
            }
        }
        traffic.connections = ready.len();
        Ok((traffic, ready))
    }

    pub(crate) fn length(&self, scenario: &Scenario) -> Duration {
        let length = Duration::from_secs_f64(scenario.length_s());
        self.replay.as_ref().map_or(length, |replay| replay.length().min(length))
    }
}

fn starter<S: Source + 'static>(
    sender: Sender<S>,
    lane: &Arc<Lane>,
    tenant: usize,
    slots: fn(S) -> Vec<OwnSlot>,
) -> Ready {
    let lane = Arc::clone(lane);
    Box::new(move |times| {
        Box::pin(async move {
            let Sender { source, gave_up, .. } = sender.run(&lane, times).await;
            Ended { tenant, slots: slots(source), gave_up }
        })
    })
}
