//! Keys of series as they are sent in text, before their labels are known.
//!
//! A key is a hash of two parts of the text: a head, and a field within it. The upper half of the key identifies the head,
//! so that whoever translates keys finds all fields of a head at once. The lower half identifies the field within the head.
//! Fields of different heads have the same key only if 128 bits collide. Fields of one head are told apart by the lower
//! 64 bits alone, which are hashed with a secret seed.

use model::{SeriesHasher, SeriesKey};

#[derive(Debug, Clone, Copy)]
pub(crate) struct RawKeys<'a> {
    pub(crate) hasher: &'a SeriesHasher,
    /// Differs between requests that make other labels of the same text.
    pub(crate) fingerprint: u128,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    upper: u64,
    seed: u64,
}

impl RawKeys<'_> {
    #[inline]
    pub(crate) fn head(&self, bytes: &[u8]) -> Head {
        let hash = self.hasher.key(bytes).0 ^ self.fingerprint;
        Head { upper: (hash >> 64) as u64, seed: hash as u64 }
    }
}

impl Head {
    #[inline]
    pub(crate) fn field(self, name: &[u8]) -> SeriesKey {
        let field = SeriesKey::of(name, self.seed).0 as u64;
        SeriesKey(u128::from(self.upper) << 64 | u128::from(field))
    }

    /// The key of the only series of a head.
    #[inline]
    pub(crate) fn only(self) -> SeriesKey {
        SeriesKey(u128::from(self.upper) << 64 | u128::from(self.seed))
    }
}
