//! Encodes and decodes the sums of series whose samples were sent as increments ([`model::accumulator`]).
//!
//! ```text
//!   sums   = varint(forgotten, ns)  varint(n)  n × sum
//!   sum    = 16 bytes key  varint(layout)  varint(end, ns)  varint(end - last start)  8 bytes sum  8 bytes newest increment
//!            varint(pieces)  pieces × { varint(start - end before)  varint(end - start)  8 bytes sum }
//!
//!   [version 6]    varint(n)  n × { varint(number of the sum)  histogram  varint(k)  k × { varint(end, ns)  histogram } }
//!   histogram    = varint(zigzag scale)  8 bytes zero threshold  varint(zero)  side  side  varint(count)
//!                  u8 has sum  [8 bytes sum]                    the sides are the positive and the negative buckets
//!   side         = varint(c)  [c > 0: varint(zigzag index of the first)]  c × varint(count)
//! ```

use super::wire::Cursor;
use super::{DecodeMemory, RecordError};
use model::accumulator::{PIECES_MAX, Piece};
use model::exponential::{BUCKETS_MAX, SCALE_MAX, Side};
use model::{Accumulator, Exponential, ExponentialSum, SeriesKey};
use std::sync::Arc;
use stdx::varint;

const PIECE_BYTES: usize = size_of::<Piece>();

/// A sum takes at least this many bytes in a record.
const SUM_BYTES_MIN: usize = 36;

/// An exponential histogram takes at least this many bytes in a record.
const EXPONENTIAL_BYTES_MIN: usize = 14;

/// No double is in a bucket whose index is further from 0.
const INDEX_MAX: u64 = 1 << 33;

pub(super) fn put(out: &mut Vec<u8>, key: SeriesKey, accumulator: &Accumulator) {
    let Accumulator { end_ns, last_start_ns, sum, newest, layout, pieces, exponential: _ } = accumulator;
    out.extend_from_slice(&key.0.to_le_bytes());
    varint::put(out, (*layout).into());
    varint::put(out, *end_ns);
    varint::put(out, end_ns - last_start_ns);
    put_double(out, *sum);
    put_double(out, *newest);
    varint::put(out, pieces.len() as u64);
    let mut before_ns = *end_ns;
    for piece in pieces {
        varint::put(out, piece.start_ns - before_ns);
        varint::put(out, piece.end_ns - piece.start_ns);
        put_double(out, piece.sum);
        before_ns = piece.end_ns;
    }
}

