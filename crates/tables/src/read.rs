//! One Parquet file to rows, fetching and decoding no more than needed.
//!
//! ```text
//!   footer ─▶ row groups whose name, start, end may match ─▶ pages likewise ─▶ windows of some rows
//!          ─▶ name, labels, series, start, end of the rows there ─▶ rows that do match
//!          ─▶ samples of these rows ─▶ cut to the range ─▶ caller
//! ```
//!
//! What is read again and again is kept ([`Ranges::keep`]): of a row group the directory of its rows, and open pages of
//! samples. Then it goes another way, for files that we wrote:
//!
//! ```text
//!   directory ─▶ rows that match ─▶ their pages ─▶ blocks that reach into the range ─▶ caller
//! ```
//!
//! Files of other programs have their rows in any order, and go a third way ([`foreign`]).
//!
//! The bytes come through [`Ranges`], so that nothing here knows where a file lies. A file is foreign input:
//! whatever it holds, it gives rows or [`TableError::Damaged`].

mod bits;
mod column;
mod cursor;
mod directory;
mod filter;
mod foreign;
mod frame;
pub mod fuzz;
mod listed;
mod listing;
pub(crate) mod metadata;
mod packed;
mod page;
mod prune;
mod rle;
mod row;
mod stop;
mod stream;

use crate::error::TableError;
use crate::schema;
use arrow_cast::can_cast_types;
use bytes::Bytes;
use model::{SeriesKey, TimeRange};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use cursor::Bookmark;
pub use cursor::{Cursor, WINDOW_BYTES};
pub use directory::Directory;
pub use listing::Listing;
pub use page::Page;
pub use stop::Stop;
pub(crate) use stream::DECODER_BYTES;

/// Where a file's bytes come from.
pub trait Ranges {
    /// What to call the file in an error.
    fn name(&self) -> &str;
    /// Its length.
    fn len(&self) -> u64;
    /// True for an empty one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes of each range, which lie inside the file.
    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError>;

    /// As [`Self::fetch`], of bytes from which something is made that is kept instead.
    fn fetch_once(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        self.fetch(ranges)
    }

    /// What was kept for a place.
    fn kept(&self, _place: Place) -> Option<Kept> {
        None
    }

    /// Keeps something for the next read, as long as there is room.
    fn keep(&self, _place: Place, _made: Kept) {}

    /// The largest directory of a row group that there is room for: 0 where nothing is kept.
    fn directory_bytes_max(&self) -> u64 {
        0
    }

    /// The file's footer, which may be kept.
    fn footer(&self) -> Result<Arc<Footer>, TableError>
    where
        Self: Sized,
    {
        Footer::read(self).map(Arc::new)
    }
}

/// A place in a file of which something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// A row group.
    Directory(usize),
    /// A page, by its first byte.
    Page(u64),
}

/// What is made of a file's bytes and can be kept between reads. The file never changes.
#[derive(Debug, Clone)]
pub enum Kept {
    /// A row group was read once.
    Asked,
    /// What is known of its rows.
    Directory(Arc<Directory>),
    /// An open page.
    Page(Arc<Page>),
}

impl Kept {
    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Asked => 0,
            Self::Directory(directory) => directory.memory_bytes(),
            Self::Page(page) => page.memory_bytes(),
        }
    }
}

impl<R: Ranges + ?Sized> Ranges for &R {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn len(&self) -> u64 {
        (**self).len()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        (**self).fetch(ranges)
    }

    fn fetch_once(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        (**self).fetch_once(ranges)
    }

    fn kept(&self, place: Place) -> Option<Kept> {
        (**self).kept(place)
    }

    fn keep(&self, place: Place, made: Kept) {
        (**self).keep(place, made);
    }

    fn directory_bytes_max(&self) -> u64 {
        (**self).directory_bytes_max()
    }
}

/// A file whose bytes are fetched to make something of them that is kept.
struct Once<'a>(&'a dyn Ranges);

impl Ranges for Once<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        self.0.fetch_once(ranges)
    }
}

/// A file in memory.
impl Ranges for Bytes {
    fn name(&self) -> &str {
        "(in memory)"
    }

    fn len(&self) -> u64 {
        Self::len(self) as u64
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        Ok(ranges.iter().map(|r| self.slice(r.start as usize..r.end as usize)).collect())
    }
}

/// A test on the value of a label; the empty text stands for a series without it.
pub type ValueTest = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A label, and the test that its value must pass.
#[derive(Clone)]
pub struct Matcher {
    /// The label's name; `__name__` is allowed.
    pub label: String,
    /// The test.
    pub test: ValueTest,
}

impl Matcher {
    /// A matcher of `label`.
    pub fn new(label: &str, test: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { label: label.into(), test: Arc::new(test) }
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Matcher").field(&self.label).finish()
    }
}

/// Which rows and samples are wanted.
#[derive(Debug, Clone)]
pub struct Select {
    /// These metric names, sorted; all where `None`.
    pub names: Option<Vec<String>>,
    /// These series; all where `None`.
    pub series: Option<Arc<HashSet<SeriesKey>>>,
    /// Series whose labels pass all of these.
    pub matchers: Vec<Matcher>,
    /// Samples in this range.
    pub range: TimeRange,
    /// Where `false`, only labels are read: of all rows that overlap the range.
    pub samples: bool,
    /// Ends the read before its end.
    pub stop: Stop,
}

