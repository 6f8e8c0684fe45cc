//! Levels and dictionary indexes in Parquet's hybrid of run lengths and bit packing.
//!
//! ```text
//!   run:  2 × count      │ number          `count` repetitions of the number
//!   bits: 2 × eights + 1 │ packed bits     `eights` groups of eight numbers
//! ```
//!
//! Source: "Run Length Encoding / Bit-Packing Hybrid" in the Parquet format's `Encodings.md`.

use super::bits::{self, GROUP};
use std::ops::Range;
use stdx::varint;

const WIDTH_MAX: u8 = 32;

/// Appends `len` dictionary indexes; `None` if there are fewer.
pub(crate) fn indexes(values: &[u8], len: usize, out: &mut Vec<u32>) -> Option<()> {
    // a page without values has no width
    if len == 0 {
        return Some(());
    }
    let (width, bytes) = values.split_first()?;
    decode(bytes, *width, len, out)
}

/// Appends `len` numbers of `width` bits; `None` if there are fewer.
pub(crate) fn decode(bytes: &[u8], width: u8, len: usize, out: &mut Vec<u32>) -> Option<()> {
    each_run(bytes, width, len, |run, count| match run {
        Run::Alike(number) => out.extend(std::iter::repeat_n(number, count)),
        Run::Packed(bytes) => each_group(bytes, width, 0..count, |numbers| {
            out.extend(numbers.iter().map(|number| *number as u32));
        }),
    })
}

/// Sum of `len` one-bit numbers; `None` if there are fewer.
pub(crate) fn ones(bytes: &[u8], len: usize) -> Option<usize> {
    let mut sum = 0;
    each_run(bytes, 1, len, |run, count| match run {
        Run::Alike(number) => sum += count * number as usize,
        Run::Packed(bytes) => each_group(bytes, 1, 0..count, |numbers| {
            sum += numbers.iter().sum::<u64>() as usize;
        }),
    })?;
    Some(sum)
}

/// Splits `len` encoded numbers into runs, and passes each run to `each` with the number of its values.
fn each_run<'a>(
    mut bytes: &'a [u8],
    width: u8,
    len: usize,
    mut each: impl FnMut(Run<'a>, usize),
) -> Option<()> {
    let mut left = len;
    while left > 0 {
        let (run, count) = Run::take(&mut bytes, width)?;
        let some = count.min(left);
        left -= some;
        each(run, some);
    }
    Some(())
}

/// Encoded dictionary indexes, readable from any position.
#[derive(Debug)]
pub(crate) struct Indexes {
    bytes: Box<[u8]>,
    width: u8,
    len: usize,
    runs: Box<[Start]>,
}

/// Start of a run: the position of its first number among all numbers, and the offset of its bytes.
#[derive(Debug)]
struct Start {
    first: u32,
    at: u32,
}

