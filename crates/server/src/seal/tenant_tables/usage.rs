//! Keeps the size and number of each tenant's tables, for the limits `disk_bytes` and `tenant_tables`.

use super::{Key, TenantTable};
use model::TenantId;
use std::collections::HashMap;

/// Memory that the entry of a tenant takes on average.
pub(super) const ENTRY_BYTES: usize = 150;

const ABSENT: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    /// The largest value of `bytes` since the start.
    pub(crate) bytes_peak: u64,
    pub(crate) tables: usize,
    /// The largest value of `tables` since the start.
    pub(crate) tables_peak: usize,
}

/// Sizes of the tables of all tenants that have tables. If there are too many tenants, those with small tables are
/// left out.
#[derive(Debug)]
pub(super) struct Usages {
    tenants_max: usize,
    all: HashMap<TenantId, Sizes>,
}

/// Sizes of a tenant's tables, in the order of [`TenantTable::ALL`].
#[derive(Debug)]
struct Sizes {
    of: [u64; TenantTable::ALL.len()],
    peak: u64,
    tables_peak: usize,
}

impl Sizes {
    fn present(&self) -> impl Iterator<Item = u64> {
        self.of.into_iter().filter(|bytes| *bytes != ABSENT)
    }

    fn bytes(&self) -> u64 {
        self.present().fold(0, u64::saturating_add)
    }
}

impl Usages {
    pub(super) fn of_at_most(tenants_max: usize) -> Self {
        Self { tenants_max: tenants_max.max(2), all: HashMap::new() }
    }

    /// Notes the size of a table; `None` means that the table does not exist.
    pub(super) fn note(&mut self, (tenant, kind): &Key, bytes: Option<u64>) {
        if !self.all.contains_key(tenant) {
            if bytes.is_none() {
                return;
            }
            if self.all.len() >= self.tenants_max {
                self.drop_smaller_half();
            }
        }
        let empty = || Sizes { of: [ABSENT; _], peak: 0, tables_peak: 0 };
        let sizes = self.all.entry(tenant.clone()).or_insert_with(empty);
        sizes.of[kind.position()] = bytes.map_or(ABSENT, |bytes| bytes.min(ABSENT - 1));
        sizes.peak = sizes.peak.max(sizes.bytes());
        sizes.tables_peak = sizes.tables_peak.max(sizes.present().count());
        if sizes.present().next().is_none() {
            self.all.remove(tenant);
        }
    }

    fn drop_smaller_half(&mut self) {
        let mut sizes: Vec<u64> = self.all.values().map(Sizes::bytes).collect();
        let middle = sizes.len() / 2;
        let (_, median, _) = sizes.select_nth_unstable(middle);
        let median = *median;
        // several tenants may have exactly the median size; this many of them are dropped too
        let mut equal = middle - self.all.values().filter(|sizes| sizes.bytes() < median).count();
        self.all.retain(|_, sizes| {
            let bytes = sizes.bytes();
            let is_dropped = bytes < median || (bytes == median && equal > 0);
            equal -= usize::from(is_dropped && bytes == median);
            !is_dropped
        });
    }

    pub(super) fn of(&self, tenant: &TenantId) -> Usage {
        self.all.get(tenant).map_or_else(Usage::default, |sizes| Usage {
            bytes: sizes.bytes(),
            bytes_peak: sizes.peak,
            tables: sizes.present().count(),
            tables_peak: sizes.tables_peak,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::rollup::Resolution;

    fn key(name: &str, kind: TenantTable) -> Key {
        (TenantId::parse(name).unwrap(), kind)
    }

    const HOURS: TenantTable = TenantTable::Rollup(Resolution::Hour);

    #[test]
    fn sizes_of_all_tables_of_a_tenant_add_up() {
        let mut usages = Usages::of_at_most(10);
        let (samples, hours) = (key("a", TenantTable::Samples), key("a", HOURS));
        let check = |usages: &Usages, bytes, bytes_peak, tables| {
            let tables_peak = usages.of(&samples.0).tables_peak;
            assert_eq!(usages.of(&samples.0), Usage { bytes, bytes_peak, tables, tables_peak });
            assert!(tables_peak >= tables);
        };
        usages.note(&hours, None);
        check(&usages, 0, 0, 0);
        usages.note(&samples, Some(0));
        check(&usages, 0, 0, 1);
        usages.note(&samples, Some(100));
        usages.note(&hours, Some(20));
        usages.note(&key("b", TenantTable::Samples), Some(5000));
        check(&usages, 120, 120, 2);
        usages.note(&samples, Some(30));
        check(&usages, 50, 120, 2);
        usages.note(&hours, None);
        check(&usages, 30, 120, 1);
        usages.note(&samples, Some(u64::MAX));
        usages.note(&hours, Some(u64::MAX));
        check(&usages, u64::MAX, u64::MAX, 2);
        usages.note(&samples, None);
        usages.note(&hours, None);
        check(&usages, 0, 0, 0);
        assert_eq!(usages.all.len(), 1, "tenants without tables are forgotten");
    }

    #[test]
    fn of_too_many_tenants_the_largest_are_kept() {
        let mut usages = Usages::of_at_most(100);
        let large = key("large", TenantTable::Samples);
        usages.note(&large, Some(1 << 40));
        for n in 0..1000 {
            usages.note(&key(&format!("t{n}"), HOURS), Some(n % 7));
            assert!(usages.all.len() <= 100);
            assert_eq!(usages.of(&large.0).bytes, 1 << 40);
        }
        assert!(usages.all.len() >= 50);
    }
}
