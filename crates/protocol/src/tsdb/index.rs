//! Reads a block's index, which lists the series and where their chunks are.
//!
//! ```text
//!   magic, version │ symbols │ series, series, … │ postings and tables, not needed here │ contents
//! ```
//!
//! All series are read in one pass, in the order of their labels. Only the positions of every 32nd symbol and
//! the texts that were used recently are kept in memory.

use super::TsdbError;
use super::read::{Cursor, ReadAt, Window};
use model::caps::{LABEL_VALUE_BYTES_MAX, SERIES_LABELS_MAX};
use model::{Labels, LabelsBuilder, SeriesRefusal};
use std::collections::HashMap;
use std::sync::Arc;
use stdx::varint;

const FILE: &str = "index";
const MAGIC: u32 = 0xBAAA_D700;
const HEADER_BYTES: u64 = 5;
/// The table of contents has six references of 8 bytes and a checksum.
const CONTENTS_BYTES: u64 = 52;

/// Only every 32nd symbol's position is kept in memory. The symbols between are found by reading on from
/// there.
const SYMBOLS_STEP: u32 = 32;

/// Limit on the number of symbols, which bounds the memory for their positions: 8 bytes for every 32 symbols.
const SYMBOLS_MAX: u32 = 1 << 28;

/// Limit on the memory for cached symbols. For each symbol, the length of its text plus 80 bytes are counted.
const CACHE_BYTES_MAX: usize = 16 << 20;

/// Limit on the length of a series' entry. A chunk takes about 10 bytes, so a year with one sample per second
/// fits.
const ENTRY_BYTES_MAX: u64 = 4 << 20;
const _: () = assert!(ENTRY_BYTES_MAX == 4 << 20, "an error message names it");

/// How many bytes are read at a time, in the pass over all series and when a symbol is looked up.
const WALK_BYTES: usize = 256 << 10;
const SEARCH_BYTES: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkMeta {
    pub min_time_ms: i64,
    pub max_time_ms: i64,
    /// The argument for [`super::Chunks::get`].
    pub reference: u64,
}

#[derive(Debug, Default)]
pub struct SeriesEntry {
    /// The number by which tombstones refer to this series.
    pub reference: u64,
    /// The labels, or why they are invalid. `None` until a series is read.
    pub labels: Option<Result<Labels, SeriesRefusal>>,
    pub chunks: Vec<ChunkMeta>,
}

#[derive(Debug)]
pub struct Index<R> {
    walk: Window<R>,
    symbols: Symbols<R>,
    unit: u64,
    /// The position in the file where the next series starts. The section with all series lies between
    /// `begin` and `end`.
    at: u64,
    end: u64,
    begin: u64,
    builder: LabelsBuilder,
    /// References to the names and values of the current series' labels. At most [`SERIES_LABELS_MAX`] labels
    /// are kept.
    pairs: Vec<(u32, u32)>,
}

impl<R: ReadAt + Clone> Index<R> {
    pub fn open(source: R) -> Result<Self, TsdbError> {
        let len = source.len();
        let damaged = |at, reason| TsdbError::damaged(FILE, at, reason);
        if len < HEADER_BYTES + CONTENTS_BYTES {
            return Err(damaged(0, "the file is too short"));
        }
        let mut walk = Window::new(source.clone(), FILE, WALK_BYTES);
        let mut head = Cursor::new(walk.get(0, HEADER_BYTES as usize)?);
        if head.u32() != Some(MAGIC) {
            return Err(damaged(0, "no magic number"));
        }
        let version = match head.take(1) {
            Some([version @ (1 | 2)]) => *version,
            other => {
                let found = other.map_or(0, |v| u64::from(v[0]));
                return Err(TsdbError::Version { file: FILE, found, known: "1 and 2" });
            }
        };
        let contents_at = len - CONTENTS_BYTES;
        let contents = walk.get(contents_at, CONTENTS_BYTES as usize)?;
        let (content, crc) = contents.split_last_chunk::<4>().expect("BUG: too few bytes were read");
        if crc32c::crc32c(content) != u32::from_be_bytes(*crc) {
            return Err(damaged(contents_at, "the table of contents fails its checksum"));
        }
        let mut cursor = Cursor::new(content);
        let references: [u64; 6] =
            std::array::from_fn(|_| cursor.u64().expect("BUG: less than 48 bytes are left"));
        if references.iter().any(|r| *r > contents_at) {
            return Err(damaged(contents_at, "a section beyond the end of the file"));
        }
        let [symbols_at, series_at, ..] = references;
        let symbols = Symbols::open(source, symbols_at, contents_at, version, &mut walk)?;
        // the section of series has no length: it ends where the next section begins
        let behind = references[2..].iter().copied().filter(|r| *r > series_at);
        let end = if series_at == 0 { 0 } else { behind.min().unwrap_or(contents_at) };
        if series_at != 0 && series_at < HEADER_BYTES {
            return Err(damaged(contents_at, "series before the symbols"));
        }
        let unit = if version == 1 { 1 } else { 16 };
        let (builder, pairs) = (LabelsBuilder::new(), Vec::new());
        Ok(Self { walk, symbols, unit, at: series_at, end, begin: series_at, builder, pairs })
    }

