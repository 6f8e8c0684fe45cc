//! Streams in one process.

mod batches;
mod journals;
mod names;
mod tables;

use super::batch::{BATCH_BYTES, Batch, Stored};
use super::loader::Loader;
use super::tasks::Scope;
use super::{Command, Owner};
use crate::deletes::tenant::Removed;
use crate::node::{Node, Parts};
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::world::World;
use crate::write_path::tests::small_settings;
use ::tables::{RECORDS, Table};
use journal::records::{self, BatchHeader};
use model::{AttributeValue, RecordsBuilder, StreamName, TenantId};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use stdx::clock::{Clock, ManualClock};
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
