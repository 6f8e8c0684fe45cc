//! One round of sealing: freeze, stage, [`commit`], release. Each step can be repeated, and a round can end anywhere.
//!
//! A round takes all tenants; one whose table fails is *set aside*, with what is frozen of it, and the others go on. It gets
//! a round of its own, which is tried until it succeeds: see [`super::sealer`]. The same happens to a tenant whose samples
//! lie on more days than one commit takes: each turn of its round is a pass over the next days.

mod commit;

use super::fault;
use super::flush::{Flushed, Waiter};
use super::pins::Ended;
use super::sealer::{SealError, Sealer};
use super::stage::{self, Workspace};
use super::workers::{Batch, Job, Workers};
use crate::node::Shared;
use crate::partition::{Frozen, Owners, Safe};
use head::TenantHead;
use journal::Offset;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tables::stage::{Encoded, Staged};
use tables::{Date, Table, TableError};

/// How long what was committed stays in the head for the sake of queries that began before, even if somebody waits for the
/// next round: a loop of flushes must not abort other users' queries.
const OUTLIVE_AFTER: Duration = Duration::from_secs(10);

/// How long a round waits for one step of one tenant's table before it goes on without that tenant.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The same for putting its files: a late one has to be encoded and sent again.
const PUT_PATIENCE: Duration = Duration::from_secs(60);

/// How long a turn waits for such queries.
pub(super) const PINS_WAIT: Duration = Duration::from_millis(100);

/// A round, and what has been done of it.
#[derive(Debug)]
pub(super) struct Round {
    /// The tenant that was set aside before; `None` for a round of all others.
    only: Option<TenantId>,
    /// Those who were set aside when it began.
    except: BTreeSet<TenantId>,
    pub(super) began: Instant,
    /// When the oldest sample of it came.
    pub(super) since_ms: i64,
    /// Everything is to leave the journal.
    all: bool,
    pub(super) waiters: Vec<Waiter>,
    parts: Vec<Part>,
    /// Tenants whose commit is done.
    committed: BTreeMap<TenantId, Flushed>,
    /// Tenants whose table failed this time, or (when it is noted) that were set aside.
    failed: BTreeMap<TenantId, SealError>,
    pub(super) noted: bool,
    pub(super) flushed: Flushed,
    /// What must be gone before the release.
    releasing: Option<(Ended, Instant)>,
}

/// A tenant that others do not wait for.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) tenant: TenantId,
    /// Why its table could not be written; `None` where it has passes left.
    pub(super) error: Option<SealError>,
    /// What is left of it.
    pub(super) round: Round,
}

/// One partition's share of a round.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) frozen: Option<Frozen>,
    /// Of whom something is frozen.
    tenants: BTreeSet<TenantId>,
    staged: BTreeMap<TenantId, Staged>,
    /// Tenants whose table has all of this part: a commit's reply was lost, or other partitions need more passes.
    known: BTreeSet<TenantId>,
    /// Up to which day tables have it, where it goes in passes.
    passed: BTreeMap<TenantId, Date>,
    pub(super) released: bool,
}

impl Part {
    fn upto(&self) -> u64 {
        self.frozen.map_or(0, |frozen| frozen.upto.0)
    }

    /// The files that are to be committed.
    fn staged_of(&self, tenant: &TenantId) -> Option<&Staged> {
        let staged = self.staged.get(tenant).filter(|staged| !staged.files.is_empty())?;
        (!self.known.contains(tenant)).then_some(staged)
    }

    /// A tenant's files are committed, and days behind them are not.
    fn is_passing(&self, tenant: &TenantId) -> bool {
        self.staged_of(tenant).is_some_and(|staged| staged.through.is_some())
    }

    /// What was staged of a tenant is committed: the next pass begins behind it.
    fn end_pass(&mut self, tenant: &TenantId) {
        match self.staged.get(tenant).map(|staged| staged.through) {
            Some(Some(through)) if !self.known.contains(tenant) => {
                self.passed.insert(tenant.clone(), through);
                self.staged.remove(tenant);
            }
            Some(_) => drop(self.known.insert(tenant.clone())),
            None => {}
        }
    }
}

impl Round {
    /// A round of all tenants that are not set aside.
    pub(super) fn of_all(
        node: &Shared,
        since_ms: i64,
        except: BTreeSet<TenantId>,
        waiters: Vec<Waiter>,
    ) -> Self {
        let parts = node.partitions().iter().map(|_| Part::default()).collect();
        let all = !waiters.is_empty();
        Self { except, waiters, ..Self::new(node.clock.instant(), since_ms, all, parts) }
    }

    fn new(began: Instant, since_ms: i64, all: bool, parts: Vec<Part>) -> Self {
        Self {
            only: None,
            except: BTreeSet::new(),
            began,
            since_ms,
            all,
            waiters: Vec::new(),
            parts,
            committed: BTreeMap::new(),
            failed: BTreeMap::new(),
            noted: false,
            flushed: Flushed::default(),
            releasing: None,
        }
    }

