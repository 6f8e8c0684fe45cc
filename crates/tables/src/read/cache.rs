//! LRU cache of footers, byte ranges, row-group indexes and open pages, bounded in bytes. Files never change, so
//! entries are never stale.

use crate::error::TableError;
use crate::kind::Kind;
use crate::read::{CacheSlot, Cached, Footer, Ranges};
use crate::store::StoredFile;
use bytes::Bytes;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Estimated memory of a cache entry besides its content.
const ENTRY_BYTES: usize = 200;

/// Estimated memory of a small file's footer, including its page indexes.
const FOOTER_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub struct Cache {
    limit_bytes: usize,
    main: Mutex<Part>,
    /// Data of row groups for whose indexes a read had no [room](IndexRoom). It must not evict the indexes of the others.
    unindexed: Mutex<Part>,
}

#[derive(Debug, Default)]
struct Part {
    limit_bytes: usize,
    entries: HashMap<Key, Entry>,
    /// Keys in the order of their last use, by the value that `clock` had then.
    by_use: BTreeMap<u64, Key>,
    clock: u64,
    stats: CacheStats,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    pub held_bytes: u64,
    /// Number of footers and ranges found in the cache.
    pub hits: u64,
    /// Number of footers and ranges not found in the cache.
    pub misses: u64,
    pub fetched_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key(Arc<str>, What);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Footer,
    Range(u64, u64),
    Made(CacheSlot),
}

#[derive(Debug)]
struct Entry {
    content: Content,
    bytes: usize,
    used: u64,
}

#[derive(Debug, Clone)]
enum Content {
    Footer(Arc<Footer>),
    Range(Bytes),
    Made(Cached),
}

impl Cache {
    /// An empty cache. With a limit of 0 it keeps nothing.
    pub fn new(limit_bytes: usize) -> Self {
        let part = |limit_bytes| Mutex::new(Part { limit_bytes, ..Part::default() });
        let unindexed_bytes = limit_bytes / 4;
        Self { limit_bytes, main: part(limit_bytes - unindexed_bytes), unindexed: part(unindexed_bytes) }
    }

    pub fn stats(&self) -> CacheStats {
        let (main, unindexed) = (lock(&self.main).stats, lock(&self.unindexed).stats);
        CacheStats {
            held_bytes: main.held_bytes + unindexed.held_bytes,
            hits: main.hits + unindexed.hits,
            misses: main.misses + unindexed.misses,
            fetched_bytes: main.fetched_bytes + unindexed.fetched_bytes,
        }
    }

    /// Opens a file through the cache, for a read that has this room for indexes.
    pub(crate) fn file(self: &Arc<Self>, file: StoredFile, room: &Arc<IndexRoom>) -> CachedFile {
        CachedFile {
            name: file.full_path().into(),
            file,
            cache: Arc::clone(self),
            room: Arc::clone(room),
            last_group: Cell::new(None),
            whole: None,
            keeps: true,
        }
    }

    /// Room for the indexes of all files that are read together. The rest of the cache is for data.
    pub(crate) fn index_room(&self) -> Arc<IndexRoom> {
        Arc::new(IndexRoom { left_bytes: AtomicU64::new(self.limit_bytes as u64 / 2) })
    }

