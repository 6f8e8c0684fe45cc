//! A store that takes seconds per request must not delay writes, lose samples or duplicate samples.

use model::{Labels, TenantId};
use protocol::encode::V1Encoder;
use server::sim::{Content, Outside, Simulated};
use server::{Given, Settings};
use sim::clock::SimClock;
use sim::disk::SimDisk;
use sim::power::Power;
use sim::store::{SimStore, StoreFaults};
use std::rc::Rc;
use std::sync::Arc;
use stdx::clock::Clock;
use tables::METRICS;
use tables::live_file::LiveFile;
use tables::read::Footer;

const SLOW_MS: u64 = 4000;

const EVERY_MS: i64 = 1000;

const BEGIN_MS: i64 = 1_777_000_000_000;

const SERIES: i64 = 5;

struct World {
    clock: Arc<SimClock>,
    disk: SimDisk,
    store: SimStore,
    tenant: TenantId,
    written: i64,
}

impl World {
    fn new() -> Self {
        let (power, clock) = (Arc::new(Power::default()), Arc::new(SimClock::at(BEGIN_MS)));
        let disk = SimDisk::new(1, Arc::clone(&power));
        let store = SimStore::new(2, power, Arc::clone(&clock));
        store.set_faults(StoreFaults { slow_ms: SLOW_MS, ..StoreFaults::default() });
        Self { clock, disk, store, tenant: TenantId::parse("t").unwrap(), written: 0 }
    }

    fn start(&self, seed: u64) -> Simulated {
        let given =
            Given::default().flag("data_dir", "/data").flag("memory", "512MiB").flag("tables", "memory:///");
        let mut settings = Settings::resolve(&given).unwrap();
        settings.partitions = 2;
        settings.lake.seal_after_ms = 2 * EVERY_MS;
        settings.lake.flush_interval_ms = 0;
        let outside = Outside {
            clock: Arc::clone(&self.clock) as _,
            disk: Arc::new(self.disk.clone()),
            store: Some(Arc::new(self.store.clone())),
            seed,
        };
        let mut node = Simulated::start(settings, outside, Rc::new(|_, _| {})).unwrap();
        assert!(node.replay(|_| false).unwrap());
        node
    }

    fn sample(n: i64, series: i64) -> (Labels, i64, f64) {
        let labels = Labels::from_pairs(&[("__name__", &format!("m{series}"))]);
        (labels, BEGIN_MS + n * EVERY_MS, (n * SERIES + series) as f64)
    }

    /// Sends the requests that are due by now, and checks that none of them waits for the store.
    fn catch_up(&mut self, node: &Simulated) {
        let now_ms = self.clock.now_ms();
        while BEGIN_MS + self.written * EVERY_MS <= now_ms {
            let mut encoder = V1Encoder::new();
            for series in 0..SERIES {
                let (labels, at_ms, value) = Self::sample(self.written, series);
                encoder.series(labels.as_ref(), &[at_ms], &[value]);
            }
            let mut written = node.node().write(&self.tenant, encoder.finish().to_vec()).unwrap();
            (0..2).for_each(|partition| node.node().turn(partition));
            let answers = written.answers().into_iter().map(|(_, answer)| answer.unwrap().samples);
            assert_eq!(answers.sum::<u64>(), SERIES as u64);
            self.written += 1;
        }
        assert_eq!(self.clock.now_ms(), now_ms, "a write waited for the store");
    }

    /// Calls `look` while the store answers at once, so that no time passes.
    fn quickly<T>(&self, look: impl FnOnce() -> T) -> T {
        let faults = self.store.faults();
        self.store.set_faults(StoreFaults::default());
        let seen = look();
        self.store.set_faults(faults);
        seen
    }

    fn check(&self, node: &Simulated) {
        let mut expected = Content::new();
        for n in 0..self.written {
            for series in 0..SERIES {
                let (labels, at_ms, value) = Self::sample(n, series);
                expected.entry(labels.to_string()).or_default().push((at_ms, value.to_bits()));
            }
        }
        assert_eq!(node.node().read(&self.tenant).unwrap(), expected);
    }

    fn in_tables(&self, node: &Simulated) -> (u64, u64) {
        self.quickly(|| {
            let Some(table) = node.node().table(&self.tenant).unwrap() else { return (0, 0) };
            let files = table.files().unwrap();
            let samples =
                |file: &LiveFile| Footer::read(&METRICS, &table.file(file).unwrap()).unwrap().samples();
            (table.version(), files.all().iter().map(samples).sum())
        })
    }
}

#[test]
fn a_store_that_takes_seconds_makes_blocks_grow() {
    let mut world = World::new();
    let mut node = world.start(3);
    let mut behind_most = 0;
    for turn in 0..30 {
        world.clock.next_step();
        world.clock.advance(EVERY_MS as u64);
        world.catch_up(&node);
        let (_, samples) = world.in_tables(&node);
        let behind = world.written - samples as i64 / SERIES;
        println!("turn {turn}: {behind} of {} behind", world.written);
        behind_most = behind_most.max(behind);
        node.seal();
        if turn % 10 == 5 {
            world.check(&node);
        }
        if turn == 17 {
            drop(node);
            world.disk.kill();
            node = world.start(4);
            world.check(&node);
        }
    }
    let (commits, samples) = world.in_tables(&node);
    println!("{} requests, {commits} commits, {samples} samples, {behind_most} behind", world.written);
    // samples that arrive while the store is busy go into the next commit together
    assert!(commits > 5 && world.written > 10 * commits as i64);
    // sealing is never more than a few rounds behind
    assert!(behind_most < world.written / 2, "sealing was {behind_most} requests behind");

    world.catch_up(&node);
    let mut flush = node.flush();
    for _ in 0..20 {
        world.clock.next_step();
        node.seal();
    }
    assert!(flush.samples().is_some(), "the flush did not end");
    assert_eq!(world.in_tables(&node).1, (world.written * SERIES) as u64, "each sample once");
    world.check(&node);
    assert_eq!(node.compact(), 0);
    node.keep();
    world.check(&node);
    assert!(
        node.node().progress().iter().all(|partition| partition.segments <= 1),
        "a journal was not truncated"
    );
}
