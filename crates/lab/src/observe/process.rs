//! Resource usage of the target's process.

use super::{Look, rate};
use crate::observe::procfs::Process;
use anyhow::{Result, ensure};
use procfs::process::LimitValue;
use std::collections::BTreeMap;
use std::time::Instant;

/// A process is identified by its id and start time, because the kernel reuses ids.
#[derive(Debug)]
pub(super) struct TargetProcess {
    pid: u32,
    started: Option<u64>,
    begun: Instant,
    cpu_s: Option<f64>,
    cpu_total_s: f64,
    written: Option<u64>,
    written_total: u64,
    rss_peak: u64,
    rss_last: u64,
}

impl TargetProcess {
    pub(super) fn new(pid: u32) -> Result<Self> {
        let process = Process::Id(pid);
        let started = process.started_ticks();
        ensure!(started.is_some(), "there is no process {pid} on this machine");
        let cpu_s = process.cpu_seconds();
        Ok(Self {
            pid,
            started,
            begun: Instant::now(),
            cpu_s,
            cpu_total_s: 0.0,
            written: process.written_bytes(),
            written_total: 0,
            rss_peak: 0,
            rss_last: 0,
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.started.is_none()
    }

    /// Called when the target has been found running as another process.
    pub(super) fn found(&mut self, pid: u32, look: &mut Look) {
        if let Ok(new) = Self::new(pid) {
            look.event(format!("the target was restarted as process {pid}"));
            look.restarts += 1;
            self.pid = pid;
            self.started = new.started;
            (self.cpu_s, self.written) = (Some(0.0), Some(0));
        }
    }

    pub(super) fn look(&mut self, seconds: f64, look: &mut Look) {
        let process = Process::Id(self.pid);
        if self.started.is_none() {
            return;
        }
        match process.started_ticks() {
            now if now == self.started => {}
            None => {
                look.event(format!("the target's process {} ended", self.pid));
                self.started = None;
                return;
            }
            now => {
                look.event(format!("process id {} now belongs to another process", self.pid));
                look.restarts += 1;
                self.started = now;
                (self.cpu_s, self.written) = (Some(0.0), Some(0));
            }
        }
        if let Some((now, before)) = process.cpu_seconds().zip(self.cpu_s) {
            look.set("target/cpu", "cores", (now - before).max(0.0) / seconds);
            self.cpu_total_s += (now - before).max(0.0);
            self.cpu_s = Some(now);
        }
        if let Some(rss) = process.rss_bytes() {
            look.set("target/memory", "bytes", rss as f64);
            self.rss_last = rss;
        }
        // this also counts peaks that lie between two observations
        self.rss_peak = self.rss_peak.max(process.rss_peak_bytes().unwrap_or(self.rss_last));
        if let Some((now, before)) = process.written_bytes().zip(self.written) {
            look.set("target/written", "bytes/s", rate(now, before, seconds));
            self.written_total += now.saturating_sub(before);
            self.written = Some(now);
        }
        let Some(process) = process.open() else { return };
        if let Ok(status) = process.status() {
            look.set("target/threads", "", status.threads as f64);
        }
        if let Ok(open) = process.fd_count() {
            look.set("target/files", "", open as f64);
        }
        if let Ok(LimitValue::Value(limit)) = process.limits().map(|limits| limits.max_open_files.soft_limit)
        {
            look.set("target/files_limit", "", limit as f64);
        }
    }

    pub(super) fn end(&self, observed: &mut BTreeMap<String, f64>) {
        let wall_s = self.begun.elapsed().as_secs_f64();
        let cpu_s = self.cpu_total_s;
        observed.insert("cpu_s".to_owned(), cpu_s);
        observed.insert("cpu_cores_mean".to_owned(), cpu_s / wall_s.max(1e-3));
        observed.insert("rss_peak_bytes".to_owned(), self.rss_peak as f64);
        observed.insert("rss_end_bytes".to_owned(), self.rss_last as f64);
        observed.insert("written_bytes".to_owned(), self.written_total as f64);
    }
}
