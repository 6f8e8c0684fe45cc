mod assembly;

use crate::auth::Auth;
use crate::datadir::{DataDir, DataDirError};
use crate::graphite_rules::GraphiteRules;
use crate::heap::profiles::HeapProfiles;
use crate::heap::{self, Allocator};
use crate::limits::budget::Budget;
use crate::partition::{Command, Owner};
use crate::query_source;
use crate::query_source::paths::Keeper;
use crate::readiness::Readiness;
use crate::seal::sealer::{Message, QUEUE_MAX as SEALER_QUEUE_MAX, Sealer};
use crate::seal::workers::Workers;
use crate::seal::{self, LakeError};
use crate::self_monitoring;
use crate::settings::{Overrides, Settings};
use crate::streams::loader::Loader;
use crate::streams::{self, Streams};
use crate::telemetry::accounts::SeenPeaks;
use crate::telemetry::register_gauges;
use crate::threads::{prefer_short_slices, run_or_abort};
use crate::tls::Tls;
use crate::upkeep::{self, Upkeep};
use crate::watched::POLL_EVERY;
use crate::world::World;
use crate::write_path;
use assembly::Assembly;
use journal::JournalError;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stdx::clock::Clock;
use stdx::telemetry::Registry;

const HELPERS_WAIT: Duration = Duration::from_secs(5);
const HELPERS_POLL: Duration = Duration::from_millis(5);

/// A running node. Clones are handles of the same node.
#[derive(Debug, Clone)]
pub struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writes: Arc<write_path::Context>,
    reads: Arc<query_source::Context>,
    auth: Arc<Auth>,
    tls: Arc<Tls>,
    #[cfg(test)]
    owning: Arc<crate::partition::Context>,
    sealer: SyncSender<Message>,
    upkeep: SyncSender<upkeep::Message>,
    streams: Arc<Streams>,
    helpers: Mutex<Vec<JoinHandle<()>>>,
    owners: Mutex<Vec<JoinHandle<()>>>,
    registry: Registry,
    seen_peaks: SeenPeaks,
    _data_dir: DataDir,
}

