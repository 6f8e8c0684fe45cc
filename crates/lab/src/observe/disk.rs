//! The disk that the target's data lies on, with the columns of iostat.

use super::{Look, rate};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `/proc/diskstats` counts in these, whatever the disk has.
const SECTOR_BYTES: f64 = 512.0;

/// A block device.
#[derive(Debug)]
pub(super) struct Disk {
    device: (u64, u64),
    before: Option<Stats>,
    written_bytes: f64,
}

/// A line of `/proc/diskstats`; see `Documentation/admin-guide/iostats.rst` in Linux.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stats {
    name: String,
    reads: u64,
    sectors_read: u64,
    read_ms: u64,
    writes: u64,
    sectors_written: u64,
    write_ms: u64,
    /// Time with anything under way.
    busy_ms: u64,
    /// That, times how much was under way.
    queue_ms: u64,
}

impl Disk {
    /// The disk of a directory; `None` where it is on none, as on a memory file system.
    pub(super) fn of(dir: &Path) -> Result<Option<Self>> {
        let dev = fs::metadata(dir)?.dev();
        // as glibc's gnu_dev_major and gnu_dev_minor
        let device = ((dev >> 8) & 0xfff | (dev >> 32) & !0xfff, dev & 0xff | (dev >> 12) & !0xff);
        let before = stats(device);
        Ok(before.is_some().then_some(Self { device, before, written_bytes: 0.0 }))
    }

    pub(super) fn look(&mut self, seconds: f64, look: &mut Look) {
        let Some((now, before)) = stats(self.device).zip(self.before.take()) else { return };
        let requests = (now.reads + now.writes).saturating_sub(before.reads + before.writes);
        let waited_ms = (now.read_ms + now.write_ms).saturating_sub(before.read_ms + before.write_ms);
        if requests > 0 {
            look.set("disk/await", "s", waited_ms as f64 / 1e3 / requests as f64);
        }
        look.set("disk/util", "part", (rate(now.busy_ms, before.busy_ms, seconds) / 1e3).min(1.0));
        look.set("disk/queue", "", rate(now.queue_ms, before.queue_ms, seconds) / 1e3);
        look.set("disk/read", "bytes/s", rate(now.sectors_read, before.sectors_read, seconds) * SECTOR_BYTES);
        let written = rate(now.sectors_written, before.sectors_written, seconds) * SECTOR_BYTES;
        look.set("disk/written", "bytes/s", written);
        look.set("disk/requests", "1/s", requests as f64 / seconds);
        self.written_bytes += written * seconds;
        self.before = Some(now);
    }

    pub(super) fn end(&self, observed: &mut BTreeMap<String, f64>) {
        observed.insert("disk_written_bytes".to_owned(), self.written_bytes);
    }
}

fn stats(device: (u64, u64)) -> Option<Stats> {
    parse(&fs::read_to_string("/proc/diskstats").ok()?, device)
}

pub(super) fn parse(text: &str, device: (u64, u64)) -> Option<Stats> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        ((number(0)?, number(1)?) == device).then_some(())?;
        Some(Stats {
            name: fields.get(2)?.to_string(),
            reads: number(3)?,
            sectors_read: number(5)?,
            read_ms: number(6)?,
            writes: number(7)?,
            sectors_written: number(9)?,
            write_ms: number(10)?,
            busy_ms: number(12)?,
            queue_ms: number(13)?,
        })
    })
}
