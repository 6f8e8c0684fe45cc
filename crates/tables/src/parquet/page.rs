//! A page of a Parquet file: its header, and its bytes decompressed.
//!
//! ```text
//!   header (Thrift) │ zstd: repetition levels │ definition levels │ values
//! ```
//!
//! Levels say where lists and nulls are. Sources: "Data Pages" in the Parquet format's `README.md`, and `PageHeader` in
//! its `parquet.thrift`.

use crate::kind::PAGE_BYTES;
use parquet::basic::Encoding;
use std::cell::RefCell;
use stdx::varint::{self, unzigzag};
use zstd::bulk::Decompressor;

/// Decompressed size above which a page counts as damaged. A writer exceeds its own limit by at most one row of a day.
const UNPACKED_BYTES_MAX: usize = PAGE_BYTES + (32 << 20);

const THRIFT_DEPTH_MAX: usize = 8;

pub(crate) const DATA_PAGE: i64 = 0;
pub(crate) const DICTIONARY_PAGE: i64 = 2;

pub(crate) type Damage = &'static str;

pub(crate) const OTHER_ENCODING: Damage = "a page has another encoding than its column";

/// Takes a string of bytes off the front of `bytes`. The string is preceded by its length as four bytes.
pub(crate) fn sized<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (taken, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    Some(taken)
}

thread_local! {
    /// Decompressor of this thread. Creating a new one costs as much as decompressing several pages.
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) header: Header,
    pub(crate) bytes: Vec<u8>,
    /// Offset in `bytes` of the first byte that was not read yet.
    pub(crate) at: usize,
}

impl Unpacked {
    pub(crate) fn take(from: &mut &[u8]) -> Result<Self, Damage> {
        let header = Header::take(from).ok_or("a page's header cannot be read")?;
        let len = usize::try_from(header.unpacked).ok().filter(|n| *n <= UNPACKED_BYTES_MAX);
        let len = len.ok_or("a page is too large")?;
        let packed = usize::try_from(header.packed).ok().and_then(|len| from.split_at_checked(len));
        let (packed, rest) = packed.ok_or("a page is truncated")?;
        *from = rest;
        UNPACKER.with_borrow_mut(|decompressor| {
            let decompressor = match decompressor {
                Some(decompressor) => decompressor,
                none => none.insert(Decompressor::new().map_err(|_| "no memory to decompress a page")?),
            };
            let mut bytes = Vec::with_capacity(len);
            match decompressor.decompress_to_buffer(packed, &mut bytes) {
                Ok(_) if bytes.len() == len => Ok(Self { header, bytes, at: 0 }),
                _ => Err("a page cannot be decompressed"),
            }
        })
    }

    pub(crate) fn levels(&mut self) -> Result<&[u8], Damage> {
        let mut rest = &self.bytes[self.at..];
        let levels = sized(&mut rest).ok_or("a page's levels are truncated")?;
        self.at = self.bytes.len() - rest.len();
        Ok(levels)
    }

    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }
}

/// Needed fields of a page header. Source: `PageHeader` in the Parquet format's `parquet.thrift`.
#[derive(Debug, Default)]
pub(crate) struct Header {
    pub(crate) kind: i64,
    unpacked: i64,
    packed: i64,
    /// Number of values, including nulls.
    pub(crate) levels: i64,
    pub(crate) encoding: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoded {
    Plain,
    /// Values are indexes into the column's dictionary.
    Dictionary,
    Delta,
}

impl Header {
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut header = Self::default();
        let mut thrift = Thrift { rest: bytes };
        thrift.fields(&mut |path, value| match path {
            [1] => header.kind = value,
            [2] => header.unpacked = value,
            [3] => header.packed = value,
            // 5: data page, 7: dictionary page
            [5 | 7, 1] => header.levels = value,
            [5 | 7, 2] => header.encoding = value,
            _ => {}
        })?;
        *bytes = thrift.rest;
        Some(header)
    }

    pub(crate) fn encoded(&self) -> Result<Encoded, Damage> {
        let is = |encoding: Encoding| self.encoding == i64::from(encoding as i32);
        match () {
            () if is(Encoding::PLAIN) => Ok(Encoded::Plain),
            () if is(Encoding::DELTA_BINARY_PACKED) => Ok(Encoded::Delta),
            () if is(Encoding::PLAIN_DICTIONARY) || is(Encoding::RLE_DICTIONARY) => Ok(Encoded::Dictionary),
            () => Err("a page has an unknown encoding"),
        }
    }

    pub(crate) fn check(&self, kind: i64, levels: usize) -> Result<(), Damage> {
        if self.kind != kind {
            return Err("a page is of another kind than the index says");
        }
        if self.levels != levels as i64 {
            return Err("the numbers of values and rows of a page differ");
        }
        Ok(())
    }
}

/// Reads the part of Thrift's compact protocol that page headers use.
struct Thrift<'a> {
    rest: &'a [u8],
}

impl Thrift<'_> {
    /// Passes each integer in the struct, or in a struct within it, to `each`, with the numbers of the fields that
    /// lead to it.
    fn fields(&mut self, each: &mut dyn FnMut(&[i16], i64)) -> Option<()> {
        self.within(&mut Vec::with_capacity(THRIFT_DEPTH_MAX), each)
    }

    fn within(&mut self, path: &mut Vec<i16>, each: &mut dyn FnMut(&[i16], i64)) -> Option<()> {
        if path.len() == THRIFT_DEPTH_MAX {
            return None;
        }
        let mut field = 0i16;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Some(());
            }
            field = match byte >> 4 {
                0 => i16::try_from(self.int()?).ok()?,
                delta => field.checked_add(i16::from(delta))?,
            };
            path.push(field);
            match byte & 0x0f {
                1 | 2 => {}
                3 => _ = self.byte()?,
                4..=6 => each(path, self.int()?),
                7 => self.skip(8)?,
                8 => {
                    let len = varint::take(&mut self.rest)?;
                    self.skip(usize::try_from(len).ok()?)?;
                }
                12 => self.within(path, each)?,
                // lists, sets and maps, which page headers lack
                _ => return None,
            }
            path.pop();
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn int(&mut self) -> Option<i64> {
        varint::take(&mut self.rest).map(unzigzag)
    }

    fn skip(&mut self, len: usize) -> Option<()> {
        self.rest = self.rest.get(len..)?;
        Some(())
    }
}
