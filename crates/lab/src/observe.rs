//! What can be seen of the target from outside while it is loaded.
//!
//! The run calls [`Observation::begin`] before the load, [`Observation::second`] once for each point of the
//! timeline, [`Observation::target_is`] when the target has another process from now on, and
//! [`Observation::end`] when all is known but the verdict.

use crate::result::{RunResult, Timeline};
use anyhow::Result;

/// Where to look. Everything is optional; what is not given is not observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObserveOptions {
    /// The target's process on this machine.
    pub pid: Option<u32>,
    /// The target's control group, a directory under `/sys/fs/cgroup`.
    pub cgroup: Option<std::path::PathBuf>,
    /// Its own metrics, such as `http://127.0.0.1:9009/metrics`.
    pub metrics_url: Option<String>,
    /// Sent when its metrics are asked for.
    pub headers: Vec<(String, String)>,
    /// Hosts beyond this machine that may be asked.
    pub allow_hosts: Vec<String>,
    /// Where it keeps its data, to know which disk to watch.
    pub data_dir: Option<std::path::PathBuf>,
}

/// An observation that goes on.
#[derive(Debug)]
pub struct Observation {
    _options: ObserveOptions,
}

impl Observation {
    /// Begins to look. Errors are for options that can never work.
    pub async fn begin(options: &ObserveOptions) -> Result<Self> {
        Ok(Self { _options: options.clone() })
    }

    /// Adds what is seen now to the latest point of `timeline`. Must not take longer than a fraction of a
    /// second, whatever the target does.
    pub async fn second(&mut self, _timeline: &mut Timeline) {}

    /// The target was started anew by the run itself, as this process.
    pub fn target_is(&mut self, _pid: u32) {}

    /// Adds what is known only at the end: saturation, restarts, versions, peaks.
    pub async fn end(self, _result: &mut RunResult) {}
}
