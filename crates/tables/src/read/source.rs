//! Source of a file's bytes, and of what is kept of them between reads.

use super::{Footer, RowGroupIndex};
use crate::error::TableError;
use crate::kind::Kind;
use crate::parquet::SamplePage;
use crate::store::StoredFile;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// Source of a file's bytes.
pub trait Ranges {
    /// Name of the file for messages.
    fn name(&self) -> &str;
    /// Length in bytes.
    fn len(&self) -> u64;
    /// True for an empty one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes of each range, which lie inside the file.
    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError>;

    /// As [`Self::fetch`], for bytes from which something is made that is kept instead.
    fn fetch_once(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        self.fetch(ranges)
    }

    /// Returns what was kept for a place.
    fn kept(&self, _place: Place) -> Option<Kept> {
        None
    }

    /// Keeps something for the next read, as long as there is room.
    fn keep(&self, _place: Place, _made: Kept) {}

    /// Maximum bytes of a row group's index that the cache has room for: 0 if nothing is kept.
    fn index_bytes_max(&self) -> u64 {
        0
    }

    /// The footer of a file of a kind, which may be kept.
    fn footer(&self, kind: &'static Kind) -> Result<Arc<Footer>, TableError>
    where
        Self: Sized,
    {
        Footer::read(kind, self).map(Arc::new)
    }
}

/// A file in the store.
impl Ranges for StoredFile {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn len(&self) -> u64 {
        self.bytes()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        self.read(ranges)
    }
}

/// A place in a file of which something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// A row group.
    Index(usize),
    /// A page, by its first byte.
    Page(u64),
}

/// Something made from a file's bytes that can be kept between reads. Files never change.
#[derive(Debug, Clone)]
pub enum Kept {
    /// A row group was read once.
    Asked,
    Index(Arc<RowGroupIndex>),
    /// An open page.
    Page(Arc<SamplePage>),
}

impl Kept {
    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Asked => 0,
            Self::Index(index) => index.memory_bytes(),
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

    fn index_bytes_max(&self) -> u64 {
        (**self).index_bytes_max()
    }
}

/// A file whose bytes are not cached, since something built from them is.
pub(super) struct Once<'a>(pub(super) &'a dyn Ranges);

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

/// Runs the decoder on untrusted bytes. The library does not check all of them; if it panics, the file counts as damaged.
pub(crate) fn guarded<T>(
    file: &str,
    decode: impl FnOnce() -> Result<T, TableError>,
) -> Result<T, TableError> {
    let decoded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode));
    decoded.unwrap_or_else(|_| Err(TableError::damaged(file, "the Parquet decoder panicked")))
}

/// Fetches ranges that come from untrusted bytes.
pub(crate) fn fetch(file: &dyn Ranges, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
    if let Some(bad) = ranges.iter().find(|r| r.start > r.end || r.end > file.len()) {
        let reason = format!("bytes {}..{} of {} do not exist", bad.start, bad.end, file.len());
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
