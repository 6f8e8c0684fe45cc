//! What one owner owns: the heads of all tenants in one partition.

use crate::evict;
use crate::freeze::TURN_SERIES;
use crate::pin::{Pin, Pins};
use crate::tenant::TenantHead;
use hashbrown::HashMap;
use model::{SeriesRef, TenantId};

/// The head of one partition.
#[derive(Debug)]
pub struct Partition {
    tenants: HashMap<TenantId, TenantHead>,
    seed: u64,
    pins: Pins,
    eviction: Eviction,
}

/// Where an eviction is.
#[derive(Debug, Default)]
struct Eviction {
    step: Step,
    /// Steps begun so far: a tenant that has done the one under way knows its number.
    count: u64,
    /// Series unlinked by this eviction, and in the end those removed.
    unlinked: u64,
    removed: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    #[default]
    Rest,
    Unlink,
    Unlist,
    Remove,
}

/// What a turn of an eviction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicted {
    /// There is more to do.
    More,
    /// There is more to do once those are gone who hold a [`Pin`] from before.
    Waits,
    /// So many series were evicted altogether. The next turn begins anew.
    Done(u64),
}

impl Partition {
    /// An empty partition; `seed` is the node's secret for hashing.
    pub fn new(seed: u64) -> Self {
        Self { tenants: HashMap::new(), seed, pins: Pins::default(), eviction: Eviction::default() }
    }

    /// A tenant's head, where it has one.
    pub fn tenant(&self, tenant: &TenantId) -> Option<&TenantHead> {
        self.tenants.get(tenant)
    }

    /// A tenant's head, made on first sight.
    pub fn tenant_mut(&mut self, tenant: &TenantId) -> &mut TenantHead {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), TenantHead::new(self.seed));
        }
        self.tenants.get_mut(tenant).expect("BUG: the tenant was just added")
    }

    /// All tenants.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, &TenantHead)> {
        self.tenants.iter()
    }

    /// All tenants, to change.
    pub fn tenants_mut(&mut self) -> impl Iterator<Item = (&TenantId, &mut TenantHead)> {
        self.tenants.iter_mut()
    }

    /// How many tenants there are.
    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// Freezes the samples of tenants that are wanted and not frozen already, in constant time for each (see
    /// [`TenantHead::freeze`]); says how many.
    pub fn freeze(&mut self, wanted: impl Fn(&TenantId) -> bool) -> u64 {
        let heads = self.tenants.iter_mut().filter(|(tenant, head)| !head.is_frozen() && wanted(tenant));
        heads.map(|(_, head)| head.freeze()).sum()
    }

    /// True where a tenant has frozen samples.
    pub fn is_frozen(&self) -> bool {
        self.tenants.values().any(TenantHead::is_frozen)
    }

    /// Lets go of what is frozen of wanted tenants, a few thousand series at a time; true where it was the last turn.
    pub fn release_turn(&mut self, wanted: impl Fn(&TenantId) -> bool) -> bool {
        let mut steps = TURN_SERIES;
        let mut heads = self.tenants.iter_mut().filter(|(tenant, _)| wanted(tenant));
        heads.all(|(_, head)| head.release_some(&mut steps))
    }

    /// What must be held by whoever keeps references to series, or a [`crate::Selection`] or [`crate::Walk`], from
    /// one lock to the next. To be taken before the first look, under the same lock.
    pub fn pin(&self) -> Pin {
        self.pins.pin()
    }

    /// Evicts series that have no samples and were last seen before `idle_before_s`, a little at a time. `freed` is
    /// told whose references now belong to nobody; new series will get them.
    ///
    /// Anything may happen between two turns. A tenant whose series are all gone can be removed
    /// ([`Self::remove_empty`]).
    pub fn evict_turn(&mut self, idle_before_s: u32, mut freed: impl FnMut(&TenantId, SeriesRef)) -> Evicted {
        let Eviction { step, count, unlinked, removed } = &mut self.eviction;
        match step {
            Step::Rest => {
                (*step, *unlinked, *removed) = (Step::Unlink, 0, 0);
                *count += 1;
            }
            Step::Unlink => {}
            Step::Unlist | Step::Remove if !self.pins.are_gone() => return Evicted::Waits,
            Step::Unlist | Step::Remove => {}
        }
        let mut steps = evict::TURN_STEPS;
        for (tenant, head) in self.tenants.iter_mut().filter(|(_, head)| head.evicting.done < *count) {
            let mut freed = |series| {
                *removed += 1;
                freed(tenant, series);
            };
            let done = match step {
                Step::Rest | Step::Unlink => head.unlink_some(idle_before_s, &mut steps, unlinked),
                Step::Unlist => head.unlist_some(&mut steps),
                Step::Remove => head.remove_some(&mut steps, &mut freed),
            };
            if !done {
                return Evicted::More;
            }
            head.evicting.done = *count;
        }
        *step = match step {
            Step::Rest | Step::Unlink if *unlinked > 0 => Step::Unlist,
            Step::Unlist => Step::Remove,
            Step::Rest | Step::Unlink | Step::Remove => {
                *step = Step::Rest;
                return Evicted::Done(*removed);
            }
        };
        *count += 1;
        self.pins.turn_over();
        Evicted::Waits
    }

    /// Removes tenants of whom nothing is left; `removed` is told which. They come back with their next write.
    pub fn remove_empty(&mut self, mut removed: impl FnMut(&TenantId)) {
        self.tenants.retain(|tenant, head| {
            let keeps = !head.is_forgettable();
            if !keeps {
                removed(tenant);
            }
            keeps
        });
        if self.tenants.capacity() > 64 && self.tenants.len() * 4 < self.tenants.capacity() {
            self.tenants.shrink_to_fit();
        }
    }

    /// Bytes of memory of one tenant.
    pub fn memory_bytes_of(&self, tenant: &TenantId) -> usize {
        self.tenant(tenant).map_or(0, TenantHead::memory_bytes)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.tenants.values().map(TenantHead::memory_bytes).sum()
    }
}
