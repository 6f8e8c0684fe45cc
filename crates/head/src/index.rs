//! Key → series: extendible hashing (Fagin et al., 1979) over small pages. Growth splits one page at a time,
//! so memory never doubles. Removals merge pages again. Lookups do not find an *unlinked* key, but the index
//! still holds it.

use model::{SeriesKey, SeriesRef};

const SLOTS: usize = 512;
/// A page splits beyond this number of keys, to keep probes short.
const FILL_MAX: usize = SLOTS * 7 / 8;
/// Maximum number of keys of a merged page, low enough to delay the next split.
const MERGE_MAX: usize = FILL_MAX / 4 * 3;
const FREE: u32 = u32::MAX;
const UNLINKED: u32 = 1 << 31;

pub(crate) const SERIES_MAX: usize = UNLINKED as usize - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Link,
    Unlink,
    Remove,
}

/// A key and its series. The key is four words, because the alignment of a `u128` would make this 32 bytes.
#[derive(Debug, Clone, Copy)]
struct Slot {
    key: [u32; 4],
    series: u32,
}

const _: () = assert!(size_of::<Slot>() == 20);

impl Slot {
    const FREE: Self = Self { key: [0; 4], series: FREE };

    const fn is_free(&self) -> bool {
        self.series == FREE
    }
}

#[derive(Debug)]
struct Page {
    slots: Box<[Slot]>,
    used: usize,
    /// All keys of the page share this many low bits, and `bits` is their value.
    depth: u32,
    bits: u32,
}

/// A map from keys to series. Low bits of a key choose the page, higher bits the slot.
#[derive(Debug)]
pub struct Index {
    /// Position in `pages` of a key's page, by the low bits of the key.
    directory: Vec<u32>,
    pages: Vec<Page>,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { directory: vec![0], pages: vec![Page::new(0, 0)], len: 0 }
    }
}

impl Page {
    fn new(depth: u32, bits: u32) -> Self {
        Self { slots: vec![Slot::FREE; SLOTS].into(), used: 0, depth, bits }
    }

    /// Position of `key`, or of the free slot for it.
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
        debug_assert!(self.slots[at].is_free());
        self.slots[at] = slot;
        self.used += 1;
    }

    /// Frees a slot, and moves later entries that lookups could not reach (Knuth's algorithm R).
    fn free(&mut self, at: usize) {
        let (mut hole, mut next) = (at, at);
        loop {
            next = (next + 1) % SLOTS;
            if self.slots[next].is_free() {
                break;
            }
            let home = self.slots[next].key[1] as usize % SLOTS;
            if (next + SLOTS - home) % SLOTS >= (next + SLOTS - hole) % SLOTS {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
        }
        self.slots[hole] = Slot::FREE;
        self.used -= 1;
    }
}

#[inline]
const fn words(key: SeriesKey) -> [u32; 4] {
    let k = key.0;
    [k as u32, (k >> 32) as u32, (k >> 64) as u32, (k >> 96) as u32]
}

impl Index {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn get(&self, key: SeriesKey) -> Option<SeriesRef> {
        let key = words(key);
        let page = &self.pages[self.page_of(key)];
        let slot = &page.slots[page.find(key)];
        (slot.series < UNLINKED).then_some(SeriesRef(slot.series))
    }

    /// Finds the series of a key, even if the key is unlinked.
    pub(crate) fn get_any(&self, key: SeriesKey) -> Option<SeriesRef> {
        let key = words(key);
        let page = &self.pages[self.page_of(key)];
        let slot = &page.slots[page.find(key)];
        (!slot.is_free()).then_some(SeriesRef(slot.series & !UNLINKED))
    }

    /// Series of a key. Links an unlinked key again.
    pub(crate) fn relink(&mut self, key: SeriesKey) -> Option<SeriesRef> {
        let key = words(key);
        let page = self.page_of(key);
        let at = self.pages[page].find(key);
        let slot = &mut self.pages[page].slots[at];
        if slot.is_free() {
            return None;
        }
        slot.series &= !UNLINKED;
        Some(SeriesRef(slot.series))
    }

    pub(crate) const fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Calls `decide` for each key of a page, with the key's series and whether the key is linked. Then
    /// links, unlinks or removes the key, as decided.
    pub(crate) fn review(&mut self, page: usize, mut decide: impl FnMut(SeriesRef, bool) -> Decision) {
        let Some(page) = self.pages.get_mut(page) else { return };
        let mut removed: Vec<[u32; 4]> = Vec::new();
        for slot in page.slots.iter_mut().filter(|slot| !slot.is_free()) {
            let series = slot.series & !UNLINKED;
            match decide(SeriesRef(series), slot.series < UNLINKED) {
                Decision::Link => slot.series = series,
                Decision::Unlink => slot.series = series | UNLINKED,
                Decision::Remove => removed.push(slot.key),
            }
        }
        self.len -= removed.len();
        for key in removed {
            let at = page.find(key);
            page.free(at);
        }
    }

