//! Records which metrics queries have selected since the start, and when.
//!
//! Metrics are identified by hashes. If memory is full, the metrics whose last query is longest ago are forgotten,
//! and the latest of their times is kept as `forgotten_s`. An unknown metric counts as queried at that time, so a
//! metric that was queried is never reported as unqueried.

use model::{SeriesKey, TenantId};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stdx::budget::{Account, Reservation};

/// A tenant's metrics are limited to the capacity of a hash table with 2^14 slots.
const NAMES_MAX: usize = (1 << 14) / 8 * 7;

const NAMES_MIN: usize = 28;

/// Memory of a tenant's entry, without its hash table and its name.
const TENANT_BYTES: usize = 512;

/// For each metric of each tenant, the time of its last query, in seconds of the steady clock.
#[derive(Debug)]
pub(crate) struct QueriedMetrics {
    seed: u64,
    account: Account,
    tenants: RwLock<HashMap<TenantId, Arc<Mutex<Names>>>>,
    /// If there was no memory for some tenants, the time of their latest query; 0 otherwise.
    forgotten_s: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct Names {
    /// Time of the last query of each metric. The key is the hash of its name.
    last_s: HashMap<u64, u32>,
    room: usize,
    /// If metrics were forgotten, the time of their latest query; 0 otherwise.
    forgotten_s: u32,
    memory: Reservation,
}

/// Memory of a hash table that has room for `names`, which may fill seven eighths of its slots.
const fn table_bytes(names: usize) -> usize {
    names.div_ceil(7) * 8 * (size_of::<(u64, u32)>() + 1) + 16
}

impl QueriedMetrics {
    pub(crate) fn new(seed: u64, account: Account) -> Self {
        Self { seed, account, tenants: RwLock::default(), forgotten_s: AtomicU32::new(0) }
    }

    pub(crate) fn note(&self, tenant: &TenantId, name: &str, now_s: u32) {
        match self.of(tenant).or_else(|| self.add(tenant)) {
            Some(names) => names.lock().note(self.hash(name), now_s),
            None => _ = self.forgotten_s.fetch_max(now_s, Ordering::Relaxed),
        }
    }

    pub(crate) fn forget(&self, tenant: &TenantId) {
        self.tenants.write().remove(tenant);
    }

    pub(crate) fn view<'a>(&'a self, tenant: &'a TenantId) -> View<'a> {
        View { all: self, tenant }
    }

    /// If queries were forgotten, the time of the latest one; 0 otherwise.
    fn forgotten_s(&self, names: Option<&Names>) -> u32 {
        self.forgotten_s.load(Ordering::Relaxed).max(names.map_or(0, |names| names.forgotten_s))
    }

    fn of(&self, tenant: &TenantId) -> Option<Arc<Mutex<Names>>> {
        self.tenants.read().get(tenant).cloned()
    }

    fn add(&self, tenant: &TenantId) -> Option<Arc<Mutex<Names>>> {
        let bytes = TENANT_BYTES + 2 * tenant.as_str().len() + table_bytes(NAMES_MIN);
        let memory = self.account.reserve(bytes as u64).ok()?;
        let names = || {
            let last_s = HashMap::with_capacity(NAMES_MIN);
            Arc::new(Mutex::new(Names { last_s, room: NAMES_MIN, forgotten_s: 0, memory }))
        };
        Some(Arc::clone(self.tenants.write().entry(tenant.clone()).or_insert_with(names)))
    }

    /// Hashes a name with a secret seed. Without the seed, clients could choose names whose hashes collide.
    fn hash(&self, name: &str) -> u64 {
        SeriesKey::of(name.as_bytes(), self.seed).0 as u64
    }
}

impl Names {
    fn note(&mut self, hash: u64, now_s: u32) {
        if let Some(last_s) = self.last_s.get_mut(&hash) {
            *last_s = now_s;
            return;
        }
        if self.last_s.len() == self.room && !self.grow() {
            self.forget();
        }
        self.last_s.insert(hash, now_s);
    }

    /// Doubles the capacity. Returns false if this would exceed [`NAMES_MAX`] or the memory limit.
    fn grow(&mut self) -> bool {
        let wanted = 2 * self.room;
        let (before, bytes) = (self.memory.bytes(), table_bytes(wanted) as u64);
        // while the names move, both hash tables take memory
        if wanted > NAMES_MAX || self.memory.resize(before + bytes).is_err() {
            return false;
        }
        self.last_s.reserve(wanted - self.last_s.len());
        let grown = before - table_bytes(self.room) as u64 + bytes;
        self.memory.resize(grown).expect("BUG: a reservation cannot shrink");
        self.room = wanted;
        true
    }

