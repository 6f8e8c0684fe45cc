//! A small random number generator with a seed (SplitMix64, Steele, Lea & Flood 2014). It must not be used
//! for secrets.

#[derive(Debug, Clone)]
pub struct Rng(u64);

/// The output function of SplitMix64. It spreads each input bit over all 64 bits.
pub const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random seed. The caller prints it, so that a failure can be repeated.
    pub fn fresh_seed() -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }

    /// Random numbers for a test. The seed is printed. The environment variable `TEST_SEED` repeats
    /// a run with its seed.
    pub fn announced() -> Self {
        let given = std::env::var("TEST_SEED").ok();
        let seed = given.map_or_else(Self::fresh_seed, |seed| seed.parse().expect("TEST_SEED is no number"));
        println!("seed {seed}");
        Self::new(seed)
    }

    pub const fn next_u64(&mut self) -> u64 {
        let out = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        out
    }

    /// A number that is at least 0 and less than `n`. If `n` is 0, it is 0.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// A random number that is at least 0 and less than 1.
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub const fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_stream() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for _ in 0..100 {
            assert_eq!(a.next_u64(), b.next_u64());
            assert!(a.below(10) < 10);
            b.below(10);
        }
        assert_eq!(Rng::new(1).below(0), 0);
    }
}
