//! Samples of both protocol versions, and limits on the number of samples and other items.

use crate::DecodeError;
use crate::wire::{Reader, Tag, WireError, WireType, tag};
use model::Batch;
use model::caps::{REQUEST_EXTRAS_MAX, REQUEST_SAMPLES_MAX, REQUEST_SERIES_MAX};
use stdx::budget::IncrementalReservation;

const VALUE: Tag = tag(1, WireType::Fixed64);
const TIMESTAMP: Tag = tag(2, WireType::Varint);
const VALUE_BYTE: u8 = VALUE as u8;
const TIMESTAMP_BYTE: u8 = TIMESTAMP as u8;

/// Reads timestamp and value from a Sample message. An absent field is 0, and NaNs keep their bits. The start
/// time, which 2.0 samples may have, is ignored.
#[inline(always)]
fn read(sample: Reader<'_>) -> Result<(i64, f64), WireError> {
    match <&[u8; 16]>::try_from(sample.rest()).ok().and_then(read_usual) {
        Some(usual) => Ok(usual),
        None => read_any(sample),
    }
}

/// The fast path for the form that senders normally use: the value, then a timestamp that takes six bytes,
/// which means a time between 1971 and 2109.
#[inline(always)]
fn read_usual(sample: &[u8; 16]) -> Option<(i64, f64)> {
    let [VALUE_BYTE, value @ .., TIMESTAMP_BYTE, t0, t1, t2, t3, t4, t5] = *sample else { return None };
    let varint = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, 0, 0]);
    if varint & 0x8080_8080_8080 != 0x0080_8080_8080 {
        return None;
    }
    // join seven bits of each byte, first in pairs
    let pairs = (varint & 0x007f_007f_007f) | (varint & 0x7f00_7f00_7f00) >> 1;
    let timestamp_ms = (pairs & 0x3fff) | (pairs >> 2 & 0x3fff << 14) | (pairs >> 4 & 0x3fff << 28);
    Some((timestamp_ms as i64, f64::from_bits(u64::from_le_bytes(value))))
}

fn read_any(mut sample: Reader<'_>) -> Result<(i64, f64), WireError> {
    let (mut timestamp_ms, mut value) = (0, 0.0);
    while let Some(tag) = sample.tag()? {
        match tag {
            VALUE => value = sample.double()?,
            TIMESTAMP => timestamp_ms = sample.varint()? as i64,
            other => sample.skip_unknown(other, &[1, 2])?,
        }
    }
    Ok((timestamp_ms, value))
}

#[inline]
pub(super) fn push(
    sample: Reader<'_>,
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), DecodeError> {
    let (timestamp_ms, value) = read(sample)?;
    if batch.floats.timestamps.len() >= REQUEST_SAMPLES_MAX {
        return Err(DecodeError::TooMany { what: "samples", limit: REQUEST_SAMPLES_MAX });
    }
    reservation.push(&mut batch.floats.timestamps, timestamp_ms)?;
    reservation.push(&mut batch.floats.values, value)?;
    Ok(())
}

/// Counts the series of a request up to the limit. Series without samples count too.
#[inline]
pub(super) fn count_series(seen: &mut usize) -> Result<(), DecodeError> {
    *seen += 1;
    if *seen > REQUEST_SERIES_MAX {
        return Err(DecodeError::TooMany { what: "series", limit: REQUEST_SERIES_MAX });
    }
    Ok(())
}

/// Fails if the request already has the maximum number of exemplars or metadata entries.
pub(super) fn check_extras(len: usize, what: &'static str) -> Result<(), DecodeError> {
    if len >= REQUEST_EXTRAS_MAX {
        return Err(DecodeError::TooMany { what, limit: REQUEST_EXTRAS_MAX });
    }
    Ok(())
}
