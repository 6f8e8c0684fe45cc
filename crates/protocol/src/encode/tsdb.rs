//! Builds blocks of Prometheus' database in memory, for tests. They have a single segment, and no postings.

use crate::tsdb::xor;
use model::{LabelsRef, TimeRange};
use std::collections::BTreeMap;
use stdx::varint;

#[derive(Debug, Clone, Default)]
pub struct BlockFiles {
    pub meta: Vec<u8>,
    pub index: Vec<u8>,
    /// `chunks/000001`
    pub chunks: Vec<u8>,
    pub tombstones: Vec<u8>,
}

#[derive(Debug, Clone)]
pub enum BlockChunk<'a> {
    /// Timestamps and values of at most 65,535 samples.
    Floats(&'a [i64], &'a [f64]),
    /// A chunk with this encoding number and these bytes, which need not be valid. The index says that the
    /// chunk's samples are in this range of time.
    Other(u8, &'a [u8], TimeRange),
}

/// Collects series, which must be added in the order of their labels, and encodes the files of a block.
#[derive(Debug)]
pub struct BlockEncoder {
    version: u8,
    symbols: BTreeMap<String, u64>,
    series: Vec<EncodedSeries>,
    chunks: Vec<u8>,
    stones: Vec<(usize, TimeRange)>,
    range: Option<TimeRange>,
    samples: u64,
}

#[derive(Debug)]
struct EncodedSeries {
    labels: Vec<(String, String)>,
    chunks: Vec<(i64, i64, u64)>,
}

impl BlockEncoder {
    /// `version` is the version of the index format, 1 or 2.
    pub fn new(version: u8) -> Self {
        let mut chunks = 0x85BD_40DD_u32.to_be_bytes().to_vec();
        chunks.extend([1, 0, 0, 0]);
        Self {
            version,
            symbols: BTreeMap::new(),
            series: Vec::new(),
            chunks,
            stones: Vec::new(),
            range: None,
            samples: 0,
        }
    }

    /// Adds a series. Its chunks may be in any order.
    pub fn series(&mut self, labels: LabelsRef<'_>, chunks: &[BlockChunk<'_>]) {
        let labels: Vec<_> = labels.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        for (name, value) in &labels {
            self.symbols.insert(name.clone(), 0);
            self.symbols.insert(value.clone(), 0);
        }
        let chunks = chunks.iter().map(|chunk| self.chunk(chunk)).collect();
        self.series.push(EncodedSeries { labels, chunks });
    }

    /// Adds a tombstone for a range of time of the series that was added last.
    pub fn delete(&mut self, range: TimeRange) {
        self.stones.push((self.series.len() - 1, range));
    }

    fn chunk(&mut self, chunk: &BlockChunk<'_>) -> (i64, i64, u64) {
        let at = self.chunks.len() as u64;
        let (encoding, data, range) = match chunk {
            BlockChunk::Floats(timestamps, values) => {
                let range = TimeRange::new(timestamps[0], timestamps[timestamps.len() - 1]);
                self.samples += timestamps.len() as u64;
                (1, xor::encode(timestamps, values), range)
            }
            BlockChunk::Other(encoding, data, range) => (*encoding, data.to_vec(), *range),
        };
        varint::put(&mut self.chunks, data.len() as u64);
        let start = self.chunks.len();
        self.chunks.push(encoding);
        self.chunks.extend(data);
        put_crc(&mut self.chunks, start);
        let all = self.range.get_or_insert(range);
        all.start_ms = all.start_ms.min(range.start_ms);
        all.end_ms = all.end_ms.max(range.end_ms);
        (range.start_ms, range.end_ms, at)
    }

    pub fn finish(mut self, ulid: &str) -> BlockFiles {
        let mut index = 0xBAAA_D700_u32.to_be_bytes().to_vec();
        index.push(self.version);
        let symbols_at = index.len() as u64;
        self.put_symbols(&mut index);
        let mut series_at = 0;
        let mut references = Vec::new();
        for series in &self.series {
            if self.version == 2 {
                index.resize(index.len().next_multiple_of(16), 0);
            }
            let at = index.len() as u64;
            series_at = if series_at == 0 { at } else { series_at };
            references.push(if self.version == 2 { at / 16 } else { at });
            series.put(&self.symbols, &mut index);
        }
        // postings would begin here
        let behind = index.len() as u64;
        let contents = [symbols_at, series_at, 0, 0, behind, behind];
        let start = index.len();
        contents.iter().for_each(|at| index.extend(at.to_be_bytes()));
        put_crc(&mut index, start);
        let mut tombstones = 0x0130_BA30_u32.to_be_bytes().to_vec();
        tombstones.push(1);
        for (series, range) in &self.stones {
            varint::put(&mut tombstones, references[*series]);
            put_varint(&mut tombstones, range.start_ms);
            put_varint(&mut tombstones, range.end_ms);
        }
        put_crc(&mut tombstones, 5);
        let range = self.range.unwrap_or(TimeRange::new(0, 0));
        let meta = format!(
            r#"{{"ulid": "{ulid}", "minTime": {}, "maxTime": {}, "stats": {{"numSamples": {}, "numSeries": {}}}, "compaction": {{"level": 1, "sources": ["{ulid}"]}}, "version": 1}}"#,
            range.start_ms,
            range.end_ms.saturating_add(1),
            self.samples,
            self.series.len(),
        );
        BlockFiles { meta: meta.into_bytes(), index, chunks: self.chunks, tombstones }
    }

    fn put_symbols(&mut self, index: &mut Vec<u8>) {
        let at = index.len();
        index.extend([0; 4]);
        index.extend((self.symbols.len() as u32).to_be_bytes());
        for (i, (text, reference)) in self.symbols.iter_mut().enumerate() {
            *reference = if self.version == 2 { i as u64 } else { index.len() as u64 };
            varint::put(index, text.len() as u64);
            index.extend(text.as_bytes());
        }
        let len = (index.len() - at - 4) as u32;
        index[at..at + 4].copy_from_slice(&len.to_be_bytes());
        put_crc(index, at + 4);
    }
}

impl EncodedSeries {
    fn put(&self, symbols: &BTreeMap<String, u64>, out: &mut Vec<u8>) {
        let mut entry = Vec::new();
        varint::put(&mut entry, self.labels.len() as u64);
        for text in self.labels.iter().flat_map(|(name, value)| [name, value]) {
            varint::put(&mut entry, symbols[text]);
        }
        varint::put(&mut entry, self.chunks.len() as u64);
        let mut last: Option<(i64, u64)> = None;
        for (min, max, at) in &self.chunks {
            match last {
                None => {
                    put_varint(&mut entry, *min);
                    varint::put(&mut entry, max.wrapping_sub(*min) as u64);
                    varint::put(&mut entry, *at);
                }
                Some((end, before)) => {
                    varint::put(&mut entry, min.wrapping_sub(end) as u64);
                    varint::put(&mut entry, max.wrapping_sub(*min) as u64);
                    put_varint(&mut entry, at.wrapping_sub(before) as i64);
                }
            }
            last = Some((*max, *at));
        }
        varint::put(out, entry.len() as u64);
        let start = out.len();
        out.extend(entry);
        put_crc(out, start);
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, n: i64) {
    varint::put(out, varint::zigzag(n));
}

fn put_crc(out: &mut Vec<u8>, from: usize) {
    let crc = crc32c::crc32c(&out[from..]);
    out.extend(crc.to_be_bytes());
}
