//! Decides whether a sender should retry a request that was stored only in part. A retry helps if there may
//! be room soon. But while a sender retries, it sends nothing else, so during a long shortage its known
//! series would wait, too. Therefore, series without room are refused for good after five minutes, in each of
//! which less than one request with new series was stored for ten that were refused.

use crate::process;
use model::ErrorKind;
use std::time::{Duration, Instant};

/// Why parts of a request were not stored yet. If there are several reasons, the first in this order is
/// reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Postponed {
    /// Timestamps are too far from the server's clock, but the clock itself may be wrong.
    Clock,
    /// Out-of-order samples have used up their share of the head. Sealing will make room.
    LateSamples,
    /// The elected replica's samples are not stored at present, so this one may have to take over. The sender should
    /// try again after this time: half the time until a failover.
    Replica(Duration),
    /// The tenant creates series too fast. It may create more after this time.
    NewSeriesRate(Duration),
    /// There is no memory for the state of more series, outside the head: for sums, or for clusters of replicas. Sealing makes no
    /// room for it.
    SeriesState,
    NewSeries,
    TenantShare,
    ProcessMemory,
    ActiveSeries {
        /// True if an operator has set the limit. Otherwise, it is the default.
        is_configured: bool,
    },
    SeriesPerMetric {
        /// True if an operator has set the limit. Otherwise, it is the default.
        is_configured: bool,
    },
    Clusters {
        /// True if an operator has set the limit. Otherwise, it is the default.
        is_configured: bool,
    },
}

impl Postponed {
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::LateSamples => "late_samples",
            Self::Replica(_) => "ha_failover",
            Self::NewSeriesRate(_) => "new_series_rate",
            Self::SeriesState | Self::NewSeries => "no_room_for_series",
            Self::TenantShare => "tenant_share",
            Self::ProcessMemory => process::REASON,
            Self::ActiveSeries { .. } => "active_series",
            Self::SeriesPerMetric { .. } => "series_per_metric",
            Self::Clusters { .. } => "ha_clusters",
        }
    }

    /// Limits that an operator has set are [`ErrorKind::Limited`].
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::ActiveSeries { is_configured: true }
            | Self::SeriesPerMetric { is_configured: true }
            | Self::Clusters { is_configured: true } => ErrorKind::Limited,
            _ => ErrorKind::Unavailable,
        }
    }

    /// Like [`WriteRefusal::is_of_tenant`](crate::WriteRefusal::is_of_tenant).
    pub(crate) const fn is_of_tenant(self) -> bool {
        match self {
            Self::Replica(_)
            | Self::TenantShare
            | Self::ActiveSeries { .. }
            | Self::SeriesPerMetric { .. }
            | Self::Clusters { .. } => true,
            // points of known series are never refused for this, so a sender that waits for it keeps new series only
            Self::NewSeriesRate(_) => false,
            Self::Clock | Self::LateSamples | Self::SeriesState | Self::NewSeries | Self::ProcessMemory => {
                false
            }
        }
    }

    const fn is_of_series(self) -> bool {
        matches!(
            self,
            Self::SeriesState
                | Self::NewSeries
                | Self::TenantShare
                | Self::ProcessMemory
                | Self::ActiveSeries { is_configured: false }
                | Self::SeriesPerMetric { is_configured: false }
        )
    }
}

/// When a shortage has lasted this long, refusals become final. Usually, sealing makes room within two
/// minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A shortage is over when nothing was refused for this time. Refused senders retry within seconds.
pub const CALM: Duration = Duration::from_secs(60);

const _: () = assert!(CALM.as_secs() < PATIENCE.as_secs());

/// A shortage ends after a minute in which at least one request was stored for every ten refused: sealing
/// then keeps up, and retries succeed.
const REFUSED_FOR_EACH_STORED: u64 = 10;

/// Keeps track of a tenant's shortage of memory for new series, to know how long it has lasted.
#[derive(Debug, Default, Clone, Copy)]
pub struct Shortage {
    met: Option<Met>,
}

