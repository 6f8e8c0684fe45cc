//! Opens a data directory and creates the parts of a node. Each part gets only the other parts that it needs.

use super::StartError;
use crate::auth::{self, Auth};
use crate::datadir::DataDir;
use crate::events::Events;
use crate::graphite_rules::{GraphiteRules, Rules};
use crate::limits::head_memory::HeadMemory;
use crate::limits::headroom::Headroom;
use crate::limits::memory_drains::MemoryDrains;
use crate::limits::pacer::Traffic;
use crate::limits::tenant_state::{Memory, TenantStates};
use crate::partition::shared::Partitions;
use crate::partition::{self, Commands, Owner, QUEUE_MAX};
use crate::query_source::paths::PathIndexes;
use crate::query_source::{self, QueriedMetrics};
use crate::readiness::Readiness;
use crate::seal::{self, Lake};
use crate::settings::{Overrides, Settings};
use crate::streams::loader::{self, Loader};
use crate::streams::{self, Home, Streams};
use crate::telemetry::WriteMetrics;
use crate::tls::{self, Tls};
use crate::upkeep;
use crate::wallclock::WallClock;
use crate::world::{Pause, World};
use crate::write_path;
use crate::write_path::aggregator::Aggregator;
use crate::write_path::aliases::Aliases;
use crate::write_path::gates::Gates;
use crate::write_path::ingest::Ingest;
use crate::write_path::names::NameDecisions;
use admission::NewTenants;
use journal::{Disk, Journal, JournalError, Offset};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::time::Instant;
use stdx::budget::Account;
use stdx::clock::Clock;
use stdx::telemetry::Registry;

pub(super) struct Assembly {
    pub(super) registry: Registry,
    pub(super) data_dir: DataDir,
    settings: Arc<Settings>,
    overrides: Arc<Overrides>,
    rules: Arc<GraphiteRules>,
    tenants: Arc<TenantStates>,
    seed: u64,
    clock: Arc<dyn Clock>,
    started: Instant,
    pause: Arc<dyn Pause>,
    wall: Arc<WallClock>,
    metrics: Arc<WriteMetrics>,
    lake: Arc<Lake>,
    partitions: Arc<Partitions>,
    heads: Arc<HeadMemory>,
    events: Arc<Events>,
    headroom: Arc<Headroom>,
    traffic: Arc<Traffic>,
    inflight: Account,
    grpc: Account,
    unwritten: Account,
    answers: Account,
    /// Random number for the journal of records, if it is new.
    streams_id: u64,
}

impl Assembly {
    pub(super) fn open(
        settings: Settings,
        world: World,
    ) -> Result<(Self, Vec<Box<dyn Journal>>), StartError> {
        let disk = Arc::clone(&world.disk);
        let data_dir = DataDir::open(disk, &settings.data_dir, settings.partitions, world.random.fresh())?;
        let (seed, count) = (data_dir.identity.seed, data_dir.identity.partitions);
        let registry = Registry::new();
        let mut journals = open_journals(&settings, &data_dir, &world)?;
        let identities = journals.iter().map(|journal| journal.identity()).collect();
        let flush = Account::new("flush", settings.budget.flush_bytes);
        let lake =
            Lake::open(&settings.lake, &data_dir, identities, &world, flush, &settings.budget, &registry)?;
        for (number, journal) in journals.iter_mut().enumerate() {
            journal.skip_to(Offset(lake.mark(number).floor()))?;
        }
        let streams_id = world.random.fresh();
        let World { clock, pause, resident, disk, .. } = world;
        let wall =
            WallClock::open(&*clock, settings.lake.retention_wait_ms, Arc::clone(&disk), &data_dir.path);
        let partitions = Arc::new(Partitions::new(count, seed));
        let headroom = Headroom::new(resident, Arc::clone(&clock), settings.budget.total_bytes);
        let headroom = Arc::new(headroom);
        let heads = HeadMemory::new(Arc::clone(&partitions), Arc::clone(&headroom), &settings.budget);
        let events = Events::open(disk, &data_dir.path, heads.events.clone(), &registry);
        let grpc_bytes = settings.otlp_grpc.connections_bytes;
        let inflight = Account::new("inflight", settings.budget.inflight_bytes - grpc_bytes);
        let grpc = Account::new("grpc", grpc_bytes);
        let answers = Account::new("answers", settings.budget.answers_bytes());
        let unwritten = inflight.part();
        unwritten.share(u64::MAX, settings.budget.unwritten_bytes());
        let memory = Memory {
            partitions: count,
            inflight: inflight.clone(),
            unwritten: unwritten.clone(),
            answers: answers.clone(),
        };
        let assembly = Self {
            metrics: Arc::new(WriteMetrics::new(&registry)),
            overrides: Arc::new(Overrides::new(
                settings.overrides.clone(),
                settings.tenants.clone(),
                &registry,
            )),
            rules: Arc::new(graphite_rules(&settings, &registry)),
            tenants: Arc::new(TenantStates::new(memory)),
            registry,
            data_dir,
            settings: Arc::new(settings),
            seed,
            started: clock.instant(),
            clock,
            pause,
            wall: Arc::new(wall),
            lake: Arc::new(lake),
            partitions,
            heads: Arc::new(heads),
            events: Arc::new(events),
            headroom,
            traffic: Arc::default(),
            inflight,
            grpc,
            unwritten,
            answers,
            streams_id,
        };
        Ok((assembly, journals))
    }

