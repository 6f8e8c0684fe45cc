//! Encodes the definitions of series, which later records of the same dictionary refer to.
//!
//! ```text
//!   section  = varint(raw length, 0: no definitions)  varint(packed length, 0: not packed)  body
//!   body     = varint(series n)  deltas(n references)
//!              varint(symbols)  symbols × varint(length)  texts
//!              n × series
//!   series   = varint(labels)  bitmap of min(labels, previous series' labels) bits, low bit first
//!              for each label that is marked, or beyond the previous series' labels:
//!                name   0: same name as in the previous series | 1 + symbol
//!                value  symbol
//!   symbol   = varint  0: the next unused symbol | distance back from the next unused symbol
//! ```
//!
//! Each series is encoded as the labels in which it differs from the previous series. The section is packed
//! as an LZ4 block if that saves more than an eighth.

use super::columns::put_deltas;
use super::definitions::RECORD_LABEL_BYTES_MAX;
use hashbrown::{DefaultHashBuilder, HashTable};
use model::caps::SERIES_LABELS_MAX;
use model::{LabelsRef, SeriesRef};
use std::hash::BuildHasher;
use std::ops::Range;
use stdx::varint;

/// Shorter bodies are not packed, because that would save too little.
const PACK_BYTES_MIN: usize = 128;

const _: () = assert!(SERIES_LABELS_MAX <= 128, "the bitmap of labels is too small");

#[derive(Debug, Default)]
pub(super) struct Definer {
    refs: Vec<u32>,
    symbols: Symbols,
    series: Vec<u8>,
    /// For each label of the previous series, the symbols of its name and value.
    previous: Vec<(u32, u32)>,
    label_bytes: usize,
    body: Vec<u8>,
    packed: Vec<u8>,
    finished_bytes: usize,
}

impl Definer {
    pub(super) fn clear(&mut self) {
        self.refs.clear();
        self.symbols.clear();
        self.series.clear();
        self.previous.clear();
        self.label_bytes = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.refs.len()
    }

    /// Total length of the labels of all series so far, in canonical form.
    pub(super) fn label_bytes(&self) -> usize {
        self.label_bytes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let symbols = &self.symbols;
        (self.refs.capacity() + symbols.ends.capacity() + symbols.table.capacity()) * 4
            + self.series.capacity()
            + symbols.text.capacity()
            + self.body.capacity()
            + self.packed.capacity()
    }

    pub(super) fn define(&mut self, series: SeriesRef, labels: LabelsRef<'_>) {
        self.label_bytes += labels.as_bytes().len();
        assert!(self.label_bytes <= RECORD_LABEL_BYTES_MAX, "BUG: a record was filled beyond its limit");
        self.refs.push(series.0);
        let before = self.previous.len();
        // reserves the maximum length of the label count and the bitmap, which are known only after the
        // labels
        let head = self.series.len();
        self.series.extend_from_slice(&[0; 2 + 16]);
        let (mut count, mut marked) = (0, 0u128);
        for (i, (name, value)) in labels.iter().enumerate() {
            count += 1;
            if let Some(&(old_name, old_value)) = self.previous.get(i) {
                let same_name = self.symbols.get(old_name) == name.as_bytes();
                if same_name && self.symbols.get(old_value) == value.as_bytes() {
                    continue;
                }
                marked |= 1 << i;
                if same_name {
                    self.series.push(0);
                } else {
                    self.previous[i].0 = self.symbols.put(name, 1, &mut self.series);
                }
                self.previous[i].1 = self.symbols.put(value, 0, &mut self.series);
            } else {
                let name = self.symbols.put(name, 1, &mut self.series);
                let value = self.symbols.put(value, 0, &mut self.series);
                self.previous.push((name, value));
            }
        }
        assert!(count <= SERIES_LABELS_MAX, "BUG: labels are not canonical: {count} of them");
        self.previous.truncate(count);
        self.close_head(head, count, &marked.to_le_bytes()[..count.min(before).div_ceil(8)]);
    }

