//! Parts of a request that found no room: whether it is worth a retry.
//!
//! A sender repeats what it may repeat, in order, and everything behind it waits. That is right while room may come
//! soon, and wrong once it does not: then a request with one new series holds up all the known ones of its shard. So new
//! series without room are answered with "retry" at first, and for good once the shortage has lasted.

use crate::process;
use model::ErrorKind;
use std::time::{Duration, Instant};

/// Why parts of a request were left out that may be stored later, in the order in which they decide its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Postponed {
    /// Samples lie too far from a clock that seems to be wrong.
    Clock,
    /// Late samples hold their share of the head. Sealing makes room, so a retry succeeds in the end.
    LateSamples,
    /// The tenant creates series faster than its settings allow; the next one may be created after this time.
    NewSeriesRate(Duration),
    /// The head has no room for new series.
    NewSeries,
    /// The tenant holds its share of the head, which has no room for more of its series.
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
    /// A stable word for logs and metrics.
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

    /// What is expected of the sender. A number of series or clusters is a policy: a sender that repeats the
    /// request cannot get past it.
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

/// Duration of a shortage after which it is answered with a final refusal. Sealing and eviction make room within a
/// minute or two if they can.
const PATIENCE: Duration = Duration::from_secs(300);

/// A shortage is over after this long without a refusal; refused senders retry within seconds. A moment with room in
/// the middle of a flood does not end it.
pub const CALM: Duration = Duration::from_secs(60);

const _: () = assert!(CALM.as_secs() < PATIENCE.as_secs());

/// A lack of room for new series, and since when.
#[derive(Debug, Default, Clone, Copy)]
pub struct Shortage {
    /// Times of the first and the last occurrence, without a [`CALM`] in between.
    met: Option<(Instant, Instant)>,
}

impl Shortage {
    /// Why a request is to be sent again of which these parts were left out at `now`; `None` where its sender is to go on
    /// without them.
    pub fn worth_a_retry(&mut self, postponed: &[Postponed], now: Instant) -> Option<Postponed> {
        // noted whatever else was left out: another reason to retry does not make room for series
        let lasts = postponed.iter().any(|what| what.is_of_series()) && self.met(now) >= PATIENCE;
        postponed.iter().copied().filter(|what| !(lasts && what.is_of_series())).min()
    }

    /// Duration of the shortage if it occurs at `now`.
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
    fn a_shortage_is_answered_for_good_after_five_minutes() {
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
    fn other_reasons_to_retry_do_not_stop_the_clock_of_a_shortage() {
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
