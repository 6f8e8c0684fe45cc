//! The replicas that were elected in a tenant's clusters of senders, and the memory reserved for them.

use admission::election::{Arrival, CLUSTER_BYTES, Election, Elections, End, Vote};
use model::SeriesRefusal;
use std::time::{Duration, Instant};
use stdx::budget::{Account, Reservation};

#[derive(Debug, Default)]
pub(crate) struct Replicas {
    elections: Elections,
    memory: Option<Reservation>,
    tidied: Option<Instant>,
    /// The largest number of clusters.
    peak: usize,
}

/// Minimum interval between searches for silent clusters. Without it, a sender could cause a search with each
/// series.
pub(super) const TIDY_EVERY: Duration = Duration::from_secs(60);

impl Replicas {
    /// Decides whether samples of `replica` are stored. A new cluster is refused if there are `clusters_max`
    /// already, or if `account` has no memory for it. If the replica is elected, the caller must call
    /// [`Self::ended`] once for this vote.
    pub(crate) fn vote(
        &mut self,
        (cluster, replica): (&str, &str),
        arrival: Arrival,
        clusters_max: usize,
        account: &Account,
    ) -> Result<Vote, SeriesRefusal> {
        if !self.elections.contains(cluster) {
            self.make_room(arrival, clusters_max, account)?;
        }
        let vote = self.elections.vote(cluster, replica, arrival);
        self.peak = self.peak.max(self.elections.len());
        Ok(vote)
    }

    pub(crate) fn ended(&mut self, cluster: &str, replica: &str, end: End, now: Instant) {
        self.elections.ended(cluster, replica, end, now);
    }

    pub(crate) fn until_failover(&self, cluster: &str, arrival: Arrival) -> Option<Duration> {
        self.elections.until_failover(cluster, arrival)
    }

    pub(crate) fn waits(&mut self, cluster: &str, replica: &str, oldest_ms: i64) {
        self.elections.waits(cluster, replica, oldest_ms);
    }

    pub(crate) fn waited(&mut self, cluster: &str, replica: &str, oldest_ms: i64) {
        self.elections.waited(cluster, replica, oldest_ms);
    }

    pub(crate) fn clusters(&self) -> usize {
        self.elections.len()
    }

    /// The largest number of clusters since the tenant was loaded.
    pub(crate) const fn peak(&self) -> usize {
        self.peak
    }

    /// Copies of at most `max` elections, in no order.
    pub(crate) fn copied(&self, max: usize) -> Vec<(Box<str>, Election)> {
        let copy = |(cluster, election): (&str, &Election)| (Box::from(cluster), election.clone());
        self.elections.iter().take(max).map(copy).collect()
    }

    /// Removes clusters from which no samples have arrived for some time. Does nothing if the last call was
    /// less than [`TIDY_EVERY`] ago.
    pub(crate) fn forget_silent(&mut self, now: Instant, failover: Duration) {
        let is_early = |tidied| now.saturating_duration_since(tidied) < TIDY_EVERY;
        if self.tidied.is_some_and(is_early) {
            return;
        }
        self.tidied = Some(now);
        self.elections.forget_silent(now, failover);
        let bytes = self.elections.len() as u64 * CLUSTER_BYTES;
        if let Some(memory) = &mut self.memory {
            memory.resize(bytes).expect("BUG: a reservation cannot shrink");
        }
    }

    /// Time until silent clusters may be removed again.
    pub(crate) fn until_tidied(&self, now: Instant) -> Duration {
        let passed = |tidied| now.saturating_duration_since(tidied);
        self.tidied.map_or(Duration::ZERO, |tidied| TIDY_EVERY.saturating_sub(passed(tidied)))
    }

    fn make_room(
        &mut self,
        arrival: Arrival,
        clusters_max: usize,
        account: &Account,
    ) -> Result<(), SeriesRefusal> {
        if self.elections.len() >= clusters_max {
            self.forget_silent(arrival.now, arrival.failover);
        }
        if self.elections.len() >= clusters_max {
            return Err(SeriesRefusal::TooManyClusters { limit: clusters_max });
        }
        let bytes = (self.elections.len() as u64 + 1) * CLUSTER_BYTES;
        let reserved = match &mut self.memory {
            Some(memory) => memory.resize(bytes),
            None => account.reserve(bytes).map(|memory| self.memory = Some(memory)),
        };
        reserved.map_err(|full| SeriesRefusal::NoRoomForClusters { limit_kib: full.limit_bytes >> 10 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_limited_by_number_and_by_memory() {
        let (account, began) = (Account::new("replicas", 3 * CLUSTER_BYTES), Instant::now());
        let after = |seconds| Arrival {
            now: began + Duration::from_secs(seconds),
            now_ms: 0,
            failover: Duration::from_secs(30),
        };
        let (mut one, mut other) = (Replicas::default(), Replicas::default());
        let vote = |replicas: &mut Replicas, cluster, seconds| {
            let refused = replicas.vote((cluster, "a"), after(seconds), 2, &account).err();
            replicas.ended(cluster, "a", End::Stored(0), after(seconds).now);
            refused
        };
        assert_eq!((vote(&mut one, "x", 0), vote(&mut one, "y", 10)), (None, None));
        assert_eq!(vote(&mut one, "z", 10), Some(SeriesRefusal::TooManyClusters { limit: 2 }));
        assert_eq!(one.until_tidied(after(15).now), TIDY_EVERY - Duration::from_secs(5));
        assert_eq!(vote(&mut one, "x", 10), None, "known clusters are accepted at the limit");
        assert_eq!(vote(&mut other, "x", 10), None);
        assert_eq!(
            vote(&mut other, "y", 10),
            Some(SeriesRefusal::NoRoomForClusters { limit_kib: account.limit_bytes() >> 10 })
        );
        // after an hour without samples, clusters make room for others
        assert_eq!(vote(&mut one, "z", 3610), None);
        assert_eq!((one.clusters(), account.used_bytes()), (1, 2 * CLUSTER_BYTES));
        assert_eq!(vote(&mut other, "y", 3610), None);
        let mut names: Vec<_> = other.copied(3).into_iter().map(|(cluster, _)| cluster).collect();
        names.sort_unstable();
        assert_eq!((names, other.copied(1).len()), (vec!["x".into(), "y".into()], 1));
        drop((one, other));
        assert_eq!(account.used_bytes(), 0);
    }
}