impl Select {
    /// Everything.
    pub const ALL: Self = Self {
        names: None,
        series: None,
        matchers: Vec::new(),
        range: TimeRange::ALL,
        samples: true,
        stop: Stop::NEVER,
    };

    /// True where every series is wanted.
    pub(crate) const fn takes_all_series(&self) -> bool {
        self.names.is_none() && self.series.is_none() && self.matchers.is_empty()
    }

    /// True where a name between these bounds may be wanted.
    pub(crate) fn names_may_match(&self, min: Option<&[u8]>, max: Option<&[u8]>) -> bool {
        self.names.as_ref().is_none_or(|names| {
            let first = names.partition_point(|n| min.is_some_and(|min| n.as_bytes() < min));
            names.get(first).is_some_and(|n| max.is_none_or(|max| n.as_bytes() <= max))
        })
    }
}

/// What reading came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Bytes asked for, those of footers not counted.
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

/// A file whose footer has been read. Keep it: every read of the file begins here.
#[derive(Debug, Clone)]
pub struct Footer {
    metadata: ArrowReaderMetadata,
    is_foreign: bool,
}

impl Footer {
    /// Reads and checks the footer, page indexes included.
    pub fn read(file: &dyn Ranges) -> Result<Self, TableError> {
        guarded(file.name(), || Self::check(file.name(), metadata::read(file, PageIndexPolicy::Optional)?))
    }

    fn check(file: &str, metadata: ParquetMetaData) -> Result<Self, TableError> {
        let is_foreign = metadata.file_metadata().created_by() != Some(schema::CREATED_BY);
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let options = if is_foreign { options } else { options.with_schema(schema::file_schema()) };
        let unlike = |e: &dyn std::fmt::Display| {
            TableError::damaged(file, format!("not the columns of a metrics table: {e}"))
        };
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), options).map_err(|e| unlike(&e))?;
        for field in schema::file_schema().fields().iter().filter(|_| is_foreign) {
            let found = metadata.schema().field_with_name(field.name()).map_err(|e| unlike(&e))?;
            if !can_cast_types(found.data_type(), field.data_type()) {
                return Err(unlike(&format_args!("{} is of type {}", field.name(), found.data_type())));
            }
        }
        Ok(Self { metadata, is_foreign })
    }

    /// True where another program made the file: its rows come in any order.
    pub(crate) const fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    pub(crate) fn parquet(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// True where our own writer made the file: then its columns are encoded as [`schema`] says.
    fn is_ours(&self) -> bool {
        let file = self.parquet().file_metadata();
        let version = file.key_value_metadata().into_iter().flatten().find(|kv| kv.key == schema::FORMAT_KEY);
        file.created_by() == Some(schema::CREATED_BY)
            && version.is_some_and(|kv| kv.value.as_deref() == Some(schema::FORMAT_VERSION))
    }

    /// Rows in a row group.
    fn rows_of(&self, group: usize) -> usize {
        usize::try_from(self.parquet().row_group(group).num_rows()).unwrap_or(0)
    }

    /// Where the pages of a column of a row group are, where the file says it.
    fn pages(&self, group: usize, leaf: usize) -> Option<&[PageLocation]> {
        let index = self.parquet().offset_index()?.get(group)?.get(leaf)?;
        Some(index.page_locations())
    }

    /// Rows in the file.
    pub fn rows(&self) -> u64 {
        self.parquet().file_metadata().num_rows().max(0) as u64
    }

    /// Samples in the file: elements of its lists of timestamps, none of which is empty.
    pub fn samples(&self) -> u64 {
        let groups = self.metadata.metadata().row_groups().iter();
        let columns = groups.flat_map(|group| group.columns());
        let times =
            columns.filter(|c| c.column_path().parts().first().is_some_and(|p| p == schema::TIMESTAMPS));
        times.map(|c| c.num_values().max(0) as u64).sum()
    }

    /// Row groups in the file.
    pub fn row_groups(&self) -> usize {
        self.parquet().num_row_groups()
    }

    /// Bytes of memory that keeping it takes.
    pub fn memory_bytes(&self) -> usize {
        self.parquet().memory_size()
    }
}

/// Runs the decoder on foreign bytes. The library checks most of what they say, not all of it; where it stumbles,
/// the file is damaged, and the process goes on.
pub(crate) fn guarded<T>(
    file: &str,
    decode: impl FnOnce() -> Result<T, TableError>,
) -> Result<T, TableError> {
    let decoded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode));
    decoded.unwrap_or_else(|_| Err(TableError::damaged(file, "its decoder stumbled over it")))
}

/// Fetches ranges that foreign bytes asked for.
pub(crate) fn fetch(file: &dyn Ranges, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
    if let Some(bad) = ranges.iter().find(|r| r.start > r.end || r.end > file.len()) {
        let reason = format!("bytes {}..{} of {} are asked for", bad.start, bad.end, file.len());
        return Err(TableError::damaged(file.name(), reason));
    }
    let data = file.fetch(ranges)?;
    let whole =
        data.len() == ranges.len() && data.iter().zip(ranges).all(|(d, r)| d.len() as u64 == r.end - r.start);
    if !whole {
        return Err(TableError::damaged(file.name(), "it is shorter than it was"));
    }
    Ok(data)
}
