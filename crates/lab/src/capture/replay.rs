//! Replays a recording against any target, faster and in several copies if requested.
//!
//! ```text
//!   file ─▶ distributor (a thread): when samples are due, their new timestamps, their writers
//!               └─▶ batches ─▶ writer 0 … n: encode ─▶ the sender of all traffic: wait until due, send, repeat
//! ```
//!
//! **Order.** Each series has one writer, chosen by a hash of the labels. A writer has one connection and retries
//! until a request is accepted. So the samples of a series arrive in order.
//!
//! **When.** A request that arrived `a` after the recording began is due `a / speed` after the replay began. Its
//! latency counts from that moment.
//!
//! **Times of samples.** [`SampleTimes::Scaled`]: a sample at `t` gets `begin + (t - begun) / speed`, where `begin`
//! is now and `begun` is when the recording began. At tenfold speed, intervals of 15 s become 1.5 s. Samples of a
//! series that would get the same millisecond are moved by one.
//!
//! With [`SampleTimes::Shifted`], all times move by the same amount. The last sample gets the time at which the replay
//! ends.
//!
//! **Graphite.** The recorded lines are sent to a target of Graphite, or as remote write. Times are cut to seconds, so
//! that samples of a series may fall into the same second. What Graphite cannot express becomes an underscore.
//!
//! **More series.** With `copies` above 1, each series is sent that many times. The copies differ in the label
//! [`COPY_LABEL`].

mod distributor;
mod encode;
mod report;
mod source;

pub(crate) use distributor::Batch;
pub(crate) use encode::Encoder;

use crate::drive::addresses::Addresses;
use crate::drive::options::RunOptions;
use crate::drive::send::sender::{Lane, Sender, Times};
use crate::drive::stop::Stop;
use crate::drive::tenants::Tenant;
use crate::generate::protocol::Protocol;
use crate::scenario::{ReplaySpec, Scenario};
use anyhow::{Context, Result, ensure};
use distributor::{Distributed, Distributor};
use report::RecordingSummary;
use source::Recorded;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Added to each copy of a series to tell the copies apart. Its values are `1` to `copies`.
pub const COPY_LABEL: &str = "floodmark_copy";

/// Maximum number of batches that wait for one writer. It bounds the memory of a replay.
const QUEUE: usize = 8;

#[derive(Debug)]
pub(crate) struct Replay {
    spec: ReplaySpec,
    path: PathBuf,
    summary: RecordingSummary,
    writers: usize,
    batch: usize,
    /// Protocol of all requests, unless each has the protocol in which it was recorded.
    protocol: Option<Protocol>,
    queues: Vec<mpsc::Sender<Batch>>,
}

impl Replay {
    pub(crate) async fn open(spec: &ReplaySpec, scenario: &Scenario, options: &RunOptions) -> Result<Self> {
        let path = options.folder.join(&spec.file);
        let (file, stop) = (path.clone(), options.stop.clone());
        let summary = tokio::task::spawn_blocking(move || RecordingSummary::of(&file, &stop)).await??;
        let (writers, batch) = (scenario.load.writers as usize, scenario.load.batch as usize);
        let target = scenario.protocol();
        let protocol =
            if target.version().is_none() { Some(target) } else { spec.protocol.map(Protocol::from) };
        let this = Self { spec: spec.clone(), path, summary, writers, batch, protocol, queues: Vec::new() };
        this.check_memory()?;
        Ok(this)
    }

    /// Refuses a replay that does not fit in memory. The labels of all series in a dictionary are held at once.
    fn check_memory(&self) -> Result<()> {
        const SAMPLE_BYTES: u64 = 64;
        let batches = (self.writers * (QUEUE + 2) * self.batch) as u64 * SAMPLE_BYTES;
        let needed = self.summary.dictionary_bytes_max + batches;
        let available = crate::observe::procfs::memory_available_bytes().unwrap_or(u64::MAX);
        ensure!(
            needed < available / 2,
            "this replay takes about {} MiB of memory, more than half of the {} MiB that are available: use fewer writers or a smaller batch",
            needed >> 20,
            available >> 20
        );
        Ok(())
    }

    /// Opens the connections. They send nothing until [`Self::distribute`] gives them batches.
    pub(crate) async fn connect(
        &mut self,
        tenant: &Tenant,
        addresses: &Addresses,
        lane: &Arc<Lane>,
    ) -> Result<Vec<Sender<Recorded>>> {
        let mut senders = Vec::with_capacity(self.writers);
        for writer in 0..self.writers {
            let mut client = addresses.writer(tenant, writer)?;
            client.connect().await.context("cannot reach the target")?;
            let (queue, batches) = mpsc::channel(QUEUE);
            self.queues.push(queue);
            senders.push(Sender::new(client, Recorded::new(batches, lane, &tenant.headers)));
        }
        Ok(senders)
    }

    pub(crate) fn distribute(
        &mut self,
        times: Times,
        begun_ms: i64,
        stop: &Stop,
    ) -> Result<JoinHandle<Result<Distributed>>> {
        let queues = std::mem::take(&mut self.queues);
        let distributor = Distributor::new(self, queues, times, begun_ms, stop)?;
        Ok(tokio::task::spawn_blocking(move || distributor.run()))
    }

    /// Duration of the replay if the target keeps up with the traffic.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs_f64((self.summary.length_s / self.spec.speed).min(1e9))
    }
}

#[cfg(test)]
mod tests;
