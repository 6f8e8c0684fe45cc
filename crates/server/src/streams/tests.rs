//! Streams in one process: what a journal and tables have lost, or have of another time.

use super::batch::{BATCH_BYTES, Batch, Stored};
use super::home::Home;
use super::known::{Added, KnownStreams, StreamLimit};
use super::loader::Loader;
use super::mark::Mark;
use super::tasks::Scope;
use super::{Command, Owner};
use crate::deletes::tenant::Removed;
use crate::node::{Node, Parts};
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::world::World;
use crate::write_path::tests::small_settings;
use journal::records::{self, BatchHeader, Content};
use journal::{JournalId, Offset, RECORD_BYTES_MAX};
use model::{AttributeValue, ErrorKind, RecordsBuilder, StreamName, TenantId};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use stdx::budget::Account;
use stdx::clock::{Clock, ManualClock};
use tables::{RECORDS, Table};
use tempfile::TempDir;

const NOW_MS: i64 = 1_777_000_000_000;
const DAY_MS: i64 = 86_400_000;

/// A node whose loader does only what a test asks for.
struct Running {
    node: Node,
    clock: Arc<ManualClock>,
    loader: Loader,
    owner: JoinHandle<()>,
    stopping: Arc<AtomicBool>,
    runtime: tokio::runtime::Runtime,
}

fn stream(name: &str) -> StreamName {
    StreamName::parse(name).unwrap()
}

fn payload(name: &str, count: u32) -> Vec<u8> {
    payload_every(0, name, count)
}

/// The records are this many days apart.
fn payload_every(days: i64, name: &str, count: u32) -> Vec<u8> {
    let mut builder = RecordsBuilder::new();
    for n in 0..count {
        builder.put("n", AttributeValue::Int(n.into())).unwrap();
        builder.put("text", AttributeValue::Text("abcabcabc")).unwrap();
        builder.end((NOW_MS - days * DAY_MS * i64::from(n)) * 1000 + i64::from(n));
    }
    let header = BatchHeader {
        tenant: TenantId::anonymous(),
        stream: stream(name),
        arrival_us: NOW_MS * 1000,
        id: None,
        records: count,
    };
    let mut payload = Vec::new();
    records::encode(&mut payload, &header, &builder.finish()).unwrap();
    payload
}

impl Running {
    fn start(dir: &Path) -> Self {
        let mut settings = small_settings(dir);
        settings.stream_freshness = Duration::ZERO;
        settings.lake.vacuum_grace_ms = 1;
        Self::start_with(settings)
    }

    fn start_with(settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let Parts { node, streams, loader, .. } =
            Node::assemble(settings, World::real(Arc::clone(&clock) as _)).unwrap();
        let stopping = Arc::clone(&node.readiness().stopping);
        let shared = &node.streams().shared;
        let owner = std::thread::spawn(move || Owner::run(streams));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut ready = shared.ready.subscribe();
        runtime.block_on(async { ready.wait_for(|is_ready| *is_ready).await.map(|_| ()) }).unwrap();
        Self { node, clock, loader, owner, stopping, runtime }
    }

    fn store(&self, name: &str, count: u32) -> Result<Stored, Refusal> {
        self.store_payload(name, count, payload(name, count))
    }

    fn store_payload(&self, name: &str, count: u32, payload: Vec<u8>) -> Result<Stored, Refusal> {
        let streams = self.node.streams();
        let memory = streams.shared.records.reserve((payload.len() + BATCH_BYTES) as u64).unwrap();
        self.runtime.block_on(streams.store(vec![Batch {
            tenant: TenantId::anonymous(),
            stream: stream(name),
            id: None,
            arrival_us: NOW_MS * 1000,
            records: count,
            payload: payload.into(),
            memory,
        }]))
    }

