use crate::machine::Memory;
use model::caps::BODY_BYTES_MAX;
use std::fmt;

/// The smallest budget with which a node works.
pub(crate) const TOTAL_BYTES_MIN: u64 = 64 << 20;

/// Memory of an idle process. Measured: 6.4 MiB with 19 threads.
pub(crate) const PROCESS_BYTES: u64 = 8 << 20;

const _: () = assert!(PROCESS_BYTES <= TOTAL_BYTES_MIN / 8);

/// A budget above this percentage of the available memory causes a warning, because the process also uses
/// memory outside the budget. About 60 MiB were measured.
const LIMIT_PERCENT_MAX: u64 = 75;

/// Upper bound on a connection's memory outside the accounts: a buffer of 64 KiB, and its task. Measured with
/// unfinished request headers: 70 KiB.
pub(crate) const CONNECTION_BYTES: usize = 72 << 10;

/// Upper bound on the memory that TLS adds to a connection: records being received (18 + 16 KiB) and sent (16
/// KiB), certificates (16 KiB), and keys.
pub(crate) const TLS_BYTES: usize = 72 << 10;

pub(crate) const fn connection_bytes(is_encrypted: bool) -> usize {
    if is_encrypted { CONNECTION_BYTES + TLS_BYTES } else { CONNECTION_BYTES }
}

/// Limit on the account `auth`. It is enough for about ten thousand verified tokens.
pub(crate) const AUTH_BYTES_MAX: u64 = 32 << 20;

/// Bounds of [`Budget::exports_max`].
pub(crate) const EXPORTS_MIN: u64 = 2;
pub(crate) const EXPORTS_MAX: u64 = 4;

/// Division of the process' memory. Percentages are of what remains after [`PROCESS_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub total_bytes: u64,
    pub reason: String,
    /// Series and samples in memory: 50 %.
    pub head_bytes: u64,
    /// Write requests from their first body byte to their answer: 15 %.
    pub inflight_bytes: u64,
    pub query_bytes: u64,
    /// Memory in which sealing, compaction and rollups produce table files: 10 %.
    pub flush_bytes: u64,
    /// Decoders that are kept for the next request: 2 %.
    pub decoders_bytes: u64,
    /// Caches and queues of authentication: 1 %, at most [`AUTH_BYTES_MAX`].
    pub auth_bytes: u64,
    /// Memory outside the accounts: [`PROCESS_BYTES`], and at least 7 % for connections, open tables and
    /// buffers.
    pub other_bytes: u64,
}

impl Budget {
    pub fn of(total_bytes: u64) -> Result<Self, String> {
        if total_bytes < TOTAL_BYTES_MIN {
            return Err(format!("the memory budget must be at least {} MiB", TOTAL_BYTES_MIN >> 20));
        }
        Ok(Self::shared_out(total_bytes, "as set".into()))
    }

    /// Takes half of the available memory, because the page cache and other processes need the rest.
    pub fn half_of(memory: &Memory) -> Self {
        let reason = format!("half of {} of {} MiB", memory.source, memory.bytes >> 20);
        Self::shared_out((memory.bytes / 2).max(TOTAL_BYTES_MIN), reason)
    }

    /// Warning if the kernel may throttle or kill the process before the budget is used up.
    pub fn warning(&self, memory: &Memory) -> Option<String> {
        let most = memory.bytes / 100 * LIMIT_PERCENT_MAX;
        let mib = |bytes: u64| bytes >> 20;
        (self.total_bytes > most).then(|| {
            format!(
                "memory = {} MiB is more than {LIMIT_PERCENT_MAX} % of {}, which is {} MiB; lower it to {} MiB, \
                 because the page cache and the allocator need memory outside of the budget",
                mib(self.total_bytes),
                memory.source,
                mib(memory.bytes),
                mib(most)
            )
        })
    }

    /// Limit on cached footers and ranges of table files: an eighth of `query_bytes`.
    pub const fn cache_bytes(&self) -> u64 {
        self.query_bytes / 8
    }

