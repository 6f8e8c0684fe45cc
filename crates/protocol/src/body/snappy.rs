//! Decompresses snappy blocks.
//!
//! Format: <https://github.com/google/snappy/blob/main/format_description.txt>. A block starts with its
//! decompressed length as a varint. The rest is a sequence of elements, and the low two bits of an element's
//! first byte say of which kind it is:
//!
//! ```text
//!   00  literal     length - 1 in the upper six bits; with 60 to 63, it is in the 1 to 4 bytes that follow
//!   01  copy        length - 4 in three bits, offset in three more bits and a byte
//!   10  copy        length - 1 in six bits, offset in two bytes
//!   11  copy        length - 1 in six bits, offset in four bytes
//! ```
//!
//! For speed, the common path always moves 16, 32 or 64 bytes, even if an element is shorter. It therefore
//! needs unsafe code, and spare memory after the end of the output. It takes three quarters of the time of
//! the `snap` crate (`benches/decode.rs`).

use crate::DecodeError;
use model::caps::{BODY_BYTES_MAX, BODY_COMPRESSED_BYTES_MAX};
use std::mem::MaybeUninit;
use stdx::budget::IncrementalReservation;

/// The kinds of elements on the common path. Copies with a four-byte offset are rare, so they have no
/// constant.
const LITERAL: u8 = 0;
const COPY_1: u8 = 1;
const COPY_2: u8 = 2;

/// A literal stores its length in six bits. Values from 60 on mean that the length is in the next 1 to 4
/// bytes instead.
const LITERAL_LONG: usize = 60;

/// The most compact element is a copy, which expands 3 bytes to 64. No body can expand by a larger factor.
const EXPANSION_MAX: usize = 64usize.div_ceil(3);

const MOVE: usize = 64;

/// The common path reads at most this many input bytes for an element: a tag, then an offset or a literal of
/// up to 64 bytes.
const LOOK_AHEAD: usize = 1 + MOVE;

/// Memory is reserved in multiples of this size, so that buffers are rarely reallocated.
const RESERVE_STEP: usize = 1 << 16;

/// Returns the decompressed length that `body` declares. Fails if the length exceeds a limit, or if so few
/// compressed bytes could never expand to it.
pub(super) fn decoded_len(body: &[u8]) -> Result<usize, DecodeError> {
    split_header(body).map(|(len, _)| len)
}

/// Splits a body into its declared length, which must fit into 32 bits, and its elements.
fn split_header(body: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    if body.len() > BODY_COMPRESSED_BYTES_MAX {
        return Err(DecodeError::BodyTooLarge(body.len()));
    }
    let Some(last) = body.iter().take(5).position(|byte| *byte < 0x80) else {
        return Err(DecodeError::Snappy("no valid length at the start"));
    };
    let (header, elements) = body.split_at(last + 1);
    let declared = header.iter().rev().fold(0u64, |n, byte| n << 7 | u64::from(byte & 0x7f));
    if declared > BODY_BYTES_MAX as u64 {
        return Err(DecodeError::DecodedTooLarge(declared));
    }
    let declared = declared as usize;
    if declared > elements.len() * EXPANSION_MAX {
        return Err(DecodeError::Snappy("declared length is larger than the body can expand to"));
    }
    Ok((declared, elements))
}

/// Replaces the contents of `out` with the decompressed body. After an error, `out` is empty or unchanged.
pub fn decompress(body: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    decompress_into(body, out, |out, capacity| {
        out.reserve_exact(capacity);
        Ok(())
    })
}

/// Like [`decompress`], but reserves the memory from `reservation`.
pub(super) fn decompress_reserved(
    body: &[u8],
    out: &mut Vec<u8>,
    reservation: &mut IncrementalReservation<'_>,
) -> Result<(), DecodeError> {
    decompress_into(body, out, |out, capacity| Ok(reservation.grow(out, capacity)?))
}

fn decompress_into(
    body: &[u8],
    out: &mut Vec<u8>,
    grow: impl FnOnce(&mut Vec<u8>, usize) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let (len, elements) = split_header(body)?;
    out.clear();
    let room = len + MOVE;
    if out.capacity() < room {
        grow(out, room.next_multiple_of(RESERVE_STEP))?;
    }
    assert!(out.capacity() >= room, "BUG: the output has no room for the body");
    let mut expansion = Expansion { elements, at: 0, out: out.as_mut_ptr(), done: 0, len };
    // SAFETY: `out` has room for `len + MOVE` bytes and is not touched while `expansion` lives.
    if !unsafe { expansion.run() } {
        return Err(DecodeError::Snappy("damaged or truncated"));
    }
    // SAFETY: `run` returned true, so each of the `len` bytes was written.
    unsafe { out.set_len(len) };
    Ok(())
}

/// State of a decompression. Invariants: `at <= elements.len()`; `done <= len`; the first `done` bytes at
/// `out` are written; `out` is valid for reads and writes of `len + MOVE` bytes.
struct Expansion<'a> {
    elements: &'a [u8],
    at: usize,
    out: *mut u8,
    done: usize,
    len: usize,
}

