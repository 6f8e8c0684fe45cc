//! The middle of a round: what is staged is committed, and noted before and after, so that whoever comes next knows how it
//! ended.

use super::{Aside, PATIENCE, Part, Round};
use crate::node::Shared;
use crate::partition::Owners;
use crate::seal::fault;
use crate::seal::flush::Flushed;
use crate::seal::manifest::{Mark, Own};
use crate::seal::sealer::{SealError, Sealer};
use crate::seal::workers::{Batch, Job};
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use tables::delta::Floodmark;
use tables::stage::Staged;
use tables::{Outcome, StagedBlock, TableError};

impl<O: Owners> Sealer<O> {
    /// Commits what is staged: one log entry for each tenant. The manifest says before that it is tried, and afterwards
    /// that it is done. False where a tenant's own round has passes left.
    pub(super) fn commit(&mut self, round: &mut Round, aside: &mut Vec<Aside>) -> Result<bool, SealError> {
        let began = Instant::now();
        self.check(round)?;
        self.note_attempt(round)?;
        fault::point("attempt_noted", &self.node.lake.faults)?;
        self.commit_all(round)?;
        fault::point("committed", &self.node.lake.faults)?;
        if round.only.is_some()
            && let Some((_, error)) = round.failed.pop_first()
        {
            return Err(error);
        }
        let passing = round.passing();
        if passing.is_empty() || round.only.is_none() {
            self.note_done(round, &passing)?;
            round.noted = true;
        }
        round.flushed = Flushed::sum(round.committed.values().chain([&round.flushed]));
        for tenant in &passing {
            round.committed.remove(tenant);
            round.parts.iter_mut().for_each(|part| part.end_pass(tenant));
        }
        self.node.lake.metrics.commit_seconds.observe(began.elapsed().as_secs_f64());
        if !round.noted {
            return Ok(false);
        }
        let failed =
            std::mem::take(&mut round.failed).into_iter().map(|(tenant, error)| (tenant, Some(error)));
        for (tenant, error) in
            failed.chain(passing.into_iter().map(|tenant| (tenant, None))).collect::<Vec<_>>()
        {
            let own = round.set_aside(&tenant);
            round.except.insert(tenant.clone());
            aside.push(Aside { tenant, error, round: own });
        }
        fault::point("floodmark_noted", &self.node.lake.faults)?;
        Ok(true)
    }

