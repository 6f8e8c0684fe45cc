//! The values of an interval of which a quantile is wanted.
//!
//! Values are kept in segments, so that adding one never moves many. Segments that are full never change, so an interval
//! of very many values is computed from a snapshot, while others add values.

use std::sync::Arc;

/// Number of values in a segment. A quantile of this many is computed in about the time for which a lock may be held.
const SEGMENT: usize = 4096;

const SEGMENT_BYTES: usize = SEGMENT * size_of::<f64>();

/// Memory of a full segment besides its values: its counters, and its places in the list of segments, which may be half
/// full, and in a snapshot.
const SHARED_BYTES: usize = 40 + 3 * size_of::<Arc<Vec<f64>>>();

/// Values for which there is room at first.
pub(super) const FIRST_VALUES: usize = 4;

/// Bits of a value that are decided in one pass over all values.
const PASS_BITS: u32 = 11;

#[derive(Debug, Default)]
pub(super) struct Samples {
    full: Vec<Arc<Vec<f64>>>,
    open: Vec<f64>,
}

/// The values of an interval that has too many for a quantile to be computed under a lock. Full segments are shared, not copied.
#[derive(Debug)]
pub(super) struct Snapshot {
    quantile: f64,
    full: Vec<Arc<Vec<f64>>>,
    open: Vec<f64>,
}

/// The value of an interval, or what is needed to compute it.
#[derive(Debug)]
pub(super) enum Outcome {
    Is(f64),
    Of(Snapshot),
}

impl Samples {
    pub(super) const fn count(&self) -> u64 {
        (self.full.len() * SEGMENT + self.open.len()) as u64
    }

    /// Memory of the values, and of a snapshot of them.
    pub(super) const fn heap_bytes(&self) -> usize {
        let full = self.full.len() * (SEGMENT_BYTES + SHARED_BYTES);
        self.open.capacity() * size_of::<f64>() + full + if self.full.is_empty() { 0 } else { SEGMENT_BYTES }
    }

    /// Adds a value. `reserve` is called with the bytes that are needed, before they are allocated.
    pub(super) fn add<E>(
        &mut self,
        value: f64,
        reserve: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.open.len() == SEGMENT {
            // for the segment that begins, the one that is shared from now on, and the copy of a snapshot
            let copy_bytes = if self.full.is_empty() { SEGMENT_BYTES } else { 0 };
            reserve(SEGMENT_BYTES + SHARED_BYTES + copy_bytes)?;
            self.full.push(Arc::new(std::mem::replace(&mut self.open, Vec::with_capacity(SEGMENT))));
        } else if self.open.len() == self.open.capacity() {
            let more = self.open.capacity().max(FIRST_VALUES);
            reserve(more * size_of::<f64>())?;
            self.open.reserve_exact(more);
        }
        self.open.push(value);
        Ok(())
    }

    /// Computes a quantile if there are few values, and otherwise takes a snapshot. There must be at least one value.
    pub(super) fn quantile(&mut self, quantile: f64) -> Outcome {
        if !self.full.is_empty() {
            return Outcome::Of(Snapshot { quantile, full: self.full.clone(), open: self.open.clone() });
        }
        let place = Place::of(quantile, self.count());
        // linear time, unlike a sort
        let (smaller, value, _) = self.open.select_nth_unstable_by(place.right as usize, f64::total_cmp);
        let before = || smaller.iter().copied().max_by(f64::total_cmp);
        Outcome::Is(place.between(before, *value))
    }
}

impl Outcome {
    pub(super) fn value(self) -> f64 {
        match self {
            Self::Is(value) => value,
            Self::Of(snapshot) => snapshot.value(),
        }
    }
}

impl Snapshot {
    /// Takes about six passes over all values, and little memory.
    fn value(self) -> f64 {
        let values = || self.full.iter().map(|segment| &**segment).chain([&self.open]).flatten().copied();
        let count = (self.full.len() * SEGMENT + self.open.len()) as u64;
        let place = Place::of(self.quantile, count);
        let value = nth(values, place.right);
        let before = || {
            let (mut smaller, mut largest) = (0, None::<f64>);
            for other in values().filter(|other| other.total_cmp(&value).is_lt()) {
                smaller += 1;
                largest = Some(largest.map_or(other, |largest| {
                    if other.total_cmp(&largest).is_gt() { other } else { largest }
                }));
            }
            // otherwise, the one before has the same value
            largest.filter(|_| smaller == place.right)
        };
        place.between(before, value)
    }
}

/// Where a quantile is among the sorted values.
#[derive(Debug, Clone, Copy)]
struct Place {
    rank: f64,
    /// The rank, rounded up: index of the upper of the two values that are interpolated.
    right: u64,
}