    /// Deletes the records of these streams. `meanwhile` runs after the first step.
    fn delete(&mut self, scope: Scope, meanwhile: impl FnOnce(&mut Self)) -> Result<Removed, Refusal> {
        let node = self.node.clone();
        let deleting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(node.streams().delete(scope))
        });
        while !self.loader.work() {
            std::thread::yield_now();
        }
        meanwhile(self);
        while !deleting.is_finished() {
            self.loader.work();
            self.clock.advance(1);
        }
        deleting.join().unwrap()
    }

    /// Loads everything, and returns the number of rows in a stream's table.
    fn load(&mut self, name: &str) -> u64 {
        while self.loader.load_next() {}
        assert_eq!(self.node.streams().shared.metrics.load_failures.get(), 0);
        self.rows(name)
    }

    fn rows(&self, name: &str) -> u64 {
        let location = self.node.reads().lake.tables.stream(&(TenantId::anonymous(), stream(name))).unwrap();
        let table = Table::open(&RECORDS, location).unwrap().unwrap();
        table.files().unwrap().all().iter().map(|file| file.rows).sum()
    }

    fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        self.node.streams().commands.send(Command::Stop).unwrap();
        self.owner.join().unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

fn put_back(copied: &Path, dir: &Path) {
    fs::remove_dir_all(dir).unwrap();
    copy(copied, dir);
}

/// The copy's journal assigns offsets again, which its tables had already. The numbers of records are powers of three, so that
/// their sum shows which are missing or double.
#[test]
fn an_older_journal_beside_newer_tables_stores_each_record_once() {
    let (dir, copied) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (home, copied) = (dir.path().join("streams"), copied.path().join("streams"));
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    running.store("s", 3).unwrap();
    running.stop();
    copy(&home, &copied);

    let mut running = Running::start(dir.path());
    running.store("s", 9).unwrap();
    running.store("other", 1).unwrap();
    assert_eq!((running.load("s"), running.rows("other")), (13, 1));
    running.stop();

    for (n, all) in [(27, 40), (81, 121)] {
        put_back(&copied, &home);
        let mut running = Running::start(dir.path());
        running.store("s", n).unwrap();
        assert_eq!(running.load("s"), all);
        running.store("other", n).unwrap();
        assert_eq!(running.load("other"), all - 12);
        running.stop();
    }
    // what was written since then is found again
    let mut running = Running::start(dir.path());
    assert_eq!((running.load("s"), running.load("other")), (121, 109));
    running.store("s", 243).unwrap();
    assert_eq!(running.load("s"), 364);
    running.stop();
}

fn find(dir: &Path, name: &str) -> PathBuf {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.filter_map(|path| match path.is_dir() {
        true => {
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.ends_with(name))
        }
        false => Some(path).filter(|path| path.ends_with(name)),
    });
    found.last().unwrap_or_else(|| panic!("no {name} in {}", dir.display()))
}

#[test]
fn a_journal_that_lost_its_name_doubles_no_record() {
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("streams");
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    running.store("s", 3).unwrap();
    running.stop();
    fs::remove_file(find(&home.join("journal"), "source")).unwrap();
    let mut running = Running::start(dir.path());
    assert_eq!(running.load("s"), 4);
    running.store("s", 9).unwrap();
    running.stop();

    let mark = fs::read(home.join("mark")).unwrap();
    for lost in [None, Some(vec![0; mark.len()]), Some(vec![7; 99]), Some(vec![])] {
        match lost {
            Some(bytes) => fs::write(home.join("mark"), bytes).unwrap(),
            None => fs::remove_file(home.join("mark")).unwrap(),
        }
        let mut running = Running::start(dir.path());
        let refusal = running.store("s", 27).unwrap_err();
        assert!(refusal.message.contains("stored twice"), "{refusal:?}");
        assert!(!running.loader.load_next());
        running.stop();
    }
    fs::write(home.join("mark"), mark).unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 27).unwrap();
    assert_eq!(running.load("s"), 40);
    running.stop();
}

