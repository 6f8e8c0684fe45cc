//! Keys of series as they are sent in text, before their labels are known.
//!
//! A key is a hash of two parts of the text: a head, and a field within it. The upper half of the key identifies the head,
//! so that whoever translates keys finds all fields of a head at once. The lower half identifies the field within the head.
//! Fields of different heads have the same key only if 128 bits collide. Fields of one head are told apart by the lower
//! 64 bits alone, which are hashed with a secret seed.

use crate::DecodeError;
use model::caps::BODY_BYTES_MAX;
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

/// Counts the bytes of labels that the caller of a decoder may have to parse. The fields of a head share its labels, but
/// each field is a series, whose labels are parsed on their own. So a small text can stand for many times its bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LabelBudget {
    left: usize,
    limit: usize,
}

impl LabelBudget {
    /// The most bytes of a request. Even a request with the most series passes if their labels have about 1 KiB each. To
    /// parse so many takes one to five seconds: 2 µs for a series with 20 labels, 17 µs with 128.
    const BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

    /// Bytes that any request may have, however short it is: a single line may have large labels and many fields.
    const BYTES_MIN: usize = 1 << 20;

    /// The budget of a text. `per_byte` limits the work of short texts, which are decoded between other tasks.
    pub(crate) fn new(text_bytes: usize, per_byte: usize) -> Self {
        let limit = (Self::BYTES_MIN + per_byte.saturating_mul(text_bytes)).min(Self::BYTES_MAX);
        Self { left: limit, limit }
    }

    /// Counts the labels of a series.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), DecodeError> {
        let what = "bytes of labels, counted for each value";
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(DecodeError::TooMany { what, limit: self.limit })?;
        Ok(())
    }
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
