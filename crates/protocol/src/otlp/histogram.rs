//! Points of histograms.
//!
//! A point becomes the series `_sum` (if it has a sum), `_count`, and a series `_bucket` for each bound, with the label
//! `le`. Senders count each bucket by itself, but the values of the series are cumulative.

use super::Stop;
use super::bounds::{INFINITY, integers};
use super::fields::histogram;
use super::labels::{Part, SeriesName};
use super::metric::Metric;
use super::point::{Interval, Moment, push};
use super::walk::{LABELS_BYTES_MAX, Walk, too_many};
use crate::wire::{Fault, Reader, Tag, WireError};
use model::caps::REQUEST_SERIES_MAX;
use std::ops::Range;
use stdx::budget::{Exhausted, IncrementalReservation};

/// The numbers of a repeated field. Senders usually pack them in one field, but may also send them in pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    /// The part of the message with the numbers.
    packed: Range<usize>,
    /// True if the numbers were in pieces. They were then copied together.
    is_scattered: bool,
}

impl Numbers {
    /// Adds numbers that are at `piece` of the message. `pieces` is for numbers in pieces.
    pub(super) fn push(
        &mut self,
        piece: Range<usize>,
        message: &[u8],
        pieces: &mut Vec<u8>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        if self.packed.is_empty() && !self.is_scattered {
            self.packed = piece;
            return Ok(());
        }
        if !self.is_scattered {
            self.is_scattered = true;
            pieces.clear();
            reservation.extend(pieces, &message[self.packed.clone()])?;
        }
        reservation.extend(pieces, &message[piece])
    }

    pub(super) fn bytes<'b>(&self, message: &'b [u8], pieces: &'b [u8]) -> &'b [u8] {
        if self.is_scattered { pieces } else { &message[self.packed.clone()] }
    }
}

/// Reads a packed field of numbers that take 8 bytes each.
pub(super) fn packed(field: Reader<'_>) -> Result<Range<usize>, WireError> {
    match field.rest().len() % 8 {
        0 => Ok(field.unread()),
        _ => Err(field.fault(Fault::TruncatedFixed)),
    }
}

