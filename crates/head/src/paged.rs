//! A vector that grows page by page, so that no element moves. Free places are reused, lowest first. The
//! memory of an empty page is freed at once.

use roaring::RoaringBitmap;

/// Elements in a page. Pages stay below 14 KiB, above which the allocator pads.
const PAGE: usize = 128;

#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Vec<T>>,
    used: Vec<u16>,
    len: usize,
    /// Number of places in empty pages, which take no memory.
    dropped: usize,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), used: Vec::new(), len: 0, dropped: 0 }
    }
}

impl<T: Default> Paged<T> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, value: T) {
        if self.len.is_multiple_of(PAGE) {
            // the first page grows with a small tenant; later pages are allocated whole
            let capacity = if self.len == 0 { 0 } else { PAGE };
            self.pages.push(Vec::with_capacity(capacity));
            self.used.push(0);
        }
        self.pages.last_mut().expect("BUG: the page just added is missing").push(value);
        *self.used.last_mut().expect("BUG: the page just added is missing") += 1;
        self.len += 1;
    }

    /// Puts an element in a free place, or at the end.
    pub(crate) fn put(&mut self, index: usize, value: T) {
        if index == self.len {
            return self.push(value);
        }
        let page = index / PAGE;
        if self.pages[page].is_empty() {
            self.pages[page].reserve_exact(PAGE);
            self.pages[page].resize_with(PAGE, T::default);
            self.dropped -= PAGE;
        }
        self.pages[page][index % PAGE] = value;
        self.used[page] += 1;
    }

    /// Takes an element out. Its place must not be read until [`Self::put`] fills it.
    pub(crate) fn take(&mut self, index: usize) -> T {
        let page = index / PAGE;
        let value = std::mem::take(&mut self.pages[page][index % PAGE]);
        self.used[page] -= 1;
        // keep the last page, which may still grow
        if self.used[page] == 0 && page + 1 < self.pages.len() {
            self.pages[page] = Vec::new();
            self.dropped += PAGE;
        }
        value
    }

    /// Drops the places from `len` on, which must be free.
    fn truncate(&mut self, len: usize) {
        while self.len > len {
            let page = self.pages.last_mut().expect("BUG: there is no page, although there are elements");
            let start = (self.len - 1) / PAGE * PAGE;
            let keeps = len.saturating_sub(start);
            if keeps > 0 {
                page.truncate(keeps);
                self.len = len;
                return;
            }
            if page.is_empty() {
                self.dropped -= PAGE;
            }
            self.pages.pop();
            self.used.pop();
            self.len = start;
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &T {
        &self.pages[index / PAGE][index % PAGE]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        &mut self.pages[index / PAGE][index % PAGE]
    }

    /// The element, or a default value in a free place. `None` if the place has no memory.
    pub(crate) fn find(&self, index: usize) -> Option<&T> {
        self.pages.get(index / PAGE)?.get(index % PAGE)
    }

    pub(crate) fn find_mut(&mut self, index: usize) -> Option<&mut T> {
        self.pages.get_mut(index / PAGE)?.get_mut(index % PAGE)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let first = self.pages.first().map_or(0, Vec::capacity);
        let others = self.pages.len().saturating_sub(1) * PAGE;
        let dropped = if first == 0 { self.dropped.saturating_sub(PAGE) } else { self.dropped };
        (first + others - dropped) * size_of::<T>()
            + self.pages.capacity() * size_of::<Vec<T>>()
            + self.used.capacity() * size_of::<u16>()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Free {
    set: RoaringBitmap,
    count: usize,
}

impl Free {
    /// Takes the lowest free number. If none is free, returns `len`, the next new number.
    pub(crate) fn pop(&mut self, len: usize) -> u32 {
        let Some(lowest) = self.set.min() else { return len as u32 };
        self.set.remove(lowest);
        self.count -= 1;
        lowest
    }

    /// Frees a number. Free numbers at the end of `paged` are dropped.
    pub(crate) fn push<T: Default>(&mut self, number: u32, paged: &mut Paged<T>) {
        self.set.insert(number);
        self.count += 1;
        let mut len = paged.len();
        if number as usize + 1 != len {
            return;
        }
        while len > 0 && self.set.remove(len as u32 - 1) {
            len -= 1;
            self.count -= 1;
        }
        paged.truncate(len);
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) const fn set(&self) -> &RoaringBitmap {
        &self.set
    }

    /// Upper bound on memory, in constant time: two bytes per free number, and at most one bit for each of
    /// `len` numbers.
    pub(crate) fn memory_bytes(&self, len: usize) -> usize {
        (2 * self.count).min(len / 8 + 16)
    }
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    paged: Paged<T>,
    free: Free,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { paged: Paged::default(), free: Free::default() }
    }
}

impl<T: Default> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let number = self.free.pop(self.paged.len());
        self.paged.put(number as usize, value);
        number
    }

    pub(crate) fn remove(&mut self, number: u32) -> T {
        let value = self.paged.take(number as usize);
        self.free.push(number, &mut self.paged);
        value
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> &T {
        self.paged.get(number as usize)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        self.paged.get_mut(number as usize)
    }

    pub(crate) fn find(&self, number: usize) -> Option<&T> {
        self.paged.find(number)
    }

    pub(crate) const fn end(&self) -> usize {
        self.paged.len
    }

    #[cfg(test)]
    pub(crate) const fn count(&self) -> usize {
        self.paged.len() - self.free.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.paged.memory_bytes() + self.free.memory_bytes(self.paged.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stdx::rng::Rng;

    #[test]
    fn grows_in_pages() {
        let mut p = Paged::default();
        for i in 0..3000usize {
            p.push(i);
        }
        *p.get_mut(2047) += 1;
        assert_eq!((p.len(), *p.get(0), *p.get(2047), *p.get(2999)), (3000, 0, 2048, 2999));
        assert!(p.memory_bytes() <= 3072 * 8 + 1200);
    }

    #[test]
    fn numbers_are_reused_and_memory_is_freed() {
        let mut rng = Rng::announced();
        let (mut slab, mut model) = (Slab::default(), BTreeMap::new());
        for round in 0..60 {
            let most = if round % 4 == 3 { 0 } else { rng.below(6000) as usize };
            while model.len() < most {
                let value = rng.below(u64::MAX);
                let number = slab.insert(value);
                assert!(model.insert(number, value).is_none(), "{number} twice");
            }
            while model.len() > most {
                let at = rng.below(slab.end() as u64) as u32;
                if let Some((number, value)) = model.range(at..).next().map(|(n, v)| (*n, *v)) {
                    model.remove(&number);
                    assert_eq!(slab.remove(number), value);
                }
            }
            assert_eq!(slab.count(), model.len());
            assert_eq!(slab.end(), model.last_key_value().map_or(0, |(n, _)| *n as usize + 1));
            assert!(model.iter().all(|(n, v)| slab.get(*n) == v && slab.find(*n as usize) == Some(v)));
            let pages = (0..slab.end()).step_by(PAGE);
            let used = pages.filter(|p| model.range(*p as u32..(*p + PAGE) as u32).next().is_some()).count();
            let held = slab.paged.pages.iter().filter(|p| !p.is_empty()).count();
            assert!(held <= used + 1, "{held} pages for {used}");
            let capacity: usize = slab.paged.pages.iter().map(|p| p.capacity() * 8).sum();
            let said =
                slab.paged.memory_bytes() - slab.paged.pages.capacity() * 24 - slab.paged.used.capacity() * 2;
            assert_eq!(said, capacity);
        }
    }
}