    pub const fn evaluation_bytes(&self) -> u64 {
        self.query_bytes / 2
    }

    /// Limit on the memory in which exports are computed: an eighth of `query_bytes`. The text being sent is
    /// part of [`Self::answers_bytes`].
    pub const fn exports_bytes(&self) -> u64 {
        self.query_bytes / 8
    }

    /// Limit on answers until they are sent: what remains of `query_bytes`.
    pub const fn answers_bytes(&self) -> u64 {
        self.query_bytes - self.evaluation_bytes() - self.cache_bytes() - self.exports_bytes()
    }

    /// Limit on the memory of one query. At most `concurrency` queries, and one small query, are evaluated at
    /// a time.
    pub const fn query_share_bytes(&self, concurrency: usize) -> u64 {
        self.evaluation_bytes() / (concurrency as u64 + 1)
    }

    /// Limit on the exports that run at a time. Each may use as much memory as one query. At least two may
    /// run, so that one slow client does not block all others.
    pub fn exports_max(&self, concurrency: usize) -> usize {
        let whole = self.exports_bytes() / self.query_share_bytes(concurrency).max(1);
        whole.clamp(EXPORTS_MIN, EXPORTS_MAX) as usize
    }

    pub fn export_share_bytes(&self, concurrency: usize) -> u64 {
        self.exports_bytes() / self.exports_max(concurrency) as u64
    }

    /// Limit on the points that wait until their series are created: a quarter of `inflight_bytes`.
    pub const fn new_series_queue_bytes(&self) -> u64 {
        self.inflight_bytes / 4
    }

    /// Limit on bytes that were read from connections without requests, such as Graphite's, until they are durable: a
    /// quarter of `inflight_bytes`.
    pub const fn unwritten_bytes(&self) -> u64 {
        self.inflight_bytes / 4
    }

    /// Limit on the part of [`Self::unwritten_bytes`] that datagrams may take, on all addresses together: half. Nothing tells
    /// their senders to wait, so they must not take what connections need.
    pub const fn datagrams_bytes(&self) -> u64 {
        self.unwritten_bytes() / 2
    }

    /// Limit on the memory of connections of gRPC, if it is served: an eighth of `inflight_bytes`. It is an account of its own,
    /// because idle connections hold their memory: requests that wait for it would wait forever. The other two parts leave a
    /// third of the rest free, so large bodies are still accepted.
    pub const fn grpc_bytes(&self) -> u64 {
        self.inflight_bytes / 8
    }

    pub const fn exemplars_bytes(&self) -> u64 {
        self.head_bytes / 20
    }

    pub const fn metadata_bytes(&self) -> u64 {
        self.head_bytes / 20
    }

    /// Limit on the memory for the replicas elected in clusters of senders: 1 % of `head_bytes`.
    pub const fn replicas_bytes(&self) -> u64 {
        self.head_bytes / 100
    }

    /// Limit on the memory for indexes of the names that Graphite's paths search: 10 % of `head_bytes`.
    pub const fn paths_bytes(&self) -> u64 {
        self.head_bytes / 10
    }

    /// Limit on the memory of series that aggregation rules compute: 10 % of `head_bytes`.
    pub const fn aggregator_bytes(&self) -> u64 {
        self.head_bytes / 10
    }

    /// Limit on the memory for the sums of series whose samples are sent as increments: a quarter of `head_bytes`.
    pub const fn sums_bytes(&self) -> u64 {
        self.head_bytes / 4
    }

    /// Limit on the part of this memory for increments between which others are missing. It is an account of its own, so
    /// that new sums cannot take the memory that known sums need to grow.
    pub const fn pieces_bytes(&self) -> u64 {
        self.sums_bytes() / 4
    }

    /// Limit on the memory of records that are durable, but not in tables yet: 3/16 of `head_bytes`.
    pub const fn records_bytes(&self) -> u64 {
        self.head_bytes / 16 * 3
    }

