//! A node that one thread runs step by step in a simulated environment. Only the crate `sim` uses it.
//!
//! The caller takes the place of the scheduler: it runs the next turn of a partition's owner, of the sealer
//! or of upkeep. While the sealer waits for an owner, this owner gets turns. While a replay waits for the
//! sealer, the caller runs the sealer.

mod replaying;

use crate::deletes;
use crate::node::{Node, Parts, StartError};
use crate::partition::submission::{Answer, Submission};
use crate::partition::{
    ClosedBatch, Command, Freeze, Frozen, Owner, Owners, PartitionShared, Read, Relocate, Relocated, Sealed,
    SealedSamples,
};
use crate::query_source::{Source, Turns};
use crate::refusal::Refusal;
use crate::seal::sealer::{Sealer, Stopping};
use crate::seal::workers::Workers;
use crate::settings::Settings;
use crate::upkeep::Upkeep;
use crate::world::{RandomSource, World};
use crate::write_path::{self, Decoders, Encoded, Steps, Submitted, Total};
use head::TenantHead;
use journal::{Disk, Offset};
use model::{LabelsRef, Principal, SeriesKey, SeriesRef, SeriesRefusal, SeriesSamples, TenantId, TimeRange};
use protocol::remote_write::{Decoder, Version};
use protocol::{Encoding, otlp};
use query::{Select, SeriesSource, SourceError};
use replaying::{Baton, Replayed, Replaying};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use stdx::clock::Clock;
use tables::rollup::Resolution;
use tables::store::DynObjectStore;
use tables::{Delete, Table, TableError};
use tokio::sync::oneshot;

pub use crate::partition::submission::Outcome;

/// An owner that has not answered the sealer after this many turns counts as stuck.
const TURNS_MAX: usize = 10_000;

/// Limit on the samples of a series that a simulation reads to check them.
const SAMPLES_MAX: u64 = 10_000_000;

#[derive(Debug, Clone)]
pub struct Outside {
    pub clock: Arc<dyn Clock>,
    pub disk: Arc<dyn Disk>,
    /// Object store for the tables. If `None`, the settings say which store is used.
    pub store: Option<Arc<DynObjectStore>>,
    pub seed: u64,
}

/// Called each time the sealer waits for the owner of a partition, whose number is the argument.
pub type Interlude = Rc<dyn Fn(&Stepped, usize)>;

/// A node whose partitions' owners get turns from the caller instead of threads.
#[derive(Debug, Clone)]
pub struct Stepped {
    pub(crate) node: Node,
    owners: Rc<RefCell<Vec<Acting>>>,
    replayed: Rc<RefCell<Replayed>>,
}

#[derive(Debug)]
enum Acting {
    Here(Box<Owner>),
    Replaying(Replaying),
    Away,
}

#[derive(Debug)]
pub struct Simulated {
    node: Stepped,
    sealer: Sealer<Waiting>,
    upkeep: Upkeep,
    baton: Arc<Baton>,
    // keeps the channel open
    _messages: Receiver<crate::seal::sealer::Message>,
}

/// A write request that was submitted to some partitions. Their answers may be pending.
#[derive(Debug)]
pub struct Written {
    answers: Vec<(usize, Answer)>,
    /// Further steps of a request with points of OpenTelemetry.
    steps: Option<Box<Steps<otlp::Decoder>>>,
    /// What increments of histograms have added up to in this step.
    totals: Vec<(u32, Total)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealing {
    Done,
    Failed,
    /// One step was executed. The turn may have further steps.
    Stepped,
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Identity by which tables know the partition's journal.
    pub source: String,
    /// According to `floodmarks.json`, the tables contain all of the journal before this offset.
    pub upto: u64,
    /// Offset of the journal's first record, and the offset after the last record that is durable.
    pub offsets: (u64, u64),
    pub segments: u64,
    pub bytes: u64,
}

/// The samples of each series: their times, and their values as bits, so that they can be compared exactly.
pub type Content = BTreeMap<String, Vec<(i64, u64)>>;

impl Simulated {
    /// Opens a data directory. The journals are not replayed yet.
    pub fn start(settings: Settings, outside: Outside, interlude: Interlude) -> Result<Self, StartError> {
        let Outside { clock, disk, store, seed } = outside;
        let baton = Arc::new(Baton::new(Arc::clone(&clock)));
        let pause = Arc::clone(&baton) as _;
        let world = World { clock, disk, store, random: RandomSource::seeded(seed), pause, resident: None };
        // records are not simulated yet: nobody stores any
        let Parts { node, owners, sealing, messages, upkeep, streams: _, loader: _ } =
            Node::assemble(settings, world)?;
        let owners = owners.into_iter().map(|owner| Acting::Here(Box::new(owner))).collect();
        let replayed = Rc::new(RefCell::new(Ok(true)));
        let node = Stepped { node, owners: Rc::new(RefCell::new(owners)), replayed };
        let (_, none) = sync_channel(1);
        let waiting = Waiting { node: node.clone(), interlude };
        let stopping = Arc::new(AtomicBool::new(false));
        let workers = Workers::here(Arc::clone(&node.node.reads().clock));
        let sealer = Sealer::new(sealing, waiting, none, stopping, workers);
        Ok(Self { node, sealer, upkeep, baton, _messages: messages })
    }

