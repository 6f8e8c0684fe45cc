//! Divides the head's memory fairly among tenants. When the head is filled to
//! [`watermarks::FAIR`](crate::watermarks::FAIR), tenants above their share get no new series. Shares are
//! proportional to weights and max-min fair: what a tenant does not use is divided among tenants that want
//! more. If some tenants are known, all new tenants together get a tenth of the head.
//!
//! Shares also decide whose idle series are evicted first. Then they are shares of what is to be left in the head
//! ([`Shares::of_room`]).

use crate::watermarks::{FAIR, NEW_TENANTS_SHARE};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    pub bytes: u64,
    pub weight: u64,
    /// New tenants share a tenth of the head, unless all tenants are new.
    pub is_new: bool,
}

/// How many bytes of the head a tenant of weight 1 may hold when the head is filled to [`FAIR`], or to another level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    known_bytes: u64,
    new_bytes: u64,
}

impl Shares {
    pub fn divide(limit_bytes: u64, holdings: &[Holding]) -> Self {
        if !is_shared(holdings) {
            return Self { known_bytes: u64::MAX, new_bytes: u64::MAX };
        }
        Self::of_room(limit_bytes, limit_bytes / 100 * FAIR, holdings)
    }

    /// Divides `room_bytes` of a head of `limit_bytes`. If the tenants hold more than that together, some of them hold more
    /// than their shares. This is so for a single tenant, too.
    pub fn of_room(limit_bytes: u64, room_bytes: u64, holdings: &[Holding]) -> Self {
        let (mut new, mut known): (Vec<_>, Vec<_>) =
            holdings.iter().filter(|holding| holding.bytes > 0).partition(|holding| holding.is_new);
        if known.is_empty() {
            let level_bytes = level(room_bytes, &mut new);
            return Self { known_bytes: level_bytes, new_bytes: level_bytes };
        }
        let of_new_bytes = (limit_bytes / 100 * NEW_TENANTS_SHARE).min(room_bytes);
        let used_by_new = new.iter().map(|holding| holding.bytes).sum::<u64>().min(of_new_bytes);
        Self {
            known_bytes: level(room_bytes - used_by_new, &mut known),
            new_bytes: level(of_new_bytes, &mut new),
        }
    }

    /// Like [`Self::of_room`]. But if the tenants do not hold more than the room, according to counts that lag behind, they
    /// share a byte less than they hold, so that the largest exceed their shares.
    pub fn of_full_room(limit_bytes: u64, room_bytes: u64, holdings: &[Holding]) -> Self {
        let held_bytes: u64 = holdings.iter().map(|holding| holding.bytes).sum();
        Self::of_room(limit_bytes, room_bytes.min(held_bytes.saturating_sub(1)), holdings)
    }

    pub const fn of(self, weight: u64, is_new: bool) -> u64 {
        let bytes = if is_new { self.new_bytes } else { self.known_bytes };
        bytes.saturating_mul(weight)
    }

    pub fn is_any_exceeded(self, holdings: &[Holding]) -> bool {
        holdings.iter().any(|holding| holding.bytes > self.of(holding.weight, holding.is_new))
    }
}

/// True if at least two tenants hold memory.
pub fn is_shared(holdings: &[Holding]) -> bool {
    holdings.iter().filter(|holding| holding.bytes > 0).count() >= 2
}

