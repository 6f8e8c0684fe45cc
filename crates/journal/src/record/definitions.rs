//! Decodes the definitions of series. [`super::define`] describes the format.

use super::columns::deltas;
use super::wire::Cursor;
use super::{DecodeMemory, RecordError};
use crate::RECORD_BYTES_MAX;
use model::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::{METRIC_NAME, put_label};
use model::{LabelsRef, SeriesRef};
use std::ops::Range;

/// Limit on the decoded labels of a record. Labels that many series share take few bytes in a record, so the
/// length of the record does not limit them.
pub const RECORD_LABEL_BYTES_MAX: usize = 256 << 20;

const _: () = assert!(
    RECORD_LABEL_BYTES_MAX + SERIES_LABELS_MAX * (LABEL_NAME_BYTES_MAX + LABEL_VALUE_BYTES_MAX + 16)
        < u32::MAX as usize,
    "the label bytes of a record and one more series do not fit u32 offsets"
);

/// The series that one record defines: their references, and their labels in canonical form.
#[derive(Debug, Default)]
pub struct Definitions {
    refs: Vec<SeriesRef>,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    last: Vec<Label>,
    unpacked: Unpacked,
}

#[derive(Debug, Default)]
pub(super) struct Unpacked(Vec<u8>);

/// A label of the previous series: the symbol of its name, and where its bytes are.
#[derive(Debug, Clone, Copy)]
struct Label {
    name: u32,
    start: u32,
    end: u32,
}

impl Definitions {
    pub fn len(&self) -> usize {
        self.refs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (SeriesRef, LabelsRef<'_>)> {
        self.refs.iter().zip(&self.ends).scan(0, |start, (series, end)| {
            let bytes = &self.bytes[*start as usize..*end as usize];
            *start = *end;
            Some((*series, LabelsRef::from_canonical(bytes)))
        })
    }

    pub(super) fn clear(&mut self) {
        self.refs.clear();
        self.bytes.clear();
        self.ends.clear();
        self.last.clear();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.refs.capacity() + self.ends.capacity()) * 4 + self.bytes.capacity() + self.unpacked.0.capacity()
    }

    pub(super) fn decode(
        &mut self,
        cursor: &mut Cursor<'_>,
        memory: &mut dyn DecodeMemory,
    ) -> Result<(), RecordError> {
        self.clear();
        let mut unpacked = std::mem::take(&mut self.unpacked);
        let decoded = unpacked.section(cursor, memory).and_then(|body| self.decode_body(body, memory));
        self.unpacked = unpacked;
        decoded
    }

    fn decode_body(&mut self, body: &[u8], memory: &mut dyn DecodeMemory) -> Result<(), RecordError> {
        if body.is_empty() {
            return Ok(());
        }
        let mut cursor = Cursor::new(body);
        let count = cursor.count(body.len())?;
        memory.reserve_for(&self.refs, count)?;
        deltas(&mut cursor, count, &mut self.refs, super::series_ref)?;
        let mut texts = Texts::decode(&mut cursor, memory)?;
        memory.reserve_for(&self.ends, count)?;
        self.ends.reserve_exact(count);
        for _ in 0..count {
            if self.bytes.capacity() - self.bytes.len() < SERIES_LABEL_BYTES_MAX {
                self.grow(memory)?;
            }
            self.decode_series(&mut cursor, &mut texts)?;
        }
        if !cursor.rest.is_empty() || texts.seen < texts.ends.len() {
            return Err(RecordError::Malformed("bytes after the definitions"));
        }
        Ok(())
    }

    #[cold]
    fn grow(&mut self, memory: &mut dyn DecodeMemory) -> Result<(), RecordError> {
        let (len, capacity) = (self.bytes.len(), self.bytes.capacity());
        let larger = (capacity + capacity / 2).max(len + SERIES_LABEL_BYTES_MAX);
        memory.try_reserve(larger - capacity)?;
        self.bytes.reserve_exact(larger - len);
        Ok(())
    }

    fn decode_series(&mut self, cursor: &mut Cursor<'_>, texts: &mut Texts<'_>) -> Result<(), RecordError> {
        let count = cursor.count(SERIES_LABELS_MAX)?;
        let before = self.last.len();
        let mut bitmap = [0; 16];
        let marks = cursor.take(count.min(before).div_ceil(8))?;
        bitmap[..marks.len()].copy_from_slice(marks);
        // if the series has more labels than the previous one, the additional labels are new
        let new = u128::from_le_bytes(bitmap) | u128::MAX.checked_shl(before as u32).unwrap_or(0);

        let start = self.bytes.len();
        let mut i = 0;
        while i < count {
            let stay = ((new >> i).trailing_zeros() as usize).min(count - i);
            if stay > 0 {
                self.copy_labels(i..i + stay, start);
                i += stay;
            } else {
                self.decode_label(i, start, cursor, texts)?;
                i += 1;
            }
        }
        self.last.truncate(count);
        self.ends.push(self.bytes.len() as u32);
        self.check_series(start, new, texts)
    }

    fn copy_labels(&mut self, labels: Range<usize>, start: usize) {
        // `ends` has an element for each series but the one that is being read
        let before = self.ends.len().checked_sub(2).map_or(0, |i| self.ends[i]);
        let (first, last) = (self.last[labels.start].start, self.last[labels.end - 1].end);
        let at = (self.bytes.len() - start) as u32;
        self.bytes.extend_from_within((before + first) as usize..(before + last) as usize);
        if at != first {
            for label in &mut self.last[labels] {
                label.start = at + (label.start - first);
                label.end = at + (label.end - first);
            }
        }
    }

