//! Assembles a node: data directory, owners, memory and counters.

use crate::datadir::{DataDir, DataDirError};
use crate::ingest::gates::Gates;
use crate::limits::budget::Budget;
use crate::limits::head_memory::HeadMemory;
use crate::limits::headroom::Headroom;
use crate::partition::shared::Partitions;
use crate::partition::{Command, Commands, Owner, PartitionShared, QUEUE_MAX};
use crate::seal::sealer::{Message, QUEUE_MAX as SEALER_QUEUE_MAX, Sealer};
use crate::seal::workers::Workers;
use crate::seal::{Lake, LakeError};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::telemetry::{WriteMetrics, register_gauges};
use crate::threads::run_or_abort;
use crate::upkeep::{self, Upkeep};
use crate::wallclock::WallClock;
use crate::world::World;
use admission::NewTenants;
use journal::{Journal, JournalError, Offset};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::clock::Clock;
use stdx::telemetry::Registry;

/// Time that a stopping node waits for its sealer and upkeep.
const HELPERS_WAIT: Duration = Duration::from_secs(5);
const HELPERS_POLL: Duration = Duration::from_millis(5);

/// Time that a request waits for replay to end before it is refused.
const REPLAY_WAIT: Duration = Duration::from_secs(5);
const REPLAY_POLL: Duration = Duration::from_millis(10);

/// A running node. Cloning gives another handle.
#[derive(Debug, Clone)]
pub struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    commands: Vec<Commands>,
    sealer: SyncSender<Message>,
    upkeep: SyncSender<upkeep::Message>,
    /// Threads of the sealer and the upkeep.
    helpers: Mutex<Vec<JoinHandle<()>>>,
    owners: Mutex<Vec<JoinHandle<()>>>,
    registry: Registry,
    stopping: Arc<AtomicBool>,
    /// Held for its lock.
    _data_dir: DataDir,
}

/// A node whose parts do not run yet.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) node: Node,
    pub(crate) owners: Vec<Owner>,
    /// Messages to the sealer.
    pub(crate) messages: Receiver<Message>,
    pub(crate) upkeep: Upkeep,
}

