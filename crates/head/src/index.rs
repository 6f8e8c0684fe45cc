//! Key → series: extendible hashing (Fagin et al., 1979) over small open-addressed pages.
//!
//! A growing hash table usually stops the world to move everything. Here one page of some hundred keys
//! splits at a time, so a flood of new series never costs a known one more than a few microseconds, and
//! memory never doubles.

use model::{SeriesKey, SeriesRef};

/// Slots of a page.
const SLOTS: usize = 512;
/// A page splits before it holds more keys than this: probes stay short.
const FILL_MAX: usize = SLOTS * 7 / 8;
/// Marks a free slot.
const FREE: u32 = u32::MAX;

/// The most series an index can hold.
pub(crate) const SERIES_MAX: usize = FREE as usize;

/// 20 bytes, unpadded: the key as four words, and the series.
#[derive(Debug, Clone, Copy)]
struct Slot {
    key: [u32; 4],
    series: u32,
}

const _: () = assert!(size_of::<Slot>() == 20);

#[derive(Debug)]
struct Page {
    slots: Box<[Slot]>,
    used: usize,
    /// How many low bits of a key all keys of the page share.
    depth: u32,
}

/// A map from keys to series. The low bits of a key choose the page, higher ones the slot.
#[derive(Debug)]
pub struct Index {
    /// 2^depth entries: which page holds the keys with these low bits.
    directory: Vec<u32>,
    pages: Vec<Page>,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { directory: vec![0], pages: vec![Page::new(0)], len: 0 }
    }
}

impl Page {
    fn new(depth: u32) -> Self {
        let free = Slot { key: [0; 4], series: FREE };
        Self { slots: vec![free; SLOTS].into(), used: 0, depth }
    }

    /// The slot of `key`, or the free one where it would go.
    #[inline]
    fn find(&self, key: [u32; 4]) -> usize {
        let mut at = key[1] as usize % SLOTS;
        loop {
            let slot = &self.slots[at];
            if slot.series == FREE || slot.key == key {
                return at;
            }
            at = (at + 1) % SLOTS;
        }
    }

    fn put(&mut self, slot: Slot) {
        let at = self.find(slot.key);
        debug_assert!(self.slots[at].series == FREE);
        self.slots[at] = slot;
        self.used += 1;
    }
}

#[inline]
const fn words(key: SeriesKey) -> [u32; 4] {
    let k = key.0;
    [k as u32, (k >> 32) as u32, (k >> 64) as u32, (k >> 96) as u32]
}

impl Index {
    /// How many keys there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True where there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The series of a key.
    #[inline]
    pub fn get(&self, key: SeriesKey) -> Option<SeriesRef> {
        let key = words(key);
        let page = &self.pages[self.page_of(key)];
        let slot = &page.slots[page.find(key)];
        (slot.series != FREE).then_some(SeriesRef(slot.series))
    }

    /// Adds a key that is not there yet.
    pub fn insert(&mut self, key: SeriesKey, series: SeriesRef) {
        assert!(series.0 != FREE, "BUG: the largest reference marks a free slot");
        let key = words(key);
        while self.pages[self.page_of(key)].used >= FILL_MAX {
            self.split(self.page_of(key));
        }
        let page = self.page_of(key);
        self.pages[page].put(Slot { key, series: series.0 });
        self.len += 1;
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.directory.capacity() * 4 + self.pages.len() * (size_of::<Page>() + SLOTS * size_of::<Slot>())
    }

    #[inline]
    fn page_of(&self, key: [u32; 4]) -> usize {
        self.directory[key[0] as usize & (self.directory.len() - 1)] as usize
    }

    fn split(&mut self, page: usize) {
        let depth = self.pages[page].depth;
        assert!(depth < 31, "BUG: keys are not spread: is the seed secret?");
        if 1 << depth == self.directory.len() {
            self.directory.extend_from_within(..);
        }
        let old = std::mem::replace(&mut self.pages[page], Page::new(depth + 1));
        let other = self.pages.len() as u32;
        self.pages.push(Page::new(depth + 1));
        let bit = 1u32 << depth;
        let low = old.slots.iter().find(|s| s.series != FREE).map_or(0, |s| s.key[0]) & (bit - 1);
        let (first, stride) = ((low | bit) as usize, (bit as usize) << 1);
        for entry in self.directory.iter_mut().skip(first).step_by(stride) {
            *entry = other;
        }
        for slot in old.slots.iter().filter(|s| s.series != FREE) {
            let target = if slot.key[0] & bit == 0 { page } else { other as usize };
            self.pages[target].put(*slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u64) -> SeriesKey {
        SeriesKey::of(&i.to_le_bytes(), 7)
    }

    #[test]
    fn finds_every_key_and_no_other() {
        let mut index = Index::default();
        for i in 0..50_000u32 {
            assert_eq!(index.get(key(i.into())), None);
            index.insert(key(i.into()), SeriesRef(i));
        }
        assert_eq!(index.len(), 50_000);
        for i in 0..50_000u32 {
            assert_eq!(index.get(key(i.into())), Some(SeriesRef(i)));
        }
        assert!((50_000..60_000).all(|i| index.get(key(i)).is_none()));
        let bytes = index.memory_bytes() / index.len();
        assert!(bytes <= 48, "{bytes} bytes a key");
    }

    #[test]
    fn keys_that_share_low_bits_still_fit() {
        let mut index = Index::default();
        for i in 0..2000u128 {
            index.insert(SeriesKey(i << 10 | i << 64), SeriesRef(i as u32));
        }
        assert!((0..2000u128).all(|i| index.get(SeriesKey(i << 10 | i << 64)) == Some(SeriesRef(i as u32))));
    }
}
