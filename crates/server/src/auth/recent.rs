//! A cache of bounded size that keeps what was used last.
//!
//! ```text
//!   put ─▶ young ──full──▶ old ──full again──▶ dropped
//!            ▲──── found ───┘
//! ```

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;

/// Memory of an entry beside what it points to: its places in a table that has just grown.
const ENTRY_BYTES: usize = 256;

/// Values by key, of at most so many bytes.
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
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    /// An empty cache of at most `bytes_max`.
    pub(super) fn within(bytes_max: usize) -> Self {
        let entries = Entries { young: HashMap::new(), old: HashMap::new(), young_bytes: 0 };
        Self { half_bytes: bytes_max / 2, entries: Mutex::new(entries) }
    }

    /// The value, if there is one that `is_good`. One that is not is dropped.
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
        let (value, bytes) = entries.old.remove(key).filter(|(value, _)| is_good(value))?;
        entries.put(key.clone(), value.clone(), bytes, self.half_bytes);
        Some(value)
    }

    /// Adds a value that points to `bytes`, or replaces it.
    pub(super) fn put(&self, key: K, value: V, bytes: usize) {
        self.entries.lock().put(key, value, bytes + ENTRY_BYTES, self.half_bytes);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let entries = self.entries.lock();
        entries.young.len() + entries.old.len()
    }
}

impl<K: Hash + Eq, V> Entries<K, V> {
    fn put(&mut self, key: K, value: V, bytes: usize, half_bytes: usize) {
        if self.young_bytes + bytes > half_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.old.remove(&key);
        self.young_bytes += bytes;
        if let Some((_, before)) = self.young.insert(key, (value, bytes)) {
            self.young_bytes -= before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let recent = Recent::within(100 * ENTRY_BYTES);
        recent.put(0, "used", 0);
        for key in 1..10_000 {
            recent.put(key, "once", 0);
            assert_eq!(recent.get(&0, |_| true), Some("used"));
            assert!(recent.len() <= 100, "{}", recent.len());
        }
        assert_eq!(recent.get(&1, |_| true), None);
        assert_eq!(recent.get(&9_999, |_| true), Some("once"));
    }

    #[test]
    fn what_is_not_good_any_more_is_dropped() {
        let recent = Recent::within(1 << 20);
        recent.put("a", 1, 10);
        recent.put("a", 2, 20);
        assert_eq!((recent.len(), recent.get(&"a", |value| *value == 2)), (1, Some(2)));
        assert_eq!(recent.get(&"a", |value| *value == 1), None);
        assert_eq!((recent.len(), recent.entries.lock().young_bytes), (0, 0));
    }
}
