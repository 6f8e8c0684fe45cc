//! Points of exponential histograms. They become classic histograms, because native ones cannot be stored yet.
//!
//! An exponential histogram has buckets between powers of `2^(2^-scale)`, and senders lower the scale as the range of the
//! values grows. Series of buckets must have bounds that do not change. So the bounds are those of a fixed scale, or of a
//! lower one if the sender's scale is lower or if there would be too many buckets. The bounds at a scale are also bounds at
//! all higher scales, so each count falls into exactly one bucket:
//!
//! ```text
//!   scale 2   │  │  │  │  │  │  │  │  │     two counts that are side by side are added
//!   scale 1   │     │     │     │     │
//! ```
//!
//! There is a bucket for each pair of neighboring bounds from the smallest to the largest value, and one more bound below.
//! Values near zero are in a bucket whose bound is `zero_threshold`.

use super::Stop;
use super::fields::{buckets, exponential};
use super::histogram::Numbers;
use super::walk::{Metric, Moment, Walk};
use crate::wire::{Reader, WireError};
use std::ops::RangeInclusive;
use stdx::budget::IncrementalReservation;
use stdx::varint::unzigzag;

/// Limit on the buckets of a point, of both signs together. SDKs have the same limit by default.
const BUCKETS_MAX: usize = 160;

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

/// The greatest scale whose bounds can be computed, which has eight bounds per power of two.
const SCALE_MAX: i32 = super::Translation::SCALE_MAX;

const _: () = assert!(1 << SCALE_MAX == EIGHTHS.len());

/// The buckets of one sign, as they were sent.
#[derive(Debug, Clone, Default)]
struct Sent {
    /// Index of the first bucket.
    offset: i64,
    /// The counts, as varints.
    counts: Numbers,
}

impl Sent {
    fn read(
        mut fields: Reader<'_>,
        message: &[u8],
        pieces: &mut Vec<u8>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Self, Stop> {
        let mut sent = Self::default();
        while let Some(tag) = fields.tag()? {
            match tag {
                // only the low 32 bits count, as in protobuf
                buckets::OFFSET => sent.offset = unzigzag(u64::from(fields.varint()? as u32)),
                buckets::COUNTS => {
                    let packed = fields.message()?;
                    check_varints(packed)?;
                    sent.counts.push(packed.unread(), message, pieces, reservation)?;
                }
                buckets::COUNT => {
                    let start = fields.at();
                    fields.varint()?;
                    sent.counts.push(start..fields.at(), message, pieces, reservation)?;
                }
                other => fields.skip_unknown(other, buckets::KNOWN)?,
            }
        }
        Ok(sent)
    }

    /// Calls `bucket` with index and count of each bucket that is not empty, in the order of the indexes.
    fn each(&self, message: &[u8], pieces: &[u8], mut bucket: impl FnMut(i64, u64)) {
        let mut counts = Reader::new(self.counts.bytes(message, pieces));
        let mut index = self.offset;
        while !counts.is_empty() {
            let count = counts.varint().expect("BUG: the counts of buckets were not checked");
            if count > 0 {
                bucket(index, count);
            }
            index += 1;
        }
    }

    /// The indexes of the first and the last bucket that is not empty.
    fn range(&self, message: &[u8], pieces: &[u8]) -> Option<RangeInclusive<i64>> {
        let mut range: Option<(i64, i64)> = None;
        self.each(message, pieces, |index, _| {
            let (first, _) = range.unwrap_or((index, index));
            range = Some((first, index));
        });
        range.map(|(first, last)| first..=last)
    }
}

fn check_varints(mut packed: Reader<'_>) -> Result<(), WireError> {
    while !packed.is_empty() {
        packed.varint()?;
    }
    Ok(())
}

/// The buckets of one sign, at the scale of the bounds.
#[derive(Debug)]
struct Merged {
    /// Index of the first bucket.
    first: i64,
    len: usize,
    counts: [u64; BUCKETS_MAX],
}

impl Merged {
    /// Merges buckets whose indexes are equal without their last `shift` bits.
    fn of(
        sent: &Sent,
        range: Option<RangeInclusive<i64>>,
        shift: u32,
        message: &[u8],
        pieces: &[u8],
    ) -> Self {
        let mut merged = Self { first: 0, len: 0, counts: [0; BUCKETS_MAX] };
        let Some(range) = range else { return merged };
        merged.first = range.start() >> shift;
        merged.len = (range.end() >> shift).abs_diff(merged.first) as usize + 1;
        sent.each(message, pieces, |index, count| {
            let sum = &mut merged.counts[(index >> shift).abs_diff(merged.first) as usize];
            *sum = sum.saturating_add(count);
        });
        merged
    }

