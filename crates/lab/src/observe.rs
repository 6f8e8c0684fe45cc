//! Observation of the target from outside during the load.
//!
//! ```text
//!   /proc/<pid> ─ process ─┐
//!   control group ─ cgroup ┤
//!   /proc/diskstats ─ disk ┼─ once a second ─▶ Timeline ─▶ charts
//!   /proc/net/dev ─ network┤        └─▶ saturation: which resource was used up first, by which rule
//!   /proc/stat ─ machine ──┤
//!   its /metrics ─ scrape ─┘ (in the background: a hanging target delays nothing)
//!   its files ─ directory: only before and after the load
//! ```
//!
//! A run calls [`Observation::begin`], then [`Observation::second`] for each point of the timeline, then
//! [`Observation::end`]. After a restart, it calls [`Observation::target_is`].

mod cgroup;
mod directory;
mod disk;
mod machine;
mod metrics;
mod network;
mod process;
pub mod procfs;
mod saturation;
mod scrape;

pub use metrics::{Kind, ScrapedFigures, recognise};

use crate::http::Access;
use crate::result::{Event, EventKind, RunResult, SeriesKind, Timeline};
use anyhow::{Context, Result};
use cgroup::Cgroup;
use directory::Directory;
use disk::Disk;
use machine::Machine;
use network::Network;
use process::TargetProcess;
use saturation::SaturationDetector;
use scrape::Scrape;
use std::collections::BTreeMap;
use std::time::Instant;

const EVENTS_MAX: usize = 100;

/// Says where the target can be observed. Everything is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObserveOptions {
    pub pid: Option<u32>,
    /// Control group of the target, a directory under `/sys/fs/cgroup`. By default, the group of the target's process.
    pub cgroup: Option<std::path::PathBuf>,
    /// URL of the target's own metrics, such as `http://127.0.0.1:9009/metrics`.
    pub metrics_url: Option<String>,
    pub headers: Vec<(String, String)>,
    pub access: Access,
    /// Data directory of the target. The disk that stores it is observed, and its files are counted.
    pub data_dir: Option<std::path::PathBuf>,
}

#[derive(Debug)]
pub struct Observation {
    begun: Instant,
    looked: Instant,
    process: Option<TargetProcess>,
    cgroup: Option<Cgroup>,
    /// True if the user has named the control group, so that all its processes count as the target.
    cgroup_named: bool,
    disk: Option<Disk>,
    directory: Option<Directory>,
    network: Network,
    machine: Machine,
    scrape: Option<Scrape>,
    saturation: SaturationDetector,
    events: Vec<Event>,
    restarts: u64,
    peaks: BTreeMap<String, f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Look {
    values: Vec<(String, &'static str, SeriesKind, f64)>,
    events: Vec<String>,
    restarts: u64,
}

impl Look {
    fn set(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        if value.is_finite() {
            self.values.push((name.into(), unit, SeriesKind::Max, value));
        }
    }

    fn event(&mut self, text: impl Into<String>) {
        self.events.push(text.into());
    }

    /// Value that was set under this name in the current second.
    fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(n, ..)| n == name).map(|(.., value)| *value)
    }
}

impl Observation {
    /// Fails if the options can never work.
    pub async fn begin(options: &ObserveOptions) -> Result<Self> {
        let process = options.pid.map(TargetProcess::new).transpose()?;
        let cgroup = match &options.cgroup {
            Some(path) => Some(Cgroup::open(path)?),
            // a control group without limits would only repeat the figures of the process
            None => options.pid.and_then(Cgroup::of_process).filter(Cgroup::is_limited),
        };
        let disk = match &options.data_dir {
            Some(dir) => {
                Disk::of(dir).with_context(|| format!("cannot find the disk of {}", dir.display()))?
            }
            None => None,
        };
        let directory = match &options.data_dir {
            Some(dir) => Directory::begin(dir).await,
            None => None,
        };
        let scrape = match &options.metrics_url {
            Some(url) => Some(Scrape::start(url, &options.headers, &options.access).await?),
            None => None,
        };
        let now = Instant::now();
        Ok(Self {
            begun: now,
            looked: now,
            network: Network::new(options.pid),
            process,
            cgroup,
            cgroup_named: options.cgroup.is_some(),
            disk,
            directory,
            machine: Machine::new(),
            scrape,
            saturation: SaturationDetector::default(),
            events: Vec::new(),
            restarts: 0,
            peaks: BTreeMap::new(),
        })
    }

    /// Adds current values to the latest point of `timeline`. Never waits for the target.
    pub async fn second(&mut self, timeline: &mut Timeline) {
        let seconds = self.looked.elapsed().as_secs_f64();
        self.looked = Instant::now();
        let look = self.look(seconds.max(1e-3));
        let at_s = self.begun.elapsed().as_secs_f64();
        for (name, unit, kind, value) in &look.values {
            timeline.set(name, unit, *kind, *value);
        }
        self.keep(look, at_s);
    }

