//! Fill levels of the head, in percent of its limit. When a level is reached, the server takes a measure to
//! save memory.

/// Sealing begins at once, and no longer yields to other work.
pub const SEAL: u64 = 60;

/// Series that have no samples in memory are evicted a minute after their last write if their tenant holds more than its
/// share of the head, and a quarter of an hour after it otherwise.
pub const EVICT_SOON: u64 = 60;

/// Writes of a tenant whose table cannot be written are refused, if sealing other tenants can make room.
pub const REFUSE_BLOCKED: u64 = 60;

/// When this percentage of the limit on tenants is in memory, idle series are evicted early.
pub const TENANTS: usize = 80;

/// Series of tenants above their share are evicted as soon as they have no samples in memory. Up to [`NO_NEW_SERIES_WITHIN_SHARE`],
/// those that go on (`head::Idle::evict_lasting_before_s`) stay for 90 s after their last write. Series of the other tenants are evicted
/// five minutes after their last write. Most exemplars are dropped.
pub const EVICT_AT_ONCE: u64 = 75;

/// Tenants above their share of the head get no new series ([`crate::share`]).
pub const FAIR: u64 = 75;

/// All new tenants together may hold this percentage of the head when it is filled to [`FAIR`].
pub const NEW_TENANTS_SHARE: u64 = 10;

/// Writes of tenants above their share of the head are refused.
pub const REFUSE_ABOVE_SHARE: u64 = 92;

/// Writes of a tenant whose table cannot be written are refused, even if no other tenant can be sealed.
pub const REFUSE_LAST: u64 = 80;

/// No new series are created, and no metadata of new metric families is kept. While some tenants are above their share,
/// the others may create series up to [`NO_NEW_SERIES_WITHIN_SHARE`].
pub const NO_NEW_SERIES: u64 = 85;

/// From here on, tenants within their share create no series, either.
pub const NO_NEW_SERIES_WITHIN_SHARE: u64 = 92;

/// All series that have no samples in memory are evicted, whatever their tenant holds. This is the last resort. Writes of
/// tenants above their share are refused already, but those that were admitted before may still fill the head, and so may
/// writes of the other tenants, sums, records and replay for closed tenants.
pub const EVICT_EVERYTHING: u64 = 94;

/// Replay of the journal stops for tenants whose table cannot be read, and starts again later. The level must
/// be well above [`REFUSE_LAST`]: samples that fill the heads during an outage of the store must fit again
/// after a restart.
pub const REFUSE_CLOSED: u64 = 95;

/// Out-of-order samples that are not sealed yet may take this percentage of the head. Beyond it, they are refused, except
/// as [`LATE_SHARE_OF_FEW`] allows.
pub const LATE_SHARE: u64 = 25;

/// Beyond [`LATE_SHARE`], a further percentage of the head, only for tenants that have few out-of-order samples.
pub const LATE_SHARE_OF_FEW: u64 = 3;

const _: () = assert!(SEAL <= EVICT_AT_ONCE && EVICT_SOON < EVICT_AT_ONCE && EVICT_AT_ONCE < NO_NEW_SERIES);
const _: () =
    assert!(EVICT_AT_ONCE == FAIR, "whoever is refused new series loses idle ones, and nobody else");
const _: () = assert!(NO_NEW_SERIES < NO_NEW_SERIES_WITHIN_SHARE);
const _: () = assert!(NO_NEW_SERIES_WITHIN_SHARE <= REFUSE_ABOVE_SHARE);
const _: () =
    assert!(REFUSE_ABOVE_SHARE < EVICT_EVERYTHING, "series of tenants above their share leave first");
const _: () = assert!(EVICT_EVERYTHING < REFUSE_CLOSED, "eviction must make room for closed tenants, too");
const _: () =
    assert!(REFUSE_BLOCKED < REFUSE_LAST && REFUSE_LAST < NO_NEW_SERIES && NO_NEW_SERIES < REFUSE_CLOSED);
const _: () =
    assert!(NO_NEW_SERIES < REFUSE_ABOVE_SHARE && REFUSE_ABOVE_SHARE < REFUSE_CLOSED && REFUSE_CLOSED < 100);
const _: () = assert!(NEW_TENANTS_SHARE < FAIR && FAIR < NO_NEW_SERIES);

/// Fill level from which a tenant within its share gets no new series. `is_any_above` tells that other tenants are above
/// theirs.
pub const fn no_new_series_from(is_any_above: bool) -> u64 {
    if is_any_above { NO_NEW_SERIES_WITHIN_SHARE } else { NO_NEW_SERIES }
}

/// Fill level at which writes are refused to a tenant whose table cannot be written.
pub const fn refuse_blocked_from(others_are_sealed: bool) -> u64 {
    if others_are_sealed { REFUSE_BLOCKED } else { REFUSE_LAST }
}
