//! All tenants' heads in one partition. Long operations run in turns of about fifty microseconds, for any
//! number of tenants.

use crate::evict::{self, Idle};
use crate::freeze::TURN_SERIES;
use crate::pin::{Lease, Pin, Pins};
use crate::tenant::TenantHead;
use hashbrown::HashMap;
use model::{SeriesRef, TenantId};

/// Visiting a tenant takes this many steps of a turn, in addition to the steps for its series.
const TENANT_STEPS: usize = 8;

#[derive(Debug)]
pub struct Partition {
    pub(crate) tenants: HashMap<TenantId, TenantHead>,
    seed: u64,
    pins: Pins,
    eviction: Eviction,
    frozen: Vec<TenantId>,
    /// A tenant that comes back counts its births from here on, so that no number is used twice.
    births: u64,
    /// Change of memory since the last [`Self::take_change`], in bytes.
    pub(crate) change_bytes: isize,
    pub(crate) exemplar_bytes: usize,
    pub(crate) metadata_bytes: usize,
    evicted_exemplars: u64,
}

#[derive(Debug, Default)]
struct Eviction {
    step: Step,
    /// Tenants that the current step has not visited yet, in reverse order of the visits.
    waiting: Vec<TenantId>,
    removing: Vec<TenantId>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicted {
    More,
    /// The eviction can continue once all earlier [`Pin`]s and [`Lease`]s are dropped or revoked.
    WaitsForPins,
    Done(u64),
}

impl Partition {
    /// An empty partition. `seed` must be secret, because those who know it can provoke hash collisions.
    pub fn new(seed: u64) -> Self {
        Self {
            tenants: HashMap::new(),
            seed,
            pins: Pins::default(),
            eviction: Eviction::default(),
            frozen: Vec::new(),
            births: 0,
            change_bytes: 0,
            exemplar_bytes: 0,
            metadata_bytes: 0,
            evicted_exemplars: 0,
        }
    }

    pub fn tenant(&self, tenant: &TenantId) -> Option<&TenantHead> {
        self.tenants.get(tenant)
    }