impl Expansion<'_> {
    /// Expands all elements. Returns false if they are invalid or do not expand to `len` bytes.
    ///
    /// # Safety
    ///
    /// The invariants of the type hold.
    unsafe fn run(&mut self) -> bool {
        while self.at < self.elements.len() {
            // SAFETY: the invariants hold before and after each of the two calls.
            if !unsafe { self.short_elements() && self.element() } {
                return false;
            }
        }
        self.done == self.len
    }

    /// The common path: expands elements of up to 64 bytes, far from the end of the input.
    ///
    /// # Safety
    ///
    /// The invariants of the type hold.
    #[inline(always)]
    unsafe fn short_elements(&mut self) -> bool {
        let Self { elements, out, len, .. } = *self;
        let (mut at, mut done) = (self.at, self.done);
        while elements.len() - at > LOOK_AHEAD {
            // SAFETY: More than 65 bytes of input are left: a tag, and an offset or a literal of up to 64
            // bytes. The output has `MOVE` bytes behind `len`, and the checks against `left` ensure `done <=
            // len`. A copy starts within the written bytes. Bytes moved from after `done` are never counted
            // as written.
            unsafe {
                let input = elements.as_ptr().add(at);
                let to = out.add(done);
                let (tag, left) = (*input, len - done);
                let (kind, bits) = (tag & 3, usize::from(tag >> 2));
                let length;
                if kind == COPY_2 {
                    length = bits + 1;
                    let offset = usize::from(u16::from_le(input.add(1).cast::<u16>().read_unaligned()));
                    at += 3;
                    if length > left || offset.wrapping_sub(1) >= done {
                        return false;
                    }
                    if offset < length.min(16) {
                        repeat(to, offset, length);
                    } else {
                        move_up_to_64(to.sub(offset), to, length);
                    }
                } else if kind == LITERAL {
                    if bits >= LITERAL_LONG {
                        break;
                    }
                    length = bits + 1;
                    if length > left {
                        return false;
                    }
                    move_up_to_64(input.add(1), to, length);
                    at += 1 + length;
                } else if kind == COPY_1 {
                    length = (bits & 7) + 4;
                    let offset = (bits >> 3) << 8 | usize::from(*input.add(1));
                    at += 2;
                    if length > left || offset.wrapping_sub(1) >= done {
                        return false;
                    }
                    if offset < length {
                        repeat(to, offset, length);
                    } else {
                        move_16(to.sub(offset), to);
                    }
                } else {
                    break;
                }
                done += length;
            }
        }
        (self.at, self.done) = (at, done);
        true
    }

    /// Expands one element of any kind, and checks each access.
    ///
    /// # Safety
    ///
    /// The invariants of the type hold.
    unsafe fn element(&mut self) -> bool {
        let Some((&tag, rest)) = self.elements[self.at..].split_first() else { return true };
        let bits = usize::from(tag >> 2);
        let number = |bytes: usize| {
            let bytes = rest.get(..bytes)?;
            Some(bytes.iter().rev().fold(0usize, |n, byte| n << 8 | usize::from(*byte)))
        };
        let room = self.len - self.done;
        if tag & 3 == LITERAL {
            let trailer = (bits + 1).saturating_sub(LITERAL_LONG);
            let Some(length) = (if trailer == 0 { Some(bits) } else { number(trailer) }) else {
                return false;
            };
            let length = length + 1;
            let Some(literal) = rest.get(trailer..).and_then(|r| r.get(..length)) else { return false };
            if length > room {
                return false;
            }
            // SAFETY: `length` bytes are left in the output, and the literal is within the input.
            unsafe { self.out.add(self.done).copy_from_nonoverlapping(literal.as_ptr(), length) };
            self.at += 1 + trailer + length;
            self.done += length;
            return true;
        }
        let trailer = [0, 1, 2, 4][usize::from(tag & 3)];
        let Some(offset) = number(trailer) else { return false };
        let (length, offset) = match trailer {
            1 => ((bits & 7) + 4, offset | (bits >> 3) << 8),
            _ => (bits + 1, offset),
        };
        if length > room || offset == 0 || offset > self.done {
            return false;
        }
        // SAFETY: `length` bytes are left in the output, and the copy starts within the written bytes.
        unsafe { repeat(self.out.add(self.done), offset, length) };
        self.at += 1 + trailer;
        self.done += length;
        true
    }
}

/// Copies `length` bytes one by one, from `offset` bytes before `to`. If `offset` is less than `length`, the
/// copy also repeats bytes that it has just written.
///
/// # Safety
///
/// The bytes from `to - offset` to `to + length` are valid, and those before `to` are written.
#[inline(never)]
unsafe fn repeat(to: *mut u8, offset: usize, length: usize) {
    for i in 0..length {
        // SAFETY: as the caller promises.
        unsafe { *to.add(i) = *to.add(i).sub(offset) };
    }
}

/// Moves 32 bytes, or 64 if `length` is above 32, in ascending steps of 16. The source must begin at least
/// `length.min(16)` bytes before `to`, or not overlap the target.
///
/// # Safety
///
/// 64 bytes are valid at both addresses.
#[inline(always)]
unsafe fn move_up_to_64(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        move_16(from, to);
        move_16(from.add(16), to.add(16));
        if length > 32 {
            move_16(from.add(32), to.add(32));
            move_16(from.add(48), to.add(48));
        }
    }
}

/// Moves 16 bytes through a register, so source and target may overlap.
///
/// # Safety
///
/// 16 bytes are valid at both addresses. They need not be initialized.
#[inline(always)]
unsafe fn move_16(from: *const u8, to: *mut u8) {
    type Bytes = MaybeUninit<[u8; 16]>;
    // SAFETY: as the caller promises.
    unsafe { to.cast::<Bytes>().write_unaligned(from.cast::<Bytes>().read_unaligned()) }
}

#[cfg(test)]
mod tests;
