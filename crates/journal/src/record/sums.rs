//! Encodes and decodes the sums of series whose samples were sent as increments ([`model::accumulator`]).
//!
//! ```text
//!   sums   = varint(forgotten, ns)  varint(n)  n × sum
//!   sum    = 16 bytes key  varint(layout)  varint(end, ns)  varint(end - last start)  8 bytes sum  8 bytes newest increment
//!            varint(pieces)  pieces × { varint(start - end before)  varint(end - start)  8 bytes sum }
//! ```

use super::wire::Cursor;
use super::{DecodeMemory, RecordError};
use model::accumulator::{PIECES_MAX, Piece};
use model::{Accumulator, SeriesKey};
use stdx::varint;

const PIECE_BYTES: usize = size_of::<Piece>();

/// A sum takes at least this many bytes in a record.
const SUM_BYTES_MIN: usize = 36;

pub(super) fn put(out: &mut Vec<u8>, key: SeriesKey, accumulator: &Accumulator) {
    let Accumulator { end_ns, last_start_ns, sum, newest, layout, pieces } = accumulator;
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
    Ok((SeriesKey(key), Accumulator { end_ns, last_start_ns, sum, newest, layout, pieces }))
}

fn after(ns: u64, more: u64) -> Result<u64, RecordError> {
    ns.checked_add(more).ok_or(RecordError::Malformed("the time of a sum is above 64 bits"))
}