/// Everything that makes up a node, before its threads are started.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) node: Node,
    pub(crate) owners: Vec<Owner>,
    pub(crate) sealing: Arc<seal::Context>,
    pub(crate) messages: Receiver<Message>,
    pub(crate) upkeep: Upkeep,
    pub(crate) streams: streams::Owner,
    pub(crate) loader: Loader,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Lake(#[from] LakeError),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

fn start_thread(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let thread = std::thread::Builder::new().name(name.clone());
    thread.spawn(move || run_or_abort(&name, run)).map_err(StartError::Thread)
}

impl Node {
    /// Opens the data directory and starts one owner for each partition. Replay continues in the background.
    pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        Self::start_in(settings, World::real(clock))
    }

    /// Like [`Self::start`], for a process that has no other node. The memory of the whole process then
    /// counts against the budget.
    pub fn start_alone(
        settings: Settings,
        clock: Arc<dyn Clock>,
        allocator: Arc<dyn Allocator>,
    ) -> Result<Self, StartError> {
        let watermark = settings.heap_profile_percent.map(|percent| (percent, settings.data_dir.clone()));
        let node = Self::start_in(settings, World::of_own_process(Arc::clone(&clock)))?;
        heap::register(&allocator, node.registry());
        let written = heap::profiles::register(node.registry());
        if let Some((percent, data_dir)) = watermark {
            let headroom = Arc::clone(&node.writes().headroom);
            let profiles = HeapProfiles::new(allocator, clock, headroom, percent, &data_dir, written);
            let stopping = Arc::clone(&node.readiness().stopping);
            let thread = start_thread("heap-profiles".into(), move || profiles.run(&stopping))?;
            node.0.helpers.lock().push(thread);
        }
        Ok(node)
    }

    pub(crate) fn start_in(settings: Settings, world: World) -> Result<Self, StartError> {
        let Parts { node, owners, sealing, messages, upkeep, streams, loader } =
            Self::assemble(settings, world)?;
        sealing.lake.check_store()?;
        for (number, owner) in owners.into_iter().enumerate() {
            let thread = start_thread(format!("partition-{number}"), || {
                prefer_short_slices();
                owner.run();
            })?;
            node.0.owners.lock().push(thread);
        }
        let (commands, stopping) = (node.0.writes.commands.clone(), &node.readiness().stopping);
        let workers = Workers::on_threads(Arc::clone(&sealing.clock));
        let sealer = Sealer::new(sealing, commands, messages, Arc::clone(stopping), workers);
        let sealer = start_thread("sealer".into(), || sealer.run())?;
        let upkeep = start_thread("upkeep".into(), || upkeep.run())?;
        let keeper = Keeper::new(Arc::clone(node.reads()), Arc::clone(stopping));
        let keeper = start_thread("paths".into(), move || keeper.run())?;
        let loader = start_thread("loader".into(), || loader.run())?;
        node.0.helpers.lock().extend([sealer, upkeep, keeper, loader]);
        let streams = start_thread("records".into(), || streams.run())?;
        node.0.owners.lock().push(streams);
        if node.has_watched_files() {
            let (watched, stopping) = (Arc::downgrade(&node.0), Arc::clone(stopping));
            let watch = start_thread("files".into(), move || watch_files(&watched, &stopping))?;
            node.0.helpers.lock().push(watch);
        }
        Ok(node)
    }

    /// Opens the data directory and creates all parts, but starts no thread.
    pub(crate) fn assemble(settings: Settings, world: World) -> Result<Parts, StartError> {
        let (assembly, journals) = Assembly::open(settings, world)?;
        let owning = Arc::new(assembly.owning());
        let (commands, owners) = assembly.owners(&owning, journals);
        let sealing = Arc::new(assembly.sealing());
        let (sealer, messages) = sync_channel(SEALER_QUEUE_MAX);
        let (upkeep, receive) = sync_channel(SEALER_QUEUE_MAX);
        let stopping = Arc::new(AtomicBool::new(false));
        let (streams, streams_owner, loader) = assembly.streams(Arc::clone(&stopping));
        let keeper = Upkeep::new(Arc::new(assembly.upkeep()), receive, Arc::clone(&stopping));
        let node = Self(Arc::new(Inner {
            reads: Arc::new(assembly.reads()),
            auth: Arc::new(assembly.auth()),
            tls: assembly.tls(),
            writes: Arc::new(assembly.writes(commands, &streams, stopping)),
            #[cfg(test)]
            owning,
            sealer,
            upkeep,
            streams,
            helpers: Mutex::default(),
            owners: Mutex::default(),
            registry: assembly.registry,
            seen_peaks: SeenPeaks::default(),
            _data_dir: assembly.data_dir,
        }));
        register_gauges(&node);
        Ok(Parts { node, owners, sealing, messages, upkeep: keeper, streams: streams_owner, loader })
    }

    /// Stores the node's own metrics as series until the node stops. `port` is part of their label
    /// `instance`.
    pub fn monitor_itself(&self, port: u16) -> impl Future<Output = ()> + Send + use<> {
        self_monitoring::run(Arc::clone(self.writes()), self.registry(), port)
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.0.writes.readiness
    }

    /// True if replay is done in all partitions and the node is not stopping.
    pub fn is_ready(&self) -> bool {
        self.readiness().is_ready()
    }

    /// Finishes the accepted requests, then stops the partitions' owners. Blocks until their threads have
    /// ended.
    pub fn stop(&self) {
        self.readiness().stopping.store(true, Ordering::Release);
        self.end_helpers();
        let owners = std::mem::take(&mut *self.0.owners.lock());
        for commands in &self.0.writes.commands {
            let _ = commands.send(Command::Stop); // the owner may have ended
        }
        let _ = self.0.streams.commands.send(streams::Command::Stop); // the owner may have ended
        for owner in owners {
            let _ = owner.join(); // a panic would have ended the process
        }
    }

    /// Tells the helper threads to stop, and waits for them for at most [`HELPERS_WAIT`]. Those that still
    /// work then end with the process; the next start continues their work.
    fn end_helpers(&self) {
        // if the channel is full, its thread is awake and will see that the node stops
        let _ = self.0.sealer.try_send(Message::Stop);
        let _ = self.0.upkeep.try_send(upkeep::Message::Stop);
        let until = Instant::now() + HELPERS_WAIT;
        for helper in std::mem::take(&mut *self.0.helpers.lock()) {
            helper.thread().unpark();
            while !helper.is_finished() && Instant::now() < until {
                std::thread::sleep(HELPERS_POLL);
            }
            if !helper.is_finished() {
                tracing::info!(
                    "sealing or upkeep did not stop in time; its work continues after the next start"
                );
            }
        }
    }

    pub(crate) fn upkeep(&self) -> &SyncSender<upkeep::Message> {
        &self.0.upkeep
    }

    pub(crate) fn streams(&self) -> &Arc<Streams> {
        &self.0.streams
    }

    pub(crate) fn sealer(&self) -> &SyncSender<Message> {
        &self.0.sealer
    }

    pub fn settings(&self) -> &Settings {
        &self.0.writes.settings
    }

    /// Reads again the files that may change at run time. If one of them is invalid, an error is logged and
    /// its earlier content stays in effect.
    pub fn reload(&self) {
        self.overrides().reload();
        self.auth().reload();
        self.tls().reload();
        self.rules().reload();
        self.0.writes.ingest.file().reload();
    }

    /// Like [`Self::reload`], because an operator asked for it: files that are still invalid are logged again.
    pub fn reload_on_request(&self) {
        self.overrides().remind();
        self.auth().remind();
        self.tls().remind();
        self.rules().remind();
        self.0.writes.ingest.file().remind();
        self.reload();
    }

    fn has_watched_files(&self) -> bool {
        self.overrides().has_source()
            || self.auth().is_required()
            || self.tls().has_source()
            || self.rules().has_source()
            || self.0.writes.ingest.file().has_source()
    }

    pub(crate) fn rules(&self) -> &Arc<GraphiteRules> {
        &self.0.writes.rules
    }

    pub(crate) fn auth(&self) -> &Arc<Auth> {
        &self.0.auth
    }

    pub(crate) fn tls(&self) -> &Arc<Tls> {
        &self.0.tls
    }

    pub(crate) fn overrides(&self) -> &Arc<Overrides> {
        &self.0.writes.overrides
    }

    pub fn budget(&self) -> &Budget {
        &self.settings().budget
    }

    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn seen_peaks(&self) -> &SeenPeaks {
        &self.0.seen_peaks
    }

    pub(crate) fn writes(&self) -> &Arc<write_path::Context> {
        &self.0.writes
    }

    #[cfg(test)]
    pub(crate) fn owning(&self) -> &Arc<crate::partition::Context> {
        &self.0.owning
    }

    pub(crate) fn reads(&self) -> &Arc<query_source::Context> {
        &self.0.reads
    }
}

fn watch_files(watched: &Weak<Inner>, stopping: &AtomicBool) {
    while !stopping.load(Ordering::Acquire)
        && let Some(inner) = watched.upgrade()
    {
        Node(inner).reload();
        std::thread::park_timeout(POLL_EVERY);
    }
}