    /// Takes a tenant out, as a round of its own.
    fn set_aside(&mut self, tenant: &TenantId) -> Self {
        let part = |part: &mut Part| {
            let has_some = part.tenants.remove(tenant);
            Part {
                frozen: part.frozen.map(|frozen| Frozen { samples: 0, ..frozen }),
                tenants: has_some.then(|| tenant.clone()).into_iter().collect(),
                staged: part.staged.remove_entry(tenant).into_iter().collect(),
                known: part.known.take(tenant).into_iter().collect(),
                passed: part.passed.remove_entry(tenant).into_iter().collect(),
                released: !has_some,
            }
        };
        let parts = self.parts.iter_mut().map(part).collect();
        Self { only: Some(tenant.clone()), ..Self::new(self.began, self.since_ms, self.all, parts) }
    }

    /// True where nothing of a tenant's own round is committed.
    pub(super) fn is_movable(&self) -> bool {
        let is_whole = |part: &Part| part.known.is_empty() && part.passed.is_empty();
        !self.noted && self.committed.is_empty() && self.parts.iter().all(is_whole)
    }

    /// All that a tenant has in a partition is frozen: what the journal has of it below `upto`. It is staged anew.
    pub(super) fn relocated(&mut self, node: &Shared, number: usize, upto: Offset) {
        let tenant = self.only.as_ref().expect("BUG: a tenant's own round");
        let head = node.partitions()[number].head.read();
        let is_frozen = head.tenant(tenant).is_some_and(TenantHead::is_frozen);
        let samples = self.parts[number].frozen.map_or(0, |frozen| frozen.samples);
        self.parts[number] = Part {
            frozen: Some(Frozen { upto, samples }),
            tenants: is_frozen.then(|| tenant.clone()).into_iter().collect(),
            released: !is_frozen,
            ..Part::default()
        };
    }

    /// Samples that stand still for it.
    pub(super) fn samples_frozen(&self) -> u64 {
        let parts = self.parts.iter().filter(|part| !part.released);
        parts.filter_map(|part| part.frozen).map(|frozen| frozen.samples).sum()
    }

    /// Tenants with files that are to be committed.
    fn pending(&self) -> BTreeSet<TenantId> {
        let is_open = |part: &Part, tenant: &TenantId| {
            part.staged_of(tenant).is_some()
                && !self.committed.contains_key(tenant)
                && !self.failed.contains_key(tenant)
        };
        let of = |part: &Part| part.staged.keys().filter(|t| is_open(part, t)).cloned().collect::<Vec<_>>();
        self.parts.iter().flat_map(of).collect()
    }

    /// Lets go of a tenant's staged files: they are staged again from what is frozen.
    fn forget(&mut self, tenant: &TenantId) {
        self.parts.iter_mut().for_each(|part| drop(part.staged.remove(tenant)));
    }

    /// Tenants that have committed, and have days left.
    fn passing(&self) -> BTreeSet<TenantId> {
        let is_passing = |tenant: &&TenantId| self.parts.iter().any(|part| part.is_passing(tenant));
        self.committed.keys().filter(is_passing).cloned().collect()
    }
}

