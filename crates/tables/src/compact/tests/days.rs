//! Simulates days of a tenant with files that have sizes but no content. Checks that merges never put an older write
//! over a newer one, that merging ends, and that jobs stay small.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use stdx::rng::Rng;

/// The series of each metric are divided into this many groups. The simulation tracks groups instead of single series.
const PARTS: u32 = 4;

/// The rows that a file has for one group of a metric's series.
#[derive(Debug, Clone, Copy)]
struct Held {
    samples: u64,
    /// Number of the latest write whose samples are in these rows.
    write: u64,
}

#[derive(Debug, Clone)]
struct File {
    live: LiveFile,
    /// Content of the file. Keys are the numbers of groups of series.
    held: BTreeMap<u32, Held>,
}

#[derive(Debug, Default)]
struct Day {
    series: Vec<u64>,
    /// Number of groups into which the series of each metric are divided.
    parts: u32,
    limits: CompactLimits,
    files: Vec<File>,
    written: BTreeMap<u32, u64>,
    made: u64,
    writes: u64,
    sealed_bytes: u64,
    merged_bytes: u64,
    largest_job: u64,
    jobs: u64,
}

/// Bytes of a row without its samples, and bytes of one sample. They are roughly those that `cargo bench -p tables`
/// measures.
const ROW_BYTES: u64 = 30;
const SAMPLE_BYTES: f64 = 1.1;

impl Day {
    fn new(series: Vec<u64>, parts: u32, limits: CompactLimits) -> Self {
        Self { series, parts, limits, ..Self::default() }
    }

    fn bytes(&self, key: u32, held: Held) -> u64 {
        let series = (self.series[(key / self.parts) as usize] / u64::from(self.parts)).max(1);
        let rows = held.samples.div_ceil(ROW_SAMPLES_MAX as u64);
        series * (rows * ROW_BYTES + (held.samples as f64 * SAMPLE_BYTES) as u64)
    }

    fn file(&mut self, sequence: i64, held: BTreeMap<u32, Held>) -> File {
        self.made += 1;
        let bytes = held.iter().map(|(key, held)| self.bytes(*key, *held)).sum();
        let name = |key: Option<(&u32, &Held)>| format!("m{:04}", key.unwrap().0 / self.parts);
        let names = (name(held.first_key_value()), name(held.last_key_value()));
        let live =
            LiveFile { path: format!("f{}", self.made), names: Some(names), ..file(5, sequence, bytes) };
        File { live, held }
    }

    /// Seals `samples` samples of each selected series. The series are divided between two partitions, each with its
    /// own sequence.
    fn seal(&mut self, samples: u64, keys: impl Fn(u32) -> bool) {
        for partition in 0..2 {
            self.writes += 1;
            let write = self.writes;
            let all = 0..self.series.len() as u32 * self.parts;
            let own = all.filter(|key| key % 2 == partition && keys(*key));
            let held: BTreeMap<u32, Held> = own.map(|key| (key, Held { samples, write })).collect();
            if !held.is_empty() {
                self.written.extend(held.keys().map(|key| (*key, write)));
                let file = self.file(write as i64, held);
                self.sealed_bytes += file.live.bytes;
                self.files.push(file);
            }
        }
    }

    fn live(&mut self) -> Vec<LiveFile> {
        self.files.sort_by(|a, b| (a.live.sequence, &a.live.path).cmp(&(b.live.sequence, &b.live.path)));
        self.files.iter().map(|f| f.live.clone()).collect()
    }