    /// A tenant's head, created if absent.
    pub fn tenant_mut(&mut self, tenant: &TenantId) -> &mut TenantHead {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), TenantHead::born_after(self.seed, self.births));
        }
        self.tenants.get_mut(tenant).expect("BUG: the tenant just added is missing")
    }

    /// Number of series that the tenant created so far in this partition, or more ([`TenantHead::births`]).
    pub fn births_of(&self, tenant: &TenantId) -> u64 {
        self.tenant(tenant).map_or(self.births, TenantHead::births)
    }

    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, &TenantHead)> {
        self.tenants.iter()
    }

    pub fn late_bytes(&self, wanted: impl Fn(&TenantId) -> bool) -> usize {
        self.tenants.iter().filter(|(tenant, _)| wanted(tenant)).map(|(_, head)| head.late_bytes()).sum()
    }

    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// Freezes the samples of each wanted tenant that has no frozen samples yet ([`crate::freeze`]). Returns
    /// the number of samples.
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

    /// Freezes all samples of a tenant that are not frozen yet, a few hundred series in each turn. Returns
    /// true after the last turn. Nobody may write to the tenant between turns.
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

    /// Releases the frozen samples of wanted tenants, a few hundred series in each turn. Returns true after
    /// the last turn.
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
            let head = self
                .tenants
                .get_mut(&self.frozen[next])
                .expect("BUG: a tenant with frozen samples was removed");
            let before = head.memory_bytes();
            let done = head.release_some(&mut steps);
            self.change_bytes += head.memory_bytes() as isize - before as isize;
            if !done {
                return false;
            }
            steps = steps.saturating_sub(TENANT_STEPS);
            // this moves the last tenant here, which was already visited
            self.frozen.swap_remove(next);
        }
        true
    }

    /// A guard for callers that keep references to series, a [`crate::Selection`] or a [`crate::Walk`] while
    /// they do not hold the lock. Take the guard before the first read, under the same lock.
    pub fn pin(&self) -> Pin {
        self.pins.pin()
    }

    /// Like [`Self::pin`], for callers that may hold references for a long time. They must ask
    /// [`Lease::is_revoked`] whenever they have locked the partition again.
    pub fn lease(&self) -> Lease {
        self.pins.lease()
    }

    /// Revokes the leases for which an eviction waits.
    pub fn revoke_leases(&mut self) {
        self.pins.revoke_leases();
    }

    /// Number of the current generation. Changes when an eviction begins to wait for earlier pins.
    pub const fn pin_generation(&self) -> u64 {
        self.pins.number()
    }

    /// Retires idle series, and evicts idle series without samples, in turns. `freed` is called with each
    /// freed reference. Series may be created, written and read between turns.
    pub fn evict_turn(&mut self, idle: Idle, freed: impl FnMut(&TenantId, SeriesRef)) -> Evicted {
        self.evict_turn_of(|_| idle, |_| true, freed)
    }

    /// Like [`Self::evict_turn`], but only for the tenants that `wanted` accepts when the eviction begins. Which of a
    /// tenant's series are idle is asked when they are visited.
    pub fn evict_turn_of(
        &mut self,
        idle_of: impl Fn(&TenantId) -> Idle,
        wanted: impl Fn(&TenantId) -> bool,
        mut freed: impl FnMut(&TenantId, SeriesRef),
    ) -> Evicted {
        let Eviction { step, waiting, removing, removed } = &mut self.eviction;
        match step {
            Step::Rest => {
                (*step, *removed) = (Step::Unlink, 0);
                waiting.extend(self.tenants.keys().filter(|tenant| wanted(tenant)).cloned());
            }
            Step::Unlink => {}
            Step::Unlist | Step::Remove if !self.pins.are_gone() => return Evicted::WaitsForPins,
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
                        let done = head.unlink_some(idle_of(tenant), &mut steps, &mut unlinked);
                        if unlinked > 0 && removing.last() != Some(tenant) {
                            removing.push(tenant.clone());
                        }
                        done
                    }
                    Step::Unlist => {
                        let exemplar_bytes = head.exemplars.memory_bytes();
                        let removed = head.exemplars.removed();
                        let done = head.unlist_some(&mut steps);
                        self.evicted_exemplars += head.exemplars.removed() - removed;
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
            Step::Rest | Step::Unlink if !removing.is_empty() => (Step::Unlist, removing.clone()),
            Step::Unlist => (Step::Remove, std::mem::take(removing)),
            Step::Rest | Step::Unlink | Step::Remove => {
                *step = Step::Rest;
                return Evicted::Done(*removed);
            }
        };
        self.pins.turn_over();
        Evicted::WaitsForPins
    }

    /// Removes the tenants that have no series, and no metadata that is still needed. Calls `removed` with
    /// each of them. A later write adds the tenant again.
    pub fn remove_empty(&mut self, idle: Idle, removed: impl FnMut(&TenantId)) {
        self.remove_empty_of(|_| idle, |_| true, removed);
    }

    pub fn remove_empty_of(
        &mut self,
        idle_of: impl Fn(&TenantId) -> Idle,
        wanted: impl Fn(&TenantId) -> bool,
        mut removed: impl FnMut(&TenantId),
    ) {
        self.tenants.retain(|tenant, head| {
            let keeps = !(head.is_forgettable(|| idle_of(tenant)) && wanted(tenant));
            if !keeps {
                self.births = self.births.max(head.births());
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

    /// Takes a tenant's series, samples and exemplars out, without the metadata. `None` if the tenant is
    /// unknown or has frozen samples. Nobody may hold references to its series.
    pub fn take_series(&mut self, tenant: &TenantId) -> Option<TenantHead> {
        let head = self.tenants.get_mut(tenant).filter(|head| !head.is_frozen())?;
        let births = head.births();
        let mut taken = std::mem::replace(head, TenantHead::born_after(self.seed, births));
        self.change_bytes -= taken.memory_bytes() as isize;
        self.exemplar_bytes -= taken.exemplars.memory_bytes();
        head.metadata = std::mem::take(&mut taken.metadata);
        (head.metadata_bytes, taken.metadata_bytes) = (taken.metadata_bytes, 0);
        head.restored_s = taken.restored_s;
        self.change_bytes += head.memory_bytes() as isize;
        Some(taken)
    }

    /// Removes a tenant without samples, with its series, metadata and exemplars. Returns false if it has
    /// samples or is unknown. Nobody may hold references to its series.
    pub fn remove_without_samples(&mut self, tenant: &TenantId) -> bool {
        let Some(head) = self.tenants.get(tenant) else { return false };
        if head.is_frozen() || self.frozen.contains(tenant) || head.holds_samples() {
            return false;
        }
        self.take_extras(tenant);
        if let Some(head) = self.tenants.remove(tenant) {
            self.births = self.births.max(head.births());
            self.change_bytes -= head.memory_bytes() as isize;
        }
        true
    }

    /// Change of memory since the last call, caused by releases, evictions, trims and removals of tenants.
    pub const fn take_change(&mut self) -> isize {
        std::mem::replace(&mut self.change_bytes, 0)
    }

    /// Number of exemplars that evictions have dropped with their series so far. Other drops do not count.
    pub const fn evicted_exemplars(&self) -> u64 {
        self.evicted_exemplars
    }

    /// Time of the newest sample. Visits all series.
    pub fn newest_ms(&self) -> Option<i64> {
        self.tenants.values().filter_map(TenantHead::newest_of_all_ms).max()
    }

    pub fn memory_bytes_of(&self, tenant: &TenantId) -> usize {
        self.tenant(tenant).map_or(0, TenantHead::memory_bytes)
    }

    pub fn memory_bytes(&self) -> usize {
        self.tenants.values().map(TenantHead::memory_bytes).sum()
    }
}