fn put_double(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

pub(super) fn read(
    cursor: &mut Cursor<'_>,
    into: &mut Vec<(SeriesKey, Accumulator)>,
    memory: &mut dyn DecodeMemory,
) -> Result<u64, RecordError> {
    into.clear();
    let forgotten_ns = cursor.varint()?;
    let count = cursor.count(cursor.rest.len() / SUM_BYTES_MIN)?;
    if count > 0 {
        memory.reserve_for(into, count)?;
        // a piece takes at least ten bytes in the record
        memory.try_reserve(cursor.rest.len() / 10 * PIECE_BYTES)?;
        into.reserve_exact(count);
    }
    for _ in 0..count {
        into.push(sum(cursor)?);
    }
    Ok(forgotten_ns)
}

fn sum(cursor: &mut Cursor<'_>) -> Result<(SeriesKey, Accumulator), RecordError> {
    let key = cursor.take(16)?.try_into().map(u128::from_le_bytes).expect("BUG: took 16 bytes");
    let layout =
        u32::try_from(cursor.varint()?).map_err(|_| RecordError::Malformed("a layout above 32 bits"))?;
    let end_ns = cursor.varint()?;
    let last_start_ns = end_ns
        .checked_sub(cursor.varint()?)
        .ok_or(RecordError::Malformed("an increment begins before 1970"))?;
    let (sum, newest) = (cursor.f64_bits()?, cursor.f64_bits()?);
    let mut pieces = Vec::with_capacity(cursor.count(PIECES_MAX)?);
    let mut before_ns = end_ns;
    for _ in 0..pieces.capacity() {
        let start_ns = after(before_ns, cursor.varint()?)?;
        let end_ns = after(start_ns, cursor.varint()?)?;
        pieces.push(Piece { start_ns, end_ns, sum: cursor.f64_bits()? });
        before_ns = end_ns;
    }
    let pieces = pieces.into_boxed_slice();
    let accumulator = Accumulator { end_ns, last_start_ns, sum, newest, layout, pieces, exponential: None };
    Ok((SeriesKey(key), accumulator))
}

fn after(ns: u64, more: u64) -> Result<u64, RecordError> {
    ns.checked_add(more).ok_or(RecordError::Malformed("the time of a sum is above 64 bits"))
}

/// `number` is that of the sum in the record, counted from 0.
pub(super) fn put_exponential(out: &mut Vec<u8>, number: u64, sum: &ExponentialSum) {
    varint::put(out, number);
    put_histogram(out, &sum.base);
    varint::put(out, sum.latest.len() as u64);
    for (end_ns, increment) in &sum.latest {
        varint::put(out, *end_ns);
        put_histogram(out, increment);
    }
}

fn put_histogram(out: &mut Vec<u8>, histogram: &Exponential) {
    let Exponential { scale, zero_threshold, zero, positive, negative, count, sum } = histogram;
    varint::put(out, varint::zigzag(*scale));
    put_double(out, *zero_threshold);
    varint::put(out, *zero);
    for side in [positive, negative] {
        varint::put(out, side.counts().len() as u64);
        if !side.counts().is_empty() {
            varint::put(out, varint::zigzag(side.first()));
        }
        side.counts().iter().for_each(|count| varint::put(out, *count));
    }
    varint::put(out, *count);
    out.push(sum.is_some().into());
    if let Some(sum) = sum {
        put_double(out, *sum);
    }
}

pub(super) fn read_exponentials(
    cursor: &mut Cursor<'_>,
    into: &mut [(SeriesKey, Accumulator)],
    memory: &mut dyn DecodeMemory,
) -> Result<(), RecordError> {
    let count = cursor.count(cursor.rest.len() / EXPONENTIAL_BYTES_MIN)?;
    for _ in 0..count {
        let number = usize::try_from(cursor.varint()?).ok();
        let (_, accumulator) = number
            .and_then(|number| into.get_mut(number))
            .ok_or(RecordError::Malformed("an exponential histogram without a sum"))?;
        let base = histogram(cursor, memory)?;
        // those in pieces, and the newest
        let latest_count = cursor.count(PIECES_MAX + 1)?;
        memory
            .try_reserve(size_of::<ExponentialSum>() + latest_count * size_of::<(u64, Arc<Exponential>)>())?;
        let mut latest: Vec<(u64, _)> = Vec::with_capacity(latest_count);
        for _ in 0..latest_count {
            let end_ns = cursor.varint()?;
            if latest.last().is_some_and(|(before_ns, _)| *before_ns >= end_ns) {
                return Err(RecordError::Malformed("increments that are not in order"));
            }
            latest.push((end_ns, histogram(cursor, memory)?));
        }
        accumulator.exponential = Some(Box::new(ExponentialSum { base, latest }));
    }
    Ok(())
}

fn histogram(
    cursor: &mut Cursor<'_>,
    memory: &mut dyn DecodeMemory,
) -> Result<Arc<Exponential>, RecordError> {
    let scale = varint::unzigzag(cursor.varint()?);
    if scale > SCALE_MAX.into() || scale < -(1 << 40) {
        return Err(RecordError::Malformed("a scale that does not exist"));
    }
    let zero_threshold = cursor.f64_bits()?;
    if zero_threshold.is_nan() || zero_threshold < 0.0 {
        return Err(RecordError::Malformed("a zero threshold that is negative"));
    }
    let zero = cursor.varint()?;
    let (positive, negative) = (side(cursor, memory)?, side(cursor, memory)?);
    let count = cursor.varint()?;
    let sum = match cursor.byte()? {
        0 => None,
        1 => Some(cursor.f64_bits()?),
        _ => return Err(RecordError::Malformed("the flag of a sum is neither 0 nor 1")),
    };
    memory.try_reserve(size_of::<Exponential>() + 16)?;
    Ok(Arc::new(Exponential { scale, zero_threshold, zero, positive, negative, count, sum }))
}

fn side(cursor: &mut Cursor<'_>, memory: &mut dyn DecodeMemory) -> Result<Side, RecordError> {
    let count = cursor.count(BUCKETS_MAX)?;
    if count == 0 {
        return Ok(Side::default());
    }
    let first = varint::unzigzag(cursor.varint()?);
    if first.unsigned_abs() > INDEX_MAX {
        return Err(RecordError::Malformed("a bucket beyond all values"));
    }
    memory.try_reserve(count * size_of::<u64>())?;
    let mut counts = [0; BUCKETS_MAX];
    for into in &mut counts[..count] {
        *into = cursor.varint()?;
    }
    Ok(Side::new(first, &counts[..count]))
}
