//! Reads blocks of Prometheus' time series database in bounded memory (formats: Prometheus'
//! `tsdb/docs/format`).
//!
//! ```text
//!   BLOCK/meta.json        id, times and counts of the block
//!        /index            symbols, then series in order of their labels, each with its list of chunks
//!        /chunks/000001 …  chunks of about 120 samples
//!        /tombstones       deletions of samples that are still in the chunks
//! ```
//!
//! - [`meta`]: reads `meta.json`
//! - [`index`]: reads series one by one, without postings
//! - [`chunks`]: reads a chunk by its reference
//! - [`xor`]: decodes a chunk of floats
//! - [`tombstones`]: reads deletions
//!
//! [`ReadAt`] reads files through small windows. The files are untrusted, and errors are a [`TsdbError`].

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

#[derive(Debug, thiserror::Error)]
pub enum TsdbError {
    #[error("cannot read {file}: {source}")]
    Io {
        file: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Bytes violate the format.
    #[error("{file} is damaged at byte {at}: {reason}")]
    Damaged {
        file: &'static str,
        /// Byte offset in the file.
        at: u64,
        reason: &'static str,
    },
    /// This build does not know the version of a format.
    #[error("{file} has version {found}, this build reads {known}")]
    Version {
        file: &'static str,
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
