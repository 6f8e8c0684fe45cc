//! Reads the rows of a Parquet file, fetching and decoding no more than needed.
//!
//! ```text
//!   footer ─▶ row groups whose name, start, end may match ─▶ pages likewise ─▶ windows of some rows
//!          ─▶ name, labels, series, start, end of the rows there ─▶ rows that do match
//!          ─▶ samples of these rows ─▶ cut to the range ─▶ caller
//! ```
//!
//! For Floodmark's own files that are read repeatedly, the cache keeps row-group indexes and open pages
//! ([`Ranges::cache`]):
//!
//! ```text
//!   index ─▶ rows that match ─▶ their pages ─▶ blocks that reach into the range ─▶ caller
//! ```
//!
//! Rows of other programs' files are sorted while they are read ([`foreign`]). Bytes come through [`Ranges`] and are
//! untrusted: a read returns rows or [`TableError::Damaged`].

mod cache;
mod cursor;
mod filter;
mod footer;
mod foreign;
pub mod fuzz;
mod index;
mod indexed_rows;
mod label_scan;
mod prune;
pub mod records;
mod row;
mod select;
mod small_columns;
mod source;
mod stop;
mod streamed_rows;

pub(crate) use cache::CachedFile;
pub use cache::{Cache, CacheStats};
pub(crate) use cursor::Bookmark;
pub use cursor::{Cursor, WINDOW_BYTES};
pub use footer::Footer;
pub(crate) use footer::{Depth, check};
pub use index::RowGroupIndex;
pub use label_scan::LabelScan;
pub(crate) use records::FileRows;
pub use records::{RecordScan, RecordSelect};
pub use select::{Matcher, Select, ValueTest};
pub(crate) use source::guarded;
pub use source::{CacheSlot, Cached, Ranges};
use source::{Uncached, fetch};
pub(crate) use stop::Pace;
pub use stop::Stop;
pub(crate) use streamed_rows::DECODER_BYTES;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Bytes fetched, without footers.
    pub bytes: u64,
    /// Number of row groups that were read because their statistics did not exclude them.
    pub row_groups: u64,
    /// Number of fully decoded rows.
    pub rows: u64,
    /// Number of row-group indexes that were built.
    pub indexes: u64,
    /// Number of samples for which a file of another program has two different values.
    pub conflicts: u64,
}

impl std::ops::AddAssign for ReadStats {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.row_groups += other.row_groups;
        self.rows += other.rows;
        self.indexes += other.indexes;
        self.conflicts += other.conflicts;
    }
}