    /// Limit on the memory of the keys of batches, and of the names of streams: 1/64 of `head_bytes` each.
    pub const fn record_names_bytes(&self) -> u64 {
        self.head_bytes / 64
    }

    /// Limit on the memory in which records become files of tables: 1/16 of `head_bytes`.
    pub const fn loading_bytes(&self) -> u64 {
        self.head_bytes / 16
    }

    /// Limit on the memory of open tables of streams: an eighth of [`Self::loading_bytes`].
    pub const fn stream_tables_bytes(&self) -> u64 {
        self.loading_bytes() / 8
    }

    /// Limit on a request with records, before compression: loading takes up to three times as much.
    pub fn records_body_bytes(&self) -> usize {
        usize::try_from(self.loading_bytes() / 6).map_or(BODY_BYTES_MAX, |bytes| bytes.min(BODY_BYTES_MAX))
    }

    /// Limit on the memory of tenants with events: 1 % of `head_bytes`. Events themselves are not kept in memory.
    pub const fn events_bytes(&self) -> u64 {
        self.head_bytes / 100
    }

    /// Limit on the memory of connections: 5 %, taken from `other_bytes`.
    pub const fn connections_bytes(&self) -> u64 {
        Self::percent(self.total_bytes, 5)
    }

    /// Limit on the memory of the names of queried metrics: a quarter of a percent, taken from `other_bytes`.
    pub const fn queried_bytes(&self) -> u64 {
        Self::percent(self.total_bytes, 1) / 4
    }

    /// Limit on the memory of open tables: 1 %, taken from `other_bytes`. The names of closed tenants may
    /// take as much.
    pub const fn tables_bytes(&self) -> u64 {
        Self::percent(self.total_bytes, 1)
    }

    /// What remains of `other_bytes` after the process itself, connections and open tables.
    pub const fn spare_bytes(&self) -> u64 {
        self.other_bytes - PROCESS_BYTES - self.connections_bytes() - self.tables_bytes()
    }

    const fn percent(total_bytes: u64, percent: u64) -> u64 {
        (total_bytes - PROCESS_BYTES) / 100 * percent
    }

