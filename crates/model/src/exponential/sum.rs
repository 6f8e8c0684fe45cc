//! The sum of the increments of an exponential histogram.

use super::{BUCKETS_MAX, Exponential, Layout};
use std::sync::Arc;

/// Adds up the increments of a histogram, of which [`crate::Accumulator`] says that they have to be added.
///
/// The latest increments are kept by themselves, so that the sum up to the end of each of them is known, also if one comes late.
/// Copies share their memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExponentialSum {
    /// Sum of the increments that are not among the latest.
    pub base: Arc<Exponential>,
    /// The latest increments, each with its end, in nanoseconds since the Unix epoch. In ascending order.
    pub latest: Vec<(u64, Arc<Exponential>)>,
}

/// What the series of a histogram must say after an increment was added.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadOut {
    /// The buckets of all times.
    pub layout: Layout,
    /// What was counted up to the end of the increment, and up to the end of each one after it. If bounds are gone, up to the ends of
    /// all of the latest increments, so that all of them have the same buckets.
    pub sums: Vec<(u64, Exponential)>,
    /// Bounds in ascending order whose buckets there were before, but not any more: it is not known how many values of the increment
    /// they have. They are gone at all times of `sums`.
    pub gone: Vec<f64>,
    /// The sum of all values was known before, but is not any more: the increment does not say what its values add up to.
    pub is_sum_gone: bool,
}

impl ReadOut {
    /// Upper bound on the series that a histogram has at one time, with those that end then: three lists of bounds, and the others.
    pub const SERIES_MAX: usize = 3 * (BUCKETS_MAX + 2) + 3;
}

impl ExponentialSum {
    /// Memory of what all increments add up to, with the newest one; and of the other increments.
    pub fn heap_bytes(&self) -> (usize, usize) {
        // a shared value has two counters
        let bytes = |one: &Exponential| size_of::<Exponential>() + one.heap_bytes() + 16;
        let entry = size_of::<(u64, Arc<Exponential>)>();
        let of = |(_, one): &(u64, Arc<Exponential>)| entry + bytes(one);
        let Some((newest, others)) = self.latest.split_last() else { return (bytes(&self.base), 0) };
        (size_of::<Self>() + bytes(&self.base) + of(newest), others.iter().map(of).sum())
    }

    /// Adds an increment. There must be none with this end.
    pub fn add(&mut self, end_ns: u64, increment: Arc<Exponential>) {
        let at = self.latest.partition_point(|(other_ns, _)| *other_ns < end_ns);
        self.latest.reserve_exact(1);
        self.latest.insert(at, (end_ns, increment));
    }

    /// True unless another increment with this end was added.
    pub fn is_repeated(&self, end_ns: u64, increment: &Exponential) -> bool {
        let known = self.latest.iter().find(|(known_ns, _)| *known_ns == end_ns);
        known.is_none_or(|(_, known)| known.is_like(increment))
    }

    /// True if the sum of all values, at some time, would be too large for a double with this increment.
    pub fn overflows(&self, end_ns: u64, increment: &Exponential) -> bool {
        let others =
            self.latest.iter().filter(|(known_ns, _)| *known_ns != end_ns).map(|(_, known)| &**known);
        let sums = [&*self.base, increment].into_iter().chain(others).map(|one| one.sum.unwrap_or(0.0).abs());
        !sums.sum::<f64>().is_finite()
    }

    /// Keeps only those increments by themselves that end after this time, and the newest one.
    pub fn close(&mut self, end_ns: u64) {
        let Some((_, others)) = self.latest.split_last() else { return };
        let closed = others.iter().take_while(|(other_ns, _)| *other_ns <= end_ns).count();
        for (_, increment) in self.latest.drain(..closed) {
            self.base = Arc::new(self.base.plus(&increment));
        }
        self.latest.shrink_to_fit();
    }

    /// What the series must say after an increment was added that ends at `end_ns`.
    pub fn read_out(&self, end_ns: u64) -> ReadOut {
        let mut sums: Vec<(u64, Exponential)> = Vec::with_capacity(self.latest.len());
        let mut without = None;
        for (end, increment) in &self.latest {
            let before = sums.last().map_or(&*self.base, |(_, sum)| sum);
            if *end == end_ns {
                without = Some(before.clone());
            } else if let Some(without) = &mut without {
                *without = without.plus(increment);
            }
            let sum = before.plus(increment);
            sums.push((*end, sum));
        }
        let total = sums.last().map_or(&*self.base, |(_, sum)| sum);
        let (layout, scale, zero_threshold) = (total.layout(), total.scale, total.zero_threshold);
        let bounds = layout.bounds();
        // what the base has, too: the increment that has changed it may not have been read out
        let before = [without.as_ref().unwrap_or(total), &*self.base];
        let has_sum = |before: &&Exponential| before.sum.is_some() && before.count > 0;
        let is_sum_gone = total.sum.is_none() && before.iter().any(has_sum);
        let mut gone: Vec<f64> = before.iter().flat_map(|before| before.layout().bounds()).collect();
        gone.sort_unstable_by(f64::total_cmp);
        gone.dedup();
        gone.retain(|bound| bounds.binary_search_by(|other| other.total_cmp(bound)).is_err());
        sums.retain(|(end, _)| *end >= end_ns || !gone.is_empty());
        sums.iter_mut().for_each(|(_, sum)| *sum = sum.at(scale, zero_threshold));
        ReadOut { layout, sums, gone, is_sum_gone }
    }
}
