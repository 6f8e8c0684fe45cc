//! Tenants with tables: a bounded window over the names in the store.
//!
//! ```text
//!   names in the store   a b c d e f g h i j k l …
//!   one listing              [older ][newer ]          two pages of names, in order
//!   the next                        [older ][newer ]   the window moves by half
//! ```
//!
//! Each tenant stays for two listings, because a file is deleted only if two sweeps find it unused. If all names fit
//! into a page, all tenants stay.

use super::usage;
use model::TenantId;
use std::collections::BTreeSet;

const KNOWN_MAX: usize = 100_000;

/// Memory that a tenant takes on average: its name, and the sizes of its tables.
const NAME_BYTES: usize = 100 + usage::ENTRY_BYTES;

/// The tenants on the last two pages.
#[derive(Debug)]
pub(super) struct Known {
    page_max: usize,
    older: BTreeSet<TenantId>,
    newer: BTreeSet<TenantId>,
    /// The last name on the newest page; the next page begins after it. `None` if the next page is the first.
    after: Option<String>,
}

/// Returns how many names fit into `bytes`, and the memory that these names take.
pub(crate) fn names_at_most(bytes: usize) -> (usize, usize) {
    let names = (bytes / NAME_BYTES).min(KNOWN_MAX);
    (names, names * NAME_BYTES)
}

impl Known {
    pub(super) fn within(bytes: usize) -> Self {
        Self::with_pages_of((names_at_most(bytes).0 / 2).max(1))
    }

    pub(super) const fn with_pages_of(page_max: usize) -> Self {
        Self { page_max, older: BTreeSet::new(), newer: BTreeSet::new(), after: None }
    }

    pub(super) fn next_page(&self) -> (Option<String>, usize) {
        (self.after.clone(), self.page_max)
    }

    /// Adds the next page. `names` must be in ascending order.
    pub(super) fn turn_page(&mut self, names: &[String]) {
        let is_all = self.after.is_none() && names.len() < self.page_max;
        self.after = names.last().filter(|_| names.len() >= self.page_max).cloned();
        let page = names.iter().filter_map(|name| TenantId::parse(name).ok()).collect();
        let before = std::mem::replace(&mut self.newer, page);
        self.older = if is_all { BTreeSet::new() } else { before };
    }

    /// Adds a tenant that has a table, if there is room.
    pub(super) fn add(&mut self, tenant: &TenantId) {
        if self.newer.len() < self.page_max {
            self.newer.insert(tenant.clone());
        }
    }

    pub(super) fn contains(&self, tenant: &TenantId) -> bool {
        self.newer.contains(tenant) || self.older.contains(tenant)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TenantId> {
        self.older.iter().chain(&self.newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[String], known: &mut Known) {
        let (after, max) = known.next_page();
        let page = names.iter().filter(|name| after.as_ref().is_none_or(|after| *name > after));
        known.turn_page(&page.take(max).cloned().collect::<Vec<_>>());
    }

    #[test]
    fn every_tenant_is_in_the_window_for_two_listings_in_succession() {
        for count in 0..40 {
            let names: Vec<_> = (0..count).map(|n| format!("t{n:02}")).collect();
            let (mut known, mut seen, mut twice) =
                (Known::with_pages_of(5), BTreeSet::new(), BTreeSet::new());
            for _ in 0..count / 5 + 3 {
                list(&names, &mut known);
                let now: BTreeSet<_> = known.iter().cloned().collect();
                assert!(now.len() <= 10, "{count}");
                assert!(now.iter().all(|tenant| known.contains(tenant)));
                twice.extend(now.intersection(&seen).cloned());
                seen = now;
            }
            assert_eq!(twice.len(), count, "of {count}");
        }
    }

    #[test]
    fn tenants_that_fit_one_page_are_known_until_they_are_removed() {
        let (mut names, mut known) = (vec!["a".to_owned(), "b".to_owned()], Known::with_pages_of(3));
        let [a, b, c] = ["a", "b", "c"].map(|name| TenantId::parse(name).unwrap());
        for _ in 0..3 {
            list(&names, &mut known);
            assert!(known.iter().eq([&a, &b]));
        }
        known.add(&c);
        assert!(known.contains(&c));
        names.remove(0);
        list(&names, &mut known);
        assert!(known.iter().eq([&b]));
    }

    #[test]
    fn new_tenants_take_no_more_than_their_page() {
        let mut known = Known::with_pages_of(5);
        for n in 0..20 {
            known.add(&TenantId::parse(&format!("t{n}")).unwrap());
        }
        assert_eq!(known.iter().count(), 5);
    }
}
