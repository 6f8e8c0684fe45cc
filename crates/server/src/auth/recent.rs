//! A cache of bounded size that keeps recently used values.
//!
//! ```text
//!   put ─▶ young ──full──▶ old ──full again──▶ dropped
//!            ▲──── found ───┘
//! ```
//!
//! Each of the two generations holds at most half of the bytes.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Recent<K, V> {
    half_bytes: usize,
    entries: Mutex<Entries<K, V>>,
}

#[derive(Debug)]
struct Entries<K, V> {
    young: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
    young_bytes: usize,
    old_bytes: usize,
}

impl<K, V> Recent<K, V> {
    /// Memory of an entry in addition to what it points to. In the worst case the hash table has just doubled, and only
    /// 7/16 of its slots are used.
    const ENTRY_BYTES: usize = size_of::<(K, (V, usize))>() * 5 / 2;
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    pub(super) fn within(bytes_max: usize) -> Self {
        let entries = Entries { young: HashMap::new(), old: HashMap::new(), young_bytes: 0, old_bytes: 0 };
        Self { half_bytes: bytes_max / 2, entries: Mutex::new(entries) }
    }

    /// Returns the value of `key` if it `is_good`. A value that is not good is removed.
    pub(super) fn get(&self, key: &K, is_good: impl Fn(&V) -> bool) -> Option<V> {
        let mut entries = self.entries.lock();
        if let Some((value, bytes)) = entries.young.get(key) {
            if is_good(value) {
                return Some(value.clone());
            }
            let bytes = *bytes;
            entries.young.remove(key);
            entries.young_bytes -= bytes;
            return None;
        }
        let (value, bytes) = entries.remove_old(key).filter(|(value, _)| is_good(value))?;
        entries.put(key.clone(), value.clone(), bytes, self.half_bytes);
        Some(value)
    }

    /// Adds or replaces a value. `bytes` is the memory it points to. A value larger than half of the cache is not kept.
    pub(super) fn put(&self, key: K, value: V, bytes: usize) {
        self.entries.lock().put(key, value, bytes + Self::ENTRY_BYTES, self.half_bytes);
    }

    pub(super) fn held_bytes(&self) -> u64 {
        let entries = self.entries.lock();
        (entries.young_bytes + entries.old_bytes) as u64
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let entries = self.entries.lock();
        entries.young.len() + entries.old.len()
    }
}

impl<K: Hash + Eq, V> Entries<K, V> {
    fn put(&mut self, key: K, value: V, bytes: usize, half_bytes: usize) {
        self.remove_old(&key);
        if let Some((_, before)) = self.young.remove(&key) {
            self.young_bytes -= before;
        }
        if bytes > half_bytes {
            return;
        }
        if self.young_bytes + bytes > half_bytes {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
        self.young_bytes += bytes;
        self.young.insert(key, (value, bytes));
    }

    fn remove_old(&mut self, key: &K) -> Option<(V, usize)> {
        let removed = self.old.remove(key)?;
        self.old_bytes -= removed.1;
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_bounded_and_used_values_stay() {
        let bytes_max = 100 * Recent::<i32, &str>::ENTRY_BYTES;
        let recent = Recent::within(bytes_max);
        recent.put(0, "used", 0);
        for key in 1..10_000 {
            recent.put(key, "once", 0);
            assert_eq!(recent.get(&0, |_| true), Some("used"));
            assert!(recent.len() <= 100, "{}", recent.len());
            assert_eq!(recent.held_bytes() as usize, recent.len() * Recent::<i32, &str>::ENTRY_BYTES);
        }
        assert_eq!(recent.get(&1, |_| true), None);
        assert_eq!(recent.get(&9_999, |_| true), Some("once"));
    }

    #[test]
    fn values_that_are_no_longer_good_are_removed() {
        let recent = Recent::within(1 << 20);
        recent.put("a", 1, 10);
        recent.put("a", 2, 20);
        assert_eq!((recent.len(), recent.get(&"a", |value| *value == 2)), (1, Some(2)));
        assert_eq!(recent.get(&"a", |value| *value == 1), None);
        assert_eq!((recent.len(), recent.held_bytes()), (0, 0));
    }

    #[test]
    fn a_value_that_exceeds_half_of_the_cache_is_not_kept() {
        let recent = Recent::within(1000);
        recent.put(1, 1, 0);
        recent.put(1, 2, 1000);
        assert_eq!((recent.get(&1, |_| true), recent.held_bytes()), (None, 0));
    }
}
