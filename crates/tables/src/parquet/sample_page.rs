//! One page of samples, opened and checked once, and read many times.
//!
//! Values stay encoded: in memory, a page takes its encoded size and a little more for random access. Levels are
//! skipped, because the row-group index says how many samples each row has.

use super::delta_packed::{Packed, Steps};
use super::page::{DATA_PAGE, DICTIONARY_PAGE, Damage, Encoded, OTHER_ENCODING, Unpacked};
use super::rle::Indexes;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub struct SamplePage {
    values: Values,
}

#[derive(Debug)]
enum Values {
    Integers(Packed),
    Floats(Box<[f64]>),
    /// Indexes into the column's dictionary, which is itself an open page.
    Coded(Indexes, Arc<SamplePage>),
}

/// What the row-group index says about a page, to which its contents must conform.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Number of values, including nulls.
    pub(crate) levels: usize,
    pub(crate) values: usize,
    /// For a page of timestamps, each row's end (as an index into the page's timestamps), first and last timestamp.
    /// Empty for other pages.
    pub(crate) rows: Vec<(usize, i64, i64)>,
}

impl SamplePage {
    pub(crate) fn integers(bytes: &[u8], expected: &Expected) -> Result<Self, Damage> {
        let page = open(bytes, expected)?;
        if page.header.encoded()? != Encoded::Delta {
            return Err(OTHER_ENCODING);
        }
        let mut rows = Ascending { rows: &expected.rows, at: 0, last: 0, begins: true, broken: false };
        let mut see = |steps: Steps<'_>| rows.see(steps);
        let see: Option<&mut dyn FnMut(Steps<'_>)> = match expected.rows.is_empty() {
            true => None,
            false => Some(&mut see),
        };
        match Packed::open(page.bytes, page.at, expected.values, see) {
            Some(_) if rows.broken => Err("a row's timestamps do not ascend from its start to its end"),
            Some(packed) => Ok(Self { values: Values::Integers(packed) }),
            None => Err("a page's values are truncated"),
        }
    }

    /// Opens a page of floats with its dictionary, if any.
    pub(crate) fn floats(
        bytes: &[u8],
        expected: &Expected,
        dictionary: Option<&Arc<Self>>,
    ) -> Result<Self, Damage> {
        let page = open(bytes, expected)?;
        let values = match (page.header.encoded()?, dictionary.map(|page| (page, &page.values))) {
            (Encoded::Plain, _) => {
                let floats = plain(page.rest());
                Some(Values::Floats(floats)).filter(|_| page.rest().len() == 8 * expected.values)
            }
            (Encoded::Dictionary, Some((dictionary, Values::Floats(known)))) => {
                let indexes = Indexes::open(page.bytes, page.at, expected.values, known.len());
                indexes.map(|indexes| Values::Coded(indexes, Arc::clone(dictionary)))
            }
            _ => return Err(OTHER_ENCODING),
        };
        Ok(Self { values: values.ok_or("a page's values are truncated, or not in its dictionary")? })
    }

    pub(crate) fn dictionary(mut bytes: &[u8]) -> Result<Self, Damage> {
        let page = Unpacked::take(&mut bytes)?;
        let floats = plain(page.rest());
        page.header.check(DICTIONARY_PAGE, floats.len())?;
        Ok(Self { values: Values::Floats(floats) })
    }

    pub(crate) fn packed(&self) -> &Packed {
        match &self.values {
            Values::Integers(packed) => packed,
            _ => panic!("BUG: a page of floats is read as one of integers"),
        }
    }

    pub(crate) fn put_floats(&self, range: Range<usize>, out: &mut Vec<f64>) {
        match &self.values {
            Values::Floats(floats) => out.extend_from_slice(&floats[range]),
            Values::Coded(indexes, dictionary) => {
                let known = dictionary.all_floats();
                indexes.read(range, |index, count| out.extend(std::iter::repeat_n(known[index], count)));
            }
            Values::Integers(_) => panic!("BUG: a page of integers is read as one of floats"),
        }
    }

    fn all_floats(&self) -> &[f64] {
        match &self.values {
            Values::Floats(floats) => floats,
            _ => panic!("BUG: a page with a dictionary is read as one of floats"),
        }
    }

    /// Drops the blocks that have no values in `ranges`, if they are most of the page. Pages of floats stay whole.
    pub(crate) fn only(self, ranges: impl Iterator<Item = Range<usize>>) -> Self {
        match self.values {
            Values::Integers(packed) => Self { values: Values::Integers(packed.only(ranges)) },
            _ => self,
        }
    }

