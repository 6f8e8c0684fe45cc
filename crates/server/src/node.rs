//! A node: an open data directory, its owners, its memory, its counters.

use crate::budget::Budget;
use crate::courtesy::Traffic;
use crate::datadir::{DataDir, DataDirError};
use crate::lake::sealer::{ORDERS_MAX, Order, Sealer};
use crate::lake::upkeep::{self, Upkeep};
use crate::lake::{Lake, LakeError};
use crate::owner::{Command, Commands, Owner, PartitionShared, QUEUE_MAX};
use crate::pipeline::Decoders;
use crate::settings::Settings;
use crate::telemetry::WriteMetrics;
use crate::world::World;
use journal::{Embedded, JournalError, Offset, Options};
use model::SeriesError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::clock::Clock;
use stdx::rng::mix;
use stdx::telemetry::Registry;

/// How long a stopping node waits for its sealer and upkeep.
const HELPERS_WAIT: Duration = Duration::from_secs(5);
const HELPERS_POLL: Duration = Duration::from_millis(5);

/// A running node. Cloning gives another handle.
#[derive(Debug, Clone)]
pub struct Node(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    partitions: Vec<Arc<PartitionShared>>,
    commands: Vec<Commands>,
    orders: SyncSender<Order>,
    upkeep: SyncSender<upkeep::Order>,
    /// The sealer and the upkeep.
    helpers: Mutex<Vec<JoinHandle<()>>>,
    owners: Mutex<Vec<JoinHandle<()>>>,
    decoders: Decoders,
    registry: Registry,
    stopping: Arc<AtomicBool>,
    /// Held for its lock.
    _data_dir: DataDir,
}

/// Of the head's memory, what new series may not touch: known ones can still flow then.
const HEAD_NEW_SERIES_PERCENT: u64 = 85;

/// Tenants that cannot be sealed and that the metrics name.
const LAGGARDS_NAMED_MAX: usize = 100;

/// What owners and handlers both use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) seed: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: WriteMetrics,
    /// Write requests, from their first byte to their answer.
    pub(crate) inflight: Account,
    /// Forms that ask, and answers until they are sent.
    pub(crate) answers: Account,
    pub(crate) lake: Lake,
    pub(crate) traffic: Traffic,
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

    /// Bytes that all partitions' heads hold.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.partitions.iter().map(|p| p.head_bytes.load(Ordering::Relaxed)).sum()
    }

    /// Whether there is room for new series, and who asks for the first time. Known series may still flow where
    /// there is none.
    pub(crate) fn room_for_series(&self) -> Result<(), SeriesError> {
        let limit = self.settings.budget.head_bytes / 100 * HEAD_NEW_SERIES_PERCENT;
        let used = self.head_bytes();
        if used < limit {
            return Ok(());
        }
        Err(SeriesError::NoRoom { used_mib: used >> 20, limit_mib: limit >> 20 })
    }

    /// Seconds since the Unix epoch.
    pub(crate) fn now_s(&self) -> u32 {
        u32::try_from(self.clock.now_ms() / 1000).unwrap_or(u32::MAX)
    }
}

/// A partition without its owner can neither write nor be trusted; the journal has everything, so the process
/// ends at once and begins anew.
fn run_or_abort(owner: Owner) {
    if catch_unwind(AssertUnwindSafe(|| owner.run())).is_err() {
        tracing::error!("BUG: a partition's owner panicked; aborting, the journal will be replayed");
        std::process::abort();
    }
}

/// A node whose parts do not run yet.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) node: Node,
    pub(crate) owners: Vec<Owner>,
    /// For the sealer.
    pub(crate) orders: Receiver<Order>,
    pub(crate) upkeep: Upkeep,
}

