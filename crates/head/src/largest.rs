//! Search for a tenant's largest label pairs, values and names, in turns. No series is visited, because each
//! pair counts its series.

use crate::pair::{NameCount, PairId};
use crate::ranks::Ranks;
use crate::tenant::TenantHead;
use model::labels::METRIC_NAME;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of label pairs or names that one turn visits, which takes a quarter of a millisecond.
const TURN_STEPS: usize = 4_000;

/// A search visits at most this many names, and at most this many pairs with few series. A tenant with more
/// such pairs also has pairs with many series, which are found first.
const VISITED_MAX: usize = 100_000;

/// A search for the largest entries of a tenant. The caller holds a [`crate::Pin`] from before the first
/// turn.
#[derive(Debug)]
pub struct Largest {
    step: Step,
    label: String,
    /// Pairs with the most series.
    pairs: Top,
    /// Values of `label` with the most series.
    values: Top,
    /// Names with the most values.
    names: Top,
    /// Names with the most bytes of values.
    name_bytes: Top,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Visits the pairs with many series, one class after the other. `classes` is the number of classes left,
    /// and `from` is the next pair in the highest of them.
    Ranked {
        classes: usize,
        from: u32,
    },
    /// Visits the pairs with few series. `from` is the number of the next pair.
    Small {
        from: usize,
    },
    /// Visits the values of `label` with few series. `from` is the number of the next pair.
    SmallValues {
        from: u32,
        visited: usize,
    },
    /// Visits the label names. `from` is the number of the next name.
    Names {
        from: usize,
    },
    Done,
}

impl Largest {
    /// Memory of a search with a `count` of 1. Other searches take `count` times as much.
    pub const BYTES: usize = 4 * 2 * size_of::<Reverse<(usize, u32)>>();

    /// A search for the `count` largest pairs, metrics and label names.
    pub fn of_all(count: usize) -> Self {
        Self::new(METRIC_NAME, count, count, count)
    }

    pub fn values_of(label: &str, count: usize) -> Self {
        Self::new(label, 0, count, 0)
    }

    pub fn label_names(count: usize) -> Self {
        Self::new(METRIC_NAME, 0, 0, count)
    }

    fn new(label: &str, pairs: usize, values: usize, names: usize) -> Self {
        let top = |count| Top { heap: BinaryHeap::new(), count };
        let step = Step::Ranked { classes: usize::MAX, from: 0 };
        let (pairs, values, name_bytes, names) = (top(pairs), top(values), top(names), top(names));
        Self { step, label: label.to_owned(), pairs, values, names, name_bytes }
    }

    /// Runs one turn. Returns true after the last turn.
    pub fn advance(&mut self, head: &TenantHead) -> bool {
        let mut steps = TURN_STEPS;
        while steps > 0 {
            self.step = match self.step {
                Step::Ranked { classes, from } => self.ranked(head, classes, from, &mut steps),
                Step::Small { from } => self.small(head, from, &mut steps),
                Step::SmallValues { from, visited } => self.small_values(head, from, visited, &mut steps),
                Step::Names { from } => self.all_names(head, from, &mut steps),
                Step::Done => return true,
            };
        }
        false
    }

    fn ranked(&mut self, head: &TenantHead, classes: usize, from: u32, steps: &mut usize) -> Step {
        // pairs of the next class have fewer series
        if self.pairs.is_full() && self.values.is_full() {
            return Step::Names { from: 0 };
        }
        let (pairs, label) = (head.pairs(), head.pairs().number_of(&self.label));
        let classes = classes.min(pairs.ranks().len());
        let Some(class) = classes.checked_sub(1) else { return Step::Small { from: 0 } };
        for id in pairs.ranks().class(class, from) {
            if *steps == 0 {
                return Step::Ranked { classes, from: id };
            }
            *steps -= 1;
            let series = pairs.postings(PairId(id)).len();
            self.pairs.offer(series, id);
            if Some(pairs.name_number(PairId(id))) == label {
                self.values.offer(series, id);
            }
        }
        Step::Ranked { classes: class, from: 0 }
    }

    fn small(&mut self, head: &TenantHead, from: usize, steps: &mut usize) -> Step {
        let pairs = head.pairs();
        let end = pairs.ends().1.min(VISITED_MAX);
        if (from == 0 && self.pairs.is_full()) || from >= end {
            return Step::SmallValues { from: 0, visited: 0 };
        }
        let turn = from..end.min(from + *steps);
        *steps -= turn.len();
        for id in turn.clone() {
            let series = pairs.series_of(id);
            if series > 0 && !Ranks::has(series) {
                self.pairs.offer(series, id as u32);
            }
        }
        Step::Small { from: turn.end }
    }

    fn small_values(&mut self, head: &TenantHead, from: u32, mut visited: usize, steps: &mut usize) -> Step {
        if visited > 0 || !self.values.is_full() {
            for id in head.pairs().of_name(&self.label, from) {
                if visited == VISITED_MAX {
                    break;
                }
                if *steps == 0 {
                    return Step::SmallValues { from: id.0, visited };
                }
                *steps -= 1;
                visited += 1;
                let series = head.pairs().postings(id).len();
                if series > 0 && !Ranks::has(series) {
                    self.values.offer(series, id.0);
                }
            }
        }
        Step::Names { from: 0 }
    }

    fn all_names(&mut self, head: &TenantHead, from: usize, steps: &mut usize) -> Step {
        let is_wanted = self.names.count > 0;
        let end = if is_wanted { head.pairs().ends().0.min(VISITED_MAX) } else { 0 };
        let turn = from..end.min(from + *steps);
        *steps -= turn.len();
        for number in turn.clone() {
            if let Some(NameCount { values, bytes, .. }) = head.pairs().name_count(number) {
                self.names.offer(values, number as u32);
                self.name_bytes.offer(bytes, number as u32);
            }
        }
        if turn.end < end { Step::Names { from: turn.end } } else { Step::Done }
    }

