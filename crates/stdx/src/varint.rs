//! Integers of variable length (LEB128). Signed numbers are mapped to unsigned ones by zigzag.

/// No number takes more than this many bytes.
pub const BYTES_MAX: usize = 10;

/// Appends `n`. Each byte has seven bits, and the lowest bits come first.
#[inline]
pub fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

#[inline]
pub const fn len(n: u64) -> usize {
    // most numbers take one byte
    if n < 0x80 { 1 } else { (64 - n.leading_zeros() as usize).div_ceil(7) }
}

/// Takes a number off the front of `from`. If the number is incomplete or has more than 64 bits, returns
/// `None` and leaves `from` unchanged. Callers can tell these cases apart: an incomplete number has fewer
/// than [`BYTES_MAX`] bytes in `from`.
#[inline]
pub fn take(from: &mut &[u8]) -> Option<u64> {
    match **from {
        [byte, ref rest @ ..] if byte < 0x80 => {
            *from = rest;
            Some(byte.into())
        }
        _ => take_long(from),
    }
}

fn take_long(from: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for (i, &byte) in from.iter().take(BYTES_MAX).enumerate() {
        // the last byte has a single bit of the number, which is the 64th
        if i == BYTES_MAX - 1 && byte > 1 {
            return None;
        }
        n |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *from = &from[i + 1..];
            return Some(n);
        }
    }
    None
}

/// Maps signed numbers to unsigned ones so that small ones stay small: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub const fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub const fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_truncation_is_noticed() {
        let check = |n, expected: &[u8]| {
            let mut out = Vec::new();
            put(&mut out, n);
            assert_eq!((out.as_slice(), len(n)), (expected, expected.len()), "{n}");
            out.push(7);
            let mut rest = out.as_slice();
            assert_eq!((take(&mut rest), rest), (Some(n), &[7][..]));
            for len in 0..expected.len() {
                let mut rest = &expected[..len];
                assert_eq!((take(&mut rest), rest.len()), (None, len), "{n} cut short");
            }
        };
        check(0, &[0]);
        check(127, &[0x7f]);
        check(128, &[0x80, 1]);
        check(300, &[0xac, 2]);
        check(1 << 63, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]);
        check(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn more_than_64_bits() {
        for last in [2, 0x7f, 0x80, 0x81, 0xff] {
            let bytes = [&[0xff; 9][..], &[last, 0]].concat();
            let mut rest = bytes.as_slice();
            assert_eq!((take(&mut rest), rest.len()), (None, 11), "{last:x}");
        }
    }

    #[test]
    fn zigzag_round_trips() {
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
        for n in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(n)), n);
        }
    }
}