    fn merge(&mut self, job: &Job) {
        let taken: BTreeSet<&str> = job.files.iter().map(|f| f.path.as_str()).collect();
        let is_taken = |f: &File| taken.contains(f.live.path.as_str());
        let (inputs, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.files).into_iter().partition(is_taken);
        assert_eq!(inputs.len(), job.files.len(), "a file of the job is not live");
        self.files = kept;
        self.jobs += 1;
        self.largest_job = self.largest_job.max(job.bytes());
        assert!(job.files.len() <= self.limits.fan_in);
        let mut all: BTreeMap<u32, Held> = BTreeMap::new();
        for (key, held) in inputs.iter().flat_map(|f| &f.held) {
            let sum = all.entry(*key).or_insert(Held { samples: 0, write: 0 });
            *sum = Held { samples: sum.samples + held.samples, write: sum.write.max(held.write) };
        }
        let sequence = inputs.iter().map(|f| f.live.sequence).max().unwrap();
        let target = even_bytes(job, &self.limits);
        let (mut part, mut bytes, mut cuts) = (BTreeMap::new(), 0, job.cuts.iter().peekable());
        let mut last = None;
        for (key, held) in all {
            let metric = key / self.parts;
            let mut ends = bytes >= 2 * target || last != Some(metric) && bytes >= target;
            while cuts.next_if(|cut| ***cut <= *format!("m{metric:04}")).is_some() {
                ends = true;
            }
            if ends && !part.is_empty() {
                let file = self.file(sequence, std::mem::take(&mut part));
                (self.merged_bytes, bytes) = (self.merged_bytes + file.live.bytes, 0);
                self.files.push(file);
            }
            bytes += self.bytes(key, held);
            part.insert(key, held);
            last = Some(metric);
        }
        let file = self.file(sequence, part);
        self.merged_bytes += file.live.bytes;
        self.files.push(file);
    }

    /// Checks that readers see the last write of each group of series.
    fn check(&self) {
        let mut found: BTreeMap<u32, (i64, u64)> = BTreeMap::new();
        for file in &self.files {
            for (key, held) in &file.held {
                let new = (file.live.sequence, held.write);
                let old = found.insert(*key, new).unwrap_or((i64::MIN, 0));
                assert_ne!(old.0, new.0, "two files with a part of one series share a sequence");
                assert_eq!(old.0 > new.0, old.1 > new.1, "an earlier write overrides a later one");
                found.insert(*key, old.max(new));
            }
        }
        let found: BTreeMap<u32, u64> = found.into_iter().map(|(key, (_, write))| (key, write)).collect();
        assert_eq!(found, self.written);
    }

    /// Plans jobs and runs some of them, or all, in random order.
    fn keep(&mut self, today: i32, rng: &mut Rng, all: bool) -> usize {
        let live = self.live();
        let mut jobs = plan(&METRICS, &live, Date(today), &self.limits, |_| false);
        let mut paths: Vec<_> = jobs.iter().flat_map(|j| &j.files).map(|f| &f.path).collect();
        let count = paths.len();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), count, "no file is in two jobs");
        let planned = jobs.len();
        while !jobs.is_empty() {
            let job = jobs.swap_remove(rng.below(jobs.len() as u64) as usize);
            if all || rng.chance(0.7) {
                self.merge(&job);
            }
        }
        planned
    }

    fn finish(&mut self, rng: &mut Rng) {
        for _ in 0..200 {
            if self.keep(6, rng, true) == 0 {
                return;
            }
            self.check();
        }
        panic!("merging does not end");
    }

    /// Number of bytes that merges have written for each sealed byte.
    fn amplification(&self) -> f64 {
        self.merged_bytes as f64 / self.sealed_bytes as f64
    }

    fn live_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.live.bytes).sum()
    }

    /// Size of the day if each group of series had as few rows as possible.
    fn best_bytes(&self) -> u64 {
        let mut all: BTreeMap<u32, u64> = BTreeMap::new();
        for (key, held) in self.files.iter().flat_map(|f| &f.held) {
            *all.entry(*key).or_default() += held.samples;
        }
        all.iter().map(|(key, samples)| self.bytes(*key, Held { samples: *samples, write: 0 })).sum()
    }

    /// Maximum number of files that have the same metric.
    fn files_of_a_metric(&self) -> usize {
        let of = |metric: u32| {
            let keys = metric * self.parts..(metric + 1) * self.parts;
            self.files.iter().filter(|f| f.held.range(keys.clone()).next().is_some()).count()
        };
        (0..self.series.len() as u32).map(of).max().unwrap()
    }
}

