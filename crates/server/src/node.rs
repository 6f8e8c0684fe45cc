//! A node: an open data directory, its owners, its memory, its counters.

use crate::datadir::{DataDir, DataDirError};
use crate::limits::budget::Budget;
use crate::limits::head_watermarks;
use crate::limits::headroom::Headroom;
use crate::limits::new_tenants::NewTenants;
use crate::limits::pacer::Traffic;
use crate::limits::shortage::Shortage;
use crate::partition::{Command, Commands, Owner, PartitionShared, QUEUE_MAX};
use crate::refusal::Refusal;
use crate::seal::sealer::{Message, QUEUE_MAX as SEALER_QUEUE_MAX, Sealer};
use crate::seal::workers::Workers;
use crate::seal::{Lake, LakeError};
use crate::settings::Settings;
use crate::telemetry::{WriteMetrics, register_gauges};
use crate::upkeep::{self, Upkeep};
use crate::wallclock::WallClock;
use crate::world::{Pause, World};
use journal::{Embedded, JournalError, Offset, Options};
use model::SeriesError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::clock::Clock;
use stdx::rng::mix;
use stdx::telemetry::Registry;

/// What [`Shared::steady_s`] begins with: series that replay restores were seen before.
const STARTED_S: u32 = 1 << 20;

/// How long a stopping node waits for its sealer and upkeep.
const HELPERS_WAIT: Duration = Duration::from_secs(5);
const HELPERS_POLL: Duration = Duration::from_millis(5);

/// A running node. Cloning gives another handle.
#[derive(Debug, Clone)]
pub struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    commands: Vec<Commands>,
    sealer: SyncSender<Message>,
    upkeep: SyncSender<upkeep::Message>,
    /// The sealer and the upkeep.
    helpers: Mutex<Vec<JoinHandle<()>>>,
    owners: Mutex<Vec<JoinHandle<()>>>,
    registry: Registry,
    stopping: Arc<AtomicBool>,
    /// Held for its lock.
    _data_dir: DataDir,
}

/// What owners and handlers both use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) seed: u64,
    pub(crate) clock: Arc<dyn Clock>,
    started: Instant,
    pub(crate) pause: Arc<dyn Pause>,
    /// Whether what it says can be believed.
    pub(crate) wall: WallClock,
    pub(crate) metrics: WriteMetrics,
    /// Write requests, from their first byte to their answer.
    pub(crate) inflight: Account,
    /// Decoders that wait for the next request.
    pub(crate) decoders: Account,
    /// Forms that ask, and answers until they are sent.
    pub(crate) answers: Account,
    /// What replay holds beside the heads. No query runs before it is done, so it has all of their memory.
    pub(crate) replay: Account,
    /// Of all that the process may hold.
    pub(crate) headroom: Headroom,
    pub(crate) lake: Lake,
    pub(crate) traffic: Traffic,
    /// Of memory for new series.
    pub(crate) head_shortage: parking_lot::Mutex<Shortage>,
    pub(crate) new_tenants: parking_lot::Mutex<NewTenants>,
    /// The most that the heads ever held, as far as anybody looked.
    head_peak_bytes: AtomicU64,
    partitions: Vec<Arc<PartitionShared>>,
}

impl Shared {
    pub(crate) fn partitions(&self) -> &[Arc<PartitionShared>] {
        &self.partitions
    }

    /// Replay is done in all partitions.
    pub(crate) fn is_ready(&self) -> bool {
        self.partitions.iter().all(|p| p.ready.load(Ordering::Acquire))
    }

    /// What all partitions hold can be frozen: each is ready, or its replay is past everything that tables may have.
    pub(crate) fn can_freeze(&self) -> bool {
        self.partitions.iter().all(|p| p.can_freeze.load(Ordering::Acquire))
    }

