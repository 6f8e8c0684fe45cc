//! One Parquet file to rows, fetching and decoding no more than needed.
//!
//! ```text
//!   footer ─▶ row groups whose name, start, end may match ─▶ pages likewise ─▶ windows of some rows
//!          ─▶ name, labels, series, start, end of the rows there ─▶ rows that do match
//!          ─▶ samples of these rows ─▶ cut to the range ─▶ caller
//! ```
//!
//! Files of our own that are read repeatedly go another way: an index of each row group and open pages of samples are
//! kept in the cache ([`Ranges::keep`]).
//!
//! ```text
//!   index ─▶ rows that match ─▶ their pages ─▶ blocks that reach into the range ─▶ caller
//! ```
//!
//! Files of other programs have their rows in any order and are sorted while they are read ([`foreign`]).
//!
//! Bytes come through [`Ranges`], so nothing here knows where a file lies. A file is untrusted input: it gives rows or
//! [`TableError::Damaged`].

mod cache;
mod chunks;
mod cursor;
mod filter;
mod footer;
mod foreign;
pub mod fuzz;
mod index;
mod indexed;
mod label_scan;
mod prune;
mod row;
mod select;
mod source;
mod stop;
mod stream;

pub(crate) use cache::CachedFile;
pub use cache::{Cache, CacheStats};
pub(crate) use cursor::Bookmark;
pub use cursor::{Cursor, WINDOW_BYTES};
pub use footer::Footer;
pub(crate) use footer::{Depth, check};
pub use index::RowGroupIndex;
pub use label_scan::LabelScan;
pub use select::{Matcher, Select, ValueTest};
pub(crate) use source::guarded;
pub use source::{Kept, Place, Ranges};
use source::{Once, fetch};
pub use stop::Stop;
pub(crate) use stream::DECODER_BYTES;

/// Counts of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Bytes fetched, footers aside.
    pub bytes: u64,
    /// Row groups that could not be excluded.
    pub row_groups: u64,
    /// Rows that were decoded whole.
    pub rows: u64,
    /// Samples of which a file of another program has two that differ.
    pub conflicts: u64,
}

impl std::ops::AddAssign for ReadStats {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.row_groups += other.row_groups;
        self.rows += other.rows;
        self.conflicts += other.conflicts;
    }
}