/// A number that is read when somebody asks for the metrics.
type Reading = Box<dyn Fn() -> f64 + Send + Sync>;

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
        let Parts { node, owners, orders, upkeep } = Self::assemble(settings, World::real(clock))?;
        let run = |name: String, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name).spawn(run).map_err(StartError::Thread)
        };
        for (number, owner) in owners.into_iter().enumerate() {
            let thread = run(format!("partition-{number}"), Box::new(|| run_or_abort(owner)))?;
            node.0.owners.lock().expect("BUG: a stopper panicked").push(thread);
        }
        let inner = &node.0;
        let sealer = Sealer::new(
            Arc::clone(&inner.shared),
            inner.commands.clone(),
            orders,
            Arc::clone(&inner.stopping),
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
        let decoders = Account::new("decoders", settings.budget.decoders_bytes);
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
            answers: Account::new("answers", settings.budget.answers_bytes()),
            lake,
            traffic: Traffic::default(),
            partitions: partitions.clone(),
            settings,
            seed,
            clock: world.clock,
        });
        let mut commands = Vec::new();
        let mut owners = Vec::new();
        for (number, (partition, journal)) in partitions.iter().zip(journals).enumerate() {
            let (send, receive) = sync_channel(QUEUE_MAX);
            let (shared, partition) = (Arc::clone(&shared), Arc::clone(partition));
            owners.push(Owner::new(number, shared, partition, Box::new(journal), receive));
            commands.push(send);
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let (orders, received_orders) = sync_channel(ORDERS_MAX);
        let (upkeep_orders, receive) = sync_channel(ORDERS_MAX);
        let upkeep = Upkeep::new(Arc::clone(&shared), receive, Arc::clone(&stopping));
        let node = Self(Arc::new(Inner {
            decoders: Decoders::new(seed, decoders),
            shared,
            partitions,
            commands,
            orders,
            upkeep: upkeep_orders,
            helpers: Mutex::default(),
            owners: Mutex::default(),
            registry,
            stopping,
            _data_dir: data_dir,
        }));
        node.register_gauges();
        Ok(Parts { node, owners, orders: received_orders, upkeep })
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
            if owner.join().is_err() {
                tracing::error!("an owner had panicked");
            }
        }
    }

    /// Ends the sealer and the upkeep, if they do so soon. Who waits for a store that does not answer goes with the
    /// process: rounds and jobs may be cut short anywhere.
    fn end_helpers(&self) {
        // a full channel is one that is looked at anyway
        let _ = self.0.orders.try_send(Order::Stop);
        let _ = self.0.upkeep.try_send(upkeep::Order::Stop);
        let until = Instant::now() + HELPERS_WAIT;
        for helper in std::mem::take(&mut *self.0.helpers.lock().expect("BUG: a stopper panicked")) {
            while !helper.is_finished() && Instant::now() < until {
                std::thread::sleep(HELPERS_POLL);
            }
            if !helper.is_finished() {
                tracing::info!("sealing or upkeep was cut short; the next start takes it up again");
            } else if helper.join().is_err() {
                tracing::error!("BUG: the sealer or the upkeep had panicked");
            }
        }
    }

    /// Where the upkeep is told what to do.
    pub(crate) fn upkeep(&self) -> &SyncSender<upkeep::Order> {
        &self.0.upkeep
    }

    /// Where the sealer is told what to do.
    pub(crate) fn orders(&self) -> &SyncSender<Order> {
        &self.0.orders
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
        &self.0.partitions
    }

    pub(crate) fn commands(&self) -> &[Commands] {
        &self.0.commands
    }

    pub(crate) fn decoders(&self) -> &Decoders {
        &self.0.decoders
    }

    fn register_gauges(&self) {
        let r = &self.0.registry;
        let sum = |read: fn(&PartitionShared) -> u64| {
            let partitions = self.0.partitions.clone();
            move || partitions.iter().map(|p| read(p)).sum::<u64>() as f64
        };
        let heads = |read: fn(&head::TenantHead) -> usize| {
            let partitions = self.0.partitions.clone();
            let of =
                move |p: &Arc<PartitionShared>| p.head.read().tenants().map(|(_, h)| read(h)).sum::<usize>();
            move || partitions.iter().map(&of).sum::<usize>() as f64
        };
        let gauges: [(&'static str, &'static str, Reading); 6] = [
            ("floodmark_head_series", "Series in memory.", Box::new(heads(head::TenantHead::series_count))),
            (
                "floodmark_head_active_series",
                "Series that got a sample within series_idle.",
                Box::new(heads(head::TenantHead::active_count)),
            ),
            (
                "floodmark_head_bytes",
                "Bytes that the head's structures hold.",
                Box::new(sum(|p| p.head_bytes.load(Ordering::Relaxed))),
            ),
            (
                "floodmark_head_creating_requests",
                "Requests that wait for their new series.",
                Box::new(sum(|p| p.creating.load(Ordering::Relaxed))),
            ),
            (
                "floodmark_journal_bytes",
                "Bytes in the journal's segments.",
                Box::new(sum(|p| p.journal_bytes.load(Ordering::Relaxed))),
            ),
            (
                "floodmark_journal_segments",
                "Segment files.",
                Box::new(sum(|p| p.journal_segments.load(Ordering::Relaxed))),
            ),
        ];
        for (name, help, read) in gauges {
            r.gauge_fn(name, help, &[], read);
        }
        let budget = self.budget();
        let accounts = [
            ("head", budget.head_bytes),
            ("inflight", budget.inflight_bytes),
            ("query", budget.query_bytes),
            ("flush", budget.flush_bytes),
            ("decoders", budget.decoders_bytes),
        ];
        for (account, limit) in accounts {
            let labels = [("account", account)];
            r.gauge_fn("floodmark_budget_limit_bytes", "What an account may hold.", &labels, move || {
                limit as f64
            });
        }
        let shared = Arc::clone(&self.0.shared);
        r.gauges_fn(
            "floodmark_seal_tenant_behind_seconds",
            "How long tenants cannot be sealed; the log says why.",
            "tenant",
            move || {
                let now_ms = shared.clock.now_ms();
                let behind = shared.lake.laggards.all().into_iter().take(LAGGARDS_NAMED_MAX);
                let seconds = |since_ms| now_ms.saturating_sub(since_ms).max(0) as f64 / 1000.0;
                behind.map(|(tenant, since_ms)| (tenant.to_string(), seconds(since_ms))).collect()
            },
        );
        let shared = Arc::clone(&self.0.shared);
        r.gauge_fn("floodmark_seal_tenants_behind", "Tenants that cannot be sealed.", &[], move || {
            shared.lake.laggards.all().len() as f64
        });
        let answers = self.0.shared.answers.clone();
        r.gauge_fn("floodmark_query_answers_bytes", "Memory of answers on their way out.", &[], move || {
            answers.used_bytes() as f64
        });
        let inflight = self.0.shared.inflight.clone();
        let peak = inflight.clone();
        r.gauge_fn("floodmark_write_inflight_bytes", "Memory of write requests now.", &[], move || {
            inflight.used_bytes() as f64
        });
        r.gauge_fn(
            "floodmark_write_inflight_peak_bytes",
            "The most that write requests ever held.",
            &[],
            move || peak.peak_bytes() as f64,
        );
    }
}