    pub(super) fn auth(&self) -> Auth {
        let options = auth::Options {
            file: self.settings.auth_file.clone(),
            trusted_proxies: self.settings.trusted_proxies.clone(),
            own_tenant: self.settings.self_monitoring.tenant.clone(),
            memory_bytes: self.settings.budget.auth_bytes,
        };
        Auth::new(options, Arc::clone(&self.clock), &self.registry)
    }

    pub(super) fn tls(&self) -> Arc<Tls> {
        tls::of(self.settings.tls.clone(), &self.registry)
    }

    pub(super) fn owning(&self) -> partition::Context {
        partition::Context {
            settings: Arc::clone(&self.settings),
            overrides: Arc::clone(&self.overrides),
            tenants: Arc::clone(&self.tenants),
            seed: self.seed,
            clock: Arc::clone(&self.clock),
            started: self.started,
            pause: Arc::clone(&self.pause),
            wall: Arc::clone(&self.wall),
            metrics: Arc::clone(&self.metrics),
            replay: Account::new("replay", self.settings.budget.query_bytes),
            lake: Arc::clone(&self.lake),
            heads: Arc::clone(&self.heads),
            partitions: Arc::clone(&self.partitions),
        }
    }

    /// Creates the owner of each partition, and the channel through which it gets commands.
    pub(super) fn owners(
        &self,
        context: &Arc<partition::Context>,
        journals: Vec<Box<dyn Journal>>,
    ) -> (Vec<Commands>, Vec<Owner>) {
        let owner = |(number, (partition, journal)): (usize, (_, _))| {
            let (send, receive) = sync_channel(QUEUE_MAX);
            (send, Owner::new(number, Arc::clone(context), Arc::clone(partition), journal, receive))
        };
        self.partitions.iter().zip(journals).enumerate().map(owner).unzip()
    }

    pub(super) fn sealing(&self) -> seal::Context {
        seal::Context {
            settings: Arc::clone(&self.settings),
            overrides: Arc::clone(&self.overrides),
            tenants: Arc::clone(&self.tenants),
            seed: self.seed,
            clock: Arc::clone(&self.clock),
            lake: Arc::clone(&self.lake),
            heads: Arc::clone(&self.heads),
            partitions: Arc::clone(&self.partitions),
            traffic: Arc::clone(&self.traffic),
        }
    }

    pub(super) fn upkeep(&self) -> upkeep::Context {
        upkeep::Context {
            settings: Arc::clone(&self.settings),
            overrides: Arc::clone(&self.overrides),
            rules: Arc::clone(&self.rules),
            clock: Arc::clone(&self.clock),
            wall: Arc::clone(&self.wall),
            lake: Arc::clone(&self.lake),
            heads: Arc::clone(&self.heads),
            events: Arc::clone(&self.events),
            traffic: Arc::clone(&self.traffic),
        }
    }

    /// The streams, their owner, and their loader.
    pub(super) fn streams(&self, stopping: Arc<AtomicBool>) -> (Arc<Streams>, streams::Owner, Loader) {
        let (commands, receive) = sync_channel(streams::QUEUE_MAX);
        let (tasks, receive_tasks) = sync_channel(streams::tasks::TASKS_MAX);
        let tables_bytes = self.settings.budget.stream_tables_bytes() as usize;
        let shared = Arc::new(streams::Shared::new(&self.heads, tables_bytes, &self.registry));
        let options =
            journal_options(&self.settings, &self.data_dir, Arc::clone(&self.data_dir.disk), self.streams_id);
        let home = Home { dir: self.data_dir.path.join("streams"), options };
        let owner = streams::Owner::new(
            Arc::clone(&shared),
            home,
            receive,
            Arc::clone(&self.clock),
            Arc::clone(&stopping),
        );
        let loader = Loader::new(loader::Context {
            shared: Arc::clone(&shared),
            commands: commands.clone(),
            tasks: receive_tasks,
            settings: Arc::clone(&self.settings),
            overrides: Arc::clone(&self.overrides),
            lake: Arc::clone(&self.lake),
            clock: Arc::clone(&self.clock),
            wall: Arc::clone(&self.wall),
            stopping,
        });
        (Arc::new(Streams { commands, tasks, shared }), owner, loader)
    }

