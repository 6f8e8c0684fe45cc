//! Sets of numbers: the series that have a label pair, or the label pairs that have a name.

use roaring::RoaringBitmap;
use std::ops::Range;

const LIST_MAX: usize = 32;
/// Runs of at least this many numbers are added to a bitmap as a range. The numbers of shorter runs are added
/// one at a time.
const RUN_MIN: u32 = 8;
/// Memory that a new bitmap takes in addition to the list that it replaces.
const BITMAP_BYTES: usize = 96;

/// A set of numbers, mostly the series of one pair. Series of a pair are mostly created one after the other.
/// So the newest run is a range without heap memory.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    kept: Kept,
    run: Range<u32>,
    len: u32,
    /// Estimated heap memory of `kept`.
    bytes: u32,
}

#[derive(Debug)]
enum Kept {
    List(Vec<u32>),
    Bitmap(Box<RoaringBitmap>),
}

impl Default for Kept {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Postings {
    /// Adds a number that is not in the set. Returns the change of memory in bytes.
    #[inline]
    pub(crate) fn insert(&mut self, reference: u32) -> isize {
        self.len += 1;
        if self.run.end == reference && !self.run.is_empty() {
            self.run.end += 1;
            return 0;
        }
        self.insert_apart(reference)
    }

    fn insert_apart(&mut self, reference: u32) -> isize {
        if !self.run.is_empty() && reference > self.run.end {
            let finished = std::mem::replace(&mut self.run, reference..reference + 1);
            return self.keep(finished);
        }
        if !self.run.is_empty() && reference + 1 == self.run.start {
            self.run.start -= 1;
            return 0;
        }
        if self.run.is_empty() && self.kept.max().is_none_or(|max| max < reference) {
            self.run = reference..reference + 1;
            return 0;
        }
        // the number is lower than others, because it was freed and is now used again
        let estimate = self.bytes;
        self.bytes = self.bytes.saturating_add(self.kept.insert(reference) as u32);
        self.bytes as isize - estimate as isize
    }

    /// Removes a number, if present. Returns the change of memory in bytes.
    pub(crate) fn remove(&mut self, reference: u32) -> isize {
        if self.run.contains(&reference) {
            self.len -= 1;
            return self.remove_from_run(reference);
        }
        let before = self.kept_len();
        if !self.kept.remove(reference) {
            return 0;
        }
        self.len -= 1;
        let estimate = self.bytes;
        let kept = self.kept_len();
        // shrinks only when the set has become half as large, because shrinking takes long
        if kept == 0 || kept.ilog2() != before.ilog2() {
            self.bytes = self.kept.shrink() as u32;
        }
        self.bytes as isize - estimate as isize
    }

    fn remove_from_run(&mut self, reference: u32) -> isize {
        let before = self.run.start..reference;
        self.run.start = reference + 1;
        if self.run.is_empty() {
            self.run = before;
            return 0;
        }
        if before.is_empty() { 0 } else { self.keep(before) }
    }

    pub(crate) const fn bytes(&self) -> isize {
        self.bytes as isize
    }

