//! All tenants' heads in one partition.
//!
//! Long operations run in turns of about fifty microseconds, however many tenants there are: each keeps a list of the tenants
//! it has yet to visit.

use crate::evict::{self, Idle};
use crate::freeze::TURN_SERIES;
use crate::pin::{Pin, Pins};
use crate::tenant::TenantHead;
use hashbrown::HashMap;
use model::{SeriesRef, TenantId};

/// Cost of switching to another tenant, in steps of a turn.
const TENANT_STEPS: usize = 8;

/// The head of one partition.
#[derive(Debug)]
pub struct Partition {
    pub(crate) tenants: HashMap<TenantId, TenantHead>,
    seed: u64,
    pins: Pins,
    eviction: Eviction,
    /// Tenants with frozen samples.
    frozen: Vec<TenantId>,
    /// By how many bytes it grew or shrank in turns, since somebody asked.
    pub(crate) change_bytes: isize,
    /// Of all tenants' exemplars.
    pub(crate) exemplar_bytes: usize,
    /// Of all tenants' metadata.
    pub(crate) metadata_bytes: usize,
}

/// Progress of an eviction.
#[derive(Debug, Default)]
struct Eviction {
    step: Step,
    /// Tenants that the step has to come to yet. The last is its next.
    waiting: Vec<TenantId>,
    /// Tenants of whom series were unlinked.
    leaving: Vec<TenantId>,
    /// Series that were removed.
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

/// Result of one turn of an eviction.
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
        Self {
            tenants: HashMap::new(),
            seed,
            pins: Pins::default(),
            eviction: Eviction::default(),
            frozen: Vec::new(),
            change_bytes: 0,
            exemplar_bytes: 0,
            metadata_bytes: 0,
        }
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

    /// [`TenantHead::late_bytes`] of all tenants that are wanted, in a pass over them.
    pub fn late_bytes(&self, wanted: impl Fn(&TenantId) -> bool) -> usize {
        self.tenants.iter().filter(|(tenant, _)| wanted(tenant)).map(|(_, head)| head.late_bytes()).sum()
    }

    /// How many tenants there are.
    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// Freezes the samples of tenants that are wanted and not frozen already, in constant time for each (see
    /// [`crate::freeze`]); says how many.
    pub fn freeze(&mut self, wanted: impl Fn(&TenantId) -> bool) -> u64 {
        let mut samples = 0;
        for (tenant, head) in self.tenants.iter_mut().filter(|(t, head)| !head.is_frozen() && wanted(t)) {
            samples += head.freeze();
            if head.is_frozen() {
                self.frozen.push(tenant.clone());
            }
        }
        samples
    }

    /// Freezes all that a tenant has, beside what is frozen of it already, a few hundred series at a time; true where it was
    /// the last turn. Nobody may write to the tenant in between.
    pub fn freeze_all_turn(&mut self, tenant: &TenantId) -> bool {
        let Some(head) = self.tenants.get_mut(tenant) else { return true };
        if !head.is_frozen() {
            self.freeze(|other| other == tenant);
            return true;
        }
        let before = head.memory_bytes();
        let done = head.freeze_rest_some(&mut { TURN_SERIES });
        self.change_bytes += head.memory_bytes() as isize - before as isize;
        done
    }

    /// Lets go of what is frozen of wanted tenants, a few hundred series at a time; true where it was the last turn.
    pub fn release_turn(&mut self, wanted: impl Fn(&TenantId) -> bool) -> bool {
        let (mut steps, mut next) = (TURN_SERIES, self.frozen.len());
        while next > 0 {
            next -= 1;
            if !wanted(&self.frozen[next]) {
                continue;
            }
            if steps == 0 {
                return false;
            }
            let head = self.tenants.get_mut(&self.frozen[next]).expect("BUG: a frozen tenant stays");
            let before = head.memory_bytes();
            let done = head.release_some(&mut steps);
            self.change_bytes += head.memory_bytes() as isize - before as isize;
            if !done {
                return false;
            }
            steps = steps.saturating_sub(TENANT_STEPS);
            // who takes its place was looked at before
            self.frozen.swap_remove(next);
        }
        true
    }

    /// Guard to be held while references to series, a [`crate::Selection`] or a [`crate::Walk`] are kept from one lock to the
    /// next. Take it before the first read, under the same lock.
    pub fn pin(&self) -> Pin {
        self.pins.pin()
    }

