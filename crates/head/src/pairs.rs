//! All label pairs of a tenant. Each is stored once, with its postings: the series that have the pair.

use crate::growth::{Gained, Growth, hash_of};
use crate::metric_sizes::MetricSizes;
use crate::paged::Slab;
use crate::pair::{NameCount, PairCount, PairId};
use crate::postings::Postings;
use crate::ranks::Ranks;
use hashbrown::HashTable;
use model::SeriesRef;
use model::labels::METRIC_NAME;
use xxhash_rust::xxh3::xxh3_64_with_seed;

#[derive(Debug, Default)]
struct Pair {
    name: u32,
    /// Number of bases and series in [`crate::labels`] that refer to the pair. It is dropped with the last of
    /// them.
    holders: u32,
    value: Box<str>,
    postings: Postings,
}

const _: () = assert!(size_of::<Pair>() == 64);

#[derive(Debug, Default)]
struct Name {
    /// Text of the name; empty if no pair has the name.
    text: Box<str>,
    /// Pairs with series.
    pairs: Postings,
    /// Length of the values of `pairs`.
    value_bytes: usize,
    /// Number of pairs, including those without series.
    held: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Pairs {
    names: Slab<Name>,
    pairs: Slab<Pair>,
    name_of: HashTable<u32>,
    pair_of: HashTable<u32>,
    seed: u64,
    text_bytes: usize,
    /// Memory of all postings, counted at each change, because every write reads it.
    postings_bytes: isize,
    ranks: Ranks,
    growth: Growth,
    /// Number of the label name [`METRIC_NAME`].
    metric_name: Option<u32>,
    metric_sizes: MetricSizes,
    /// Number of pairs with series.
    listed: usize,
    /// Number of names that have such pairs.
    listed_names: usize,
}

impl Pairs {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(crate) fn intern(&mut self, name: &str, value: &str) -> PairId {
        let name = self.intern_name(name);
        let hash = self.pair_hash(name, value);
        if let Some(id) = self.find_pair(hash, name, value) {
            return id;
        }
        let pair = Pair { name, value: value.into(), ..Pair::default() };
        let id = self.pairs.insert(pair);
        self.text_bytes += value.len();
        self.names.get_mut(name).held += 1;
        let (pairs, seed) = (&self.pairs, self.seed);
        self.pair_of.insert_unique(hash, id, |i| pairs.get(*i).hash(seed));
        PairId(id)
    }

    fn intern_name(&mut self, name: &str) -> u32 {
        if let Some(number) = self.number_of(name) {
            return number;
        }
        let number = self.names.insert(Name { text: name.into(), ..Name::default() });
        self.text_bytes += name.len();
        let (names, seed) = (&self.names, self.seed);
        let hash = |name: &str| xxh3_64_with_seed(name.as_bytes(), seed);
        self.name_of.insert_unique(hash(name), number, |i| hash(&names.get(*i).text));
        if name == METRIC_NAME {
            self.metric_name = Some(number);
        }
        number
    }

    /// Records that another label set or base in [`crate::labels`] refers to the pair.
    pub(crate) fn acquire(&mut self, id: PairId) {
        self.pairs.get_mut(id.0).holders += 1;
    }

    /// Records that a label set or base no longer refers to the pair. Drops a pair without holders, and a
    /// name without pairs.
    pub(crate) fn release(&mut self, id: PairId) {
        let pair = self.pairs.get_mut(id.0);
        pair.holders -= 1;
        if pair.holders > 0 {
            return;
        }
        assert!(pair.postings.is_empty(), "BUG: a label pair without holders still has postings");
        let hash = pair.hash(self.seed);
        let (pairs, names, seed) = (&self.pairs, &self.names, self.seed);
        self.growth.forget(id, || text_hash(names, pairs, seed, id));
        let entry = self.pair_of.find_entry(hash, |i| *i == id.0);
        entry.expect("BUG: the pair is missing from the table").remove();
        let pair = self.pairs.remove(id.0);
        self.text_bytes -= pair.value.len();
        self.postings_bytes -= pair.postings.bytes();
        let of_name = self.names.get_mut(pair.name);
        of_name.held -= 1;
        if of_name.held == 0 {
            self.remove_name(pair.name);
        }
        let (pairs, seed) = (&self.pairs, self.seed);
        if is_roomy(&self.pair_of) {
            self.pair_of.shrink_to(2 * self.pair_of.len(), |i| pairs.get(*i).hash(seed));
        }
    }