/// A version before names were noted used the name of the journal.
#[test]
fn batches_of_an_earlier_version_keep_the_name_of_their_journal() {
    let dir = TempDir::new().unwrap();
    let home = |fresh_id| {
        let options =
            journal::Options { fresh_id, durability: journal::Durability::Os, ..Default::default() };
        Home { dir: dir.path().into(), options }
    };
    let settings = journal::Settings::Files { dir: dir.path().join("journal"), options: home(5).options };
    let mut journal = journal::open(&settings, 0).unwrap();
    journal.begin().unwrap();
    journal.append(&payload("s", 1)).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let old_mark = [0; 1024];
    fs::write(dir.path().join("mark"), old_mark).unwrap();
    let (journal, mark) = home(6).open().unwrap();
    let name_of = |mark: &Mark, offset| mark.source_of(Offset(offset)).unwrap().name;
    let name = |number| JournalId { number, partition: 0 }.to_string();
    assert_eq!((name_of(&mark, 0), mark.source_of(Offset(0)).unwrap().end), (name(5), 1));
    assert_eq!(name_of(&mark, 1), name(6));
    drop((journal, mark));
    let (_, mark) = home(7).open().unwrap();
    assert_eq!(name_of(&mark, 0), name(5));
    assert_eq!(name_of(&mark, 1), name(7));

    fs::write(dir.path().join("mark"), old_mark).unwrap();
    fs::remove_file(find(&dir.path().join("journal"), "source")).unwrap();
    // the second time too
    for fresh_id in [8, 9] {
        let error = home(fresh_id).open().unwrap_err().to_string();
        assert!(error.contains("stored twice"), "{error}");
    }
    fs::write(dir.path().join("journal/0/source"), "damaged").unwrap();
    for fresh_id in [8, 9] {
        home(fresh_id).open().unwrap_err();
    }
    fs::write(dir.path().join("journal/0/source"), "0000000000000005").unwrap();
    let (_, mark) = home(10).open().unwrap();
    assert_eq!((name_of(&mark, 0), name_of(&mark, 1)), (name(5), name(10)));
}

/// A payload with a header that can be read, and columns that cannot.
fn undecodable() -> Vec<u8> {
    let whole = payload("s", 27);
    let broken = (0..whole.len()).rev().map(|at| {
        let mut payload = whole.clone();
        payload[at] ^= 0xff;
        payload
    });
    let is_wanted = |payload: &Vec<u8>| {
        matches!(records::read_content(payload), Ok(Content::Batch(_))) && records::decode(payload).is_err()
    };
    broken.into_iter().find(is_wanted).unwrap()
}

/// Writes payloads to the journal of records in a data directory, as a node would.
fn append(dir: &Path, payloads: &[Vec<u8>]) {
    let options =
        journal::Options { fresh_id: 77, durability: journal::Durability::Os, ..Default::default() };
    let (mut journal, _) = Home { dir: dir.join("streams"), options }.open().unwrap();
    journal.begin().unwrap();
    payloads.iter().for_each(|payload| _ = journal.append(payload).unwrap());
    journal.sync().unwrap();
}

#[test]
fn a_batch_that_cannot_be_decoded_holds_up_no_other() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    running.stop();
    append(dir.path(), &[undecodable(), payload("s", 3)]);
    running = Running::start(dir.path());
    running.store("s", 9).unwrap();
    assert_eq!(running.load("s"), 13);
    let metrics = Arc::clone(&running.node.streams().shared);
    running.stop();
    assert_eq!(metrics.metrics.damaged.get(), 1);
    let copied = find(&dir.path().join("streams/journal"), "quarantine");
    assert_eq!(fs::read_dir(copied).unwrap().count(), 2, "the bytes, and a report");
    let mut running = Running::start(dir.path());
    assert_eq!(running.load("s"), 13);
    running.stop();
}

