//! Source of a file's bytes, and of cached data derived from them.

use super::{Footer, RowGroupIndex};
use crate::error::TableError;
use crate::kind::Kind;
use crate::parquet::SamplePage;
use crate::store::StoredFile;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

pub trait Ranges {
    fn name(&self) -> &str;
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Fetches the bytes of each range. The ranges must lie within the file.
    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError>;

    /// Like [`Self::fetch`], but the bytes are not cached, because the caller caches data derived from them.
    fn fetch_once(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        self.fetch(ranges)
    }

    fn cached(&self, _slot: CacheSlot) -> Option<Cached> {
        None
    }

    /// Caches data if there is room.
    fn cache(&self, _slot: CacheSlot, _value: Cached) {}

    /// True if the cache has room for the index of this row group, of about `bytes`, together with the others that the
    /// same read needs. Otherwise, the row group's data is cached apart from them. Row groups must be asked for in order.
    fn has_room_for_index(&self, _group: usize, _bytes: u64) -> bool {
        false
    }

    /// Returns the footer, perhaps from the cache.
    fn footer(&self, kind: &'static Kind) -> Result<Arc<Footer>, TableError>
    where
        Self: Sized,
    {
        Footer::read(kind, self).map(Arc::new)
    }
}

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheSlot {
    /// The index of a row group, by the row group's number.
    Index(usize),
    /// A page, identified by its offset in the file.
    Page(u64),
}

/// Data derived from a file. It never becomes stale, because files do not change.
#[derive(Debug, Clone)]
pub enum Cached {
    /// The row group was read once, without an index. The next read may build one.
    Asked,
    Index(Arc<RowGroupIndex>),
    Page(Arc<SamplePage>),
}

impl Cached {
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

    fn cached(&self, slot: CacheSlot) -> Option<Cached> {
        (**self).cached(slot)
    }

    fn cache(&self, slot: CacheSlot, value: Cached) {
        (**self).cache(slot, value);
    }

    fn has_room_for_index(&self, group: usize, bytes: u64) -> bool {
        (**self).has_room_for_index(group, bytes)
    }
}

/// Reads a file without caching its bytes.
pub(super) struct Uncached<'a>(pub(super) &'a dyn Ranges);

impl Ranges for Uncached<'_> {
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

/// Runs a decoder on untrusted bytes. If the library panics, the file counts as damaged.
pub(crate) fn guarded<T>(
    file: &str,
    decode: impl FnOnce() -> Result<T, TableError>,
) -> Result<T, TableError> {
    let decoded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode));
    decoded.unwrap_or_else(|_| Err(TableError::damaged(file, "the Parquet decoder panicked")))
}

/// Fetches ranges that the file itself names. They are untrusted: a range outside of the file counts as damage.
pub(crate) fn fetch(file: &dyn Ranges, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
    if let Some(bad) = ranges.iter().find(|r| r.start > r.end || r.end > file.len()) {
        let reason =
            format!("it refers to bytes {}..{}, but has only {} bytes", bad.start, bad.end, file.len());
        return Err(TableError::damaged(file.name(), reason));
    }
    let data = file.fetch(ranges)?;
    let whole =
        data.len() == ranges.len() && data.iter().zip(ranges).all(|(d, r)| d.len() as u64 == r.end - r.start);
    if !whole {
        return Err(TableError::damaged(file.name(), "it became shorter while it was read"));
    }
    Ok(data)
}
