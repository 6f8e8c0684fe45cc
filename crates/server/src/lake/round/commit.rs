//! The middle of a round: what is staged is committed, and noted before and after, so that whoever comes next knows how it
//! ended.

use super::{Aside, Round};
use crate::lake::fault;
use crate::lake::flush::Flushed;
use crate::lake::manifest::{Mark, Own};
use crate::lake::sealer::{SealError, Sealer};
use crate::owner::Owners;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use tables::delta::Floodmark;
use tables::stage::Staged;
use tables::{Outcome, StagedBlock, TableError};

impl<O: Owners> Sealer<O> {
    /// Commits what is staged: one log entry for each tenant. The manifest says before that it is tried, and afterwards
    /// that it is done. False where a tenant's own round has passes left.
    pub(super) fn commit(&self, round: &mut Round, aside: &mut Vec<Aside>) -> Result<bool, SealError> {
        let lake = &self.node.lake;
        let began = Instant::now();
        self.check(round)?;
        self.note_attempt(round)?;
        fault::point("attempt_noted", &lake.faults)?;
        for tenant in round.pending() {
            if self.is_stopping() {
                return Err(SealError::Stopping);
            }
            if self.forget_stale(round) {
                return Err(SealError::Stale);
            }
            match self.commit_tenant(round, &tenant) {
                Ok(flushed) => drop(round.committed.insert(tenant, flushed)),
                Err(SealError::Table(TableError::Lapsed { .. })) => {
                    round.forget(&tenant);
                    return Err(SealError::Stale);
                }
                Err(SealError::Table(error)) => drop(round.failed.insert(tenant, error)),
                Err(error) => return Err(error),
            }
        }
        fault::point("committed", &lake.faults)?;
        if round.only.is_some()
            && let Some((_, error)) = round.failed.pop_first()
        {
            return Err(error.into());
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
        lake.metrics.commit_seconds.observe(began.elapsed().as_secs_f64());
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
        fault::point("floodmark_noted", &lake.faults)?;
        Ok(true)
    }

    /// What a round's tenant calls the journal of a partition. Open passes stay under the name by which the table knows them.
    fn source(&self, round: &Round, number: usize, tenant: &TenantId) -> String {
        let mark = self.node.lake.mark(number);
        let own = mark.of(tenant);
        if round.only.is_some() || own.passes.is_some() { own.source } else { mark.source }
    }

    /// Sees that tables know of the journals what is noted: before anything is tried, so that what they say afterwards
    /// tells how it ended. A journal whose name a table knows from another one goes on under a new name.
    fn check(&self, round: &mut Round) -> Result<(), SealError> {
        let lake = &self.node.lake;
        let mut strangers: BTreeMap<(usize, String), BTreeSet<TenantId>> = BTreeMap::new();
        for tenant in round.pending() {
            if self.is_stopping() {
                return Err(SealError::Stopping);
            }
            for number in 0..round.parts.len() {
                let Some(_) = round.parts[number].staged_of(&tenant) else { continue };
                let source = self.source(round, number, &tenant);
                let floodmark = match lake.fresh_floodmark(&tenant, &source) {
                    Ok(floodmark) => floodmark,
                    Err(error) => {
                        round.failed.insert(tenant.clone(), error);
                        break;
                    }
                };
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
                    // what is committed of these is known to tables by the old name
                    for tenant in
                        passing.iter().filter(|tenant| n == number && part.tenants.contains(*tenant))
                    {
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
                    own.attempt = Some(part.upto());
                    if own.passes.is_none() {
                        own.source.clone_from(&mark.source);
                    }
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

    fn commit_tenant(&self, round: &Round, tenant: &TenantId) -> Result<Flushed, SealError> {
        let lake = &self.node.lake;
        fault::point("before_commit", &lake.faults)?;
        let table = lake.table(tenant)?;
        let mut blocks = Vec::new();
        for (number, part) in round.parts.iter().enumerate() {
            let Some(Staged { files, through }) = part.staged_of(tenant).cloned() else { continue };
            let source = self.source(round, number, tenant);
            let after = table.floodmarks([source.as_str()])?.remove(&source);
            blocks.push(StagedBlock { source, after, upto: part.upto(), through, files });
        }
        let outcomes = table.commit(&blocks, self.node.clock.now_ms())?;
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
}
