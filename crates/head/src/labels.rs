//! Label pairs of each series, packed.

use crate::paged::{Paged, Slab};
use crate::pair::PairId;
use crate::pairs::Pairs;
use model::labels::{METRIC_NAME, put_label};
use model::{LabelsRef, SeriesRef};
use std::cmp::Ordering;

/// The label pairs of every series. Most series of a target differ from each other in only one pair. So the
/// pairs of a series take eight bytes: the number of a base, whose pairs many series share, and the series'
/// own pair, which replaces one of the base's pairs.
#[derive(Debug, Default)]
pub(crate) struct LabelSets {
    sets: Paged<Set>,
    bases: Slab<Base>,
    pairs_bytes: usize,
    /// Pairs of the newest base, which the next series probably shares. Empty without a base.
    base: Vec<PairId>,
    /// Number of the newest base, in `bases`.
    base_number: u32,
    scratch: Vec<PairId>,
    /// Position of the metric name in the newest series; `usize::MAX` without one.
    metric_at: usize,
}

#[derive(Debug, Default)]
struct Set {
    base: u32,
    /// Own pair of the series, which replaces the base's pair of the same name.
    own: PairId,
}

#[derive(Debug, Default)]
struct Base {
    pairs: Box<[PairId]>,
    series: u32,
}

impl LabelSets {
    pub(crate) fn insert(&mut self, series: SeriesRef, labels: LabelsRef<'_>, pairs: &mut Pairs) {
        self.scratch.clear();
        self.metric_at = usize::MAX;
        for (i, (name, value)) in labels.iter().enumerate() {
            if name == METRIC_NAME {
                self.metric_at = i;
            }
            let known = self.base.get(i).copied().filter(|p| pairs.text(*p) == (name, value));
            let id = known.unwrap_or_else(|| pairs.intern(name, value));
            self.scratch.push(id);
            pairs.add_series(id, series);
        }
        let own = self.only_difference(pairs).unwrap_or_else(|| self.start_base(pairs));
        pairs.acquire(own);
        self.bases.get_mut(self.base_number).series += 1;
        self.sets.put(series.index(), Set { base: self.base_number, own });
    }

    /// The pairs of the newest series, and the position of its metric name (`usize::MAX` without one).
    pub(crate) fn inserted(&self) -> (&[PairId], usize) {
        (&self.scratch, self.metric_at)
    }

    /// Takes a series out of the postings of its pairs. Its labels stay.
    pub(crate) fn unlist(&mut self, series: SeriesRef, pairs: &mut Pairs) {
        self.take_pairs(series, pairs);
        self.scratch.iter().for_each(|pair| pairs.remove_series(*pair, series));
    }

    /// Puts an unlisted series into the postings of its pairs again.
    pub(crate) fn list(&mut self, series: SeriesRef, pairs: &mut Pairs) {
        self.take_pairs(series, pairs);
        self.scratch.iter().for_each(|pair| pairs.add_series(*pair, series));
    }

    /// Drops the labels of an unlisted series, and also its base and pairs if no other series uses them.
    pub(crate) fn remove(&mut self, series: SeriesRef, pairs: &mut Pairs) {
        let Set { base: number, own } = self.sets.take(series.index());
        pairs.release(own);
        let base = self.bases.get_mut(number);
        base.series -= 1;
        if base.series == 0 {
            let base = self.bases.remove(number);
            self.pairs_bytes -= size_of_val(&*base.pairs);
            base.pairs.iter().for_each(|pair| pairs.release(*pair));
            if number == self.base_number {
                self.base.clear();
            }
        }
    }

