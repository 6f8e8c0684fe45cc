//! Which label pairs each series has, packed.

use crate::paged::Paged;
use crate::pairs::{PairId, Pairs};
use model::labels::put_label;
use model::{LabelsRef, SeriesRef};

/// The pairs of every series, in order of their names.
///
/// A scrape's series differ in their metric name, or a histogram's in `le`, and in nothing else. So a set is a
/// base, which many series share, and the one pair in which it differs from that: eight bytes a series.
#[derive(Debug, Default)]
pub(crate) struct LabelSets {
    sets: Paged<Set>,
    /// For each base, how many pairs it has, and the pairs.
    bases: Paged<u32>,
    /// The base of the series created last, and where it is in `bases`.
    base: Vec<PairId>,
    base_start: u32,
    scratch: Vec<PairId>,
}

#[derive(Debug)]
struct Set {
    base: u32,
    /// Stands in for the base's pair of the same name.
    own: PairId,
}

impl LabelSets {
    /// Interns the labels of the next series.
    pub(crate) fn push(&mut self, labels: LabelsRef<'_>, pairs: &mut Pairs) -> SeriesRef {
        let series = SeriesRef(self.sets.len() as u32);
        self.scratch.clear();
        for (i, (name, value)) in labels.iter().enumerate() {
            let known = self.base.get(i).copied().filter(|p| pairs.text(*p) == (name, value));
            let id = known.unwrap_or_else(|| pairs.intern(name, value));
            self.scratch.push(id);
            pairs.add_series(id, series);
        }
        let own = self.only_difference(pairs).unwrap_or_else(|| self.start_base());
        self.sets.push(Set { base: self.base_start, own });
        series
    }

    /// The pair in which the new set differs from the base, or any where they are equal. None where there is
    /// more than one, or where its name is not in the base.
    fn only_difference(&self, pairs: &Pairs) -> Option<PairId> {
        if self.scratch.len() != self.base.len() {
            return None;
        }
        let mut differences = self.scratch.iter().zip(&self.base).filter(|(new, base)| new != base);
        let Some((own, replaced)) = differences.next() else { return self.scratch.first().copied() };
        let same_name = pairs.name_number(*own) == pairs.name_number(*replaced);
        (same_name && differences.next().is_none()).then_some(*own)
    }

    /// Makes the new set a base; returns one of its pairs, which replaces itself.
    fn start_base(&mut self) -> PairId {
        let start = u32::try_from(self.bases.len());
        self.base_start = start.expect("BUG: the series limit is far below 2^32 labels");
        self.bases.push(self.scratch.len() as u32);
        self.scratch.iter().for_each(|pair| self.bases.push(pair.0));
        self.base.clone_from(&self.scratch);
        *self.base.first().expect("BUG: a series has a name at least")
    }

    /// The pairs of a series, in order of their names.
    pub(crate) fn pairs<'a>(
        &'a self,
        series: SeriesRef,
        pairs: &'a Pairs,
    ) -> impl Iterator<Item = PairId> + 'a {
        let set = self.sets.get(series.index());
        let own_name = pairs.name_number(set.own);
        let base = set.base as usize;
        let count = *self.bases.get(base) as usize;
        (base + 1..=base + count).map(move |at| {
            let pair = PairId(*self.bases.get(at));
            if pairs.name_number(pair) == own_name { set.own } else { pair }
        })
    }

    /// Appends the canonical label bytes of a series.
    pub(crate) fn write(&self, series: SeriesRef, pairs: &Pairs, out: &mut Vec<u8>) {
        for pair in self.pairs(series, pairs) {
            let (name, value) = pairs.text(pair);
            put_label(out, name.as_bytes(), value.as_bytes());
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.sets.memory_bytes() + self.bases.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;

    fn check(sets: &[&[(&str, &str)]]) -> LabelSets {
        let (mut label_sets, mut pairs) = (LabelSets::default(), Pairs::new(1));
        let all: Vec<_> = sets.iter().map(|set| Labels::from_pairs(set)).collect();
        for labels in &all {
            label_sets.push(labels.as_ref(), &mut pairs);
        }
        for (i, labels) in all.iter().enumerate() {
            let mut bytes = Vec::new();
            label_sets.write(SeriesRef(i as u32), &pairs, &mut bytes);
            assert_eq!(bytes, labels.as_bytes(), "{labels}");
        }
        label_sets
    }

    #[test]
    fn sets_come_back_whatever_came_before() {
        let one_base = check(&[
            &[("__name__", "a"), ("job", "x")],
            &[("__name__", "b"), ("job", "x")],
            &[("__name__", "a"), ("job", "x")],
            &[("__name__", "a"), ("job", "y")],
        ]);
        assert_eq!(one_base.bases.len(), 3);
        let several = check(&[
            &[("__name__", "a")],
            &[("__name__", "a"), ("job", "x")],
            &[("__name__", "a"), ("jot", "x")],
            &[("__name__", "b"), ("jot", "x")],
            &[("__name__", "c"), ("jot", "y")],
            &[("A", "x"), ("__name__", "c")],
            &[("A", "y"), ("__name__", "c")],
            &[("A", "y"), ("B", "c"), ("__name__", "c")],
            &[("__name__", "c")],
        ]);
        assert_eq!(several.bases.len(), 2 + 3 + 3 + 3 + 3 + 4 + 2);
    }

    #[test]
    fn a_target_is_one_base() {
        let names: Vec<_> = (0..500).map(|i| format!("metric_{i}")).collect();
        let sets: Vec<_> =
            names.iter().map(|n| [("__name__", n.as_str()), ("pod", "p"), ("zone", "z")]).collect();
        let sets: Vec<&[_]> = sets.iter().map(|s| &s[..]).collect();
        assert_eq!(check(&sets).bases.len(), 4);
    }
}