/// The floodmark does not pass a batch that cannot be decoded before the batch has a copy.
#[test]
fn a_batch_that_cannot_be_decoded_is_copied_first() {
    let dir = TempDir::new().unwrap();
    Running::start(dir.path()).stop();
    append(dir.path(), &[undecodable(), payload("s", 3)]);
    let folder = dir.path().join("streams/journal/0/quarantine");
    fs::write(&folder, "not a folder").unwrap();
    let mut running = Running::start(dir.path());
    for failures in 1..4 {
        assert!(running.loader.load_next());
        running.clock.advance(100_000);
        let metrics = &running.node.streams().shared.metrics;
        assert_eq!((metrics.load_failures.get(), metrics.damaged.get()), (failures, 0));
        assert_eq!(running.rows("s"), 0);
    }
    fs::remove_file(&folder).unwrap();
    assert!(running.loader.load_next());
    let shared = Arc::clone(&running.node.streams().shared);
    assert_eq!((running.rows("s"), shared.metrics.damaged.get()), (3, 1));
    assert_eq!(shared.buffer.first(), None);
    let copies = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let copy = copies.filter(|path| path.extension().is_some_and(|extension| extension == "bytes"));
    assert_eq!(copy.map(|path| fs::read(path).unwrap()).collect::<Vec<_>>(), [undecodable()]);
    running.stop();
}

#[test]
fn many_batches_that_cannot_be_decoded_are_copied() {
    let dir = TempDir::new().unwrap();
    Running::start(dir.path()).stop();
    let count = 100;
    let mut payloads = vec![undecodable(); count];
    payloads.push(payload("s", 3));
    append(dir.path(), &payloads);
    let mut running = Running::start(dir.path());
    assert_eq!(running.load("s"), 3);
    let shared = Arc::clone(&running.node.streams().shared);
    assert_eq!(shared.metrics.damaged.get(), count as u64);
    let folder = dir.path().join("streams/journal/0/quarantine");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2 * count);
    running.stop();
}

/// A mark with names from the offset 1 on: the journal had deleted the first batch, which comes back.
#[test]
fn a_batch_that_the_journal_had_deleted_is_not_loaded_again() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    running.stop();
    let mut running = Running::start(dir.path());
    running.store("s", 3).unwrap();
    running.stop();
    let path = dir.path().join("streams/mark");
    let disk: Arc<dyn journal::Disk> = Arc::new(journal::disk::Os);
    let mut mark = Mark::open(&disk, &path).unwrap();
    assert_eq!(mark.names_begin(), Offset(0));
    mark.begin_name(Offset(1), Offset(2), 5).unwrap();
    assert_eq!(mark.names_begin(), Offset(1));
    running = Running::start(dir.path());
    assert_eq!(running.load("s"), 4);
    assert_eq!(running.node.streams().shared.buffer.first(), None);
    running.stop();
}

/// Streams may have had names that differ only in case before there was a rule. The store is away, and does not say so.
#[test]
fn a_stream_that_may_exist_is_not_refused_for_good() {
    let dir = TempDir::new().unwrap();
    let add = |running: &Running, name: &str| {
        let limit = StreamLimit { streams: 10, is_given: false };
        let (streams, tables) = (running.node.streams(), &running.node.reads().lake.tables);
        let added = streams.shared.known.add(tables, &TenantId::anonymous(), &[stream(name)], limit)?;
        added.refused.into_iter().next().map_or(Ok(()), |(_, refusal)| Err(refusal))
    };
    let running = Running::start(dir.path());
    running.store("App", 1).unwrap();
    let table = running.node.reads().lake.tables.stream(&(TenantId::anonymous(), stream("app"))).unwrap();
    Table::open_or_create(&RECORDS, table).unwrap();
    running.stop();
    let folder = find(&dir.path().join("tables"), "streams");
    let away = folder.with_file_name("away");
    fs::rename(&folder, &away).unwrap();
    fs::write(&folder, "not a folder").unwrap();
    let running = Running::start(dir.path());
    for name in ["app", "aPP"] {
        let known = &running.node.streams().shared.known;
        let (tenant, limit) = (TenantId::anonymous(), StreamLimit { streams: 10, is_given: false });
        let streams = [stream("before"), stream(name)];
        // the whole request is refused, and no stream of it counts
        let refusal = known.add(&running.node.reads().lake.tables, &tenant, &streams, limit).unwrap_err();
        assert!(known.part_of(&tenant, streams[..1].iter()).is_none());
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "table_unreadable"));
    }
    add(&running, "App").unwrap();
    add(&running, "other").unwrap();
    fs::remove_file(&folder).unwrap();
    fs::rename(&away, &folder).unwrap();
    add(&running, "app").unwrap();
    assert_eq!(add(&running, "aPP").unwrap_err().kind, ErrorKind::Invalid);
    running.stop();
}