/// Errors of starting a node.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The tables cannot be set up.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl Node {
    /// Opens the data directory and starts one owner for each partition. Replay continues in the background;
    /// see [`Node::is_ready`].
    pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        Self::start_in(settings, World::real(clock))
    }

    /// As [`Self::start`], in a process with no other node: all memory of the process counts against its budget.
    pub fn start_alone(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        Self::start_in(settings, World::of_own_process(clock))
    }

    pub(crate) fn start_in(settings: Settings, world: World) -> Result<Self, StartError> {
        let Parts { node, owners, messages, upkeep } = Self::assemble(settings, world)?;
        node.0.shared.lake.check_store()?;
        let run = |name: String, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.clone());
            thread.spawn(move || run_or_abort(&name, run)).map_err(StartError::Thread)
        };
        for (number, owner) in owners.into_iter().enumerate() {
            let thread = run(format!("partition-{number}"), Box::new(|| owner.run()))?;
            node.0.owners.lock().expect("BUG: a stopper panicked").push(thread);
        }
        let inner = &node.0;
        let sealer = Sealer::new(
            Arc::clone(&inner.shared),
            inner.commands.clone(),
            messages,
            Arc::clone(&inner.stopping),
            Workers::on_threads(Arc::clone(&inner.shared.clock)),
        );
        let sealer = run("sealer".into(), Box::new(|| sealer.run()))?;
        let upkeep = run("upkeep".into(), Box::new(|| upkeep.run()))?;
        inner.helpers.lock().expect("BUG: a stopper panicked").extend([sealer, upkeep]);
        Ok(node)
    }

    /// Opens the data directory and creates all parts. Starts no thread.
    pub(crate) fn assemble(settings: Settings, world: World) -> Result<Parts, StartError> {
        let disk = Arc::clone(&world.disk);
        let data_dir = DataDir::open(disk, &settings.data_dir, settings.partitions, world.chance.fresh())?;
        let (seed, count) = (data_dir.identity.seed, data_dir.identity.partitions);
        let partitions = Arc::new(Partitions::new(count, seed));
        let registry = Registry::new();
        let flush = Account::new("flush", settings.budget.flush_bytes);
        let mut journals = open_journals(&settings, &data_dir, &world)?;
        let identities = journals.iter().map(|journal| journal.identity()).collect();
        let lake =
            Lake::open(&settings.lake, &data_dir, identities, &world, flush, &settings.budget, &registry)?;
        for (number, journal) in journals.iter_mut().enumerate() {
            journal.skip_to(Offset(lake.mark(number).floor()))?;
        }
        let headroom =
            Arc::new(Headroom::new(world.resident, Arc::clone(&world.clock), settings.budget.total_bytes));
        let heads = HeadMemory::new(Arc::clone(&partitions), Arc::clone(&headroom), &settings.budget);
        let shared = Arc::new(Shared {
            metrics: WriteMetrics::new(&registry),
            gates: Gates::new(&settings, &registry),
            inflight: Account::new("inflight", settings.budget.inflight_bytes),
            decoders: Account::new("decoders", settings.budget.decoders_bytes),
            answers: Account::new("answers", settings.budget.answers_bytes()),
            replay: Account::new("replay", settings.budget.query_bytes),
            headroom,
            heads: Arc::new(heads),
            lake,
            traffic: Arc::default(),
            head_shortage: parking_lot::Mutex::default(),
            new_tenants: parking_lot::Mutex::new(NewTenants::new(
                settings.tenant_burst,
                settings.tenants_per_minute,
            )),
            partitions,
            wall: WallClock::open(
                &*world.clock,
                settings.lake.retention_wait_ms,
                Arc::clone(&world.disk),
                &data_dir.path,
            ),
            settings,
            seed,
            started: world.clock.instant(),
            clock: world.clock,
            pause: world.pause,
        });
        let mut commands = Vec::new();
        let mut owners = Vec::new();
        for (number, (partition, journal)) in shared.partitions.iter().zip(journals).enumerate() {
            let (send, receive) = sync_channel(QUEUE_MAX);
            let (shared, partition) = (Arc::clone(&shared), Arc::clone(partition));
            owners.push(Owner::new(number, shared, partition, journal, receive));
            commands.push(send);
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let (sealer, messages) = sync_channel(SEALER_QUEUE_MAX);
        let (upkeep_messages, receive) = sync_channel(SEALER_QUEUE_MAX);
        let upkeep = Upkeep::new(Arc::clone(&shared), receive, Arc::clone(&stopping));
        let node = Self(Arc::new(Inner {
            shared,
            commands,
            sealer,
            upkeep: upkeep_messages,
            helpers: Mutex::default(),
            owners: Mutex::default(),
            registry,
            stopping,
            _data_dir: data_dir,
        }));
        register_gauges(&node);
        Ok(Parts { node, owners, messages, upkeep })
    }

    /// True if replay is done in all partitions and the node is not stopping.
    pub fn is_ready(&self) -> bool {
        !self.is_stopping() && self.0.shared.partitions.is_ready()
    }

    /// Waits for the end of replay, at most [`REPLAY_WAIT`]. Replays are short: a request that arrives meanwhile waits, within
    /// the bounds on requests in flight, instead of being refused for seconds.
    pub(crate) async fn wait_for_replay(&self) {
        let began = Instant::now();
        while !self.is_ready() && !self.is_stopping() && began.elapsed() < REPLAY_WAIT {
            tokio::time::sleep(REPLAY_POLL).await;
        }
    }

    /// True once [`Node::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Acquire)
    }

    /// Finishes accepted requests, then ends the owners. Blocks until their threads have ended.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Release);
        self.end_helpers();
        let owners = std::mem::take(&mut *self.0.owners.lock().expect("BUG: a stopper panicked"));
        for (owner, commands) in owners.into_iter().zip(&self.0.commands) {
            let _ = commands.send(Command::Stop); // the owner may have ended
            let _ = owner.join(); // a panic would have ended the process
        }
    }

    /// Stops the sealer and the upkeep, and waits for at most [`HELPERS_WAIT`]. One that hangs in a request to the store ends
    /// with the process: rounds and jobs may be interrupted anywhere.
    fn end_helpers(&self) {
        // if the channel is full, its thread is awake and sees that the node stops
        let _ = self.0.sealer.try_send(Message::Stop);
        let _ = self.0.upkeep.try_send(upkeep::Message::Stop);
        let until = Instant::now() + HELPERS_WAIT;
        for helper in std::mem::take(&mut *self.0.helpers.lock().expect("BUG: a stopper panicked")) {
            while !helper.is_finished() && Instant::now() < until {
                std::thread::sleep(HELPERS_POLL);
            }
            if !helper.is_finished() {
                tracing::info!("sealing or upkeep was interrupted; it continues after the next start");
            }
        }
    }

    /// Channel of commands for upkeep.
    pub(crate) fn upkeep(&self) -> &SyncSender<upkeep::Message> {
        &self.0.upkeep
    }

    /// The sealer's queue.
    pub(crate) fn sealer(&self) -> &SyncSender<Message> {
        &self.0.sealer
    }

    /// Settings of the node.
    pub fn settings(&self) -> &Settings {
        &self.0.shared.settings
    }

    /// Memory budget of the node.
    pub fn budget(&self) -> &Budget {
        &self.settings().budget
    }

    /// The node's metrics.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn partitions(&self) -> &[Arc<PartitionShared>] {
        self.0.shared.partitions()
    }

    pub(crate) fn commands(&self) -> &[Commands] {
        &self.0.commands
    }
}

fn open_journals(
    settings: &Settings,
    data_dir: &DataDir,
    world: &World,
) -> Result<Vec<Box<dyn Journal>>, JournalError> {
    let options = journal::Options {
        durability: settings.durability,
        segment_bytes: settings.segment_bytes,
        seed: data_dir.identity.seed,
        fresh_id: world.chance.fresh(),
        disk: Arc::clone(&world.disk),
        ..journal::Options::default()
    };
    let settings = journal::Settings::Files { dir: data_dir.path.join("journal"), options };
    (0..data_dir.identity.partitions).map(|number| journal::open(&settings, number as u32)).collect()
}
