//! One round of sealing: freeze, stage, check, commit, release.
//!
//! ```text
//!                                           ┌── another pass ──┐
//!   Stage(0) … Stage(n) ─▶ Check ─▶ Rename ─┴▶ NoteAttempt ─▶ Commit ─▶ NoteCommitted ─▶ Readers ─▶ Release
//!      ▲                                                                    │              ▲           │
//!      └───────────────────────── failure ◀─────────────────────────────────┘              └─ failure ─┘
//! ```
//!
//! A retry repeats only what failed. A tenant whose table fails, or whose samples need several commits, gets its own
//! round.

mod updates;

use super::io::{Block, Command, Event, Found, Moved, PerTenant, Rename};
use super::part::Part;
use crate::partition::{Frozen, SealedSamples};
use crate::seal::error::SealError;
use crate::seal::flushed::Flushed;
use crate::seal::pins::Ended;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use tables::TableError;
use tables::stage::Staged;

/// After this time, queries that still need committed samples in the head must restart, so that the samples can leave
/// the head.
const EXPIRE_AFTER: Duration = Duration::from_secs(10);

/// One step waits this long for queries to end.
pub(super) const READERS_WAIT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Round {
    /// The blocked tenant that this round seals; `None` if the round seals all other tenants.
    only: Option<TenantId>,
    /// Tenants that the round does not seal: closed tenants, and those that were blocked before or during the round.
    except: BTreeSet<TenantId>,
    pub(super) began: Instant,
    /// Arrival time of the oldest sample in the round, in Unix milliseconds.
    pub(super) since_ms: i64,
    /// True if the journal is to be emptied.
    all: bool,
    step: Step,
    parts: Vec<Part>,
    committed: BTreeMap<TenantId, Flushed>,
    /// Tenants whose table failed since the round was begun or retried.
    failed: BTreeMap<TenantId, SealError>,
    noted: Noted,
    pub(super) flushed: Flushed,
    /// Samples can leave the head when the queries up to this generation have ended. The time is the start of this
    /// wait.
    releasing: Option<(Ended, Instant)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Noted {
    No,
    /// The last command has recorded the round's commits in `floodmarks.json`; see [`Round::take_noted`].
    Now,
    Before,
}

/// The next step. A step is skipped if there is nothing to do for it.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Freeze a partition, and write the files of its tenants.
    Stage(usize),
    Check,
    Rename(VecDeque<Rename>),
    NoteAttempt,
    Commit,
    NoteCommitted,
    Readers,
    ExpireReaders,
    Release,
}

#[derive(Debug)]
pub(super) enum Next {
    Do(Command),
    /// The round continues in a later turn, because a pass is left or queries still need the committed samples.
    Later,
    Failed(SealError),
    Ended,
}

#[derive(Debug)]
pub(super) struct Blocking {
    pub(super) tenant: TenantId,
    /// `None` if the tenant is blocked only because its samples need further passes.
    pub(super) error: Option<SealError>,
    /// The tenant's own round, which does what is left to do for this tenant.
    pub(super) round: Round,
}

impl Round {
    pub(super) fn new(
        partitions: usize,
        now: Instant,
        since_ms: i64,
        all: bool,
        except: BTreeSet<TenantId>,
    ) -> Self {
        let parts = (0..partitions).map(|_| Part::default()).collect();
        Self { except, ..Self::of(parts, now, since_ms, all) }
    }

    fn of(parts: Vec<Part>, began: Instant, since_ms: i64, all: bool) -> Self {
        Self {
            only: None,
            except: BTreeSet::new(),
            began,
            since_ms,
            all,
            step: Step::Stage(0),
            parts,
            committed: BTreeMap::new(),
            failed: BTreeMap::new(),
            noted: Noted::No,
            flushed: Flushed::default(),
            releasing: None,
        }
    }

    fn split_off(&mut self, tenant: &TenantId) -> Self {
        let parts = self.parts.iter_mut().map(|part| part.split_off(tenant)).collect();
        self.except.insert(tenant.clone());
        Self { only: Some(tenant.clone()), ..Self::of(parts, self.began, self.since_ms, self.all) }
    }