    fn take_pairs(&mut self, series: SeriesRef, pairs: &Pairs) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend(self.pairs(series, pairs));
        self.scratch = scratch;
    }

    /// Returns the only pair in which the new label set (`scratch`) differs from the newest base. If they are
    /// equal, returns any pair. If several pairs or a label name differ, returns `None`: the label set then
    /// needs a new base.
    fn only_difference(&self, pairs: &Pairs) -> Option<PairId> {
        if self.scratch.len() != self.base.len() {
            return None;
        }
        let mut differences = self.scratch.iter().zip(&self.base).filter(|(new, base)| new != base);
        let Some((own, replaced)) = differences.next() else { return self.scratch.first().copied() };
        let same_name = pairs.name_number(*own) == pairs.name_number(*replaced);
        (same_name && differences.next().is_none()).then_some(*own)
    }

    /// Makes the new label set a base. Returns one of its pairs, which becomes the series' own pair.
    fn start_base(&mut self, pairs: &mut Pairs) -> PairId {
        self.scratch.iter().for_each(|pair| pairs.acquire(*pair));
        self.pairs_bytes += size_of_val(&*self.scratch);
        self.base_number = self.bases.insert(Base { pairs: self.scratch.as_slice().into(), series: 0 });
        self.base.clone_from(&self.scratch);
        *self.base.first().expect("BUG: a series has no labels")
    }

    pub(crate) fn pairs<'a>(
        &'a self,
        series: SeriesRef,
        pairs: &'a Pairs,
    ) -> impl Iterator<Item = PairId> + 'a {
        let set = self.sets.get(series.index());
        let own_name = pairs.name_number(set.own);
        let base = self.bases.get(set.base).pairs.iter().copied();
        base.map(move |pair| if pairs.name_number(pair) == own_name { set.own } else { pair })
    }

    pub(crate) fn metric(&self, series: SeriesRef, pairs: &Pairs) -> Option<PairId> {
        self.pairs(series, pairs).find(|pair| pairs.text(*pair).0 == METRIC_NAME)
    }

    /// The pair of a series with the name that has this number.
    pub(crate) fn named(&self, series: SeriesRef, name: u32, pairs: &Pairs) -> Option<PairId> {
        self.pairs(series, pairs).find(|pair| pairs.name_number(*pair) == name)
    }

    /// The pair of a series that has only one. `None` for other series.
    pub(crate) fn only(&self, series: SeriesRef) -> Option<PairId> {
        let set = self.sets.find(series.index())?;
        (self.bases.find(set.base as usize)?.pairs.len() == 1).then_some(set.own)
    }

    /// Compares the labels of two series pair by pair, without their metric names. Reads texts only from the
    /// first difference on, for speed.
    pub(crate) fn compare<'a>(&'a self, a: SeriesRef, b: SeriesRef, pairs: &'a Pairs) -> Ordering {
        let (a, b) = (self.sets.get(a.index()), self.sets.get(b.index()));
        let (a_base, b_base) = (&*self.bases.get(a.base).pairs, &*self.bases.get(b.base).pairs);
        let is_own = |set: &Set, pair| pairs.name_number(pair) == pairs.name_number(set.own);
        // a pair that is in both bases is common, unless the two series have different own pairs and one of
        // these replaces it
        let is_common = |x, y| x == y && (a.own == b.own || !(is_own(a, x) || is_own(b, x)));
        let common = a_base.iter().zip(b_base).take_while(|(x, y)| is_common(**x, **y)).count();
        let others = |set: &'a Set, base: &'a [PairId]| {
            let pair = move |pair| if is_own(set, pair) { set.own } else { pair };
            let texts = base[common..].iter().map(move |p| pairs.text(pair(*p)));
            texts.filter(|(name, _)| *name != METRIC_NAME)
        };
        others(a, a_base).cmp(others(b, b_base))
    }

    pub(crate) fn write(&self, series: SeriesRef, pairs: &Pairs, out: &mut Vec<u8>) {
        for pair in self.pairs(series, pairs) {
            let (name, value) = pairs.text(pair);
            put_label(out, name.as_bytes(), value.as_bytes());
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.sets.memory_bytes() + self.bases.memory_bytes() + self.pairs_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;

    fn check(sets: &[&[(&str, &str)]]) -> LabelSets {
        let (mut label_sets, mut pairs) = (LabelSets::default(), Pairs::new(1));
        let all: Vec<_> = sets.iter().map(|set| Labels::from_pairs(set)).collect();
        for (i, labels) in all.iter().enumerate() {
            label_sets.insert(SeriesRef(i as u32), labels.as_ref(), &mut pairs);
        }
        for (i, labels) in all.iter().enumerate() {
            let mut bytes = Vec::new();
            label_sets.write(SeriesRef(i as u32), &pairs, &mut bytes);
            assert_eq!(bytes, labels.as_bytes(), "{labels}");
        }
        label_sets
    }

    #[test]
    fn label_sets_round_trip_after_any_predecessors() {
        let one_base = check(&[
            &[("__name__", "a"), ("job", "x")],
            &[("__name__", "b"), ("job", "x")],
            &[("__name__", "a"), ("job", "x")],
            &[("__name__", "a"), ("job", "y")],
        ]);
        assert_eq!(one_base.bases.count(), 1);
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
        assert_eq!(several.bases.count(), 7);
    }

    #[test]
    fn series_of_a_target_share_one_base() {
        let names: Vec<_> = (0..500).map(|i| format!("metric_{i}")).collect();
        let sets: Vec<_> =
            names.iter().map(|n| [("__name__", n.as_str()), ("pod", "p"), ("zone", "z")]).collect();
        let sets: Vec<&[_]> = sets.iter().map(|s| &s[..]).collect();
        assert_eq!(check(&sets).bases.count(), 1);
    }
}
