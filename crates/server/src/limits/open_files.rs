//! Limit on open files, and the connections that it leaves room for.

use super::budget::Budget;

/// With fewer connections, a node is not useful and does not start.
const CONNECTIONS_MIN: usize = 16;

/// Minimum of the default of `connections`, regardless of memory. A budget of 64 MiB would only give 39
/// connections, which a few hundred slow senders can occupy.
const DEFAULT_MIN: u64 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    pub most: u64,
    /// Files reserved for other purposes: 8 per partition for journals, 4 per query for tables, and 128 for the
    /// rest.
    pub reserved: u64,
}

/// Returns the default: as many connections of `each_bytes` as the memory budget has room for, but at least
/// [`DEFAULT_MIN`] and at most 4096.
pub(crate) fn connections_default(budget: &Budget, each_bytes: usize) -> usize {
    (budget.connections_bytes() / each_bytes as u64).clamp(DEFAULT_MIN, 4096) as usize
}

impl Files {
    pub(crate) fn of(most: u64, partitions: usize, query_concurrency: usize) -> Self {
        Self { most, reserved: (128 + 8 * partitions + 4 * query_concurrency) as u64 }
    }

    /// Returns the number of connections to allow: `wanted`, or fewer if too few files may be open. Fails
    /// below [`CONNECTIONS_MIN`].
    pub(crate) fn connections(
        &self,
        wanted: usize,
        each_bytes: usize,
        is_given: bool,
        budget: &Budget,
        warnings: &mut Vec<String>,
    ) -> Result<usize, String> {
        let most = self.for_connections();
        if most < CONNECTIONS_MIN {
            return Err(format!(
                "{self}: too few are left for connections; raise the limit (ulimit -n, LimitNOFILE=)"
            ));
        }
        if wanted > most {
            warnings.push(format!("connections = {wanted} is lowered to {most}: {self}"));
        }
        let granted = wanted.min(most);
        let (may_hold, bytes) = (granted as u64 * each_bytes as u64, budget.connections_bytes());
        if is_given && may_hold > bytes {
            warnings.push(format!(
                "connections = {granted} may hold {} MiB, {} KiB each, but the memory budget has only {} MiB for them",
                may_hold >> 20,
                each_bytes >> 10,
                bytes >> 20
            ));
        }
        Ok(granted)
    }

    /// Number of files that are left for connections.
    pub(crate) fn for_connections(&self) -> usize {
        usize::try_from(self.most.saturating_sub(self.reserved)).unwrap_or(usize::MAX)
    }
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the limit on open files (RLIMIT_NOFILE) is {}, and {} are reserved for other purposes",
            self.most, self.reserved
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::budget::{CONNECTION_BYTES, connection_bytes};

    #[test]
    fn connections_stay_below_the_limit_of_files() {
        let budget = Budget::of(1 << 30).unwrap();
        let check = |most, given| {
            let mut warnings = Vec::new();
            let wanted: Option<usize> = given;
            let files = Files::of(most, 2, 4);
            let (default, is_given) = (connections_default(&budget, CONNECTION_BYTES), wanted.is_some());
            let wanted = wanted.unwrap_or(default);
            (files.connections(wanted, CONNECTION_BYTES, is_given, &budget, &mut warnings), warnings)
        };
        // 128 + 8 × 2 + 4 × 4 are reserved
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
            for (is_encrypted, enough_mib, spare) in [(false, 192, 6_400 << 10), (true, 372, 15_600 << 10)] {
                let each_bytes = connection_bytes(is_encrypted);
                let found = connections_default(&budget, each_bytes);
                assert!((DEFAULT_MIN as usize..=4096).contains(&found));
                let spare = if mib < enough_mib { spare } else { 0 };
                assert!(
                    (found * each_bytes) as u64 <= budget.connections_bytes() + spare,
                    "{found} of {budget}"
                );
            }
        }
        assert!(check(170, None).0.unwrap_err().contains("LimitNOFILE"));
    }
}