    /// Begins the round, or continues it after [`Next::Later`] or [`Next::Failed`].
    pub(super) fn resume(&mut self) -> Next {
        let next = self.next();
        self.pause_at(next)
    }

    pub(super) fn handle(&mut self, now: Instant, event: Event) -> Next {
        let next = self.take(now, event);
        self.pause_at(next)
    }

    fn pause_at(&mut self, next: Next) -> Next {
        if let Next::Later | Next::Failed(_) = next {
            self.step = if self.is_noted() { Step::Readers } else { Step::Stage(0) };
            self.failed.clear();
        }
        next
    }

    fn next(&mut self) -> Next {
        loop {
            match &mut self.step {
                Step::Stage(partition) => {
                    let partition = *partition;
                    if let Some(command) = self.stage(partition) {
                        return Next::Do(command);
                    }
                    let is_last = partition + 1 == self.parts.len();
                    self.step = if is_last { Step::Check } else { Step::Stage(partition + 1) };
                }
                Step::Check => {
                    let tenants: BTreeMap<_, _> =
                        self.pending().into_iter().map(|t| self.partitions_to_commit(t)).collect();
                    if !tenants.is_empty() {
                        return Next::Do(Command::Check { tenants, is_own: self.only.is_some() });
                    }
                    self.step = Step::NoteAttempt;
                }
                Step::Rename(renames) => match renames.pop_front() {
                    Some(rename) => return Next::Do(Command::Rename(rename)),
                    None => self.step = Step::NoteAttempt,
                },
                Step::NoteAttempt => {
                    let pending = self.pending();
                    if !pending.is_empty() || !self.failed.is_empty() {
                        return Next::Do(Command::WriteMarks(self.attempt(pending)));
                    }
                    self.step = Step::Commit;
                }
                Step::Commit => {
                    let blocks: BTreeMap<_, _> = self.pending().into_iter().map(|t| self.blocks(t)).collect();
                    if !blocks.is_empty() {
                        return Next::Do(Command::Commit { blocks, is_own: self.only.is_some() });
                    }
                    self.step = Step::NoteCommitted;
                }
                Step::NoteCommitted => {
                    let passing = self.passing();
                    if self.only.is_some() {
                        if let Some((_, error)) = self.failed.pop_first() {
                            return Next::Failed(error);
                        }
                        if !passing.is_empty() {
                            self.end_pass(&passing);
                            return Next::Later;
                        }
                    }
                    return Next::Do(Command::WriteMarks(self.committed(&passing)));
                }
                Step::Readers => {
                    let since = self.releasing.map(|(since, _)| since);
                    // the first check does not wait, because flushes are answered after it
                    let at_most = since.map_or(Duration::ZERO, |_| READERS_WAIT);
                    return Next::Do(Command::AwaitReaders { since, at_most });
                }
                Step::ExpireReaders => {
                    let (since, _) = self.releasing.expect("BUG: the round waits for no readers");
                    return Next::Do(Command::ExpireReaders(since));
                }
                Step::Release => return self.release().map_or(Next::Ended, Next::Do),
            }
        }
    }

    fn take(&mut self, now: Instant, event: Event) -> Next {
        match (&self.step, event) {
            (_, Event::Failed(error)) => return Next::Failed(error),
            (Step::Stage(partition), Event::Frozen { frozen, tenants }) => {
                let tenants = tenants.into_iter().filter(|t| !self.except.contains(t)).collect();
                self.parts[*partition] = Part { frozen: Some(frozen), tenants, ..Part::default() };
            }
            (Step::Stage(partition), Event::Staged(staged)) => return self.staged(*partition, staged),
            (Step::Check, Event::Checked(checked)) => return self.checked(checked),
            (Step::Rename(_), Event::Done) => {}
            (Step::NoteAttempt, Event::Done) => self.step = Step::Commit,
            (Step::Commit, Event::Committed(committed)) => return self.take_committed(committed),
            (Step::NoteCommitted, Event::Done) => {
                self.noted = Noted::Now;
                self.step = Step::Readers;
            }
            (Step::Readers, Event::Readers { since, are_gone }) => {
                let (_, began) = *self.releasing.get_or_insert((since, now));
                if !are_gone && now.saturating_duration_since(began) < EXPIRE_AFTER {
                    return Next::Later;
                }
                self.step = if are_gone { Step::Release } else { Step::ExpireReaders };
            }
            (Step::ExpireReaders, Event::Done) => self.step = Step::Release,
            (Step::Release, Event::Done) => {
                let part = self.parts.iter_mut().find(|part| !part.is_released);
                part.expect("BUG: no partition is being released").is_released = true;
            }
            (step, event) => panic!("BUG: {event:?} does not answer {step:?}"),
        }
        self.next()
    }