    pub const fn symbols(&self) -> u32 {
        self.symbols.count
    }

    pub fn progress(&self) -> f64 {
        match self.end.saturating_sub(self.begin) {
            0 => 1.0,
            all => (self.at - self.begin) as f64 / all as f64,
        }
    }

    /// Reads the next series into `entry`. Returns false if there is none. If only a series' labels are
    /// invalid, the following series can still be read, but not after an error.
    pub fn next(&mut self, entry: &mut SeriesEntry) -> Result<bool, TsdbError> {
        let Some(len) = self.entry_len()? else { return Ok(false) };
        let (at, start) = (self.at, len.start);
        let damaged = |reason| TsdbError::damaged(FILE, at, reason);
        let bytes = self.walk.get(start, len.bytes + 4)?;
        let (content, crc) =
            bytes.split_last_chunk::<4>().expect("BUG: fewer bytes than a checksum were read");
        if crc32c::crc32c(content) != u32::from_be_bytes(*crc) {
            return Err(damaged("a series that fails its checksum"));
        }
        let mut cursor = Cursor::new(content);
        let count = read_pairs(&mut cursor, &mut self.pairs).ok_or_else(|| damaged("truncated labels"))?;
        read_chunks(&mut cursor, &mut entry.chunks).ok_or_else(|| damaged("truncated chunks"))?;
        entry.reference = at / self.unit;
        self.at = start + len.bytes as u64 + 4;
        entry.labels = Some(self.labels(count)?);
        Ok(true)
    }

    fn entry_len(&mut self) -> Result<Option<EntryLen>, TsdbError> {
        if self.unit > 1 {
            self.at = self.at.next_multiple_of(self.unit);
        }
        loop {
            if self.at >= self.end {
                self.at = self.end;
                return Ok(None);
            }
            let at = self.at;
            let head = self.walk.get_up_to(at, varint::BYTES_MAX)?;
            if head.first() == Some(&0) {
                self.at += self.unit;
                continue;
            }
            let mut cursor = Cursor::new(head);
            let Some(len) = cursor.uvarint() else {
                return Err(TsdbError::damaged(FILE, at, "a series of impossible length"));
            };
            if len > ENTRY_BYTES_MAX {
                return Err(TsdbError::damaged(
                    FILE,
                    at,
                    "a series of more than 4 MiB, which this build does not read",
                ));
            }
            let start = at + (head.len() - cursor.rest.len()) as u64;
            if start + len + 4 > self.end {
                return Err(TsdbError::damaged(FILE, at, "a series that reaches into the next section"));
            }
            return Ok(Some(EntryLen { start, bytes: len as usize }));
        }
    }