    pub(super) fn reads(&self) -> query_source::Context {
        query_source::Context {
            seed: self.seed,
            clock: Arc::clone(&self.clock),
            started: self.started,
            lake: Arc::clone(&self.lake),
            partitions: Arc::clone(&self.partitions),
            queried: QueriedMetrics::new(
                self.seed,
                Account::new("queried", self.settings.budget.queried_bytes()),
            ),
            paths: PathIndexes::new(
                self.heads.paths.clone(),
                self.settings.query_concurrency,
                &self.registry,
            ),
            events: Arc::clone(&self.events),
            answers: self.answers.clone(),
            headroom: Arc::clone(&self.headroom),
            traffic: Arc::clone(&self.traffic),
        }
    }

    pub(super) fn writes(
        &self,
        commands: Vec<Commands>,
        streams: &Streams,
        stopping: Arc<AtomicBool>,
    ) -> write_path::Context {
        let new_tenants = NewTenants::new(self.settings.tenant_burst, self.settings.tenants_per_minute);
        let decoders = Account::new("decoders", self.settings.budget.decoders_bytes);
        write_path::Context {
            settings: Arc::clone(&self.settings),
            overrides: Arc::clone(&self.overrides),
            rules: Arc::clone(&self.rules),
            ingest: Ingest::new(self.settings.ingest_rules.clone(), decoders.clone(), &self.registry),
            names: NameDecisions::new(decoders.clone(), &self.registry),
            aliases: Aliases::new(decoders.clone(), &self.registry),
            aggregator: Aggregator::new(
                self.heads.aggregator.clone(),
                decoders.clone(),
                self.seed,
                self.settings.graphite.aggregator_intervals,
                self.rules.current(),
                self.clock.now_ms(),
                &self.registry,
            ),
            tenants: Arc::clone(&self.tenants),
            seed: self.seed,
            started: self.started,
            clock: Arc::clone(&self.clock),
            wall: Arc::clone(&self.wall),
            readiness: Readiness { partitions: Arc::clone(&self.partitions), stopping },
            partitions: Arc::clone(&self.partitions),
            commands,
            lake: Arc::clone(&self.lake),
            streams: Arc::clone(&streams.shared),
            metrics: Arc::clone(&self.metrics),
            inflight: self.inflight.clone(),
            grpc: self.grpc.clone(),
            unwritten: self.unwritten.clone(),
            decoders,
            memory_drains: MemoryDrains::new([
                self.inflight.clone(),
                self.grpc.clone(),
                self.answers.clone(),
                self.heads.records.clone(),
                self.heads.record_ids.clone(),
                self.heads.stream_names.clone(),
                self.heads.loading.clone(),
            ]),
            heads: Arc::clone(&self.heads),
            headroom: Arc::clone(&self.headroom),
            gates: Gates::new(&self.settings, &self.registry),
            traffic: Arc::clone(&self.traffic),
            new_tenants: Mutex::new(new_tenants),
            histograms: Arc::default(),
        }
    }
}

/// The files were checked when the settings were read. If they have become invalid since then, there are no rules
/// until they are valid again.
fn graphite_rules(settings: &Settings, registry: &Registry) -> GraphiteRules {
    let files = Some(settings.graphite_rules.clone()).filter(|files| !files.is_empty());
    let rules = GraphiteRules::new(files, Rules::default(), registry);
    rules.reload();
    rules
}

fn open_journals(
    settings: &Settings,
    data_dir: &DataDir,
    world: &World,
) -> Result<Vec<Box<dyn Journal>>, JournalError> {
    let options = journal_options(settings, data_dir, Arc::clone(&world.disk), world.random.fresh());
    let settings = journal::Settings::Files { dir: data_dir.path.join("journal"), options };
    (0..data_dir.identity.partitions).map(|number| journal::open(&settings, number as u32)).collect()
}

fn journal_options(
    settings: &Settings,
    data_dir: &DataDir,
    disk: Arc<dyn Disk>,
    fresh_id: u64,
) -> journal::Options {
    journal::Options {
        durability: settings.durability,
        segment_bytes: settings.segment_bytes,
        seed: data_dir.identity.seed,
        fresh_id,
        disk,
        ..journal::Options::default()
    }
}
