//! Observation of the target from outside during the load.
//!
//! ```text
//!   /proc/<pid> ─ process ─┐
//!   control group ─ cgroup ┤
//!   /proc/diskstats ─ disk ┼─ once a second ─▶ Timeline ─▶ charts
//!   /proc/net/dev ─ network┤        └─▶ saturation: which resource was used up first, by which rule
//!   /proc/stat ─ machine ──┤
//!   its /metrics ─ scrape ─┘ (in the background: a hanging target delays nothing)
//! ```
//!
//! Before the load, the run calls [`Observation::begin`]. For each point of the timeline, it calls
//! [`Observation::second`] once. When the target was restarted as another process, it calls
//! [`Observation::target_is`]. When everything but the verdict is known, it calls [`Observation::end`].
//!
//! Memory is bounded: the timeline is thinned out, and of all other values only the extremes are kept.

mod cgroup;
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
use disk::Disk;
use machine::Machine;
use network::Network;
use process::TargetProcess;
use saturation::SaturationDetector;
use scrape::Scrape;
use std::collections::BTreeMap;
use std::time::Instant;

/// Maximum number of events of the target that are reported individually.
const EVENTS_MAX: usize = 100;

/// Sources of observation. All are optional; a source that is not given is not observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObserveOptions {
    /// The target's process on this machine.
    pub pid: Option<u32>,
    /// The target's control group, a directory under `/sys/fs/cgroup`. If not given, the control group of the
    /// target's process.
    pub cgroup: Option<std::path::PathBuf>,
    /// URL of the target's own metrics, such as `http://127.0.0.1:9009/metrics`.
    pub metrics_url: Option<String>,
    /// Headers of the requests for the target's metrics.
    pub headers: Vec<(String, String)>,
    /// Permitted targets.
    pub access: Access,
    /// Data directory of the target, to find the disk to watch.
    pub data_dir: Option<std::path::PathBuf>,
}

/// A running observation.
#[derive(Debug)]
pub struct Observation {
    begun: Instant,
    looked: Instant,
    process: Option<TargetProcess>,
    cgroup: Option<Cgroup>,
    /// True if the options name the control group. Then everything in the group counts as the target.
    cgroup_named: bool,
    disk: Option<Disk>,
    network: Network,
    machine: Machine,
    scrape: Option<Scrape>,
    saturation: SaturationDetector,
    events: Vec<Event>,
    restarts: u64,
    peaks: BTreeMap<String, f64>,
}

/// Observations of one second, for the timeline, the peaks and the saturation rules.
#[derive(Debug, Default)]
pub(crate) struct Look {
    values: Vec<(String, &'static str, SeriesKind, f64)>,
    events: Vec<String>,
    restarts: u64,
}

impl Look {
    /// A value of this second, such as `target/cpu` in `cores`.
    fn set(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        if value.is_finite() {
            self.values.push((name.into(), unit, SeriesKind::Max, value));
        }
    }

    /// Adds an event, which every chart marks.
    fn event(&mut self, text: impl Into<String>) {
        self.events.push(text.into());
    }

    /// Value that was set in this second, if any.
    fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(n, ..)| n == name).map(|(.., value)| *value)
    }
}

impl Observation {
    /// Begins the observation. Fails if the options can never work.
    pub async fn begin(options: &ObserveOptions) -> Result<Self> {
        let process = options.pid.map(TargetProcess::new).transpose()?;
        let cgroup = match &options.cgroup {
            Some(path) => Some(Cgroup::open(path)?),
            // a group without a limit adds nothing to the figures of the process
            None => options.pid.and_then(Cgroup::of_process).filter(Cgroup::is_limited),
        };
        let disk = match &options.data_dir {
            Some(dir) => {
                Disk::of(dir).with_context(|| format!("cannot find the disk of {}", dir.display()))?
            }
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
            machine: Machine::new(),
            scrape,
            saturation: SaturationDetector::default(),
            events: Vec::new(),
            restarts: 0,
            peaks: BTreeMap::new(),
        })
    }

    /// Adds current values to the latest point of `timeline`. Reads some small files, and never waits for the target.
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
                look.restarts = restarts; // the restarts seen in the process itself are more reliable
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

    /// Called when the run itself has restarted the target. `pid` is the new process id.
    pub fn target_is(&mut self, pid: u32) {
        // if the new process has already ended, the next second detects it
        self.process = TargetProcess::new(pid).ok().or(self.process.take());
        self.network = Network::new(Some(pid));
        if let Some(scrape) = &mut self.scrape {
            scrape.expect_restart();
        }
    }

    /// Adds the figures that are known only at the end: saturation, restarts, versions, peaks.
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
        compare_with_load(result);
    }
}

/// Relates the target's resource usage to the load of all generators together.
pub(crate) fn compare_with_load(result: &mut RunResult) {
    let observed = &mut result.observed;
    let used = |name: &str| observed.get(name).copied().filter(|used| *used > 0.0);
    let (cores, rss) = (used("cpu_cores_mean"), used("rss_peak_bytes"));
    let (samples_per_s, series) = (result.totals.samples_per_s, result.totals.series_active as f64);
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

/// Rate of a kernel counter. After a reset, the counter counts from zero.
fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    if now >= before { (now - before) as f64 / seconds } else { now as f64 / seconds }
}

#[cfg(test)]
mod tests;