    const fn kept_len(&self) -> u32 {
        self.len - (self.run.end - self.run.start)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves a finished run to `kept`. Returns the change of memory in bytes.
    fn keep(&mut self, run: Range<u32>) -> isize {
        let estimate = self.bytes;
        let (len, before) = (self.kept_len(), self.kept_len() - run.len() as u32);
        self.bytes = self.bytes.saturating_add(self.kept.extend(run) as u32);
        // optimizes only when the set has become twice as large, because `optimize` takes long
        if let Kept::Bitmap(bitmap) = &mut self.kept
            && len >= 1024
            && len.ilog2() != before.max(1).ilog2()
        {
            self.bytes = optimize(bitmap) as u32;
        }
        self.bytes as isize - estimate as isize
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn add_to(&self, out: &mut RoaringBitmap) {
        match &self.kept {
            Kept::List(list) => out.extend(list.iter().copied()),
            Kept::Bitmap(bitmap) => *out |= &**bitmap,
        }
        out.insert_range(self.run.clone());
    }

    pub(crate) fn iter_from(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        let (list, bitmap) = match &self.kept {
            Kept::List(list) => (Some(&list[list.partition_point(|r| *r < from)..]), None),
            Kept::Bitmap(bitmap) => (None, Some(bitmap.range(from..))),
        };
        let kept = list.into_iter().flatten().copied().chain(bitmap.into_iter().flatten());
        kept.chain(self.run.start.max(from)..self.run.end)
    }

    pub(crate) fn nth(&self, position: usize) -> Option<u32> {
        let kept = self.kept_len() as usize;
        if position >= kept {
            let reference = self.run.start as usize + position - kept;
            return u32::try_from(reference).ok().filter(|reference| self.run.contains(reference));
        }
        match &self.kept {
            Kept::List(list) => list.get(position).copied(),
            Kept::Bitmap(bitmap) => bitmap.select(position as u32),
        }
    }

    pub(crate) fn to_bitmap(&self) -> RoaringBitmap {
        let mut out = match &self.kept {
            Kept::List(list) => list.iter().copied().collect(),
            Kept::Bitmap(bitmap) => (**bitmap).clone(),
        };
        out.insert_range(self.run.clone());
        out
    }

    pub(crate) fn intersects(&self, with: &RoaringBitmap) -> bool {
        let kept = match &self.kept {
            Kept::List(list) => list.iter().any(|r| with.contains(*r)),
            Kept::Bitmap(bitmap) => !bitmap.is_disjoint(with),
        };
        kept || with.range_cardinality(self.run.clone()) > 0
    }
}

impl Kept {
    /// Adds numbers larger than all others. Returns the growth in bytes, estimated for a bitmap.
    fn extend(&mut self, run: Range<u32>) -> usize {
        match self {
            Self::List(list) if list.len() + run.len() <= LIST_MAX => {
                let before = list.capacity();
                if list.len() + run.len() > before {
                    list.reserve_exact(list.len().max(run.len()));
                }
                list.extend(run);
                (list.capacity() - before) * size_of::<u32>()
            }
            Self::List(list) => {
                let mut bitmap: RoaringBitmap = list.iter().copied().collect();
                let grown = put(&mut bitmap, run);
                *self = Self::Bitmap(Box::new(bitmap));
                BITMAP_BYTES + grown
            }
            Self::Bitmap(bitmap) => put(bitmap, run),
        }
    }

    /// Adds a number, which may be lower than the others. Returns the growth in bytes.
    fn insert(&mut self, reference: u32) -> usize {
        match self {
            Self::List(list) if list.len() < LIST_MAX => {
                let before = list.capacity();
                if list.len() == before {
                    list.reserve_exact(list.len().max(1));
                }
                let at = list.partition_point(|r| *r < reference);
                list.insert(at, reference);
                (list.capacity() - before) * size_of::<u32>()
            }
            Self::List(list) => {
                let mut bitmap: RoaringBitmap = list.iter().copied().collect();
                bitmap.insert(reference);
                *self = Self::Bitmap(Box::new(bitmap));
                BITMAP_BYTES
            }
            Self::Bitmap(bitmap) => {
                bitmap.insert(reference);
                3
            }
        }
    }

    fn remove(&mut self, reference: u32) -> bool {
        match self {
            Self::List(list) => list.binary_search(&reference).is_ok_and(|at| list.remove(at) == reference),
            Self::Bitmap(bitmap) => bitmap.remove(reference),
        }
    }

    /// Frees unused memory. Returns the remaining bytes.
    fn shrink(&mut self) -> usize {
        match self {
            Self::List(list) => {
                list.shrink_to_fit();
                list.capacity() * size_of::<u32>()
            }
            Self::Bitmap(bitmap) if bitmap.len() <= LIST_MAX as u64 / 2 => {
                let list: Vec<u32> = bitmap.iter().collect();
                let bytes = list.capacity() * size_of::<u32>();
                *self = Self::List(list);
                bytes
            }
            Self::Bitmap(bitmap) => {
                // a new bitmap, because the old containers keep their memory
                **bitmap = bitmap.iter().collect();
                optimize(bitmap)
            }
        }
    }

    fn max(&self) -> Option<u32> {
        match self {
            Self::List(list) => list.last().copied(),
            Self::Bitmap(bitmap) => bitmap.max(),
        }
    }
}

/// Chooses the best representation of a bitmap. Returns its memory in bytes.
fn optimize(bitmap: &mut RoaringBitmap) -> usize {
    bitmap.optimize();
    BITMAP_BYTES + bitmap.serialized_size() * 5 / 4
}

/// Adds a run. Returns the estimated growth in bytes: five for a long run, otherwise three for each
/// reference.
fn put(bitmap: &mut RoaringBitmap, run: Range<u32>) -> usize {
    if run.len() >= RUN_MIN as usize {
        bitmap.insert_range(run);
        return 5;
    }
    let length = run.len();
    for series in run {
        let ascending = bitmap.try_push(series);
        assert!(ascending.is_ok(), "BUG: series were not created in ascending order");
    }
    3 * length
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    /// Builds postings from random runs of at most `run_max` numbers, with gaps of less than `gap_max`
    /// numbers between the runs, and checks them.
    fn check(rng: &mut Rng, count: usize, run_max: u64, gap_max: u64) -> (Postings, isize) {
        let (mut postings, mut expected, mut bytes) = (Postings::default(), RoaringBitmap::new(), 0);
        let mut next = rng.below(3) as u32;
        while postings.len() < count {
            for _ in 0..=rng.below(run_max) {
                bytes += postings.insert(next);
                expected.insert(next);
                next += 1;
            }
            next += rng.below(gap_max) as u32;
        }
        assert_eq!(postings.len() as u64, expected.len());
        assert_eq!(postings.to_bitmap(), expected);
        for position in (0..count + 5).step_by(1 + count / 100) {
            assert_eq!(postings.nth(position), expected.select(position as u32), "{position}");
        }
        let mut union: RoaringBitmap = [next + 7].into_iter().collect();
        postings.add_to(&mut union);
        assert_eq!(union.len(), expected.len() + 1);
        for _ in 0..20 {
            let one = rng.below(u64::from(next) + 5) as u32;
            assert_eq!(postings.intersects(&[one].into_iter().collect()), expected.contains(one), "{one}");
        }
        (postings, bytes)
    }

    #[test]
    fn postings_hold_the_pushed_numbers() {
        let mut rng = Rng::announced();
        for _ in 0..200 {
            let (count, run_max, gap_max) = (rng.below(3000), 1 + rng.below(40), 1 + rng.below(100));
            check(&mut rng, count as usize, run_max, gap_max);
        }
    }

    #[test]
    fn numbers_come_and_go() {
        let mut rng = Rng::announced();
        for _ in 0..30 {
            let (mut postings, mut expected) = (Postings::default(), RoaringBitmap::new());
            let (mut bytes, width) = (0, 1 + rng.below(3000));
            for _ in 0..6 {
                let most = rng.below(width);
                while expected.len() < most {
                    let first = rng.below(width) as u32;
                    for n in first..first + rng.below(20) as u32 {
                        if expected.insert(n) {
                            bytes += postings.insert(n);
                        }
                    }
                }
                while expected.len() > most {
                    let n = rng.below(width + 20) as u32;
                    expected.remove(n);
                    bytes += postings.remove(n);
                }
                assert_eq!(postings.to_bitmap(), expected);
                assert_eq!(
                    (postings.len() as u64, postings.is_empty()),
                    (expected.len(), expected.is_empty())
                );
                let from = rng.below(width) as u32;
                assert!(postings.iter_from(from).eq(expected.range(from..)));
                assert_eq!(postings.bytes as isize, bytes);
            }
        }
    }

    #[test]
    fn memory_goes_back() {
        let (mut postings, mut bytes) = (Postings::default(), 0);
        (0..200_000).for_each(|i| bytes += postings.insert(3 * i));
        assert!(bytes > 50_000, "{bytes}");
        (0..199_990).for_each(|i| bytes += postings.remove(3 * i));
        assert!(matches!(postings.kept, Kept::List(_)) && bytes <= 64, "{bytes}");
        (199_990..200_000).for_each(|i| bytes += postings.remove(3 * i));
        assert_eq!((bytes, postings.len()), (0, 0));
    }

    #[test]
    fn postings_stay_small() {
        let mut rng = Rng::new(1);
        let (_, one_run) = check(&mut rng, 100_000, 2000, 1);
        assert_eq!(one_run, 0, "one run takes no memory on the heap");
        let (_, runs) = check(&mut rng, 100_000, 4000, 40_000);
        assert!(runs < 5000, "{runs} bytes for 50 runs");
        let (mut postings, mut bytes) = check(&mut rng, 20_000, 2000, 1);
        for i in 0..300_000 {
            bytes += postings.insert(100_000 + 2 * i);
        }
        let Kept::Bitmap(bitmap) = &postings.kept else { panic!("no bitmap after many insertions") };
        let real = bitmap.serialized_size();
        assert!(real < 120_000, "{real} bytes: every second series after a long run");
        assert!((real as isize..8 * real as isize).contains(&bytes), "{bytes} accounted for {real}");
    }
}
