//! Exponential histograms: their buckets, and the sums of several of them.
//!
//! A bucket has the values above `2^(index · 2^-scale)`, up to the same with `index + 1`. The bounds at a scale are also bounds
//! at all higher scales, so histograms are added at the lower of their scales, and each count falls into exactly one bucket:
//!
//! ```text
//!   scale 2   │  │  │  │  │  │  │  │  │     two counts that are side by side are added
//!   scale 1   │     │     │     │     │
//! ```
//!
//! Values near zero are counted by themselves. If two histograms differ in what is near, the wider range counts. Should it end
//! in the middle of a bucket of the other one, the end of this bucket counts, because it is not known where its values are.
//!
//! So a sum never says more than all of its parts know, and what it says is exact.

mod sum;
#[cfg(test)]
mod tests;

pub use sum::{ExponentialSum, ReadOut};

use std::ops::RangeInclusive;

/// Limit on the buckets of a histogram, of both signs together. SDKs have the same limit by default. With more buckets, the
/// scale becomes lower.
pub const BUCKETS_MAX: usize = 160;

/// The greatest scale whose bounds can be computed, which has eight bounds per power of two.
pub const SCALE_MAX: i32 = 3;

/// Indexes have 33 bits, so after this shift only their sign is left.
const SHIFT_MAX: u32 = 40;

/// `2^(n/8)`, rounded to the nearest double.
const EIGHTHS: [f64; 8] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

const _: () = assert!(1 << SCALE_MAX == EIGHTHS.len());

/// The buckets of one sign.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Side {
    /// Index of the first bucket.
    first: i64,
    /// At most [`BUCKETS_MAX`]. Neither the first nor the last is 0.
    counts: Box<[u64]>,
}

/// What was counted by a histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Exponential {
    /// At most [`SCALE_MAX`].
    pub scale: i64,
    /// Values whose absolute value is not above this count as zero. It is neither negative nor NaN.
    pub zero_threshold: f64,
    pub zero: u64,
    pub positive: Side,
    pub negative: Side,
    /// Number of all values. Not less than the sum of all buckets.
    pub count: u64,
    /// Sum of all values, if all parts have said it.
    pub sum: Option<f64>,
}

/// Which classic buckets a histogram has.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub scale: i64,
    pub zero_threshold: f64,
    /// Whether there is a bucket for values near zero.
    pub has_zero: bool,
    pub positive: Option<RangeInclusive<i64>>,
    pub negative: Option<RangeInclusive<i64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    Negative,
    Positive,
}

impl Side {
    /// Empty buckets at both ends are left out.
    pub fn new(first: i64, counts: &[u64]) -> Self {
        let Some(start) = counts.iter().position(|count| *count > 0) else { return Self::default() };
        let end = counts.iter().rposition(|count| *count > 0).map_or(start, |last| last + 1);
        Self { first: first + start as i64, counts: counts[start..end].into() }
    }

    pub const fn first(&self) -> i64 {
        self.first
    }

    pub const fn counts(&self) -> &[u64] {
        &self.counts
    }

    pub fn range(&self) -> Option<RangeInclusive<i64>> {
        let last = self.counts.len().checked_sub(1)?;
        Some(self.first..=self.first + last as i64)
    }

    pub fn count(&self, index: i64) -> u64 {
        let at = usize::try_from(index - self.first).ok();
        at.and_then(|at| self.counts.get(at)).copied().unwrap_or(0)
    }

    /// Index and count of each bucket that is not empty.
    fn buckets(&self) -> impl Iterator<Item = (i64, u64)> {
        self.counts
            .iter()
            .zip(self.first..)
            .filter(|(count, _)| **count > 0)
            .map(|(count, index)| (index, *count))
    }

    fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl Default for Exponential {
    fn default() -> Self {
        let (positive, negative) = (Side::default(), Side::default());
        Self {
            scale: SCALE_MAX.into(),
            zero_threshold: 0.0,
            zero: 0,
            positive,
            negative,
            count: 0,
            sum: Some(0.0),
        }
    }
}

impl Exponential {
    /// Memory that it takes besides its own size.
    pub fn heap_bytes(&self) -> usize {
        (self.positive.counts.len() + self.negative.counts.len()) * size_of::<u64>()
    }

    /// Number of values that are in buckets.
    pub fn in_buckets(&self) -> u64 {
        self.zero.saturating_add(self.positive.total()).saturating_add(self.negative.total())
    }