impl<'a> Walk<'a, '_> {
    pub(super) fn histogram(&mut self, whole: Reader<'a>, metric: &Metric) -> Result<(), Stop> {
        let (mut start_ns, mut time_ns, mut flags, mut count, mut sum) = (0, 0, 0, 0, None);
        let mut has_exemplars = false;
        let (mut counts, mut bounds) = (Numbers::default(), Numbers::default());
        let mut point = whole;
        self.labels.attributes.clear();
        while let Some(tag) = point.tag()? {
            match tag {
                histogram::ATTRIBUTE => self.labels.attribute(point.message()?, self.reservation)?,
                histogram::TIME => time_ns = point.fixed64()?,
                histogram::COUNT => count = point.fixed64()?,
                histogram::SUM => sum = Some(point.double()?),
                histogram::FLAGS => flags = point.varint()?,
                histogram::BUCKET_COUNTS => self.piece(0, &mut counts, packed(point.message()?)?)?,
                histogram::BOUNDS => self.piece(1, &mut bounds, packed(point.message()?)?)?,
                histogram::BUCKET_COUNT => {
                    point.fixed64()?;
                    self.piece(0, &mut counts, point.at() - 8..point.at())?;
                }
                histogram::BOUND => {
                    point.fixed64()?;
                    self.piece(1, &mut bounds, point.at() - 8..point.at())?;
                }
                histogram::EXEMPLAR => {
                    has_exemplars = true;
                    point.len_field()?;
                }
                histogram::START => start_ns = point.fixed64()?,
                histogram::MIN | histogram::MAX => _ = point.fixed64()?,
                other => point.skip_unknown(other, histogram::KNOWN)?,
            }
        }
        let moment = self.moment(time_ns, flags, metric)?;
        self.prepare()?;
        let first = self.batch.floats.series.len() as u32;
        self.sum_and_count(metric, whole.rest().len(), moment, sum, count)?;

        // as in Prometheus, bounds without a count are ignored, and so are counts without a bound
        let Self { pieces, bounds: cache, counts: values, reservation, message, hasher, .. } = self;
        let [counts_pieces, bounds_pieces] = &**pieces;
        let counts = counts.bytes(message, counts_pieces);
        let bounds = bounds.bytes(message, bounds_pieces);
        let bounds = &bounds[..bounds.len().min(counts.len())];
        values.clear();
        reservation.room(*values, bounds.len() / 8 + 1)?;
        let mut below = 0_u64;
        values.extend(integers(&counts[..bounds.len()]).map(|in_bucket| {
            below = below.wrapping_add(in_bucket);
            moment.value(below as f64)
        }));
        values.push(moment.value(count as f64));
        cache.select(bounds, reservation)?;
        let layout = if metric.is_accumulated { hasher.key(bounds).0 as u32 | 1 } else { 0 };
        self.buckets(metric, whole.rest().len(), moment)?;
        if metric.is_accumulated {
            self.increments(first, metric, moment, Interval { start_ns, end_ns: time_ns }, layout)?;
        }
        if has_exemplars {
            self.histogram_exemplars(whole, histogram::EXEMPLAR)?;
        }
        Ok(())
    }

    fn piece(&mut self, number: usize, numbers: &mut Numbers, piece: Range<usize>) -> Result<(), Stop> {
        Ok(numbers.push(piece, self.message, &mut self.pieces[number], self.reservation)?)
    }

    /// Adds the series `_sum` and `_count` of a point, whose message has `point_bytes`.
    pub(super) fn sum_and_count(
        &mut self,
        metric: &Metric,
        point_bytes: usize,
        moment: Moment,
        sum: Option<f64>,
        count: u64,
    ) -> Result<(), Stop> {
        if let Some(sum) = sum {
            self.series(metric, b"_sum", point_bytes, moment, sum)?;
        }
        self.series(metric, b"_count", point_bytes, moment, count as f64)
    }

    /// Adds the series of the buckets. The bounds are those that were selected last, and `counts` has a value for each of
    /// them and for infinity, which may be missing if there are others.
    pub(super) fn buckets(
        &mut self,
        metric: &Metric,
        point_bytes: usize,
        moment: Moment,
    ) -> Result<(), Stop> {
        let Self { names, labels, message, bounds, counts, batch, reservation, hasher, .. } = self;
        let bounds = bounds.selected();
        let is_complete = counts.len() == bounds.len() + 1;
        assert!(
            is_complete || counts.len() == bounds.len() && bounds.len() > 0,
            "BUG: a bucket has no count"
        );
        if batch.floats.series.len() + counts.len() > REQUEST_SERIES_MAX {
            return Err(too_many("series", REQUEST_SERIES_MAX));
        }
        let name = SeriesName { metric: names.text(&metric.name), suffix: b"_bucket" };
        let label = |number| if number == bounds.len() { INFINITY } else { bounds.label(number) };

        let start = batch.bytes.len();
        let first_bytes = labels.bytes_max(point_bytes) + name.bytes() + label(0).len();
        reservation.room(&mut batch.bytes, first_bytes)?;
        labels.put_before(Part::Le, name, message, &mut batch.bytes);
        let before = start..batch.bytes.len();
        batch.bytes.extend_from_slice(label(0));
        let after = batch.bytes.len();
        labels.put_after(Part::Le, name, message, &mut batch.bytes);
        let after = after..batch.bytes.len();
        push(hasher, batch, reservation, start, moment, counts[0])?;

        // the other buckets differ only in this label
        let others_bytes = bounds.len() * (before.len() + after.len()) + bounds.bytes() + INFINITY.len();
        if batch.bytes.len() + others_bytes > LABELS_BYTES_MAX {
            return Err(too_many("bytes of labels", LABELS_BYTES_MAX));
        }
        reservation.room(&mut batch.bytes, others_bytes)?;
        for (number, value) in counts.iter().enumerate().skip(1) {
            let start = batch.bytes.len();
            batch.bytes.extend_from_within(before.clone());
            batch.bytes.extend_from_slice(label(number));
            batch.bytes.extend_from_within(after.clone());
            push(hasher, batch, reservation, start, moment, *value)?;
        }
        Ok(())
    }

    /// Adds the exemplars of a point whose buckets are the last series of the batch. An exemplar belongs to the bucket with
    /// the least bound that its value does not exceed.
    pub(super) fn histogram_exemplars(&mut self, point: Reader<'a>, exemplar: Tag) -> Result<(), Stop> {
        let first_bucket = (self.batch.floats.series.len() - self.counts.len()) as u32;
        self.rank_bounds()?;
        self.exemplars(point, exemplar, |walk, value| {
            let ranked = &*walk.ranked_bounds;
            let least = ranked.partition_point(|(bound, _)| *bound < value || value.is_nan());
            let (_, number) = ranked.get(least)?;
            Some(first_bucket + number)
        })
    }

    /// Sorts the bounds of the current point, which senders need not do. A point may have as many bounds and exemplars as
    /// a whole request, so that looking at all bounds for each exemplar would not end.
    fn rank_bounds(&mut self) -> Result<(), Exhausted> {
        let Self { bounds, ranked_bounds: ranked, reservation, .. } = self;
        let bounds = bounds.selected();
        ranked.clear();
        reservation.room(*ranked, bounds.len() + 1)?;
        let all = bounds.values().chain([f64::INFINITY]).zip(0..);
        // no value is in a bucket whose bound is not a number
        ranked.extend(all.filter(|(bound, _)| !bound.is_nan()));
        // in place, so that no more memory is needed; of equal bounds, the first one is taken
        ranked.sort_unstable_by(|(a, first), (b, second)| a.total_cmp(b).then(first.cmp(second)));
        Ok(())
    }
}
