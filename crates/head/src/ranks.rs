//! Groups label pairs by their number of series, so that the largest pairs are found without visiting the
//! others. The class of a pair is the binary logarithm of this number, so it changes rarely.

use crate::postings::Postings;

/// Pairs with fewer than 2^LEAST series are not ranked, because a tenant may have as many of them as it has
/// series.
const LEAST: u32 = 7;

#[derive(Debug, Default)]
pub(crate) struct Ranks {
    /// Class `i`: pairs with 2^(LEAST + i) to less than 2^(LEAST + i + 1) series.
    classes: Vec<Postings>,
    postings_bytes: isize,
}

impl Ranks {
    /// Records that a pair got a series. `series` is its new number of series.
    #[inline]
    pub(crate) fn grown(&mut self, pair: u32, series: usize) {
        // this test runs for each label of a new series, and excludes most pairs
        if series >= 1 << LEAST && series & (series - 1) == 0 {
            self.rise((series.ilog2() - LEAST) as usize, pair);
        }
    }

    /// Records that a pair lost a series. `series` is its new number of series.
    #[inline]
    pub(crate) fn shrunk(&mut self, pair: u32, series: usize) {
        if series + 1 >= 1 << LEAST && series & (series + 1) == 0 {
            self.fall(((series + 1).ilog2() - LEAST) as usize, pair);
        }
    }

    #[cold]
    #[inline(never)]
    fn rise(&mut self, class: usize, pair: u32) {
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Postings::default);
        }
        self.postings_bytes += self.classes[class].insert(pair);
        if class > 0 {
            self.postings_bytes += self.classes[class - 1].remove(pair);
        }
    }

    #[cold]
    #[inline(never)]
    fn fall(&mut self, class: usize, pair: u32) {
        self.postings_bytes += self.classes[class].remove(pair);
        if class > 0 {
            self.postings_bytes += self.classes[class - 1].insert(pair);
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.classes.len()
    }

    pub(crate) fn class(&self, class: usize, from: u32) -> impl Iterator<Item = u32> + '_ {
        self.classes.get(class).into_iter().flat_map(move |pairs| pairs.iter_from(from))
    }

    pub(crate) const fn has(series: usize) -> bool {
        series >= 1 << LEAST
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.classes.capacity() * size_of::<Postings>() + self.postings_bytes.max(0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use stdx::rng::Rng;

    #[test]
    fn each_pair_is_in_the_class_of_its_size() {
        let mut rng = Rng::announced();
        let (mut ranks, mut sizes) = (Ranks::default(), BTreeMap::<u32, usize>::new());
        for _ in 0..40 {
            let pair = rng.below(50) as u32;
            let most = 1 << rng.below(12);
            let wanted = rng.below(most) as usize;
            let size = sizes.entry(pair).or_default();
            while *size < wanted {
                *size += 1;
                ranks.grown(pair, *size);
            }
            while *size > wanted {
                *size -= 1;
                ranks.shrunk(pair, *size);
            }
            for class in 0..12 {
                let range = 1 << (LEAST + class)..1 << (LEAST + class + 1);
                let expected: BTreeSet<_> =
                    sizes.iter().filter(|(_, size)| range.contains(*size)).map(|(pair, _)| *pair).collect();
                assert_eq!(ranks.class(class as usize, 0).collect::<BTreeSet<_>>(), expected, "{range:?}");
            }
        }
        for (pair, size) in sizes {
            (0..size).rev().for_each(|size| ranks.shrunk(pair, size));
        }
        assert_eq!((0..ranks.len()).flat_map(|class| ranks.class(class, 0)).count(), 0);
        assert_eq!(ranks.postings_bytes, 0);
    }
}
