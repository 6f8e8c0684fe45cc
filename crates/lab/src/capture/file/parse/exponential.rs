//! Exponential histograms as classic ones, by the rule that Floodmark has by default: each power of two has two bounds.
//!
//! ```text
//!   scale 2   │  │  │  │  │  │  │  │  │     two counts that are side by side are added
//!   scale 1   │     │     │     │     │
//! ```

use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// The greatest scale of the bounds.
const SCALE: i64 = 1;

/// Limit on the buckets of both signs together. If there were more, the scale is lowered.
const BUCKETS_MAX: u64 = 160;

/// Indexes have 33 bits, so after this shift only their sign is left.
const SHIFT_MAX: i64 = 40;

/// Limit on the buckets that a sign may be sent with. A count may take one byte of a request, and takes eight here.
const COUNTS_MAX: usize = 64 << 10;

/// What a point says about its buckets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Exponential {
    pub(super) scale: i32,
    pub(super) zero_count: u64,
    pub(super) zero_threshold: f64,
    pub(super) positive: Sign,
    pub(super) negative: Sign,
}

/// The buckets of one sign.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sign {
    /// Index of the first bucket.
    pub(super) offset: i32,
    pub(super) counts: Vec<u64>,
}

impl Sign {
    /// Adds the count of the next bucket.
    pub(super) fn push(&mut self, count: u64) -> Result<()> {
        ensure!(self.counts.len() < COUNTS_MAX, "a histogram has more than {COUNTS_MAX} buckets of a sign");
        self.counts.push(count);
        Ok(())
    }

    /// Index and count of each bucket that is not empty.
    fn buckets(&self) -> impl Iterator<Item = (i64, u64)> {
        let indexes = i64::from(self.offset)..;
        indexes.zip(self.counts.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// Number of buckets if the last bits of all indexes are left out.
    fn len(&self, shift: i64) -> u64 {
        let mut indexes = self.buckets().map(|(index, _)| index >> shift);
        let Some(first) = indexes.next() else { return 0 };
        indexes.last().unwrap_or(first).abs_diff(first) + 1
    }

    /// The buckets from the first to the last, some of which may be empty.
    fn merged(&self, shift: i64) -> Vec<(i64, u64)> {
        let mut counts = BTreeMap::new();
        for (index, count) in self.buckets() {
            let sum: &mut u64 = counts.entry(index >> shift).or_default();
            *sum = sum.saturating_add(count);
        }
        let (Some((first, _)), Some((last, _))) = (counts.first_key_value(), counts.last_key_value()) else {
            return Vec::new();
        };
        (*first..=*last).map(|index| (index, counts.get(&index).copied().unwrap_or(0))).collect()
    }
}

impl Exponential {
    /// The bounds of classic buckets in ascending order, and how many values are between each of them and the one before.
    /// The last count, of the bucket without a bound, is 0.
    pub(super) fn classic(&self) -> (Vec<f64>, Vec<u64>) {
        let mut scale = SCALE.min(self.scale.into());
        let shift = loop {
            let shift = (i64::from(self.scale) - scale).clamp(0, SHIFT_MAX);
            if self.positive.len(shift) + self.negative.len(shift) <= BUCKETS_MAX {
                break shift;
            }
            scale -= 1;
        };
        let (positive, negative) = (self.positive.merged(shift), self.negative.merged(shift));
        let (mut bounds, mut counts): (Vec<f64>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut push = |bound: f64, count: u64| match bounds.last() {
            // beyond all doubles: the value counts in the last bucket
            _ if !bound.is_finite() => {}
            // the ranges of the buckets overlap, which they should not
            Some(last) if bound <= *last => {
                if let Some(sum) = counts.last_mut() {
                    *sum = sum.saturating_add(count);
                }
            }
            _ => {
                bounds.push(bound);
                counts.push(count);
            }
        };
        for (index, count) in negative.iter().rev() {
            push(0.0 - bound(*index, scale), *count);
        }
        if self.zero_count > 0 || !negative.is_empty() {
            push(self.zero_threshold.max(0.0), self.zero_count);
        }
        if let Some((first, _)) = positive.first() {
            push(bound(*first, scale), 0);
        }
        for (index, count) in &positive {
            push(bound(index + 1, scale), *count);
        }
        counts.push(0);
        (bounds, counts)
    }
}

/// The lower bound of the bucket with this index: `2^(index / 2^scale)`. It is infinite if it is beyond all doubles.
fn bound(index: i64, scale: i64) -> f64 {
    let power_of_two = |exponent: i64| 2f64.powi(exponent.clamp(-4096, 4096) as i32);
    match scale {
        1.. => power_of_two(index >> 1) * if index & 1 == 0 { 1.0 } else { std::f64::consts::SQRT_2 },
        // no double is beyond 2^±4096
        _ => power_of_two(index.clamp(-4096, 4096) << scale.unsigned_abs().min(12)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(offset: i32, counts: &[u64]) -> Sign {
        Sign { offset, counts: counts.to_vec() }
    }

    #[test]
    fn counts_are_between_bounds_of_two_a_power() {
        let root = std::f64::consts::SQRT_2;
        let point = Exponential { scale: 1, positive: sign(0, &[2, 0, 5]), ..Exponential::default() };
        assert_eq!(point.classic(), (vec![1.0, root, 2.0, 2.0 * root], vec![0, 2, 0, 5, 0]));
        // four bounds a power: two counts are added
        let point = Exponential { scale: 2, positive: sign(-1, &[1, 2, 3]), ..Exponential::default() };
        assert_eq!(point.classic(), (vec![0.5 * root, 1.0, root], vec![0, 1, 5, 0]));
        let point = Exponential {
            scale: 0,
            zero_count: 4,
            zero_threshold: 0.25,
            positive: sign(0, &[7]),
            negative: sign(1, &[9]),
        };
        assert_eq!(point.classic(), (vec![-2.0, 0.25, 1.0, 2.0], vec![9, 4, 0, 7, 0]));
        assert_eq!(Exponential::default().classic(), (vec![], vec![0]));
    }

    #[test]
    fn there_are_few_buckets_whatever_is_sent() {
        for (scale, positive, negative) in [
            (20, sign(i32::MIN, &[1; 5_000]), sign(i32::MAX, &[1; 5_000])),
            (i32::MAX, sign(0, &[1; 400]), sign(-3, &[u64::MAX; 4])),
            (i32::MIN, sign(-1, &[1, 2]), sign(0, &[3])),
            (3, sign(0, &[1; 3_000]), sign(0, &[0; 3_000])),
        ] {
            let point = Exponential { scale, zero_count: 1, zero_threshold: 0.0, positive, negative };
            let (bounds, counts) = point.classic();
            assert!(bounds.len() <= 164 && counts.len() == bounds.len() + 1, "{}", bounds.len());
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{bounds:?}");
        }
    }
}
