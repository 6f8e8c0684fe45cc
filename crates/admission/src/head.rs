//! Decides whether the memory of all heads together has room for more.

use crate::watermarks::{LATE_SHARE, LATE_SHARE_OF_FEW, SEAL};
use model::SeriesRefusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub used_bytes: u64,
    pub limit_bytes: u64,
}

impl Head {
    pub const fn is_filled_to(self, percent: u64) -> bool {
        self.used_bytes >= self.limit_bytes / 100 * percent
    }

    pub const fn is_full(self) -> bool {
        self.used_bytes >= self.limit_bytes
    }

    /// Checks whether series may be created, which is so until the head is filled to `percent`.
    pub const fn room_for_series(self, percent: u64) -> Result<(), SeriesRefusal> {
        if !self.is_filled_to(percent) {
            return Ok(());
        }
        let limit_bytes = self.limit_bytes / 100 * percent;
        Err(SeriesRefusal::NoRoom { used_mib: self.used_bytes >> 20, limit_mib: limit_bytes >> 20 })
    }

    pub const fn late_limit_bytes(self) -> u64 {
        self.limit_bytes / 100 * LATE_SHARE
    }

    /// Checks whether more out-of-order samples of a tenant can be kept. `late_bytes` is the memory of those that are
    /// already kept, of which the tenant has `own_bytes`. Beyond the limit, there is some room for tenants that have less than what
    /// is left of it, so that a tenant with many late samples takes only a part of it.
    pub const fn room_for_late(self, late_bytes: u64, own_bytes: u64) -> Result<(), SeriesRefusal> {
        let limit_for_few_bytes = self.late_limit_bytes() + self.limit_bytes / 100 * LATE_SHARE_OF_FEW;
        if late_bytes < self.late_limit_bytes() || own_bytes < limit_for_few_bytes.saturating_sub(late_bytes)
        {
            return Ok(());
        }
        Err(SeriesRefusal::NoRoomForLate { limit_mib: self.late_limit_bytes() >> 20 })
    }

    /// True if samples should be sealed to make room, because the whole head or its share for out-of-order
    /// samples is getting full.
    pub const fn needs_sealing(self, late_bytes: u64) -> bool {
        self.is_filled_to(SEAL) || late_bytes >= self.late_limit_bytes() / 100 * SEAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermarks::{no_new_series_from, refuse_blocked_from};

    #[test]
    fn each_watermark_begins_at_its_percentage() {
        let head = |used_bytes| Head { used_bytes, limit_bytes: 10_000 };
        for (is_any_above, bytes) in [(false, 8500), (true, 9200)] {
            let percent = no_new_series_from(is_any_above);
            assert!(head(bytes - 1).room_for_series(percent).is_ok());
            assert!(head(bytes).room_for_series(percent).is_err());
        }
        assert!(!head(9999).is_full() && head(10_000).is_full() && head(u64::MAX).is_full());
        for own_bytes in [0, 2499] {
            assert!(head(0).room_for_late(2499, own_bytes).is_ok());
        }
        for (late_bytes, own_bytes) in [(2500, 300), (2700, 100), (2799, 1), (2800, 0), (u64::MAX, 0)] {
            assert!(head(0).room_for_late(late_bytes, own_bytes).is_err());
            assert_eq!(head(0).room_for_late(late_bytes, own_bytes.saturating_sub(1)).is_ok(), own_bytes > 0);
        }
        assert!(
            !head(5999).needs_sealing(1499) && head(6000).needs_sealing(0) && head(0).needs_sealing(1500)
        );
        assert!(Head { used_bytes: 0, limit_bytes: 0 }.is_full());
        assert_eq!((refuse_blocked_from(true), refuse_blocked_from(false)), (60, 80));
    }
}