    fn stage(&self, partition: usize) -> Option<Command> {
        let part = &self.parts[partition];
        if part.frozen.is_none() {
            return Some(Command::Freeze { partition, all: self.all, except: self.except.clone() });
        }
        let is_left = |tenant: &&TenantId| {
            let is_done = part.staged.contains_key(*tenant) || self.committed.contains_key(*tenant);
            !is_done && !self.failed.contains_key(*tenant)
        };
        let left = part.tenants.iter().filter(is_left);
        let tenants: BTreeMap<_, _> =
            left.map(|tenant| (tenant.clone(), part.passed.get(tenant).copied())).collect();
        (!tenants.is_empty()).then_some(Command::Stage { partition, tenants })
    }

    fn staged(&mut self, partition: usize, staged: PerTenant<Staged>) -> Next {
        for (tenant, result) in staged.results {
            match result {
                Ok(staged) => drop(self.parts[partition].staged.insert(tenant, staged)),
                Err(error) => drop(self.failed.insert(tenant, error)),
            }
        }
        staged.cut_short.map_or_else(|| self.next(), Next::Failed)
    }

    /// Checks before the first commit that the floodmarks in tables agree with the marks. If they do, a floodmark
    /// that has changed later shows that a commit succeeded.
    fn checked(&mut self, checked: PerTenant<Vec<Found>>) -> Next {
        let mut conflicting: BTreeMap<(usize, String), BTreeSet<TenantId>> = BTreeMap::new();
        for (tenant, result) in checked.results {
            let found = match result {
                Ok(found) => found,
                Err(error) => {
                    self.failed.insert(tenant, error);
                    continue;
                }
            };
            for Found { partition, source, upto, attempt, is_known } in found {
                let part = &mut self.parts[partition];
                if upto == Some(part.upto()) && attempt == upto {
                    part.known.insert(tenant.clone());
                } else if upto.is_some() && !is_known {
                    conflicting.entry((partition, source)).or_default().insert(tenant.clone());
                }
            }
        }
        if let Some(error) = checked.cut_short {
            return Next::Failed(error);
        }
        let renames = conflicting.into_iter().map(|((partition, source), conflicting)| {
            let (part, passing) = (&self.parts[partition], self.passing());
            let is_here = |tenant: &&TenantId| part.tenants.contains(*tenant);
            let committed = self.committed.keys().filter(is_here).filter(|t| !passing.contains(*t));
            let sealed = committed.chain(&part.known).cloned().collect();
            let in_doubt = passing.iter().chain(self.failed.keys()).filter(is_here).cloned().collect();
            Rename { partition, source, end: part.upto(), sealed, in_doubt, conflicting }
        });
        self.step = Step::Rename(renames.collect());
        self.next()
    }

    fn take_committed(&mut self, committed: PerTenant<Flushed>) -> Next {
        let mut failure = committed.cut_short;
        for (tenant, result) in committed.results {
            match result {
                Ok(flushed) => drop(self.committed.insert(tenant, flushed)),
                Err(SealError::Table(TableError::Lapsed { .. })) => {
                    self.parts.iter_mut().for_each(|part| drop(part.staged.remove(&tenant)));
                    failure = Some(SealError::Lapsed);
                }
                Err(error) if error.is_of_one_table() => drop(self.failed.insert(tenant, error)),
                Err(error) => failure = Some(error),
            }
        }
        self.step = Step::NoteCommitted;
        failure.map_or_else(|| self.next(), Next::Failed)
    }

    /// True if `floodmarks.json` records the round's commits.
    pub(super) fn is_noted(&self) -> bool {
        self.noted != Noted::No
    }