    fn labels(&mut self, count: usize) -> Result<Result<Labels, SeriesRefusal>, TsdbError> {
        if count > SERIES_LABELS_MAX {
            return Ok(Err(SeriesRefusal::TooManyLabels(count)));
        }
        self.builder.clear();
        for (name, value) in &self.pairs {
            let name = match self.symbols.get(*name)? {
                Symbol::Text(text) => text,
                Symbol::NotUtf8 => return Ok(Err(SeriesRefusal::NotUtf8)),
                Symbol::TooLong(bytes) => return Ok(Err(SeriesRefusal::LabelNameTooLong(bytes))),
            };
            match self.symbols.get(*value)? {
                Symbol::Text(value) => self.builder.push(&name, &value),
                Symbol::NotUtf8 => return Ok(Err(SeriesRefusal::NotUtf8)),
                Symbol::TooLong(bytes) => {
                    return Ok(Err(SeriesRefusal::LabelValueTooLong(name.to_string(), bytes)));
                }
            }
        }
        Ok(self.builder.build_series())
    }
}

struct EntryLen {
    start: u64,
    bytes: usize,
}

/// Reads the references to the names and values of a series' labels. Returns how many labels there are.
/// `pairs` gets at most [`SERIES_LABELS_MAX`] of them.
fn read_pairs(cursor: &mut Cursor<'_>, pairs: &mut Vec<(u32, u32)>) -> Option<usize> {
    pairs.clear();
    let count = cursor.uvarint()?;
    for _ in 0..count {
        let name = u32::try_from(cursor.uvarint()?).ok()?;
        let value = u32::try_from(cursor.uvarint()?).ok()?;
        if pairs.len() < SERIES_LABELS_MAX {
            pairs.push((name, value));
        }
    }
    usize::try_from(count).ok()
}

fn read_chunks(cursor: &mut Cursor<'_>, chunks: &mut Vec<ChunkMeta>) -> Option<()> {
    chunks.clear();
    let (mut end, mut reference) = (0i64, 0i64);
    for i in 0..cursor.uvarint()? {
        let min = match i {
            0 => cursor.varint()?,
            _ => end.wrapping_add(cursor.uvarint()? as i64),
        };
        end = min.wrapping_add(cursor.uvarint()? as i64);
        reference = match i {
            0 => cursor.uvarint()? as i64,
            _ => reference.wrapping_add(cursor.varint()?),
        };
        chunks.push(ChunkMeta { min_time_ms: min, max_time_ms: end, reference: reference as u64 });
    }
    Some(())
}

#[derive(Debug, Clone)]
enum Symbol {
    Text(Arc<str>),
    NotUtf8,
    TooLong(usize),
}

#[derive(Debug)]
struct Symbols<R> {
    window: Window<R>,
    count: u32,
    /// The positions of every 32nd symbol. Empty in version 1 of the format, where series refer to symbols by
    /// their positions.
    places: Vec<u64>,
    by_place: bool,
    start: u64,
    end: u64,
    cache: HashMap<u32, Symbol>,
    cached_bytes: usize,
}

impl<R: ReadAt> Symbols<R> {
    /// Reads the whole symbol table once, to check it and to remember where every 32nd symbol is.
    fn open(source: R, at: u64, file_end: u64, version: u8, walk: &mut Window<R>) -> Result<Self, TsdbError> {
        let mut symbols = Self {
            window: Window::new(source, FILE, SEARCH_BYTES),
            count: 0,
            places: Vec::new(),
            by_place: version == 1,
            start: at,
            end: at,
            cache: HashMap::new(),
            cached_bytes: 0,
        };
        if at == 0 {
            return Ok(symbols);
        }
        let damaged = |at, reason| TsdbError::damaged(FILE, at, reason);
        let mut head = Cursor::new(walk.get(at, 8)?);
        let (len, count) = (head.u32().unwrap_or(0), head.u32().unwrap_or(0));
        let end = at + 4 + u64::from(len);
        if len < 4 || end + 4 > file_end {
            return Err(damaged(at, "symbols that reach beyond the end of the file"));
        }
        if count > SYMBOLS_MAX {
            return Err(damaged(at, "more than 268,435,456 symbols"));
        }
        check_crc(walk, at + 4, end)?;
        (symbols.count, symbols.start, symbols.end) = (count, at + 8, end);
        let mut at = symbols.start;
        for i in 0..count {
            if !symbols.by_place && i % SYMBOLS_STEP == 0 {
                symbols.places.push(at);
            }
            let head = walk.get_up_to(at, varint::BYTES_MAX)?;
            let mut cursor = Cursor::new(head);
            let len = cursor.uvarint().filter(|len| *len <= end - at);
            let Some(len) = len else { return Err(damaged(at, "a symbol of impossible length")) };
            at += (head.len() - cursor.rest.len()) as u64 + len;
            if at > end {
                return Err(damaged(at, "a symbol that reaches beyond the table"));
            }
        }
        Ok(symbols)
    }

