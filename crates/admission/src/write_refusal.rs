//! Refusals of whole writes.

use crate::Postponed;
use model::{ErrorKind, SeriesRefusal, TenantId};
use std::time::Duration;

/// Default `Retry-After`. Memory and queues become free within seconds.
pub const RETRY_AFTER: Duration = Duration::from_secs(3);

/// `Retry-After` if a person has to act or a store has to recover. It is less than
/// [`crate::postponed::CALM`], so that a shortage lasts while senders wait.
const RETRY_AFTER_REPAIR: Duration = Duration::from_secs(20);

/// Refusal of a whole write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefusal {
    #[error("no right to write to tenant {tenant}")]
    Rights {
        /// Tenant of the request.
        tenant: TenantId,
    },
    #[error("the server is shutting down")]
    Stopping,
    /// The journal is not replayed yet. The text names partitions and reasons.
    #[error("the journal is being replayed{0}")]
    Replaying(String),
    #[error(
        "tenant {tenant} is unavailable: its table could not be read at the start, so its samples in the journal are not \
         replayed yet ({why}); the server retries"
    )]
    Closed {
        tenant: TenantId,
        /// The table's error.
        why: String,
    },
    #[error("the head is full: it holds {used_mib} MiB of {limit_mib} MiB; raise the limit with --memory")]
    HeadFull {
        /// Memory held by the head.
        used_mib: u64,
        limit_mib: u64,
    },
    /// The tenant's table cannot be written, and its samples fill the head.
    #[error(
        "the table of tenant {tenant} cannot be written, so its samples cannot leave the head, which is more than {percent} % \
         full; the server's log has the cause"
    )]
    Blocked {
        tenant: TenantId,
        /// The fill level from which the tenant's writes are refused.
        percent: u64,
    },
    /// The tenant exceeds its share of a nearly full head.
    #[error(
        "the head is more than {percent} % full, and tenant {tenant} holds more than its share, which is {share_mib} MiB; \
         raise the limit with --memory"
    )]
    TenantShare {
        tenant: TenantId,
        /// The fill level from which tenants above their share are refused.
        percent: u64,
        share_mib: u64,
    },
    #[error(
        "the tables of tenant {tenant} have {used_kib} KiB, and the limit is {limit_kib} KiB (setting disk_bytes); retention, \
         deletes and compaction make room"
    )]
    DiskBytes {
        tenant: TenantId,
        /// Size of the tables' live files.
        used_kib: u64,
        limit_kib: u64,
        /// True if an operator set the limit. Otherwise, it was derived from the disk.
        is_configured: bool,
    },
    /// The tenant is new, and the maximum number of tenants is in memory.
    #[error("no room for a new tenant: {limit} tenants are in memory, which is the limit (setting tenants)")]
    Tenants {
        /// Maximum number of tenants.
        limit: usize,
    },
    #[error(
        "too many new tenants: the limit is {burst} at once, then {per_minute} a minute (settings tenant_burst, \
         tenants_per_minute)"
    )]
    NewTenants {
        /// New tenants at once.
        burst: usize,
        /// New tenants per minute after a burst.
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
    /// The tenant is not in memory, and there is no memory for its series.
    #[error("{0}")]
    NoRoomForTenant(SeriesRefusal),
    #[error("{limit} write requests are in progress, which is the limit (setting inflight_requests)")]
    InflightRequests {
        /// Maximum number of requests.
        limit: usize,
    },
    #[error(
        "{limit} write requests of tenant {tenant} are in progress, which is its limit (setting concurrent_writes)"
    )]
    ConcurrentWrites { tenant: TenantId, limit: usize },
    /// The tenant has used its share of the write requests in progress.
    #[error(
        "{inside} write requests of tenant {tenant} are in progress, which is its share of {limit} (setting \
         inflight_requests)"
    )]
    ShareOfRequests {
        tenant: TenantId,
        /// Requests of the tenant.
        inside: usize,
        /// Limit for all tenants.
        limit: usize,
    },
    /// The tenant has used its share of the write requests that may create series.
    #[error(
        "{inside} write requests of tenant {tenant} with new series are waiting, which is its share of {limit} requests or of \
         half of the account inflight (setting creating_requests)"
    )]
    ShareOfCreating {
        tenant: TenantId,
        /// Requests of the tenant.
        inside: usize,
        /// Limit for all tenants.
        limit: usize,
    },
    #[error(
        "too many write requests with new series are waiting: the limit is {limit} requests, or half of the account \
         inflight (setting creating_requests)"
    )]
    CreatingRequests {
        /// Maximum number of requests.
        limit: usize,
    },
    /// The owner of a partition does not keep up.
    #[error(
        "a partition's queue is full: {limit} write requests wait, because the disk or the processor is too slow"
    )]
    QueueFull {
        /// Maximum length of the queue.
        limit: usize,
    },
    /// Parts of the request were not stored yet. The other parts are stored.
    #[error("{report}retry the request: samples that are stored already are not duplicated")]
    Postponed {
        /// First reason in the order of [`Postponed`].
        what: Postponed,
        /// Report on stored and refused samples, in lines of text.
        report: String,
    },
}

/// Limited rates of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimited {
    Requests,
    Samples,
    /// Bytes of request bodies, before decompression.
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
    /// Kind of error. Limits that an operator configured are a policy ([`ErrorKind::Limited`]). Most other
    /// refusals depend on the node ([`ErrorKind::Unavailable`]).
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Rights { .. } => ErrorKind::Forbidden,
            Self::Rate { .. }
            | Self::ConcurrentWrites { .. }
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
            Self::ConcurrentWrites { .. } => "concurrent_writes",
            Self::InflightRequests { .. } | Self::ShareOfRequests { .. } => "inflight_requests",
            Self::CreatingRequests { .. } | Self::ShareOfCreating { .. } => "creating_requests",
            Self::QueueFull { .. } => "queue_full",
            Self::Postponed { what, .. } => what.reason(),
        }
    }

    /// Time after which a retry may succeed; `None` if never. The caller adds jitter.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rights { .. } => None,
            Self::Closed { .. } | Self::Blocked { .. } | Self::DiskBytes { .. } => Some(RETRY_AFTER_REPAIR),
            Self::Postponed { what: Postponed::Clock, .. } => Some(RETRY_AFTER_REPAIR),
            Self::NewTenants { wait, .. } => Some((*wait).max(RETRY_AFTER)),
            Self::Rate { wait, .. } | Self::Postponed { what: Postponed::NewSeriesRate(wait), .. } => {
                Some(*wait)
            }
            _ => Some(RETRY_AFTER),
        }
    }
}
