use model::SeriesRefusal;

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
    /// Fails if the process has no memory left for new series, new tenants, exports and larger queries.
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