#[test]
fn names_of_streams_differ_in_more_than_case() {
    let dir = TempDir::new().unwrap();
    let add = |running: &Running, name: &str| {
        let limit = StreamLimit { streams: 10, is_given: false };
        let known = &running.node.streams().shared.known;
        let tables = &running.node.reads().lake.tables;
        let added = known.add(tables, &TenantId::anonymous(), &[stream(name)], limit).unwrap();
        added.refused.into_iter().next().map_or(Ok(()), |(_, refusal)| Err(refusal))
    };
    let mut running = Running::start(dir.path());
    add(&running, "App").unwrap();
    add(&running, "App").unwrap();
    let refusal = add(&running, "app").unwrap_err();
    assert!(refusal.message.contains("App"), "{refusal:?}");
    running.store("App", 1).unwrap();
    running.stop();
    // the journal has it, but no table is there yet
    running = Running::start(dir.path());
    add(&running, "aPP").unwrap_err();
    assert_eq!(running.load("App"), 1);
    running.clock.advance(1);
    running.stop();
    running = Running::start(dir.path());
    add(&running, "aPP").unwrap_err();
    add(&running, "apps").unwrap();
    running.stop();
}

/// It would be refused together with those of other tenants that are in the same group.
#[test]
fn a_batch_that_no_journal_takes_is_refused_alone() {
    let dir = TempDir::new().unwrap();
    let running = Running::start(dir.path());
    let streams = running.node.streams();
    let batch = Batch {
        tenant: TenantId::anonymous(),
        stream: stream("s"),
        id: None,
        arrival_us: NOW_MS * 1000,
        records: 1,
        payload: vec![0; RECORD_BYTES_MAX + 1].into(),
        memory: streams.shared.records.reserve(0).unwrap(),
    };
    let refusal = running.runtime.block_on(streams.store(vec![batch])).unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::TooLarge, "{refusal:?}");
    assert_eq!(streams.shared.metrics.group_failures.get(), 0);
    running.store("s", 1).unwrap();
    running.stop();
}

/// A request that stores nothing must not use up the limit.
#[test]
fn streams_count_once_they_have_records() {
    let dir = TempDir::new().unwrap();
    let running = Running::start(dir.path());
    let (known, tenant) = (&running.node.streams().shared.known, TenantId::anonymous());
    let add = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| stream(name)).collect();
        let limit = StreamLimit { streams: 2, is_given: true };
        known.add(&running.node.reads().lake.tables, &tenant, &names, limit).unwrap()
    };
    let refused = |added: &Added| added.refused.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    let added = add(&["a", "b", "c", "logs", "traces"]);
    assert_eq!(refused(&added), ["c"]);
    assert_eq!(added.new, ["a", "b", "logs", "traces"].map(stream));
    running.store("a", 1).unwrap();
    known.forget(&tenant, &added.new);
    assert_eq!(known.streams_of(&tenant), Some(1));
    // the record was already on its way
    running.store("b", 1).unwrap();
    assert_eq!(known.streams_of(&tenant), Some(2));
    let added = add(&["c", "traces"]);
    assert_eq!((refused(&added), added.new), (vec!["c".to_owned()], vec![stream("traces")]));
    running.stop();
}

#[test]
fn a_stream_with_very_many_days_holds_up_no_other() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    let (days, shared) = (2500, Arc::clone(&running.node.streams().shared));
    running.store_payload("long", days, payload_every(1, "long", days)).unwrap();
    running.store("short", 1).unwrap();
    // a commit has at most a thousand files
    assert!(running.loader.load_next());
    assert!(running.loader.load_next());
    assert_eq!((running.rows("long"), running.rows("short")), (1000, 1));
    assert!(!running.loader.load_next(), "other streams have their turn first");
    assert_eq!(shared.buffer.totals(running.clock.instant()).batches, 1);
    running.stop();
    // a restart goes on where it was
    let mut running = Running::start(dir.path());
    running.store("long", 3).unwrap();
    for _ in 0..4 {
        running.load("long");
        running.clock.advance(1);
    }
    assert_eq!(running.rows("long"), u64::from(days) + 3);
    assert_eq!(running.node.streams().shared.buffer.first(), None);
    running.stop();
}

