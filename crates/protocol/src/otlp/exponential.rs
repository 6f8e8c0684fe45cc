//! Points of exponential histograms. They become classic histograms, because native ones cannot be stored yet.
//!
//! Senders lower the scale of [an exponential histogram](model::exponential) as the range of the values grows. Series of buckets
//! must have bounds that do not change. So the bounds are those of a fixed scale, or of a lower one if the sender's scale is
//! lower or if there would be too many buckets.
//!
//! There is a bucket for each pair of neighboring bounds from the smallest to the largest value, and one more bound below.
//! Values near zero are in a bucket whose bound is `zero_threshold`.
//!
//! If the points are increments, each has buckets only for its own values, but all buckets of the histogram must grow. So a point
//! does not say which series there are. Such a request is decoded first to find the points, and again when it is known what
//! they have added up to: in several [parts](model::TotalsPart) if these have many series.

use super::Stop;
use super::fields::{buckets, exponential};
use super::histogram::Numbers;
use super::labels::SeriesName;
use super::metric::{Metric, SHOWN_BYTES_MAX};
use super::point::{Interval, Moment};
use super::walk::{LABELS_BYTES_MAX, Walk};
use crate::wire::{Reader, WireError};
use model::caps::{REQUEST_SERIES_MAX, SERIES_LABEL_BYTES_MAX};
use model::exponential::{BUCKETS_MAX, Layout, ReadOut, Side, Sign, scale_for};
use model::{BatchExponential, Exponential, Increment, SeriesKey, SeriesRefusal, TotalsPlace};
use std::ops::RangeInclusive;
use std::sync::Arc;
use stdx::budget::IncrementalReservation;
use stdx::varint::unzigzag;

/// Upper bound on what the labels of a bucket have besides those of `_count`.
const BUCKET_BYTES_MAX: usize = 360;

// what a total has at one time fits into a part of its own
const _: () = assert!(
    ReadOut::SERIES_MAX < REQUEST_SERIES_MAX
        && ReadOut::SERIES_MAX * SERIES_LABEL_BYTES_MAX + SHOWN_BYTES_MAX < LABELS_BYTES_MAX
);

/// Keys of exponential histograms differ by these bits from those of their series `_count`. If a sender changes the kind of a
/// histogram, sums are not mixed up.
const KEY_BITS: u128 = 0x6578_706f_6e65_6e74_6961_6c00_u128;

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

    /// The indexes of the first and the last bucket.
    const fn range(&self) -> Option<RangeInclusive<i64>> {
        match self.len {
            0 => None,
            len => Some(self.first..=self.first + len as i64 - 1),
        }
    }

    fn count(&self, index: i64) -> u64 {
        self.counts[(index - self.first) as usize]
    }

    fn side(&self) -> Side {
        Side::new(self.first, &self.counts[..self.len])
    }
}

/// Buckets of both signs, at the scale of the bounds.
struct Converted {
    scale: i64,
    positive: Merged,
    negative: Merged,
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

impl<'a, 'p> Walk<'a, 'p> {
    pub(super) fn exponential(&mut self, whole: Reader<'a>, metric: &Metric) -> Result<(), Stop> {
        let (mut start_ns, mut time_ns, mut flags, mut count, mut sum) = (0, 0, 0, 0, None);
        let mut has_exemplars = false;
        let mut found = Buckets::default();
        let mut point = whole;
        self.labels.attributes.clear();
        while let Some(tag) = point.tag()? {
            match tag {
                exponential::ATTRIBUTE => self.labels.attribute(point.message()?, self.reservation)?,
                exponential::TIME => time_ns = point.fixed64()?,
                exponential::START => start_ns = point.fixed64()?,
                exponential::COUNT => count = point.fixed64()?,
                exponential::SUM => sum = Some(point.double()?),
                exponential::SCALE => found.scale = unzigzag(u64::from(point.varint()? as u32)) as i32,
                exponential::ZERO_COUNT => found.zero_count = point.fixed64()?,
                exponential::ZERO_THRESHOLD => found.zero_threshold = point.double()?,
                exponential::POSITIVE | exponential::NEGATIVE if self.totals.is_some() => {
                    point.len_field()?; // they were added up
                }
                exponential::POSITIVE => found.positive = self.sent(0, point.message()?)?,
                exponential::NEGATIVE => found.negative = self.sent(1, point.message()?)?,
                exponential::FLAGS => flags = point.varint()?,
                exponential::EXEMPLAR => {
                    has_exemplars = true;
                    point.len_field()?;
                }
                exponential::MIN | exponential::MAX => _ = point.fixed64()?,
                other => point.skip_unknown(other, exponential::KNOWN)?,
            }
        }
        let moment = self.moment(time_ns, flags, metric)?;
        self.prepare()?;
        // a staleness marker is a value
        if metric.is_accumulated && !moment.is_stale() {
            if self.totals.is_some() {
                return self.put_total(metric, whole, time_ns, has_exemplars);
            }
            let (key, label_bytes) = self.key(metric, whole)?;
            let counts = self.increment(&found, sum, count)?;
            if has_exemplars {
                // so that a request that cannot be decoded again is refused before anything is added
                let refused = self.batch.refused_exemplars;
                self.exemplars(whole, exponential::EXEMPLAR, |_, _| None)?;
                self.batch.refused_exemplars = refused;
            }
            let interval = Interval { start_ns, end_ns: time_ns };
            return self.put_increment((key, whole.at() as u32, label_bytes), interval, counts);
        }
        self.sum_and_count(metric, whole.rest().len(), moment, sum, count)?;
        let Converted { scale, positive, negative } = self.converted(&found);
        let layout = Layout {
            scale,
            has_zero: found.zero_count > 0 || negative.len > 0,
            zero_threshold: threshold(found.zero_threshold),
            positive: positive.range(),
            negative: negative.range(),
        };
        let mut classic = self.classic(moment)?;
        let count_of = |sign, index| match sign {
            Sign::Negative => negative.count(index),
            Sign::Positive => positive.count(index),
        };
        layout.each_bucket(found.zero_count, count_of, |bound, count| classic.push(bound, count))?;
        self.put_classic(metric, whole, moment, count)?;
        self.batch.converted_points += 1;
        if has_exemplars {
            self.histogram_exemplars(whole, exponential::EXEMPLAR)?;
        }
        Ok(())
    }