    /// True if the page has `len` values of the wanted type: floats, or integers if `floats` is false.
    pub(crate) fn has(&self, floats: bool, len: usize) -> bool {
        match &self.values {
            Values::Integers(packed) => !floats && packed.len() == len,
            Values::Floats(values) => floats && values.len() == len,
            Values::Coded(indexes, _) => floats && indexes.len() == len,
        }
    }

    /// True if no value of `range` was dropped.
    pub(crate) fn holds(&self, range: &Range<usize>) -> bool {
        match &self.values {
            Values::Integers(packed) => packed.holds(range),
            _ => true,
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.values {
            Values::Integers(packed) => packed.memory_bytes(),
            Values::Floats(floats) => size_of::<Self>() + size_of_val(&**floats),
            Values::Coded(indexes, _) => indexes.memory_bytes(),
        }
    }
}

/// Checks a page of timestamps against the row-group index: each row's times must ascend from its start to its end.
struct Ascending<'a> {
    /// Rows whose last timestamp was not checked yet.
    rows: &'a [(usize, i64, i64)],
    at: usize,
    last: i64,
    /// True if the next timestamp is the first of a row.
    begins: bool,
    broken: bool,
}

/// Maximum number of bits of a step between two timestamps. A day needs 27 bits, and sums of a few steps do not
/// overflow.
const STEP_BITS: u32 = 48;

impl Ascending<'_> {
    fn see(&mut self, steps: Steps<'_>) {
        match steps {
            Steps::First(time) => self.begin(time),
            Steps::Alike(mut len, step) => {
                while len > 0 && !self.rows.is_empty() {
                    let some = if self.begins { 1 } else { len.min(self.left()) };
                    match self.begins {
                        true => self.begin(self.last.wrapping_add(step)),
                        false => self.go_on(some, step.wrapping_mul(some as i64), less_one(step)),
                    }
                    len -= some;
                }
            }
            Steps::Each(least, mut more) => {
                while let [first, rest @ ..] = more
                    && !self.rows.is_empty()
                {
                    if self.begins {
                        self.begin(self.last.wrapping_add(least).wrapping_add(*first as i64));
                        more = rest;
                        continue;
                    }
                    let (some, rest) = more.split_at(more.len().min(self.left()));
                    let (sum, bits) = some.iter().fold((0u64, 0), |(sum, bits), more| {
                        (sum.wrapping_add(*more), bits | less_one(least.wrapping_add(*more as i64)))
                    });
                    let sum = (sum as i64).wrapping_add(least.wrapping_mul(some.len() as i64));
                    self.go_on(some.len(), sum, bits);
                    more = rest;
                }
            }
        }
    }

    fn left(&self) -> usize {
        self.rows[0].0 - self.at
    }

    fn begin(&mut self, time: i64) {
        self.broken |= self.rows.first().is_none_or(|(_, first, _)| *first != time);
        self.last = time;
        self.begins = false;
        self.pass(1);
    }

    /// Checks the next `len` timestamps together. `sum` is the sum of the steps between them. `bits` is the bitwise OR
    /// of [`less_one`] of each step, and shows if a step is too large or does not ascend.
    fn go_on(&mut self, len: usize, sum: i64, bits: u64) {
        let last = self.last.checked_add(sum).filter(|_| bits >> STEP_BITS == 0);
        self.broken |= last.is_none();
        self.last = last.unwrap_or(0);
        self.pass(len);
    }

    fn pass(&mut self, len: usize) {
        self.at += len;
        if let [(end, _, last), rest @ ..] = self.rows
            && self.at == *end
        {
            self.broken |= self.last != *last;
            self.rows = rest;
            self.begins = true;
        }
    }
}

/// A step minus one, as an unsigned number. It is small if times ascend, and huge for a step of zero or less.
const fn less_one(step: i64) -> u64 {
    step.wrapping_sub(1) as u64
}

fn plain(bytes: &[u8]) -> Box<[f64]> {
    let (floats, _) = bytes.as_chunks::<8>();
    floats.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

/// Opens a page of lists of known lengths. Levels are skipped.
fn open(mut bytes: &[u8], expected: &Expected) -> Result<Unpacked, Damage> {
    let mut page = Unpacked::take(&mut bytes)?;
    page.header.check(DATA_PAGE, expected.levels)?;
    page.levels()?;
    page.levels()?;
    Ok(page)
}

#[cfg(test)]
mod tests;