    /// Merges a page with its buddy, the page that differs only in the last shared bit, as long as the result
    /// has at most [`MERGE_MAX`] keys. Returns the number of moved keys. The indices of other pages may
    /// change.
    pub(crate) fn merge(&mut self, page: usize) -> usize {
        let (mut page, mut moved) = (page, 0);
        while let Some(Page { depth: depth @ 1.., bits, used, .. }) = self.pages.get(page) {
            let (depth, half) = (*depth, 1u32 << (*depth - 1));
            let other = self.directory[(bits ^ half) as usize] as usize;
            if self.pages[other].depth != depth || self.pages[other].used + used > MERGE_MAX {
                break;
            }
            let gone = std::mem::replace(
                &mut self.pages[other],
                Page { slots: Box::new([]), used: 0, depth, bits: 0 },
            );
            moved += gone.used;
            for slot in gone.slots.iter().filter(|slot| !slot.is_free()) {
                self.pages[page].put(*slot);
            }
            self.pages[page].depth -= 1;
            self.pages[page].bits &= !half;
            self.pages.swap_remove(other);
            if page == self.pages.len() {
                page = other;
            } else if other < self.pages.len() {
                self.point_at(other);
            }
            self.point_at(page);
        }
        moved
    }

    /// Halves the directory as far as the deepest page allows.
    pub(crate) fn shrink(&mut self) {
        let depth = self.pages.iter().map(|page| page.depth).max().unwrap_or(0);
        if 1 << depth < self.directory.len() {
            self.directory.truncate(1 << depth);
            self.directory.shrink_to_fit();
            self.pages.shrink_to_fit();
        }
    }

    fn point_at(&mut self, page: usize) {
        let Page { depth, bits, .. } = self.pages[page];
        for entry in self.directory.iter_mut().skip(bits as usize).step_by(1 << depth) {
            *entry = page as u32;
        }
    }

    /// Adds a key that is not in the index.
    pub fn insert(&mut self, key: SeriesKey, series: SeriesRef) {
        assert!(series.0 < UNLINKED, "BUG: the highest bit of a series reference is set");
        let key = words(key);
        while self.pages[self.page_of(key)].used >= FILL_MAX {
            self.split(self.page_of(key));
        }
        let page = self.page_of(key);
        self.pages[page].put(Slot { key, series: series.0 });
        self.len += 1;
    }

    pub fn memory_bytes(&self) -> usize {
        self.directory.capacity() * 4
            + self.pages.capacity() * size_of::<Page>()
            + self.pages.len() * SLOTS * size_of::<Slot>()
    }

    #[inline]
    fn page_of(&self, key: [u32; 4]) -> usize {
        self.directory[key[0] as usize & (self.directory.len() - 1)] as usize
    }

    fn split(&mut self, page: usize) {
        let depth = self.pages[page].depth;
        assert!(depth < 31, "BUG: too many keys share their low bits; a client may know the seed");
        if 1 << depth == self.directory.len() {
            self.directory.extend_from_within(..);
        }
        let (bit, bits) = (1u32 << depth, self.pages[page].bits);
        let old = std::mem::replace(&mut self.pages[page], Page::new(depth + 1, bits));
        let other = self.pages.len() as u32;
        self.pages.push(Page::new(depth + 1, bits | bit));
        self.point_at(other as usize);
        for slot in old.slots.iter().filter(|s| !s.is_free()) {
            let target = if slot.key[0] & bit == 0 { page } else { other as usize };
            self.pages[target].put(*slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stdx::rng::{Rng, mix};

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
    fn removed_keys_free_their_memory() {
        let mut rng = Rng::announced();
        let (mut index, mut model) = (Index::default(), BTreeMap::new());
        let empty = index.memory_bytes();
        for round in 0..30 {
            for _ in 0..rng.below(8000) {
                let i = rng.below(20_000) as u32;
                match index.relink(key(i.into())) {
                    Some(known) => assert_eq!(model.insert(i, true).map(|_| i), Some(known.0)),
                    None => {
                        index.insert(key(i.into()), SeriesRef(i));
                        assert_eq!(model.insert(i, true), None);
                    }
                }
            }
            let fate = |i: u32| match mix(u64::from(i) + round * 1000) % if round % 3 == 0 { 3 } else { 20 } {
                0 => Decision::Link,
                1 => Decision::Unlink,
                _ => Decision::Remove,
            };
            let (mut page, mut reviewed) = (0, 0);
            while page < index.page_count() {
                index.review(page, |series, linked| {
                    reviewed += 1;
                    assert_eq!(model.get(&series.0), Some(&linked));
                    match fate(series.0) {
                        Decision::Remove => model.remove(&series.0),
                        decision => model.insert(series.0, decision == Decision::Link),
                    };
                    fate(series.0)
                });
                page += 1;
            }
            while (0..index.page_count()).map(|page| index.merge(page)).sum::<usize>() > 0 {}
            index.shrink();
            assert!(reviewed > 0);
            for i in 0..20_000 {
                let linked = model.get(&i) == Some(&true);
                assert_eq!(index.get(key(i.into())), linked.then_some(SeriesRef(i)), "{i}");
            }
            assert_eq!(index.len(), model.len());
        }
        for _ in 0..20 {
            for page in (0..index.page_count()).rev() {
                index.review(page, |_, _| Decision::Remove);
                index.merge(page);
            }
        }
        index.shrink();
        assert!(index.is_empty() && index.memory_bytes() <= 2 * empty, "{} bytes", index.memory_bytes());
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
