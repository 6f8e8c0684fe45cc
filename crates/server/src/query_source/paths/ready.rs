//! An index of a tenant's names.
//!
//! It has the names of all series up to a number of births in each head ([`head::TenantHead::births`]), and of all series
//! that were in the table when it was built. A series that this process adds to the table later was in a head before. So the index
//! misses nothing as long as no series was born and removed between two updates, and no other process, such as an import, has changed
//! the table.

use super::names::in_tables;
use super::{REBUILD_PART, REBUILD_PAUSE_S};
use crate::query_source::{Canceled, Context, Turns};
use crate::refusal::Refusal;
use ::paths::{Batch, Full, Merge, Run, Runs};
use head::{TenantHead, UntaggedWalk};
use model::TenantId;
use query::Interrupt;
use std::sync::Arc;
use stdx::budget::Account;
use tables::Table;
use tables::delta::FilesMark;

/// A search merges runs of up to this many names together, which takes a few milliseconds. The keeper merges longer ones.
const SEARCH_MERGE_NAMES: usize = 32 << 10;

/// An index is built again after this time, so that it forgets names whose samples were deleted or have expired.
pub(super) const REBUILD_S: u32 = 3600;

/// Bytes of names that are sorted at a time: this part of the account, between these bounds.
const BATCH_PART: u64 = 32;
const BATCH_BYTES_MIN: u64 = 64 << 10;
const BATCH_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Ready {
    runs: Runs,
    /// For each partition, the births of the series whose names are in the index.
    births: Vec<u64>,
    /// The table whose names are in the index. `None` if there was none.
    table: Option<FilesMark>,
    /// When the last update began, in seconds of the steady clock.
    updated_s: u32,
    built_s: u32,
    build_took_s: u32,
    /// From this time on, the index is old.
    old_from_s: u32,
    /// Warnings about data that could not be read.
    left_out: Vec<String>,
}

/// Whether the index has all names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fresh {
    Yes,
    /// Names may be missing.
    Missing,
    /// There is no memory for all names.
    Full,
}

#[derive(Debug)]
pub(super) enum Unbuilt {
    Canceled,
    Full(String),
    Unreadable(Refusal),
}

impl From<Canceled> for Unbuilt {
    fn from(_: Canceled) -> Self {
        Self::Canceled
    }
}

impl From<Refusal> for Unbuilt {
    fn from(refusal: Refusal) -> Self {
        Self::Unreadable(refusal)
    }
}

impl From<Full> for Unbuilt {
    fn from(full: Full) -> Self {
        Self::Full(full.to_string())
    }
}

impl From<stdx::budget::Exhausted> for Unbuilt {
    fn from(full: stdx::budget::Exhausted) -> Self {
        Self::Full(full.to_string())
    }
}

impl Ready {
    /// Reads all names. First those in heads, so that a series that moves to the table meanwhile is found there.
    pub(super) fn build(
        context: &Context,
        tenant: &TenantId,
        interrupt: &Arc<dyn Interrupt>,
        account: &Account,
    ) -> Result<Self, Unbuilt> {
        let now_s = context.steady_s();
        let mut index = Self {
            runs: Runs::default(),
            births: vec![0; context.partitions.iter().count()],
            table: table_of(context, tenant),
            updated_s: now_s,
            built_s: now_s,
            build_took_s: 0,
            old_from_s: now_s.saturating_add(REBUILD_S),
            left_out: Vec::new(),
        };
        let mut adding = Adding::new(account, usize::MAX)?;
        index.births = index.add_new(context, tenant, &**interrupt, &mut adding)?;
        let mut take = |name: &str| adding.add(name, &mut index.runs);
        index.left_out = in_tables(context, tenant, "", interrupt, &mut take)?;
        adding.finish(&mut index.runs)?;
        index.build_took_s = context.steady_s() - now_s;
        Ok(index)
    }

    /// Adds the names that are new in the heads. `table` is the one before this call, by [`table_of`].
    pub(super) fn refresh(
        &mut self,
        context: &Context,
        tenant: &TenantId,
        table: Option<FilesMark>,
        interrupt: &dyn Interrupt,
        account: &Account,
    ) -> Result<Fresh, Canceled> {
        let now_s = context.steady_s();
        if !table.is_none_or(|table| self.follows(table)) {
            return Ok(Fresh::Missing);
        }
        let mut has_new = false;
        for (partition, births) in context.partitions.iter().zip(&self.births) {
            let head = partition.head.read();
            let now = head.births_of(tenant);
            let has_lost = match head.tenant(tenant) {
                Some(head) => TenantHead::may_have_lost(head, *births, self.updated_s),
                None => now > *births,
            };
            if has_lost {
                return Ok(Fresh::Missing);
            }
            has_new |= now > *births;
        }
        if !has_new {
            return Ok(Fresh::Yes);
        }
        let runs = self.runs.clone();
        let added = Adding::new(account, SEARCH_MERGE_NAMES).map_err(Unbuilt::from).and_then(|mut adding| {
            let births = self.add_new(context, tenant, interrupt, &mut adding)?;
            adding.finish(&mut self.runs)?;
            Ok(births)
        });
        match added {
            Ok(births) => {
                (self.births, self.updated_s) = (births, now_s);
                Ok(Fresh::Yes)
            }
            Err(unbuilt) => {
                self.runs = runs; // otherwise, the next update would add the same names again
                match unbuilt {
                    Unbuilt::Canceled => Err(Canceled),
                    Unbuilt::Full(_) | Unbuilt::Unreadable(_) => Ok(Fresh::Full),
                }
            }
        }
    }

