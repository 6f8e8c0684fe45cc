use crate::retry::{time_to_end, until_attempt};
use model::SeriesRefusal;
use std::time::{Duration, Instant};

pub const REASON: &str = "process_memory";

/// New work that needs memory is refused when the process holds this percentage of `--memory`. All accounts
/// together take at most 93 %.
const HIGH_PERCENT: u64 = 95;

/// How much memory the process has, as counted by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    pub held_bytes: u64,
    /// The value of `--memory`.
    pub limit_bytes: u64,
}

impl ProcessMemory {
    const fn high_bytes(self) -> u64 {
        self.limit_bytes / 100 * HIGH_PERCENT
    }

    /// Fails if the process has no memory left for new series, new tenants, exports and larger queries.
    pub const fn room(self) -> Result<(), SeriesRefusal> {
        let high_bytes = self.high_bytes();
        if self.held_bytes < high_bytes {
            return Ok(());
        }
        Err(SeriesRefusal::NoMemory { used_mib: self.held_bytes >> 20, limit_mib: high_bytes >> 20 })
    }
}

/// A period in which the process is short of memory.
#[derive(Debug, Clone, Copy)]
pub struct MemoryShortage {
    began: Instant,
    /// The highest use, and when it was read last.
    peak_bytes: u64,
    peak_at: Instant,
    /// The last reading.
    memory: ProcessMemory,
    at: Instant,
}

impl MemoryShortage {
    /// Notes a reading. `before` is the shortage up to the reading before. `None` if there is none any more.
    pub fn noted(before: Option<Self>, memory: ProcessMemory, at: Instant) -> Option<Self> {
        if memory.room().is_ok() {
            return None;
        }
        let held_bytes = memory.held_bytes;
        let new = Self { began: at, peak_bytes: held_bytes, peak_at: at, memory, at };
        Some(match before {
            Some(before) if before.peak_bytes > held_bytes => Self { memory, at, ..before },
            Some(before) => Self { began: before.began, ..new },
            None => new,
        })
    }

    /// Estimates the rest of the shortage. If the use has fallen since its peak: 1 to 30 s, if it goes on to fall as fast. Otherwise 3 to
    /// 30 s: as long again as the shortage has lasted.
    pub fn wait(self) -> Duration {
        let Self { began, peak_bytes, peak_at, memory, at } = self;
        match peak_bytes.saturating_sub(memory.held_bytes) {
            0 => until_attempt(at.saturating_duration_since(began)),
            fallen => {
                let above_bytes = peak_bytes.saturating_sub(memory.high_bytes());
                time_to_end(fallen, above_bytes, at.saturating_duration_since(peak_at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_refused_from_95_percent() {
        for (held_bytes, has_room) in [(0, true), (949, true), (950, false), (5000, false)] {
            assert_eq!(
                ProcessMemory { held_bytes, limit_bytes: 1000 }.room().is_ok(),
                has_room,
                "{held_bytes}"
            );
        }
    }

    #[test]
    fn a_shortage_is_expected_to_end_as_memory_falls() {
        let began = Instant::now();
        let mut shortage = None;
        let mut check = |second, held_bytes, expected: Option<u64>| {
            let memory = ProcessMemory { held_bytes, limit_bytes: 1000 };
            shortage = MemoryShortage::noted(shortage, memory, began + Duration::from_secs(second));
            let wait = shortage.map(|shortage| shortage.wait().as_secs());
            assert_eq!(wait, expected, "{held_bytes} bytes after {second} s");
        };
        check(0, 949, None);
        check(10, 950, Some(3)); // nothing is known yet
        check(14, 970, Some(4));
        check(20, 990, Some(10));
        check(24, 990, Some(14)); // it stays at its peak
        check(26, 980, Some(6)); // 30 of 40 bytes are left, and 10 took 2 s
        check(32, 960, Some(2));
        check(999, 959, Some(30));
        check(1000, 949, None);
        check(1001, 990, Some(3)); // another shortage
    }
}
