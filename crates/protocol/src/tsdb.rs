//! Reads the blocks of Prometheus' time series database in bounded memory. The formats are described in
//! Prometheus' `tsdb/docs/format`.
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
//! Files are read through small windows ([`ReadAt`]). They are not trusted: any fault is reported as a
//! [`TsdbError`].

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
        /// The error of the operating system.
        source: std::io::Error,
    },
    #[error("{file} is damaged at byte {at}: {reason}")]
    Damaged {
        file: &'static str,
        /// Position of the fault in the file, in bytes.
        at: u64,
        reason: &'static str,
    },
    #[error("{file} has version {found}, this build reads {known}")]
    Version {
        file: &'static str,
        found: u64,
        /// The versions that this build can read, as text.
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