#[test]
fn deleted_records_do_not_come_back_and_later_ones_stay() {
    let dir = TempDir::new().unwrap();
    let tenant = TenantId::anonymous;
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    running.store("other", 1).unwrap();
    assert_eq!((running.load("s"), running.load("other")), (1, 1));
    running.store("s", 3).unwrap();
    let removed = running.delete(Scope::Stream((tenant(), stream("s"))), |_| ()).unwrap();
    assert_eq!((removed.files, running.rows("s"), running.rows("other")), (2, 0, 1));
    running.store("s", 9).unwrap();
    assert_eq!(running.load("s"), 9);
    running.store("s", 27).unwrap();
    running.store("other", 27).unwrap();
    let removed = running.delete(Scope::Tenant(tenant()), |running| {
        running.store("s", 81).unwrap();
        assert!(!running.loader.load_next(), "it would be deleted");
    });
    assert_eq!(removed.unwrap().files, 4);
    assert_eq!((running.rows("s"), running.rows("other")), (0, 0));
    running.stop();
    let mut running = Running::start(dir.path());
    assert_eq!((running.load("s"), running.load("other")), (81, 0));
    let removed = running.delete(Scope::Stream((tenant(), stream("unknown"))), |_| ()).unwrap();
    assert_eq!(removed, Removed::default());
    running.stop();
}

#[test]
fn a_delete_waits_for_no_table_that_cannot_be_written() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    fs::create_dir_all(dir.path().join("tables/anonymous/streams")).unwrap();
    fs::write(dir.path().join("tables/anonymous/streams/s"), "no folder").unwrap();
    let refusal = running.delete(Scope::Tenant(TenantId::anonymous()), |_| ()).unwrap_err();
    assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "tables"), "{refusal:?}");
    running.stop();
}

#[test]
fn records_are_dropped_after_their_retention() {
    let dir = TempDir::new().unwrap();
    let mut settings = small_settings(dir.path());
    settings.stream_freshness = Duration::ZERO;
    settings.lake.vacuum_grace_ms = 1;
    settings.tenants.general.stream_retention_ms = Some(10 * DAY_MS);
    let mut running = Running::start_with(settings);
    running.store_payload("s", 20, payload_every(1, "s", 20)).unwrap();
    running.store_payload("idle", 20, payload_every(1, "idle", 20)).unwrap();
    assert_eq!((running.load("s"), running.load("idle")), (20, 20));
    // upkeep lists tenants
    running.node.reads().lake.tables.discover().unwrap();
    while running.loader.keep_up(false) {}
    assert_eq!(running.rows("s"), 20, "the clock is not trusted yet");
    let files = |name: &str| {
        let days = fs::read_dir(dir.path().join("tables/anonymous/streams").join(name)).unwrap();
        let days = days.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        let names = days.flat_map(|day| fs::read_dir(day).unwrap().map(|entry| entry.unwrap().path()));
        names.filter(|path| path.extension().is_some_and(|extension| extension == "parquet")).count()
    };
    for _ in 0..5 {
        running.clock.advance(3_700_000);
        while running.loader.keep_up(false) {}
    }
    assert_eq!((running.rows("s"), running.rows("idle")), (10, 10));
    assert_eq!(running.node.streams().shared.metrics.expired_files.get(), 20);
    assert_eq!((files("s"), files("idle")), (10, 10), "the files are deleted after the grace period");
    // the clock would not be trusted after a jump of days
    for _ in 0..5 * 24 {
        running.clock.advance(3_600_000);
        while running.loader.keep_up(false) {}
    }
    assert_eq!((running.rows("idle"), files("idle")), (5, 5), "without a load");
    running.stop();
}

