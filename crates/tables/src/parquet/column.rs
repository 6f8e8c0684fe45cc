//! A small column of a row group, decoded whole for a row-group index.
//!
//! ```text
//!   chunk: dictionary page │ data page │ data page │ …        texts stay indexes into the dictionary, each decoded once
//! ```
//!
//! It supports the encodings of our own writer ([`crate::kind::metrics`]), including its fallbacks.

use super::delta_packed::Packed;
use super::page::{self, DATA_PAGE, DICTIONARY_PAGE, Damage, Encoded, OTHER_ENCODING, Unpacked};
use super::rle;
use bytes::Bytes;
use model::SeriesKey;
use std::collections::HashMap;

const MORE_OR_FEWER: Damage = "the numbers of values and rows of a column differ";
const NOT_WHOLE: Damage = "a page's values are truncated";
const LEVELS: Damage = "a page's levels are truncated";
const UNKNOWN: Damage = "a value is not in its dictionary";

#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    pub(crate) rows: usize,
    /// Number of values of the column, including nulls.
    pub(crate) levels: usize,
}

/// Maximum initial capacity, because the file's number of values is untrusted.
const CAPACITY_MAX: usize = 1 << 17;

impl Chunk {
    fn capacity(&self) -> usize {
        self.rows.min(CAPACITY_MAX)
    }

    /// Passes each page to `each`, the dictionary first, with its number of values and nulls.
    fn pages(&self, mut each: impl FnMut(Unpacked, usize) -> Result<(), Damage>) -> Result<(), Damage> {
        let (mut rest, mut left) = (&*self.bytes, self.levels);
        while !rest.is_empty() {
            let first = rest.len() == self.bytes.len();
            let page = Unpacked::take(&mut rest)?;
            let levels = usize::try_from(page.header.levels).map_err(|_| MORE_OR_FEWER)?;
            if !(first && page.header.kind == DICTIONARY_PAGE) {
                page.header.check(DATA_PAGE, levels)?;
                left = left.checked_sub(levels).ok_or(MORE_OR_FEWER)?;
            }
            each(page, levels)?;
        }
        match left {
            0 => Ok(()),
            _ => Err(MORE_OR_FEWER),
        }
    }

    fn one_a_row<T>(&self, all: Vec<T>) -> Result<Vec<T>, Damage> {
        match all.len() == self.rows {
            true => Ok(all),
            false => Err(MORE_OR_FEWER),
        }
    }

    /// Decodes one integer for each row.
    pub(crate) fn longs(&self) -> Result<Vec<i64>, Damage> {
        let mut all = Vec::with_capacity(self.capacity());
        self.pages(|page, len| delta(page, len, &mut all))?;
        self.one_a_row(all)
    }

    pub(crate) fn optional_longs(&self) -> Result<Vec<Option<i64>>, Damage> {
        self.optional(delta)
    }

    /// Decodes a nullable column of integers that has a dictionary.
    pub(crate) fn optional_ints(&self) -> Result<Vec<Option<i64>>, Damage> {
        let mut dictionary = Vec::new();
        self.optional(|page, len, out| {
            let (ints, _) = page.rest().as_chunks::<4>();
            let ints = ints.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes)));
            if page.header.kind == DICTIONARY_PAGE {
                dictionary = ints.collect();
                return Ok(());
            }
            match page.header.encoded()? {
                Encoded::Plain => out.extend(ints),
                Encoded::Dictionary => {
                    let mut indexes = Vec::with_capacity(len);
                    rle::indexes(page.rest(), len, &mut indexes).ok_or(NOT_WHOLE)?;
                    for index in indexes {
                        out.push(*dictionary.get(index as usize).ok_or(UNKNOWN)?);
                    }
                }
                Encoded::Delta => return Err(OTHER_ENCODING),
            }
            Ok(())
        })
    }

    /// Decodes nullable values. `decode` gets each page, the dictionary first, and appends the page's values that are
    /// not null.
    fn optional(
        &self,
        mut decode: impl FnMut(Unpacked, usize, &mut Vec<i64>) -> Result<(), Damage>,
    ) -> Result<Vec<Option<i64>>, Damage> {
        let mut all = Vec::with_capacity(self.capacity());
        let (mut defined, mut values) = (Vec::new(), Vec::new());
        self.pages(|mut page, levels| {
            values.clear();
            if page.header.kind == DICTIONARY_PAGE {
                return decode(page, 0, &mut values);
            }
            flags(page.levels()?, levels, &mut defined)?;
            let len = sum(&defined);
            decode(page, len, &mut values)?;
            if values.len() != len {
                return Err(NOT_WHOLE);
            }
            let mut values = values.iter().copied();
            all.extend(defined.iter().map(|defined| if *defined == 1 { values.next() } else { None }));
            Ok(())
        })?;
        self.one_a_row(all)
    }

    pub(crate) fn keys(&self) -> Result<Vec<SeriesKey>, Damage> {
        let mut all = Vec::with_capacity(self.capacity());
        self.pages(|page, len| {
            if page.header.encoded()? != Encoded::Plain {
                return Err(OTHER_ENCODING);
            }
            each_text(page.rest(), len, |bytes| {
                let key = bytes.try_into().map_err(|_| "a series key does not have 16 bytes")?;
                all.push(SeriesKey(u128::from_be_bytes(key)));
                Ok(())
            })
        })?;
        self.one_a_row(all)
    }

    /// Decodes a column that has one string for each row.
    pub(crate) fn texts(&self) -> Result<Texts, Damage> {
        let mut texts = Texts::default();
        self.pages(|page, len| texts.add(&page, len))?;
        texts.codes = self.one_a_row(texts.codes)?;
        Ok(texts)
    }

    /// Decodes a column whose rows are lists of strings. Returns the strings, and for each row the number of strings
    /// up to the row's end.
    pub(crate) fn lists(&self) -> Result<(Texts, Vec<u32>), Damage> {
        let (mut texts, mut ends) = (Texts::default(), Vec::with_capacity(self.capacity()));
        let (mut repeated, mut defined) = (Vec::new(), Vec::new());
        let (mut entries, mut begun) = (0, false);
        self.pages(|mut page, levels| {
            if page.header.kind == DICTIONARY_PAGE {
                return texts.add(&page, levels);
            }
            flags(page.levels()?, levels, &mut repeated)?;
            flags(page.levels()?, levels, &mut defined)?;
            for (repeated, defined) in repeated.iter().zip(&defined) {
                match (*repeated, begun) {
                    // a new list ends the previous one
                    (0, true) => ends.push(entries),
                    (0, false) => begun = true,
                    (_, true) => {}
                    (_, false) => return Err(MORE_OR_FEWER),
                }
                entries += defined;
            }
            texts.add(&page, sum(&defined))
        })?;
        if begun {
            ends.push(entries);
        }
        Ok((texts, self.one_a_row(ends)?))
    }

    /// Like [`Self::lists`], but returns only the strings, without the ends of the rows.
    pub(crate) fn listed(&self) -> Result<Texts, Damage> {
        let mut all = Vec::new();
        let mut texts = self.each_listed(|_, codes| all.extend_from_slice(codes))?;
        texts.codes = all;
        Ok(texts)
    }

    /// Decodes a column whose rows are lists of strings. Strings are deduplicated: `each` gets batches of indexes into
    /// the list of distinct strings found so far. Returns this list in the end.
    pub(crate) fn each_listed(&self, mut each: impl FnMut(&Texts, &[u32])) -> Result<Texts, Damage> {
        let mut texts = Texts::default();
        self.pages(|mut page, levels| {
            if page.header.kind == DICTIONARY_PAGE {
                return texts.add(&page, levels);
            }
            page.levels()?;
            let defined = rle::ones(page.levels()?, levels).ok_or(LEVELS)?;
            texts.add(&page, defined)?;
            each(&texts, &texts.codes);
            texts.codes.clear();
            Ok(())
        })?;
        Ok(texts)
    }
}

