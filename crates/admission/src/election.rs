//! Elects one replica of each cluster. Only the elected replica's samples are stored.
//!
//! Prometheus servers that scrape the same targets are *replicas* of a *cluster*. The first replica that
//! sends samples is elected. When it has sent nothing for the failover time, the next replica that sends
//! takes over. So each span of time has the samples of one replica.
//!
//! ```text
//!   a elected    │    nothing from a      │ b elected
//!   a a a a a a  │ ◀─ failover time ─▶    │
//!   b b b b b b  │ b  b  b  b  b  b  b  b │ b b b b b b     b's samples are stored from here on, if they are newer than
//!                                                            all stored samples of a
//! ```

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum length of the name of a cluster or replica (the name of a pod has up to 253 bytes). Samples of a
/// replica with a longer name are stored without an election.
pub const REPLICA_NAME_BYTES_MAX: usize = 256;

/// The memory of a cluster is at most that of its entry in the map and of two names.
pub const CLUSTER_BYTES: u64 = (4 * size_of::<Election>() + 2 * REPLICA_NAME_BYTES_MAX) as u64;

/// Clusters that have sent nothing for this time may be forgotten, unless the failover time is longer.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// The elected replica of each cluster of one tenant. The caller limits the number of clusters.
#[derive(Debug, Default)]
pub struct Elections(HashMap<Box<str>, Election>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    pub replica: Box<str>,
    pub since: Instant,
    pub heard: Instant,
    pub failovers: u64,
    newest_ms: i64,
    /// Samples up to this timestamp are duplicates of samples that an earlier replica has sent.
    after_ms: i64,
}

#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    pub now: Instant,
    /// The same moment as `now`, by the wall clock.
    pub now_ms: i64,
    /// Another replica is elected when the elected one has sent nothing for this time.
    pub failover: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// The replica was elected by this request. Its samples newer than this timestamp are accepted.
    Elected(i64),
    /// The replica had been elected before. Its samples newer than this timestamp are accepted.
    After(i64),
    /// Another replica is elected, so all these samples are duplicates.
    Duplicate,
}

impl Elections {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, cluster: &str) -> bool {
        self.0.contains_key(cluster)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Election)> {
        self.0.iter().map(|(cluster, election)| (&**cluster, election))
    }

    /// Decides which samples of a replica are accepted. The replica is elected if the cluster has no elected
    /// replica, or if that replica was silent for the failover time.
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

    pub fn accepted(&mut self, cluster: &str, newest_ms: i64) {
        if let Some(election) = self.0.get_mut(cluster) {
            election.newest_ms = election.newest_ms.max(newest_ms);
        }
    }

    /// Forgets clusters that were silent for an hour, or for the failover time if it is longer.
    pub fn forget_silent(&mut self, now: Instant, failover: Duration) {
        let most = failover.max(FORGET_AFTER);
        self.0.retain(|_, election| now.saturating_duration_since(election.heard) < most);
        self.0.shrink_to_fit();
    }
}

impl Election {
    /// Elects `replica` if the elected replica was silent for the failover time. Returns true if so.
    fn fail_over(&mut self, replica: &str, arrival: Arrival) -> bool {
        let Arrival { now, now_ms, failover } = arrival;
        let silence = now.saturating_duration_since(self.heard);
        if silence < failover {
            return false;
        }
        // `after_ms` is no later than the start of the silence. Otherwise, a sample from the future, or a
        // clock that was set back, would make the samples of the new replica duplicates.
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