    /// Numbers of the pairs and values found, for [`TenantHead::pair`]. A pair can occur twice.
    pub fn pairs(&self) -> impl Iterator<Item = usize> {
        self.pairs.numbers().chain(self.values.numbers())
    }

    /// Numbers of the names found, for [`TenantHead::name`]. A name can occur twice.
    pub fn names(&self) -> impl Iterator<Item = usize> {
        self.names.numbers().chain(self.name_bytes.numbers())
    }
}

#[derive(Debug)]
struct Top {
    heap: BinaryHeap<Reverse<(usize, u32)>>,
    count: usize,
}

impl Top {
    fn is_full(&self) -> bool {
        self.heap.len() >= self.count
    }

    fn offer(&mut self, size: usize, number: u32) {
        if !self.is_full() {
            self.heap.push(Reverse((size, number)));
        } else if let Some(mut least) = self.heap.peek_mut()
            && least.0.0 < size
        {
            *least = Reverse((size, number));
        }
    }

    fn numbers(&self) -> impl Iterator<Item = usize> {
        self.heap.iter().map(|Reverse((_, number))| *number as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::PairCount;
    use model::{Labels, SeriesKey};
    use std::collections::{BTreeMap, BTreeSet};
    use stdx::rng::Rng;

    fn pairs<'a>(largest: &Largest, head: &'a TenantHead) -> Vec<PairCount<'a>> {
        largest.pairs().filter_map(|number| head.pair(number)).collect()
    }

    fn found(head: &TenantHead, count: usize) -> Largest {
        search(head, Largest::of_all(count))
    }

    fn search(head: &TenantHead, mut largest: Largest) -> Largest {
        while !largest.advance(head) {}
        largest
    }

    #[test]
    fn the_largest_are_those_of_a_count_of_all_series() {
        let mut rng = Rng::announced();
        let mut head = TenantHead::new(1);
        let (mut sizes, mut values) = (BTreeMap::new(), BTreeMap::<_, BTreeSet<_>>::new());
        for series in 0..6_000_u32 {
            // few metrics have many series, and many metrics have a few
            let metric = format!("m{}", 6_000 / (1 + rng.below(6_000)));
            let (job, id) = (format!("j{}", rng.below(3)), series.to_string());
            let labels = [("__name__", metric.as_str()), ("id", &id), ("job", &job)];
            let all = Labels::from_pairs(&labels);
            head.create(SeriesKey::of(all.as_bytes(), 1), all.as_ref());
            for (name, value) in labels {
                *sizes.entry((name.to_owned(), value.to_owned())).or_insert(0) += 1;
                values.entry(name).or_default().insert(value.to_owned());
            }
        }
        for count in [1, 10, 200] {
            let largest = found(&head, count);
            let check = |is_metric: bool| {
                let wanted = |name: &str| !is_metric || name == "__name__";
                let mut expected: Vec<_> =
                    sizes.iter().filter(|((name, _), _)| wanted(name)).map(|(_, series)| *series).collect();
                expected.sort_unstable_by(|a, b| b.cmp(a));
                expected.truncate(count);
                let all: BTreeSet<_> = pairs(&largest, &head)
                    .into_iter()
                    .filter(|pair| wanted(pair.name))
                    .map(|p| (p.series, p.name, p.value))
                    .collect();
                let found: Vec<_> = all.iter().rev().take(count).map(|(series, _, _)| *series).collect();
                assert_eq!(found, expected, "{count}, metrics {is_metric}");
                for (series, name, value) in all {
                    assert_eq!(sizes[&(name.to_owned(), value.to_owned())], series, "{name}={value}");
                }
            };
            check(false);
            check(true);
            let names: BTreeSet<_> = largest
                .names()
                .filter_map(|number| head.name(number))
                .map(|n| (n.values, n.name, n.bytes))
                .collect();
            let ids: Vec<_> = head.values_from("id", 0).collect();
            assert!(ids.len() == 6_000 && ids.iter().all(|(_, series)| *series == 1));
            assert_eq!(head.values_from("id", ids[5_000].0).count(), 1_000);
            for (count, name, bytes) in &names {
                let values = &values[name];
                assert_eq!((*count, *bytes), (values.len(), values.iter().map(String::len).sum()), "{name}");
            }
            assert_eq!(names.last().map(|(_, name, _)| *name), Some("id"));
            let jobs = search(&head, Largest::values_of("job", count));
            assert_eq!(pairs(&jobs, &head).len(), count.min(3));
            assert!(pairs(&jobs, &head).iter().all(|pair| pair.name == "job") && jobs.names().count() == 0);
            let only_names = search(&head, Largest::label_names(count));
            assert_eq!((only_names.pairs().count(), only_names.names().count()), (0, 2 * count.min(3)));
        }
    }

    #[test]
    fn removed_pairs_are_not_among_the_largest() {
        let mut head = TenantHead::new(1);
        assert_eq!(pairs(&found(&head, 3), &head), []);
        let labels = Labels::from_pairs(&[("__name__", "up")]);
        let series = head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref());
        let largest = found(&head, 3);
        let up = PairCount { name: "__name__", value: "up", series: 1 };
        assert_eq!(pairs(&largest, &head), [up, up]);
        head.labels.unlist(series, &mut head.pairs);
        assert_eq!(pairs(&largest, &head), []);
        assert_eq!(pairs(&found(&head, 3), &head), []);
    }
}
