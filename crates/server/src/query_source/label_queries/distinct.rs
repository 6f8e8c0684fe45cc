//! A set of distinct strings that takes little memory.
//!
//! ```text
//!   chunks   │4 name│3 job│8 instance│…│      each text preceded by its length, in a few allocations
//!   places    ──────▲─────▲──────▲           a hash table of 4-byte positions
//! ```

use hashbrown::HashTable;
use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};

/// Size of a chunk. Every string fits into one, because the labels of a series have at most 64 KiB.
const CHUNK_BYTES: usize = 1 << 20;

const LENGTH_BYTES: usize = size_of::<u32>();

/// Memory that each string takes in addition to its bytes: its length, 17 bytes in the hash table while it grows, and
/// 4 for its position in the final order.
const ENTRY_BYTES: usize = LENGTH_BYTES + 17 + 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug)]
pub(super) struct Distinct {
    texts: Texts,
    places: HashTable<u32>,
    hasher: RandomState,
    held_bytes: usize,
    max_bytes: usize,
}

impl Distinct {
    pub(super) fn within(max_bytes: usize) -> Self {
        Self {
            texts: Texts::default(),
            places: HashTable::new(),
            hasher: RandomState::new(),
            held_bytes: 0,
            max_bytes,
        }
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn insert(&mut self, text: &[u8]) -> Result<(), Full> {
        let Self { texts, places, hasher, .. } = self;
        let hash = hasher.hash_one(text);
        if places.find(hash, |place| texts.at(*place) == text).is_some() {
            return Ok(());
        }
        let held_bytes = self.held_bytes + text.len() + ENTRY_BYTES;
        if held_bytes > self.max_bytes {
            return Err(Full);
        }
        let place = texts.push(text)?;
        self.held_bytes = held_bytes;
        places.insert_unique(hash, place, |place| hasher.hash_one(texts.at(*place)));
        Ok(())
    }

    /// Keeps only the first `count` strings in `order`. Meanwhile, the old and the new set both take memory.
    pub(super) fn keep_first(&mut self, count: usize, order: impl Fn(&[u8], &[u8]) -> Ordering) {
        if self.len() <= count {
            return;
        }
        let all = std::mem::replace(self, Self::within(self.max_bytes)).in_order(order);
        for text in all.iter().take(count) {
            self.insert(text).expect("BUG: a subset needs more memory than the set");
        }
    }

    pub(super) fn in_order(self, order: impl Fn(&[u8], &[u8]) -> Ordering) -> Ordered {
        let Self { texts, places, .. } = self;
        let mut places: Vec<u32> = places.into_iter().collect();
        places.sort_unstable_by(|a, b| order(texts.at(*a), texts.at(*b)));
        Ordered { texts, places }
    }
}

pub(crate) struct Ordered {
    texts: Texts,
    places: Vec<u32>,
}

impl Ordered {
    /// Keeps only the first `count` strings. Returns true if there were more.
    pub(super) fn cut(&mut self, count: usize) -> bool {
        let is_cut = self.places.len() > count;
        self.places.truncate(count);
        is_cut
    }

    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn at(&self, position: usize) -> &[u8] {
        self.texts.at(self.places[position])
    }

    /// Finds a string, if the order is that of the bytes.
    pub(super) fn position(&self, text: &[u8]) -> Option<usize> {
        self.places.binary_search_by(|place| self.texts.at(*place).cmp(text)).ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| self.texts.at(*place))
    }
}

impl std::fmt::Debug for Ordered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ordered").field("len", &self.places.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Texts(Vec<Vec<u8>>);

impl Texts {
    fn push(&mut self, text: &[u8]) -> Result<u32, Full> {
        let bytes = LENGTH_BYTES + text.len();
        if self.0.last().is_none_or(|chunk| chunk.len() + bytes > CHUNK_BYTES) {
            self.0.push(Vec::new());
        }
        let number = self.0.len() - 1;
        let chunk = &mut self.0[number];
        let place = u32::try_from(number * CHUNK_BYTES + chunk.len()).map_err(|_| Full)?;
        if bytes > CHUNK_BYTES {
            return Err(Full);
        }
        chunk.extend_from_slice(&(text.len() as u32).to_le_bytes());
        chunk.extend_from_slice(text);
        Ok(place)
    }

    fn at(&self, place: u32) -> &[u8] {
        let place = place as usize;
        let from = &self.0[place / CHUNK_BYTES][place % CHUNK_BYTES..];
        let (length, rest) = from.split_first_chunk().expect("BUG: a text has no length");
        &rest[..u32::from_le_bytes(*length) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use stdx::rng::Rng;

    #[test]
    fn distinct_texts_are_sorted_and_unique() {
        let mut rng = Rng::announced();
        let (mut found, mut expected) = (Distinct::within(usize::MAX), BTreeSet::new());
        for _ in 0..20_000 {
            // long strings, so that several chunks are filled
            let len = if rng.chance(0.01) { rng.below(40_000) } else { rng.below(4) };
            let text: Vec<u8> = (0..len).map(|_| b'a' + rng.below(4) as u8).collect();
            found.insert(&text).unwrap();
            expected.insert(text);
        }
        assert!(found.texts.0.len() > 1);
        assert_eq!(found.len(), expected.len());
        found.keep_first(1_000_000, Ord::cmp);
        assert_eq!(found.len(), expected.len());
        found.keep_first(100, Ord::cmp);
        found.insert(b"").unwrap();
        let mut found = found.in_order(Ord::cmp);
        assert!(found.iter().eq(expected.iter().take(100)));
        assert!(!found.cut(100) && found.cut(10));
        assert!((0..found.len()).all(|i| found.position(found.at(i)) == Some(i)));
        assert_eq!(found.position(b"not one of them"), None);
        assert!(found.iter().eq(expected.iter().take(10)));
    }

    #[test]
    fn distinct_texts_stay_within_their_memory() {
        let mut found = Distinct::within(100_000);
        let fits = (0..).take_while(|n: &u32| found.insert(n.to_string().as_bytes()).is_ok()).count();
        assert!((100_000 / 40..100_000 / ENTRY_BYTES).contains(&fits), "{fits}");
        found.insert(b"7").expect("the text is in the set already");
        let texts: usize = found.texts.0.iter().map(Vec::capacity).sum();
        let places = found.places.allocation_size();
        // a chunk that has grown may have twice the capacity that it needs
        assert!(places + texts / 2 <= 100_000, "{places} and {texts}");
        assert_eq!(Distinct::within(usize::MAX).insert(&vec![0; CHUNK_BYTES]), Err(Full));
    }
}
