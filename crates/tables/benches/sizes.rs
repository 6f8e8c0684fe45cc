//! Measures bytes per sample on disk (with the log), and the speed of writing, merging and reading: `cargo bench -p
//! tables [-- mix|counter|gauge]`.
//!
//! The data imitates scraped targets with 10 labels and an interval of 15 s. `mix` is half counters, a quarter gauges
//! of two or three decimals, and a quarter constants. `jitter` is `mix` with timestamps that are off by up to 8 ms. The
//! data is sealed in ten blocks of two files, compacted, and read back. Speeds are samples per second of CPU time of
//! this process.
//!
//! Measured on two shared cores (dependencies at opt-level 2 with checks, this crate at 3:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo bench --profile dev -p tables -- mix jitter`), 20,000 series of 500 samples:
//!
//! ```text
//! values    sealed B/s  compact B/s  seal M/s  compact M/s  scan M/s  held seal  held merge
//! mix            2.856        1.450      8.55        11.27     53.81   8359 KiB   28508 KiB
//! jitter         4.369        2.832      8.89         9.73     40.25   9030 KiB   31763 KiB
//! ```

use model::{Labels, Samples, SeriesKey};
use std::sync::Arc;
use stdx::rng::{Rng, mix};
use tables::METRICS;
use tables::compact::{self, CompactLimits};
use tables::rollup::{self, Resolution, RollupLimits};
use tables::{
    BlockStager, Cache, Date, FileStem, Location, Scan, ScanLimits, Select, StagedBlock, Stop, Stretch,
    Table, WriteLimits,
};

struct Size {
    targets: usize,
    metrics: usize,
    samples: usize,
}

const FULL: Size = Size { targets: 100, metrics: 200, samples: 500 };
const SMALL: Size = Size { targets: 2, metrics: 12, samples: 50 };

const BLOCKS: usize = 10;
const PARTITIONS: usize = 2;

/// Nearly a day of data, for measuring rollups.
const DAY_FULL: Size = Size { targets: 10, metrics: 50, samples: 5700 };
const DAY_SMALL: Size = Size { targets: 1, metrics: 4, samples: 300 };

/// 2026-11-21T00:00:00Z
const START_MS: i64 = 1_795_219_200_000;
const INTERVAL_MS: i64 = 15_000;

fn main() {
    // cargo passes --bench under `cargo bench` only
    let full = std::env::args().any(|a| a == "--bench");
    let size = if full { FULL } else { SMALL };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    println!("{} series of {} samples", size.targets * size.metrics, size.samples);
    println!("values    sealed B/s  compact B/s  seal M/s  compact M/s  scan M/s  held seal  held merge");
    for values in ["mix", "jitter", "counter", "gauge"] {
        if wanted.is_empty() || wanted.iter().any(|w| w == values) {
            run(values, &size);
        }
    }
    println!("values    samples B/s   rollup 5m B/s  of it %   rollup 1h B/s  of it %   (of a day)");
    for values in ["mix", "jitter", "counter", "gauge"] {
        if wanted.is_empty() || wanted.iter().any(|w| w == values) {
            roll_up(values, if full { &DAY_FULL } else { &DAY_SMALL });
        }
    }
}

/// Rolls up a day, and prints the size of the compacted rollups.
fn roll_up(values: &str, size: &Size) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let folder = tempfile::TempDir::new().expect("a folder");
    let open = |name: &str| {
        let url = format!("file://{}/{name}", folder.path().display());
        let location = Location::open(&url, [], runtime.handle().clone()).expect("a location");
        Arc::new(Table::open_or_create(&METRICS, location).expect("a new table"))
    };
    let (table, series) = (open("metrics"), fleet(values, size));
    let samples = series.iter().map(|s| s.timestamps.len()).sum::<usize>() as f64;
    seal(&table, &series, size.samples);
    merge(&table);
    let whole = live_bytes(&table) as f64;
    print!("{values:<9} {:>11.3}", whole / samples);
    for resolution in Resolution::ALL {
        let rollup = open(resolution.folder());
        let limits = RollupLimits { window_bytes: 32 << 20, write: WriteLimits::default() };
        let date = Date::of(START_MS);
        rollup::run(
            &table,
            &rollup,
            date,
            resolution,
            &FileStem::rewritten(1),
            &limits,
            START_MS,
            &Stop::NEVER,
            |_| true,
        )
        .expect("a rollup");
        merge(&rollup);
        let bytes = live_bytes(&rollup) as f64;
        print!(" {:>15.3} {:>8.1}", bytes / samples, bytes / whole * 100.0);
    }
    println!();
}

