//! Encodes and decodes columns of integers, doubles and histograms.
//!
//! ```text
//!   deltas = 0  n × zigzag(delta)
//!          | 1  varint(runs)  runs × { zigzag(delta)  varint(repeats) }
//!
//!   values = ⌈n/2⌉ × tags (first value in the low nibble)  n × body
//!
//!   tag 0..=7     a whole number v ≥ 0 in that many bytes (0: v = 0)
//!   tag 8..=14    a whole number v < 0: the complement !v in (tag - 8) bytes
//!   tag 15        any other double: its 8 bytes unchanged
//!
//!   histograms = n × { varint(length)  histogram, see model::histogram }
//! ```
//!
//! The first delta is the difference to 0. To read a body, 8 bytes are loaded and masked to a length from a
//! table, because a branch for each length would often be mispredicted.

use super::wire::Cursor;
use super::{DecodeMemory, RecordError};
use model::Histogram;
use model::caps::HISTOGRAM_BYTES_MAX;
use stdx::varint::{self, unzigzag, zigzag};

const PLAIN: u8 = 0;
const RUNS: u8 = 1;

/// Writes the deltas of a column. The number of deltas is not written.
pub(super) fn put_deltas<T: Copy + Into<i64>>(out: &mut Vec<u8>, column: &[T]) {
    // a run takes two varints, a single delta takes one
    if 2 * count_runs(column) < column.len() + 2 {
        put_runs(out, column);
    } else {
        out.push(PLAIN);
        let mut previous = 0i64;
        for &item in column {
            let item = item.into();
            varint::put(out, zigzag(item.wrapping_sub(previous)));
            previous = item;
        }
    }
}

fn count_runs<T: Copy + Into<i64>>(column: &[T]) -> usize {
    let (mut previous, mut delta, mut runs) = (0i64, 0i64, 0);
    for (i, &item) in column.iter().enumerate() {
        let item = item.into();
        let next = item.wrapping_sub(previous);
        runs += usize::from(i == 0 || next != delta);
        (previous, delta) = (item, next);
    }
    runs
}

fn put_runs<T: Copy + Into<i64>>(out: &mut Vec<u8>, column: &[T]) {
    out.push(RUNS);
    varint::put(out, count_runs(column) as u64);
    let (mut previous, mut delta, mut repeats) = (0i64, 0i64, 0u64);
    for &item in column {
        let item = item.into();
        let next = item.wrapping_sub(previous);
        if repeats > 0 && next != delta {
            varint::put(out, zigzag(delta));
            varint::put(out, repeats);
            repeats = 0;
        }
        (previous, delta, repeats) = (item, next, repeats + 1);
    }
    if repeats > 0 {
        varint::put(out, zigzag(delta));
        varint::put(out, repeats);
    }
}

/// Reads `count` deltas. The caller must have checked `count` against a limit.
pub(super) fn deltas<T>(
    cursor: &mut Cursor<'_>,
    count: usize,
    column: &mut Vec<T>,
    make: impl Fn(i64) -> Result<T, RecordError>,
) -> Result<(), RecordError> {
    column.clear();
    column.reserve_exact(count);
    let mut item = 0i64;
    match cursor.byte()? {
        PLAIN => {
            for _ in 0..count {
                item = item.wrapping_add(unzigzag(cursor.varint()?));
                column.push(make(item)?);
            }
        }
        RUNS => {
            for _ in 0..cursor.count(count)? {
                let delta = unzigzag(cursor.varint()?);
                let repeats = cursor.length()?;
                if repeats == 0 || repeats > count - column.len() {
                    return Err(RecordError::Malformed("runs do not add up to the number of samples"));
                }
                for _ in 0..repeats {
                    item = item.wrapping_add(delta);
                    column.push(make(item)?);
                }
            }
        }
        _ => return Err(RecordError::Malformed("unknown column encoding")),
    }
    if column.len() != count {
        return Err(RecordError::Malformed("runs do not add up to the number of samples"));
    }
    Ok(())
}

pub(super) fn skip_deltas(cursor: &mut Cursor<'_>, count: usize) -> Result<(), RecordError> {
    match cursor.byte()? {
        PLAIN => {
            for _ in 0..count {
                cursor.varint()?;
            }
        }
        RUNS => {
            for _ in 0..cursor.count(count)? {
                cursor.varint()?;
                cursor.varint()?;
            }
        }
        _ => return Err(RecordError::Malformed("unknown column encoding")),
    }
    Ok(())
}

const TAG_NEGATIVE: u8 = 8;
const TAG_DOUBLE: u8 = 15;

/// How many bytes of the body follow for each tag.
const BODY_BYTES: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 8];

