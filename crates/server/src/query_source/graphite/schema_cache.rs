//! Set-associative cache from names to the numbers of their schemas. A full set evicts one of its names.

use model::SeriesKey;
use parking_lot::Mutex;

/// Number of locks, so that queries rarely wait for each other.
const SHARDS: usize = 16;

/// Number of names that a shard can hold.
const SLOTS: usize = 1024;

/// Number of names in a set. With only one, a seventh of 5,000 names would be evicted.
const WAYS: usize = 4;

/// Longer names are not cached. So all names take at most 4 MiB, and all slots 400 KiB.
const NAME_BYTES_MAX: usize = 256;

const _: () = assert!(SHARDS * SLOTS * NAME_BYTES_MAX <= 4 << 20);

/// A name and its number.
type Entry = (Box<str>, u32);

#[derive(Debug, Default)]
pub(super) struct SchemaCache {
    /// Empty until a name of the shard is cached.
    shards: [Mutex<Vec<Option<Entry>>>; SHARDS],
}

impl SchemaCache {
    pub(super) fn get(&self, name: &str) -> Option<usize> {
        let (shard, slot) = place(name);
        let shard = self.shards[shard].lock();
        let mut set = shard.get(slot..slot + WAYS)?.iter().flatten();
        set.find(|(cached, _)| &**cached == name).map(|(_, number)| *number as usize)
    }

    pub(super) fn put(&self, name: &str, number: usize) {
        if name.len() > NAME_BYTES_MAX {
            return;
        }
        let (shard, slot) = place(name);
        let mut shard = self.shards[shard].lock();
        if shard.is_empty() {
            shard.resize_with(SLOTS, || None);
        }
        let free = shard[slot..slot + WAYS].iter().position(Option::is_none);
        shard[slot + free.unwrap_or(name.len() % WAYS)] = Some((name.into(), number as u32));
    }
}

/// The shard of a name, and the first slot of its set.
fn place(name: &str) -> (usize, usize) {
    let SeriesKey(hash) = SeriesKey::of(name.as_bytes(), 0);
    (hash as usize % SHARDS, (hash >> 32) as usize % (SLOTS / WAYS) * WAYS)
}
