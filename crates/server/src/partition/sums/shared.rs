//! What all partitions must agree on: which sums are void, and which increments may have been added before.
//!
//! The series of a histogram are in different partitions, but must treat each point alike. So what depends on the time is decided
//! once for each request, when it is divided among the partitions. Its parts have the same [`Stamp`]:
//!
//! ```text
//!   announce: sums last seen before t are void ─▶ each partition notes the ends of such sums ─▶ 5 min ─▶ they are removed
//!                 └── from here on, in stamps           └── from here on, in stamps            no request has an older stamp
//! ```
//!
//! A void sum begins with 0, whether or not its partition has removed it already.

use crate::limits::head_memory::HeadMemory;
use model::TenantId;
use model::accumulator::PIECES_MAX;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use stdx::budget::{Account, Reservation};

/// Limit on the tenants of which it is known what was forgotten. Beyond it, the oldest of these times counts for all others.
pub(super) const TENANTS_MAX: usize = 2048;

/// Limit on the histograms of which it is known when their bounds changed.
const ENDED_MAX: usize = 4096;

/// When the account of the pieces is filled to this percentage, sums keep fewer of them. Then there is room for as many sums as
/// their own account has room for.
const SHORT_PERCENT: u64 = 50;
/// Two requests of a series may still be under way together, and arrive in different order.
const PIECES_IF_SHORT: usize = 2;

/// Memory of a tenant, with a name of 150 bytes, and of a histogram. The nodes of maps are at least half full.
const TENANT_BYTES: usize = 320;
const ENDED_BYTES: usize = 48;

/// What counts for all parts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// When the request was divided, in seconds of [`super::super::steady_s`].
    pub(super) arrived_s: u32,
    /// Sums that were last seen before this are void.
    pub(super) void_before_s: u32,
    /// No increment of the tenant that was added, and whose series has no sum any more, ends after this time.
    pub(super) forgotten_ns: u64,
    /// Its value when the last partition had replayed its journal. A partition may have removed a sum of a histogram, and another one
    /// have restored it: the latter is void if its newest increment ended at this time or before.
    pub(super) replayed_ns: u64,
    /// How many pieces a sum keeps that the request changes.
    pub(super) pieces_max: usize,
    /// Number of the tenant's last deletion that all partitions know of.
    pub(super) deletion: u64,
}

