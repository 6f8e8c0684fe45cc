//! Heap profiles, written to `DIR/heap_profiles/` when the memory of the process crosses a watermark.
//!
//! If the kernel kills the process later, the profile shows what held the memory.

use super::Allocator;
use crate::limits::headroom::Headroom;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, thread};
use stdx::clock::Clock;
use stdx::telemetry::{Counter, Registry};

const FOLDER: &str = "heap_profiles";

const SUFFIX: &str = ".heap";

const CHECK_EVERY: Duration = Duration::from_millis(500);

const INTERVAL_MIN: Duration = Duration::from_secs(60);

/// Limit on the profiles in the folder. A further profile replaces the oldest.
const PROFILES_MAX: usize = 10;

pub(crate) fn register(r: &Registry) -> Counter {
    r.counter(
        "floodmark_heap_profiles_total",
        "Heap profiles written because the memory of the process crossed a watermark.",
    )
}

#[derive(Debug)]
pub(crate) struct HeapProfiles {
    allocator: Arc<dyn Allocator>,
    clock: Arc<dyn Clock>,
    headroom: Arc<Headroom>,
    /// A profile is written when the process uses this percentage of `--memory`.
    percent: u64,
    folder: PathBuf,
    last: Option<Instant>,
    written: Counter,
}

impl HeapProfiles {
    pub(crate) fn new(
        allocator: Arc<dyn Allocator>,
        clock: Arc<dyn Clock>,
        headroom: Arc<Headroom>,
        percent: usize,
        data_dir: &Path,
        written: Counter,
    ) -> Self {
        let percent = percent as u64;
        Self { allocator, clock, headroom, percent, folder: data_dir.join(FOLDER), last: None, written }
    }

    pub(crate) fn run(mut self, stopping: &AtomicBool) {
        while !stopping.load(Ordering::Acquire) {
            self.check();
            thread::park_timeout(CHECK_EVERY);
        }
    }

    fn check(&mut self) {
        let (memory, now) = (self.headroom.memory(), self.clock.instant());
        let is_high = memory.held_bytes >= memory.limit_bytes / 100 * self.percent;
        let is_recent = self.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL_MIN);
        if !is_high || is_recent {
            return;
        }
        // set even if writing then fails, so that a full disk causes one attempt a minute
        self.last = Some(now);
        match self.write(memory.held_bytes) {
            Ok(file) => {
                self.written.inc();
                tracing::warn!(
                    held_bytes = memory.held_bytes,
                    limit_bytes = memory.limit_bytes,
                    file = %file.display(),
                    "memory is above the watermark: heap profile written"
                );
            }
            Err(error) => {
                tracing::warn!(%error, folder = %self.folder.display(), "cannot write a heap profile")
            }
        }
    }

    fn write(&self, held_bytes: u64) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.folder)?;
        // before the new profile is written, to make room on the disk
        self.delete_oldest()?;
        let file = self.folder.join(format!("{}-{}MiB{SUFFIX}", self.clock.now_ms(), held_bytes >> 20));
        if let Err(error) = self.allocator.write_profile(&file) {
            let _ = fs::remove_file(&file); // incomplete, and may not exist
            return Err(error);
        }
        Ok(file)
    }

    /// Deletes the oldest profiles, to make room for one more. They are found by name: names begin with the time, and
    /// sort by it until the year 2286.
    fn delete_oldest(&self) -> io::Result<()> {
        let mut profiles = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.to_str().is_some_and(|name| name.ends_with(SUFFIX)) {
                profiles.push(path);
            }
        }
        profiles.sort_unstable();
        let surplus = (profiles.len() + 1).saturating_sub(PROFILES_MAX);
        profiles.iter().take(surplus).try_for_each(fs::remove_file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::HeapStatistics;
    use crate::world::Resident;
    use std::sync::atomic::AtomicU64;
    use stdx::clock::ManualClock;

    #[derive(Debug)]
    struct Fake;

    impl Allocator for Fake {
        fn statistics(&self) -> Option<HeapStatistics> {
            None
        }

        fn write_profile(&self, file: &Path) -> io::Result<()> {
            fs::write(file, "heap")
        }
    }

    #[derive(Debug, Default)]
    struct Held(AtomicU64);

    impl Resident for Held {
        fn bytes(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn profiles_are_written_above_the_watermark_once_a_minute_and_the_newest_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let held = Arc::new(Held::default());
        let headroom = Headroom::new(Some(Arc::clone(&held) as _), Arc::clone(&clock) as _, 1000 << 20);
        let mut profiles = HeapProfiles::new(
            Arc::new(Fake),
            Arc::clone(&clock) as _,
            Arc::new(headroom),
            80,
            dir.path(),
            register(&Registry::default()),
        );
        let mut check = |mib: u64, after_s: u64| {
            clock.advance(after_s * 1000);
            held.0.store(mib << 20, Ordering::Relaxed);
            profiles.check();
            let folder = fs::read_dir(dir.path().join(FOLDER));
            let mut names: Vec<_> = folder
                .map(|entries| {
                    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
                })
                .unwrap_or_default();
            names.sort();
            names
        };
        assert_eq!(check(799, 1), Vec::<String>::new());
        assert_eq!(check(801, 1).len(), 1);
        assert_eq!(check(900, 59).len(), 1, "too soon after the last");
        let two = check(900, 1);
        assert!(
            two.len() == 2 && two[0].ends_with("-801MiB.heap") && two[1].ends_with("-900MiB.heap"),
            "{two:?}"
        );
        assert_eq!(check(700, 60).len(), 2, "memory is below the watermark");
        let last = (0..20).map(|_| check(850, 60)).last().unwrap();
        assert!(
            last.len() == PROFILES_MAX && last.iter().all(|name| name.ends_with("-850MiB.heap")),
            "{last:?}"
        );
    }
}
