//! Resident memory of the process and its limit.

use model::SeriesRefusal;

/// Reason, in metrics and logs, of refusals for lack of process memory.
pub const REASON: &str = "process_memory";

/// Percentage of `--memory` from which work that makes the process grow is refused. If all accounts are full, they take
/// 93 % together. The rest is for work that has already begun.
const HIGH_PERCENT: u64 = 95;

/// Memory of the process, as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Bytes that the process holds.
    pub held_bytes: u64,
    /// `--memory`.
    pub limit_bytes: u64,
}

impl ProcessMemory {
    /// Checks for room for work that makes the process grow: new series and tenants, exports, queries that are not small.
    pub const fn room(self) -> Result<(), SeriesRefusal> {
        let high_bytes = self.limit_bytes / 100 * HIGH_PERCENT;
        if self.held_bytes < high_bytes {
            return Ok(());
        }
        Err(SeriesRefusal::NoMemory { used_mib: self.held_bytes >> 20, limit_mib: high_bytes >> 20 })
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
}