    /// Replays all journals. While replays wait, `meanwhile` is called, and returns whether to continue.
    /// Returns false if replay was stopped.
    pub fn replay(&mut self, mut meanwhile: impl FnMut(&mut Self) -> bool) -> Result<bool, Refusal> {
        self.node.begin_replay(&self.baton);
        loop {
            (0..self.node.partitions()).for_each(|partition| self.node.turn(partition));
            if !self.node.is_replaying() {
                return self.node.replayed.replace(Ok(true));
            }
            if !meanwhile(self) {
                self.node.stop();
            }
        }
    }

    pub const fn node(&self) -> &Stepped {
        &self.node
    }

    /// Requests a flush. The answer is available after some turns of the sealer.
    pub fn flush(&mut self) -> Flush {
        let (send, answer) = oneshot::channel();
        self.sealer.flush(None, send);
        Flush(answer)
    }

    /// Begins a delete: the tenant's samples must be flushed first. After the answer, [`Stepped::delete`]
    /// commits the delete. If [`Stepped::is_frozen`] is true then, the delete is answered only after another flush.
    pub fn flush_tenant(&mut self, tenant: &TenantId) -> Flush {
        let (send, answer) = oneshot::channel();
        self.sealer.flush(Some(tenant.clone()), send);
        Flush(answer)
    }

    /// Runs a whole turn of the sealer. If a turn has begun, runs what is left of it.
    pub fn seal(&mut self) -> Sealing {
        match self.sealer.turn() {
            Ok(false) => Sealing::Done,
            Ok(true) => Sealing::Failed,
            Err(Stopping) => Sealing::Stopped,
        }
    }

    pub fn seal_step(&mut self) -> Sealing {
        match self.sealer.step() {
            Ok(_) => Sealing::Stepped,
            Err(Stopping) => Sealing::Stopped,
        }
    }

    pub fn keep(&mut self) {
        self.upkeep.check_all();
    }

