//! Reads the chunks of a block from its segment files.
//!
//! ```text
//!   0x85BD40DD  version 1  000  ( length uvarint, encoding, data, crc32c of encoding and data )*
//! ```
//!
//! The index refers to a chunk by `segment << 32 | offset`. The segment `chunks/000001` has number 0.

use super::TsdbError;
use super::read::{Cursor, ReadAt, Window};
use stdx::varint;

const FILE: &str = "chunks";
const MAGIC: u32 = 0x85BD_40DD;
const HEADER_BYTES: u64 = 8;
const XOR: u8 = 1;

/// Limit on the length of a chunk. It cannot be reached by floats: a chunk has at most 65,535 samples, and a
/// float sample takes at most 20 bytes.
const CHUNK_BYTES_MAX: u64 = 8 << 20;

const WINDOW_BYTES: usize = 512 << 10;

/// Limit on the number of segment files. Prometheus writes up to 512 MiB into each.
pub const SEGMENTS_MAX: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// Data that [`super::xor::decode`] can decode.
    Floats(&'a [u8]),
    /// Native histograms, or an encoding that is not known.
    Other {
        /// The encoding's number in the file. Histograms have 2 and 3.
        encoding: u8,
        samples: u64,
    },
}

#[derive(Debug)]
pub struct Chunks<R> {
    segments: Vec<Window<R>>,
    /// The number of the segment that was read last. No other segment has a window in memory.
    current: usize,
}

impl<R: ReadAt> Chunks<R> {
    /// `segments` must be in the order of their numbers.
    pub fn open(segments: Vec<R>) -> Result<Self, TsdbError> {
        if segments.len() > SEGMENTS_MAX {
            return Err(TsdbError::damaged(FILE, 0, "more than 65,536 segments"));
        }
        let mut windows = Vec::with_capacity(segments.len());
        for source in segments {
            let mut head = [0; HEADER_BYTES as usize];
            if source.len() < HEADER_BYTES {
                return Err(TsdbError::damaged(FILE, 0, "a segment without a header"));
            }
            source.read_exact_at(&mut head, 0).map_err(|source| TsdbError::Io { file: FILE, source })?;
            if !head.starts_with(&MAGIC.to_be_bytes()) {
                return Err(TsdbError::damaged(FILE, 0, "no magic number"));
            }
            if head[4] != 1 {
                return Err(TsdbError::Version { file: FILE, found: u64::from(head[4]), known: "1" });
            }
            windows.push(Window::new(source, FILE, WINDOW_BYTES));
        }
        Ok(Self { segments: windows, current: 0 })
    }

    /// Reads the chunk that the index refers to, and verifies its checksum.
    pub fn get(&mut self, reference: u64) -> Result<Chunk<'_>, TsdbError> {
        let (segment, at) = (reference >> 32, reference & 0xffff_ffff);
        let damaged = |reason| TsdbError::damaged(FILE, at, reason);
        let segment = segment as usize;
        if segment >= self.segments.len() {
            return Err(damaged("a chunk in a missing segment"));
        }
        if segment != self.current {
            self.segments[self.current].release();
            self.current = segment;
        }
        let window = &mut self.segments[segment];
        if at < HEADER_BYTES || at >= window.len() {
            return Err(damaged("a chunk outside of its segment"));
        }
        let head = window.get_up_to(at, varint::BYTES_MAX)?;
        let mut cursor = Cursor::new(head);
        let Some(len) = cursor.uvarint() else { return Err(damaged("a chunk without a length")) };
        let start = at + (head.len() - cursor.rest.len()) as u64;
        if len > CHUNK_BYTES_MAX {
            return Err(damaged("a chunk longer than the maximum"));
        }
        // the stored length does not include the byte of the encoding
        let bytes = window.get(start, 1 + len as usize + 4)?;
        let (content, crc) =
            bytes.split_last_chunk::<4>().expect("BUG: fewer bytes than a checksum were read");
        if crc32c::crc32c(content) != u32::from_be_bytes(*crc) {
            return Err(damaged("a chunk that fails its checksum"));
        }
        match content {
            [XOR, data @ ..] => Ok(Chunk::Floats(data)),
            [encoding, a, b, ..] => {
                Ok(Chunk::Other { encoding: *encoding, samples: u64::from(u16::from_be_bytes([*a, *b])) })
            }
            [encoding, ..] => Ok(Chunk::Other { encoding: *encoding, samples: 0 }),
            [] => Err(damaged("a chunk without an encoding")),
        }
    }
}