    fn remove_name(&mut self, number: u32) {
        self.metric_name = self.metric_name.filter(|metric_name| *metric_name != number);
        let name = self.names.remove(number);
        let hash = |name: &str| xxh3_64_with_seed(name.as_bytes(), self.seed);
        let entry = self.name_of.find_entry(hash(&name.text), |i| *i == number);
        entry.expect("BUG: the name is missing from the table").remove();
        self.text_bytes -= name.text.len();
        self.postings_bytes -= name.pairs.bytes();
        let names = &self.names;
        if is_roomy(&self.name_of) {
            self.name_of.shrink_to(2 * self.name_of.len(), |i| hash(&names.get(*i).text));
        }
    }

    pub(crate) fn count_new(&mut self, ids: &[PairId], metric_at: usize, now_s: u32) {
        let (pairs, names, seed) = (&self.pairs, &self.names, self.seed);
        self.growth.count(ids, metric_at, now_s, |id| text_hash(names, pairs, seed, id));
    }

    pub(crate) fn gained(&self, now_s: u32) -> Gained<'_> {
        let text = |id: PairId| self.pair_count(id.0 as usize).map(|pair| (pair.name, pair.value));
        self.growth.gained(now_s, text, |id| text_hash(&self.names, &self.pairs, self.seed, id))
    }

    #[cfg(test)]
    pub(crate) fn growth_bytes(&self) -> usize {
        self.growth.memory_bytes()
    }

    fn pair_hash(&self, name: u32, value: &str) -> u64 {
        hash_pair(name, value, self.seed)
    }

    fn find_pair(&self, hash: u64, name: u32, value: &str) -> Option<PairId> {
        let same = |i: &u32| {
            let p = self.pairs.get(*i);
            p.name == name && &*p.value == value
        };
        self.pair_of.find(hash, same).map(|i| PairId(*i))
    }

    pub(crate) fn number_of(&self, name: &str) -> Option<u32> {
        let hash = xxh3_64_with_seed(name.as_bytes(), self.seed);
        self.name_of.find(hash, |i| &*self.names.get(*i).text == name).copied()
    }

    pub(crate) fn text(&self, id: PairId) -> (&str, &str) {
        let pair = self.pairs.get(id.0);
        (&self.names.get(pair.name).text, &pair.value)
    }

    #[inline]
    pub(crate) fn name_number(&self, id: PairId) -> u32 {
        self.pairs.get(id.0).name
    }

    #[inline]
    pub(crate) fn add_series(&mut self, id: PairId, series: SeriesRef) {
        let Pair { name, postings, .. } = self.pairs.get_mut(id.0);
        self.postings_bytes += postings.insert(series.0);
        let (name, after) = (*name, postings.len());
        self.ranks.grown(id.0, after);
        if self.metric_name == Some(name) {
            self.metric_sizes.change(after - 1, after);
        }
        if after == 1 {
            self.list(id, name);
        }
    }

    /// Called when a pair has got its first series.
    fn list(&mut self, id: PairId, name: u32) {
        let of_name = self.names.get_mut(name);
        of_name.value_bytes += self.pairs.get(id.0).value.len();
        self.postings_bytes += of_name.pairs.insert(id.0);
        self.listed += 1;
        self.listed_names += usize::from(of_name.pairs.len() == 1);
    }

    /// Called when a pair has lost its last series. The pair itself stays until it has no holder.
    fn unlist(&mut self, id: PairId, name: u32) {
        let of_name = self.names.get_mut(name);
        of_name.value_bytes -= self.pairs.get(id.0).value.len();
        self.postings_bytes += of_name.pairs.remove(id.0);
        self.listed -= 1;
        self.listed_names -= usize::from(of_name.pairs.is_empty());
    }

    pub(crate) fn remove_series(&mut self, id: PairId, series: SeriesRef) {
        let Pair { name, postings, .. } = self.pairs.get_mut(id.0);
        let before = postings.len();
        self.postings_bytes += postings.remove(series.0);
        let (name, after) = (*name, postings.len());
        if after < before {
            self.ranks.shrunk(id.0, after);
            if self.metric_name == Some(name) {
                self.metric_sizes.change(before, after);
            }
            if after == 0 {
                self.unlist(id, name);
            }
        }
    }

    pub(crate) const fn metric_sizes(&self) -> &MetricSizes {
        &self.metric_sizes
    }

