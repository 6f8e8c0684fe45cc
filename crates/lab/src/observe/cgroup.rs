//! Memory and CPU of the target's control group, of version 1 or 2.

use super::{Look, rate};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A limit above this value stands for no limit, because control groups of version 1 then contain a huge number.
const NO_LIMIT_BYTES: u64 = 1 << 60;

#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
    cpu_us: Option<u64>,
    periods: Option<(u64, u64)>,
    kills: Option<u64>,
    memory_peak: u64,
}

impl Cgroup {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        ensure!(
            dir.join("cgroup.procs").exists(),
            "{} is not a control group: there is no file cgroup.procs",
            dir.display()
        );
        let mut group =
            Self { dir: dir.to_owned(), cpu_us: None, periods: None, kills: None, memory_peak: 0 };
        group.cpu_us = group.cpu_us();
        group.periods = group.periods();
        group.kills = group.kills();
        Ok(group)
    }

    /// Finds the control group of a process. `None` if the process is in the root group.
    pub(super) fn of_process(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let path = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let path = path.strip_prefix('/').filter(|path| !path.is_empty())?;
            let root = match controllers {
                "" => "/sys/fs/cgroup",
                "memory" => "/sys/fs/cgroup/memory",
                _ => return None,
            };
            Some(Path::new(root).join(path))
        };
        text.lines().filter_map(path).find_map(|path| Self::open(&path).ok())
    }

    pub(super) fn is_limited(&self) -> bool {
        self.memory_limit().is_some() || self.cpu_limit().is_some()
    }

    /// Process with the lowest id in the control group, which is usually the one that was started first.
    pub(super) fn main_process(&self) -> Option<u32> {
        self.read("cgroup.procs")?.lines().filter_map(|pid| pid.parse().ok()).min()
    }

    pub(super) fn look(&mut self, seconds: f64, look: &mut Look) {
        if let Some(memory) = self.memory() {
            look.set("cgroup/memory", "bytes", memory as f64);
            self.memory_peak = self.memory_peak.max(memory);
        }
        if let Some(limit) = self.memory_limit() {
            look.set("cgroup/memory_limit", "bytes", limit as f64);
        }
        let cpu_us = self.cpu_us();
        if let Some((now, before)) = cpu_us.zip(self.cpu_us) {
            look.set("cgroup/cpu", "cores", rate(now, before, seconds) / 1e6);
        }
        self.cpu_us = cpu_us.or(self.cpu_us);
        if let Some(cores) = self.cpu_limit() {
            look.set("cgroup/cpu_limit", "cores", cores);
        }
        let periods = self.periods();
        if let (Some((all, held)), Some((all_before, held_before))) = (periods, self.periods)
            && all > all_before
        {
            let part = held.saturating_sub(held_before) as f64 / (all - all_before) as f64;
            look.set("cgroup/throttled", "part", part);
        }
        self.periods = periods.or(self.periods);
        let kills = self.kills();
        if let Some((now, before)) = kills.zip(self.kills)
            && now > before
        {
            look.event(format!(
                "processes killed by the kernel for lack of memory in the control group: {}",
                now - before
            ));
        }
        self.kills = kills.or(self.kills);
    }

    pub(super) fn end(&self, observed: &mut BTreeMap<String, f64>) {
        if self.memory_peak > 0 {
            observed.insert("cgroup_memory_peak_bytes".to_owned(), self.memory_peak as f64);
        }
        if let Some(limit) = self.memory_limit() {
            observed.insert("cgroup_memory_limit_bytes".to_owned(), limit as f64);
        }
        if let Some(limit) = self.cpu_limit() {
            observed.insert("cgroup_cpu_limit_cores".to_owned(), limit);
        }
        if let Some(kills) = self.kills {
            observed.insert("oom_kills".to_owned(), kills as f64);
        }
    }

    /// Memory that the kernel cannot reclaim at once. Pages of files that were not used recently are subtracted.
    fn memory(&self) -> Option<u64> {
        let all = self.number("memory.current").or_else(|| self.number("memory.usage_in_bytes"))?;
        let idle = self.field("memory.stat", "total_inactive_file");
        let idle = idle.or_else(|| self.field("memory.stat", "inactive_file"));
        Some(all.saturating_sub(idle.unwrap_or(0)))
    }

    fn memory_limit(&self) -> Option<u64> {
        let limit = self.number("memory.max").or_else(|| self.number("memory.limit_in_bytes"));
        limit.filter(|bytes| *bytes < NO_LIMIT_BYTES)
    }

    fn cpu_us(&self) -> Option<u64> {
        let of_v1 = || Some(self.number("cpuacct.usage")? / 1000);
        self.field("cpu.stat", "usage_usec").or_else(of_v1)
    }

    fn cpu_limit(&self) -> Option<f64> {
        if let Some(text) = self.read("cpu.max") {
            let (quota, period) = text.split_once(' ')?;
            return Some(quota.parse::<f64>().ok()? / period.trim().parse::<f64>().ok()?);
        }
        let quota: f64 = self.read("cpu.cfs_quota_us")?.trim().parse().ok()?;
        let period: f64 = self.read("cpu.cfs_period_us")?.trim().parse().ok()?;
        (quota > 0.0).then_some(quota / period)
    }

    /// Number of scheduling periods with a CPU limit, and how many of them were throttled.
    fn periods(&self) -> Option<(u64, u64)> {
        Some((self.field("cpu.stat", "nr_periods")?, self.field("cpu.stat", "nr_throttled")?))
    }

    fn kills(&self) -> Option<u64> {
        self.field("memory.events", "oom_kill").or_else(|| self.field("memory.oom_control", "oom_kill"))
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(file)).ok()
    }

    fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.trim().parse().ok()
    }

    fn field(&self, file: &str, name: &str) -> Option<u64> {
        let text = self.read(file)?;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        text.lines().find_map(value)
    }
}
