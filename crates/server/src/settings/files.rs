//! Files that may be open, and how many connections that leaves.

use super::SettingsError;
use super::value::{count_or, wrong};
use crate::budget::Budget;
use crate::http::CONNECTION_BUFFER_BYTES;

/// Connections with which a node is still of use.
const CONNECTIONS_MIN: usize = 16;

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

    /// Open connections: as given, or as many as may fill their buffers; never more than there are files for.
    pub(super) fn connections(
        &self,
        given: Option<usize>,
        budget: &Budget,
        warnings: &mut Vec<String>,
    ) -> Result<usize, SettingsError> {
        let default = budget.connections_bytes() / CONNECTION_BUFFER_BYTES as u64;
        let wanted = count_or("connections", given, default.clamp(128, 4096) as usize, 1 << 20)?;
        let most = self.for_connections();
        if most < CONNECTIONS_MIN {
            let reason = format!("{self} leave too few for connections; raise it (ulimit -n, LimitNOFILE=)");
            return Err(wrong("connections", &wanted.to_string(), reason));
        }
        if wanted > most {
            warnings.push(format!("connections = {wanted} is lowered to {most}: {self}"));
        }
        Ok(wanted.min(most))
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
        assert_eq!(check(20_000, None), (Ok(819), vec![]));
        assert_eq!(check(20_000, Some(5000)), (Ok(5000), vec![]));
        let (found, warnings) = check(1024, Some(5000));
        assert_eq!(found, Ok(864));
        assert!(warnings[0].contains("connections = 5000") && warnings[0].contains("1024"), "{warnings:?}");
        assert!(check(170, None).0.unwrap_err().contains("LimitNOFILE"));
    }
}