    /// The refusal until replay is done; it names partitions that wait or stay closed, and why.
    pub(crate) fn replaying(&self) -> Refusal {
        let mut message = "the journal is being replayed".to_owned();
        for (number, partition) in self.partitions.iter().enumerate() {
            let trouble = partition.trouble.lock();
            if !trouble.is_empty() {
                message += &format!("; partition {number}: {trouble}");
            }
        }
        Refusal::busy("replaying", message)
    }

    /// Bytes that all partitions' heads hold.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.partitions.iter().map(|p| p.head_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Somebody saw that the heads hold so much.
    pub(crate) fn head_peaks(&self, bytes: u64) {
        if bytes > self.head_peak_bytes.load(Ordering::Relaxed) {
            self.head_peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// The most that all partitions' heads ever held.
    pub(crate) fn head_peak_bytes(&self) -> u64 {
        self.head_peaks(self.head_bytes());
        self.head_peak_bytes.load(Ordering::Relaxed)
    }

    /// The heads hold so many percent of what they may: see [`head_watermarks`].
    pub(crate) fn is_filled_to(&self, percent: u64) -> bool {
        self.head_bytes() >= self.settings.budget.head_bytes / 100 * percent
    }

    /// What one partition's exemplars may hold: a fifth as much where the head needs the memory for series and samples.
    pub(crate) fn exemplar_limit_bytes(&self) -> usize {
        let share = self.settings.budget.exemplars_bytes() as usize / self.partitions.len();
        if self.is_filled_to(head_watermarks::EVICT_ALL) { share / 5 } else { share }
    }

    /// What one partition's metadata may hold.
    pub(crate) fn metadata_limit_bytes(&self) -> usize {
        self.settings.budget.metadata_bytes() as usize / self.partitions.len()
    }

    /// Whether there is room for new series, and who asks for the first time. Known series may still flow where
    /// there is none.
    pub(crate) fn room_for_series(&self) -> Result<(), SeriesError> {
        if !self.is_filled_to(head_watermarks::NO_NEW_SERIES) {
            return self.headroom.check_for_series();
        }
        let used = self.head_bytes();
        let limit = self.settings.budget.head_bytes / 100 * head_watermarks::NO_NEW_SERIES;
        Err(SeriesError::NoRoom { used_mib: used >> 20, limit_mib: limit >> 20 })
    }

    /// When the oldest sample came that is in no round of sealing yet, in milliseconds since the Unix epoch.
    pub(crate) fn unsealed_since_ms(&self) -> Option<i64> {
        let since = self.partitions().iter().map(|p| p.unsealed_since_ms.load(Ordering::Relaxed));
        since.filter(|ms| *ms != 0).min()
    }

    /// Age of the oldest sample that is in no table yet, in milliseconds; 0 where there is none.
    pub(crate) fn floodmark_lag_ms(&self) -> i64 {
        let in_rounds = self.lake.in_rounds_since_ms.load(Ordering::Relaxed);
        match self.unsealed_since_ms().unwrap_or(i64::MAX).min(in_rounds) {
            i64::MAX => 0,
            since_ms => self.clock.now_ms().saturating_sub(since_ms).max(0),
        }
    }

    /// Seconds of the steady clock, by which series count as idle: the wall clock may be set.
    pub(crate) fn steady_s(&self) -> u32 {
        let since = self.clock.instant().saturating_duration_since(self.started);
        u32::try_from(since.as_secs()).map_or(u32::MAX, |s| s.saturating_add(STARTED_S))
    }
}

/// Runs a thread that the node cannot do without: a partition without its owner can neither write nor be trusted, and
/// without the sealer or the upkeep memory and disk fill up unnoticed. After a panic it aborts the process; the journal
/// has everything for the next start.
pub(crate) fn run_or_abort(thread: &str, run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::error!(thread, "BUG: a thread panicked; aborting, the journal will be replayed");
        std::process::abort();
    }
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

/// A node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The tables.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// A thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl Node {
    /// Opens the data directory and starts one owner for each partition. Replay goes on in the background;
    /// see [`Node::is_ready`].
    pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        Self::start_in(settings, World::real(clock))
    }

    /// As [`Self::start`], in a process that is this node's alone: what the process holds is held against its memory.
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

