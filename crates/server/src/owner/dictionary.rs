//! Which series the current journal dictionary already defines.

use journal::DictionaryId;
use model::{SeriesRef, TenantId};
use std::collections::HashMap;

/// One bit for each series of each tenant, for one dictionary.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    id: Option<DictionaryId>,
    defined: HashMap<TenantId, Bits>,
}

/// A set of series references.
#[derive(Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Dictionary {
    /// Moves to the dictionary of the next records; a new one defines nothing yet.
    pub(crate) fn enter(&mut self, id: DictionaryId) {
        if self.id != Some(id) {
            self.id = Some(id);
            self.defined.clear();
        }
    }

    /// Forgets everything: records that were to define series were not kept.
    pub(crate) fn forget(&mut self) {
        self.id = None;
        self.defined.clear();
    }

    /// The set of a tenant.
    pub(crate) fn of(&mut self, tenant: &TenantId) -> &mut Bits {
        if !self.defined.contains_key(tenant) {
            self.defined.insert(tenant.clone(), Bits::default());
        }
        self.defined.get_mut(tenant).expect("BUG: the tenant was just added")
    }
}

impl Bits {
    /// Adds a series; true where it was not in.
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
        d.forget();
        d.enter(DictionaryId(2));
        assert!(d.of(&a).insert(SeriesRef(70)));
    }
}
