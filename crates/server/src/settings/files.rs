//! Files that may be open, and how many connections that leaves.

use super::SettingsError;
use super::value::{count_or, wrong};
use crate::limits::budget::{Budget, CONNECTION_BYTES};

/// Connections with which a node is still of use.
const CONNECTIONS_MIN: usize = 16;

/// The default has no fewer, whatever the memory: with 39, as 64 MiB would leave, a few hundred slow senders kept everybody
/// else out. With less than 192 MiB they may hold more than their part, by 6.2 MiB at the most.
const DEFAULT_MIN: u64 = 128;

/// The files that the process may have open, as a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// The limit, `RLIMIT_NOFILE`.
    pub most: u64,
    /// What everything but connections may need: the journals' segments (8 for each partition), requests for tables
    /// (4 for each query), and 128 for the rest.
    pub reserved: u64,
}

impl Files {
    pub(super) fn of(most: u64, partitions: usize, query_concurrency: usize) -> Self {
        Self { most, reserved: (128 + 8 * partitions + 4 * query_concurrency) as u64 }
    }

    /// Open connections: as given, or as many as there is memory for; never more than there are files for.
    pub(super) fn connections(
        &self,
        given: Option<usize>,
        budget: &Budget,
        warnings: &mut Vec<String>,
    ) -> Result<usize, SettingsError> {
        let bytes = budget.connections_bytes();
        let default = (bytes / CONNECTION_BYTES as u64).clamp(DEFAULT_MIN, 4096);
        let wanted = count_or("connections", given, default as usize, 1 << 20)?;
        let most = self.for_connections();
        if most < CONNECTIONS_MIN {
            let reason = format!("{self} leave too few for connections; raise it (ulimit -n, LimitNOFILE=)");
            return Err(wrong("connections", &wanted.to_string(), reason));
        }
        if wanted > most {
            warnings.push(format!("connections = {wanted} is lowered to {most}: {self}"));
        }
        let granted = wanted.min(most);
        let may_hold = granted as u64 * CONNECTION_BYTES as u64;
        if given.is_some() && may_hold > bytes {
            warnings.push(format!(
                "connections = {granted} may hold {} MiB, {} KiB each, where memory leaves {} MiB for them",
                may_hold >> 20,
                CONNECTION_BYTES >> 10,
                bytes >> 20
            ));
        }
        Ok(granted)
    }

    fn for_connections(&self) -> usize {
        usize::try_from(self.most.saturating_sub(self.reserved)).unwrap_or(usize::MAX)
    }
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} open files (RLIMIT_NOFILE), {} of them for other things,", self.most, self.reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_stay_below_the_limit_of_files() {
        let budget = Budget::of(1 << 30).unwrap();
        let check = |most, given| {
            let mut warnings = Vec::new();
            let found = Files::of(most, 2, 4).connections(given, &budget, &mut warnings);
            (found.map_err(|e| e.to_string()), warnings)
        };
        // 128 + 8 × 2 + 4 × 4 are for other things
        assert_eq!(check(20_000, None), (Ok(722), vec![]));
        assert_eq!(check(20_000, Some(700)), (Ok(700), vec![]));
        let (found, warnings) = check(20_000, Some(5000));
        assert_eq!(found, Ok(5000));
        assert!(warnings[0].contains("may hold 351 MiB, 72 KiB each"), "{warnings:?}");
        let (found, warnings) = check(1024, Some(5000));
        assert_eq!(found, Ok(864));
        assert!(warnings[0].contains("connections = 5000") && warnings[0].contains("1024"), "{warnings:?}");
        for mib in [64, 100, 128, 191, 192, 256, 500, 1024, 4096, 6144, 16_384, 65_536] {
            let budget = Budget::of(mib << 20).unwrap();
            let found = Files::of(1 << 20, 2, 4).connections(None, &budget, &mut Vec::new()).unwrap();
            assert!((DEFAULT_MIN as usize..=4096).contains(&found));
            let spare = if mib < 192 { 6_400 << 10 } else { 0 };
            assert!(
                (found * CONNECTION_BYTES) as u64 <= budget.connections_bytes() + spare,
                "{found} of {budget}"
            );
        }
        assert!(check(170, None).0.unwrap_err().contains("LimitNOFILE"));
    }
}