    fn shared_out(total_bytes: u64, reason: String) -> Self {
        let percent = |n| Self::percent(total_bytes, n);
        let (head_bytes, inflight_bytes, query_bytes) = (percent(50), percent(15), percent(15));
        let (flush_bytes, decoders_bytes) = (percent(10), percent(2));
        let auth_bytes = percent(1).min(AUTH_BYTES_MAX);
        let parts = head_bytes + inflight_bytes + query_bytes + flush_bytes + decoders_bytes + auth_bytes;
        let other_bytes = total_bytes - parts;
        Self {
            total_bytes,
            reason,
            head_bytes,
            inflight_bytes,
            query_bytes,
            flush_bytes,
            decoders_bytes,
            auth_bytes,
            other_bytes,
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        write!(
            f,
            "{} MiB ({}) = head {} (exemplars {}, metadata {}, replicas {}, paths {}, aggregator {}, sums {}, records {}, record names {}, loading {}, events {}) + inflight {} (unwritten {}, of which datagrams {}, new series {}, grpc {}) + query {} (evaluation {}, cache {}, exports {}, \
             answers {}) + flush {} + decoders {} + auth {} + other {} (process {}, connections {}, tables {}, spare {})",
            mib(self.total_bytes),
            self.reason,
            mib(self.head_bytes),
            mib(self.exemplars_bytes()),
            mib(self.metadata_bytes()),
            mib(self.replicas_bytes()),
            mib(self.paths_bytes()),
            mib(self.aggregator_bytes()),
            mib(self.sums_bytes()),
            mib(self.records_bytes()),
            mib(2 * self.record_names_bytes()),
            mib(self.loading_bytes()),
            mib(self.events_bytes()),
            mib(self.inflight_bytes),
            mib(self.unwritten_bytes()),
            mib(self.datagrams_bytes()),
            mib(self.new_series_queue_bytes()),
            mib(self.grpc_bytes()),
            mib(self.query_bytes),
            mib(self.evaluation_bytes()),
            mib(self.cache_bytes()),
            mib(self.exports_bytes()),
            mib(self.answers_bytes()),
            mib(self.flush_bytes),
            mib(self.decoders_bytes),
            mib(self.auth_bytes),
            mib(self.other_bytes),
            mib(PROCESS_BYTES),
            mib(self.connections_bytes()),
            mib(self.tables_bytes()),
            mib(self.spare_bytes())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole() {
        for total in [TOTAL_BYTES_MIN, 1_000_000_007, 1 << 40] {
            let b = Budget::of(total).unwrap();
            let parts = [
                b.head_bytes,
                b.inflight_bytes,
                b.query_bytes,
                b.flush_bytes,
                b.decoders_bytes,
                b.auth_bytes,
                b.other_bytes,
            ];
            assert_eq!(parts.iter().sum::<u64>(), total);
            let of_queries = [b.answers_bytes(), b.cache_bytes(), b.evaluation_bytes(), b.exports_bytes()];
            assert_eq!(of_queries.iter().sum::<u64>(), b.query_bytes);
            let of_other = [PROCESS_BYTES, b.connections_bytes(), b.tables_bytes(), b.spare_bytes()];
            assert_eq!(of_other.iter().sum::<u64>(), b.other_bytes);
        }
        assert!(Budget::of(TOTAL_BYTES_MIN - 1).is_err());
        assert!(Budget::half_of(&Memory { bytes: 1, source: String::new() }).total_bytes >= TOTAL_BYTES_MIN);
    }

    #[test]
    fn the_printed_budget_has_all_of_its_parts() {
        let expected = "256 MiB (as set) = head 123 (exemplars 6, metadata 6, replicas 1, paths 12, aggregator 12, sums 30, records 23, record names 3, loading 7, events 1) + inflight 37 (unwritten 9, of which datagrams 4, new series 9, grpc 4) + query 37 \
                        (evaluation 18, cache 4, exports 4, answers 9) + flush 24 + decoders 4 + auth 2 + other 25 (process 8, \
                        connections 12, tables 2, spare 2)";
        assert_eq!(Budget::of(256 << 20).unwrap().to_string(), expected);
    }

    #[test]
    fn shares_fit_into_their_parts() {
        for total in (0..=10).flat_map(|n| [TOTAL_BYTES_MIN << n, (TOTAL_BYTES_MIN << n) + 12_345_678]) {
            let b = Budget::of(total).unwrap();
            for concurrency in [1, 2, 4, 16, 256, 1024] {
                let queries = b.query_share_bytes(concurrency) * (concurrency as u64 + 1);
                assert!(queries <= b.evaluation_bytes(), "{concurrency} queries in {total}");
                let count = b.exports_max(concurrency);
                let exports = b.export_share_bytes(concurrency) * count as u64;
                assert!(exports <= b.exports_bytes(), "{count} exports in {total}");
                assert!((EXPORTS_MIN..=EXPORTS_MAX).contains(&(count as u64)));
            }
            let (names, bytes) = crate::seal::tenant_tables::names_at_most(b.tables_bytes() as usize);
            assert!(names >= 1000 && bytes as u64 <= b.spare_bytes(), "{names} names in {total}");
        }
    }

    #[test]
    fn a_budget_that_comes_near_the_limit_is_warned_of() {
        let memory = |mib: u64| Memory { bytes: mib << 20, source: "the limit".into() };
        let check = |budget_mib: u64, mib| Budget::of(budget_mib << 20).unwrap().warning(&memory(mib));
        assert_eq!(check(383, 512), None);
        let text = check(400, 512).unwrap();
        for part in ["400 MiB", "75 %", "the limit, which is 512 MiB", "383 MiB"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(Budget::half_of(&memory(512)).warning(&memory(512)), None);
        assert!(
            Budget::half_of(&memory(80)).warning(&memory(80)).is_some(),
            "the minimum is more than half of the memory"
        );
    }
}
