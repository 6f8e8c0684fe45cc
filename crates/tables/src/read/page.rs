//! One page of samples: fetched, unpacked and checked once, then read from many times.
//!
//! ```text
//!   header (Thrift) │ zstd: repetition levels │ definition levels │ values
//! ```
//!
//! How many samples each row has is known ([`super::directory`]), so levels are passed over. What is kept is the
//! values, as they are encoded, so that a page takes little more memory than the file.

use super::packed::{Packed, varint, zigzag};
use super::rle;
use crate::schema::PAGE_BYTES;
use parquet::basic::Encoding;
use std::cell::RefCell;
use std::ops::Range;
use zstd::bulk::Decompressor;

/// A page beyond this is damaged: a writer goes beyond its limit by a row at the most, and that has samples of a day.
const UNPACKED_BYTES_MAX: usize = PAGE_BYTES + (32 << 20);

/// Structs in structs of a header, at the most.
const THRIFT_DEPTH_MAX: usize = 8;

const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;

/// What a page holds.
#[derive(Debug)]
pub struct Page {
    values: Values,
}

#[derive(Debug)]
enum Values {
    Integers(Packed),
    Floats(Vec<f64>),
}

/// What is known of a page before it is opened.
#[derive(Debug)]
pub(super) struct Expected {
    /// Values and nulls.
    pub(super) levels: usize,
    /// Values.
    pub(super) values: usize,
    /// Where each row of times ends, by its place among the values, and what its first and its last are. Empty for
    /// other columns.
    pub(super) rows: Vec<(usize, i64, i64)>,
}

/// Why a page cannot be what its file says.
pub(super) type Damage = &'static str;

impl Page {
    /// Opens a page of integers.
    pub(super) fn integers(bytes: &[u8], expected: &Expected) -> Result<Self, Damage> {
        unpacked(bytes, |header, values| {
            header.check(DATA_PAGE, expected.levels)?;
            if header.encoding != i64::from(Encoding::DELTA_BINARY_PACKED as i32) {
                return Err("a page has another encoding than its column");
            }
            let mut rows = Ascending { rows: &expected.rows, at: 0, last: i64::MIN, broken: false };
            let packed = Packed::open(without_levels(values)?, expected.values, |some| rows.see(some));
            match packed {
                Some(_) if rows.broken => Err("a row's timestamps do not ascend from its start to its end"),
                Some(packed) => Ok(Self { values: Values::Integers(packed) }),
                None => Err("a page's values are not whole"),
            }
        })
    }

    /// Opens a page of floats; `dictionary` is that of its column.
    pub(super) fn floats(
        bytes: &[u8],
        expected: &Expected,
        dictionary: Option<&Self>,
    ) -> Result<Self, Damage> {
        unpacked(bytes, |header, values| {
            header.check(DATA_PAGE, expected.levels)?;
            let (short, values) = ("a page has fewer values than rows", without_levels(values)?);
            if header.encoding == i64::from(Encoding::PLAIN as i32) {
                let floats = plain(values);
                return match floats.len() == expected.values {
                    true => Ok(Self { values: Values::Floats(floats) }),
                    false => Err(short),
                };
            }
            let Some(Values::Floats(known)) = dictionary.map(|page| &page.values) else {
                return Err("a page has an encoding that is not known");
            };
            let mut floats = Vec::with_capacity(expected.values);
            let mut unknown = false;
            if expected.values > 0 {
                let (width, indexes) = values.split_first().ok_or(short)?;
                let decoded =
                    rle::decode(indexes, *width, expected.values, |index| match known.get(index as usize) {
                        Some(value) => floats.push(*value),
                        None => unknown = true,
                    });
                decoded.ok_or(short)?;
            }
            match unknown {
                true => Err("a value is not in its dictionary"),
                false => Ok(Self { values: Values::Floats(floats) }),
            }
        })
    }

    /// Opens a dictionary of floats.
    pub(super) fn dictionary(bytes: &[u8]) -> Result<Self, Damage> {
        unpacked(bytes, |header, values| {
            let floats = plain(values);
            header.check(DICTIONARY_PAGE, floats.len())?;
            Ok(Self { values: Values::Floats(floats) })
        })
    }

    /// The values of a page of integers.
    pub(super) fn packed(&self) -> &Packed {
        match &self.values {
            Values::Integers(packed) => packed,
            Values::Floats(_) => panic!("BUG: a page of floats is read as one of integers"),
        }
    }

    /// Those of a page of floats.
    pub(super) fn as_floats(&self, range: Range<usize>) -> &[f64] {
        match &self.values {
            Values::Floats(floats) => &floats[range],
            Values::Integers(_) => panic!("BUG: a page of integers is read as one of floats"),
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.values {
            Values::Integers(packed) => packed.memory_bytes(),
            Values::Floats(floats) => size_of::<Self>() + floats.capacity() * 8,
        }
    }
}

/// Sees all times of a page, in order, and whether each row's are from its start to its end.
struct Ascending<'a> {
    rows: &'a [(usize, i64, i64)],
    at: usize,
    last: i64,
    broken: bool,
}

