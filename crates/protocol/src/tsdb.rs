//! Reads blocks of Prometheus' time series database in bounded memory.
//!
//! ```text
//!   BLOCK/meta.json        id, times and counts of the block
//!        /index            symbols, then series in order of their labels, each with its list of chunks
//!        /chunks/000001 …  chunks of about 120 samples
//!        /tombstones       deletions of samples that are still in the chunks
//! ```
//!
//! - [`meta`]: reads `meta.json`
//! - [`index`]: reads series one by one, in the order of the file, without postings
//! - [`chunks`]: reads a chunk by its reference
//! - [`xor`]: decodes a chunk of floats, and encodes one for tests
//! - [`tombstones`]: reads deletions
//!
//! The formats are described in Prometheus' `tsdb/docs/format`. Files are read by [`ReadAt`] through windows of fixed
//! size, so a block may have any size. The files are untrusted: whatever they contain, reading returns their contents
//! or a [`TsdbError`].

pub mod chunks;
pub mod fuzz;
pub mod index;
pub mod meta;
pub mod read;
pub mod tombstones;
pub mod xor;

pub use chunks::{Chunk, Chunks};
pub use index::{ChunkMeta, Index, SeriesEntry};
pub use meta::BlockMeta;
pub use read::ReadAt;
pub use tombstones::Tombstones;

/// Reason why a block cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TsdbError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Io {
        /// File of the block.
        file: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Bytes violate the format.
    #[error("{file} is damaged at byte {at}: {reason}")]
    Damaged {
        /// File of the block.
        file: &'static str,
        /// Byte offset in the file.
        at: u64,
        /// Description of the error.
        reason: &'static str,
    },
    /// The version of a format is not known to this build.
    #[error("{file} has version {found}, this build reads {known}")]
    Version {
        /// File of the block.
        file: &'static str,
        /// Version found in the file.
        found: u64,
        /// Versions that can be read.
        known: &'static str,
    },
}

impl TsdbError {
    pub(crate) const fn damaged(file: &'static str, at: u64, reason: &'static str) -> Self {
        Self::Damaged { file, at, reason }
    }
}

#[cfg(test)]
mod tests;