    /// Compacts until nothing is left to do. Returns the number of tables in which a job failed.
    pub fn compact(&mut self) -> u64 {
        self.upkeep.compact_all().failures
    }
}

#[derive(Debug)]
pub struct Flush(oneshot::Receiver<crate::seal::flushed::Flushed>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushAnswer {
    pub samples: u64,
    /// Number of tenants that the flush could not seal.
    pub blocked: u64,
}

impl Flush {
    pub fn answer(&mut self) -> Option<FlushAnswer> {
        let flushed = self.0.try_recv().ok()?;
        Some(FlushAnswer { samples: flushed.samples, blocked: flushed.blocked })
    }

    pub fn samples(&mut self) -> Option<u64> {
        self.answer().map(|answer| answer.samples)
    }
}

impl Stepped {
    pub fn partitions(&self) -> usize {
        self.node.reads().partitions.len()
    }

    fn begin_replay(&self, baton: &Arc<Baton>) {
        for (number, acting) in self.owners.borrow_mut().iter_mut().enumerate() {
            let Acting::Here(owner) = std::mem::replace(acting, Acting::Away) else {
                panic!("BUG: the owner is already replaying")
            };
            *acting = Acting::Replaying(Replaying::begin(number, owner, baton));
        }
    }

    fn is_replaying(&self) -> bool {
        self.owners.borrow().iter().any(|acting| matches!(acting, Acting::Replaying(_)))
    }

    /// Tells all owners to stop. A replay that waits for memory then ends, too.
    fn stop(&self) {
        for commands in &self.node.writes().commands {
            let _ = commands.try_send(Command::Stop); // a full channel wakes the owner anyway
        }
    }

    /// Runs one turn of a partition's owner. During replay, a turn ends when the replay has to wait, or has
    /// ended.
    pub fn turn(&self, partition: usize) {
        let acting = std::mem::replace(&mut self.owners.borrow_mut()[partition], Acting::Away);
        let acting = match acting {
            Acting::Here(mut owner) => {
                owner.turn(None);
                Acting::Here(owner)
            }
            Acting::Replaying(replaying) => match replaying.turn() {
                Ok((owner, replayed)) => {
                    let before = self.replayed.replace(Ok(true));
                    *self.replayed.borrow_mut() = before.and_then(|all| replayed.map(|this| all && this));
                    Acting::Here(owner)
                }
                Err(replaying) => Acting::Replaying(replaying),
            },
            Acting::Away => panic!("BUG: the owner is already having its turn"),
        };
        self.owners.borrow_mut()[partition] = acting;
    }

    /// Submits a request in the format of remote write 1.0 to the owners. It takes effect when they get
    /// turns.
    pub fn write(&self, tenant: &TenantId, body: Vec<u8>) -> Result<Written, Refusal> {
        self.submit::<Decoder>(tenant, Version::V1, Encoding::Snappy, body)
    }

    /// Like [`Self::write`], for points of OpenTelemetry in JSON.
    pub fn write_points(&self, tenant: &TenantId, body: Vec<u8>) -> Result<Written, Refusal> {
        let format = otlp::Format::new(otlp::Media::Json, Arc::default());
        let request = self.encoded::<otlp::Decoder>(tenant, format, Encoding::Identity, body)?;
        let mut steps = Box::new(Steps::new(request));
        let answers = self.step(&mut steps, Vec::new())?.unwrap_or_default();
        Ok(Written { answers, steps: Some(steps), totals: Vec::new() })
    }

    /// Goes on with a request once all partitions have answered, and none has refused its share. Returns the number of partitions that
    /// will answer in this step. `None` if there is no further step.
    pub fn go_on(&self, written: &mut Written) -> Result<Option<usize>, Refusal> {
        let Written { answers, steps, totals } = written;
        let Some(steps) = steps else { return Ok(None) };
        let Some(next) = self.step(steps, std::mem::take(totals))? else { return Ok(None) };
        *answers = next;
        Ok(Some(answers.len()))
    }

    fn step(
        &self,
        steps: &mut Steps<otlp::Decoder>,
        totals: Vec<(u32, Total)>,
    ) -> Result<Option<Vec<(usize, Answer)>>, Refusal> {
        let decoders = self.decoders();
        let submissions = steps.next(self.node.writes(), &decoders, totals)?;
        submissions.map(|submissions| self.submit_all(submissions)).transpose()
    }

    fn submit<D: protocol::Decoder>(
        &self,
        tenant: &TenantId,
        format: D::Format,
        encoding: Encoding,
        body: Vec<u8>,
    ) -> Result<Written, Refusal> {
        let request = self.encoded::<D>(tenant, format, encoding, body)?;
        let prepared = self.decoders::<D>().prepare(self.node.writes(), request, None)?;
        let answers = self.submit_all(prepared.submissions)?;
        Ok(Written { answers, steps: None, totals: Vec::new() })
    }

    fn encoded<D: protocol::Decoder>(
        &self,
        tenant: &TenantId,
        format: D::Format,
        encoding: Encoding,
        body: Vec<u8>,
    ) -> Result<Encoded<D>, Refusal> {
        let principal = Principal::of(tenant.clone());
        write_path::check(self.node.writes(), &principal)?;
        let memory = self.node.writes().inflight.reserve(body.len() as u64)?;
        Ok(Encoded { principal, format, encoding, bytes: body.into(), memory })
    }

    fn decoders<D: protocol::Decoder>(&self) -> Arc<Decoders<D>> {
        let writes = self.node.writes();
        Arc::new(Decoders::new(writes.seed, writes.decoders.clone()))
    }

    fn submit_all(
        &self,
        submissions: Vec<(usize, Submission, Answer)>,
    ) -> Result<Vec<(usize, Answer)>, Refusal> {
        let partitions: Vec<_> = submissions.iter().map(|(partition, ..)| *partition).collect();
        let Submitted { answers, refused } = write_path::submit(self.node.writes(), submissions);
        match refused {
            Some(refusal) => Err(refusal),
            None => Ok(partitions.into_iter().zip(answers).collect()),
        }
    }

    pub fn has_closed_tenants(&self) -> bool {
        !self.node.reads().lake.closed.is_empty()
    }

    pub fn read(&self, tenant: &TenantId) -> Result<Content, SourceError> {
        if let Err(Refusal { kind, message, .. }) = self.node.reads().lake.closed.check(tenant) {
            return Err(SourceError { kind, message });
        }
        let canceled = Arc::new(AtomicBool::new(false));
        let source = Source::new(self.node.reads(), tenant.clone(), SAMPLES_MAX, canceled);
        let mut set = source.select(&Select { matchers: &[], range: TimeRange::ALL })?;
        let (mut samples, mut content) = (SeriesSamples::default(), Content::new());
        while set.next(&mut samples)? {
            let samples = samples.floats().expect("histograms in the simulation");
            let bits = samples.values.iter().map(|v| v.to_bits());
            let found = samples.timestamps.iter().copied().zip(bits).collect();
            let twice = content.insert(set.labels().to_owned().to_string(), found);
            assert!(twice.is_none(), "a series comes twice");
        }
        content.retain(|_, samples| !samples.is_empty());
        Ok(content)
    }

    pub fn progress(&self) -> Vec<Progress> {
        let of = |number: usize| {
            let mark = self.node.reads().lake.mark(number);
            let owners = self.owners.borrow();
            let Acting::Here(owner) = &owners[number] else {
                panic!("BUG: the owner is replaying or has its turn")
            };
            let journal = owner.journal();
            let (offsets, stats) = ((journal.start().0, journal.durable_end().0), journal.stats());
            Progress {
                source: mark.source.clone(),
                upto: mark.needed_from(),
                offsets,
                segments: stats.dictionaries,
                bytes: stats.bytes,
            }
        };
        (0..self.partitions()).map(of).collect()
    }

    /// Commits a delete of samples. [`Simulated::flush_tenant`] must have flushed the tenant.
    pub fn delete(&self, tenant: &TenantId, delete: &Delete) -> Result<(), Refusal> {
        deletes::commit(self.node.reads(), tenant, delete)
    }

    /// True if heads may still have samples of the tenant that are in its table.
    pub fn is_frozen(&self, tenant: &TenantId) -> bool {
        deletes::is_frozen(self.node.reads(), tenant)
    }

    pub fn table(&self, tenant: &TenantId) -> Result<Option<Arc<Table>>, TableError> {
        self.node.reads().lake.existing(tenant)
    }

    pub fn rollup(
        &self,
        tenant: &TenantId,
        resolution: Resolution,
    ) -> Result<Option<Arc<Table>>, TableError> {
        self.node.reads().lake.rollup(tenant, resolution)
    }

    /// Upper bound on how many samples of the tenant are in the heads. Frozen samples are included.
    pub fn head_samples(&self, tenant: &TenantId) -> u64 {
        let canceled = AtomicBool::new(false);
        let of = |partition: &PartitionShared| {
            let all = Turns::new(partition, tenant, &canceled).select(&[]).unwrap_or_default();
            let head = partition.head.read();
            let count =
                |n| head.tenant(tenant).map_or(0, |h| h.samples_at_most(SeriesRef(n), TimeRange::ALL));
            all.into_iter().map(|n| count(n) as u64).sum::<u64>()
        };
        self.node.reads().partitions.iter().map(|partition| of(partition)).sum()
    }

    /// For each partition, returns the bytes of its head, and a description of what its replay waits for.
    pub fn waiting(&self) -> Vec<(u64, String)> {
        let of = |partition: &Arc<PartitionShared>| {
            let state = format!(
                "ready: {}, can freeze: {}, {}",
                partition.ready.load(Ordering::Relaxed),
                partition.can_freeze.load(Ordering::Relaxed),
                partition.trouble.lock()
            );
            (partition.head_bytes.load(Ordering::Relaxed), state)
        };
        self.node.reads().partitions.iter().map(of).collect()
    }

    pub fn metadata(&self, tenant: &TenantId) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for partition in self.node.reads().partitions.iter() {
            let head = partition.head.read();
            let metadata = head.tenant(tenant).into_iter().flat_map(|head| head.metadata());
            all.extend(metadata.map(|m| (m.metric.clone(), m.help.clone())));
        }
        all
    }

    pub fn partition_of_metric(&self, metric: &str) -> usize {
        SeriesKey::of(metric.as_bytes(), self.node.reads().seed).partition(self.partitions())
    }

    pub fn series_key(&self, labels: LabelsRef<'_>) -> SeriesKey {
        SeriesKey::of(labels.as_bytes(), self.node.reads().seed)
    }

    pub fn partition_of(&self, labels: LabelsRef<'_>) -> usize {
        self.series_key(labels).partition(self.partitions())
    }
}

impl Written {
    /// Why increments of histograms were not added in this step, as far as partitions have answered.
    pub fn refused_increments(&self) -> impl Iterator<Item = &SeriesRefusal> {
        self.totals.iter().filter_map(|(_, total)| total.as_ref().err())
    }