    pub fn layout(&self) -> Layout {
        Layout {
            scale: self.scale,
            zero_threshold: self.zero_threshold,
            has_zero: self.zero > 0 || self.negative.range().is_some(),
            positive: self.positive.range(),
            negative: self.negative.range(),
        }
    }

    /// Calls `bucket` with each bound of the layout, in ascending order, and the number of values between it and the one before.
    /// The layout must be that of a sum of which this is a part, and have the same scale and threshold.
    pub fn each_bucket<E>(
        &self,
        layout: &Layout,
        bucket: impl FnMut(f64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let count_of = |sign, index| match sign {
            Sign::Negative => self.negative.count(index),
            Sign::Positive => self.positive.count(index),
        };
        layout.each_bucket(self.zero, count_of, bucket)
    }

    /// The same counts, at a scale that is not higher, and with a threshold that is not lower.
    fn at(&self, scale: i64, zero_threshold: f64) -> Self {
        let shift = (self.scale - scale).clamp(0, SHIFT_MAX.into()) as u32;
        let mut zero = self.zero;
        let mut side = |side: &Side| {
            let (mut first, mut counts) = (0, Vec::new());
            for (index, count) in side.buckets() {
                if bound(index + 1, self.scale) <= zero_threshold {
                    zero = zero.saturating_add(count);
                    continue;
                }
                let index = index >> shift;
                if counts.is_empty() {
                    first = index;
                }
                put(&mut counts, (index - first) as usize, count);
            }
            Side { first, counts: counts.into() }
        };
        let (positive, negative) = (side(&self.positive), side(&self.negative));
        Self { scale, zero_threshold, zero, positive, negative, count: self.count, sum: self.sum }
    }

    /// Adds two histograms.
    pub fn plus(&self, other: &Self) -> Self {
        let threshold = common_threshold([self, other]);
        let scale = self.scale.min(other.scale);
        let (a, b) = (self.at(scale, threshold), other.at(scale, threshold));
        let ranges = [(&a.positive, &b.positive), (&a.negative, &b.negative)].map(|(a, b)| union(a, b));
        let mut shift = 0;
        // at the highest shift, there are at most two buckets of each sign
        while ranges.iter().map(|range| buckets_in(range.as_ref(), shift)).sum::<u64>() > BUCKETS_MAX as u64 {
            shift += 1;
        }
        let side = |range: &Option<RangeInclusive<i64>>, a: &Side, b: &Side| {
            let Some(range) = range else { return Side::default() };
            let first = range.start() >> shift;
            let mut counts = vec![0; buckets_in(Some(range), shift) as usize];
            for (index, count) in a.buckets().chain(b.buckets()) {
                put(&mut counts, ((index >> shift) - first) as usize, count);
            }
            Side { first, counts: counts.into() }
        };
        Self {
            scale: scale - i64::from(shift),
            zero_threshold: threshold,
            zero: a.zero.saturating_add(b.zero),
            positive: side(&ranges[0], &a.positive, &b.positive),
            negative: side(&ranges[1], &a.negative, &b.negative),
            count: self.count.saturating_add(other.count),
            sum: self.sum.zip(other.sum).map(|(a, b)| a + b),
        }
    }

    /// True if both say the same, as far as both know it.
    fn is_like(&self, other: &Self) -> bool {
        let threshold = common_threshold([self, other]);
        let at = |one: &Self| one.at(self.scale.min(other.scale), threshold);
        let (a, b) = (at(self), at(other));
        let bits = |sum: Option<f64>| sum.map(f64::to_bits);
        (a.count, a.zero, &a.positive, &a.negative, bits(a.sum))
            == (b.count, b.zero, &b.positive, &b.negative, bits(b.sum))
    }

    /// Upper bounds of the buckets with values of which it is not known whether they are up to this threshold.
    fn ends_around(&self, threshold: f64) -> impl Iterator<Item = f64> + '_ {
        let scale = self.scale;
        let indexes = self.positive.buckets().chain(self.negative.buckets()).map(|(index, _)| index);
        let ranges = indexes.map(move |index| (bound(index, scale), bound(index + 1, scale)));
        ranges.filter(move |(from, to)| *from < threshold && threshold < *to).map(|(_, to)| to)
    }
}

fn put(counts: &mut Vec<u64>, at: usize, count: u64) {
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    counts[at] = counts[at].saturating_add(count);
}

/// The least threshold that both know, and that is not below that of either.
fn common_threshold(both: [&Exponential; 2]) -> f64 {
    let mut threshold = both[0].zero_threshold.max(both[1].zero_threshold);
    loop {
        let others = both.into_iter().filter(|one| one.zero_threshold < threshold);
        let raised = others.flat_map(|one| one.ends_around(threshold)).fold(threshold, f64::max);
        if raised <= threshold {
            return threshold;
        }
        threshold = raised;
    }
}

fn union(a: &Side, b: &Side) -> Option<RangeInclusive<i64>> {
    match (a.range(), b.range()) {
        (Some(a), Some(b)) => Some(*a.start().min(b.start())..=*a.end().max(b.end())),
        (a, b) => a.or(b),
    }
}

/// Number of buckets, if indexes lose this many bits.
fn buckets_in(range: Option<&RangeInclusive<i64>>, shift: u32) -> u64 {
    range.map_or(0, |range| (range.end() >> shift).abs_diff(range.start() >> shift) + 1)
}

/// Chooses the scale of the bounds: `wanted`, or a lower one if the sender's scale is lower, or if there would be too many
/// buckets. `ranges` are their indexes at the scale `sent`. Also returns by how many bits indexes have to be shifted.
pub fn scale_for(wanted: i32, sent: i32, ranges: [&Option<RangeInclusive<i64>>; 2]) -> (i64, u32) {
    let mut scale = i64::from(wanted.min(sent));
    loop {
        let shift = (i64::from(sent) - scale).clamp(0, i64::from(SHIFT_MAX)) as u32;
        // at the highest shift, there are at most two buckets of each sign
        if ranges.into_iter().map(|range| buckets_in(range.as_ref(), shift)).sum::<u64>()
            <= BUCKETS_MAX as u64
        {
            return (scale, shift);
        }
        scale -= 1;
    }
}

impl Layout {
    /// Calls `bucket` with each bound, in ascending order, and the number of values between it and the one before. `zero` is the
    /// number of values near zero, and `count_of` returns that of each other bucket.
    ///
    /// There is one bound below the positive buckets. Bounds may be infinite, and if the sender's buckets overlap the range
    /// of zero, a bound may be less than the one before, or equal to it.
    pub fn each_bucket<E>(
        &self,
        zero: u64,
        count_of: impl Fn(Sign, i64) -> u64,
        mut bucket: impl FnMut(f64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last = f64::NEG_INFINITY;
        for index in self.negative.clone().into_iter().flatten().rev() {
            // values near zero are not in the bucket, even if they are in its range; subtracted, so that there is no negative zero
            last = 0.0 - bound(index, self.scale).max(self.zero_threshold);
            bucket(last, count_of(Sign::Negative, index))?;
        }
        if self.has_zero {
            last = self.zero_threshold.max(last);
            bucket(self.zero_threshold, zero)?;
        }
        let Some(positive) = self.positive.clone() else { return Ok(()) };
        let lowest = bound(*positive.start(), self.scale);
        if lowest > last {
            bucket(lowest, 0)?;
        }
        for index in positive {
            bucket(bound(index + 1, self.scale), count_of(Sign::Positive, index))?;
        }
        Ok(())
    }

    /// The finite bounds, in ascending order.
    fn bounds(&self) -> Vec<f64> {
        let mut bounds = Vec::new();
        let mut push = |bound: f64, _| {
            if bound.is_finite() && bounds.last().is_none_or(|last| *last < bound) {
                bounds.push(bound);
            }
            Ok::<_, std::convert::Infallible>(())
        };
        let Ok(()) = self.each_bucket(0, |_, _| 0, &mut push);
        bounds
    }
}

/// The lower bound of the bucket with this index: `2^(index / 2^scale)`. It is infinite if it is beyond all doubles.
pub fn bound(index: i64, scale: i64) -> f64 {
    if scale > 0 {
        let eighth = (index << (i64::from(SCALE_MAX) - scale)) as usize % EIGHTHS.len();
        return power_of_two(index >> scale) * EIGHTHS[eighth];
    }
    // no double is beyond 2^±4096
    let shift = scale.unsigned_abs().min(12);
    power_of_two(index.clamp(-4096, 4096) << shift)
}

fn power_of_two(exponent: i64) -> f64 {
    match exponent {
        1024.. => f64::INFINITY,
        -1022..1024 => f64::from_bits(((exponent + 1023) as u64) << 52),
        -1074..-1022 => f64::from_bits(1 << (exponent + 1074)),
        _ => 0.0,
    }
}
