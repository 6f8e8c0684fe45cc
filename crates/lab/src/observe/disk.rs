//! The disk that stores the target's data, with the same figures as iostat.

use super::{Look, rate};
use anyhow::Result;
use procfs::DiskStat;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel counts in sectors of this size, whatever the real sector size of the disk.
const SECTOR_BYTES: f64 = 512.0;

#[derive(Debug)]
pub(super) struct Disk {
    device: (u64, u64),
    before: Option<DiskStat>,
    written_bytes: f64,
}

impl Disk {
    /// Finds the disk that stores a directory. `None` if there is none, for example if the file system is in memory.
    pub(super) fn of(dir: &Path) -> Result<Option<Self>> {
        let dev = fs::metadata(dir)?.dev();
        // splits the device number like `gnu_dev_major` and `gnu_dev_minor` of glibc
        let device = ((dev >> 8) & 0xfff | (dev >> 32) & !0xfff, dev & 0xff | (dev >> 12) & !0xff);
        let before = stats(device);
        Ok(before.is_some().then_some(Self { device, before, written_bytes: 0.0 }))
    }

    pub(super) fn look(&mut self, seconds: f64, look: &mut Look) {
        if let Some(now) = stats(self.device) {
            self.compare(now, seconds, look);
        }
    }

    /// Computes figures from the growth of the disk's counters (`Documentation/admin-guide/iostats.rst` in Linux).
    fn compare(&mut self, now: DiskStat, seconds: f64, look: &mut Look) {
        let Some(before) = self.before.replace(now.clone()) else { return };
        let requests = (now.reads + now.writes).saturating_sub(before.reads + before.writes);
        let waited_ms =
            (now.time_reading + now.time_writing).saturating_sub(before.time_reading + before.time_writing);
        if requests > 0 {
            look.set("disk/await", "s", waited_ms as f64 / 1e3 / requests as f64);
        }
        look.set(
            "disk/util",
            "part",
            (rate(now.time_in_progress, before.time_in_progress, seconds) / 1e3).min(1.0),
        );
        look.set(
            "disk/queue",
            "",
            rate(now.weighted_time_in_progress, before.weighted_time_in_progress, seconds) / 1e3,
        );
        look.set("disk/read", "bytes/s", rate(now.sectors_read, before.sectors_read, seconds) * SECTOR_BYTES);
        let written = rate(now.sectors_written, before.sectors_written, seconds) * SECTOR_BYTES;
        look.set("disk/written", "bytes/s", written);
        look.set("disk/requests", "1/s", requests as f64 / seconds);
        self.written_bytes += written * seconds;
    }

    pub(super) fn end(&self, observed: &mut BTreeMap<String, f64>) {
        observed.insert("disk_written_bytes".to_owned(), self.written_bytes);
    }
}

fn stats(device: (u64, u64)) -> Option<DiskStat> {
    let is_ours = |disk: &DiskStat| (disk.major as u64, disk.minor as u64) == device;
    procfs::diskstats().ok()?.into_iter().find(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_what_iostat_shows() {
        let line = |counts: &str| DiskStat::from_line(&format!("259 1 nvme0n1p1 {counts}")).unwrap();
        let before = Some(line("10 0 20 30 40 0 50 60 0 70 80"));
        let mut disk = Disk { device: (259, 1), before, written_bytes: 0.0 };
        let mut look = Look::default();
        disk.compare(line("14 0 24 38 46 0 62 72 0 1070 2080"), 2.0, &mut look);
        let of = |name: &str| look.get(&format!("disk/{name}"));
        assert_eq!(
            (of("requests"), of("await"), of("util"), of("queue")),
            (Some(5.0), Some(0.002), Some(0.5), Some(1.0))
        );
        assert_eq!((of("read"), of("written")), (Some(1024.0), Some(3072.0)));
        assert_eq!(disk.written_bytes, 6144.0);
    }
}
