//! Ids of batches that were stored, so that a repetition is not stored again.

use journal::Offset;
use model::{BatchId, TenantId};
use std::collections::{HashMap, VecDeque};

/// An id is remembered for this long.
pub(super) const REMEMBERED_US: i64 = 3_600_000_000;

/// Limit on the ids that are remembered of one tenant. Then the oldest are forgotten early.
pub(super) const TENANT_IDS_MAX: usize = 1_000_000;

/// Memory of a remembered id: its entries in the map, with the map's free room, and in the queue.
pub(super) const ID_BYTES: u64 = 160;

#[derive(Debug, Default)]
pub(super) struct Ids {
    tenants: HashMap<TenantId, TenantIds>,
    len: usize,
}

#[derive(Debug, Default)]
struct TenantIds {
    known: HashMap<BatchId, Known>,
    /// In the order in which they were stored.
    order: VecDeque<(i64, BatchId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) arrival_us: i64,
    pub(super) records: u32,
    /// The last record of the journal that has the id.
    pub(super) offset: Offset,
}

impl Ids {
    pub(super) fn get(&self, tenant: &TenantId, id: &BatchId) -> Option<Known> {
        self.tenants.get(tenant)?.known.get(id).copied()
    }

    /// Remembers an id, or notes where the journal has it now.
    pub(super) fn note(&mut self, tenant: &TenantId, id: BatchId, known: Known) {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), TenantIds::default());
        }
        let ids = self.tenants.get_mut(tenant).expect("BUG: a tenant is missing that was just added");
        match ids.known.insert(id, known) {
            Some(before) => {
                // a key may be stored anew after its time
                let arrival_us = before.arrival_us.max(known.arrival_us);
                ids.known.insert(id, Known { arrival_us, ..known });
                if arrival_us > before.arrival_us {
                    ids.order.push_back((arrival_us, id));
                }
            }
            None => {
                ids.order.push_back((known.arrival_us, id));
                self.len += 1;
                while ids.known.len() > TENANT_IDS_MAX {
                    self.len -= usize::from(ids.forget_first());
                }
            }
        }
    }

    /// Forgets ids from before `before_us`.
    pub(super) fn forget(&mut self, before_us: i64) {
        let len = &mut self.len;
        self.tenants.retain(|_, ids| {
            while ids.order.front().is_some_and(|(arrival_us, _)| *arrival_us < before_us) {
                *len -= usize::from(ids.forget_first());
            }
            !ids.order.is_empty()
        });
    }

    /// Forgets the oldest id of the tenant with the most.
    pub(super) fn forget_one(&mut self) {
        let most = self.tenants.values_mut().max_by_key(|ids| ids.known.len());
        if let Some(ids) = most {
            while !ids.forget_first() {}
            self.len -= 1;
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The ids whose last record is below an offset.
    pub(super) fn below(&self, offset: Offset) -> impl Iterator<Item = (&TenantId, BatchId, Known)> {
        let of = move |(tenant, ids): (_, &TenantIds)| {
            let below: Vec<_> = ids.known.iter().filter(|(_, known)| known.offset < offset).collect();
            below.into_iter().map(move |(id, known)| (tenant, *id, *known)).collect::<Vec<_>>()
        };
        self.tenants.iter().flat_map(of)
    }
}

impl TenantIds {
    /// Forgets the oldest id. Returns false if it was stored anew since then, and so is remembered longer.
    fn forget_first(&mut self) -> bool {
        let Some((arrival_us, id)) = self.order.pop_front() else { return true };
        let is_oldest = self.known.get(&id).is_some_and(|known| known.arrival_us <= arrival_us);
        if is_oldest {
            self.known.remove(&id);
        }
        is_oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(arrival_us: i64, offset: u64) -> Known {
        Known { arrival_us, records: 1, offset: Offset(offset) }
    }

    #[test]
    fn ids_are_forgotten_after_their_time() {
        let (mut ids, a) = (Ids::default(), TenantId::parse("a").unwrap());
        ids.note(&a, BatchId(1), known(10, 0));
        ids.note(&a, BatchId(2), known(20, 1));
        assert_eq!(ids.get(&a, &BatchId(1)), Some(known(10, 0)));
        assert_eq!(ids.get(&TenantId::parse("b").unwrap(), &BatchId(1)), None, "tenants do not share ids");
        // carried to a later record
        ids.note(&a, BatchId(1), known(10, 5));
        assert_eq!(ids.get(&a, &BatchId(1)), Some(known(10, 5)));
        assert_eq!(ids.below(Offset(5)).map(|(_, id, _)| id).collect::<Vec<_>>(), [BatchId(2)]);
        ids.forget(20);
        assert_eq!((ids.get(&a, &BatchId(1)), ids.len()), (None, 1));
        // stored anew, after its time
        ids.note(&a, BatchId(2), known(90, 7));
        ids.forget(90);
        assert_eq!((ids.get(&a, &BatchId(2)), ids.len()), (Some(known(90, 7)), 1));
        ids.forget_one();
        assert_eq!((ids.get(&a, &BatchId(2)), ids.len()), (None, 0));
    }
}