    fn decode_label(
        &mut self,
        i: usize,
        start: usize,
        cursor: &mut Cursor<'_>,
        texts: &mut Texts<'_>,
    ) -> Result<(), RecordError> {
        let name = match (cursor.varint()?, self.last.get(i)) {
            (0, Some(before)) => before.name,
            (0, None) => return Err(RecordError::Malformed("a label without a name")),
            (code, _) => texts.resolve(code - 1)?,
        };
        let value = texts.resolve(cursor.varint()?)?;
        let (name_text, value_text) = (texts.get(name), texts.get(value));
        if !(1..=LABEL_NAME_BYTES_MAX).contains(&name_text.len())
            || !(1..=LABEL_VALUE_BYTES_MAX).contains(&value_text.len())
        {
            return Err(RecordError::Malformed("a label name or value that is empty or too long"));
        }
        let label_start = (self.bytes.len() - start) as u32;
        put_label(&mut self.bytes, name_text.as_bytes(), value_text.as_bytes());
        let label = Label { name, start: label_start, end: (self.bytes.len() - start) as u32 };
        match self.last.get_mut(i) {
            Some(before) => *before = label,
            None => self.last.push(label),
        }
        Ok(())
    }

    /// Checks the order of the labels, the metric name and the size. Two adjacent labels that the previous
    /// series also has are not compared again, because their order was checked there.
    fn check_series(&self, start: usize, new: u128, texts: &Texts<'_>) -> Result<(), RecordError> {
        let malformed = |what| Err(RecordError::Malformed(what));
        let changed = new | new << 1;
        for (i, pair) in self.last.windows(2).enumerate() {
            if changed & (2 << i) != 0 && texts.get(pair[0].name) >= texts.get(pair[1].name) {
                return malformed("label names out of order");
            }
        }
        if !self.last.iter().any(|label| texts.get(label.name) == METRIC_NAME) {
            return malformed("a series without a name");
        }
        if self.bytes.len() - start > SERIES_LABEL_BYTES_MAX || self.bytes.len() > RECORD_LABEL_BYTES_MAX {
            return malformed("more label bytes than allowed");
        }
        Ok(())
    }
}

impl Unpacked {
    /// Returns the bytes of the next section, which are empty if it has no definitions. They are unpacked
    /// into this buffer if necessary.
    pub(super) fn section<'a, 'bytes: 'a>(
        &'a mut self,
        cursor: &mut Cursor<'bytes>,
        memory: &mut dyn DecodeMemory,
    ) -> Result<&'a [u8], RecordError> {
        let raw_len = cursor.length()?;
        if raw_len == 0 {
            return Ok(&[]);
        }
        let packed_len = cursor.length()?;
        if packed_len == 0 {
            return cursor.take(raw_len);
        }
        let packed = cursor.take(packed_len)?;
        // no byte of an LZ4 block expands to more than 255 bytes
        if raw_len > RECORD_BYTES_MAX || raw_len / 255 > packed_len {
            return Err(RecordError::Malformed("definitions cannot decompress to their declared length"));
        }
        memory.reserve_for(&self.0, raw_len)?;
        self.0.clear();
        self.0.reserve_exact(raw_len);
        self.0.resize(raw_len, 0);
        match lz4_flex::block::decompress_into(packed, &mut self.0) {
            Ok(len) if len == raw_len => Ok(&self.0),
            _ => Err(RecordError::Malformed("definitions cannot be decompressed")),
        }
    }
}

/// The label names and values that the series of a record refer to.
#[derive(Debug)]
struct Texts<'a> {
    text: &'a str,
    ends: Vec<u32>,
    /// How many different symbols were used so far. A symbol that is used for the first time is the next one
    /// in the table.
    seen: usize,
}

impl<'a> Texts<'a> {
    fn decode(cursor: &mut Cursor<'a>, memory: &mut dyn DecodeMemory) -> Result<Self, RecordError> {
        let count = cursor.count(cursor.rest.len())?;
        memory.try_reserve(count * size_of::<u32>())?;
        let mut ends = Vec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            end += cursor.length()?.min(RECORD_BYTES_MAX);
            if end > RECORD_BYTES_MAX {
                return Err(RecordError::Truncated);
            }
            ends.push(end as u32);
        }
        let not_utf8 = RecordError::Malformed("a text that is not UTF-8");
        let text = std::str::from_utf8(cursor.take(end)?).map_err(|_| not_utf8)?;
        if ends.iter().any(|end| !text.is_char_boundary(*end as usize)) {
            return Err(not_utf8);
        }
        Ok(Self { text, ends, seen: 0 })
    }

    #[inline]
    fn get(&self, symbol: u32) -> &'a str {
        let start = if symbol == 0 { 0 } else { self.ends[symbol as usize - 1] };
        &self.text[start as usize..self.ends[symbol as usize] as usize]
    }

    /// Decodes a reference to a symbol: 0 is the next symbol that was not used yet, other numbers count back
    /// from there.
    #[inline]
    fn resolve(&mut self, back: u64) -> Result<u32, RecordError> {
        let symbol = usize::try_from(back).ok().and_then(|back| self.seen.checked_sub(back));
        match symbol {
            Some(symbol) if symbol < self.ends.len() => {
                self.seen += usize::from(back == 0);
                Ok(symbol as u32)
            }
            _ => Err(RecordError::Malformed("a symbol outside the table")),
        }
    }
}
