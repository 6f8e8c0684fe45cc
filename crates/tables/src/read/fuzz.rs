//! Bodies of the fuzz targets in `fuzz/`. Each takes arbitrary bytes, and must neither panic nor violate an invariant.
//! The tests here call them on damaged files.

use super::index::RowGroupIndex;
use super::small_columns;
use super::{CacheSlot, Cached, Cursor, Footer, LabelScan, Ranges, Select, label_scan};
use crate::error::TableError;
use crate::kind::metrics::METRICS;
use crate::parquet::delta_packed::{Packed, Steps};
use crate::parquet::page::{DICTIONARY_PAGE, Unpacked};
use crate::parquet::{Chunk, rle};
use bytes::Bytes;
use model::Samples;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use stdx::varint;

/// Reads a file, with and without cached data. If the file is damaged, the two reads may return different values,
/// because an index counts a row's values in another way.
pub fn file(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let cached_file = FullyCachedFile::of(bytes.clone());
    let listed = list(&cached_file, LabelScan::Values("pod"));
    let (streamed, kept, again) = (rows(&bytes), rows(&cached_file), rows(&cached_file));
    if let (Ok(streamed), Ok(kept)) = (&streamed, &kept) {
        let times = |rows: &[Row]| -> Vec<_> {
            rows.iter().map(|row| (row.labels.clone(), row.times.clone())).collect()
        };
        assert!(times(streamed) == times(kept), "an index leads to other rows");
    }
    assert_eq!(kept.ok(), again.ok(), "cached data leads to other rows");
    if let (Ok(first), Ok(second)) = (listed, list(&cached_file, LabelScan::Values("pod"))) {
        assert_eq!(first, second, "an index leads to other label values");
    }
}

/// Reads a row group from `bytes`: the number of rows (two bytes), then pages as `put_page` in this file writes them.
/// The pages have no checksum and are not compressed, so that damaged bytes reach the decoder.
pub fn row_group(bytes: &[u8]) {
    let Some((rows, mut rest)) = bytes.split_first_chunk::<2>() else { return };
    let rows = usize::from(u16::from_le_bytes(*rows));
    let mut chunks = small_columns::ALL.map(|_| (Vec::new(), 0));
    while let Some(page) = Contents::take(&mut rest) {
        let (chunk, levels) = &mut chunks[usize::from(page.column) % small_columns::ALL.len()];
        page.put_framed(chunk);
        *levels += if page.kind == DICTIONARY_PAGE as u8 { 0 } else { usize::from(page.levels) };
    }
    let chunks = chunks.map(|(bytes, levels)| Chunk { bytes: bytes.into(), rows, levels });
    let Ok(index) = RowGroupIndex::of(&chunks) else { return };
    for what in [LabelScan::Names, LabelScan::Values("__name__"), LabelScan::Values("pod")] {
        let mut known = BTreeSet::new();
        let each = |text: &str| _ = known.insert(text.to_string());
        let all = match what {
            LabelScan::Names => index.label_names(&Select::ALL, each),
            LabelScan::Values(label) => index.label_values(label, &Select::ALL, each),
        };
        all.expect("BUG: the selection has no condition to stop");
        let [metrics, names, values, ..] = &chunks;
        let listed = match what {
            LabelScan::Names => label_scan::names_of(names),
            LabelScan::Values("__name__") => label_scan::metrics_of(metrics),
            LabelScan::Values(label) => label_scan::values_of(label, names, values),
        };
        let listed = listed.map(BTreeSet::from_iter);
        if index.rows() > 0 {
            assert_eq!(listed, Ok(known), "the index lists other texts: {what:?}");
        }
    }
}

/// Decodes `bytes` as a page, and as a number of values (two bytes) followed by the encoded values.
pub fn values(bytes: &[u8]) {
    let _ = Unpacked::take(&mut &*bytes);
    let Some((len, encoded)) = bytes.split_first_chunk::<2>() else { return };
    let len = usize::from(u16::from_le_bytes(*len));
    let (mut sum, mut seen) = (0i64, Vec::new());
    let mut step = |step: i64| {
        sum = sum.wrapping_add(step);
        seen.push(sum);
    };
    let mut see = |steps: Steps<'_>| match steps {
        Steps::First(value) => step(value),
        Steps::Alike(len, alike) => (0..len).for_each(|_| step(alike)),
        Steps::Each(least, more) => more.iter().for_each(|more| step(least.wrapping_add(*more as i64))),
    };
    let middle = len / 3..len - len / 5;
    if let Some(packed) = Packed::open(encoded.to_vec(), 0, len, Some(&mut see)) {
        let mut read = Vec::new();
        packed.read(0..len, &mut read);
        assert_eq!(read, seen, "the values read differ from the values seen");
        let part = packed.only(std::iter::once(middle.clone()));
        read.clear();
        part.read(middle.clone(), &mut read);
        assert_eq!(read, seen[middle.clone()], "the values read in the middle differ");
    }
    let mut decoded = Vec::new();
    let whole = rle::indexes(encoded, len, &mut decoded);
    let opened = rle::Indexes::open(encoded.to_vec(), 0, len, 1000);
    assert_eq!(opened.is_some(), whole.is_some() && decoded.iter().all(|index| *index < 1000));
    if let Some(indexes) = opened {
        let mut read = Vec::new();
        indexes.read(middle.clone(), |index, count| read.extend(std::iter::repeat_n(index as u32, count)));
        assert_eq!(read, decoded[middle], "the indexes read in the middle differ");
    }
}

