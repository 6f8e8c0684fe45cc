//! The snappy block around a message.
//!
//! Format: <https://github.com/google/snappy/blob/main/format_description.txt>. A varint declares the
//! decompressed length; elements follow that either carry bytes or copy earlier ones.

use super::DecodeError;
use model::caps::{BODY_BYTES_MAX, BODY_COMPRESSED_BYTES_MAX};

/// The most that one byte of an element can become: a copy takes 3 bytes for up to 64 (a short one takes
/// 2 for up to 11).
const EXPANSION_MAX: usize = 64usize.div_ceil(3);

/// How many bytes `body` will have decompressed, by its own declaration, checked against the limits and
/// against what so many bytes can become at all: nothing needs to be allocated for a lie.
pub fn decoded_len(body: &[u8]) -> Result<usize, DecodeError> {
    if body.len() > BODY_COMPRESSED_BYTES_MAX {
        return Err(DecodeError::BodyTooLarge(body.len()));
    }
    let (declared, elements) = split_header(body)?;
    if declared > BODY_BYTES_MAX as u64 {
        return Err(DecodeError::DecodedTooLarge(declared));
    }
    let declared = declared as usize;
    if declared > elements.len() * EXPANSION_MAX {
        return Err(DecodeError::Snappy("declares more bytes than its length can hold"));
    }
    Ok(declared)
}

/// The declared length, and the elements behind it. The length has 32 bits, so five bytes at most.
fn split_header(body: &[u8]) -> Result<(u64, &[u8]), DecodeError> {
    let mut declared = 0u64;
    for (i, &byte) in body.iter().take(5).enumerate() {
        declared |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            if declared > u64::from(u32::MAX) {
                break;
            }
            return Ok((declared, &body[i + 1..]));
        }
    }
    Err(DecodeError::Snappy("no valid length in front"))
}

/// Replaces what is in `out` by the decompressed body.
pub(super) fn decompress(body: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let len = decoded_len(body)?;
    // what is left of an earlier body is overwritten, so it need not be cleared first
    out.resize(len, 0);
    snap::raw::Decoder::new()
        .decompress(body, out)
        .map_err(|_| DecodeError::Snappy("damaged or truncated"))?;
    Ok(())
}