    fn sent(&mut self, number: usize, fields: Reader<'a>) -> Result<Sent, Stop> {
        Sent::read(fields, self.message, &mut self.pieces[number], self.reservation)
    }

    /// Brings the buckets of a point to the scale of the bounds.
    fn converted(&self, found: &Buckets) -> Converted {
        let Self { message, pieces, translation, .. } = self;
        let [positive_pieces, negative_pieces] = &**pieces;
        let positive_range = found.positive.range(message, positive_pieces);
        let negative_range = found.negative.range(message, negative_pieces);
        let (scale, shift) = scale_for(translation.scale, found.scale, [&positive_range, &negative_range]);
        let positive = Merged::of(&found.positive, positive_range, shift, message, positive_pieces);
        let negative = Merged::of(&found.negative, negative_range, shift, message, negative_pieces);
        Converted { scale, positive, negative }
    }

    /// Begins with the classic buckets of a point: sets `upper_bounds` and `counts`.
    fn classic(&mut self, moment: Moment) -> Result<Classic<'_, 'p>, Stop> {
        let Self { upper_bounds, counts, reservation, .. } = self;
        upper_bounds.clear();
        counts.clear();
        reservation.room(*counts, BUCKETS_MAX + 3)?;
        Ok(Classic { bounds: upper_bounds, counts, moment, below: 0, last: f64::NEG_INFINITY, reservation })
    }

    /// Adds the series of the classic buckets, and that of infinity.
    fn put_classic(
        &mut self,
        metric: &Metric,
        whole: Reader<'a>,
        moment: Moment,
        count: u64,
    ) -> Result<(), Stop> {
        self.counts.push(moment.value(count as f64));
        self.bounds.select(self.upper_bounds, self.reservation)?;
        self.buckets(metric, whole.rest().len(), moment)
    }

    /// What a point adds to the histogram.
    fn increment(&self, found: &Buckets, sum: Option<f64>, count: u64) -> Result<Exponential, Stop> {
        if sum.is_some_and(|sum| !sum.is_finite()) {
            return Err(SeriesRefusal::IncrementNotFinite.into());
        }
        let Converted { scale, positive, negative } = self.converted(found);
        let mut counts = Exponential {
            scale,
            zero_threshold: threshold(found.zero_threshold),
            zero: found.zero_count,
            positive: positive.side(),
            negative: negative.side(),
            count,
            // nothing was counted, so the sum is known
            sum: sum.or((count == 0).then_some(0.0)),
        };
        // otherwise, buckets could have more values than there are
        counts.count = count.max(counts.in_buckets());
        Ok(counts)
    }

    /// Identifies the histogram of the current point. Also returns an upper bound on the labels of each of its series.
    fn key(&mut self, metric: &Metric, whole: Reader<'a>) -> Result<(SeriesKey, usize), Stop> {
        let Self { names, labels, message, batch, reservation, hasher, work, .. } = self;
        let name = SeriesName { metric: names.text(&metric.name), suffix: b"_count" };
        let start = batch.bytes.len();
        reservation.room(&mut batch.bytes, labels.bytes_max(whole.rest().len()) + name.bytes())?;
        labels.put(name, message, &mut batch.bytes);
        let (SeriesKey(key), bytes) = (hasher.key(&batch.bytes[start..]), batch.bytes.len() - start);
        batch.bytes.truncate(start);
        work.unstored(0, bytes)?;
        // the series of buckets have a longer name, and a bound
        let label_bytes = bytes + BUCKET_BYTES_MAX;
        match label_bytes <= SERIES_LABEL_BYTES_MAX {
            true => Ok((SeriesKey(key ^ KEY_BITS), label_bytes)),
            false => Err(SeriesRefusal::LabelsTooLong(label_bytes).into()),
        }
    }

