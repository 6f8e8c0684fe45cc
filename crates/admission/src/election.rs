//! Elects one replica of each cluster. Only the elected replica's samples are stored.
//!
//! Prometheus servers that scrape the same targets are *replicas* of a *cluster*. The first replica that
//! sends samples is elected. When nothing was heard of it for the failover time, the next replica that sends
//! takes over. So each span of time has the samples of one replica.
//!
//! ```text
//!   a elected    │    nothing from a      │ b elected
//!   a a a a a a  │ ◀─ failover time ─▶    │
//!   b b b b b b  │ b  b  b  b  b  b  b  b │ b b b b b b     b's samples are stored from here on, if they are newer than
//!                                                            all stored samples of a
//! ```
//!
//! An election follows what is stored, and not what arrives: [`Elections::ended`] learns what became of each request of the
//! elected replica. Samples of another replica are duplicates only if those of the elected replica are stored:
//!
//! | the last request of the elected replica | it was heard | samples of others |
//! | --- | --- | --- |
//! | was stored | yes | duplicates |
//! | was refused for now, or its sender has gone | yes, because it still has its samples and sends them again | may be needed |
//! | was refused for good | no | may be needed |
//!
//! While a request of the elected replica waits for long, samples of others may be needed, too, whatever became of the one before:
//! what the request has is only with its sender. Samples that are older than all of these requests, and not newer than the newest stored
//! one, are decided as in the table. So another replica gets an answer once the elected one has passed its samples, even if some
//! request always waits.
//!
//! Others must keep samples that may be needed until the elected replica is stored again, or until they take over.

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
    /// When it was elected, or when its last request ended that was not refused for good.
    pub heard: Instant,
    pub failovers: u64,
    /// Timestamp of the newest sample that was stored.
    newest_ms: i64,
    /// Samples up to this timestamp are duplicates of samples that an earlier replica has sent.
    after_ms: i64,
    /// Requests of the replica that have not ended.
    requests: u32,
    /// Oldest timestamp of each request that waits for long. At most one for each request in progress.
    waiting_ms: Vec<i64>,
    /// False until samples of the replica were stored, and after a request of which nothing was stored.
    is_stored: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    pub now: Instant,
    /// The same moment as `now`, by the wall clock.
    pub now_ms: i64,
    /// Another replica is elected when nothing was heard of the elected one for this time.
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
    /// Another replica is elected, but its samples are not stored at present. The sender must keep these samples.
    Undecided,
    /// Another replica is elected, and requests of it wait. Samples before this timestamp are duplicates: they are older than those
    /// that wait, and not newer than the newest stored one. The sender must keep the others.
    UndecidedFrom(i64),
}

