//! A set of values that finds its k-th smallest value (order statistics).

/// The values that a set may contain, sorted, and which of them it contains.
#[derive(Debug)]
pub(super) struct Ranks {
    sorted: Vec<f64>,
    /// Fenwick tree, numbered from 1: `tree[i]` is the number of values of the ranks from `i - (i & -i) + 1`
    /// to `i`.
    tree: Vec<u32>,
    len: usize,
}

impl Ranks {
    /// Memory for each value.
    pub(super) const VALUE_BYTES: usize = size_of::<f64>() + 2 * size_of::<u32>();

    /// An empty set, with room for each distinct value of `values`.
    pub(super) fn of(values: &[f64]) -> Self {
        let mut sorted: Vec<_> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.dedup_by(|a, b| a.total_cmp(b).is_eq());
        let tree = vec![0; sorted.len() + 1];
        Self { sorted, tree, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, value: f64) {
        self.len += 1;
        self.change(value, 1);
    }

    pub(super) fn remove(&mut self, value: f64) {
        self.len -= 1;
        self.change(value, 1u32.wrapping_neg());
    }

    fn change(&mut self, value: f64, by: u32) {
        let mut node = 1 + self.sorted.partition_point(|other| other.total_cmp(&value).is_lt());
        while let Some(count) = self.tree.get_mut(node) {
            *count = count.wrapping_add(by);
            node += node & node.wrapping_neg();
        }
    }

    /// The value with `place` values before it. `place` is below the length.
    pub(super) fn at(&self, place: usize) -> f64 {
        let (mut before, mut left) = (0, place as u32);
        let mut step = self.tree.len().next_power_of_two();
        while step > 0 {
            if let Some(count) = self.tree.get(before + step).filter(|count| **count <= left) {
                left -= count;
                before += step;
            }
            step /= 2;
        }
        self.sorted[before]
    }
}