    /// Index and count of each bucket.
    fn buckets(&self) -> impl DoubleEndedIterator<Item = (i64, u64)> {
        (0..self.len).map(|number| (self.first + number as i64, self.counts[number]))
    }
}

/// The bounds of classic buckets in ascending order, and how many values do not exceed each of them.
struct Classic<'a, 'p> {
    /// The bounds, as doubles of 8 bytes.
    bounds: &'a mut Vec<u8>,
    counts: &'a mut Vec<f64>,
    moment: Moment,
    below: u64,
    last: f64,
    reservation: &'a mut IncrementalReservation<'p>,
}

impl Classic<'_, '_> {
    /// Adds `count` values that are at most `bound` and above the bound before it.
    fn push(&mut self, bound: f64, count: u64) -> Result<(), Stop> {
        self.below = self.below.saturating_add(count);
        if !bound.is_finite() {
            return Ok(()); // the value counts in the next bucket, or in the last one
        }
        if bound <= self.last && !self.counts.is_empty() {
            // the ranges of the buckets overlap, which they should not
            self.counts.pop();
        } else {
            self.last = bound;
            self.reservation.extend(self.bounds, &bound.to_le_bytes())?;
        }
        Ok(self.reservation.push(self.counts, self.moment.value(self.below as f64))?)
    }
}

/// What a point says about its buckets.
#[derive(Debug, Clone, Default)]
struct Buckets {
    scale: i32,
    zero_count: u64,
    zero_threshold: f64,
    positive: Sent,
    negative: Sent,
}

impl<'a> Walk<'a, '_> {
    pub(super) fn exponential(&mut self, whole: Reader<'a>, metric: &Metric) -> Result<(), Stop> {
        let (mut time_ns, mut flags, mut count, mut sum, mut has_exemplars) = (0, 0, 0, None, false);
        let mut found = Buckets::default();
        let mut point = whole;
        self.labels.attributes.clear();
        while let Some(tag) = point.tag()? {
            match tag {
                exponential::ATTRIBUTE => self.labels.attribute(point.message()?, self.reservation)?,
                exponential::TIME => time_ns = point.fixed64()?,
                exponential::COUNT => count = point.fixed64()?,
                exponential::SUM => sum = Some(point.double()?),
                exponential::SCALE => found.scale = unzigzag(u64::from(point.varint()? as u32)) as i32,
                exponential::ZERO_COUNT => found.zero_count = point.fixed64()?,
                exponential::ZERO_THRESHOLD => found.zero_threshold = point.double()?,
                exponential::POSITIVE => found.positive = self.sent(0, point.message()?)?,
                exponential::NEGATIVE => found.negative = self.sent(1, point.message()?)?,
                exponential::FLAGS => flags = point.varint()?,
                exponential::EXEMPLAR => {
                    has_exemplars = true;
                    point.len_field()?;
                }
                exponential::START | exponential::MIN | exponential::MAX => _ = point.fixed64()?,
                other => point.skip_unknown(other, exponential::KNOWN)?,
            }
        }
        let moment = self.moment(time_ns, flags, metric)?;
        self.prepare()?;
        self.sum_and_count(metric, whole.rest().len(), moment, sum, count)?;
        self.put_classic(&found, moment)?;
        self.counts.push(moment.value(count as f64));
        self.bounds.select(self.upper_bounds, self.reservation)?;
        self.buckets(metric, whole.rest().len(), moment)?;
        self.batch.converted_points += 1;
        if has_exemplars {
            self.histogram_exemplars(whole, exponential::EXEMPLAR)?;
        }
        Ok(())
    }

    fn sent(&mut self, number: usize, fields: Reader<'a>) -> Result<Sent, Stop> {
        Sent::read(fields, self.message, &mut self.pieces[number], self.reservation)
    }

    /// Sets `upper_bounds` and `counts` to the classic buckets of a point, without the last one.
    fn put_classic(&mut self, found: &Buckets, moment: Moment) -> Result<(), Stop> {
        let Self { message, pieces, upper_bounds, counts, reservation, translation, .. } = self;
        let [positive_pieces, negative_pieces] = &**pieces;
        let positive_range = found.positive.range(message, positive_pieces);
        let negative_range = found.negative.range(message, negative_pieces);
        let (scale, shift) = scale_for(translation.scale, found.scale, [&positive_range, &negative_range]);
        let positive = Merged::of(&found.positive, positive_range, shift, message, positive_pieces);
        let negative = Merged::of(&found.negative, negative_range, shift, message, negative_pieces);

        upper_bounds.clear();
        counts.clear();
        reservation.room(*counts, BUCKETS_MAX + 3)?;
        let mut classic =
            Classic { bounds: upper_bounds, counts, moment, below: 0, last: f64::NEG_INFINITY, reservation };
        for (index, count) in negative.buckets().rev() {
            // subtracted, so that there is no negative zero
            classic.push(0.0 - bound(index, scale), count)?;
        }
        if found.zero_count > 0 || negative.len > 0 {
            let threshold = if found.zero_threshold > 0.0 { found.zero_threshold } else { 0.0 };
            classic.push(threshold, found.zero_count)?;
        }
        if positive.len > 0 && bound(positive.first, scale) > classic.last {
            classic.push(bound(positive.first, scale), 0)?;
        }
        for (index, count) in positive.buckets() {
            classic.push(bound(index + 1, scale), count)?;
        }
        Ok(())
    }
}

