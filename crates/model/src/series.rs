//! Keys and references of series.

use crate::ValueKind;
use xxhash_rust::const_xxh3::const_custom_default_secret;
use xxhash_rust::xxh3::{xxh3_128_with_secret, xxh3_128_with_seed};

/// The 128-bit hash of a series' canonical label bytes under a node's seed (XXH3-128).
///
/// The seed is random for each data directory, so that nobody outside can choose series that share an
/// index bucket. It is kept there for good, because the key also chooses the partition. Two series of one
/// tenant that share a key would be taken for one; at 10^9 series the chance of any such pair is below
/// 10^-20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey(pub u128);

impl SeriesKey {
    /// The key of label bytes (see [`crate::labels`] for their form).
    #[inline]
    pub fn of(label_bytes: &[u8], seed: u64) -> Self {
        Self(xxh3_128_with_seed(label_bytes, seed))
    }

    /// The key of the series with values of `kind` whose labels have this key. Both kinds are in one partition.
    #[inline]
    pub const fn of_kind(self, kind: ValueKind) -> Self {
        match kind {
            ValueKind::Float => self,
            // any constant will do: the keys are hashes
            ValueKind::Histogram => Self(self.0 ^ 0x6e61_7469_7665_2068),
        }
    }

    /// The partition among `count` that owns the series: by the high bits, so that the low bits stay
    /// evenly spread inside a partition's index.
    #[inline]
    pub const fn partition(self, count: usize) -> usize {
        (((self.0 >> 64) as u64 as u128 * count as u128) >> 64) as usize
    }
}

/// Computes the same keys as [`SeriesKey::of`], but derives the seed's secret once. That is twice as fast for
/// labels over 240 bytes: XXH3 derives the secret anew for each of them.
#[derive(Debug, Clone)]
pub struct SeriesHasher {
    seed: u64,
    secret: [u8; 192],
}

impl SeriesHasher {
    /// XXH3 uses the seed itself up to this length, and the secret above.
    const SEEDED_BYTES_MAX: usize = 240;

    /// A hasher for `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { seed, secret: const_custom_default_secret(seed) }
    }

    /// Computes [`SeriesKey::of`] with this hasher's seed.
    #[inline]
    pub fn key(&self, label_bytes: &[u8]) -> SeriesKey {
        if label_bytes.len() <= Self::SEEDED_BYTES_MAX {
            return SeriesKey::of(label_bytes, self.seed);
        }
        SeriesKey(xxh3_128_with_secret(label_bytes, &self.secret))
    }
}

/// Reference to a series of one tenant in one partition's head. References are dense, assigned in order of
/// creation, and valid only in that head and until the process ends (the journal translates them on replay).
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
