use crate::Postponed;
use crate::retry::{Room, Wait};
use model::{ErrorKind, SeriesRefusal, TenantId};
use std::time::Duration;

/// Default `Retry-After`. Usually, memory and queues become free within seconds.
pub const RETRY_AFTER: Duration = Duration::from_secs(3);

/// `Retry-After` if someone has to repair something, or if object storage has to recover. It is less than
/// [`crate::postponed::CALM`], so that a shortage is not over just because senders wait.
pub(crate) const RETRY_AFTER_REPAIR: Duration = Duration::from_secs(20);

/// Why a write request is refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefusal {
    #[error("no right to write to tenant {tenant}")]
    Rights {
        /// Tenant of the request.
        tenant: TenantId,
    },
    #[error("the server is shutting down")]
    Stopping,
    /// The string names the partitions that are not replayed, and why.
    #[error("the journal is being replayed{0}")]
    Replaying(String),
    #[error(
        "tenant {tenant} is unavailable: its table could not be read at the start, so its samples in the journal are not \
         replayed yet ({why}); the server retries"
    )]
    Closed {
        tenant: TenantId,
        /// Why the table cannot be read.
        why: String,
    },
    #[error("the head is full: it holds {used_mib} MiB of {limit_mib} MiB; raise the limit with --memory")]
    HeadFull {
        /// Memory held by the head.
        used_mib: u64,
        limit_mib: u64,
    },
    /// The samples of the tenant fill the head, because its table cannot be written.
    #[error(
        "the table of tenant {tenant} cannot be written, so its samples cannot leave the head, which is more than {percent} % \
         full; the server's log has the cause"
    )]
    Blocked {
        tenant: TenantId,
        /// Fill level of the head at which the writes of this tenant are refused.
        percent: u64,
    },
    #[error(
        "the head is more than {percent} % full, and tenant {tenant} holds more than its share, which is {share_mib} MiB; \
         raise the limit with --memory"
    )]
    TenantShare {
        tenant: TenantId,
        /// Fill level of the head at which writes of tenants above their share are refused.
        percent: u64,
        share_mib: u64,
    },
    #[error(
        "the tables of tenant {tenant} have {used_kib} KiB, and the limit is {limit_kib} KiB (setting disk_bytes); retention, \
         deletes and compaction make room"
    )]
    DiskBytes {
        tenant: TenantId,
        /// Size of the tables, not counting files that were already replaced or deleted.
        used_kib: u64,
        limit_kib: u64,
        /// True if an operator has set the limit. Otherwise, it was derived from the size of the disk.
        is_configured: bool,
    },
    #[error("no room for a new tenant: {limit} tenants are in memory, which is the limit (setting tenants)")]
    Tenants {
        /// How many tenants may be in memory.
        limit: usize,
    },
    #[error(
        "too many new tenants: the limit is {burst} at once, then {per_minute} a minute (settings tenant_burst, \
         tenants_per_minute)"
    )]
    NewTenants {
        /// How many new tenants are admitted at the same time.
        burst: usize,
        /// How many new tenants are admitted per minute after such a burst.
        per_minute: usize,
        wait: Duration,
    },
    #[error("tenant {tenant} sends too fast: the limit is {per_s} {limit} a second (setting {})", .limit.setting())]
    Rate {
        tenant: TenantId,
        limit: RateLimited,
        per_s: u64,
        /// Time until the next request is admitted.
        wait: Duration,
    },
    /// The tenant is not in memory yet, and there is no memory for its series.
    #[error("{0}")]
    NoRoomForTenant(SeriesRefusal),
    #[error("{limit} write requests are in progress, which is the limit (setting inflight_requests)")]
    InflightRequests {
        /// How many write requests may be in progress.
        limit: usize,
    },
    #[error(
        "{limit} write requests of tenant {tenant} are in progress, which is its limit (setting concurrent_writes)"
    )]
    ConcurrentWrites {
        tenant: TenantId,
        limit: usize,
        /// True if the request creates series. Those in progress then do as well.
        creates: bool,
        /// True if an operator has set the limit. Otherwise, it was derived from the node's limits.
        is_configured: bool,
    },
    /// What they wait for are requests that are being stored, so they enter before long.
    #[error(
        "earlier write requests of tenant {tenant} wait: for a place among those in progress, because their rules took long, or \
         for the histograms that this request has, too"
    )]
    EarlierRequests { tenant: TenantId },
    #[error(
        "{inside} write requests of tenant {tenant} are in progress, which is its share of {limit} (setting \
         inflight_requests)"
    )]
    ShareOfRequests {
        tenant: TenantId,
        /// Number of write requests of the tenant that are in progress.
        inside: usize,
        /// Limit on the write requests in progress, for all tenants together.
        limit: usize,
    },
    /// The tenant has used up its share of the write requests that wait to create series.
    #[error(
        "{inside} write requests of tenant {tenant} with new series are waiting, which is its share of {limit} requests or of \
         half of the account inflight (setting creating_requests)"
    )]
    ShareOfCreating {
        tenant: TenantId,
        /// Number of requests of the tenant that are waiting.
        inside: usize,
        /// Limit on the waiting requests of all tenants together.
        limit: usize,
    },
    #[error(
        "too many write requests with new series are waiting: the limit is {limit} requests, or half of the account \
         inflight (setting creating_requests)"
    )]
    CreatingRequests {
        /// Limit on the waiting requests of all tenants together.
        limit: usize,
    },
    /// The thread that owns a partition cannot keep up.
    #[error(
        "a partition's queue is full: {limit} write requests wait, because the disk or the processor is too slow"
    )]
    QueueFull {
        /// How many requests may wait in each queue.
        limit: usize,
    },
    /// Only a part of the request was stored. The rest may be stored if the request is repeated.
    #[error("{report}retry the request: samples that are stored already are not duplicated")]
    Postponed {
        /// The first reason in the order of [`Postponed`], if there are several.
        what: Postponed,
        /// Lines of text that say what was stored and what was refused.
        report: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimited {
    Requests,
    Samples,
    /// Bytes of request bodies as received, before decompression.
    Bytes,
}

impl RateLimited {
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Requests => "requests_per_second",
            Self::Samples => "samples_per_second",
            Self::Bytes => "bytes_per_second",
        }
    }
}