/// Chooses the scale of the bounds: `wanted`, or a lower one if the sender's scale is lower, or if there would be too many
/// buckets. `ranges` are their indexes at the scale `sent`. Also returns by how many bits indexes have to be shifted.
fn scale_for(wanted: i32, sent: i32, ranges: [&Option<RangeInclusive<i64>>; 2]) -> (i64, u32) {
    let mut scale = i64::from(wanted.min(sent));
    loop {
        let shift = (i64::from(sent) - scale).clamp(0, i64::from(SHIFT_MAX)) as u32;
        let count = |range: &Option<RangeInclusive<i64>>| {
            range.as_ref().map_or(0, |range| (range.end() >> shift).abs_diff(range.start() >> shift) + 1)
        };
        // at the highest shift, there are at most two buckets of each sign
        if ranges.into_iter().map(count).sum::<u64>() <= BUCKETS_MAX as u64 {
            return (scale, shift);
        }
        scale -= 1;
    }
}

/// Indexes have 33 bits, so after this shift only their sign is left.
const SHIFT_MAX: u32 = 40;

/// The lower bound of the bucket with this index: `2^(index / 2^scale)`. It is infinite if it is beyond all doubles.
fn bound(index: i64, scale: i64) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    #[test]
    fn bounds_are_powers_of_two() {
        for (index, scale, expected) in [
            (0, 0, 1.0),
            (3, 0, 8.0),
            (-2, 0, 0.25),
            (-2, -1, 0.0625),
            (3, 1, 8.0_f64.sqrt()),
            (-3, 1, 8.0_f64.sqrt().recip()),
            (16, 3, 4.0),
            (-1074, 0, f64::from_bits(1)),
            (-1075, 0, 0.0),
            (1023, 0, 2.0_f64.powi(1023)),
            (1024, 0, f64::INFINITY),
            (1, -11, f64::INFINITY),
            (-1, -11, 0.0),
            (0, i64::from(i32::MIN), 1.0),
            (1, i64::from(i32::MIN), f64::INFINITY),
            (-1, i64::from(i32::MIN), 0.0),
            (i64::from(i32::MAX) + 1, 3, f64::INFINITY),
            (i64::from(i32::MIN), 3, 0.0),
        ] {
            let found = bound(index, scale);
            assert!(
                (found - expected).abs() <= expected * 1e-15 || found == expected,
                "{index} {scale}: {found}"
            );
        }
        for (number, eighth) in EIGHTHS.into_iter().enumerate() {
            assert!((eighth - (number as f64 / 8.0).exp2()).abs() < 3e-16, "{number}");
        }
        let finest = i64::from(SCALE_MAX);
        for scale in 0..=finest {
            let coarse = |index| (bound(index, scale), bound(index << (finest - scale), finest));
            assert!(
                (-100..100).map(coarse).all(|(a, b)| a == b),
                "bounds at scale {scale} are not at all higher ones"
            );
        }
    }

    #[test]
    fn a_scale_has_few_enough_buckets() {
        let check = |scale, sent, ranges: [Range<i64>; 2], expected| {
            let [a, b] = ranges.map(|range| (!range.is_empty()).then(|| range.start..=range.end - 1));
            let (scale, shift) = scale_for(scale, sent, [&a, &b]);
            assert_eq!((scale, shift), expected);
        };
        check(1, 1, [0..0, 0..0], (1, 0));
        check(1, 1, [0..160, 0..0], (1, 0));
        check(1, 1, [0..161, 0..0], (0, 1));
        check(1, 1, [0..80, -7..74], (0, 1));
        check(1, 3, [0..640, 0..0], (1, 2));
        check(1, 3, [0..641, 0..0], (0, 3));
        check(1, -4, [0..641, 0..0], (-7, 3));
        check(3, 3, [i64::from(i32::MIN)..i64::from(i32::MAX) + 1, 0..0], (-22, 25));
        check(1, i32::MAX, [0..1 << 20, 0..0], (1, SHIFT_MAX));
        let least = i64::from(i32::MIN);
        check(1, i32::MIN, [0..100, 0..0], (least, 0));
        check(1, i32::MIN, [0..641, 0..0], (least - 3, 3));
    }
}