impl<O: Owners> Sealer<O> {
    /// Does what is left of a round, or a pass of it: true when nothing is left. Those who are to be set aside are added to
    /// `aside`.
    pub(super) fn advance_round(
        &mut self,
        round: &mut Round,
        aside: &mut Vec<Aside>,
    ) -> Result<bool, SealError> {
        if !round.noted {
            self.stage_all(round)?;
            fault::point("staged", &self.node.lake.faults)?;
            if !self.commit(round, aside)? {
                return Ok(false);
            }
        }
        self.release(round)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Freezes and stages what is not yet.
    fn stage_all(&mut self, round: &mut Round) -> Result<(), SealError> {
        let node = Arc::clone(&self.node);
        round.failed.clear();
        let is_staged = |part: &Part| {
            part.frozen.is_some() && part.tenants.iter().all(|tenant| part.staged.contains_key(tenant))
        };
        if round.parts.iter().all(is_staged) {
            return Ok(());
        }
        let began = Instant::now();
        let workspace = Workspace::buy(&node.lake.flush)?;
        // one after the other: only one partition's files are held at a time
        for number in 0..round.parts.len() {
            self.freeze(round, number)?;
            self.stage(round, number, &workspace)?;
        }
        node.lake.metrics.stage_seconds.observe(began.elapsed().as_secs_f64());
        Ok(())
    }

    fn freeze(&mut self, round: &mut Round, number: usize) -> Result<(), SealError> {
        if round.parts[number].frozen.is_some() {
            return Ok(());
        }
        let frozen = self.owners.freeze(number, round.all, &round.except).ok_or(SealError::Closed(number))?;
        let head = self.node.partitions()[number].head.read();
        let is_ours = |tenant: &TenantId| !round.except.contains(tenant);
        let tenants = head.tenants().filter(|(tenant, head)| head.is_frozen() && is_ours(tenant));
        let tenants = tenants.map(|(tenant, _)| tenant.clone()).collect();
        round.parts[number] = Part { frozen: Some(frozen), tenants, ..Part::default() };
        Ok(())
    }

    /// Tables are opened ahead of the one whose files are encoded here, and small files put together with others'.
    fn stage(&mut self, round: &mut Round, number: usize, workspace: &Workspace) -> Result<(), SealError> {
        let Self { node, stopping, courtesy, workers, .. } = self;
        fault::point("frozen", &node.lake.faults)?;
        let Round { parts, committed, failed, .. } = round;
        let part = &mut parts[number];
        let is_left = |tenant: &&TenantId| {
            let is_done = part.staged.contains_key(*tenant) || committed.contains_key(*tenant);
            !is_done && !failed.contains_key(*tenant)
        };
        let mut opening = Batch::new(part.tenants.iter().filter(is_left).cloned(), PATIENCE);
        let (mut encoded, mut encoded_bytes) = (BTreeMap::new(), 0);
        while let Some((tenant, opened)) = opening.next(workers, stopping, |tenant| open_job(node, tenant))? {
            let mut go_on = || {
                courtesy.let_pass(node);
                !stopping.load(Ordering::Relaxed)
            };
            let (partition, after) = (&node.partitions()[number], part.passed.get(&tenant).copied());
            let done = opened.map_err(SealError::from).and_then(|table| {
                stage::encode_tenant(node, partition, &tenant, &table?, workspace, after, &mut go_on)
            });
            match done {
                Ok(files) => {
                    encoded_bytes += files.held_bytes();
                    encoded.insert(tenant, files);
                }
                Err(error) if error.is_of_one_table() => drop(failed.insert(tenant, error)),
                Err(error) => return Err(error),
            }
            fault::point("staging", &node.lake.faults)?;
            if encoded_bytes > workspace.waiting_bytes {
                put_all(workers, stopping, std::mem::take(&mut encoded), part, failed)?;
                encoded_bytes = 0;
            }
        }
        put_all(workers, stopping, encoded, part, failed)
    }

    /// What is committed leaves the heads and the journals, once nobody needs it there: true when it has.
    fn release(&mut self, round: &mut Round) -> Result<bool, SealError> {
        let node = Arc::clone(&self.node);
        let lake = &node.lake;
        let now = node.clock.instant();
        let is_first = round.releasing.is_none();
        let (ended, began) = *round.releasing.get_or_insert_with(|| (lake.pins.end_generation(), now));
        // the first time it is only looked: who waits for the commit is answered before anybody is waited for
        if !lake.pins.wait(ended, if is_first { Duration::ZERO } else { PINS_WAIT }) {
            if self.is_stopping() {
                return Err(SealError::Stopping);
            }
            if now.saturating_duration_since(began) < OUTLIVE_AFTER {
                return Ok(false);
            }
            lake.metrics.outlived.inc();
            lake.pins.outlive(ended);
        }
        for (number, part) in round.parts.iter_mut().enumerate().filter(|(_, part)| !part.released) {
            let Some(Frozen { upto, .. }) = part.frozen else { continue };
            let what = match &round.only {
                Some(only) => Safe::Of(only.clone()),
                None => Safe::All { upto, except: round.except.clone() },
            };
            self.owners.release(number, what).ok_or(SealError::Closed(number))?;
            part.released = true;
            fault::point("released", &lake.faults)?;
        }
        Ok(true)
    }
}

fn open_job(node: &Arc<Shared>, tenant: &TenantId) -> Job<Result<Arc<Table>, TableError>> {
    let (node, tenant) = (Arc::clone(node), tenant.clone());
    Box::new(move || node.lake.table(&tenant))
}

/// Puts tenants' encoded files of one partition into the store.
fn put_all(
    workers: &mut Workers,
    stopping: &AtomicBool,
    mut encoded: BTreeMap<TenantId, Encoded>,
    part: &mut Part,
    failed: &mut BTreeMap<TenantId, SealError>,
) -> Result<(), SealError> {
    let tenants: Vec<_> = encoded.keys().cloned().collect();
    let mut batch = Batch::new(tenants, PUT_PATIENCE);
    let mut job = |tenant: &TenantId| -> Job<Result<Staged, TableError>> {
        let files = encoded.remove(tenant).expect("BUG: each is put once");
        Box::new(move || files.put())
    };
    while let Some((tenant, put)) = batch.next(workers, stopping, &mut job)? {
        match put.map_err(SealError::from).and_then(|staged| Ok(staged?)) {
            Ok(staged) => drop(part.staged.insert(tenant, staged)),
            Err(error) => drop(failed.insert(tenant, error)),
        }
    }
    Ok(())
}