    /// Whether every name that came into the table since the last update was in a head.
    fn follows(&mut self, table: FilesMark) -> bool {
        if self.table.is_some_and(|known| known.version() >= table.version()) {
            return true; // another search has seen this version
        }
        let follows = table.continues(self.table);
        if follows {
            self.table = Some(table);
        }
        follows
    }

    /// Adds names of series that were born since the last update. Returns the births in each partition up to which all
    /// names are added.
    fn add_new(
        &mut self,
        context: &Context,
        tenant: &TenantId,
        interrupt: &dyn Interrupt,
        adding: &mut Adding<'_>,
    ) -> Result<Vec<u64>, Unbuilt> {
        let mut births = Vec::with_capacity(self.births.len());
        for (partition, before) in context.partitions.iter().zip(&self.births) {
            let turns = Turns::new(partition, tenant, interrupt);
            births.push(partition.head.read().births_of(tenant));
            let (mut walk, mut is_last) = (UntaggedWalk::since(*before), false);
            while !is_last {
                is_last = turns.turn(|head| walk.names(head, |name| adding.batch.push(name)))?;
                adding.flush_if_full(&mut self.runs)?;
            }
        }
        Ok(births)
    }

    pub(super) const fn runs(&self) -> &Runs {
        &self.runs
    }

    pub(super) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    pub(super) const fn is_old(&self, now_s: u32) -> bool {
        now_s >= self.old_from_s
    }

    /// The index is not built again before this time, unless names are missing.
    pub(super) const fn postpone(&mut self, old_from_s: u32) {
        self.old_from_s = old_from_s;
    }

    /// When the index may be built again if names are missing. Building takes a small part of the time, even while an import changes
    /// the table again and again.
    pub(super) fn again_from_s(&self) -> u32 {
        self.built_s + REBUILD_PAUSE_S.max(REBUILD_PART * self.build_took_s)
    }

    pub(super) fn has_merges(&self) -> bool {
        self.runs.plan().is_some()
    }

    pub(super) fn plan(&self) -> Option<Merge> {
        self.runs.plan()
    }

    pub(super) fn replace(&mut self, merge: &Merge, merged: Run) {
        self.runs.replace(merge, merged);
    }
}

/// The tenant's table, as far as this process has seen it. `None` if there is none, or if it cannot be read, so that what is known
/// of it stays. This may open the table, and read its log.
pub(super) fn table_of(context: &Context, tenant: &TenantId) -> Option<FilesMark> {
    mark_of(&*context.lake.existing(tenant).ok()??)
}

/// Like [`table_of`], but also `None` if the table is not open: then this process has seen no change of it.
pub(super) fn open_table_of(context: &Context, tenant: &TenantId) -> Option<FilesMark> {
    mark_of(&*context.lake.opened(tenant)?)
}

fn mark_of(table: &Table) -> Option<FilesMark> {
    table.files().ok().map(|files| files.mark())
}

/// Names that are being added.
struct Adding<'a> {
    account: &'a Account,
    batch: Batch,
    batch_bytes: usize,
    merge_names_max: usize,
    _memory: stdx::budget::Reservation,
}

impl<'a> Adding<'a> {
    fn new(account: &'a Account, merge_names_max: usize) -> Result<Self, stdx::budget::Exhausted> {
        let batch_bytes = (account.limit_bytes() / BATCH_PART).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
        // the batch grows by doubling, and beyond its size by the names of one turn
        let memory = account.reserve(2 * batch_bytes)?;
        let (batch, batch_bytes) = (Batch::default(), batch_bytes as usize);
        Ok(Self { account, batch, batch_bytes, merge_names_max, _memory: memory })
    }

    fn add(&mut self, name: &str, runs: &mut Runs) -> Result<(), Unbuilt> {
        self.batch.push(name);
        self.flush_if_full(runs)
    }

    fn flush_if_full(&mut self, runs: &mut Runs) -> Result<(), Unbuilt> {
        if self.batch.bytes() >= self.batch_bytes { self.finish(runs) } else { Ok(()) }
    }

    fn finish(&mut self, runs: &mut Runs) -> Result<(), Unbuilt> {
        if !self.batch.is_empty() {
            runs.push(self.batch.take_run(self.account)?);
            runs.merge_small(self.account, self.merge_names_max)?;
        }
        Ok(())
    }
}