impl Place {
    fn of(quantile: f64, count: u64) -> Self {
        let rank = quantile * (count - 1) as f64;
        Self { rank, right: rank.ceil() as u64 }
    }

    /// Interpolates between the value at `right` and the one before. `before` gives that one, or `None` if both are equal.
    fn between(self, before: impl FnOnce() -> Option<f64>, value: f64) -> f64 {
        let (left, right) = (self.rank.floor(), self.right as f64);
        if left == right {
            return value;
        }
        before().unwrap_or(value) * (right - self.rank) + value * (self.rank - left)
    }
}

/// The value that is at the place `rank` when all are sorted. In each pass, the values are counted by their next bits.
fn nth<I: Iterator<Item = f64>>(values: impl Fn() -> I, mut rank: u64) -> f64 {
    let (mut decided, mut bits) = (0, 0);
    while decided < u64::BITS {
        let width = PASS_BITS.min(u64::BITS - decided);
        let shift = u64::BITS - decided - width;
        let mut counts = [0_u64; 1 << PASS_BITS];
        for ordinal in values().map(ordinal) {
            // the decided bits are at the top, and those of all candidates are equal
            if (ordinal ^ bits).leading_zeros() >= decided {
                counts[(ordinal >> shift) as usize & ((1 << width) - 1)] += 1;
            }
        }
        let (mut next, mut before) = (0, 0);
        while before + counts[next] <= rank {
            before += counts[next];
            next += 1;
        }
        rank -= before;
        bits |= (next as u64) << shift;
        decided += width;
    }
    f64::from_bits(if bits >> 63 == 1 { bits ^ 1 << 63 } else { !bits })
}

/// A number in the order of [`f64::total_cmp`].
const fn ordinal(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        let mut reserved = 0;
        for value in values {
            let reserve = |bytes| {
                reserved += bytes;
                Ok::<_, ()>(())
            };
            samples.add(*value, reserve).unwrap();
            assert!(samples.heap_bytes() <= reserved, "{} of {reserved}", samples.heap_bytes());
        }
        assert_eq!(samples.count(), values.len() as u64);
        assert!(reserved <= samples.heap_bytes() + FIRST_VALUES * size_of::<f64>());
        samples
    }

    /// Beside a sort.
    #[test]
    fn quantiles_of_few_and_many_values_are_those_of_the_sorted_ones() {
        let mut rng = Rng::announced();
        for count in [1, 2, 3, 100, SEGMENT, SEGMENT + 1, SEGMENT + 2, 3 * SEGMENT, 3 * SEGMENT + 77] {
            // few distinct values, numbers of all sizes, and numbers that differ in their last bits
            for kind in 0..3 {
                let value = |rng: &mut Rng| match kind {
                    0 => rng.below(5) as f64 - 2.0,
                    1 => loop {
                        let value = f64::from_bits(rng.next_u64());
                        if !value.is_nan() {
                            break value;
                        }
                    },
                    _ => f64::from_bits(1.0_f64.to_bits() + rng.below(1 << 12)),
                };
                let values: Vec<f64> = (0..count).map(|_| value(&mut rng)).collect();
                let mut sorted = values.clone();
                sorted.sort_by(f64::total_cmp);
                let mut samples = samples(&values);
                for quantile in [0.0, 0.5, 0.75, 0.9, 0.999, 1.0] {
                    let rank = quantile * (count - 1) as f64;
                    let [left, right] =
                        [rank.floor(), rank.ceil()].map(|place| (place, sorted[place as usize]));
                    let expected = match left.0 == right.0 {
                        true => right.1,
                        false => left.1 * (right.0 - rank) + right.1 * (rank - left.0),
                    };
                    let found = samples.quantile(quantile);
                    assert_eq!(matches!(found, Outcome::Of(_)), count > SEGMENT);
                    assert_eq!(found.value().to_bits(), expected.to_bits(), "{quantile} of {count}, {kind}");
                }
            }
        }
    }

    #[test]
    fn a_snapshot_does_not_change() {
        let values: Vec<f64> = (0..2 * SEGMENT + 5).map(|i| i as f64).collect();
        let mut samples = samples(&values);
        let before = samples.quantile(1.0);
        for _ in 0..2 * SEGMENT {
            samples.add(1e9, |_| Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(before.value(), (2 * SEGMENT + 4) as f64);
        assert_eq!(samples.quantile(1.0).value(), 1e9);
    }

    #[test]
    fn without_memory_nothing_is_added() {
        let values: Vec<f64> = (0..SEGMENT).map(|i| i as f64).collect();
        let mut samples = samples(&values);
        assert_eq!(samples.add(1.0, |_| Err(())), Err(()));
        assert_eq!((samples.count(), samples.open.capacity()), (SEGMENT as u64, SEGMENT));
    }
}
