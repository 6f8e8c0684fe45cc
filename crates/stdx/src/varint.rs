//! Numbers of as many bytes as they need: LEB128, and zigzag for those with a sign.

/// Appends `n`: seven bits a byte, the lowest first.
#[inline]
pub fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// How many bytes [`put`] appends.
#[inline]
pub const fn len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

/// Small magnitudes to small numbers: 0, -1, 1, -2 become 0, 1, 2, 3.
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
    fn bytes() {
        let check = |n, expected: &[u8]| {
            let mut out = Vec::new();
            put(&mut out, n);
            assert_eq!((out.as_slice(), len(n)), (expected, expected.len()), "{n}");
        };
        check(0, &[0]);
        check(127, &[0x7f]);
        check(128, &[0x80, 1]);
        check(300, &[0xac, 2]);
        check(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn signs() {
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
        for n in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(n)), n);
        }
    }
}
