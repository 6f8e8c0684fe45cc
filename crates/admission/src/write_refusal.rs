//! Refusals of whole writes: the reason, what the sender should do, and when to retry.

use crate::Postponed;
use model::{ErrorKind, SeriesRefusal, TenantId};
use std::time::Duration;

/// Default `Retry-After`: memory and queue slots become free within seconds.
pub const RETRY_AFTER: Duration = Duration::from_secs(3);

/// `Retry-After` if a person has to repair something or to make room first, or a store has to recover. Less than
/// [`crate::postponed::CALM`], so that a shortage does not count as over while refused senders wait.
const RETRY_AFTER_REPAIR: Duration = Duration::from_secs(20);

/// Refusal of a whole write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefusal {
    /// The principal may not write.
    #[error("no right to write to tenant {tenant}")]
    Rights {
        /// The tenant that the request named.
        tenant: TenantId,
    },
    /// The node is shutting down.
    #[error("the server is shutting down")]
    Stopping,
    /// The journal is not replayed yet. The text names partitions that wait or stay closed, and why.
    #[error("the journal is being replayed{0}")]
    Replaying(String),
    /// The tenant's table could not be read at the start.
    #[error(
        "tenant {tenant} is unavailable: its table could not be read at the start, so its samples in the journal are not \
         replayed yet ({why}); the server retries"
    )]
    Closed {
        tenant: TenantId,
        /// The table's error.
        why: String,
    },
    /// The head has no memory left for any sample.
    #[error("the head is full: it holds {used_mib} MiB of {limit_mib} MiB; raise the limit with --memory")]
    HeadFull {
        /// Memory held by the head.
        used_mib: u64,
        /// Limit of the head.
        limit_mib: u64,
    },
    /// The tenant's table cannot be written, and its samples fill the head.
    #[error(
        "the table of tenant {tenant} cannot be written, so its samples cannot leave the head, which is more than {percent} % \
         full; the server's log has the cause"
    )]
    Blocked {
        tenant: TenantId,
        /// The fill level from which its writes are refused.
        percent: u64,
    },
    /// The head is nearly full, and the tenant holds more than its share.
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
    /// The tenant's tables have as many bytes as they may.
    #[error(
        "the tables of tenant {tenant} have {used_kib} KiB, and the limit is {limit_kib} KiB (setting disk_bytes); retention, \
         deletes and compaction make room"
    )]
    DiskBytes {
        tenant: TenantId,
        /// Size of the live files of its tables.
        used_kib: u64,
        limit_kib: u64,
        /// True if an operator set the limit; false if it was derived from the disk.
        is_configured: bool,
    },
    /// The tenant is new, and the maximum number of tenants is in memory.
    #[error("no room for a new tenant: {limit} tenants are in memory, which is the limit (setting tenants)")]
    Tenants {
        /// Maximum number of tenants.
        limit: usize,
    },
    /// New tenants arrive too fast.
    #[error(
        "too many new tenants: the limit is {burst} at once, then {per_minute} a minute (settings tenant_burst, \
         tenants_per_minute)"
    )]
    NewTenants {
        /// Maximum number of new tenants at once.
        burst: usize,
        /// Number of new tenants per minute after a burst.
        per_minute: usize,
        /// Time until the next new tenant is accepted.
        wait: Duration,
    },
    /// The tenant sends faster than its settings allow.
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
    /// The maximum number of write requests is in progress.
    #[error("{limit} write requests are in progress, which is the limit (setting inflight_requests)")]
    InflightRequests {
        /// Maximum number of requests.
        limit: usize,
    },
    /// The tenant has as many write requests in progress as its settings allow.
    #[error(
        "{limit} write requests of tenant {tenant} are in progress, which is its limit (setting concurrent_writes)"
    )]
    ConcurrentWrites { tenant: TenantId, limit: usize },
    /// The tenant already holds its share of the write requests that may be in progress.
    #[error(
        "{inside} write requests of tenant {tenant} are in progress, which is its share of {limit} (setting \
         inflight_requests)"
    )]
    ShareOfRequests {
        tenant: TenantId,
        /// Requests of the tenant.
        inside: usize,
        /// Maximum number of these requests, for all tenants together.
        limit: usize,
    },
    /// The tenant already holds its share of the write requests that may create series.
    #[error(
        "{inside} write requests of tenant {tenant} with new series are waiting: it has used its share of {limit} such requests, or \
         of half of the account inflight (setting creating_requests)"
    )]
    ShareOfCreating {
        tenant: TenantId,
        /// Requests of the tenant.
        inside: usize,
        /// Maximum number of these requests, for all tenants together.
        limit: usize,
    },
    /// The maximum number of write requests that create series is waiting.
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
    /// Parts of the request were not stored, but may be stored later; the rest is stored.
    #[error("{report}retry the request: samples that are stored already are not duplicated")]
    Postponed {
        /// Reason that comes first in the order of [`Postponed`].
        what: Postponed,
        /// Report on stored and refused samples, as lines of text.
        report: String,
    },
}

/// Rates of a tenant that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimited {
    Requests,
    Samples,
    /// Bytes of request bodies, as sent (before decompression).
    Bytes,
}

impl RateLimited {
    /// Key of the setting.
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
    /// Kind of error, by what the sender should do.
    ///
    /// Limits that an operator configured for a tenant are a policy ([`ErrorKind::Limited`]). Most other refusals
    /// depend on what the node can do now ([`ErrorKind::Unavailable`]).
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

    /// Stable identifier for logs and metrics.
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

    /// Time after which a retry is worthwhile; `None` if a retry would get the same answer. The caller adds jitter, so
    /// that senders that were refused together do not all return at once.
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