fn merge(table: &Arc<Table>) {
    let limits = CompactLimits { fan_in: 2 * BLOCKS * PARTITIONS, ..CompactLimits::default() };
    let tomorrow = Date(Date::of(START_MS).0 + 1);
    for job in compact::plan(&METRICS, table.files().expect("files").all(), tomorrow, &limits, |_| false) {
        assert!(
            compact::run(table, &job, &FileStem::rewritten(2), limits, &Stop::NEVER, |_| true)
                .expect("whole files")
                .is_some()
        );
    }
}

fn run(values: &str, size: &Size) {
    let series = fleet(values, size);
    let samples = series.iter().map(|s| s.timestamps.len()).sum::<usize>() as f64;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let folder = tempfile::TempDir::new().expect("a folder");
    let url = format!("file://{}", folder.path().display());
    let location = Location::open(&url, [], runtime.handle().clone()).expect("a location");
    let table = Arc::new(Table::open_or_create(&METRICS, location).expect("a new table"));

    let start = cpu_seconds();
    let held_seal = seal(&table, &series, size.samples);
    let seal = cpu_seconds() - start;
    let sealed = live_bytes(&table);

    let start = cpu_seconds();
    let limits = CompactLimits { fan_in: 2 * BLOCKS * PARTITIONS, ..CompactLimits::default() };
    let tomorrow = Date(Date::of(START_MS).0 + 1);
    let mut held_merge = 0;
    for job in compact::plan(&METRICS, table.files().expect("files").all(), tomorrow, &limits, |_| false) {
        let mut merge =
            compact::Compaction::open(&table, &job, &FileStem::rewritten(2), limits).expect("whole files");
        while !merge.step(100_000).expect("whole files").done {
            held_merge = held_merge.max(merge.held_bytes());
        }
        assert!(table.replace(&job.files, &merge.into_staged()).expect("a commit"));
    }
    let merge = cpu_seconds() - start;
    let compacted = live_bytes(&table);

    let start = cpu_seconds();
    let read = scan(&table);
    let read_seconds = cpu_seconds() - start;
    assert_eq!(read as f64, samples);
    println!(
        "{values:<9} {:>10.3} {:>12.3} {:>9.2} {:>12.2} {:>9.2} {:>6} KiB {:>7} KiB",
        sealed as f64 / samples,
        compacted as f64 / samples,
        samples / seal / 1e6,
        samples / merge / 1e6,
        samples / read_seconds / 1e6,
        held_seal >> 10,
        held_merge >> 10,
    );
}

/// Seals all blocks, one after the other. Returns the largest amount of memory that a block held.
fn seal(table: &Arc<Table>, series: &[Series], samples: usize) -> usize {
    let len = samples / BLOCKS;
    let mut held = 0;
    for n in 0..BLOCKS {
        let mut blocks = Vec::new();
        for partition in 0..PARTITIONS {
            let mut block = BlockStager::new(
                table,
                FileStem::sealed((n as u128) << 64 | partition as u128),
                WriteLimits::default(),
                None,
            );
            let of = |s: &&Series| s.key().0 as usize % PARTITIONS == partition;
            for (i, one) in series.iter().filter(of).enumerate() {
                block.push(&one.stretch().slice(n * len..(n + 1) * len)).expect("room on the disk");
                if i % 100 == 0 {
                    held = held.max(block.held_bytes());
                }
            }
            let after = n.checked_sub(1).map(|n| n as u64);
            let files = block.finish().expect("room on the disk").files;
            blocks.push(StagedBlock {
                source: format!("j/{partition}"),
                after,
                upto: n as u64,
                through: None,
                files,
            });
        }
        table.commit(&blocks, START_MS + n as i64).expect("a commit");
    }
    held
}

