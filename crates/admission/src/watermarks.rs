//! Levels of the head's memory, in percent of its account, and the measure that begins at each. Earlier ones make room, so
//! that later ones are rarely needed.

/// Sealing begins by itself, and no longer yields to other work.
pub const SEAL: u64 = 60;

/// Series without samples that were unseen for a minute are evicted.
pub const EVICT_SOON: u64 = 60;

/// Writes of a tenant that cannot be sealed are refused, where others can: they need the rest.
pub const REFUSE_BLOCKED: u64 = 60;

/// Percent of the tenant limit from which idle series are evicted early, so that idle tenants leave with them.
pub const TENANTS: usize = 80;

/// All series without samples are evicted, and most exemplars dropped.
pub const EVICT_ALL: u64 = 75;

/// Tenants above their share of the head get no new series: see [`crate::share`].
pub const FAIR: u64 = 75;

/// Percent of the head that new tenants may hold together, from [`FAIR`] on.
pub const NEW_TENANTS_SHARE: u64 = 10;

/// Writes of tenants above their share of the head are refused, those of known series too: the rest is for other tenants.
pub const REFUSE_ABOVE_SHARE: u64 = 92;

/// Writes of a tenant that cannot be sealed are refused where no other tenant can be sealed either (the store is away), or
/// no other writes: the rest is kept for tenants that can be sealed.
pub const REFUSE_LAST: u64 = 80;

/// No series is created and no metadata of new metric families is kept any more: known series can still flow.
pub const NO_NEW_SERIES: u64 = 85;

/// Replay for closed tenants stops, and begins again later. It must be well above [`REFUSE_LAST`]: in an outage of the store,
/// samples fill the heads up to there and a little beyond, and after a restart they have to fit again. The rest is for others'
/// known series. What does not fit leaves the heads, so that others are refused new series only while a replay is under way.
pub const REFUSE_CLOSED: u64 = 95;

/// Samples that are older than the newest of their series may hold this many percent of the head's account until they are
/// sealed. Beyond that only such samples are refused.
pub const LATE_SHARE: u64 = 25;

const _: () = assert!(SEAL <= EVICT_ALL && EVICT_SOON < EVICT_ALL && EVICT_ALL < NO_NEW_SERIES);
const _: () =
    assert!(REFUSE_BLOCKED < REFUSE_LAST && REFUSE_LAST < NO_NEW_SERIES && NO_NEW_SERIES < REFUSE_CLOSED);
const _: () =
    assert!(NO_NEW_SERIES < REFUSE_ABOVE_SHARE && REFUSE_ABOVE_SHARE < REFUSE_CLOSED && REFUSE_CLOSED < 100);
const _: () = assert!(NEW_TENANTS_SHARE < FAIR && FAIR < NO_NEW_SERIES);

/// Fill level, in percent, from which writes of a tenant are refused that cannot be sealed.
pub const fn refuse_blocked_from(others_are_sealed: bool) -> u64 {
    if others_are_sealed { REFUSE_BLOCKED } else { REFUSE_LAST }
}
