//! Decides whether a sender should retry a request that was stored only in part. A retry helps while room may
//! soon be available. In a long shortage, retries hold up all known series of the sender. So series without
//! room are finally refused after five minutes of shortage.

use crate::process;
use model::ErrorKind;
use std::time::{Duration, Instant};

/// Reason why parts of a request were not stored yet. Of several reasons, the first in this order decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Postponed {
    /// Timestamps are too far from a clock that may be wrong.
    Clock,
    /// Late samples fill their share of the head, until sealing makes room.
    LateSamples,
    /// The tenant creates series too fast. It may create the next series after this time.
    NewSeriesRate(Duration),
    NewSeries,
    /// The tenant is above its share of the head.
    TenantShare,
    ProcessMemory,
    ActiveSeries,
    /// The tenant has reached its limit of series with a metric name.
    SeriesPerMetric,
    Clusters,
}

impl Postponed {
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

    /// Kind of error. Limits on series and clusters are a policy, for which a retry does not help.
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

/// Shortage after which refusals are final. Usually, sealing makes room within two minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time without a refusal after which a shortage is over. Refused senders retry within seconds.
pub const CALM: Duration = Duration::from_secs(60);

const _: () = assert!(CALM.as_secs() < PATIENCE.as_secs());

/// A time without room for new series.
#[derive(Debug, Default, Clone, Copy)]
pub struct Shortage {
    /// First and last refusal in the present shortage.
    met: Option<(Instant, Instant)>,
}

impl Shortage {
    /// Reason to retry a request whose `postponed` parts were not stored; `None` if they are finally refused.
    pub fn worth_a_retry(&mut self, postponed: &[Postponed], now: Instant) -> Option<Postponed> {
        // record the shortage even if another reason decides
        let lasts = postponed.iter().any(|what| what.is_of_series()) && self.met(now) >= PATIENCE;
        postponed.iter().copied().filter(|what| !(lasts && what.is_of_series())).min()
    }

    /// Records an occurrence. Returns how long the shortage has lasted.
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
