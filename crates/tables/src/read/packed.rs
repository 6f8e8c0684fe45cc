//! Integers in Parquet's encoding `DELTA_BINARY_PACKED`, to be read from anywhere in the middle.
//!
//! ```text
//!   header: values in a block, miniblocks in a block, values, first value
//!   block:  least delta, bits of each miniblock │ miniblock │ miniblock │ …    (deltas less the least one)
//! ```
//!
//! Source: "Delta Encoding" in the Parquet format's `Encodings.md`. Values depend on all before them, so opening
//! walks through all of them once, checks the bytes, and keeps where each block begins and the value before it.

use std::ops::Range;

/// Values of a miniblock that are decoded together; Parquet's writers make them of 32 or 64.
const MINIBLOCK_MAX: usize = 64;

/// Miniblocks in a block.
const MINIBLOCKS_MAX: usize = 16;

/// Zeroes after the last miniblock, so that a value can be cut out of the 16 bytes that it begins in.
const PADDING: usize = 16;

/// The values of one page.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Box<[u8]>,
    blocks: Box<[Block]>,
    first: i64,
    len: usize,
    /// Values in a miniblock, and miniblocks in a block.
    miniblock: usize,
    miniblocks: usize,
}

#[derive(Debug)]
struct Block {
    /// The value before the block's first.
    before: i64,
    /// Where the block begins.
    at: u32,
}

impl Packed {
    /// Opens the `len` values that `bytes` hold, and gives all of them to `each`, in order and some at a time. `None`
    /// where they are not what the encoding says.
    pub(super) fn open(bytes: &[u8], len: usize, mut each: impl FnMut(&[i64])) -> Option<Self> {
        let mut at = 0;
        let block = usize::try_from(varint(bytes, &mut at)?).ok()?;
        let miniblocks = usize::try_from(varint(bytes, &mut at)?).ok()?;
        let count = varint(bytes, &mut at)?;
        let first = zigzag(varint(bytes, &mut at)?);
        if !(1..=MINIBLOCKS_MAX).contains(&miniblocks) || count != len as u64 {
            return None;
        }
        let miniblock = block / miniblocks;
        if miniblock * miniblocks != block || !matches!(miniblock, 32 | MINIBLOCK_MAX) {
            return None;
        }
        u32::try_from(bytes.len()).ok()?;
        let mut padded = Vec::with_capacity(bytes.len() + PADDING);
        padded.extend_from_slice(bytes);
        padded.resize(bytes.len() + PADDING, 0);
        let mut packed =
            Self { bytes: padded.into(), blocks: Box::default(), first, len, miniblock, miniblocks };
        if len > 0 {
            each(&[first]);
        }
        let (mut blocks, mut left, mut value) = (Vec::new(), len.saturating_sub(1), first);
        while left > 0 {
            blocks.push(Block { before: value, at: at as u32 });
            at = packed.walk(at, bytes.len(), &mut left, &mut value, &mut each)?;
        }
        packed.blocks = blocks.into();
        Some(packed)
    }

    /// Decodes a block that begins at `at`; where it ends. The bytes end at `end`.
    fn walk(
        &self,
        at: usize,
        end: usize,
        left: &mut usize,
        value: &mut i64,
        each: &mut impl FnMut(&[i64]),
    ) -> Option<usize> {
        let mut buffer = [0; MINIBLOCK_MAX];
        let (least, widths, mut at) = self.header(at)?;
        for width in widths {
            if *left == 0 {
                break; // its width means nothing
            }
            let bytes = self.miniblock * usize::from(*width) / 8;
            if *width > 64 || at + bytes > end {
                return None;
            }
            let values = &mut buffer[..self.miniblock.min(*left)];
            unpack(&self.bytes[at..], *width, least, value, values);
            each(values);
            *left -= values.len();
            at += bytes;
        }
        Some(at)
    }

    /// The least delta and the miniblocks' widths of the block at `at`, and where its miniblocks begin.
    fn header(&self, mut at: usize) -> Option<(i64, &[u8], usize)> {
        let least = zigzag(varint(&self.bytes, &mut at)?);
        let widths = self.bytes.get(at..at + self.miniblocks)?;
        Some((least, widths, at + self.miniblocks))
    }

    /// Appends the values of `range`, by their place in the page.
    pub(super) fn read(&self, range: Range<usize>, out: &mut Vec<i64>) {
        assert!(range.end <= self.len, "BUG: values beyond the page's end");
        if range.is_empty() {
            return;
        }
        out.reserve(range.len());
        if range.start == 0 {
            out.push(self.first);
        }
        let size = self.miniblock * self.miniblocks;
        let block = range.start.max(1).div_ceil(size) - 1;
        let mut buffer = [0; MINIBLOCK_MAX];
        for (number, block) in self.blocks.iter().enumerate().skip(block) {
            let mut value = block.before;
            let (least, widths, mut at) = self.header(block.at as usize).expect("BUG: it was walked before");
            for (m, width) in widths.iter().enumerate() {
                // the value at 0 is in the header
                let first = 1 + number * size + m * self.miniblock;
                if first >= range.end {
                    return;
                }
                let len = self.miniblock.min(range.end - first);
                if first >= range.start {
                    let from = out.len();
                    out.resize(from + len, 0);
                    unpack(&self.bytes[at..], *width, least, &mut value, &mut out[from..]);
                } else {
                    let values = &mut buffer[..len];
                    unpack(&self.bytes[at..], *width, least, &mut value, values);
                    out.extend_from_slice(&values[(range.start - first).min(len)..]);
                }
                at += self.miniblock * usize::from(*width) / 8;
            }
        }
    }

    /// The part of `range`, in which values ascend, that holds all that lie from `from` to `to`; the ends of blocks
    /// decide, so some of it may lie outside.
    pub(super) fn narrow(&self, range: Range<usize>, from: i64, to: i64) -> Range<usize> {
        let size = self.miniblock * self.miniblocks;
        // the value before block b is the one at b * size
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

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.blocks)
    }
}

/// Adds up the deltas of a miniblock: each `least` more than the `width` bits that stand for it.
fn unpack(bytes: &[u8], width: u8, least: i64, value: &mut i64, out: &mut [i64]) {
    let width = usize::from(width);
    let mut last = *value;
    match width {
        0 => out.iter_mut().for_each(|out| {
            last = last.wrapping_add(least);
            *out = last;
        }),
        // with up to 7 bits before it, it lies in 8 bytes
        1..=57 => {
            let mask = (1u64 << width) - 1;
            for (i, out) in out.iter_mut().enumerate() {
                let bit = i * width;
                let word: [u8; 8] = bytes[bit / 8..bit / 8 + 8].try_into().expect("BUG: 8 bytes are 8");
                let delta = (u64::from_le_bytes(word) >> (bit % 8)) & mask;
                last = last.wrapping_add(least).wrapping_add(delta as i64);
                *out = last;
            }
        }
        _ => {
            let mask = u64::MAX >> (64 - width);
            for (i, out) in out.iter_mut().enumerate() {
                let bit = i * width;
                let word: [u8; 16] = bytes[bit / 8..bit / 8 + 16].try_into().expect("BUG: 16 bytes are 16");
                let delta = (u128::from_le_bytes(word) >> (bit % 8)) as u64 & mask;
                last = last.wrapping_add(least).wrapping_add(delta as i64);
                *out = last;
            }
        }
    }
    *value = last;
}

/// An unsigned LEB128 number.
pub(super) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The signed number that a zigzag one stands for.
pub(super) const fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests;
