//! Decides how many new series a tenant may create now. The checks are made in this order, and the first that
//! fails decides: memory of the head, for tenants within their share; memory of the process; the tenant's share of the head; its
//! number of series; and its rate of new series.

use crate::rate::{Rate, TokenBucket};
use crate::{Head, ProcessMemory, watermarks};
use model::SeriesRefusal;
use std::time::Instant;

/// How full the memory is. This decides whether new series can be created.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub head: Head,
    pub process: ProcessMemory,
    /// If the tenant holds more than its share of the head: the bytes that it holds, and its share.
    pub above_share: Option<(u64, u64)>,
    /// True if any tenant holds more than its share of the head. Tenants within theirs may then fill the head further.
    pub is_any_above_share: bool,
}

impl Memory {
    pub fn room(self) -> Result<(), SeriesRefusal> {
        // a tenant above its share waits for the level of its own refusal, however full the head is
        if self.above_share.is_none() {
            self.head.room_for_series(watermarks::no_new_series_from(self.is_any_above_share))?;
        }
        self.process.room()?;
        self.above_share.map_or(Ok(()), |(held_bytes, share_bytes)| {
            Err(SeriesRefusal::TenantShare { used_mib: held_bytes >> 20, share_mib: share_bytes >> 20 })
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    pub active_series: Option<u64>,
    /// True if an operator has set `active_series`.
    pub is_configured: bool,
    pub new_series: Option<Rate>,
}

impl Limits {
    /// Returns how many of the `wanted` new series the tenant may create, and fails if it is none. `series`
    /// is how many the tenant has already. A token is taken for each new series.
    pub fn room(
        self,
        series: u64,
        wanted: u64,
        bucket: &mut TokenBucket,
        now: Instant,
    ) -> Result<u64, SeriesRefusal> {
        let limit = self.active_series.unwrap_or(u64::MAX);
        let room = limit.saturating_sub(series).min(wanted);
        if room == 0 {
            return Err(SeriesRefusal::ActiveSeries { limit, is_configured: self.is_configured });
        }
        if let Some(rate) = self.new_series {
            let waits = |wait| SeriesRefusal::NewSeriesRate { per_s: rate.per_s, wait };
            bucket.check(rate, now).map_err(waits)?;
            bucket.take(room, rate, now);
        }
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn memory_counts_before_shares() {
        let memory_beside = |head, process, above_share, is_any_above_share| {
            let head = Head { used_bytes: head, limit_bytes: 100 };
            let process = ProcessMemory { held_bytes: process, limit_bytes: 100 };
            Memory { head, process, above_share, is_any_above_share }.room()
        };
        let memory = |head, process, above_share: Option<_>| {
            memory_beside(head, process, above_share, above_share.is_some())
        };
        assert!(memory(80, 80, None).is_ok());
        assert!(matches!(
            memory(80, 80, Some((3 << 20, 2 << 20))),
            Err(SeriesRefusal::TenantShare { used_mib: 3, share_mib: 2 })
        ));
        assert!(matches!(memory(90, 80, Some((3, 2))), Err(SeriesRefusal::TenantShare { .. })));
        assert!(matches!(memory(85, 80, None), Err(SeriesRefusal::NoRoom { .. })));
        assert!(memory_beside(91, 80, None, true).is_ok(), "another tenant fills the head");
        assert!(matches!(memory_beside(92, 80, None, true), Err(SeriesRefusal::NoRoom { .. })));
        assert!(memory_beside(91, 99, None, true).is_err());
        assert!(!matches!(memory(80, 99, Some((3, 2))), Ok(()) | Err(SeriesRefusal::TenantShare { .. })));
    }

    #[test]
    fn new_series_are_created_up_to_the_limit_and_at_the_rate() {
        let (now, mut bucket) = (Instant::now(), TokenBucket::default());
        let rate = Rate { per_s: 10, burst: Duration::from_secs(1) };
        let limits = Limits { active_series: Some(100), is_configured: true, new_series: Some(rate) };
        assert_eq!(limits.room(95, 50, &mut bucket, now).unwrap(), 5);
        assert!(matches!(
            limits.room(100, 1, &mut bucket, now),
            Err(SeriesRefusal::ActiveSeries { limit: 100, is_configured: true })
        ));
        assert_eq!(limits.room(0, 25, &mut bucket, now).unwrap(), 25, "the bucket may go into debt once");
        let waits = limits.room(0, 1, &mut bucket, now).unwrap_err();
        assert!(
            matches!(waits, SeriesRefusal::NewSeriesRate { wait, .. } if wait == Duration::from_secs(2)),
            "{waits}"
        );
        assert_eq!(limits.room(0, 1, &mut bucket, now + Duration::from_secs(2)).unwrap(), 1);
        assert_eq!(Limits::default().room(u64::MAX - 1, 1, &mut bucket, now).unwrap(), 1);
    }
}
