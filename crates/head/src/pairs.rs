//! Every label pair of a tenant once, with its postings; and how filters find series through them.

use crate::postings::Postings;
use hashbrown::HashTable;
use model::SeriesRef;
use roaring::RoaringBitmap;
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

/// What a series' label must be like. The query's matchers become filters at the border of this crate.
#[derive(Debug)]
pub struct Filter<'a> {
    /// The label's name.
    pub name: &'a str,
    /// Which values pass; a missing label counts as the empty value.
    pub kind: FilterKind<'a>,
}

/// Which values pass a [`Filter`].
#[derive(Clone, Copy)]
pub enum FilterKind<'a> {
    /// This one.
    Equal(&'a str),
    /// Any of these.
    OneOf(&'a [String]),
    /// All for which the function is true.
    Predicate(&'a dyn Fn(&str) -> bool),
}

impl std::fmt::Debug for FilterKind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal(value) => write!(f, "Equal({value:?})"),
            Self::OneOf(values) => write!(f, "OneOf({values:?})"),
            Self::Predicate(_) => f.write_str("Predicate"),
        }
    }
}

impl FilterKind<'_> {
    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Equal(v) => *v == value,
            Self::OneOf(values) => values.iter().any(|v| v == value),
            Self::Predicate(f) => f(value),
        }
    }
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
        let hash = xxh3_64_with_seed(name.as_bytes(), self.seed);
        let id = self.name_of.find(hash, |i| &*self.names[*i as usize].text == name)?;
        Some(&self.names[*id as usize])
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

    /// The series that pass all filters; `all` are the ones there are.
    pub(crate) fn select(&self, filters: &[Filter<'_>], all: u32) -> RoaringBitmap {
        let everything = || (0..all).collect::<RoaringBitmap>();
        // Filters that a missing label fails come first: they only need the postings of what matches.
        let (lenient, strict): (Vec<_>, Vec<_>) = filters.iter().partition(|f| f.kind.matches(""));
        let mut strict: Vec<_> = strict.into_iter().map(|f| self.matching(f)).collect();
        strict.sort_by_key(|pairs| pairs.iter().map(|p| p.postings.len()).sum::<usize>());
        let mut selected: Option<RoaringBitmap> = None;
        for pairs in strict {
            let these = union(&pairs);
            match &mut selected {
                None => selected = Some(these),
                Some(s) => *s &= these,
            }
            if selected.as_ref().is_some_and(RoaringBitmap::is_empty) {
                return RoaringBitmap::new();
            }
        }
        let mut selected = selected.unwrap_or_else(everything);
        for filter in lenient {
            let others = FilterKind::Predicate(&|v: &str| !filter.kind.matches(v));
            selected -= union(&self.matching(&Filter { name: filter.name, kind: others }));
        }
        selected
    }

    /// The pairs whose value passes the filter.
    fn matching(&self, filter: &Filter<'_>) -> Vec<&Pair> {
        let Some(name) = self.find_name(filter.name) else { return Vec::new() };
        let by_value = |value: &str| {
            let id = self.name_of.find(xxh3_64_with_seed(filter.name.as_bytes(), self.seed), |i| {
                &*self.names[*i as usize].text == filter.name
            })?;
            let pair = self.find_pair(self.pair_hash(*id, value), *id, value)?;
            Some(&self.pairs[pair.0 as usize])
        };
        match filter.kind {
            FilterKind::Equal(value) => by_value(value).into_iter().collect(),
            FilterKind::OneOf(values) => values.iter().filter_map(|v| by_value(v)).collect(),
            FilterKind::Predicate(f) => {
                let all = name.pairs.iter().map(|id| &self.pairs[id.0 as usize]);
                all.filter(|p| f(&p.value)).collect()
            }
        }
    }

    /// Names of labels, unsorted; with `among`, only those that one of these series has.
    pub(crate) fn names<'a>(&'a self, among: Option<&'a RoaringBitmap>) -> impl Iterator<Item = &'a str> {
        let used = move |n: &&Name| {
            let has = |id: &PairId, set| self.pairs[id.0 as usize].postings.intersects(set);
            among.is_none_or(|set| n.pairs.iter().any(|id| has(id, set)))
        };
        self.names.iter().filter(used).map(|n| &*n.text)
    }

    /// Values of a label, unsorted; with `among`, only those that one of these series has.
    pub(crate) fn values<'a>(
        &'a self,
        name: &str,
        among: Option<&'a RoaringBitmap>,
    ) -> impl Iterator<Item = &'a str> {
        let pairs = self.find_name(name).map_or(&[][..], |n| &n.pairs);
        let pairs = pairs.iter().map(|id| &self.pairs[id.0 as usize]);
        pairs.filter(move |p| among.is_none_or(|set| p.postings.intersects(set))).map(|p| &*p.value)
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

fn union(pairs: &[&Pair]) -> RoaringBitmap {
    match pairs {
        [] => RoaringBitmap::new(),
        [one] => one.postings.to_bitmap(),
        many => {
            let mut out = RoaringBitmap::new();
            many.iter().for_each(|p| p.postings.add_to(&mut out));
            out
        }
    }
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