    /// Retires idle series, and evicts those of them that have no samples, a little at a time. `freed` is told whose
    /// references now belong to nobody; new series will get them.
    ///
    /// Anything may happen between two turns. A tenant whose series are all gone can be removed
    /// ([`Self::remove_empty`]).
    pub fn evict_turn(&mut self, idle: Idle, freed: impl FnMut(&TenantId, SeriesRef)) -> Evicted {
        self.evict_turn_of(idle, |_| true, freed)
    }

    /// The same of tenants that are wanted when the eviction begins.
    pub fn evict_turn_of(
        &mut self,
        idle: Idle,
        wanted: impl Fn(&TenantId) -> bool,
        mut freed: impl FnMut(&TenantId, SeriesRef),
    ) -> Evicted {
        let Eviction { step, waiting, leaving, removed } = &mut self.eviction;
        match step {
            Step::Rest => {
                (*step, *removed) = (Step::Unlink, 0);
                waiting.extend(self.tenants.keys().filter(|tenant| wanted(tenant)).cloned());
            }
            Step::Unlink => {}
            Step::Unlist | Step::Remove if !self.pins.are_gone() => return Evicted::Waits,
            Step::Unlist | Step::Remove => {}
        }
        let mut steps = evict::TURN_STEPS;
        while let Some(tenant) = waiting.last() {
            if steps == 0 {
                return Evicted::More;
            }
            if let Some(head) = self.tenants.get_mut(tenant) {
                let before = head.memory_bytes();
                let done = match step {
                    Step::Rest | Step::Unlink => {
                        let mut unlinked = 0;
                        let done = head.unlink_some(idle, &mut steps, &mut unlinked);
                        if unlinked > 0 && leaving.last() != Some(tenant) {
                            leaving.push(tenant.clone());
                        }
                        done
                    }
                    Step::Unlist => {
                        let exemplar_bytes = head.exemplars.memory_bytes();
                        let done = head.unlist_some(&mut steps);
                        self.exemplar_bytes -= exemplar_bytes - head.exemplars.memory_bytes();
                        done
                    }
                    Step::Remove => head.remove_some(&mut steps, &mut |series| {
                        *removed += 1;
                        freed(tenant, series);
                    }),
                };
                self.change_bytes += head.memory_bytes() as isize - before as isize;
                if !done {
                    return Evicted::More;
                }
            }
            steps = steps.saturating_sub(TENANT_STEPS);
            waiting.pop();
        }
        (*step, *waiting) = match step {
            Step::Rest | Step::Unlink if !leaving.is_empty() => (Step::Unlist, leaving.clone()),
            Step::Unlist => (Step::Remove, std::mem::take(leaving)),
            Step::Rest | Step::Unlink | Step::Remove => {
                *step = Step::Rest;
                return Evicted::Done(*removed);
            }
        };
        self.pins.turn_over();
        Evicted::Waits
    }

    /// Removes tenants of whom nothing is left; `removed` is told which. They come back with their next write.
    pub fn remove_empty(&mut self, idle: Idle, removed: impl FnMut(&TenantId)) {
        self.remove_empty_of(idle, |_| true, removed);
    }

    /// The same of wanted tenants.
    pub fn remove_empty_of(
        &mut self,
        idle: Idle,
        wanted: impl Fn(&TenantId) -> bool,
        mut removed: impl FnMut(&TenantId),
    ) {
        self.tenants.retain(|tenant, head| {
            let keeps = !(head.is_forgettable(idle) && wanted(tenant));
            if !keeps {
                self.change_bytes -= head.memory_bytes() as isize;
                self.exemplar_bytes -= head.exemplars.memory_bytes();
                self.metadata_bytes -= head.metadata_bytes;
                removed(tenant);
            }
            keeps
        });
        if self.tenants.capacity() > 64 && self.tenants.len() * 4 < self.tenants.capacity() {
            self.tenants.shrink_to_fit();
        }
    }

    /// By how many bytes turns of releases, evictions and trims, and the removal of tenants, have changed the memory since this
    /// was asked last. To add up all tenants' bytes would take longer than a turn.
    pub const fn take_change(&mut self) -> isize {
        std::mem::replace(&mut self.change_bytes, 0)
    }

    /// The time of the newest sample, if there is any; all series are looked at.
    pub fn newest_ms(&self) -> Option<i64> {
        self.tenants.values().filter_map(TenantHead::newest_of_all_ms).max()
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