#[test]
fn random_days_keep_their_order_and_come_to_an_end() {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    for n in 0..300 {
        let mut rng = Rng::new(seed ^ n);
        let metrics = 1 + rng.below(30) as usize;
        let series = (0..metrics).map(|_| 1 + rng.below(200)).collect();
        let file_bytes = 1 << (10 + rng.below(8));
        let limits = CompactLimits {
            fan_in: 2 + rng.below(15) as usize,
            files_min: 2 + rng.below(4) as usize,
            job_bytes: file_bytes << rng.below(5),
            file_bytes,
            ..LIMITS
        };
        let mut day = Day::new(series, PARTS, limits);
        for _ in 0..1 + rng.below(60) {
            let (modulus, samples) = (1 + rng.below(5) as u32, 1 + rng.below(100));
            day.seal(samples, |key| key % modulus == 0);
            if rng.chance(0.5) {
                day.keep(5, &mut rng, false);
                day.check();
            }
            if rng.chance(0.05) {
                day.keep(6, &mut rng, false);
                day.check();
            }
        }
        day.finish(&mut rng);
    }
}

/// Simulates a day on which each series has a sample every 15 s, and all are sealed every quarter of an hour.
fn day_of(series: Vec<u64>, parts: u32) -> Day {
    let mut day = Day::new(series, parts, CompactLimits::default());
    let mut rng = Rng::new(7);
    let mut open_most = 0;
    for _ in 0..96 {
        day.seal(60, |_| true);
        while day.keep(5, &mut rng, true) > 0 {}
        open_most = open_most.max(day.files_of_a_metric());
    }
    day.check();
    day.finish(&mut rng);
    println!(
        "{} series: sealed {} MiB, merged {} MiB ({:.2}), live {} MiB ({} at best) in {} files, {} of a metric ({open_most} while the day goes on), {} jobs, the largest {} MiB",
        day.series.iter().sum::<u64>(),
        day.sealed_bytes >> 20,
        day.merged_bytes >> 20,
        day.amplification(),
        day.live_bytes() >> 20,
        day.best_bytes() >> 20,
        day.files.len(),
        day.files_of_a_metric(),
        day.jobs,
        day.largest_job >> 20,
    );
    assert!(day.largest_job <= day.limits.job_bytes);
    day
}

/// Returns how many series each of 400 metrics has. A few metrics have most of the series.
fn metrics_of(series: u64) -> Vec<u64> {
    (1..=400).map(|rank| series * 15 / 100 / rank + series / 10_000).collect()
}

/// The tenant has a million series: 96 M rows as sealed, and 5.8 G samples.
#[test]
fn a_large_tenant_is_many_small_jobs() {
    let day = day_of(metrics_of(1_000_000), PARTS);
    assert!(day.jobs > 100);
    assert!(day.amplification() < 4.0);
    assert!(day.files_of_a_metric() <= 6);
}

#[test]
fn a_day_of_little_data_becomes_one_file() {
    let day = day_of(metrics_of(10_000), PARTS);
    assert_eq!(day.files.len(), 1);
    assert!(day.amplification() < 5.0);
    let day = day_of(metrics_of(80_000), PARTS);
    assert!(day.files_of_a_metric() <= 3);
}

/// The metric exceeds a job, and there are no cuts within a metric. So it keeps several files, each with a part of the
/// day.
#[test]
fn a_metric_larger_than_a_job_stays_in_several_files() {
    for (series, most) in [(100_000, 1.01), (200_000, 1.02), (500_000, 1.05), (1_000_000, 1.09)] {
        let day = day_of(vec![series], 64);
        assert!(day.live_bytes() as f64 <= day.best_bytes() as f64 * most);
        assert!(day.amplification() < 4.0);
    }
}