impl Default for Stamp {
    fn default() -> Self {
        Self {
            arrived_s: 0,
            void_before_s: 0,
            forgotten_ns: 0,
            replayed_ns: 0,
            pieces_max: PIECES_MAX,
            deletion: 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct SharedSums {
    pieces: Account,
    void_before_s: AtomicU32,
    /// Whether it is known of any histogram when its bounds changed.
    has_ended: AtomicBool,
    known: RwLock<Known>,
}

#[derive(Debug)]
struct Known {
    forgotten: Forgotten,
    /// What was forgotten when the last partition had replayed its journal. It is the same until all have.
    replayed: Forgotten,
    /// The newest end of an increment before the bounds of a histogram changed last.
    ended: BTreeMap<TenantId, BTreeMap<u32, u64>>,
    ended_count: usize,
    /// Numbers of the last deletions.
    deleted: BTreeMap<TenantId, u64>,
    deletions: u64,
    memory: Reservation,
}

impl Known {
    /// Counts the memory. What is known must be kept even if there is no room for it; it is limited.
    fn settle(&mut self) {
        let tenants = self.forgotten.len() + self.replayed.len() + self.ended.len() + self.deleted.len();
        let bytes = tenants * TENANT_BYTES + self.ended_count * ENDED_BYTES;
        let _ = self.memory.resize(bytes as u64);
    }

    /// Removes the oldest eighth of what is known of the tenant with the most histograms.
    fn make_room(&mut self) {
        let Some(of) = self.ended.values_mut().max_by_key(|of| of.len()) else { return };
        let mut ends: Vec<_> = of.values().copied().collect();
        ends.sort_unstable();
        let oldest_ns = ends[ends.len() / 8];
        of.retain(|_, end_ns| *end_ns > oldest_ns);
        self.ended.retain(|_, of| !of.is_empty());
        self.ended_count = self.ended.values().map(BTreeMap::len).sum();
    }
}

impl SharedSums {
    pub(crate) fn new(sums: &Account, pieces: &Account) -> Self {
        let memory = sums.reserve(0).expect("BUG: no memory was asked for");
        let (forgotten, ended, deleted) = (Forgotten::default(), BTreeMap::new(), BTreeMap::new());
        let known = Known {
            forgotten,
            replayed: Forgotten::default(),
            ended,
            ended_count: 0,
            deleted,
            deletions: 0,
            memory,
        };
        let (pieces, void_before_s, has_ended) = (pieces.clone(), AtomicU32::new(0), AtomicBool::new(false));
        Self { pieces, void_before_s, has_ended, known: RwLock::new(known) }
    }

    pub(crate) fn stamp(&self, tenant: &TenantId, arrived_s: u32) -> Stamp {
        let void_before_s = self.void_before_s.load(Ordering::Acquire);
        let pieces_max = self.pieces_max();
        let known = self.known.read();
        let (forgotten_ns, replayed_ns) = (known.forgotten.of(tenant), known.replayed.of(tenant));
        let deletion = known.deleted.get(tenant).copied().unwrap_or(0);
        Stamp { arrived_s, void_before_s, forgotten_ns, replayed_ns, pieces_max, deletion }
    }

    fn pieces_max(&self) -> usize {
        if filled_percent(&self.pieces) < SHORT_PERCENT { PIECES_MAX } else { PIECES_IF_SHORT }
    }

    /// Declares sums void that were last seen before `before_s`. Returns the latest of such times.
    pub(super) fn announce(&self, before_s: u32) -> u32 {
        self.void_before_s.fetch_max(before_s, Ordering::AcqRel).max(before_s)
    }

    pub(super) fn forget(&self, tenant: &TenantId, end_ns: u64) {
        let known = &mut *self.known.write();
        known.forgotten.raise(tenant, end_ns);
        known.settle();
    }

    /// Notes what a partition knows at the end of its replay. No request gets a stamp before all of them have ended.
    pub(super) fn replayed(&self, forgotten: &Forgotten) {
        let known = &mut *self.known.write();
        known.forgotten.raise_all(forgotten);
        known.replayed.raise_all(forgotten);
        known.settle();
    }

    /// Notes that a histogram got other bounds after an increment that ended at `end_ns`.
    pub(super) fn end_bounds(&self, tenant: &TenantId, histogram: u32, end_ns: u64) {
        let known = &mut *self.known.write();
        if let Some(known_ns) = known.ended.get_mut(tenant).and_then(|of| of.get_mut(&histogram)) {
            *known_ns = end_ns.max(*known_ns);
            return;
        }
        if known.ended_count >= ENDED_MAX {
            known.make_room();
        }
        known.ended.entry(tenant.clone()).or_default().insert(histogram, end_ns);
        known.ended_count += 1;
        known.settle();
        self.has_ended.store(true, Ordering::Release);
    }

    /// Sums of a histogram are void if their newest increment ended at this time or before, because its bounds have changed since.
    pub(super) fn ended_ns(&self, tenant: &TenantId, histogram: u32) -> u64 {
        if !self.has_ended.load(Ordering::Acquire) {
            return 0;
        }
        let ended = &self.known.read().ended;
        ended.get(tenant).and_then(|of| of.get(&histogram)).copied().unwrap_or(0)
    }

    fn deleted(&self, tenant: &TenantId, number: u64) {
        let known = &mut *self.known.write();
        known.forgotten.of.remove(tenant);
        known.replayed.of.remove(tenant);
        known.ended_count -= known.ended.remove(tenant).map_or(0, |of| of.len());
        if known.deleted.len() >= TENANTS_MAX
            && !known.deleted.contains_key(tenant)
            && let Some(oldest) = known.deleted.iter().min_by_key(|(_, number)| **number)
        {
            let oldest = oldest.0.clone();
            known.deleted.remove(&oldest);
        }
        let last = known.deleted.entry(tenant.clone()).or_default();
        *last = number.max(*last);
        known.settle();
    }
}

pub(super) fn filled_percent(account: &Account) -> u64 {
    account.used_bytes() * 100 / account.limit_bytes().max(1)
}

/// The deletion of a tenant. Until all partitions have recorded it, those that have refuse increments, which would count only in
/// some of the series of a histogram.
#[derive(Debug)]
pub(crate) struct Deletion {
    heads: Arc<HeadMemory>,
    tenant: TenantId,
    pub(in crate::partition) number: u64,
    /// Partitions that have not recorded it.
    left: AtomicUsize,
}

impl Deletion {
    pub(crate) fn begin(heads: &Arc<HeadMemory>, tenant: &TenantId, partitions: usize) -> Arc<Self> {
        let known = &mut *heads.shared_sums.known.write();
        known.deletions += 1;
        let (number, left) = (known.deletions, AtomicUsize::new(partitions));
        Arc::new(Self { heads: Arc::clone(heads), tenant: tenant.clone(), number, left })
    }

    /// Must be called when a partition has removed the sums, and this is durable.
    pub(in crate::partition) fn recorded(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.heads.shared_sums.deleted(&self.tenant, self.number);
        }
    }
}

/// If the deletion fails in a partition, increments are accepted again. The request is then repeated.
impl Drop for Deletion {
    fn drop(&mut self) {
        if *self.left.get_mut() > 0 {
            self.heads.shared_sums.deleted(&self.tenant, self.number);
        }
    }
}

/// The latest end of all increments that were added and whose sum was forgotten, by tenant. It is 0 if there was none.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    of: BTreeMap<TenantId, u64>,
    /// Of tenants that are not listed.
    others_ns: u64,
}

impl Forgotten {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.others_ns == 0
    }

