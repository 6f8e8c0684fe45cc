//! Resources available to the process: processors, memory and open files.

mod cgroup;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

const MEMORY_BYTES_UNKNOWN: u64 = 1 << 30;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) memory: Memory,
    pub(crate) files_max: u64,
    /// Returns the size of the file system that contains a path, or `None` if it is unknown.
    pub(crate) disk_bytes: fn(&Path) -> Option<u64>,
}

impl Machine {
    pub(crate) fn here() -> Self {
        Self { cores: cores(), memory: Memory::of(Path::new("/")), files_max: files_max(), disk_bytes }
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// If the process uses more than this, the kernel may reclaim its memory, throttle it or kill it.
    pub bytes: u64,
    pub source: String,
}

impl Memory {
    /// Returns the memory of the machine, or the smallest limit of the process' control groups if that is
    /// less. `root` is `/`, except in tests.
    pub fn of(root: &Path) -> Self {
        let machine = machine_bytes(root);
        match cgroup::memory_limit(root) {
            Some((bytes, file)) if bytes < machine => {
                let file = file.strip_prefix(root).unwrap_or(&file);
                Self { bytes, source: format!("the control group's limit (/{})", file.display()) }
            }
            _ => Self { bytes: machine, source: "the machine's memory".into() },
        }
    }
}

fn machine_bytes(root: &Path) -> u64 {
    let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let kib = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|v| v.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(MEMORY_BYTES_UNKNOWN, |kib| kib << 10)
}

/// Returns the anonymous memory of the process as counted by the kernel, or 0 if it is unknown. Pages of
/// files do not count, because the kernel can drop them.
pub(crate) fn private_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|l| l.strip_prefix("RssAnon:"))
        .and_then(|v| v.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib << 10)
}

/// Space of a file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskSpace {
    pub(crate) free_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// The space of the file system of `path`. `None` if the system does not know it.
pub(crate) fn disk_space(path: &Path) -> Option<DiskSpace> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| disk.f_frsize.saturating_mul(blocks);
    Some(DiskSpace { free_bytes: bytes(disk.f_bavail), total_bytes: bytes(disk.f_blocks) })
        .filter(|space| space.total_bytes > 0)
}

fn disk_bytes(path: &Path) -> Option<u64> {
    disk_space(path).map(|space| space.total_bytes)
}

/// Returns how many files may be open after [`raise_files`].
fn files_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Raises the limit on open files to the hard limit. This needs no privileges.
pub fn raise_files() -> std::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_machine_counts_unless_a_cgroup_has_less() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc/self");
        std::fs::create_dir_all(&proc).unwrap();
        assert_eq!(Memory::of(root.path()).bytes, MEMORY_BYTES_UNKNOWN);
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal:       16 kB\nMemFree: 3 kB\n").unwrap();
        assert_eq!(
            Memory::of(root.path()),
            Memory { bytes: 16 << 10, source: "the machine's memory".into() }
        );
        let group = root.path().join("sys/fs/cgroup/a");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(proc.join("cgroup"), "0::/a\n").unwrap();
        std::fs::write(group.join("memory.max"), "32768\n").unwrap();
        assert_eq!(Memory::of(root.path()).bytes, 16 << 10, "wider than the machine");
        std::fs::write(group.join("memory.max"), "8192\n").unwrap();
        let source = "the control group's limit (/sys/fs/cgroup/a/memory.max)".into();
        assert_eq!(Memory::of(root.path()), Memory { bytes: 8 << 10, source });
    }

    #[test]
    fn the_limit_of_open_files_can_be_raised_to_files_max() {
        raise_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), files_max());
    }
}