impl Ascending<'_> {
    fn see(&mut self, mut times: &[i64]) {
        while let [first, ..] = times
            && let Some((end, row_first, row_last)) = self.rows.first().copied()
        {
            let begins = self.last == i64::MIN;
            let len = times.len().min(end - self.at);
            let (part, rest) = times.split_at(len);
            self.broken |= if begins { *first != row_first } else { *first <= self.last };
            self.broken |= !part.is_sorted_by(|a, b| a < b);
            self.last = part.last().copied().unwrap_or(self.last);
            self.at += len;
            times = rest;
            if self.at == end {
                self.broken |= self.last != row_last;
                self.rows = &self.rows[1..];
                self.last = i64::MIN;
            }
        }
    }
}

fn plain(bytes: &[u8]) -> Vec<f64> {
    let (floats, _) = bytes.as_chunks::<8>();
    floats.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

/// What follows the levels, of repetition and of definition, each with its length before it.
fn without_levels(bytes: &[u8]) -> Result<&[u8], Damage> {
    let skip = |bytes: &mut &[u8]| {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest.get(u32::from_le_bytes(*len) as usize..)?;
        Some(())
    };
    let mut rest = bytes;
    skip(&mut rest).and_then(|()| skip(&mut rest)).ok_or("a page's levels are not whole")?;
    Ok(rest)
}

thread_local! {
    /// Making one costs as much as unpacking some pages.
    static UNPACKER: RefCell<(Option<Decompressor<'static>>, Vec<u8>)> = const { RefCell::new((None, Vec::new())) };
}

/// What of the unpacked bytes a thread keeps for the next page.
const KEPT_BYTES: usize = 256 << 10;

/// Gives the header and the unpacked bytes of a page to `open`.
fn unpacked<T>(bytes: &[u8], open: impl FnOnce(&Header, &[u8]) -> Result<T, Damage>) -> Result<T, Damage> {
    let mut at = 0;
    let header = Header::read(bytes, &mut at).ok_or("a page's header cannot be read")?;
    let unpacked = usize::try_from(header.unpacked).ok().filter(|n| *n <= UNPACKED_BYTES_MAX);
    let unpacked = unpacked.ok_or("a page is too large")?;
    let packed = usize::try_from(header.packed).ok().and_then(|len| bytes.get(at..)?.get(..len));
    let packed = packed.ok_or("a page is cut short")?;
    UNPACKER.with_borrow_mut(|(decompressor, buffer)| {
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(|_| "no memory to unpack a page")?),
        };
        buffer.clear();
        buffer.reserve(unpacked);
        let result = match decompressor.decompress_to_buffer(packed, buffer) {
            Ok(len) if len == unpacked => open(&header, buffer),
            _ => Err("a page cannot be unpacked"),
        };
        if buffer.capacity() > KEPT_BYTES {
            *buffer = Vec::new();
        }
        result
    })
}

/// What a page's header says, of what is needed. Source: `PageHeader` in the Parquet format's `parquet.thrift`.
#[derive(Debug, Default)]
struct Header {
    kind: i64,
    unpacked: i64,
    packed: i64,
    levels: i64,
    encoding: i64,
}

impl Header {
    fn read(bytes: &[u8], at: &mut usize) -> Option<Self> {
        let mut header = Self::default();
        let mut thrift = Thrift { bytes, at: *at };
        thrift.fields(0, &mut |path, value| match path {
            [1] => header.kind = value,
            [2] => header.unpacked = value,
            [3] => header.packed = value,
            // of a data page, of a dictionary
            [5 | 7, 1] => header.levels = value,
            [5 | 7, 2] => header.encoding = value,
            _ => {}
        })?;
        *at = thrift.at;
        Some(header)
    }

    fn check(&self, kind: i64, levels: usize) -> Result<(), Damage> {
        if self.kind != kind {
            return Err("a page is of another kind than the index says");
        }
        if self.levels != levels as i64 {
            return Err("a page has more values than its rows, or fewer");
        }
        Ok(())
    }
}

/// Thrift's compact protocol, as far as headers of pages need it.
struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Thrift<'_> {
    /// Gives the integers of a struct, and of the structs in it, to `each`, with the numbers of the fields that lead
    /// there.
    fn fields(&mut self, depth: usize, each: &mut dyn FnMut(&[i16], i64)) -> Option<()> {
        self.within(&mut Vec::with_capacity(THRIFT_DEPTH_MAX), depth, each)
    }

    fn within(&mut self, path: &mut Vec<i16>, depth: usize, each: &mut dyn FnMut(&[i16], i64)) -> Option<()> {
        if depth == THRIFT_DEPTH_MAX {
            return None;
        }
        let mut field = 0i16;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Some(());
            }
            field = match byte >> 4 {
                0 => i16::try_from(zigzag(self.varint()?)).ok()?,
                delta => field.checked_add(i16::from(delta))?,
            };
            path.push(field);
            match byte & 0x0f {
                1 | 2 => {}
                3 => _ = self.byte()?,
                4..=6 => {
                    let value = zigzag(self.varint()?);
                    each(path, value);
                }
                7 => self.skip(8)?,
                8 => {
                    let len = self.varint()?;
                    self.skip(usize::try_from(len).ok()?)?;
                }
                12 => self.within(path, depth + 1, each)?,
                // lists, sets and maps: headers of pages have none
                _ => return None,
            }
            path.pop();
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn varint(&mut self) -> Option<u64> {
        varint(self.bytes, &mut self.at)
    }

    fn skip(&mut self, len: usize) -> Option<()> {
        self.at = self.at.checked_add(len).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }
}