    fn look(&mut self, seconds: f64) -> Look {
        let mut look = Look::default();
        self.machine.look(seconds, &mut look);
        if let Some(cgroup) = &mut self.cgroup {
            cgroup.look(seconds, &mut look);
            if let Some(process) = &mut self.process
                && self.cgroup_named
                && process.is_gone()
                && let Some(pid) = cgroup.main_process()
            {
                process.found(pid, &mut look);
            }
        }
        if let Some(process) = &mut self.process {
            process.look(seconds, &mut look);
        }
        if let Some(disk) = &mut self.disk {
            disk.look(seconds, &mut look);
        }
        self.network.look(seconds, &mut look);
        if let Some(scrape) = &mut self.scrape {
            let restarts = look.restarts;
            scrape.look(&mut look);
            if self.process.is_some() {
                // the process shows restarts more reliably than its metrics
                look.restarts = restarts;
            }
        }
        look
    }

    fn keep(&mut self, look: Look, at_s: f64) {
        self.saturation.update(&look, at_s);
        for (name, .., value) in look.values {
            let peak = self.peaks.entry(name).or_insert(value);
            *peak = peak.max(value);
        }
        for text in look.events {
            if self.events.len() < EVENTS_MAX {
                self.events.push(Event::new(at_s, EventKind::Target, text));
            }
        }
        self.restarts += look.restarts;
    }

    /// Called when the run has restarted the target as process `pid`.
    pub fn target_is(&mut self, pid: u32) {
        // a process that has already ended again is noticed in the next second
        self.process = TargetProcess::new(pid).ok().or(self.process.take());
        self.network = Network::new(Some(pid));
        if let Some(scrape) = &mut self.scrape {
            scrape.expect_restart();
        }
    }

    /// Adds what was observed to the result: events, restarts, saturation, the version of the target, and peaks.
    pub async fn end(self, result: &mut RunResult) {
        result.totals.restarts = result.totals.restarts.max(self.restarts);
        result.events.extend(self.events);
        result.events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        result.saturated = result.saturated.take().or(self.saturation.first());
        result.warnings.extend(self.saturation.warnings(result.machine.cores));
        if let Some(kind) = self.scrape.as_ref().and_then(Scrape::kind) {
            result.versions.insert("target".to_owned(), kind);
        }
        let observed = &mut result.observed;
        for (name, peak) in self.peaks {
            observed.insert(format!("{}_peak", name.replace('/', "_")), peak);
        }
        if let Some(process) = &self.process {
            process.end(observed);
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.end(observed);
        }
        if let Some(disk) = &self.disk {
            disk.end(observed);
        }
        if let Some(directory) = &self.directory
            && let Some(growth) = directory.growth().await
        {
            observed.insert("data_files".to_owned(), growth.files as f64);
            observed.insert("data_bytes".to_owned(), growth.bytes as f64);
        }
        compare_with_load(result);
    }
}

/// Computes how much of its resources the target needs per sample and per series. The load is that of all generators
/// together.
pub(crate) fn compare_with_load(result: &mut RunResult) {
    let observed = &mut result.observed;
    let used = |name: &str| observed.get(name).copied().filter(|used| *used > 0.0);
    let (cores, rss) = (used("cpu_cores_mean"), used("rss_peak_bytes"));
    let (files, bytes) = (used("data_files"), used("data_bytes"));
    let (samples_per_s, series) = (result.totals.samples_per_s, result.totals.series_active as f64);
    let (samples, distinct) =
        (result.totals.samples_acknowledged as f64, result.totals.series_distinct as f64);
    for (name, used, load) in [
        ("disk_bytes_per_sample", bytes, samples),
        ("disk_bytes_per_series", bytes, distinct),
        ("files_per_series", files, distinct),
    ] {
        if let Some(used) = used.filter(|_| load > 0.0) {
            observed.insert(name.to_owned(), used / load);
        }
    }
    if let Some(cores) = cores {
        observed.insert("samples_per_s_per_core".to_owned(), samples_per_s / cores);
    }
    if let Some(rss) = rss {
        let gib = rss / f64::from(1 << 30);
        observed.insert("samples_per_s_per_gib".to_owned(), samples_per_s / gib);
        if series > 0.0 {
            observed.insert("bytes_per_series".to_owned(), rss / series);
            observed.insert("series_per_gib".to_owned(), series / gib);
        }
    }
}

/// Growth per second of a kernel counter. If the counter is lower than before, it was reset and has counted from zero
/// since.
fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    if now >= before { (now - before) as f64 / seconds } else { now as f64 / seconds }
}

#[cfg(test)]
mod tests;