impl std::fmt::Display for RateLimited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests",
            Self::Samples => "samples",
            Self::Bytes => "bytes",
        })
    }
}

impl WriteRefusal {
    /// Limits that an operator has set are [`ErrorKind::Limited`]. Most other refusals depend on the state of
    /// the node ([`ErrorKind::Unavailable`]).
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Rights { .. } => ErrorKind::Forbidden,
            Self::Rate { .. }
            | Self::ConcurrentWrites { is_configured: true, .. }
            | Self::DiskBytes { is_configured: true, .. } => ErrorKind::Limited,
            Self::Postponed { what, .. } => what.kind(),
            _ => ErrorKind::Unavailable,
        }
    }

    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Rights { .. } => "rights",
            Self::Stopping => "stopping",
            Self::Replaying(_) => "replaying",
            Self::Closed { .. } => "table_unreadable",
            Self::HeadFull { .. } => "head_full",
            Self::Blocked { .. } => "table_unwritable",
            Self::Tenants { .. } => "tenants",
            Self::NewTenants { .. } => "new_tenants",
            Self::Rate { limit: RateLimited::Requests, .. } => "requests_rate",
            Self::Rate { limit: RateLimited::Samples, .. } => "samples_rate",
            Self::Rate { limit: RateLimited::Bytes, .. } => "bytes_rate",
            Self::TenantShare { .. } => "tenant_share",
            Self::DiskBytes { .. } => "disk_bytes",
            Self::NoRoomForTenant(SeriesRefusal::NoMemory { .. }) => crate::process::REASON,
            Self::NoRoomForTenant(_) => "head_full",
            Self::ConcurrentWrites { .. } | Self::EarlierRequests { .. } => "concurrent_writes",
            Self::InflightRequests { .. } | Self::ShareOfRequests { .. } => "inflight_requests",
            Self::CreatingRequests { .. } | Self::ShareOfCreating { .. } => "creating_requests",
            Self::QueueFull { .. } => "queue_full",
            Self::Postponed { what, .. } => what.reason(),
        }
    }

    /// True if the cause is what one tenant has, sends or may have, so that the writes of others may be accepted meanwhile.
    pub const fn is_of_tenant(&self) -> bool {
        match self {
            Self::Rights { .. }
            | Self::Closed { .. }
            | Self::Blocked { .. }
            | Self::TenantShare { .. }
            | Self::DiskBytes { .. }
            | Self::Tenants { .. }
            | Self::NewTenants { .. }
            | Self::Rate { .. }
            | Self::NoRoomForTenant(_)
            | Self::ConcurrentWrites { .. }
            | Self::EarlierRequests { .. }
            | Self::ShareOfRequests { .. } => true,
            // points of known series are never refused for this, so a sender that waits for it keeps new series only
            Self::ShareOfCreating { .. } => false,
            Self::Stopping
            | Self::Replaying(_)
            | Self::HeadFull { .. }
            | Self::InflightRequests { .. }
            | Self::CreatingRequests { .. }
            | Self::QueueFull { .. } => false,
            Self::Postponed { what, .. } => what.is_of_tenant(),
        }
    }

    /// What a retry waits for. `None` if retries cannot help.
    pub fn retry_after(&self) -> Option<Wait> {
        let wait = match self {
            Self::Rights { .. } => return None,
            Self::Closed { .. } | Self::Blocked { .. } => Wait::Table,
            // retention, deletes and compaction make room at times that nobody knows
            Self::DiskBytes { .. } => Wait::For(RETRY_AFTER_REPAIR),
            Self::NewTenants { wait, .. } => Wait::For((*wait).max(RETRY_AFTER)),
            Self::Rate { wait, .. } => Wait::For(*wait),
            Self::HeadFull { .. } => Wait::Sealing(Room::Samples),
            Self::NoRoomForTenant(SeriesRefusal::NoRoom { .. }) => Wait::Sealing(Room::Series),
            Self::NoRoomForTenant(_) => Wait::ProcessMemory,
            Self::Tenants { .. } => Wait::Eviction,
            Self::TenantShare { .. } => Wait::Sealing(Room::SamplesAboveShare),
            // what fills a queue are some of the requests in progress
            Self::InflightRequests { .. } | Self::QueueFull { .. } => Wait::Requests,
            Self::ConcurrentWrites { creates: false, .. }
            | Self::EarlierRequests { .. }
            | Self::ShareOfRequests { .. } => Wait::OwnRequests,
            Self::Replaying(_) => Wait::Replay,
            Self::CreatingRequests { .. } => Wait::CreatingRequests,
            Self::ConcurrentWrites { creates: true, .. } | Self::ShareOfCreating { .. } => {
                Wait::OwnCreatingRequests
            }
            Self::Postponed { what, .. } => match what {
                Postponed::Clock => Wait::For(RETRY_AFTER_REPAIR),
                Postponed::NewSeriesRate(wait) | Postponed::Replica(wait) => Wait::For(*wait),
                Postponed::ProcessMemory => Wait::ProcessMemory,
                Postponed::ActiveSeries { .. } | Postponed::SeriesPerMetric { .. } => Wait::Eviction,
                Postponed::Clusters { .. } => Wait::Clusters,
                Postponed::NewSeries => Wait::Sealing(Room::SeriesWithinShare),
                Postponed::TenantShare => Wait::Sealing(Room::SeriesAboveShare),
                Postponed::LateSamples => Wait::Sealing(Room::Late),
                // it becomes free when series were silent for a quarter of an hour or longer
                Postponed::SeriesState => Wait::For(RETRY_AFTER),
            },
            // nobody knows when the server will be started again
            Self::Stopping => Wait::For(RETRY_AFTER),
        };
        Some(wait)
    }
}
