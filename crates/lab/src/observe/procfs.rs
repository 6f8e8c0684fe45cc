//! Resource usage of a process so far, as counted by the Linux kernel. `None` if the process is gone or the system is not
//! Linux.

use std::fs;

/// The unit of CPU times in `/proc`: `USER_HZ` is 100 on every architecture that Linux calls x86 or Arm.
const TICKS_PER_SECOND: f64 = 100.0;

/// Identity of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// This one.
    Own,
    /// Another, by its id.
    Id(u32),
}

impl Process {
    fn read(self, file: &str) -> Option<String> {
        let path = match self {
            Self::Own => format!("/proc/self/{file}"),
            Self::Id(pid) => format!("/proc/{pid}/{file}"),
        };
        fs::read_to_string(path).ok()
    }

    /// When it was started, in clock ticks since the machine was (field 22 of `stat`): with it an id means one process,
    /// for ids are given out again. `None` also where it only waits to be fetched by its parent.
    pub fn started_ticks(self) -> Option<u64> {
        started_ticks(&self.read("stat")?)
    }

    /// True once no thread of it is left: where only the first one has ended, the others still hold ports and locks.
    pub fn is_gone(self) -> bool {
        let Self::Id(pid) = self else { return false };
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        self.started_ticks().is_none() && threads <= 1
    }

    /// User and system time of all its threads, in seconds.
    pub fn cpu_seconds(self) -> Option<f64> {
        cpu_seconds(&self.read("stat")?)
    }

    /// Resident memory now, in bytes (`VmRSS`).
    pub fn rss_bytes(self) -> Option<u64> {
        kib_field(&self.read("status")?, "VmRSS:")
    }

    /// The most resident memory it ever had, in bytes (`VmHWM`).
    pub fn rss_peak_bytes(self) -> Option<u64> {
        kib_field(&self.read("status")?, "VmHWM:")
    }

    /// Bytes it caused to be written to storage (`write_bytes`).
    pub fn written_bytes(self) -> Option<u64> {
        let io = self.read("io")?;
        io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
    }
}

/// Memory that new work may take without swapping, in bytes (`MemAvailable`).
pub fn memory_available_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// All memory of this machine, in bytes (`MemTotal`).
pub fn memory_total_bytes() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

fn started_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Fields 14 and 15 of `/proc/<pid>/stat`; the second field, the name, may hold spaces and parentheses.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (next()?, next()?);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let stat = "42 (a (b) c) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 1 1 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("42 (x) S 1"), None);
        assert_eq!(started_ticks(stat), Some(100));
        assert_eq!(started_ticks(&stat.replace(") S", ") Z")), None);
        assert_eq!(kib_field("VmHWM:\t  12 kB\nVmRSS:\t   8 kB\n", "VmRSS:"), Some(8192));
        assert_eq!(kib_field("VmHWM: many", "VmHWM:"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn knows_itself_and_nobody() {
        assert!(Process::Own.cpu_seconds().is_some());
        // the one that can only grow is read last: other tests allocate meanwhile
        let rss_bytes = Process::Own.rss_bytes();
        assert!(Process::Own.rss_peak_bytes() >= rss_bytes);
        assert!(memory_available_bytes().is_some());
        assert_eq!(Process::Id(u32::MAX).cpu_seconds(), None);
        assert!(Process::Id(u32::MAX).is_gone() && !Process::Id(std::process::id()).is_gone());
    }
}
