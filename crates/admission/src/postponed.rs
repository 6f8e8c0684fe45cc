//! Decides whether a sender should retry a request that was stored only in part.
//!
//! A sender repeats a request until it is accepted or finally refused. Meanwhile, all later requests of the same shard
//! wait. Retries help while room may soon be available. In a long shortage, they do harm: a request with one new series
//! holds up all known series of its shard. So if there is no room for new series, the answer is "retry" at first. After
//! five minutes of shortage, these series are finally refused.

use crate::process;
use model::ErrorKind;
use std::time::{Duration, Instant};

/// Reason why parts of a request were not stored, although they may be stored later. If there are several reasons, the
/// first in this order decides the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Postponed {
    /// Timestamps are too far from the time of a clock that seems to be wrong.
    Clock,
    /// Late samples fill their share of the head. Sealing makes room, so a retry succeeds eventually.
    LateSamples,
    /// The tenant creates series faster than its settings allow. The next series may be created after this time.
    NewSeriesRate(Duration),
    /// The head has no room for new series.
    NewSeries,
    /// The tenant holds more than its share of the head, so it gets no new series.
    TenantShare,
    /// The process has no memory for new series.
    ProcessMemory,
    /// The tenant has as many series as its settings allow.
    ActiveSeries,
    /// The tenant has as many series of a metric name as its settings allow.
    SeriesPerMetric,
    /// The tenant has as many clusters of replicas as its settings allow.
    Clusters,
}

impl Postponed {
    /// Stable identifier for logs and metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::LateSamples => "late_samples",
            Self::NewSeriesRate(_) => "new_series_rate",
            Self::NewSeries => "no_room_for_series",
            Self::TenantShare => "tenant_share",
            Self::ProcessMemory => process::REASON,
            Self::ActiveSeries => "active_series",
            Self::SeriesPerMetric => "series_per_metric",
            Self::Clusters => "ha_clusters",
        }
    }

    /// Kind of error, by what the sender should do. A limit on the number of series or clusters is a policy: repeating
    /// the request does not help.
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::ActiveSeries | Self::SeriesPerMetric | Self::Clusters => ErrorKind::Limited,
            _ => ErrorKind::Unavailable,
        }
    }

    const fn is_of_series(self) -> bool {
        matches!(self, Self::NewSeries | Self::TenantShare | Self::ProcessMemory)
    }
}

/// Duration of a shortage after which refusals become final. Sealing and eviction make room within a minute or two if
/// they can.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time without a refusal after which a shortage is over. Refused senders retry within seconds. A moment with room in
/// the middle of a flood does not end the shortage.
pub const CALM: Duration = Duration::from_secs(60);

const _: () = assert!(CALM.as_secs() < PATIENCE.as_secs());

/// Duration of a lack of room for new series.
#[derive(Debug, Default, Clone, Copy)]
pub struct Shortage {
    /// Times of the first and the last occurrence, with no pause of [`CALM`] in between.
    met: Option<(Instant, Instant)>,
}

impl Shortage {
    /// Reason to retry a request whose `postponed` parts were not stored at `now`; `None` if these parts are finally
    /// refused.
    pub fn worth_a_retry(&mut self, postponed: &[Postponed], now: Instant) -> Option<Postponed> {
        // record the shortage even if there is another reason to retry, because a retry for that reason makes no room
        // for series
        let lasts = postponed.iter().any(|what| what.is_of_series()) && self.met(now) >= PATIENCE;
        postponed.iter().copied().filter(|what| !(lasts && what.is_of_series())).min()
    }

    /// Records an occurrence at `now`; returns how long the shortage has lasted.
    fn met(&mut self, now: Instant) -> Duration {
        let lasting = self.met.filter(|(_, last)| now.saturating_duration_since(*last) < CALM);
        let since = lasting.map_or(now, |(since, _)| since);
        self.met = Some((since, now));
        now.saturating_duration_since(since)
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
        check(419, true); // a minute without any refusal
        check(478, true);
        (530..719).step_by(50).for_each(|seconds| check(seconds, true));
        check(719, false);
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
