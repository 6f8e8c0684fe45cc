//! Integers in Parquet's encoding `DELTA_BINARY_PACKED`, with random access.
//!
//! ```text
//!   header: values in a block, miniblocks in a block, values, first value
//!   block:  least delta, bits of each miniblock │ miniblock │ miniblock │ …    (deltas minus the least delta)
//! ```
//!
//! Source: "Delta Encoding" in the Parquet format's `Encodings.md`. Each value depends on all earlier ones. So opening
//! a page decodes and checks all values, and keeps each block's offset and preceding value.

use super::bits::{self, GROUP};
use std::ops::Range;
use stdx::varint::{self, unzigzag};

/// Permitted numbers of values in a miniblock. Parquet's writers use 32 or 64.
const MINIBLOCKS_OF: [usize; 2] = [GROUP, 2 * GROUP];

const MINIBLOCKS_MAX: usize = 16;

/// Contents of a page, which [`Packed::open`] passes to its caller: the first value, then the differences between
/// neighbouring values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Steps<'a> {
    First(i64),
    /// A number of differences that are all equal, and their value.
    Alike(usize, i64),
    /// The least of some differences, and by how much each of them exceeds the least.
    Each(i64, &'a [u64]),
}

#[derive(Debug)]
pub(crate) struct Packed {
    bytes: Box<[u8]>,
    blocks: Box<[Block]>,
    first: i64,
    len: usize,
    /// Number of values in a miniblock.
    miniblock: usize,
    miniblocks: usize,
    /// True if the page still has all its blocks.
    whole: bool,
}

#[derive(Debug)]
struct Block {
    /// Last value before the block, to which the block's first difference is added.
    before: i64,
    /// Offset of the block, or [`LEFT_OUT`] if dropped.
    at: u32,
}

const LEFT_OUT: u32 = u32::MAX;

