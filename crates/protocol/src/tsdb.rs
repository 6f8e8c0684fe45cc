//! Blocks of Prometheus' time series database, read in bounded memory.
//!
//! ```text
//!   BLOCK/meta.json        what is in it: id, times, counts
//!        /index            symbols, then series in order of their labels, each with its list of chunks
//!        /chunks/000001 …  chunks of some 120 samples
//!        /tombstones       what was deleted and is still in the chunks
//! ```
//!
//! - [`meta`]: what `meta.json` says
//! - [`index`]: one series after the other, as they lie in the file; postings are not needed for that
//! - [`chunks`]: a chunk by its reference
//! - [`xor`]: a chunk of floats to samples, and back for tests
//! - [`tombstones`]: what was deleted
//!
//! The formats are described in Prometheus' `tsdb/docs/format`. Files come through [`ReadAt`], so that a block of
//! any size is read through windows of fixed size. They are foreign input: whatever they hold, reading gives what
//! is in them or [`TsdbError`].

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

/// Why a block cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TsdbError {
    /// The file system says no.
    #[error("{file}: {source}")]
    Io {
        /// File of the block.
        file: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Bytes that are not what the format says.
    #[error("{file} is damaged at byte {at}: {reason}")]
    Damaged {
        /// File of the block.
        file: &'static str,
        /// Byte offset in the file.
        at: u64,
        /// Description of the error.
        reason: &'static str,
    },
    /// A format that this build does not know.
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