    /// Commits the tables that are pending, side by side. An error that is not of one tenant's table is returned when all
    /// have ended.
    fn commit_all(&mut self, round: &mut Round) -> Result<(), SealError> {
        let mut batch = Batch::new(round.pending(), PATIENCE);
        let mut failure = None;
        while let Some((tenant, done)) = {
            let Self { node, workers, stopping, .. } = self;
            batch.next(workers, stopping, |tenant| commit_job(node, round, tenant))?
        } {
            match done.unwrap_or_else(|late| Err(late.into())) {
                Ok(flushed) => drop(round.committed.insert(tenant, flushed)),
                Err(SealError::Table(TableError::Lapsed { .. })) => {
                    round.forget(&tenant);
                    failure = Some(SealError::Lapsed);
                }
                Err(error) if error.is_of_one_table() => drop(round.failed.insert(tenant, error)),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Sees that tables know of the journals what is noted: before anything is tried, so that what they say afterwards
    /// tells how it ended. A journal whose name a table knows from another one goes on under a new name.
    fn check(&mut self, round: &mut Round) -> Result<(), SealError> {
        let Self { node, workers, stopping, .. } = self;
        let lake = &node.lake;
        let mut strangers: BTreeMap<(usize, String), BTreeSet<TenantId>> = BTreeMap::new();
        let mut batch = Batch::new(round.pending(), PATIENCE);
        while let Some((tenant, found)) =
            batch.next(workers, stopping, |tenant| check_job(node, round, tenant))?
        {
            let found = match found.map_err(SealError::from).and_then(|found| Ok(found?)) {
                Ok(found) => found,
                Err(error) => {
                    round.failed.insert(tenant, error);
                    continue;
                }
            };
            for (number, source, floodmark) in found {
                let own = lake.mark(number).of(&tenant);
                let part = &mut round.parts[number];
                match floodmark {
                    Some(Floodmark { upto, .. }) if upto == part.upto() && own.attempt == Some(upto) => {
                        part.known.insert(tenant.clone());
                    }
                    Some(floodmark) if !lake.is_known(number, &own, &floodmark) => {
                        strangers.entry((number, source)).or_default().insert(tenant.clone());
                    }
                    _ => {}
                }
            }
        }
        for ((number, source), tenants) in strangers {
            let part = &round.parts[number];
            if lake.mark(number).source == source {
                let passing = round.passing();
                lake.change_marks(|(n, mark)| {
                    // what is committed of these, or may be, is known to tables by the old name
                    let open = passing.iter().chain(round.failed.keys());
                    for tenant in open.filter(|tenant| n == number && part.tenants.contains(*tenant)) {
                        mark.tenants.insert(tenant.as_str().into(), mark.of(tenant));
                    }
                })?;
                let committed = round.committed.keys();
                let committed = committed.filter(|t| part.tenants.contains(*t) && !passing.contains(*t));
                let sealed = committed.chain(&part.known).map(|tenant| (tenant.clone(), part.upto()));
                lake.rename_source(number, part.upto(), sealed)?;
            }
            lake.change_marks(|(n, mark)| {
                for tenant in tenants.iter().filter(|_| n == number) {
                    if let Some(own) = mark.tenants.get_mut(tenant.as_str()) {
                        (own.source, own.attempt, own.passes) = (mark.source.clone(), None, None);
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Notes that commits begin.
    fn note_attempt(&self, round: &Round) -> Result<(), SealError> {
        let pending = round.pending();
        if pending.is_empty() && round.failed.is_empty() {
            return Ok(());
        }
        self.node.lake.change_marks(|(number, mark)| {
            let part = &round.parts[number];
            if let Some(only) = &round.only {
                if part.staged_of(only).is_some() && pending.contains(only) {
                    let own =
                        mark.tenants.get_mut(only.as_str()).expect("BUG: it was noted when it was set aside");
                    own.attempt = Some(part.upto());
                }
                return;
            }
            // nothing is tried with these, so that nobody needs to ask their tables
            for tenant in round.failed.keys().chain(&round.except) {
                mark.tenants.insert(tenant.as_str().into(), mark.of(tenant));
            }
            for tenant in &pending {
                if let Some(own) = mark.tenants.get_mut(tenant.as_str()) {
                    if !own.is_open() {
                        own.source.clone_from(&mark.source);
                    }
                    own.attempt = Some(part.upto());
                }
            }
            mark.attempt = Some(part.upto());
        })?;
        Ok(())
    }

    /// Notes that they are done, but for tenants that have passes left: up to where these are, only their tables know.
    fn note_done(&self, round: &Round, passing: &BTreeSet<TenantId>) -> Result<(), SealError> {
        self.node.lake.change_marks(|(number, mark)| {
            let part = &round.parts[number];
            let upto = part.upto();
            if let Some(only) = &round.only {
                if part.tenants.contains(only)
                    && let Some(own) = mark.tenants.get_mut(only.as_str())
                {
                    (own.upto, own.attempt, own.passes) = (upto, None, None);
                }
                return;
            }
            let behind = |tenant: &TenantId, mark: &Mark| match part.tenants.contains(tenant) {
                true => mark.of(tenant),
                // it had nothing here
                false => Own { source: mark.source.clone(), upto, attempt: None, passes: None },
            };
            let aside = round.failed.keys().chain(passing);
            let aside = aside.map(|tenant| (tenant, behind(tenant, mark)));
            let except = round.except.iter().map(|tenant| (tenant, mark.of(tenant)));
            mark.tenants = aside.chain(except).map(|(tenant, own)| (tenant.as_str().into(), own)).collect();
            (mark.upto, mark.attempt) = (upto, None);
        })?;
        Ok(())
    }
}

/// What a round's tenant calls the journal of a partition. Open passes, and attempts of which it is not known how they ended,
/// stay under the name by which the table knows them.
fn source(node: &Shared, round: &Round, number: usize, tenant: &TenantId) -> String {
    let mark = node.lake.mark(number);
    let own = mark.of(tenant);
    if round.only.is_some() || own.is_open() { own.source } else { mark.source }
}

/// What a table says of partitions' journals: their numbers, their names, and up to where it has them.
type Found = Vec<(usize, String, Option<Floodmark>)>;

/// Asks a tenant's table, as it is now, up to where it has what is staged.
fn check_job(node: &Arc<Shared>, round: &Round, tenant: &TenantId) -> Job<Result<Found, TableError>> {
    let staged = round.parts.iter().enumerate().filter(|(_, part)| part.staged_of(tenant).is_some());
    let sources: Vec<_> = staged.map(|(number, _)| (number, source(node, round, number, tenant))).collect();
    let (node, tenant) = (Arc::clone(node), tenant.clone());
    Box::new(move || {
        let table = node.lake.table(&tenant)?;
        table.refresh()?;
        node.lake.show(&tenant, &table);
        let found = |(number, source): (usize, String)| {
            let floodmark = table.progress(&source)?;
            Ok((number, source, floodmark))
        };
        sources.into_iter().map(found).collect()
    })
}

/// Commits what is staged of a tenant, as one log entry.
fn commit_job(node: &Arc<Shared>, round: &Round, tenant: &TenantId) -> Job<Result<Flushed, SealError>> {
    let block = |(number, part): (usize, &Part)| {
        let Staged { files, through } = part.staged_of(tenant)?.clone();
        let source = source(node, round, number, tenant);
        Some(StagedBlock { source, after: None, upto: part.upto(), through, files })
    };
    let blocks: Vec<_> = round.parts.iter().enumerate().filter_map(block).collect();
    let (node, tenant) = (Arc::clone(node), tenant.clone());
    Box::new(move || commit_blocks(&node, &tenant, blocks))
}

fn commit_blocks(
    node: &Shared,
    tenant: &TenantId,
    mut blocks: Vec<StagedBlock>,
) -> Result<Flushed, SealError> {
    let lake = &node.lake;
    fault::point("before_commit", &lake.faults)?;
    let table = lake.table(tenant)?;
    for block in &mut blocks {
        block.after = table.floodmarks([block.source.as_str()])?.remove(&block.source);
    }
    let outcomes = table.commit(&blocks, node.clock.now_ms())?;
    lake.show(tenant, &table);
    fault::point("after_commit", &lake.faults)?;
    let mut flushed = Flushed { tables: 1, ..Flushed::default() };
    for (block, outcome) in blocks.iter().zip(outcomes) {
        match outcome {
            Outcome::Committed { .. } => flushed.add(block),
            // an earlier attempt, whose answer was lost
            Outcome::Already { floodmark } if floodmark == block.upto => flushed.add(block),
            // somebody else uses the journal's name at this very moment; the next check finds out
            Outcome::Already { .. } | Outcome::Apart { .. } => {
                return Err(SealError::Renamed { tenant: tenant.clone(), journal: block.source.clone() });
            }
        }
    }
    flushed.commits = u64::from(!blocks.is_empty());
    flushed.count(&lake.metrics);
    Ok(flushed)
}