/// Values of a column of strings. Each distinct string is stored once, and each value is an index into the stored
/// strings, called code.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// For each value of the column, the code of its string.
    pub(crate) codes: Vec<u32>,
    /// Codes of the strings in pages without dictionary encoding, to find strings that are stored already.
    known: HashMap<Box<[u8]>, u32>,
}

impl Texts {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// String with this code. It is valid UTF-8.
    pub(crate) fn text(&self, code: u32) -> &[u8] {
        let code = code as usize;
        let start = code.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[code] as usize]
    }

    /// Stored strings in the order of their codes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        let text = |code| std::str::from_utf8(self.text(code)).expect("BUG: text is not UTF-8");
        (0..self.len() as u32).map(text)
    }

    pub(crate) fn push(&mut self, text: &[u8]) -> Result<u32, Damage> {
        std::str::from_utf8(text).map_err(|_| "a label is not UTF-8")?;
        self.bytes.extend_from_slice(text);
        self.ends.push(u32::try_from(self.bytes.len()).map_err(|_| "a column has too many texts")?);
        Ok(self.ends.len() as u32 - 1)
    }

    /// Adds the values of a data page, or the strings of a dictionary page.
    fn add(&mut self, page: &Unpacked, len: usize) -> Result<(), Damage> {
        if page.header.kind == DICTIONARY_PAGE {
            return each_text(page.rest(), len, |text| self.push(text).map(drop));
        }
        match page.header.encoded()? {
            Encoded::Dictionary => {
                let before = self.codes.len();
                rle::indexes(page.rest(), len, &mut self.codes).ok_or(NOT_WHOLE)?;
                let last = self.codes[before..].iter().fold(0, |last, code| last.max(*code));
                match len == 0 || (last as usize) < self.len() {
                    true => Ok(()),
                    false => Err(UNKNOWN),
                }
            }
            Encoded::Plain => {
                if self.known.is_empty() {
                    self.known = (0..self.len() as u32).map(|code| (self.text(code).into(), code)).collect();
                }
                each_text(page.rest(), len, |text| {
                    let code = match self.known.get(text) {
                        Some(code) => *code,
                        None => {
                            let code = self.push(text)?;
                            self.known.insert(text.into(), code);
                            code
                        }
                    };
                    self.codes.push(code);
                    Ok(())
                })
            }
            Encoded::Delta => Err(OTHER_ENCODING),
        }
    }
}

/// Passes `len` strings to `each`. In the bytes, each string is preceded by its length.
fn each_text(
    mut bytes: &[u8],
    len: usize,
    mut each: impl FnMut(&[u8]) -> Result<(), Damage>,
) -> Result<(), Damage> {
    for _ in 0..len {
        each(page::sized(&mut bytes).ok_or(NOT_WHOLE)?)?;
    }
    Ok(())
}

/// Decodes levels that are only 0 or 1, and so need one bit each.
fn flags(bytes: &[u8], len: usize, out: &mut Vec<u32>) -> Result<(), Damage> {
    out.clear();
    rle::decode(bytes, 1, len, out).ok_or(LEVELS)
}

fn sum(flags: &[u32]) -> usize {
    flags.iter().sum::<u32>() as usize
}

fn delta(page: Unpacked, len: usize, out: &mut Vec<i64>) -> Result<(), Damage> {
    if page.header.encoded()? != Encoded::Delta {
        return Err(OTHER_ENCODING);
    }
    let packed = Packed::open(page.bytes, page.at, len, None).ok_or(NOT_WHOLE)?;
    packed.read(0..len, out);
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
