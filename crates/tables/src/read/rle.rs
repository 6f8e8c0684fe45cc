//! Small numbers in Parquet's hybrid of runs and packed bits.
//!
//! Source: "Run Length Encoding / Bit-Packing Hybrid" in the Parquet format's `Encodings.md`.

use super::packed::varint;

/// Gives the `len` numbers of `width` bits to `each`. `None` where the bytes hold fewer.
pub(super) fn decode(bytes: &[u8], width: u8, len: usize, mut each: impl FnMut(u32)) -> Option<()> {
    if width > 32 {
        return None;
    }
    let (width, mut at, mut left) = (usize::from(width), 0, len);
    while left > 0 {
        let header = varint(bytes, &mut at)?;
        let count = usize::try_from(header >> 1).ok()?;
        if header & 1 == 0 {
            let value = bytes.get(at..at + width.div_ceil(8))?;
            let value = value.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            at += width.div_ceil(8);
            let count = count.min(left);
            (0..count).for_each(|_| each(value));
            left -= count;
            if count == 0 {
                return None;
            }
        } else {
            // groups of eight
            let packed = bytes.get(at..at.checked_add(count.checked_mul(width)?)?)?;
            let count = count.checked_mul(8)?.min(left);
            for bit in (0..count).map(|i| i * width) {
                let mut word = [0; 8];
                let rest = &packed[bit / 8..packed.len().min(bit / 8 + 8)];
                word[..rest.len()].copy_from_slice(rest);
                each(((u64::from_le_bytes(word) >> (bit % 8)) & ((1 << width) - 1)) as u32);
            }
            at += packed.len();
            left -= count;
            if count == 0 {
                return None;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], width: u8, len: usize) -> Option<Vec<u32>> {
        let mut out = Vec::new();
        decode(bytes, width, len, |n| out.push(n))?;
        Some(out)
    }

    #[test]
    fn runs_and_bits() {
        assert_eq!(all(&[2 << 1, 5, 3, 0b1000_1000, 0b1100_0110, 0b1111_1010], 3, 9), {
            Some(vec![5, 5, 0, 1, 2, 3, 4, 5, 6])
        });
        assert_eq!(all(&[3 << 1, 0x34, 0x12], 13, 3), Some(vec![0x1234; 3]));
        assert_eq!(all(&[4 << 1], 0, 4), Some(vec![0; 4]));
        assert_eq!(all(&[], 1, 0), Some(vec![]));
    }

    #[test]
    fn what_is_cut_short_is_told() {
        assert_eq!(all(&[2 << 1, 5], 3, 3), None);
        assert_eq!(all(&[2 << 1], 3, 2), None);
        assert_eq!(all(&[3, 1, 1], 3, 8), None);
        assert_eq!(all(&[0, 1], 3, 1), None);
        assert_eq!(all(&[1], 3, 1), None);
        assert_eq!(all(&[0xff; 12], 33, 1), None);
    }
}
