//! Fill levels of the head, in percent of its account, each with the measure that begins there. The measures at lower
//! levels make room, so that the measures at higher levels are rarely needed.

/// Sealing begins without waiting for its schedule, and no longer yields to other work.
pub const SEAL: u64 = 60;

/// Series that have no samples in memory and were not written for a minute are evicted.
pub const EVICT_SOON: u64 = 60;

/// Writes of a blocked tenant are refused if other tenants can be sealed: the rest of the head is for tenants that can
/// be sealed.
pub const REFUSE_BLOCKED: u64 = 60;

/// Percentage of the limit on tenants (not of the head) from which idle series are evicted early, so that idle tenants
/// leave with them.
pub const TENANTS: usize = 80;

/// All series without samples in memory are evicted, and most exemplars are dropped.
pub const EVICT_ALL: u64 = 75;

/// Tenants above their share of the head get no new series: see [`crate::share`].
pub const FAIR: u64 = 75;

/// Percentage of the head that all new tenants together may hold once it is filled to [`FAIR`].
pub const NEW_TENANTS_SHARE: u64 = 10;

/// Writes of tenants above their share of the head are refused, even to known series: the rest of the head is for other
/// tenants.
pub const REFUSE_ABOVE_SHARE: u64 = 92;

/// Writes of a blocked tenant are refused even if no other tenant can be sealed (the store is unreachable) or no other
/// tenant writes. The rest of the head is kept for tenants that can be sealed.
pub const REFUSE_LAST: u64 = 80;

/// No new series are created, and no metadata of new metric families is kept. Samples of known series are still
/// accepted.
pub const NO_NEW_SERIES: u64 = 85;

/// Replay for closed tenants stops, and starts again later. This level must be well above [`REFUSE_LAST`]: in an outage
/// of the store, samples fill the heads a little beyond that level, and after a restart these samples must fit again.
/// The rest of the head is for known series of other tenants. A replay that stops removes its samples from the heads,
/// so that other tenants are refused new series only while a replay is in progress.
pub const REFUSE_CLOSED: u64 = 95;

/// Percentage of the head's account that late samples may hold until they are sealed. Late samples are older than the
/// newest sample of their series. Beyond this share, only late samples are refused.
pub const LATE_SHARE: u64 = 25;

const _: () = assert!(SEAL <= EVICT_ALL && EVICT_SOON < EVICT_ALL && EVICT_ALL < NO_NEW_SERIES);
const _: () =
    assert!(REFUSE_BLOCKED < REFUSE_LAST && REFUSE_LAST < NO_NEW_SERIES && NO_NEW_SERIES < REFUSE_CLOSED);
const _: () =
    assert!(NO_NEW_SERIES < REFUSE_ABOVE_SHARE && REFUSE_ABOVE_SHARE < REFUSE_CLOSED && REFUSE_CLOSED < 100);
const _: () = assert!(NEW_TENANTS_SHARE < FAIR && FAIR < NO_NEW_SERIES);

/// Fill level, in percent, from which writes of a blocked tenant are refused.
pub const fn refuse_blocked_from(others_are_sealed: bool) -> u64 {
    if others_are_sealed { REFUSE_BLOCKED } else { REFUSE_LAST }
}
