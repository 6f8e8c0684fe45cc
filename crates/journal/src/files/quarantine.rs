//! Keeps copies of damaged bytes, and counts damage.
//!
//! ```text
//!   <dir>/<partition>/quarantine/<segment>.<from>-<to>.bytes     the damaged bytes
//!   <dir>/<partition>/quarantine/<segment>.<from>-<to>.txt       kind of damage, and lost records
//!   <dir>/<partition>/quarantine/<segment>.journal               a whole segment, moved here when dropped
//! ```
//!
//! Readers report the damage until the segment is dropped. The copy stays until an operator removes it. A
//! segment with a record that cannot be decoded is not deleted when it is dropped, but moved here, because
//! the record cannot be read without the segment's definitions.

use super::scan::Hole;
use super::window::Window;
use crate::disk::{self, Access, Disk, Mode};
use crate::{Damage, JournalError, JournalStats};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const COPY_BYTES: usize = 64 << 10;

/// This many damaged ranges are remembered, so that they are not counted again when another reader finds them.
const REMEMBERED_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Quarantine {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Offset of the oldest record. Segments before it were dropped by the journal.
    start: AtomicU64,
    found: Mutex<DamageFound>,
}

#[derive(Debug, Default)]
struct DamageFound {
    /// First offsets of the segments that will be moved to the quarantine when they are dropped, and not
    /// deleted.
    kept: BTreeSet<u64>,
    /// The segment file and position of each damaged range that was counted.
    seen: BTreeSet<(PathBuf, u64)>,
    damaged_ranges: u64,
    lost_records: u64,
    repaired_records: u64,
}

impl Quarantine {
    pub(super) fn new(disk: Arc<dyn Disk>, partition_dir: &Path) -> Self {
        let dir = folder(partition_dir);
        Self { disk, dir, start: AtomicU64::new(0), found: Mutex::default() }
    }

    pub(super) fn set_start(&self, start: u64) {
        self.start.store(start, Ordering::Release);
    }

    pub(super) fn add_to(&self, stats: &mut JournalStats) {
        let found = self.lock();
        stats.damaged_ranges = found.damaged_ranges;
        stats.lost_records = found.lost_records;
        stats.repaired_records = found.repaired_records;
    }

    /// Copies the damaged bytes to the quarantine. If that fails, the damage is still reported, but without a
    /// copy.
    pub(super) fn put(&self, window: &mut Window, hole: Hole) -> Damage {
        let Hole { bytes, lost, acknowledged, repaired, what } = hole;
        let place = format!("{}: bytes {} to {}", window.path().display(), bytes.start, bytes.end);
        let mut damage = Damage { place, lost, acknowledged, repaired, what, copy: None };
        if !bytes.is_empty() {
            let copy = self.copy(window, &bytes, &describe(&damage));
            damage.copy = copy.ok().map(|path| path.display().to_string());
        }
        self.count(window.path(), bytes.start, &damage);
        damage
    }

    /// Copies the end of the newest segment before it is cut off. It looks like an unfinished write, but may
    /// also be damage to acknowledged records. If the copy fails, the end is cut off nevertheless.
    pub(super) fn put_torn(&self, window: &mut Window, bytes: &Range<u64>) {
        let segment = window.path().display();
        let report = format!(
            "{segment}: bytes {} to {}: the end of the newest segment was cut off; its records were most likely never acknowledged\n",
            bytes.start, bytes.end
        );
        let _ = self.copy(window, bytes, &report);
    }

    /// Handles a segment whose file is missing. Returns `None` if the journal has dropped the segment in the
    /// meantime. Otherwise, its records are lost, and the damage is returned.
    pub(super) fn missing(&self, segment: &Path, lost: Range<u64>) -> Option<Damage> {
        if lost.end <= self.start.load(Ordering::Acquire) {
            return None;
        }
        let damage = Damage {
            place: segment.display().to_string(),
            lost,
            acknowledged: true,
            repaired: false,
            what: "a segment whose file is missing",
            copy: None,
        };
        self.count(segment, 0, &damage);
        Some(damage)
    }

    /// Marks a segment, so that it is moved here when it is dropped.
    pub(super) fn keep(&self, first: u64) {
        self.lock().kept.insert(first);
    }

    pub(super) fn wants(&self, first: u64) -> bool {
        self.lock().kept.contains(&first)
    }

    /// Moves a marked segment here. It is no error if the file is missing.
    pub(super) fn take(&self, segment: &Path, first: u64) -> Result<(), JournalError> {
        let Some(name) = segment.file_name() else { return Ok(()) };
        disk::create_dir_all(&*self.disk, &self.dir, Access::Private)
            .map_err(|e| JournalError::io("create", &self.dir, e))?;
        match self.disk.rename(segment, &self.dir.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(JournalError::io("move", segment, e));
            }
            _ => self.disk.sync_dir(&self.dir).map_err(|e| JournalError::io("fsync", &self.dir, e))?,
        }
        self.lock().kept.remove(&first);
        Ok(())
    }

    fn count(&self, segment: &Path, at: u64, damage: &Damage) {
        let mut found = self.lock();
        if found.seen.insert((segment.into(), at)) {
            found.damaged_ranges += 1;
            found.lost_records += damage.lost.end - damage.lost.start;
            found.repaired_records += u64::from(damage.repaired);
        }
        if found.seen.len() > REMEMBERED_MAX {
            found.seen.pop_first();
        }
    }

    fn copy(&self, window: &mut Window, bytes: &Range<u64>, text: &str) -> Result<PathBuf, JournalError> {
        let name = window.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let stem = format!("{name}.{}-{}", bytes.start, bytes.end);
        let copy = self.dir.join(format!("{stem}.bytes"));
        let report = self.dir.join(format!("{stem}.txt"));
        if self.disk.open(&report, Mode::Read).is_ok() {
            return Ok(copy);
        }
        let io = |operation: &'static str, path: &Path| {
            let path = path.to_path_buf();
            move |e: io::Error| JournalError::io(operation, &path, e)
        };
        disk::create_dir_all(&*self.disk, &self.dir, Access::Private).map_err(io("create", &self.dir))?;
        let file = self.disk.open(&copy, Mode::Create).map_err(io("create", &copy))?;
        let mut at = bytes.start;
        while at < bytes.end {
            let len = (bytes.end - at).min(COPY_BYTES as u64);
            let chunk = window.get(at, len as usize)?;
            if chunk.is_empty() {
                break;
            }
            file.write_at(chunk, at - bytes.start).map_err(io("write", &copy))?;
            at += chunk.len() as u64;
        }
        // the report is written last, so that a report proves a complete copy
        let file = self.disk.open(&report, Mode::Create).map_err(io("create", &report))?;
        file.write_at(text.as_bytes(), 0).map_err(io("write", &report))?;
        Ok(copy)
    }

    fn lock(&self) -> MutexGuard<'_, DamageFound> {
        self.found.lock().expect("BUG: a thread panicked while it counted damage")
    }
}

pub(super) fn folder(partition_dir: &Path) -> PathBuf {
    partition_dir.join("quarantine")
}

fn describe(damage: &Damage) -> String {
    let Damage { place, lost, what, .. } = damage;
    let durable =
        if damage.acknowledged { "which were durable" } else { "which may never have been acknowledged" };
    let lost = match lost.end - lost.start {
        0 => "no records lost".to_string(),
        n => format!("records lost: {n}, offsets {} to {}, {durable}", lost.start, lost.end - 1),
    };
    format!("{place}: {what}; {lost}\n")
}
