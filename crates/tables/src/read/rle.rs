//! Small numbers in Parquet's hybrid of runs and packed bits: levels, and places in a dictionary.
//!
//! Source: "Run Length Encoding / Bit-Packing Hybrid" in the Parquet format's `Encodings.md`.

use super::bits::{self, GROUP, PADDING};
use super::packed::varint;

/// Bits of a number, at the most.
const WIDTH_MAX: u8 = 32;

/// Appends the `len` places in a dictionary that a page's values are. `None` where the bytes hold fewer.
pub(super) fn places(values: &[u8], len: usize, out: &mut Vec<u32>) -> Option<()> {
    // a page without values has not even their width
    if len == 0 {
        return Some(());
    }
    let (width, bytes) = values.split_first()?;
    decode(bytes, *width, len, out)
}

/// Appends `len` numbers of `width` bits. `None` where the bytes hold fewer.
pub(super) fn decode(bytes: &[u8], width: u8, len: usize, out: &mut Vec<u32>) -> Option<()> {
    if width > WIDTH_MAX {
        return None;
    }
    let (mut at, mut left) = (0, len);
    while left > 0 {
        let header = varint(bytes, &mut at)?;
        let count = usize::try_from(header >> 1).ok().filter(|count| *count > 0)?;
        if header & 1 == 0 {
            let value = bytes.get(at..at + usize::from(width).div_ceil(8))?;
            at += value.len();
            let value = value.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            let count = count.min(left);
            out.extend(std::iter::repeat_n(value, count));
            left -= count;
        } else {
            // they come by eight
            let packed = count.checked_mul(usize::from(width)).and_then(|len| bytes[at..].get(..len))?;
            let count = count.checked_mul(8)?.min(left);
            unpack(&bytes[at..], packed.len(), width, count, out);
            at += packed.len();
            left -= count;
        }
    }
    Some(())
}

/// Appends `count` numbers, which are packed into the first `len` of `bytes`.
fn unpack(bytes: &[u8], len: usize, width: u8, count: usize, out: &mut Vec<u32>) {
    let (size, mut numbers) = (bits::group_bytes(width), [0; GROUP]);
    for group in 0..count.div_ceil(GROUP) {
        let at = group * size;
        if bytes[at..].len() >= size + PADDING {
            bits::unpack(&bytes[at..], width, &mut numbers);
        } else {
            let mut end = [0; bits::group_bytes(WIDTH_MAX) + PADDING];
            let rest = &bytes[at..len.min(at + size)];
            end[..rest.len()].copy_from_slice(rest);
            bits::unpack(&end, width, &mut numbers);
        }
        let some = GROUP.min(count - group * GROUP);
        out.extend(numbers[..some].iter().map(|number| *number as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    fn all(bytes: &[u8], width: u8, len: usize) -> Option<Vec<u32>> {
        let mut out = Vec::new();
        decode(bytes, width, len, &mut out)?;
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

    /// Groups with something behind them, and at the end; a run of one between them.
    #[test]
    fn bits_of_each_width_in_each_place() {
        let seed = Rng::fresh_seed();
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        for width in 1..=32 {
            let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
            for eights in [1, 3, 4, 9, 63, 1 + rng.below(20) as usize] {
                let some: Vec<u32> = (0..8 * eights).map(|_| rng.next_u64() as u32 >> (32 - width)).collect();
                bytes.extend([eights as u8 * 2 + 1]);
                let bit = |i: usize| some[i / usize::from(width)] >> (i % usize::from(width)) & 1;
                bytes.extend(
                    (0..eights * usize::from(width))
                        .map(|byte| (0..8).fold(0, |sum, i| sum | (bit(8 * byte + i) as u8) << i)),
                );
                numbers.extend(some);
                let run = rng.next_u64() as u32 >> (32 - width);
                bytes.push(2);
                bytes.extend_from_slice(&run.to_le_bytes()[..usize::from(width).div_ceil(8)]);
                numbers.push(run);
            }
            for len in [numbers.len(), numbers.len() - 1, numbers.len() / 2, 1] {
                assert_eq!(all(&bytes, width, len).as_deref(), Some(&numbers[..len]), "{width} bits");
            }
            let values: Vec<u8> = [width].into_iter().chain(bytes).collect();
            let mut out = Vec::new();
            assert_eq!((places(&values, numbers.len(), &mut out), &out), (Some(()), &numbers));
        }
        let mut out = Vec::new();
        assert_eq!((places(&[], 0, &mut out), places(&[], 1, &mut out)), (Some(()), None));
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
