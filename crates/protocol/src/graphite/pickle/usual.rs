//! Pickles of the form that Python's picklers give to most lists of points. Such a list needs neither the stack nor the memo of the
//! machine.
//!
//! ```text
//!   pickle   [PROTO] [FRAME] EMPTY_LIST [put] part… STOP
//!   part     MARK point… APPENDS | point APPEND
//!   point    path [put] time value TUPLE2 [put] TUPLE2 [put]
//! ```
//!
//! `put` memoizes an object under the next free number. As nothing is recalled, the objects need not be kept.

use super::machine::{List, MEMO_MAX, PROTOCOL_MAX, STACK_MAX, Sample, Stop, Text};
use super::opcodes::allowed as op;
use crate::graphite::number::seconds_ms;

/// Bytes of the opcode FRAME. Its argument only says how many bytes to read ahead.
const FRAME_BYTES: usize = 9;

/// Of longer pickles, Python begins a new frame after about as many bytes, usually within a point.
const ONE_FRAME_BYTES: usize = 64 << 10;

/// Bytes of the opcode BINFLOAT with its number.
const FLOAT_BYTES: usize = 1 + size_of::<f64>();

/// Reads a whole pickle. Returns false if it has another form, or more objects than the machine may have. Then some of its points
/// may have been added.
pub(super) fn read(pickle: &[u8], list: &mut List<'_, '_, '_>) -> Result<bool, Stop> {
    let mut at = match *pickle {
        [op::PROTO, version, ..] if version <= PROTOCOL_MAX => 2,
        _ => 0,
    };
    if pickle.get(at) == Some(&op::FRAME) {
        if pickle.len() > ONE_FRAME_BYTES {
            return Ok(false);
        }
        at += FRAME_BYTES;
    }
    if pickle.get(at) != Some(&op::EMPTY_LIST) {
        return Ok(false);
    }
    at += 1;
    let list_put = put_bytes(&pickle[at..], 0);
    at += list_put.unwrap_or(0);
    let mut memoized = usize::from(list_put.is_some());
    while let Some(opcode) = pickle.get(at) {
        let (is_single, points_max) = match *opcode {
            op::STOP => return Ok(true),
            // besides the points, the stack has the list, the mark, and three objects of the last point
            op::MARK => (false, STACK_MAX - 5),
            _ => (true, 1),
        };
        at += usize::from(!is_single);
        let mut points = 0;
        while let Some(usual) = Usual::at(pickle, at, memoized).filter(|_| points < points_max) {
            memoized += usual.memoized();
            if memoized > MEMO_MAX {
                return Ok(false);
            }
            list.add(&pickle[usual.path.range()], usual.sample)?;
            (at, points) = (usual.end, points + 1);
        }
        let end = if is_single { op::APPEND } else { op::APPENDS };
        if pickle.get(at) != Some(&end) || is_single && points == 0 {
            return Ok(false);
        }
        at += 1;
    }
    Ok(false)
}

/// A point of tuples whose path, time and value follow each other, and whose two tuples end right after them. Either all three are
/// memoized, under the next free numbers, or none is.
pub(super) struct Usual {
    pub(super) path: Text,
    pub(super) sample: Sample,
    pub(super) is_memoized: bool,
    /// Where the next opcode begins.
    pub(super) end: usize,
}

impl Usual {
    /// Reads the point at `at`. `free` is the number of the next object that is memoized.
    #[inline(always)]
    pub(super) fn at(pickle: &[u8], at: usize, free: usize) -> Option<Self> {
        let rest = &pickle[at..];
        let (start, length) = match *rest {
            [op::BINUNICODE, a, b, c, d, ..] => (5, u32::from_le_bytes([a, b, c, d]) as usize),
            [op::SHORT_BINUNICODE | op::SHORT_BINSTRING, length, ..] => (2, usize::from(length)),
            _ => return None,
        };
        let mut rest = rest.get(start..)?.get(length..)?;
        let path = Text::of(&(at + start..at + start + length), false);
        let first = put_bytes(rest, free);
        let is_memoized = first.is_some();
        rest = &rest[first.unwrap_or(0)..];
        let timestamp_ms = match *rest {
            [op::BININT, a, b, c, d, ..] => {
                rest = &rest[5..];
                i64::from(i32::from_le_bytes([a, b, c, d])) * 1000
            }
            [op::BINFLOAT, ..] => {
                let seconds = float(rest)?;
                rest = &rest[FLOAT_BYTES..];
                seconds_ms(seconds)?
            }
            _ => return None,
        };
        let value = match *rest {
            [op::BININT1, value, ..] => {
                rest = &rest[2..];
                f64::from(value)
            }
            [op::BININT2, a, b, ..] => {
                rest = &rest[3..];
                f64::from(u16::from_le_bytes([a, b]))
            }
            [op::BININT, a, b, c, d, ..] => {
                rest = &rest[5..];
                f64::from(i32::from_le_bytes([a, b, c, d]))
            }
            _ => {
                let value = float(rest)?;
                rest = &rest[FLOAT_BYTES..];
                value
            }
        };
        for number in [free + 1, free + 2] {
            let [op::TUPLE2, after @ ..] = rest else { return None };
            rest = after;
            if is_memoized {
                rest = &rest[put_bytes(rest, number)?..];
            }
        }
        let sample = Sample { timestamp_ms, value };
        Some(Self { path, sample, is_memoized, end: pickle.len() - rest.len() })
    }

    /// Number of objects that are memoized.
    const fn memoized(&self) -> usize {
        if self.is_memoized { 3 } else { 0 }
    }
}

#[inline(always)]
fn float(bytes: &[u8]) -> Option<f64> {
    match bytes.first_chunk::<FLOAT_BYTES>()? {
        [op::BINFLOAT, number @ ..] => Some(f64::from_be_bytes(*number)),
        _ => None,
    }
}

/// Returns the length of an opcode that memoizes an object under this number. `None` if `bytes` begin with another opcode.
#[inline(always)]
fn put_bytes(bytes: &[u8], number: usize) -> Option<usize> {
    match *bytes {
        [op::LONG_BINPUT, a, b, c, d, ..] if u32::from_le_bytes([a, b, c, d]) as usize == number => Some(5),
        [op::BINPUT, given, ..] if usize::from(given) == number => Some(2),
        [op::MEMOIZE, ..] => Some(1),
        _ => None,
    }
}
