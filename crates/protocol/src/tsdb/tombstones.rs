//! Reads the deletions of a block. A deleted sample remains in its chunk until the block is compacted.
//!
//! ```text
//!   0x0130BA30  version 1  ( series ref uvarint, first ms varint, last ms varint )*  crc32c of the deletions
//! ```

use super::TsdbError;
use super::read::Cursor;
use model::TimeRange;
use std::collections::HashMap;

const FILE: &str = "tombstones";
const MAGIC: u32 = 0x0130_BA30;

/// Limit on the size of the file, in which a deletion takes about 15 bytes.
pub const TOMBSTONES_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Default)]
pub struct Tombstones {
    by_series: HashMap<u64, Vec<TimeRange>>,
}

impl Tombstones {
    /// Parses the file's contents. An empty file has no deletions.
    pub fn parse(bytes: &[u8]) -> Result<Self, TsdbError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let damaged = |at: usize, reason| TsdbError::damaged(FILE, at as u64, reason);
        let Some((content, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(damaged(0, "the file is too short"));
        };
        let mut cursor = Cursor::new(content);
        if cursor.u32() != Some(MAGIC) {
            return Err(damaged(0, "no magic number"));
        }
        match cursor.take(1) {
            Some([1]) => {}
            Some([found]) => {
                return Err(TsdbError::Version { file: FILE, found: u64::from(*found), known: "1" });
            }
            _ => return Err(damaged(4, "no version")),
        }
        if crc32c::crc32c(cursor.rest) != u32::from_be_bytes(*crc) {
            return Err(damaged(content.len(), "the deletions fail their checksum"));
        }
        let mut by_series: HashMap<u64, Vec<TimeRange>> = HashMap::new();
        while !cursor.rest.is_empty() {
            let at = content.len() - cursor.rest.len();
            let stone = (cursor.uvarint(), cursor.varint(), cursor.varint());
            let (Some(series), Some(first), Some(last)) = stone else {
                return Err(damaged(at, "a truncated deletion"));
            };
            by_series.entry(series).or_default().push(TimeRange::new(first, last));
        }
        Ok(Self { by_series })
    }

    /// Returns the ranges of time that were deleted from a series, in no particular order. `series` is the
    /// series' reference in the index.
    pub fn of(&self, series: u64) -> &[TimeRange] {
        self.by_series.get(&series).map_or(&[], Vec::as_slice)
    }

    pub fn series(&self) -> usize {
        self.by_series.len()
    }
}