/// Appends an uncompressed page: column, kind, encoding, number of values and nulls, bytes.
#[cfg(test)]
fn put_page(out: &mut Vec<u8>, column: u8, page: &Unpacked) {
    let header = [column, page.header.kind as u8, page.header.encoding as u8];
    out.extend(header);
    out.extend((page.header.levels as u16).to_le_bytes());
    out.extend((page.bytes.len() as u16).to_le_bytes());
    out.extend(&page.bytes);
}

pub(crate) struct Contents<'a> {
    pub(crate) column: u8,
    pub(crate) kind: u8,
    pub(crate) encoding: u8,
    pub(crate) levels: u16,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Contents<'a> {
    fn take(from: &mut &'a [u8]) -> Option<Self> {
        let ([column, kind, encoding, a, b, c, d], rest) = from.split_first_chunk()?;
        let len = usize::from(u16::from_le_bytes([*c, *d]));
        let (bytes, rest) = rest.split_at(len.min(rest.len()));
        *from = rest;
        let levels = u16::from_le_bytes([*a, *b]);
        Some(Self { column: *column, kind: *kind, encoding: *encoding, levels, bytes })
    }

    /// Appends the page in the form that it has in a file.
    pub(crate) fn put_framed(&self, out: &mut Vec<u8>) {
        let packed = zstd::bulk::compress(self.bytes, 1).expect("BUG: a page cannot be compressed");
        // a header byte holds the difference from the last field's number, and the field's type: 5 for an integer, 12
        // for a struct
        let put_next = |out: &mut Vec<u8>, value: usize| {
            out.push(0x15);
            varint::put(out, varint::zigzag(value as i64));
        };
        [self.kind.into(), self.bytes.len(), packed.len()].into_iter().for_each(|value| put_next(out, value));
        out.push(if i64::from(self.kind) == DICTIONARY_PAGE { 0x4c } else { 0x2c });
        [self.levels, self.encoding.into()].into_iter().for_each(|value| put_next(out, value.into()));
        out.extend([0, 0]);
        out.extend(packed);
    }
}

/// A file in memory with an unbounded cache.
#[derive(Debug)]
pub struct FullyCachedFile {
    file: Bytes,
    pub cache: RefCell<HashMap<CacheSlot, Cached>>,
}

impl FullyCachedFile {
    pub fn of(file: Bytes) -> Self {
        Self { file, cache: RefCell::default() }
    }
}

impl Ranges for FullyCachedFile {
    fn name(&self) -> &str {
        "(kept)"
    }

    fn len(&self) -> u64 {
        self.file.len() as u64
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        self.file.fetch(ranges)
    }

    fn cached(&self, slot: CacheSlot) -> Option<Cached> {
        self.cache.borrow().get(&slot).cloned()
    }

    fn cache(&self, slot: CacheSlot, value: Cached) {
        self.cache.borrow_mut().insert(slot, value);
    }

    fn has_room_for_index(&self, _: usize, bytes: u64) -> bool {
        bytes <= 64 << 20
    }
}

#[derive(Debug, PartialEq)]
struct Row {
    labels: Vec<u8>,
    times: Vec<i64>,
    bits: Vec<u64>,
}

fn rows(file: &dyn Ranges) -> Result<Vec<Row>, TableError> {
    let footer = Arc::new(Footer::read(&METRICS, file)?);
    let mut cursor = Cursor::new(file, footer, Arc::new(Select::ALL), 16 << 10);
    let mut rows = Vec::new();
    while cursor.advance()? {
        let mut samples = Samples::default();
        cursor.read(&mut samples)?;
        let bits = samples.values.iter().map(|v| v.to_bits()).collect();
        let labels = cursor.labels().as_bytes().to_vec();
        rows.push(Row { labels, times: samples.timestamps, bits });
    }
    Ok(rows)
}

fn list(file: &dyn Ranges, what: LabelScan<'_>) -> Result<BTreeSet<String>, TableError> {
    let footer = Arc::new(Footer::read(&METRICS, file)?);
    let select = Arc::new(Select { samples: false, ..Select::ALL });
    let mut found = BTreeSet::new();
    Cursor::new(file, footer, select, 16 << 10).scan_labels(what, &mut |text| {
        found.insert(text.to_string());
        true
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests;