    fn get(&mut self, reference: u32) -> Result<Symbol, TsdbError> {
        if let Some(symbol) = self.cache.get(&reference) {
            return Ok(symbol.clone());
        }
        let symbol = self.find(reference)?;
        let bytes = 80 + if let Symbol::Text(text) = &symbol { text.len() } else { 0 };
        if self.cached_bytes + bytes > CACHE_BYTES_MAX {
            self.cache.clear();
            self.cached_bytes = 0;
        }
        self.cached_bytes += bytes;
        self.cache.insert(reference, symbol.clone());
        Ok(symbol)
    }

    fn find(&mut self, reference: u32) -> Result<Symbol, TsdbError> {
        let missing = TsdbError::damaged(FILE, self.start, "a symbol that is not in the table");
        let (mut at, skip) = if self.by_place {
            (u64::from(reference), 0)
        } else {
            match self.places.get((reference / SYMBOLS_STEP) as usize) {
                Some(place) if reference < self.count => (*place, reference % SYMBOLS_STEP),
                _ => return Err(missing),
            }
        };
        for _ in 0..skip {
            let (start, len) = self.head(at)?;
            at = start + len;
        }
        let (start, len) = self.head(at)?;
        if len > LABEL_VALUE_BYTES_MAX as u64 {
            return Ok(Symbol::TooLong(len as usize));
        }
        let text = self.window.get(start, len as usize)?;
        Ok(std::str::from_utf8(text).map_or(Symbol::NotUtf8, |text| Symbol::Text(text.into())))
    }

    /// Returns where the text of the symbol at `at` starts, and its length.
    fn head(&mut self, at: u64) -> Result<(u64, u64), TsdbError> {
        let damaged = |reason| TsdbError::damaged(FILE, at, reason);
        if at < self.start || at >= self.end {
            return Err(damaged("a symbol outside of the table"));
        }
        let head = self.window.get_up_to(at, varint::BYTES_MAX)?;
        let mut cursor = Cursor::new(head);
        let len = cursor.uvarint();
        let start = at + (head.len() - cursor.rest.len()) as u64;
        match len {
            Some(len) if start <= self.end && len <= self.end - start => Ok((start, len)),
            _ => Err(damaged("a symbol that reaches beyond the table")),
        }
    }
}

/// Compares the checksum that follows a section with the section's contents.
fn check_crc<R: ReadAt>(walk: &mut Window<R>, from: u64, end: u64) -> Result<(), TsdbError> {
    let (mut at, mut crc) = (from, 0);
    while at < end {
        let part = walk.get(at, (end - at).min(WALK_BYTES as u64) as usize)?;
        crc = crc32c::crc32c_append(crc, part);
        at += part.len() as u64;
    }
    let stored = walk.get(end, 4)?;
    if stored != crc.to_be_bytes() {
        return Err(TsdbError::damaged(FILE, from, "the symbols fail their checksum"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::varint::put;

    #[test]
    fn labels_beyond_those_that_a_series_may_have_take_no_memory() {
        for count in [0, 1, SERIES_LABELS_MAX, SERIES_LABELS_MAX + 1, 1_900_000] {
            let mut bytes = Vec::new();
            put(&mut bytes, count as u64);
            bytes.resize(bytes.len() + 2 * count, 1);
            bytes.push(7);
            let (mut cursor, mut pairs) = (Cursor::new(&bytes), Vec::new());
            assert_eq!(read_pairs(&mut cursor, &mut pairs), Some(count));
            assert_eq!((pairs.len(), cursor.rest), (count.min(SERIES_LABELS_MAX), &[7][..]));
            assert!(pairs.capacity() <= 2 * SERIES_LABELS_MAX);
            assert_eq!(
                read_pairs(&mut Cursor::new(&bytes[..bytes.len() / 2]), &mut pairs).is_none(),
                count > 0
            );
        }
    }
}