    /// The pairs with this name that have series, in ascending order of their numbers, starting at `from`.
    pub(crate) fn of_name(&self, name: &str, from: u32) -> impl Iterator<Item = PairId> + '_ {
        let name = self.number_of(name).map(|number| self.names.get(number));
        name.into_iter().flat_map(move |name| name.pairs.iter_from(from)).map(PairId)
    }

    pub(crate) fn count_of_name(&self, name: &str) -> usize {
        self.number_of(name).map_or(0, |number| self.names.get(number).pairs.len())
    }

    pub(crate) fn find(&self, name: &str, value: &str) -> Option<PairId> {
        let name = self.number_of(name)?;
        self.find_pair(self.pair_hash(name, value), name, value)
    }

    pub(crate) fn postings(&self, id: PairId) -> &Postings {
        &self.pairs.get(id.0).postings
    }

    /// The pair at `position` among the pairs with this name, which are in ascending order of numbers.
    pub(crate) fn nth_of_name(&self, name: &str, position: usize) -> Option<PairId> {
        self.names.get(self.number_of(name)?).pairs.nth(position).map(PairId)
    }

    pub(crate) const fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Number of series of a pair; 0 if the number is free.
    pub(crate) fn series_of(&self, number: usize) -> usize {
        self.pairs.find(number).map_or(0, |pair| pair.postings.len())
    }

    /// The pair with this number; `None` if it has no series.
    pub(crate) fn pair_count(&self, number: usize) -> Option<PairCount<'_>> {
        let pair = self.pairs.find(number).filter(|pair| !pair.postings.is_empty())?;
        Some(PairCount {
            name: &self.names.get(pair.name).text,
            value: &pair.value,
            series: pair.postings.len(),
        })
    }

    pub(crate) fn name_count(&self, number: usize) -> Option<NameCount<'_>> {
        let name = self.names.find(number).filter(|name| !name.pairs.is_empty())?;
        Some(NameCount { name: &name.text, values: name.pairs.len(), bytes: name.value_bytes })
    }

    /// Number of label names that series have, and one more than the largest number that any name has.
    pub(crate) const fn names_count(&self) -> (usize, usize) {
        (self.listed_names, self.names.end())
    }

    /// Number of label pairs that series have.
    pub(crate) const fn count(&self) -> usize {
        self.listed
    }

    /// Ends of the ranges of numbers: all names have numbers below the first end, all pairs have numbers
    /// below the second.
    pub(crate) const fn ends(&self) -> (usize, usize) {
        (self.names.end(), self.pairs.end())
    }

    /// The name with this number, and its pairs, starting at the number `from`. `None` if no name has this
    /// number.
    pub(crate) fn name(&self, number: usize, from: u32) -> Option<(&str, impl Iterator<Item = PairId> + '_)> {
        let name = self.names.find(number).filter(|name| !name.text.is_empty())?;
        Some((&*name.text, name.pairs.iter_from(from).map(PairId)))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.pairs.memory_bytes()
            + self.names.memory_bytes()
            + self.pair_of.allocation_size()
            + self.name_of.allocation_size()
            + self.postings_bytes.max(0) as usize
            + self.ranks.memory_bytes()
            + self.growth.memory_bytes()
            + self.metric_sizes.memory_bytes()
            + self.text_bytes
    }
}

impl Pair {
    fn hash(&self, seed: u64) -> u64 {
        hash_pair(self.name, &self.value, seed)
    }
}

fn is_roomy(table: &HashTable<u32>) -> bool {
    table.capacity() > 256 && table.len() * 4 < table.capacity()
}

fn text_hash(names: &Slab<Name>, pairs: &Slab<Pair>, seed: u64, id: PairId) -> u64 {
    let pair = pairs.get(id.0);
    hash_of(&names.get(pair.name).text, &pair.value, seed)
}

fn hash_pair(name: u32, value: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(value.as_bytes(), seed ^ (u64::from(name) << 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_acquired_and_released() {
        let mut pairs = Pairs::new(1);
        let empty = pairs.memory_bytes();
        for round in 0..3 {
            let text = |i: u32| (format!("name{}", i % 300), (i + round).to_string());
            let ids: Vec<_> = (0..5000).map(text).map(|(name, value)| pairs.intern(&name, &value)).collect();
            ids.iter().zip(0..).for_each(|(id, i)| pairs.add_series(*id, SeriesRef(i)));
            assert_eq!(pairs.count_of_name("name7"), 17);
            ids.iter().chain([&ids[7]]).for_each(|id| pairs.acquire(*id));
            for (id, i) in ids.iter().zip(0..) {
                pairs.remove_series(*id, SeriesRef(i));
                pairs.release(*id);
            }
            let name = text(7).0;
            assert_eq!(pairs.find(&name, &text(7).1), Some(ids[7]), "the pair still has a holder");
            assert_eq!((pairs.of_name(&name, 0).count(), pairs.count(), pairs.names_count().0), (0, 0, 0));
            assert_eq!(pairs.number_of("name8"), None);
            pairs.release(ids[7]);
            assert_eq!(pairs.find(&name, &text(7).1), None);
            assert_eq!((pairs.text_bytes, pairs.postings_bytes), (0, 0));
            assert!(pairs.memory_bytes() < empty + 8192, "{} bytes", pairs.memory_bytes());
        }
    }
}