    /// Opens the data directory and makes all parts. Nothing runs yet.
    pub(crate) fn assemble(settings: Settings, world: World) -> Result<Parts, StartError> {
        let disk = Arc::clone(&world.disk);
        let data_dir = DataDir::open(disk, &settings.data_dir, settings.partitions, world.chance.fresh())?;
        let (seed, count) = (data_dir.identity.seed, data_dir.identity.partitions);
        let partitions: Vec<_> = (0..count).map(|_| Arc::new(PartitionShared::new(seed))).collect();
        let registry = Registry::new();
        let flush = Account::new("flush", settings.budget.flush_bytes);
        let lake = Lake::open(&settings.lake, &data_dir, &world, flush, &settings.budget, &registry)?;
        let mut journals = Vec::new();
        for number in 0..count {
            let options = Options {
                durability: settings.durability,
                segment_bytes: settings.segment_bytes,
                seed: mix(seed ^ number as u64),
                floor: Offset(lake.mark(number).floor()),
                disk: Arc::clone(&world.disk),
                ..Options::default()
            };
            journals.push(Embedded::open(&data_dir.path.join("journal"), number as u32, options)?);
        }
        let shared = Arc::new(Shared {
            metrics: WriteMetrics::new(&registry),
            inflight: Account::new("inflight", settings.budget.inflight_bytes),
            decoders: Account::new("decoders", settings.budget.decoders_bytes),
            answers: Account::new("answers", settings.budget.answers_bytes()),
            replay: Account::new("replay", settings.budget.query_bytes),
            headroom: Headroom::new(world.resident, Arc::clone(&world.clock), settings.budget.total_bytes),
            lake,
            traffic: Traffic::default(),
            head_shortage: parking_lot::Mutex::default(),
            new_tenants: parking_lot::Mutex::new(NewTenants::new(
                settings.tenant_burst,
                settings.tenants_per_minute,
            )),
            head_peak_bytes: AtomicU64::new(0),
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
            owners.push(Owner::new(number, shared, partition, Box::new(journal), receive));
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

    /// Replay is done in all partitions, and the node is not stopping.
    pub fn is_ready(&self) -> bool {
        !self.is_stopping() && self.0.shared.is_ready()
    }

    /// [`Node::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Acquire)
    }

    /// Finishes what was taken in, then ends the owners. Blocks until they are gone.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Release);
        self.end_helpers();
        let owners = std::mem::take(&mut *self.0.owners.lock().expect("BUG: a stopper panicked"));
        for (owner, commands) in owners.into_iter().zip(&self.0.commands) {
            let _ = commands.send(Command::Stop); // an owner that is gone needs no word
            let _ = owner.join(); // a panic would have ended the process
        }
    }

    /// Ends the sealer and the upkeep, if they do so soon. Who waits for a store that does not answer goes with the
    /// process: rounds and jobs may be cut short anywhere.
    fn end_helpers(&self) {
        // a full channel is one that is looked at anyway
        let _ = self.0.sealer.try_send(Message::Stop);
        let _ = self.0.upkeep.try_send(upkeep::Message::Stop);
        let until = Instant::now() + HELPERS_WAIT;
        for helper in std::mem::take(&mut *self.0.helpers.lock().expect("BUG: a stopper panicked")) {
            while !helper.is_finished() && Instant::now() < until {
                std::thread::sleep(HELPERS_POLL);
            }
            if !helper.is_finished() {
                tracing::info!("sealing or upkeep was cut short; the next start takes it up again");
            }
        }
    }

    /// Where the upkeep is told what to do.
    pub(crate) fn upkeep(&self) -> &SyncSender<upkeep::Message> {
        &self.0.upkeep
    }

    /// The sealer's queue.
    pub(crate) fn sealer(&self) -> &SyncSender<Message> {
        &self.0.sealer
    }

    /// What is configured.
    pub fn settings(&self) -> &Settings {
        &self.0.shared.settings
    }

    /// How memory is shared out.
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