    pub fn partitions(&self) -> impl Iterator<Item = usize> {
        self.answers.iter().map(|(partition, _)| *partition)
    }

    pub fn answers(&mut self) -> Vec<(usize, Result<Outcome, Refusal>)> {
        let Self { answers: pending, totals, .. } = self;
        let mut answers = Vec::new();
        pending.retain_mut(|(partition, answer)| match answer.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => true,
            Err(oneshot::error::TryRecvError::Closed) => {
                answers.push((*partition, Err(Refusal::stopping())));
                false
            }
            Ok(mut outcome) => {
                if let Ok(outcome) = &mut outcome {
                    totals.append(&mut outcome.totals);
                }
                answers.push((*partition, outcome));
                false
            }
        });
        answers
    }
}

/// Gives turns to an owner until it answers, while the sealer waits for this answer.
struct Waiting {
    node: Stepped,
    interlude: Interlude,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Waiting {
    fn wait_for<T>(&self, number: usize, command: Command, answer: &Receiver<T>) -> Option<T> {
        self.node.node.writes().commands[number].try_send(command).ok()?;
        for _ in 0..TURNS_MAX {
            (self.interlude)(&self.node, number);
            self.node.turn(number);
            if let Ok(answer) = answer.try_recv() {
                return Some(answer);
            }
        }
        None
    }
}

impl Owners for Waiting {
    fn freeze(&mut self, number: usize, all: bool, except: &BTreeSet<TenantId>) -> Option<Frozen> {
        let (reply, answer) = sync_channel(1);
        self.wait_for(number, Command::Freeze(Freeze { all, except: except.clone(), reply }), &answer)
    }

    fn release(&mut self, number: usize, what: SealedSamples) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self.wait_for(number, Command::Sealed(Sealed { what, reply }), &answer)
    }

    fn read(&mut self, number: usize, from: Offset) -> Option<Read> {
        let (reply, answer) = sync_channel(1);
        self.wait_for(number, Command::Read(from, reply), &answer)
    }

    fn add_closed(&mut self, number: usize, batch: ClosedBatch) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self.wait_for(number, Command::AddClosed(batch, reply), &answer)
    }

    fn discard(&mut self, number: usize, tenant: &TenantId) -> Option<Box<TenantHead>> {
        let (reply, answer) = sync_channel(1);
        self.wait_for(number, Command::Discard(tenant.clone(), reply), &answer)?
    }

    fn relocate(&mut self, number: usize, tenants: &BTreeSet<TenantId>) -> Option<Relocated> {
        let (reply, answer) = sync_channel(1);
        let relocate = Relocate { tenants: tenants.clone(), reply };
        self.wait_for(number, Command::Relocate(relocate), &answer)
    }

    fn truncate(&mut self, number: usize) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self.wait_for(number, Command::Truncate(reply), &answer)
    }
}