/// What became of the samples of an elected replica in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Samples were stored. This is the timestamp of the newest.
    Stored(i64),
    /// There was nothing to store, because all samples were duplicates.
    Nothing,
    /// None was stored, and the sender sends them again.
    Repeated,
    /// The sender has gone before they were durable, so they may be stored or sent again. This is the timestamp of the
    /// newest.
    Unknown(i64),
    /// None can be stored.
    Refused,
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
    ///
    /// If the replica is elected, the caller must call [`Self::ended`] once for this vote.
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
                requests: 1,
                waiting_ms: Vec::new(),
                is_stored: false,
            };
            self.0.insert(cluster.into(), election);
            return Vote::Elected(after_ms);
        };
        if *election.replica == *replica {
            election.requests += 1;
            return Vote::After(election.after_ms);
        }
        if election.fail_over(replica, arrival) {
            return Vote::Elected(election.after_ms);
        }
        match election.waiting_ms.iter().min() {
            _ if !election.is_stored => Vote::Undecided,
            // older samples that are newer than all stored ones may be in a request that was refused
            Some(oldest_ms) => Vote::UndecidedFrom(election.newest_ms.saturating_add(1).min(*oldest_ms)),
            None => Vote::Duplicate,
        }
    }

    /// Time until a replica other than the elected one may be elected. `None` while a request of the elected one is in progress,
    /// and for clusters that are not known.
    pub fn until_failover(&self, cluster: &str, arrival: Arrival) -> Option<Duration> {
        let election = self.0.get(cluster).filter(|election| election.requests == 0)?;
        Some(arrival.failover.saturating_sub(arrival.now.saturating_duration_since(election.heard)))
    }

    /// A request in which `replica` was elected begins to wait for long. `oldest_ms` is the timestamp of its oldest sample.
    /// [`Self::waited`] must be called once before it ends.
    pub fn waits(&mut self, cluster: &str, replica: &str, oldest_ms: i64) {
        if let Some(election) = self.elected(cluster, replica) {
            election.waiting_ms.push(oldest_ms);
        }
    }

    /// A request that has waited is about to end.
    pub fn waited(&mut self, cluster: &str, replica: &str, oldest_ms: i64) {
        let Some(election) = self.elected(cluster, replica) else { return };
        let waiting_ms = &mut election.waiting_ms;
        if let Some(position) = waiting_ms.iter().position(|ms| *ms == oldest_ms) {
            waiting_ms.swap_remove(position);
        }
        if waiting_ms.is_empty() {
            waiting_ms.shrink_to_fit();
        }
    }

    /// The election of a cluster, unless another replica is elected, or the cluster was forgotten.
    fn elected(&mut self, cluster: &str, replica: &str) -> Option<&mut Election> {
        self.0.get_mut(cluster).filter(|election| *election.replica == *replica)
    }

    /// Ends a request in which `replica` was elected. This has no effect if another replica was elected since then, which
    /// can only happen after the cluster was forgotten.
    pub fn ended(&mut self, cluster: &str, replica: &str, end: End, now: Instant) {
        let Some(election) = self.elected(cluster, replica) else { return };
        election.requests = election.requests.saturating_sub(1);
        if let End::Stored(newest_ms) | End::Unknown(newest_ms) = end {
            election.newest_ms = election.newest_ms.max(newest_ms);
        }
        match end {
            End::Stored(_) => election.is_stored = true,
            End::Nothing => {}
            End::Repeated | End::Unknown(_) | End::Refused => election.is_stored = false,
        }
        // a replica that sends only duplicates must not stay elected if nothing of it was ever stored
        if end != End::Refused && (end != End::Nothing || election.is_stored) {
            election.heard = election.heard.max(now);
        }
    }

    /// Forgets clusters that were silent for an hour, or for the failover time if it is longer.
    pub fn forget_silent(&mut self, now: Instant, failover: Duration) {
        let most = failover.max(FORGET_AFTER);
        self.0.retain(|_, election| {
            election.requests > 0 || now.saturating_duration_since(election.heard) < most
        });
        self.0.shrink_to_fit();
    }
}

impl Election {
    /// Elects `replica` if the elected replica was silent for the failover time. Returns true if so. While a request of the
    /// elected replica is being stored, it is not silent.
    fn fail_over(&mut self, replica: &str, arrival: Arrival) -> bool {
        let Arrival { now, now_ms, failover } = arrival;
        let silence = now.saturating_duration_since(self.heard);
        if self.requests > 0 || silence < failover {
            return false;
        }
        // `after_ms` is no later than the start of the silence. Otherwise, a sample from the future, or a
        // clock that was set back, would make the samples of the new replica duplicates.
        let silence_ms = i64::try_from(silence.as_millis()).unwrap_or(i64::MAX);
        self.after_ms = self.newest_ms.min(now_ms.saturating_sub(silence_ms));
        self.newest_ms = self.after_ms;
        (self.replica, self.since, self.heard) = (replica.into(), now, now);
        (self.requests, self.waiting_ms, self.is_stored) = (1, Vec::new(), false);
        self.failovers += 1;
        true
    }
}

#[cfg(test)]
mod tests;