    /// Forgets the half of the metrics whose last query is longest ago.
    fn forget(&mut self) {
        let mut all: Vec<_> = self.last_s.drain().collect();
        let middle = all.len() / 2;
        let (_, &mut (_, latest_s), _) = all.select_nth_unstable_by_key(middle, |(_, last_s)| *last_s);
        self.last_s.extend(all.into_iter().filter(|(_, last_s)| *last_s > latest_s));
        self.forgotten_s = self.forgotten_s.max(latest_s);
    }
}

#[derive(Debug)]
pub(crate) struct View<'a> {
    all: &'a QueriedMetrics,
    tenant: &'a TenantId,
}

impl View<'_> {
    /// True if a metric was queried since `since_s`, or may have been.
    pub(crate) fn is_queried_since(&self, name: &str, since_s: u32) -> bool {
        let (names, hash) = (self.all.of(self.tenant), self.all.hash(name));
        // under one lock, because the name may be forgotten between two steps
        let names = names.as_ref().map(|names| names.lock());
        let known_s = names.as_ref().and_then(|names| names.last_s.get(&hash).copied());
        known_s.unwrap_or_else(|| self.all.forgotten_s(names.as_deref())) >= since_s
    }

    /// The latest time at which an unknown metric may have been queried.
    pub(crate) fn forgotten_s(&self) -> u32 {
        let names = self.all.of(self.tenant);
        self.all.forgotten_s(names.as_ref().map(|names| names.lock()).as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stdx::rng::Rng;

    fn id(number: u64) -> TenantId {
        TenantId::parse(&format!("t{number}")).unwrap()
    }

    /// Checks that a queried metric is never reported as unqueried, and that an unqueried metric is reported as
    /// queried only after metrics were forgotten.
    fn check(bytes: u64, tenants: u64, names: u64, is_forgetful: bool) {
        let mut rng = Rng::announced();
        let (account, mut model) = (Account::new("queried", bytes), BTreeMap::new());
        let queried = QueriedMetrics::new(rng.next_u64(), account.clone());
        for now_s in 100..20_100 {
            let (tenant, name) = (rng.below(tenants), rng.below(names));
            queried.note(&id(tenant), &name.to_string(), now_s);
            model.insert((tenant, name), now_s);
            assert!(account.used_bytes() <= bytes);
        }
        let (mut falsely, mut forgot) = (0, false);
        for (tenant, name) in (0..tenants).flat_map(|tenant| (0..names).map(move |name| (tenant, name))) {
            let id = id(tenant);
            let view = queried.view(&id);
            forgot |= view.forgotten_s() > 0;
            for since_s in [100 + rng.below(20_000) as u32, 20_099] {
                let was = model.get(&(tenant, name)).is_some_and(|last_s| *last_s >= since_s);
                let is = view.is_queried_since(&name.to_string(), since_s);
                assert!(
                    is || !was,
                    "{tenant}/{name} since {since_s}: forgotten until {}",
                    view.forgotten_s()
                );
                assert!(is == was || view.forgotten_s() >= since_s, "{tenant}/{name} since {since_s}");
                falsely += u32::from(is && !was);
            }
        }
        assert_eq!(forgot, is_forgetful);
        assert!(forgot || falsely == 0, "{falsely}");
    }

    #[test]
    fn queried_metrics_are_never_reported_as_unqueried() {
        check(10 << 20, 3, 5_000, false);
        check(20 << 10, 3, 5_000, true);
        check(10 << 20, 1, 18_000, false);
        check(3_000, 10, 20, true);
        check(0, 3, 5, true);
    }

    #[test]
    fn names_of_a_tenant_are_bounded() {
        let account = Account::new("queried", u64::MAX);
        let queried = QueriedMetrics::new(1, account.clone());
        (0..100_000).for_each(|name: u32| queried.note(&id(0), &name.to_string(), name));
        let names = queried.of(&id(0)).unwrap();
        assert!(names.lock().last_s.len() <= NAMES_MAX && names.lock().last_s.capacity() <= NAMES_MAX);
        assert!(account.used_bytes() < 300 << 10, "{} bytes", account.used_bytes());
        let id = id(0);
        let view = queried.view(&id);
        assert!(view.is_queried_since("99999", 99_999) && !view.is_queried_since("-", 99_000));
    }

    #[test]
    fn a_metric_that_is_forgotten_while_metrics_are_listed_is_not_taken_for_unqueried() {
        let (queried, tenant) = (QueriedMetrics::new(1, Account::new("queried", u64::MAX)), id(0));
        let view = queried.view(&tenant);
        assert!(!view.is_queried_since("0", 1), "nothing was queried");
        (0..=NAMES_MAX as u32).for_each(|name| queried.note(&tenant, &name.to_string(), 100 + name));
        let is_known = queried.of(&tenant).unwrap().lock().last_s.contains_key(&queried.hash("0"));
        assert!(!is_known, "there was no room");
        assert!(view.is_queried_since("0", 100) && view.forgotten_s() >= 100);
        assert!(!view.is_queried_since("-", 100 + NAMES_MAX as u32));
    }
}
