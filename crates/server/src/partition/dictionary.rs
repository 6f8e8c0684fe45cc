//! Remembers which series are defined in the journal's current dictionary, so that each is defined only once.

use journal::DictionaryId;
use model::{SeriesRef, TenantId};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    id: Option<DictionaryId>,
    bytes: u64,
    definitions: u64,
    /// Number of definitions of series that have since been evicted.
    obsolete: u64,
    defined: HashMap<TenantId, Bits>,
}

#[derive(Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Dictionary {
    /// Must be called with the dictionary of each record that is begun. If it is a new dictionary, no series is
    /// defined in it yet.
    pub(crate) fn enter(&mut self, id: DictionaryId) {
        if self.id != Some(id) {
            self.id = Some(id);
            self.clear();
        }
    }

    /// Forgets all definitions, because records that contained some of them were discarded.
    pub(crate) fn forget(&mut self) {
        self.id = None;
        self.clear();
    }

    fn clear(&mut self) {
        (self.bytes, self.definitions, self.obsolete) = (0, 0, 0);
        self.defined.clear();
    }

    pub(crate) fn grow(&mut self, definitions: usize, bytes: usize) {
        self.definitions += definitions as u64;
        self.bytes += bytes as u64;
    }

    /// Estimates how many bytes it would take to define all series that are still in memory in a new dictionary.
    pub(crate) fn live_bytes(&self) -> u64 {
        let live = u128::from(self.definitions.saturating_sub(self.obsolete));
        (u128::from(self.bytes) * live / u128::from(self.definitions.max(1))) as u64
    }

    /// Forgets an evicted series, because its reference will be given to a different series.
    pub(crate) fn remove(&mut self, tenant: &TenantId, series: SeriesRef) {
        if let Some(defined) = self.defined.get_mut(tenant) {
            self.obsolete += u64::from(defined.remove(series));
        }
    }

    pub(crate) fn remove_tenant(&mut self, tenant: &TenantId) {
        if let Some(defined) = self.defined.remove(tenant) {
            self.obsolete += defined.len();
        }
    }

    pub(crate) fn of(&mut self, tenant: &TenantId) -> &mut Bits {
        if !self.defined.contains_key(tenant) {
            self.defined.insert(tenant.clone(), Bits::default());
        }
        self.defined.get_mut(tenant).expect("BUG: the tenant was not added")
    }
}

impl Bits {
    #[inline]
    pub(crate) fn insert(&mut self, series: SeriesRef) -> bool {
        let (word, bit) = (series.index() / 64, 1u64 << (series.index() % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn remove(&mut self, series: SeriesRef) -> bool {
        let Some(word) = self.0.get_mut(series.index() / 64) else { return false };
        let bit = 1u64 << (series.index() % 64);
        let was_in = *word & bit != 0;
        *word &= !bit;
        was_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_of_series_that_left_are_not_live() {
        let (mut d, a) = (Dictionary::default(), TenantId::anonymous());
        d.enter(DictionaryId(1));
        assert_eq!(d.live_bytes(), 0);
        for series in 0..10 {
            assert!(d.of(&a).insert(SeriesRef(series)));
        }
        d.grow(10, 1000);
        assert_eq!(d.live_bytes(), 1000);
        for series in [0, 1, 2, 0, 99] {
            d.remove(&a, SeriesRef(series));
        }
        assert_eq!(d.live_bytes(), 700, "each series counts once");
        d.remove_tenant(&a);
        assert_eq!(d.live_bytes(), 0);
        assert!(d.of(&a).insert(SeriesRef(9)));
        d.enter(DictionaryId(2));
        assert_eq!(d.live_bytes(), 0);
    }

    #[test]
    fn each_dictionary_starts_empty() {
        let (mut d, a) = (Dictionary::default(), TenantId::anonymous());
        d.enter(DictionaryId(1));
        assert!(d.of(&a).insert(SeriesRef(70)));
        assert!(!d.of(&a).insert(SeriesRef(70)));
        d.enter(DictionaryId(1));
        assert!(!d.of(&a).insert(SeriesRef(70)));
        d.enter(DictionaryId(2));
        assert!(d.of(&a).insert(SeriesRef(70)));
        d.remove(&a, SeriesRef(70));
        d.remove(&a, SeriesRef(7_000));
        assert!(d.of(&a).insert(SeriesRef(70)), "a new series has the same reference");
        d.forget();
        d.enter(DictionaryId(2));
        assert!(d.of(&a).insert(SeriesRef(70)));
    }
}