    /// Adds a point to those that must be added up.
    fn put_increment(
        &mut self,
        (key, offset, label_bytes): (SeriesKey, u32, usize),
        interval: Interval,
        counts: Exponential,
    ) -> Result<(), Stop> {
        let Self { batch, reservation, .. } = self;
        let Interval { start_ns, end_ns } = interval;
        let increment = Increment { start_ns, end_ns, value: counts.count as f64, ..Increment::default() };
        reservation.reserve(size_of::<Exponential>() + counts.heap_bytes())?;
        let one = BatchExponential { key, increment, counts: Arc::new(counts), label_bytes, offset };
        Ok(reservation.push(&mut batch.exponentials, one)?)
    }

    /// Adds the series of the next point that was added up, as those of a cumulative sender: at its own time, and at other times whose
    /// sums or buckets it changes. Leaves out those that belong to another part of the request.
    fn put_total(
        &mut self,
        metric: &Metric,
        whole: Reader<'a>,
        own_ns: u64,
        has_exemplars: bool,
    ) -> Result<(), Stop> {
        let (Some(part), Some(number)) = (self.totals, self.next_total) else { return Ok(()) };
        self.next_total = part.wanted(number + 1);
        let Some(total) = &part.totals[number] else { return Ok(()) };
        let total = total.as_ref().map_err(Clone::clone)?;
        let from = if number == part.from.number { part.from.time } else { 0 };
        if !self.has_room(number, from) {
            return Ok(());
        }
        // in the part where it begins
        self.batch.converted_points += u64::from(from == 0);
        let total = total.read_out(own_ns);
        // of ends in the same millisecond, the last one counts
        let is_last = |n: &usize| {
            let moment = Moment::of(total.sums[*n].0);
            total.sums.get(*n + 1).is_none_or(|(next_ns, _)| Moment::of(*next_ns) != moment)
        };
        let mut times: Vec<usize> = (0..total.sums.len()).filter(is_last).collect();
        // the point's own time comes last, because its exemplars belong to the last series
        times.sort_by_key(|n| Moment::of(total.sums[*n].0) == Moment::of(own_ns));
        for (time, n) in times.into_iter().enumerate().skip(from) {
            if !self.has_room(number, time) {
                return Ok(());
            }
            let (series, label_bytes) = (self.batch.floats.series.len(), self.batch.bytes.len());
            let (end_ns, counts) = &total.sums[n];
            self.put_sums(metric, whole, Moment::of(*end_ns), counts, &total)?;
            self.totals_put.series += self.batch.floats.series.len() - series;
            self.totals_put.label_bytes += self.batch.bytes.len() - label_bytes;
        }
        // they belong to the series that are added last
        if has_exemplars {
            self.histogram_exemplars(whole, exponential::EXEMPLAR)?;
        }
        Ok(())
    }

    /// True if this part has room for what a total says of a time. If not, the next part begins there.
    fn has_room(&mut self, number: usize, time: usize) -> bool {
        let Some(part) = self.totals else { return false };
        let (put, room) = (self.totals_put, part.room);
        let has_room = put.series < room.series && put.label_bytes < room.label_bytes;
        if !has_room {
            self.batch.left = Some(TotalsPlace { number, time });
            self.next_total = None;
        }
        has_room
    }

    /// Adds the series of a total at one time.
    fn put_sums(
        &mut self,
        metric: &Metric,
        whole: Reader<'a>,
        moment: Moment,
        counts: &Exponential,
        total: &ReadOut,
    ) -> Result<(), Stop> {
        if !total.gone.is_empty() {
            self.put_gone(metric, whole, moment.stale(), &total.gone)?;
        }
        let point_bytes = whole.rest().len();
        if total.is_sum_gone && counts.sum.is_none() {
            self.series(metric, b"_sum", point_bytes, moment.stale(), 0.0)?;
        }
        self.sum_and_count(metric, point_bytes, moment, counts.sum, counts.count)?;
        let mut classic = self.classic(moment)?;
        counts.each_bucket(&total.layout, |bound, count| classic.push(bound, count))?;
        self.put_classic(metric, whole, moment, counts.count)
    }

    /// Ends the series of bounds that the histogram does not have any more.
    fn put_gone(
        &mut self,
        metric: &Metric,
        whole: Reader<'a>,
        moment: Moment,
        gone: &[f64],
    ) -> Result<(), Stop> {
        let mut classic = self.classic(moment)?;
        for bound in gone {
            classic.push(*bound, 0)?;
        }
        self.bounds.select(self.upper_bounds, self.reservation)?;
        self.buckets(metric, whole.rest().len(), moment)
    }
}

/// Senders that do not have a threshold send 0.
fn threshold(sent: f64) -> f64 {
    if sent > 0.0 { sent } else { 0.0 }
}