    pub(super) const fn others_ns(&self) -> u64 {
        self.others_ns
    }

    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    pub(super) fn of(&self, tenant: &TenantId) -> u64 {
        self.of.get(tenant).copied().unwrap_or(0).max(self.others_ns)
    }

    pub(super) fn raise(&mut self, tenant: &TenantId, end_ns: u64) {
        if let Some(own_ns) = self.of.get_mut(tenant) {
            *own_ns = end_ns.max(*own_ns);
            return;
        }
        self.of.insert(tenant.clone(), end_ns);
        if self.of.len() > TENANTS_MAX {
            self.merge_oldest();
        }
    }

    fn raise_all(&mut self, other: &Self) {
        other.of.iter().for_each(|(tenant, end_ns)| self.raise(tenant, *end_ns));
        self.raise_others(other.others_ns);
    }

    pub(super) fn raise_others(&mut self, end_ns: u64) {
        self.others_ns = end_ns.max(self.others_ns);
    }

    fn merge_oldest(&mut self) {
        if let Some((tenant, _)) = self.of.iter().min_by_key(|(_, end_ns)| **end_ns) {
            let tenant = tenant.clone();
            let oldest_ns = self.of.remove(&tenant).unwrap_or(0);
            self.raise_others(oldest_ns);
        }
    }

    pub(super) fn remove(&mut self, tenant: &TenantId) {
        self.of.remove(tenant);
    }

    /// The tenants after one, with their times.
    pub(super) fn after<'a>(
        &'a self,
        tenant: Option<&TenantId>,
    ) -> impl Iterator<Item = (&'a TenantId, u64)> + use<'a> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = tenant.map_or(Unbounded, |tenant| Excluded(tenant.clone()));
        self.of.range((from, Unbounded)).map(|(tenant, end_ns)| (tenant, *end_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_tenants_is_bounded() {
        let tenant = |n: usize| TenantId::parse(&format!("t{n}")).unwrap();
        let account = Account::new("sums", 10 << 20);
        let (shared, mut forgotten) =
            (SharedSums::new(&account, &Account::new("pieces", 1 << 20)), Forgotten::default());
        let count = TENANTS_MAX + 10;
        for n in 0..count {
            forgotten.raise(&tenant(n), 1000 + n as u64);
        }
        assert_eq!(forgotten.len(), TENANTS_MAX);
        for n in 0..count {
            assert_eq!(forgotten.of(&tenant(n)), 1000 + n.max(9) as u64, "{n}");
        }
        assert_eq!(forgotten.of(&tenant(count)), 1009, "of one that is not known");
        assert!(!forgotten.is_empty());
        let all: Vec<_> = forgotten.after(None).map(|(tenant, _)| tenant.clone()).collect();
        let rest: Vec<_> = forgotten.after(Some(&all[1000])).map(|(tenant, _)| tenant.clone()).collect();
        assert_eq!(rest, all[1001..]);
        assert_eq!(shared.ended_ns(&tenant(0), 7), 0);
        shared.end_bounds(&tenant(1), 7, 5);
        let count = ENDED_MAX as u64;
        for n in 0..count - 1 {
            shared.end_bounds(&tenant(0), n as u32, 1000 + n);
        }
        // what is known already changes in its place
        for n in (0..count - 1).rev() {
            shared.end_bounds(&tenant(0), n as u32, 1000 + n % 2 * 10_000);
        }
        assert!((0..count - 1).all(|n| shared.ended_ns(&tenant(0), n as u32) >= 1000 + n));
        // a tenant with many histograms does not displace those of others
        for n in count..count * 2 {
            shared.end_bounds(&tenant(0), n as u32, 1000 + n);
            assert!(shared.known.read().ended_count <= ENDED_MAX);
        }
        let known = (0..count * 2).filter(|n| shared.ended_ns(&tenant(0), *n as u32) > 0).count();
        assert_eq!(known + 1, shared.known.read().ended_count);
        assert!(known > ENDED_MAX * 3 / 4, "{known} are left");
        assert_eq!((shared.ended_ns(&tenant(1), 7), shared.ended_ns(&tenant(1), 8)), (5, 0));
        shared.forget(&tenant(1), 7);
        assert_eq!(account.used_bytes(), (3 * TENANT_BYTES + (known + 1) * ENDED_BYTES) as u64);
        shared.deleted(&tenant(0), 1);
        assert_eq!((shared.ended_ns(&tenant(0), 5), shared.known.read().ended_count), (0, 1));
        for n in 0..TENANTS_MAX + 10 {
            shared.deleted(&tenant(n), n as u64 + 1);
        }
        let first = shared.known.read().deleted.keys().next().cloned();
        shared.deleted(&first.unwrap(), TENANTS_MAX as u64 + 20);
        assert_eq!(shared.known.read().deleted.len(), TENANTS_MAX);
        assert_eq!(account.used_bytes(), (TENANTS_MAX * TENANT_BYTES) as u64);
    }
}
