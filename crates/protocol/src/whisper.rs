//! Whisper files, as carbon writes them: one file for each series.
//!
//! ```text
//!   header   aggregation method, longest retention, xFilesFactor, number of archives     4 × 4 bytes
//!   archive  offset, step, points                                                        3 × 4 bytes each
//!   points   time, value                                                                 4 + 8 bytes each
//! ```
//!
//! All numbers are big-endian, times are seconds since 1970. The points of an archive are a ring: the time of the
//! first point decides where each other time belongs. A point with another time than its place stands for is stale,
//! and counts as missing. Source: the layout in <https://graphite.readthedocs.io/en/latest/whisper.html>.
//!
//! [`read`] has the reader, [`write`] the writer.

pub mod read;
pub mod write;

pub use read::File;

/// Limit on the archives of a file.
pub const ARCHIVES_MAX: usize = 64;

/// Limit on the size of a file that is read. It has room for 22 million points, such as two years at three seconds.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// How files that go-carbon has compressed begin. Source: `compressedMagicString` of `go-whisper`.
const COMPRESSED_MAGIC: &[u8] = b"whisper_compressed";

const HEADER_BYTES: usize = 16;
const ARCHIVE_BYTES: usize = 12;
const POINT_BYTES: usize = 12;

/// The aggregation methods have the numbers 1 to 8.
const METHODS: std::ops::RangeInclusive<u32> = 1..=8;

/// Values at equal steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Archive {
    pub step_s: u32,
    pub points: u32,
}

impl Archive {
    #[must_use]
    pub const fn retention_s(&self) -> i64 {
        self.step_s as i64 * self.points as i64
    }

    const fn bytes(&self) -> u64 {
        self.points as u64 * POINT_BYTES as u64
    }
}

/// The content of a file's header.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Number of the aggregation method, 1 to 8.
    pub method: u32,
    pub x_files_factor: f32,
    /// At least one, the finest first. Each step is a multiple of the one before.
    pub archives: Vec<Archive>,
}

/// A file that is not a Whisper file, or is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WhisperError {
    #[error("the file has {bytes} bytes, its header needs {needs}")]
    Short { bytes: u64, needs: u64 },
    #[error("go-carbon has compressed the file; convert it to the usual format first")]
    Compressed,
    #[error("unknown aggregation method {0}")]
    Method(u32),
    #[error("the xFilesFactor is not a number from 0 to 1")]
    XFilesFactor,
    #[error("{0} archives, there must be 1 to {ARCHIVES_MAX}")]
    Archives(u32),
    #[error("archive {0} has no points, or a step of zero")]
    Empty(usize),
    #[error("archive {0} is not in the file")]
    Outside(usize),
    #[error(
        "the step of archive {0} is not a multiple of the step before it, or its retention is not longer"
    )]
    Order(usize),
}

#[cfg(test)]
mod tests;