impl Packed {
    /// Opens a page with `len` values, which begin at the offset `at` in `bytes`, and passes them to `see`. Returns
    /// `None` if the bytes are not valid.
    pub(crate) fn open(
        bytes: Vec<u8>,
        at: usize,
        len: usize,
        mut see: Option<&mut dyn FnMut(Steps<'_>)>,
    ) -> Option<Self> {
        let end = u32::try_from(bytes.len()).ok()?;
        let mut rest = bytes.get(at..)?;
        let block = usize::try_from(varint::take(&mut rest)?).ok()?;
        let miniblocks = usize::try_from(varint::take(&mut rest)?).ok()?;
        let count = varint::take(&mut rest)?;
        let first = unzigzag(varint::take(&mut rest)?);
        let mut at = end - rest.len() as u32;
        if !(1..=MINIBLOCKS_MAX).contains(&miniblocks) || count != len as u64 {
            return None;
        }
        let miniblock = block / miniblocks;
        if miniblock * miniblocks != block || !MINIBLOCKS_OF.contains(&miniblock) {
            return None;
        }
        let bytes = bytes.into_boxed_slice();
        let mut packed =
            Self { bytes, blocks: Box::default(), first, len, miniblock, miniblocks, whole: true };
        if let Some(see) = see.as_mut().filter(|_| len > 0) {
            see(Steps::First(first));
        }
        let (mut left, mut value) = (len.saturating_sub(1), first);
        let mut blocks = Vec::with_capacity(left.div_ceil(block).min(end as usize));
        while left > 0 {
            blocks.push(Block { before: value, at });
            at = packed.walk(at, &mut left, &mut value, &mut see)? as u32;
        }
        packed.blocks = blocks.into();
        Some(packed)
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    fn blocks_of(&self, range: &Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let size = self.miniblock * self.miniblocks;
        // the first value is in the header, not in a block
        range.start.max(1).div_ceil(size) - 1..range.end.saturating_sub(1).div_ceil(size)
    }

    /// Drops the blocks without values in `ranges`, if that at least halves the memory.
    pub(crate) fn only(self, ranges: impl Iterator<Item = Range<usize>>) -> Self {
        let mut wanted = vec![false; self.blocks.len()];
        ranges.for_each(|range| wanted[self.blocks_of(&range)].fill(true));
        let ends = self.blocks.iter().skip(1).map(|block| block.at as usize);
        let ends = ends.chain([self.bytes.len()]);
        let parts = self.blocks.iter().zip(ends).zip(wanted);
        let parts: Vec<_> = parts.map(|((block, end), wanted)| (block.at as usize..end, wanted)).collect();
        let len = parts.iter().filter(|(_, wanted)| *wanted).map(|(part, _)| part.len()).sum::<usize>();
        if 2 * len > self.bytes.len() {
            return self;
        }
        let (mut bytes, mut blocks) = (Vec::with_capacity(len), self.blocks);
        for (block, (part, wanted)) in blocks.iter_mut().zip(parts) {
            block.at = if wanted { bytes.len() as u32 } else { LEFT_OUT };
            bytes.extend_from_slice(&self.bytes[if wanted { part } else { 0..0 }]);
        }
        Self { bytes: bytes.into(), blocks, whole: false, ..self }
    }

    /// True if the page still has all blocks with values in `range`.
    pub(crate) fn holds(&self, range: &Range<usize>) -> bool {
        self.whole || self.blocks[self.blocks_of(range)].iter().all(|block| block.at != LEFT_OUT)
    }

    /// Adds the differences of the block at `at` to `value`, and passes them to `see`. Returns the offset of the
    /// block's end.
    fn walk(
        &self,
        at: u32,
        left: &mut usize,
        value: &mut i64,
        see: &mut Option<&mut dyn FnMut(Steps<'_>)>,
    ) -> Option<usize> {
        let (least, widths, mut at) = self.header(at)?;
        let mut group = [0; GROUP];
        for width in widths {
            if *left == 0 {
                break; // the width of an unused miniblock is undefined
            }
            let bytes = self.miniblock / GROUP * bits::group_bytes(*width);
            if *width > 64 || at + bytes > self.bytes.len() {
                return None;
            }
            let len = self.miniblock.min(*left);
            *left -= len;
            *value = value.wrapping_add(least.wrapping_mul(len as i64));
            if *width > 0 {
                for first in (0..len).step_by(GROUP) {
                    bits::unpack(&self.bytes[at + first / 8 * usize::from(*width)..], *width, &mut group);
                    let steps = &group[..GROUP.min(len - first)];
                    *value = value.wrapping_add(sum(steps));
                    if let Some(see) = see {
                        see(Steps::Each(least, steps));
                    }
                }
            } else if let Some(see) = see {
                see(Steps::Alike(len, least));
            }
            at += bytes;
        }
        Some(at)
    }

    /// Parses the header of a block. Returns the least delta, the number of bits of each miniblock, and the offset of
    /// the first miniblock.
    fn header(&self, at: u32) -> Option<(i64, &[u8], usize)> {
        let mut rest = self.bytes.get(at as usize..)?;
        let least = unzigzag(varint::take(&mut rest)?);
        let (widths, rest) = rest.split_at_checked(self.miniblocks)?;
        Some((least, widths, self.bytes.len() - rest.len()))
    }

    /// Appends the values at `range`, which must be [held](Self::holds).
    pub(crate) fn read(&self, range: Range<usize>, out: &mut Vec<i64>) {
        assert!(range.end <= self.len, "BUG: values are read beyond the page's end");
        if range.is_empty() {
            return;
        }
        out.reserve(range.len());
        if range.start == 0 {
            out.push(self.first);
        }
        let blocks = self.blocks_of(&range);
        let (mut first, mut group) = (1 + blocks.start * self.miniblock * self.miniblocks, [0; GROUP]);
        for block in &self.blocks[blocks] {
            let mut value = block.before;
            let (least, widths, mut at) =
                self.header(block.at).expect("BUG: the header of a block that was checked cannot be read");
            for width in widths {
                for _ in 0..self.miniblock / GROUP {
                    if first >= range.end {
                        return;
                    }
                    bits::unpack(&self.bytes[at..], *width, &mut group);
                    if first + GROUP <= range.start {
                        let steps = sum(&group).wrapping_add(least.wrapping_mul(GROUP as i64));
                        value = value.wrapping_add(steps);
                    } else {
                        let values = group.map(|more| {
                            value = value.wrapping_add(least).wrapping_add(more as i64);
                            value
                        });
                        let part = range.start.saturating_sub(first)..GROUP.min(range.end - first);
                        out.extend_from_slice(&values[part]);
                    }
                    first += GROUP;
                    at += bits::group_bytes(*width);
                }
            }
        }
    }

    /// Narrows `range`, in which values ascend, to values between `from` and `to`, rounded to whole blocks.
    pub(crate) fn narrow(&self, range: Range<usize>, from: i64, to: i64) -> Range<usize> {
        let size = self.miniblock * self.miniblocks;
        // the first value of block `b` follows the value at the index `b * size` of the page
        let known = range.start.div_ceil(size)..range.end.div_ceil(size).min(self.blocks.len());
        let Some(blocks) = self.blocks.get(known.clone()) else { return range };
        let below = blocks.partition_point(|b| b.before < from);
        let within = blocks.partition_point(|b| b.before <= to);
        let start = match below {
            0 => range.start,
            below => (known.start + below - 1) * size + 1,
        };
        let end = if within < blocks.len() { (known.start + within) * size } else { range.end };
        start..end.max(start)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.blocks)
    }
}

fn sum(steps: &[u64]) -> i64 {
    let sum = |steps: &[u64]| steps.iter().fold(0u64, |sum, step| sum.wrapping_add(*step)) as i64;
    // most groups have this length, for which the compiler can optimise
    match <&[u64; GROUP]>::try_from(steps) {
        Ok(group) => sum(group),
        Err(_) => sum(steps),
    }
}

#[cfg(test)]
mod tests;
