//! LRU cache of open tables with a memory limit.

use super::{Key, TenantTable};
use model::TenantId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tables::Table;

#[derive(Debug)]
pub(super) struct OpenTables {
    bytes_max: usize,
    /// Memory that all tables took when each was last measured.
    bytes: usize,
    tables: BTreeMap<Key, Open>,
    /// Keys of the tables. The table with the lowest number was used longest ago.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
}

#[derive(Debug)]
struct Open {
    table: Arc<Table>,
    used: Instant,
    number: u64,
    bytes: usize,
}

impl OpenTables {
    pub(super) const fn within(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, tables: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Table>> {
        self.tables.get(key).map(|open| Arc::clone(&open.table))
    }

    pub(super) fn get_and_touch(&mut self, key: &Key, now: Instant) -> Option<Arc<Table>> {
        let open = self.tables.get_mut(key)?;
        let key = self.by_use.remove(&open.number).expect("BUG: an open table has no last use");
        self.uses += 1;
        (open.used, open.number) = (now, self.uses);
        self.by_use.insert(self.uses, key);
        Some(Arc::clone(&open.table))
    }

    /// Adds or replaces a table. If this exceeds the memory limit, closes the tables that were used longest ago.
    pub(super) fn put(&mut self, key: Key, table: Arc<Table>, now: Instant) {
        self.remove(&key);
        self.uses += 1;
        let open = Open { bytes: table.memory_bytes(), table, used: now, number: self.uses };
        self.bytes += open.bytes;
        self.by_use.insert(self.uses, key.clone());
        self.tables.insert(key, open);
        self.shrink();
    }

    pub(super) fn weigh(&mut self, key: &Key, bytes: usize) {
        if let Some(open) = self.tables.get_mut(key) {
            self.bytes = self.bytes - open.bytes + bytes;
            open.bytes = bytes;
        }
    }

    pub(super) fn close(&mut self, is_idle: impl Fn(Instant) -> bool) {
        let idle = self.tables.iter().filter(|(_, open)| is_idle(open.used));
        let idle: Vec<Key> = idle.map(|(key, _)| key.clone()).collect();
        idle.iter().for_each(|key| self.remove(key));
        self.shrink();
    }

    /// Closes the tables that were used longest ago until the rest is within the memory limit. One table stays open
    /// even if it exceeds the limit.
    fn shrink(&mut self) {
        while self.bytes > self.bytes_max && self.tables.len() > 1 {
            let oldest = self.by_use.first_key_value().map(|(_, key)| key.clone());
            self.remove(&oldest.expect("BUG: no open table to close"));
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(open) = self.tables.remove(key) {
            self.bytes -= open.bytes;
            self.by_use.remove(&open.number);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_any_of(&self, tenant: &TenantId) -> bool {
        let first = self.tables.range((tenant.clone(), TenantTable::Samples)..).next();
        first.is_some_and(|((first, _), _)| first == tenant)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<Table>)> {
        self.tables.iter().map(|(key, open)| (key, &open.table))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{tables_at, tenant};
    use super::*;
    use std::time::Duration;
    use stdx::clock::{Clock, ManualClock};
    use stdx::rng::Rng;

    /// Compares the cache with a list of tables in order of use.
    #[test]
    fn those_used_longest_ago_are_closed_first() {
        let mut rng = Rng::announced();
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(1_777_000_000_000));
        let tenants = tables_at(dir.path(), &clock);
        let keys: Vec<Key> = (0..8).map(|n| (tenant(&format!("t{n}")), TenantTable::Samples)).collect();
        let all: Vec<_> = keys.iter().map(|(t, kind)| tenants.open_or_create(t, *kind).unwrap()).collect();
        let weight = all[0].memory_bytes();
        let mut open = OpenTables::within(5 * weight);
        let mut expected: Vec<(usize, usize, Instant)> = Vec::new();
        let shrink = |expected: &mut Vec<(usize, usize, Instant)>| {
            while expected.len() > 1 && expected.iter().map(|(_, bytes, _)| bytes).sum::<usize>() > 5 * weight
            {
                expected.remove(0);
            }
        };
        for _ in 0..2000 {
            let (n, now) = (rng.below(8) as usize, clock.instant());
            match rng.below(5) {
                0 => {
                    open.put(keys[n].clone(), Arc::clone(&all[n]), now);
                    expected.retain(|(of, ..)| *of != n);
                    expected.push((n, weight, now));
                    shrink(&mut expected);
                }
                1 => {
                    assert_eq!(
                        open.get_and_touch(&keys[n], now).is_some(),
                        expected.iter().any(|e| e.0 == n)
                    );
                    if let Some(at) = expected.iter().position(|(of, ..)| *of == n) {
                        let (_, bytes, _) = expected.remove(at);
                        expected.push((n, bytes, now));
                    }
                }
                2 => {
                    let bytes = weight * (1 + rng.below(7) as usize);
                    open.weigh(&keys[n], bytes);
                    expected.iter_mut().filter(|(of, ..)| *of == n).for_each(|e| e.1 = bytes);
                }
                3 => {
                    let before = now - Duration::from_secs(rng.below(20));
                    open.close(|used| used < before);
                    expected.retain(|(.., used)| *used >= before);
                    shrink(&mut expected);
                }
                _ => clock.advance(1000),
            }
            let left: Vec<_> = keys.iter().enumerate().filter(|(_, key)| open.get(key).is_some()).collect();
            let mut numbers: Vec<_> = expected.iter().map(|(n, ..)| *n).collect();
            numbers.sort_unstable();
            assert!(left.iter().map(|(n, _)| *n).eq(numbers));
            assert_eq!(open.bytes(), expected.iter().map(|(_, bytes, _)| bytes).sum::<usize>());
        }
    }
}
