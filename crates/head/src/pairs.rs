//! Every label pair of a tenant once, with its postings.

use crate::postings::Postings;
use hashbrown::HashTable;
use model::SeriesRef;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A label pair of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PairId(pub(crate) u32);

#[derive(Debug)]
struct Pair {
    name: u32,
    value: Box<str>,
    postings: Postings,
}

#[derive(Debug)]
struct Name {
    text: Box<str>,
    /// In order of first appearance.
    pairs: Vec<PairId>,
}

#[derive(Debug, Default)]
pub(crate) struct Pairs {
    names: Vec<Name>,
    pairs: Vec<Pair>,
    name_of: HashTable<u32>,
    pair_of: HashTable<u32>,
    seed: u64,
    text_bytes: usize,
    postings_bytes: isize,
    /// Of all [`Name::pairs`]. Counted along, because there can be millions of names and somebody asks for
    /// the sum with every write.
    list_bytes: usize,
}

impl Pairs {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The pair's id, made on first sight.
    pub(crate) fn intern(&mut self, name: &str, value: &str) -> PairId {
        let name = self.intern_name(name);
        let hash = self.pair_hash(name, value);
        if let Some(id) = self.find_pair(hash, name, value) {
            return id;
        }
        let id = self.pairs.len() as u32;
        self.pairs.push(Pair { name, value: value.into(), postings: Postings::default() });
        self.text_bytes += value.len();
        let list = &mut self.names[name as usize].pairs;
        let before = list.capacity();
        list.push(PairId(id));
        self.list_bytes += (list.capacity() - before) * size_of::<PairId>();
        let (pairs, seed) = (&self.pairs, self.seed);
        self.pair_of.insert_unique(hash, id, |i| {
            let p = &pairs[*i as usize];
            hash_pair(p.name, &p.value, seed)
        });
        PairId(id)
    }

    fn intern_name(&mut self, name: &str) -> u32 {
        let hash = xxh3_64_with_seed(name.as_bytes(), self.seed);
        let found = self.name_of.find(hash, |i| &*self.names[*i as usize].text == name);
        if let Some(id) = found {
            return *id;
        }
        let id = self.names.len() as u32;
        self.names.push(Name { text: name.into(), pairs: Vec::new() });
        self.text_bytes += name.len();
        let (names, seed) = (&self.names, self.seed);
        self.name_of.insert_unique(hash, id, |i| xxh3_64_with_seed(names[*i as usize].text.as_bytes(), seed));
        id
    }

    fn pair_hash(&self, name: u32, value: &str) -> u64 {
        hash_pair(name, value, self.seed)
    }

    fn find_pair(&self, hash: u64, name: u32, value: &str) -> Option<PairId> {
        let same = |i: &u32| {
            let p = &self.pairs[*i as usize];
            p.name == name && &*p.value == value
        };
        self.pair_of.find(hash, same).map(|i| PairId(*i))
    }

    fn find_name(&self, name: &str) -> Option<&Name> {
        Some(&self.names[self.number_of(name)? as usize])
    }

    /// The number of a name, where anybody has it.
    pub(crate) fn number_of(&self, name: &str) -> Option<u32> {
        let hash = xxh3_64_with_seed(name.as_bytes(), self.seed);
        self.name_of.find(hash, |i| &*self.names[*i as usize].text == name).copied()
    }

    pub(crate) fn text(&self, id: PairId) -> (&str, &str) {
        let pair = &self.pairs[id.0 as usize];
        (&self.names[pair.name as usize].text, &pair.value)
    }

    /// The number of a pair's name.
    #[inline]
    pub(crate) fn name_number(&self, id: PairId) -> u32 {
        self.pairs[id.0 as usize].name
    }

    pub(crate) fn add_series(&mut self, id: PairId, series: SeriesRef) {
        self.postings_bytes += self.pairs[id.0 as usize].postings.push(series);
    }

    /// The pairs of a name in order of their first appearance; none where nobody has the name.
    pub(crate) fn of_name(&self, name: &str) -> &[PairId] {
        self.find_name(name).map_or(&[][..], |n| &n.pairs)
    }

    /// The pair, where there is one.
    pub(crate) fn find(&self, name: &str, value: &str) -> Option<PairId> {
        let name = self.number_of(name)?;
        self.find_pair(self.pair_hash(name, value), name, value)
    }

    /// The series of a pair.
    pub(crate) fn postings(&self, id: PairId) -> &Postings {
        &self.pairs[id.0 as usize].postings
    }

    /// The name of this number and its pairs; numbers are dense.
    pub(crate) fn name(&self, number: usize) -> Option<(&str, &[PairId])> {
        self.names.get(number).map(|n| (&*n.text, n.pairs.as_slice()))
    }

    /// Bytes of memory, in constant time.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pairs.capacity() * size_of::<Pair>()
            + self.names.capacity() * size_of::<Name>()
            + self.pair_of.allocation_size()
            + self.name_of.allocation_size()
            + self.postings_bytes.max(0) as usize
            + self.list_bytes
            + self.text_bytes
    }
}

fn hash_pair(name: u32, value: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(value.as_bytes(), seed ^ (u64::from(name) << 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted_as_they_grow() {
        let mut pairs = Pairs::new(1);
        for i in 0..1000 {
            pairs.intern(&format!("name{}", i % 300), &i.to_string());
            pairs.intern("same", "same");
        }
        let lists: usize = pairs.names.iter().map(|n| n.pairs.capacity() * size_of::<PairId>()).sum();
        assert_eq!(pairs.list_bytes, lists);
    }
}