    /// Returns the tenants that this round blocks, if `floodmarks.json` has just recorded the round's commits. Each
    /// is returned once.
    pub(super) fn take_noted(&mut self) -> Option<Vec<Blocking>> {
        if self.noted != Noted::Now {
            return None;
        }
        self.noted = Noted::Before;
        let passing = self.passing();
        self.end_pass(&passing);
        let failed = std::mem::take(&mut self.failed).into_iter().map(|(tenant, e)| (tenant, Some(e)));
        let blocked: Vec<_> = failed.chain(passing.into_iter().map(|tenant| (tenant, None))).collect();
        let split = |(tenant, error)| Blocking { round: self.split_off(&tenant), tenant, error };
        Some(blocked.into_iter().map(split).collect())
    }

    fn end_pass(&mut self, passing: &BTreeSet<TenantId>) {
        for flushed in self.committed.values() {
            self.flushed.add(flushed);
        }
        for tenant in passing {
            self.committed.remove(tenant);
            self.parts.iter_mut().for_each(|part| part.end_pass(tenant));
        }
    }

    fn release(&self) -> Option<Command> {
        let (partition, part) = self.parts.iter().enumerate().find(|(_, part)| !part.is_released)?;
        let Frozen { upto, .. } = part.frozen.expect("BUG: a partition to release was not frozen");
        let what = match &self.only {
            Some(only) => SealedSamples::Of(only.clone()),
            None => SealedSamples::All { upto, except: self.except.clone() },
        };
        Some(Command::Release { partition, what })
    }

    fn pending(&self) -> BTreeSet<TenantId> {
        let is_done =
            |tenant: &TenantId| self.committed.contains_key(tenant) || self.failed.contains_key(tenant);
        let of = |part: &Part| {
            let staged = part.staged.keys().filter(|t| part.staged_of(t).is_some() && !is_done(t));
            staged.cloned().collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of).collect()
    }

    fn partitions_to_commit(&self, tenant: TenantId) -> (TenantId, Vec<usize>) {
        let parts = self.parts.iter().enumerate();
        let partitions_to_commit = parts.filter(|(_, part)| part.staged_of(&tenant).is_some());
        let partitions_to_commit = partitions_to_commit.map(|(partition, _)| partition).collect();
        (tenant, partitions_to_commit)
    }

    fn blocks(&self, tenant: TenantId) -> (TenantId, Vec<Block>) {
        let block = |(partition, part): (usize, &Part)| {
            let staged = part.staged_of(&tenant)?.clone();
            Some(Block { partition, upto: part.upto(), staged })
        };
        let blocks = self.parts.iter().enumerate().filter_map(block).collect();
        (tenant, blocks)
    }

    /// Tenants that have committed samples of some days, and samples of later days that need another pass.
    fn passing(&self) -> BTreeSet<TenantId> {
        let is_passing = |tenant: &&TenantId| {
            self.parts.iter().any(|part| part.staged_of(tenant).is_some_and(|s| s.through.is_some()))
        };
        self.committed.keys().filter(is_passing).cloned().collect()
    }

    /// True if no sample of this round is committed. The samples may then be relocated.
    pub(super) fn is_movable(&self) -> bool {
        let is_whole = |part: &Part| part.known.is_empty() && part.passed.is_empty();
        !self.is_noted() && self.committed.is_empty() && self.parts.iter().all(is_whole)
    }

    /// Called after the samples of this round's tenant were relocated. They must be staged again.
    pub(super) fn relocated(&mut self, partition: usize, moved: &Moved) {
        let tenant = self.only.as_ref().expect("BUG: a relocation ended in a round of all tenants");
        let is_frozen = moved.tenants[tenant];
        let samples = self.parts[partition].frozen.map_or(0, |frozen| frozen.samples);
        self.parts[partition] = Part {
            frozen: Some(Frozen { upto: moved.upto, samples }),
            tenants: is_frozen.then(|| tenant.clone()).into_iter().collect(),
            is_released: !is_frozen,
            ..Part::default()
        };
    }

    pub(super) fn leaves_out(&self) -> impl Iterator<Item = &TenantId> {
        self.except.iter()
    }

    pub(super) fn samples_frozen(&self) -> u64 {
        let parts = self.parts.iter().filter(|part| !part.is_released);
        parts.filter_map(|part| part.frozen).map(|frozen| frozen.samples).sum()
    }
}