/// The max-min fair level, in bytes per unit of weight. If each tenant that holds more is cut to this level,
/// all tenants together hold `room_bytes`.
fn level(room_bytes: u64, holdings: &mut [&Holding]) -> u64 {
    holdings.sort_unstable_by_key(|holding| holding.bytes / holding.weight);
    let mut weights: u64 = holdings.iter().map(|holding| holding.weight).sum();
    let mut left_bytes = room_bytes;
    for holding in holdings {
        let level_bytes = left_bytes / weights;
        if holding.bytes / holding.weight >= level_bytes {
            return level_bytes;
        }
        left_bytes -= holding.bytes;
        weights -= holding.weight;
        if weights == 0 {
            // all tenants fit, so the largest may have what is left
            return (holding.bytes + left_bytes) / holding.weight;
        }
    }
    room_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    const KNOWN: Holding = Holding { bytes: 0, weight: 1, is_new: false };
    const NEW: Holding = Holding { is_new: true, ..KNOWN };

    fn share(holdings: &[Holding], weight: u64, is_new: bool) -> u64 {
        Shares::divide(1000, holdings).of(weight, is_new)
    }

    #[test]
    fn unused_shares_of_small_tenants_go_to_large_ones() {
        let known = |bytes| Holding { bytes, ..KNOWN };
        assert_eq!(share(&[known(700), known(0)], 1, false), u64::MAX, "a tenant alone");
        assert_eq!(share(&[known(50), known(700)], 1, false), 700);
        assert_eq!(
            share(&[known(50), known(500), known(300)], 1, false),
            400,
            "300, and the unused rest of 750"
        );
        assert_eq!(share(&[known(50), known(500), known(600)], 1, false), 350);
        assert_eq!(share(&[known(400), known(400), known(400)], 1, false), 250);
        let heavy = Holding { bytes: 700, weight: 2, ..KNOWN };
        assert_eq!(share(&[known(400), heavy], 2, false), 500);
        assert_eq!(share(&[known(100), heavy], 2, false), 650);
    }

    #[test]
    fn a_flood_of_new_tenants_shrinks_no_known_one_below_the_rest() {
        let known = Holding { bytes: 600, ..KNOWN };
        let mut holdings = vec![known, Holding { bytes: 1, ..KNOWN }];
        let alone = share(&holdings, 1, false);
        holdings.extend(std::iter::repeat_n(Holding { bytes: 10, ..NEW }, 1000));
        assert_eq!(alone - share(&holdings, 1, false), 100, "a tenth of the head");
        assert_eq!(share(&holdings, 1, true), 0);
    }

    /// Otherwise, nobody's series would be evicted first, although the head is full.
    #[test]
    fn whoever_fills_the_room_some_tenant_exceeds_its_share() {
        let mut rng = Rng::announced();
        for _ in 0..10_000 {
            let holding = |rng: &mut Rng| {
                let most_bytes = 1 << rng.below(20);
                let bytes = if rng.chance(0.2) { 0 } else { rng.below(most_bytes) };
                Holding { bytes, weight: 1 + rng.below(3), is_new: rng.chance(0.3) }
            };
            let holdings: Vec<_> = (0..1 + rng.below(20)).map(|_| holding(&mut rng)).collect();
            let all_bytes: u64 = holdings.iter().map(|holding| holding.bytes).sum();
            let room_bytes = rng.below(2 * all_bytes + 2);
            let limit_bytes = room_bytes + rng.below(1 << 20);
            let shares = Shares::of_room(limit_bytes, room_bytes, &holdings);
            let is_fuller = all_bytes > room_bytes;
            assert!(
                !is_fuller || shares.is_any_exceeded(&holdings),
                "{shares:?} of {room_bytes}: {holdings:?}"
            );
            let full = Shares::of_full_room(limit_bytes, room_bytes, &holdings);
            assert!(!is_fuller || full == shares);
            assert_eq!(full.is_any_exceeded(&holdings), all_bytes > 0, "{full:?}: {holdings:?}");
        }
        let alone = [Holding { bytes: 500, ..KNOWN }];
        assert!(!Shares::of_room(1000, 500, &alone).is_any_exceeded(&alone));
        let [small, large] = [10, 500].map(|bytes| Holding { bytes, ..KNOWN });
        let both = Shares::of_room(1000, 300, &[small, large]);
        assert!(both.is_any_exceeded(&[large]) && !both.is_any_exceeded(&[small]));
        let lagging = Shares::of_full_room(1000, 600, &[small, large]);
        assert!(lagging.is_any_exceeded(&[large]) && !lagging.is_any_exceeded(&[small]));
    }

    #[test]
    fn new_tenants_alone_divide_everything() {
        let new = |bytes| Holding { bytes, ..NEW };
        assert_eq!(share(&[new(700), new(10)], 1, true), 740);
        assert_eq!(share(&[], 1, true), u64::MAX);
    }
}
