use crate::ValueKind;
use xxhash_rust::const_xxh3::const_custom_default_secret;
use xxhash_rust::xxh3::{xxh3_128_with_secret, xxh3_128_with_seed};

/// Hash of a series' canonical label bytes (XXH3-128) with the data directory's seed. The seed is random, so
/// that clients cannot cause collisions. The seed never changes, because the key determines the partition.
/// Among 10^9 series, a collision has a probability below 10^-20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey(pub u128);

impl SeriesKey {
    #[inline]
    pub fn of(label_bytes: &[u8], seed: u64) -> Self {
        Self(xxh3_128_with_seed(label_bytes, seed))
    }

    /// A label set may have floats and histograms, which are two series with two keys. `self` is
    /// the key of the labels; this gives the key for the series with values of `kind`. Both are in
    /// the same partition.
    #[inline]
    pub const fn of_kind(self, kind: ValueKind) -> Self {
        match kind {
            ValueKind::Float => self,
            // The constant is arbitrary: keys are hashes, so any would do.
            ValueKind::Histogram => Self(self.0 ^ 0x6e61_7469_7665_2068),
        }
    }

    /// Number of the partition that owns the series, out of `count` partitions. It depends on the
    /// high bits of the key, because an index uses the low bits.
    #[inline]
    pub const fn partition(self, count: usize) -> usize {
        (((self.0 >> 64) as u64 as u128 * count as u128) >> 64) as usize
    }
}

/// Computes the same keys as [`SeriesKey::of`], but twice as fast for labels of more than 240
/// bytes: what XXH3 derives from the seed for such inputs is computed once.
#[derive(Debug, Clone)]
pub struct SeriesHasher {
    seed: u64,
    secret: [u8; 192],
}

impl SeriesHasher {
    /// XXH3 uses the seed itself for inputs up to this length. For longer ones, it derives a secret
    /// from the seed.
    const SEEDED_BYTES_MAX: usize = 240;

    pub const fn new(seed: u64) -> Self {
        Self { seed, secret: const_custom_default_secret(seed) }
    }

    #[inline]
    pub fn key(&self, label_bytes: &[u8]) -> SeriesKey {
        if label_bytes.len() <= Self::SEEDED_BYTES_MAX {
            return SeriesKey::of(label_bytes, self.seed);
        }
        SeriesKey(xxh3_128_with_secret(label_bytes, &self.secret))
    }
}

/// Number of a series in the memory of one partition. It is valid until the series is evicted or
/// the process ends. Freed numbers are reused, so that they stay small enough to index arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesRef(pub u32);

impl SeriesRef {
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hasher_gives_the_keys_of_its_seed() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        for seed in [0, 1, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
            let hasher = SeriesHasher::new(seed);
            for len in (0..600).chain([1023, 1024, 1025, 2048, 5000]) {
                assert_eq!(hasher.key(&bytes[..len]), SeriesKey::of(&bytes[..len], seed), "{seed} {len}");
            }
        }
    }

    #[test]
    fn partitions_are_in_range_and_even() {
        let mut counts = [0usize; 3];
        for i in 0..30_000u32 {
            counts[SeriesKey::of(&i.to_le_bytes(), 1).partition(3)] += 1;
        }
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
        let key = SeriesKey::of(b"x", 1);
        let other = key.of_kind(ValueKind::Histogram);
        assert_ne!(key, other);
        assert_eq!((key.of_kind(ValueKind::Float), key.partition(3)), (key, other.partition(3)));
        assert_eq!(SeriesKey(u128::MAX).partition(7), 6);
        assert_eq!(SeriesKey(0).partition(7), 0);
    }
}