#[inline]
const fn pack(value: f64) -> (u8, u64) {
    let whole = value as i64;
    // Bits are compared, so that -0.0 and the payloads of NaNs are kept.
    if (whole as f64).to_bits() == value.to_bits() {
        let (base, body) = if whole >= 0 { (0, whole as u64) } else { (TAG_NEGATIVE, !whole as u64) };
        let bytes = 8 - (body.leading_zeros() / 8) as u8;
        if base + bytes < TAG_DOUBLE && bytes < 8 {
            return (base + bytes, body);
        }
    }
    (TAG_DOUBLE, value.to_bits())
}

/// Inverse of [`pack`]. `body` may have further bytes of the next value, which are ignored.
#[inline]
const fn unpack(tag: u8, body: u64) -> f64 {
    let mask = match BODY_BYTES[tag as usize & 15] {
        0 => 0,
        bytes => u64::MAX >> (64 - 8 * bytes as u32),
    };
    let body = body & mask;
    if tag >= TAG_DOUBLE {
        f64::from_bits(body)
    } else if tag >= TAG_NEGATIVE {
        !(body as i64) as f64
    } else {
        body as i64 as f64
    }
}

/// Writes values without changing any of their bits. The number of values is not written.
pub(super) fn put_values(out: &mut Vec<u8>, values: &[f64]) {
    let start = out.len();
    let tags_len = values.len().div_ceil(2);
    // makes room for the longest encoding of each value; what is not used is cut off at the end
    out.resize(start + tags_len + 8 * values.len(), 0);
    let (tags, bodies) = out[start..].split_at_mut(tags_len);
    let mut at = 0;
    for (pair, tags) in values.chunks(2).zip(tags) {
        for (i, &value) in pair.iter().enumerate() {
            let (tag, body) = pack(value);
            *tags |= tag << (4 * i);
            bodies[at..at + 8].copy_from_slice(&body.to_le_bytes());
            at += BODY_BYTES[tag as usize] as usize;
        }
    }
    out.truncate(start + tags_len + at);
}

/// Reads `count` values. The caller must have checked `count` against a limit.
pub(super) fn values(
    cursor: &mut Cursor<'_>,
    count: usize,
    values: &mut Vec<f64>,
) -> Result<(), RecordError> {
    values.clear();
    let tags = cursor.take(count.div_ceil(2))?;
    values.reserve_exact(count + 1);
    let mut bodies = cursor.rest;
    for &pair in tags {
        for tag in [pair & 15, pair >> 4] {
            let body = match bodies.first_chunk::<8>() {
                Some(eight) => u64::from_le_bytes(*eight),
                None => last_bytes(bodies),
            };
            // if the count is odd, the high nibble of the last byte is 0 and has no body
            let len = BODY_BYTES[tag as usize] as usize;
            bodies = bodies.get(len..).ok_or(RecordError::Truncated)?;
            values.push(unpack(tag, body));
        }
    }
    if values.len() > count && values.pop().is_some_and(|v| v.to_bits() != 0) {
        return Err(RecordError::Malformed("more values than expected"));
    }
    cursor.rest = bodies;
    Ok(())
}

pub(super) fn skip_values(cursor: &mut Cursor<'_>, count: usize) -> Result<(), RecordError> {
    let tags = cursor.take(count.div_ceil(2))?;
    let body = |tag: u8| usize::from(BODY_BYTES[tag as usize]);
    cursor.take(tags.iter().map(|&pair| body(pair & 15) + body(pair >> 4)).sum())?;
    Ok(())
}

pub(super) fn put_histogram(out: &mut Vec<u8>, value: &Histogram) {
    varint::put(out, value.as_bytes().len() as u64);
    out.extend_from_slice(value.as_bytes());
}

/// Reads `count` histograms. The caller must have checked `count` against a limit.
pub(super) fn histograms(
    cursor: &mut Cursor<'_>,
    count: usize,
    values: &mut Vec<Histogram>,
    memory: &mut dyn DecodeMemory,
) -> Result<(), RecordError> {
    values.clear();
    if count > cursor.rest.len() {
        return Err(RecordError::Truncated);
    }
    memory.reserve_for(values, count)?;
    values.reserve_exact(count);
    for _ in 0..count {
        let bytes = histogram_bytes(cursor)?;
        memory.try_reserve(bytes.len())?;
        let histogram = Histogram::from_bytes(bytes);
        values.push(histogram.map_err(|_| RecordError::Malformed("a value is not a valid histogram"))?);
    }
    Ok(())
}

pub(super) fn skip_histograms(cursor: &mut Cursor<'_>, count: usize) -> Result<(), RecordError> {
    (0..count).try_for_each(|_| histogram_bytes(cursor).map(|_| ()))
}

fn histogram_bytes<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], RecordError> {
    match cursor.length()? {
        len if len <= HISTOGRAM_BYTES_MAX => cursor.take(len),
        _ => Err(RecordError::Malformed("a histogram that is too long")),
    }
}

#[cold]
fn last_bytes(bodies: &[u8]) -> u64 {
    let mut eight = [0; 8];
    eight[..bodies.len()].copy_from_slice(bodies);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests;