#[derive(Debug, Clone, Copy)]
struct Met {
    since: Instant,
    /// The latest refusal.
    last: Instant,
    /// Beginning of the minute in which requests with new series are counted.
    counted_from: Instant,
    refused: u64,
    stored: u64,
}

impl Shortage {
    /// Decides whether to ask the sender for a retry, and returns the reason for it, which is one of those in
    /// `postponed`. Returns `None` if the missing parts of the request are refused for good.
    pub fn worth_a_retry(&mut self, postponed: &[Postponed], now: Instant) -> Option<Postponed> {
        // the refusal prolongs the shortage even if another reason is returned
        let lasts = postponed.iter().any(|what| what.is_of_series()) && self.met(now) >= PATIENCE;
        postponed.iter().copied().filter(|what| !(lasts && what.is_of_series())).min()
    }

    /// Must be called when there was no room. Returns how long the shortage has lasted.
    fn met(&mut self, now: Instant) -> Duration {
        let lasting = self.met.filter(|met| now.saturating_duration_since(met.last) < CALM);
        let mut met =
            lasting.unwrap_or(Met { since: now, last: now, counted_from: now, refused: 0, stored: 0 });
        if now.saturating_duration_since(met.counted_from) >= CALM {
            if met.stored * REFUSED_FOR_EACH_STORED >= met.refused {
                met.since = now;
            }
            (met.counted_from, met.refused, met.stored) = (now, 0, 0);
        }
        met.refused += 1;
        met.last = now;
        self.met = Some(met);
        now.saturating_duration_since(met.since)
    }

    /// Must be called when a request was stored for which series were created, and nothing of it was postponed.
    pub const fn found_room(&mut self) {
        if let Some(met) = &mut self.met {
            met.stored += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Postponed::{Clock, LateSamples, NewSeries, ProcessMemory};

    #[test]
    fn a_shortage_is_retryable_for_five_minutes() {
        let began = Instant::now();
        let mut shortage = Shortage::default();
        let mut check = |seconds, retry: bool| {
            let found = shortage.worth_a_retry(&[NewSeries], began + Duration::from_secs(seconds));
            assert_eq!(found, retry.then_some(NewSeries), "after {seconds} s");
        };
        (0..300).step_by(10).for_each(|seconds| check(seconds, true));
        check(299, true);
        check(300, false);
        check(359, false);
        check(419, true); // a minute has passed without any refusal
        check(478, true);
        (530..719).step_by(50).for_each(|seconds| check(seconds, true));
        check(719, false);
    }

    #[test]
    fn while_some_retries_succeed_a_shortage_does_not_become_final() {
        let refused_after_an_hour = |stored_each_minute| {
            let (began, mut shortage) = (Instant::now(), Shortage::default());
            for second in 0..3600 {
                let now = began + Duration::from_secs(second);
                if shortage.worth_a_retry(&[NewSeries], now).is_none() {
                    return Some(second);
                }
                if second % 60 < stored_each_minute {
                    shortage.found_room();
                }
            }
            None
        };
        assert_eq!(refused_after_an_hour(0), Some(300));
        assert_eq!(refused_after_an_hour(5), Some(300));
        assert_eq!(refused_after_an_hour(6), None);
    }

    #[test]
    fn other_retryable_reasons_do_not_restart_the_shortage_timer() {
        let began = Instant::now();
        let mut shortage = Shortage::default();
        for seconds in (0..300).step_by(30) {
            let now = began + Duration::from_secs(seconds);
            assert_eq!(shortage.worth_a_retry(&[ProcessMemory, LateSamples], now), Some(LateSamples));
        }
        let now = began + Duration::from_secs(300);
        assert_eq!(shortage.worth_a_retry(&[NewSeries], now), None);
        assert_eq!(shortage.worth_a_retry(&[NewSeries, LateSamples, Clock], now), Some(Clock));
        assert_eq!(shortage.worth_a_retry(&[], now), None);
    }
}
