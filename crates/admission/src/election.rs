//! Elects one replica of each cluster; only the elected replica's samples are stored.
//!
//! Prometheus servers that scrape the same targets send the same series, with slightly different timestamps and values.
//! They are the *replicas* of a *cluster*. The first replica that sends samples is elected: its samples are stored, and
//! samples of the other replicas are duplicates. Once the elected replica has sent nothing for the failover time, the
//! next replica that sends samples takes over.
//!
//! ```text
//!   a elected    │    nothing from a      │ b elected
//!   a a a a a a  │ ◀─ failover time ─▶    │
//!   b b b b b b  │ b  b  b  b  b  b  b  b │ b b b b b b     b's samples are stored from here on, if they are newer than
//!                                                            all stored samples of a
//! ```
//!
//! So the samples of two replicas never mix: each span of time has the samples of one replica.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Limit on the length of the names of clusters and replicas. Names of pods have up to 253 bytes. Replicas with longer
/// names are not elected.
pub const REPLICA_NAME_BYTES_MAX: usize = 256;

/// Upper bound on the memory of a cluster: its map entry with the map's spare capacity, and the two names.
pub const CLUSTER_BYTES: u64 = (4 * size_of::<Election>() + 2 * REPLICA_NAME_BYTES_MAX) as u64;

/// Time without requests after which a cluster may be forgotten to make room. The failover time applies instead if it
/// is longer.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// Elected replicas of a tenant's clusters. The caller bounds their number.
#[derive(Debug, Default)]
pub struct Elections(HashMap<Box<str>, Election>);

/// The elected replica of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    pub replica: Box<str>,
    /// Time at which the replica was elected.
    pub since: Instant,
    /// Time of the replica's latest request.
    pub heard: Instant,
    /// Number of failovers before this replica was elected.
    pub failovers: u64,
    /// Timestamp of the newest sample accepted from any replica.
    newest_ms: i64,
    /// Samples of this replica up to this timestamp are duplicates of an earlier replica's samples.
    after_ms: i64,
}

/// Arrival of samples.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    pub now: Instant,
    /// Time of arrival by the wall clock.
    pub now_ms: i64,
    /// Time without a request from the elected replica after which another one is elected.
    pub failover: Duration,
}

/// Decision on the samples of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// The replica was elected just now. Its samples newer than this timestamp are accepted; older samples are
    /// duplicates.
    Elected(i64),
    /// The replica was elected before. Its samples up to this timestamp are duplicates: an earlier elected replica sent
    /// them.
    After(i64),
    /// All samples are duplicates: another replica is elected.
    Duplicate,
}

impl Elections {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a replica of the cluster is elected.
    pub fn contains(&self, cluster: &str) -> bool {
        self.0.contains_key(cluster)
    }

    /// Clusters, each with its elected replica.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Election)> {
        self.0.iter().map(|(cluster, election)| (&**cluster, election))
    }

    /// Decides which samples of a replica are accepted. The replica is elected if its cluster has no elected replica,
    /// or if the elected replica was silent for the failover time.
    pub fn vote(&mut self, cluster: &str, replica: &str, arrival: Arrival) -> Vote {
        let Arrival { now, .. } = arrival;
        let Some(election) = self.0.get_mut(cluster) else {
            let (newest_ms, after_ms) = (i64::MIN, i64::MIN);
            let election = Election {
                replica: replica.into(),
                since: now,
                heard: now,
                failovers: 0,
                newest_ms,
                after_ms,
            };
            self.0.insert(cluster.into(), election);
            return Vote::Elected(after_ms);
        };
        if *election.replica == *replica {
            election.heard = election.heard.max(now);
            return Vote::After(election.after_ms);
        }
        match election.fail_over(replica, arrival) {
            true => Vote::Elected(election.after_ms),
            false => Vote::Duplicate,
        }
    }

    /// Records the timestamp of the newest accepted sample.
    pub fn accepted(&mut self, cluster: &str, newest_ms: i64) {
        if let Some(election) = self.0.get_mut(cluster) {
            election.newest_ms = election.newest_ms.max(newest_ms);
        }
    }

    /// Forgets clusters that sent no request for an hour. If the failover time is longer, it applies instead.
    pub fn forget_silent(&mut self, now: Instant, failover: Duration) {
        let most = failover.max(FORGET_AFTER);
        self.0.retain(|_, election| now.saturating_duration_since(election.heard) < most);
        self.0.shrink_to_fit();
    }
}

impl Election {
    /// Elects `replica` if the elected replica was silent for the failover time. Returns true if `replica` was elected.
    fn fail_over(&mut self, replica: &str, arrival: Arrival) -> bool {
        let Arrival { now, now_ms, failover } = arrival;
        let silence = now.saturating_duration_since(self.heard);
        if silence < failover {
            return false;
        }
        // Neither a single sample from the future nor a clock that was set back in the meantime may turn the new
        // replica's samples into duplicates. So the bound is at most the present time minus the measured silence.
        let silence_ms = i64::try_from(silence.as_millis()).unwrap_or(i64::MAX);
        self.after_ms = self.newest_ms.min(now_ms.saturating_sub(silence_ms));
        self.newest_ms = self.after_ms;
        (self.replica, self.since, self.heard) = (replica.into(), now, now);
        self.failovers += 1;
        true
    }
}

#[cfg(test)]
mod tests;
