//! A vector that grows page by page: no element ever moves and growth never doubles memory.

/// Elements in a page.
const PAGE: usize = 1024;

#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }
}

impl<T> Paged<T> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, value: T) {
        if self.len.is_multiple_of(PAGE) {
            // the first page grows as a small tenant does; later ones are bought whole
            let capacity = if self.len == 0 { 0 } else { PAGE };
            self.pages.push(Vec::with_capacity(capacity));
        }
        self.pages.last_mut().expect("BUG: a page was just added").push(value);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &T {
        &self.pages[index / PAGE][index % PAGE]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        &mut self.pages[index / PAGE][index % PAGE]
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let first = self.pages.first().map_or(0, Vec::capacity);
        (first + self.pages.len().saturating_sub(1) * PAGE) * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_in_pages() {
        let mut p = Paged::default();
        for i in 0..3000usize {
            p.push(i);
        }
        *p.get_mut(2047) += 1;
        assert_eq!((p.len(), *p.get(0), *p.get(2047), *p.get(2999)), (3000, 0, 2048, 2999));
        assert!(p.memory_bytes() <= 3 * PAGE * 8);
    }
}