    /// Writes the label count and the bitmap at `head`, and moves the labels up behind them.
    fn close_head(&mut self, head: usize, count: usize, bitmap: &[u8]) {
        let mut at = head;
        let mut put = |byte: u8| {
            self.series[at] = byte;
            at += 1;
        };
        match count {
            0..0x80 => put(count as u8),
            _ => [count as u8 | 0x80, 1].into_iter().for_each(&mut put),
        }
        bitmap.iter().copied().for_each(put);
        let (tail, len) = (head + 18, self.series.len());
        self.series.copy_within(tail..len, at);
        self.series.truncate(at + len - tail);
    }

    pub(super) fn finished_bytes(&self) -> usize {
        self.finished_bytes
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        self.put_section(out);
        self.finished_bytes = out.len() - start;
    }

    fn put_section(&mut self, out: &mut Vec<u8>) {
        if self.refs.is_empty() {
            out.push(0);
            return;
        }
        self.body.clear();
        varint::put(&mut self.body, self.refs.len() as u64);
        put_deltas(&mut self.body, &self.refs);
        self.symbols.finish(&mut self.body);
        self.body.extend_from_slice(&self.series);
        varint::put(out, self.body.len() as u64);
        match self.pack() {
            Some(len) => {
                varint::put(out, len as u64);
                out.extend_from_slice(&self.packed[..len]);
            }
            None => {
                out.push(0);
                out.extend_from_slice(&self.body);
            }
        }
    }

    /// Packs the body and returns the length. `None` if that saves too little.
    fn pack(&mut self) -> Option<usize> {
        if self.body.len() < PACK_BYTES_MIN {
            return None;
        }
        let room = lz4_flex::block::get_maximum_output_size(self.body.len());
        self.packed.resize(room.max(self.packed.len()), 0);
        let len = lz4_flex::block::compress_into(&self.body, &mut self.packed).ok()?;
        (len < self.body.len() - self.body.len() / 8).then_some(len)
    }
}

/// All label names and values of a record, each stored once. Their numbers follow the order in which they
/// first appear.
#[derive(Debug, Default)]
struct Symbols {
    text: Vec<u8>,
    ends: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

fn span(ends: &[u32], symbol: u32) -> Range<usize> {
    let start = if symbol == 0 { 0 } else { ends[symbol as usize - 1] };
    start as usize..ends[symbol as usize] as usize
}

impl Symbols {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.table.clear();
    }

    /// Text of a symbol as bytes, which saves a check for UTF-8.
    fn get(&self, symbol: u32) -> &[u8] {
        &self.text[span(&self.ends, symbol)]
    }

    /// Writes the number by which a series refers to a text, increased by `base`. A new text is added to the
    /// table. Returns the symbol of the text.
    fn put(&mut self, text: &str, base: u64, out: &mut Vec<u8>) -> u32 {
        let Self { text: texts, ends, table, hasher } = self;
        let next = ends.len() as u32;
        let hash = hasher.hash_one(text.as_bytes());
        let rehash = |symbol: &u32| hasher.hash_one(&texts[span(ends, *symbol)]);
        let entry = table.entry(hash, |symbol| &texts[span(ends, *symbol)] == text.as_bytes(), rehash);
        match entry {
            hashbrown::hash_table::Entry::Occupied(found) => {
                let symbol = *found.get();
                varint::put(out, base + u64::from(next - symbol));
                symbol
            }
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(next);
                texts.extend_from_slice(text.as_bytes());
                ends.push(texts.len() as u32);
                varint::put(out, base);
                next
            }
        }
    }

    fn finish(&self, out: &mut Vec<u8>) {
        varint::put(out, self.ends.len() as u64);
        let mut start = 0;
        for &end in &self.ends {
            varint::put(out, u64::from(end - start));
            start = end;
        }
        out.extend_from_slice(&self.text);
    }
}