    /// True if the footers of `files` files fit. Otherwise, reading these files would only evict other entries.
    pub(crate) const fn has_room_for(&self, files: usize) -> bool {
        files.saturating_mul(FOOTER_BYTES) <= self.limit_bytes / 4 * 3
    }
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Part {
    fn put(&mut self, key: Key, content: Content, bytes: usize) {
        let bytes = bytes + ENTRY_BYTES;
        // A single entry must not evict all others.
        if bytes > self.limit_bytes / 3 {
            return;
        }
        self.remove(&key);
        self.clock += 1;
        let used = self.clock;
        self.by_use.insert(used, key.clone());
        self.entries.insert(key, Entry { content, bytes, used });
        self.stats.held_bytes += bytes as u64;
        while self.stats.held_bytes > self.limit_bytes as u64
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    fn get(&mut self, key: &Key) -> Option<Content> {
        self.clock += 1;
        let Some(entry) = self.entries.get_mut(key) else {
            self.stats.misses += 1;
            return None;
        };
        self.by_use.remove(&entry.used);
        entry.used = self.clock;
        self.by_use.insert(self.clock, key.clone());
        self.stats.hits += 1;
        Some(entry.content.clone())
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_use.remove(&entry.used);
            self.stats.held_bytes -= entry.bytes as u64;
        }
    }
}

/// Room for the indexes of one read. Indexes beyond it would evict those that the same read has just built, so that the
/// next such read would have to build all of them again, which takes longer than reading without an index.
#[derive(Debug)]
pub(crate) struct IndexRoom {
    left_bytes: AtomicU64,
}

impl IndexRoom {
    fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

#[derive(Debug)]
pub(crate) struct CachedFile {
    file: StoredFile,
    name: Arc<str>,
    cache: Arc<Cache>,
    room: Arc<IndexRoom>,
    /// The last row group for which room was asked, and whether it got room.
    last_group: Cell<Option<(usize, bool)>>,
    /// Bytes of the whole file, if they were fetched ahead.
    whole: Option<Bytes>,
    /// True if data that is read from the file is added to the cache.
    keeps: bool,
}

impl Ranges for CachedFile {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        if let Some(whole) = &self.whole {
            return whole.fetch(ranges);
        }
        if !self.keeps {
            return self.fetch_once(ranges);
        }
        let key = |range: &Range<u64>| self.key(What::Range(range.start, range.end));
        let mut found: Vec<Option<Bytes>> = {
            let mut cache = self.part();
            let known = |range| match cache.get(&key(range)) {
                Some(Content::Range(bytes)) => Some(bytes),
                _ => None,
            };
            ranges.iter().map(known).collect()
        };
        let missing: Vec<_> =
            ranges.iter().zip(&found).filter(|(_, f)| f.is_none()).map(|(r, _)| r.clone()).collect();
        if !missing.is_empty() {
            let fetched = self.file.fetch(&missing)?;
            let mut cache = self.part();
            cache.stats.fetched_bytes += fetched.iter().map(|b| b.len() as u64).sum::<u64>();
            for (range, bytes) in missing.iter().zip(&fetched) {
                // The store may return a slice of a larger buffer, which the cache would keep in memory.
                let own = Bytes::copy_from_slice(bytes);
                cache.put(key(range), Content::Range(own.clone()), own.len());
            }
            drop(cache);
            let mut fetched = fetched.into_iter();
            for place in found.iter_mut().filter(|f| f.is_none()) {
                *place = fetched.next();
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn fetch_once(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        if let Some(whole) = &self.whole {
            return whole.fetch(ranges);
        }
        let fetched = self.file.fetch(ranges)?;
        self.part().stats.fetched_bytes += fetched.iter().map(|b| b.len() as u64).sum::<u64>();
        Ok(fetched)
    }

    fn cached(&self, slot: CacheSlot) -> Option<Cached> {
        match self.part_of(slot).get(&self.key(What::Made(slot))) {
            Some(Content::Made(value)) => Some(value),
            _ => None,
        }
    }

    fn cache(&self, slot: CacheSlot, value: Cached) {
        if self.keeps {
            let bytes = value.memory_bytes();
            self.part_of(slot).put(self.key(What::Made(slot)), Content::Made(value), bytes);
        }
    }

    fn has_room_for_index(&self, group: usize, bytes: u64) -> bool {
        // a file that was closed for lack of memory continues with the row group that it was reading
        if let Some((last, had_room)) = self.last_group.get()
            && last == group
        {
            return had_room;
        }
        let has_room = bytes <= self.cache.limit_bytes as u64 / 8 && self.room.take(bytes);
        self.last_group.set(Some((group, has_room)));
        has_room
    }

    fn footer(&self, kind: &'static Kind) -> Result<Arc<Footer>, TableError> {
        let key = self.key(What::Footer);
        if let Some(Content::Footer(footer)) = lock(&self.cache.main).get(&key) {
            return Ok(footer);
        }
        let file: &dyn Ranges = if self.whole.is_some() { self } else { &self.file };
        let footer = Arc::new(Footer::read(kind, file)?);
        if self.keeps {
            lock(&self.cache.main).put(key, Content::Footer(Arc::clone(&footer)), footer.memory_bytes());
        }
        Ok(footer)
    }
}

impl CachedFile {
    /// The same file, whose reads use the cache but do not add to it.
    pub(crate) fn passing(self) -> Self {
        Self { keeps: false, ..self }
    }

    /// The part of the cache for data of the row group that is being read.
    fn part(&self) -> MutexGuard<'_, Part> {
        let has_room = self.last_group.get().is_none_or(|(_, has_room)| has_room);
        lock(if has_room { &self.cache.main } else { &self.cache.unindexed })
    }

    fn part_of(&self, slot: CacheSlot) -> MutexGuard<'_, Part> {
        match slot {
            CacheSlot::Index(_) => lock(&self.cache.main),
            _ => self.part(),
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        lock(&self.cache.main).entries.contains_key(&self.key(What::Footer))
    }

    pub(crate) const fn stored(&self) -> &StoredFile {
        &self.file
    }

    /// Sets the content of the whole file, which the caller has fetched, so that reads need no further requests.
    pub(crate) fn fill(&mut self, whole: Bytes) {
        self.part().stats.fetched_bytes += whole.len() as u64;
        self.whole = Some(whole);
    }

    fn key(&self, what: What) -> Key {
        Key(Arc::clone(&self.name), what)
    }
}