fn live_bytes(table: &Table) -> u64 {
    let files: u64 = table.files().expect("files").all().iter().map(|f| f.bytes).sum();
    let log = table.location().url().to_file_path().expect("a local table").join("_delta_log");
    let entries = std::fs::read_dir(log).expect("a log").flatten();
    files + entries.filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum::<u64>()
}

fn scan(table: &Table) -> usize {
    let cache = Arc::new(Cache::new(0));
    let mut scan = Scan::open(table, &cache, &Select::ALL, &ScanLimits::default()).expect("whole files");
    let (mut samples, mut count) = (Samples::default(), 0);
    while scan.next_series().expect("whole files") {
        samples.clear();
        scan.read(&mut samples).expect("whole files");
        count += samples.len();
    }
    count
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

struct Series {
    labels: Labels,
    key: SeriesKey,
    timestamps: Vec<i64>,
    values: Vec<f64>,
}

impl Series {
    fn key(&self) -> SeriesKey {
        self.key
    }

    fn stretch(&self) -> Stretch<'_> {
        Stretch {
            labels: self.labels.as_ref(),
            key: self.key,
            timestamps: &self.timestamps,
            values: &self.values,
        }
    }
}

fn fleet(values: &str, size: &Size) -> Vec<Series> {
    let mut rng = Rng::new(1);
    let mut out = Vec::new();
    for target in 0..size.targets {
        let offset = (mix(target as u64) % INTERVAL_MS as u64) as i64;
        for metric in 0..size.metrics {
            let jitter = |i: i64| {
                if values == "jitter" { (mix((target as u64) << 32 | i as u64) % 17) as i64 - 8 } else { 0 }
            };
            let at = |i: i64| START_MS + 10 + offset + i * INTERVAL_MS + jitter(i);
            let timestamps = (0..size.samples as i64).map(at).collect();
            let labels = labels(target, metric);
            let key = SeriesKey::of(labels.as_bytes(), 1);
            out.push(Series {
                labels,
                key,
                timestamps,
                values: column(values, metric, size.samples, &mut rng),
            });
        }
    }
    out.sort_by(|a, b| a.labels.as_ref().cmp_in_tables(b.labels.as_ref()));
    out
}

fn labels(target: usize, metric: usize) -> Labels {
    let app = ["checkout-api", "payments-gateway", "search-indexer", "user-profile"][target % 4];
    let (id, host) = (mix(target as u64), format!("10-96-{}-{}", target / 250, target % 250 + 1));
    let (name, pod) = (format!("metric_{metric}"), format!("{app}-{:010x}-{:05x}", id >> 24, id & 0xf_ffff));
    let (instance, node) = (format!("{}:9102", host.replace('-', ".")), format!("ip-{host}.internal"));
    let cluster = format!("prod-eu-central-1{}", ["a", "b", "c"][target % 3]);
    let namespace = format!("team-{}", ["checkout", "payments", "search"][target % 3]);
    Labels::from_pairs(&[
        ("__name__", &name),
        ("pod", &pod),
        ("namespace", &namespace),
        ("job", app),
        ("instance", &instance),
        ("cluster", &cluster),
        ("container", app),
        ("node", &node),
        ("region", "eu-central-1"),
        ("endpoint", "http-metrics"),
    ])
}

fn column(values: &str, metric: usize, samples: usize, rng: &mut Rng) -> Vec<f64> {
    let kind = match values {
        "mix" | "jitter" => ["counter", "counter", "gauge", "constant"][metric % 4],
        other => other,
    };
    let magnitude = 10f64.powi(rng.below(5) as i32);
    let power = 10f64.powi(2 + rng.below(2) as i32);
    let round = |v: f64| (v * power).round() / power;
    let mut value = match kind {
        "counter" => rng.below(50_000_000) as f64,
        "gauge" => round(rng.unit() * 10.0 * magnitude),
        _ => rng.below(4096) as f64,
    };
    let mut next = || {
        let now = value;
        match kind {
            "counter" => value += rng.below((magnitude * 2.0) as u64 + 1) as f64,
            "gauge" => value = round((value + (rng.unit() - 0.5) * magnitude).abs()),
            _ if rng.below(200) == 0 => value = rng.below(4096) as f64,
            _ => {}
        }
        now
    };
    (0..samples).map(|_| next()).collect()
}
