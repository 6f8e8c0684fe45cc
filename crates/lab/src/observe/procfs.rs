//! Resource usage of a process, as the kernel counts it. `None` if the process has ended or the system is not Linux.

use procfs::prelude::*;
use procfs::process::{self, Stat, Status};
use procfs::{CpuInfo, Meminfo};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    Own,
    Id(u32),
}

impl Process {
    pub(super) fn open(self) -> Option<process::Process> {
        match self {
            Self::Own => process::Process::myself().ok(),
            Self::Id(pid) => process::Process::new(i32::try_from(pid).ok()?).ok(),
        }
    }

    fn stat(self) -> Option<Stat> {
        self.open()?.stat().ok()
    }

    fn status(self) -> Option<Status> {
        self.open()?.status().ok()
    }

    /// When the process started, in clock ticks since the boot. Together with its id, this identifies a process.
    /// `None` if the process has ended, even if it is still a zombie.
    pub fn started_ticks(self) -> Option<u64> {
        self.stat().filter(|stat| !matches!(stat.state, 'Z' | 'X')).map(|stat| stat.starttime)
    }

    /// True once all threads of the process have ended. Until then, its ports may be in use and its files locked.
    pub fn is_gone(self) -> bool {
        let threads = self.open().and_then(|process| process.tasks().ok()).map_or(0, Iterator::count);
        self.started_ticks().is_none() && threads <= 1
    }

    /// CPU time of all threads, in user mode and in the kernel.
    pub fn cpu_seconds(self) -> Option<f64> {
        self.stat().map(|stat| (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    }

    pub fn rss_bytes(self) -> Option<u64> {
        self.status()?.vmrss?.checked_mul(1024)
    }

    pub fn rss_peak_bytes(self) -> Option<u64> {
        self.status()?.vmhwm?.checked_mul(1024)
    }

    pub fn written_bytes(self) -> Option<u64> {
        Some(self.open()?.io().ok()?.write_bytes)
    }
}

pub fn memory_available_bytes() -> Option<u64> {
    Meminfo::current().ok()?.mem_available
}

pub fn memory_total_bytes() -> Option<u64> {
    Some(Meminfo::current().ok()?.mem_total)
}

pub fn cpu_name() -> Option<String> {
    CpuInfo::current().ok()?.model_name(0).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn own_process_is_read_and_a_missing_one_is_gone() {
        assert!(Process::Own.cpu_seconds().is_some());
        // other tests allocate memory at the same time, so the peak is read after the current value, and cannot be
        // lower
        let rss_bytes = Process::Own.rss_bytes();
        assert!(Process::Own.rss_peak_bytes() >= rss_bytes && rss_bytes > Some(1 << 20));
        assert!(Process::Own.written_bytes().is_some());
        assert!(memory_available_bytes() > Some(1 << 20) && memory_available_bytes() < memory_total_bytes());
        assert_eq!(Process::Id(u32::MAX).cpu_seconds(), None);
        assert!(Process::Id(u32::MAX).is_gone() && !Process::Id(std::process::id()).is_gone());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_nobody_has_fetched_yet_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::Id(child.id());
        while !process.is_gone() {
            std::thread::yield_now();
        }
        assert_eq!(process.started_ticks(), None);
        child.wait().unwrap();
    }
}