/// Tables are kept up even if there is always a stream that is due.
#[test]
fn logs_of_busy_streams_get_checkpoints() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    for n in 0..60 {
        running.store("s", 1).unwrap();
        assert_eq!(running.load("s"), n + 1);
    }
    let log = fs::read_dir(dir.path().join("tables/anonymous/streams/s/_delta_log")).unwrap();
    let names: Vec<_> = log.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.contains("checkpoint")), "{names:?}");
    running.stop();
}

/// However many tenants there are, those that come later have memory for names, once others are idle.
#[test]
fn names_of_streams_are_shared_by_tenants() {
    let dir = TempDir::new().unwrap();
    let running = Running::start(dir.path());
    let (records, names) = (Account::new("records", 1 << 20), Account::new("stream_names", 100 * 400));
    let known = KnownStreams::new(records, &names);
    let add = |tenant: usize, count: usize| {
        let tenant = TenantId::parse(&format!("t{tenant}")).unwrap();
        let streams: Vec<_> = (0..count).map(|n| stream(&format!("s{n}"))).collect();
        let limit = StreamLimit { streams: 1000, is_given: false };
        let added = known.add(&running.node.reads().lake.tables, &tenant, &streams, limit).unwrap();
        added.new.iter().for_each(|stream| known.note(&tenant, stream));
        (tenant, added)
    };
    let (_, added) = add(0, 200);
    assert!(added.new.len() < 90 && !added.refused.is_empty(), "{}", added.new.len());
    assert!(added.refused.iter().all(|(_, refusal)| refusal.kind == ErrorKind::Unavailable));
    assert!(add(1, 5).1.refused.is_empty(), "others have memory, too");
    for tenant in 2..300 {
        let (tenant, added) = add(tenant, 3);
        known.forget(&tenant, &added.new);
    }
    assert!(names.used_bytes() <= names.limit_bytes());
    let (late, added) = add(300, 1);
    assert_eq!((added.refused.len(), known.streams_of(&late)), (1, None), "it takes no memory");
    known.forget_idle();
    known.forget_idle();
    assert_eq!(names.used_bytes(), 0);
    assert!(add(300, 1).1.refused.is_empty());
    running.stop();
}

/// Merges must not wait until removed files can be deleted.
#[test]
fn upkeep_and_sweeps_have_times_of_their_own() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    let key = (TenantId::anonymous(), stream("s"));
    let location = running.node.reads().lake.tables.stream(&key).unwrap();
    let reading = Table::open(&RECORDS, location).unwrap().unwrap().files().unwrap();
    running.delete(Scope::Stream(key.clone()), |_| ()).unwrap();
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    while running.loader.keep_up(false) {}
    let due_after = |running: &Running, ms| {
        let at = running.clock.instant() + Duration::from_millis(ms);
        running.loader.upkeep.due(at) == Some(key.clone())
    };
    assert!(!due_after(&running, 800_000) && due_after(&running, 3_700_000), "for the sweep");
    running.store("s", 3).unwrap();
    assert_eq!(running.load("s"), 4);
    assert!(!due_after(&running, 59_000) && due_after(&running, 61_000));
    drop(reading);
    running.stop();
}

/// Otherwise, what was not replayed would be in tables after the deletion.
#[test]
fn nothing_is_deleted_while_the_journal_cannot_be_read() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    running.store("s", 3).unwrap();
    running.stop();
    let mark = dir.path().join("streams/mark");
    let whole = fs::read(&mark).unwrap();
    fs::remove_file(&mark).unwrap();
    let running = Running::start(dir.path());
    let scope = Scope::Stream((TenantId::anonymous(), stream("s")));
    let refusal = running.runtime.block_on(running.node.streams().delete(scope)).unwrap_err();
    assert!(refusal.message.contains("stored twice"), "{refusal:?}");
    running.runtime.block_on(running.node.streams().flush()).unwrap_err();
    assert_eq!(running.rows("s"), 1);
    running.stop();
    fs::write(&mark, whole).unwrap();
    let mut running = Running::start(dir.path());
    assert_eq!(running.load("s"), 4);
    running.stop();
}