impl Indexes {
    /// Opens `len` dictionary indexes, which begin at the offset `at` in `bytes`. Returns `None` if there are fewer, or
    /// if an index is not below `bound`.
    pub(crate) fn open(bytes: Vec<u8>, at: usize, len: usize, bound: usize) -> Option<Self> {
        u32::try_from(len.max(bytes.len())).ok()?;
        let mut rest = bytes.get(at..)?;
        let (mut width, mut runs, mut first) = (0, Vec::new(), 0);
        if len > 0 {
            (width, rest) = rest.split_first().map(|(width, rest)| (*width, rest))?;
        }
        while first < len {
            runs.push(Start { first: first as u32, at: (bytes.len() - rest.len()) as u32 });
            let (run, count) = Run::take(&mut rest, width)?;
            let count = count.min(len - first);
            let mut last = 0;
            match run {
                Run::Alike(number) => last = number.into(),
                Run::Packed(bytes) => each_group(bytes, width, 0..count, |numbers| {
                    last = numbers.iter().fold(last, |last, number| last.max(*number));
                }),
            }
            if last >= bound as u64 {
                return None;
            }
            first += count;
        }
        Some(Self { bytes: bytes.into(), width, len, runs: runs.into() })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Passes the dictionary indexes at the positions in `range` to `each`. An index that is repeated is passed once,
    /// with the number of repetitions.
    pub(crate) fn read(&self, range: Range<usize>, mut each: impl FnMut(usize, usize)) {
        assert!(range.end <= self.len, "BUG: indexes are read beyond the page's end");
        let run = self.runs.partition_point(|run| run.first as usize <= range.start).saturating_sub(1);
        for start in &self.runs[run..] {
            let first = start.first as usize;
            if first >= range.end {
                return;
            }
            let mut rest = &self.bytes[start.at as usize..];
            let (run, count) =
                Run::take(&mut rest, self.width).expect("BUG: a run that was checked cannot be read");
            let part = range.start.saturating_sub(first)..count.min(range.end - first);
            match run {
                Run::Alike(number) => each(number as usize, part.len()),
                Run::Packed(bytes) => each_group(bytes, self.width, part, |numbers| {
                    numbers.iter().for_each(|number| each(*number as usize, 1));
                }),
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.runs)
    }
}

enum Run<'a> {
    Alike(u32),
    /// Bit-packed numbers, at the beginning of these bytes.
    Packed(&'a [u8]),
}

impl<'a> Run<'a> {
    /// Takes the first run off `bytes`. Also returns the number of its values, which may be more than are left in the
    /// page.
    fn take(bytes: &mut &'a [u8], width: u8) -> Option<(Self, usize)> {
        if width > WIDTH_MAX {
            return None;
        }
        let header = varint::take(bytes)?;
        let count = usize::try_from(header >> 1).ok().filter(|count| *count > 0)?;
        if header & 1 == 0 {
            let (number, rest) = bytes.split_at_checked(usize::from(width).div_ceil(8))?;
            *bytes = rest;
            let number = number.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            let fits = u64::from(number) >> width == 0;
            return fits.then_some((Self::Alike(number), count));
        }
        let packed = *bytes;
        // numbers are packed in groups of eight
        (_, *bytes) = packed.split_at_checked(count.checked_mul(usize::from(width))?)?;
        Some((Self::Packed(packed), count.checked_mul(8)?))
    }
}

/// Unpacks the numbers at the positions in `range`, and passes them to `each` in groups.
fn each_group(bytes: &[u8], width: u8, range: Range<usize>, mut each: impl FnMut(&[u64])) {
    let mut numbers = [0; GROUP];
    for group in range.start / GROUP..range.end.div_ceil(GROUP) {
        bits::unpack(&bytes[group * bits::group_bytes(width)..], width, &mut numbers);
        let first = group * GROUP;
        each(&numbers[range.start.saturating_sub(first)..GROUP.min(range.end - first)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    fn all(bytes: &[u8], width: u8, len: usize) -> Option<Vec<u32>> {
        let mut out = Vec::new();
        let decoded = decode(bytes, width, len, &mut out).map(|()| out);
        if width == 1 {
            let sum = |numbers: &Vec<u32>| numbers.iter().sum::<u32>() as usize;
            assert_eq!(ones(bytes, len), decoded.as_ref().map(sum));
        }
        decoded
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
    fn bit_packed_groups_of_each_width_at_each_position() {
        let mut rng = Rng::announced();
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
            assert_eq!((indexes(&values, numbers.len(), &mut out), &out), (Some(()), &numbers));
            from_the_middle(&mut rng, &values, &numbers);
        }
        let mut out = Vec::new();
        assert_eq!((indexes(&[], 0, &mut out), indexes(&[], 1, &mut out)), (Some(()), None));
    }

    /// Reads from random positions, and checks that indexes which reach the bound are refused.
    fn from_the_middle(rng: &mut Rng, values: &[u8], numbers: &[u32]) {
        let (len, bound) = (numbers.len(), *numbers.iter().max().unwrap() as usize + 1);
        let open = |len, bound| Indexes::open([&[9, 9], values].concat(), 2, len, bound);
        assert!(open(len, bound - 1).is_none() && open(len + 1, bound).is_none());
        let indexes = open(len, bound).unwrap();
        for _ in 0..20 {
            let start = rng.below(len as u64 + 1) as usize;
            let range = start..start + rng.below((len - start) as u64 + 1) as usize;
            let mut out = Vec::new();
            indexes.read(range.clone(), |index, count| out.extend(vec![index as u32; count]));
            assert_eq!(out, numbers[range.clone()], "{range:?} of {len}");
        }
    }

    #[test]
    fn an_empty_page_has_no_indexes() {
        let none = Indexes::open(vec![1, 2], 2, 0, 0).unwrap();
        none.read(0..0, |_, _| panic!("an empty page returned an index"));
        assert!(Indexes::open(vec![1, 2], 3, 0, 0).is_none());
    }

    #[test]
    fn truncated_files_are_reported() {
        assert_eq!(all(&[2 << 1, 5], 3, 3), None);
        assert_eq!(all(&[2 << 1], 3, 2), None);
        assert_eq!(all(&[3, 1, 1], 3, 8), None);
        assert_eq!(all(&[0, 1], 3, 1), None);
        assert_eq!(all(&[1], 3, 1), None);
        assert_eq!(all(&[0xff; 12], 33, 1), None);
        assert_eq!(
            (all(&[2, 2], 1, 1), all(&[2, 1], 1, 1)),
            (None, Some(vec![1])),
            "a number of two bits exceeds the width of one bit"
        );
    }
}
