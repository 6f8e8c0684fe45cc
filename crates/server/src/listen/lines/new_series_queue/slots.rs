//! The series of a tenant that wait, found by their keys, and in lists.
//!
//! ```text
//!   positions   a hash table of numbers              lists: the first number, and in each entry the next
//!      │                                               │
//!      ▼                                               ▼
//!   pages   │entry│entry│  │entry│   │     │     │     │…│   freed when they have no entries
//! ```
//!
//! Each series takes a fraction of what a map of keys and a queue of keys would take, and memory is never moved as a whole.

use super::entry::Entry;
use hashbrown::HashTable;
use model::SeriesKey;

/// Entries of a page, which is a few kilobytes.
const PAGE: usize = 32;

/// No entry has this number.
pub(super) const NONE: u32 = u32::MAX;

/// If a hash table with at least this many places has less than an eighth of them filled, it is made smaller.
const SHRINK_MIN: usize = 1 << 12;

/// Series in the order in which they were added. A series is in one list at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryList {
    first: u32,
    last: u32,
}

impl Default for EntryList {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl EntryList {
    pub(super) const fn is_empty(self) -> bool {
        self.first == NONE
    }

    pub(super) fn first(self) -> Option<u32> {
        Some(self.first).filter(|number| *number != NONE)
    }
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    positions: HashTable<u32>,
    pages: Vec<Page>,
    /// Positions of pages whose entries were all removed. Their memory is freed until they are used again.
    free: Vec<u32>,
    /// The page that gets the next entries.
    open: usize,
}

#[derive(Debug, Default)]
struct Page {
    /// `None` for an entry that was removed.
    entries: Vec<Option<Entry>>,
    live: usize,
}

/// Keys are hashes with a secret seed already.
const fn hash(key: SeriesKey) -> u64 {
    key.0 as u64
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(super) fn find(&self, key: SeriesKey) -> Option<u32> {
        self.positions.find(hash(key), |number| entry(&self.pages, *number).key() == key).copied()
    }

    pub(super) fn get(&self, number: u32) -> &Entry {
        entry(&self.pages, number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Entry {
        let place =
            self.pages.get_mut(number as usize / PAGE).map(|page| &mut page.entries[number as usize % PAGE]);
        place.and_then(Option::as_mut).expect("BUG: a queued series has no entry")
    }

    /// Adds a series that is not there yet. Returns its number.
    pub(super) fn insert(&mut self, new: Entry) -> u32 {
        if self.pages.get(self.open).is_none_or(|page| page.entries.len() == PAGE) {
            self.open = match self.free.pop() {
                Some(page) => page as usize,
                None => {
                    self.pages.push(Page::default());
                    self.pages.len() - 1
                }
            };
            self.pages[self.open].entries.reserve_exact(PAGE);
        }
        let (hash, page) = (hash(new.key()), &mut self.pages[self.open]);
        let number = (self.open * PAGE + page.entries.len()) as u32;
        assert!(number != NONE, "BUG: four billion series wait");
        page.entries.push(Some(new));
        page.live += 1;
        let Self { positions, pages, .. } = self;
        positions.insert_unique(hash, number, |number| self::hash(entry(pages, *number).key()));
        number
    }

    /// Removes a series, which must be in no list.
    pub(super) fn remove(&mut self, number: u32) {
        let key = self.get(number).key();
        let Self { positions, pages, .. } = self;
        if let Ok(position) = positions.find_entry(hash(key), |other| *other == number) {
            position.remove();
        }
        if positions.capacity() >= SHRINK_MIN && positions.len() < positions.capacity() / 8 {
            positions.shrink_to(2 * positions.len(), |number| hash(entry(pages, *number).key()));
        }
        let at = number as usize / PAGE;
        let page = &mut pages[at];
        page.entries[number as usize % PAGE] = None;
        page.live -= 1;
        if page.live == 0 && at == self.open {
            page.entries.clear();
        } else if page.live == 0 {
            *page = Page::default();
            self.free.push(at as u32);
        }
    }

    /// Appends a series, which must be in no list.
    pub(super) fn push(&mut self, list: &mut EntryList, number: u32) {
        self.get_mut(number).next = NONE;
        match list.last {
            NONE => list.first = number,
            last => self.get_mut(last).next = number,
        }
        list.last = number;
    }

    /// Removes the first series of a list.
    pub(super) fn pop(&self, list: &mut EntryList) {
        let Some(first) = list.first() else { return };
        list.first = self.get(first).next;
        if list.is_empty() {
            list.last = NONE;
        }
    }
}

fn entry(pages: &[Page], number: u32) -> &Entry {
    let place = pages.get(number as usize / PAGE).and_then(|page| page.entries.get(number as usize % PAGE));
    place.and_then(Option::as_ref).expect("BUG: a queued series has no entry")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;
    use std::collections::{BTreeMap, VecDeque};
    use stdx::rng::Rng;

    fn key(n: u64) -> SeriesKey {
        SeriesKey::of(&n.to_le_bytes(), 7)
    }

    /// Series are added, found, and removed in any order.
    #[test]
    fn slots_are_a_map_with_lists() {
        let mut rng = Rng::announced();
        let (mut slots, mut list) = (Slots::default(), EntryList::default());
        let (mut known, mut queued) = (BTreeMap::new(), VecDeque::new());
        for n in 0..20_000_u64 {
            // many at first, then few
            if rng.chance(if n < 10_000 { 0.7 } else { 0.3 }) {
                let number = slots.insert(Entry::new(key(n), Labels::empty(), n as u32));
                assert!(known.insert(n, number).is_none());
                if rng.chance(0.5) {
                    slots.push(&mut list, number);
                    queued.push_back(n);
                }
            } else if let Some(n) = queued.pop_front_if(|_| rng.chance(0.5)) {
                assert_eq!(list.first(), Some(known[&n]));
                slots.pop(&mut list);
            } else if let Some((n, number)) =
                known.range(rng.below(n)..).next().map(|(n, number)| (*n, *number))
                && !queued.contains(&n)
            {
                slots.remove(number);
                known.remove(&n);
            }
            assert_eq!((slots.len(), list.is_empty()), (known.len(), queued.is_empty()));
            let one = rng.below(n + 1);
            assert_eq!(slots.find(key(one)), known.get(&one).copied());
        }
        for (n, number) in &known {
            assert_eq!((slots.find(key(*n)), slots.get(*number).since_ms), (Some(*number), *n as u32));
        }
        while let Some(first) = list.first() {
            assert_eq!(Some(slots.get(first).since_ms), queued.pop_front().map(|n| n as u32));
            slots.pop(&mut list);
        }
        known.values().for_each(|number| slots.remove(*number));
        assert!(slots.is_empty() && queued.is_empty());
        let held: usize = slots.pages.iter().map(|page| page.entries.capacity()).sum();
        assert!(held <= PAGE, "{held} places are left");
    }

    /// Series leave the queue in about the order in which they came.
    #[test]
    fn memory_follows_the_series() {
        let mut slots = Slots::default();
        let mut numbers = VecDeque::new();
        for n in 0..100_000 {
            numbers.push_back(slots.insert(Entry::new(key(n), Labels::empty(), 0)));
            if n >= 50_000 {
                slots.remove(numbers.pop_front().unwrap());
            }
            let places: usize =
                if n % 1000 == 0 { slots.pages.iter().map(|page| page.entries.capacity()).sum() } else { 0 };
            assert!(places <= slots.len() + 2 * PAGE);
        }
        assert!(slots.pages.len() <= 50_000 / PAGE + 3, "{} pages", slots.pages.len());
        numbers.into_iter().for_each(|number| slots.remove(number));
        assert!(slots.positions.capacity() <= SHRINK_MIN);
    }
}
