//! Executes commands of the state machine that concern tables and `floodmarks.json`: check, rename, note, commit.

use super::Sealer;
use crate::partition::Owners;
use crate::seal::Context;
use crate::seal::Lake;
use crate::seal::error::SealError;
use crate::seal::fault;
use crate::seal::flushed::Flushed;
use crate::seal::state_machine::io::Rename;
use crate::seal::state_machine::io::{Block, Event, Found, PerTenant};
use crate::seal::state_machine::marks::MarkUpdate;
use crate::seal::workers::{Batch, Job};
use model::TenantId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tables::{Outcome, StagedBlock, TableError};

/// Time limit for one step of work on a table. When it has passed, the round continues with the other tables.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl<O: Owners> Sealer<O> {
    pub(super) fn check(
        &mut self,
        tenants: &BTreeMap<TenantId, Vec<usize>>,
        is_own: bool,
    ) -> Result<Event, SealError> {
        let Self { context, workers, stopping, .. } = self;
        fault::point("staged", &context.lake.faults)?;
        let job = |tenant: &TenantId| {
            let source = |number: &usize| (*number, source(&context.lake, *number, tenant, is_own));
            check_job(context, tenant, tenants[tenant].iter().map(source).collect())
        };
        let mut batch = Batch::new(tenants.keys().cloned(), PATIENCE);
        let mut results = BTreeMap::new();
        while let Some((tenant, found)) = batch.next(workers, stopping, job)? {
            results.insert(tenant, found.map_err(SealError::from).and_then(|found| Ok(found?)));
        }
        Ok(Event::Checked(PerTenant { results, cut_short: None }))
    }

    /// Gives a journal a new name, because tables have offsets that a different journal with the same name has
    /// written.
    pub(super) fn rename(&self, rename: &Rename) -> Result<Event, SealError> {
        let Rename { partition, source, end, sealed, in_doubt, conflicting } = rename;
        let lake = &self.context.lake;
        // the journal may already have a new name, because of another tenant's table
        if lake.mark(*partition).source == *source {
            lake.change_marks(|(number, mark)| {
                for tenant in in_doubt.iter().filter(|_| number == *partition) {
                    mark.tenants.insert(tenant.as_str().into(), mark.of(tenant));
                }
            })?;
            lake.rename_source(*partition, *end, sealed.iter().map(|tenant| (tenant.clone(), *end)))?;
        }
        lake.change_marks(|(number, mark)| {
            for tenant in conflicting.iter().filter(|_| number == *partition) {
                if let Some(own) = mark.tenants.get_mut(tenant.as_str()) {
                    (own.source, own.attempt, own.passes) = (mark.source.clone(), None, None);
                }
            }
        })?;
        Ok(Event::Done)
    }

    pub(super) fn write_marks(&self, update: &MarkUpdate) -> Result<Event, SealError> {
        self.context.lake.change_marks(|(number, mark)| update.apply(number, mark))?;
        Ok(Event::Done)
    }

    pub(super) fn commit(
        &mut self,
        blocks: &BTreeMap<TenantId, Vec<Block>>,
        is_own: bool,
    ) -> Result<Event, SealError> {
        let Self { context, workers, stopping, .. } = self;
        fault::point("attempt_noted", &context.lake.faults)?;
        let job = |tenant: &TenantId| -> Job<Result<Flushed, SealError>> {
            let block = |Block { partition, upto, staged }: &Block| StagedBlock {
                source: source(&context.lake, *partition, tenant, is_own),
                after: None,
                upto: *upto,
                through: staged.through,
                files: staged.files.clone(),
            };
            let blocks = blocks[tenant].iter().map(block).collect();
            let (context, tenant) = (Arc::clone(context), tenant.clone());
            Box::new(move || commit_blocks(&context, &tenant, blocks))
        };
        let mut batch = Batch::new(blocks.keys().cloned(), PATIENCE);
        let mut results = BTreeMap::new();
        let cut_short = loop {
            match batch.next(workers, stopping, job) {
                Ok(Some((tenant, done))) => {
                    drop(results.insert(tenant, done.unwrap_or_else(|overdue| Err(overdue.into()))))
                }
                Ok(None) => break fault::point("committed", &context.lake.faults).err(),
                Err(error) => break Some(error),
            }
        };
        Ok(Event::Committed(PerTenant { results, cut_short }))
    }
}

/// Name under which a tenant's table knows a partition's journal. This is an old name as long as the tenant has
/// passes left or the outcome of a commit is unknown.
fn source(lake: &Lake, partition: usize, tenant: &TenantId, is_own: bool) -> String {
    let mark = lake.mark(partition);
    let own = mark.of(tenant);
    if is_own || own.is_open() { own.source } else { mark.source }
}

fn check_job(
    context: &Arc<Context>,
    tenant: &TenantId,
    sources: Vec<(usize, String)>,
) -> Job<Result<Vec<Found>, TableError>> {
    let (context, tenant) = (Arc::clone(context), tenant.clone());
    Box::new(move || {
        let lake = &context.lake;
        let table = lake.table(&tenant)?;
        table.refresh()?;
        lake.publish_commits(&tenant, &table);
        let found = |(partition, source): (usize, String)| {
            let floodmark = table.progress(&source)?;
            let own = lake.mark(partition).of(&tenant);
            let is_known = floodmark.as_ref().is_some_and(|found| lake.is_known(partition, &own, found));
            let upto = floodmark.map(|floodmark| floodmark.upto);
            Ok(Found { partition, source, upto, attempt: own.attempt, is_known })
        };
        sources.into_iter().map(found).collect()
    })
}

fn commit_blocks(
    context: &Context,
    tenant: &TenantId,
    mut blocks: Vec<StagedBlock>,
) -> Result<Flushed, SealError> {
    let lake = &context.lake;
    fault::point("before_commit", &lake.faults)?;
    let table = lake.table(tenant)?;
    for block in &mut blocks {
        block.after = table.floodmarks([block.source.as_str()])?.remove(&block.source);
    }
    let outcomes = table.commit(&blocks, context.clock.now_ms())?;
    lake.publish_commits(tenant, &table);
    fault::point("after_commit", &lake.faults)?;
    let mut flushed = Flushed { tables: 1, ..Flushed::default() };
    for (block, outcome) in blocks.iter().zip(outcomes) {
        match outcome {
            Outcome::Committed { .. } => flushed.add_block(block),
            // this commit succeeded in an earlier attempt whose answer was lost
            Outcome::Already { floodmark } if floodmark == block.upto => flushed.add_block(block),
            // a different journal with the same name has written to the table, which the next check will detect
            Outcome::Already { .. } | Outcome::FloodmarkMismatch { .. } => {
                return Err(SealError::Renamed { tenant: tenant.clone(), journal: block.source.clone() });
            }
        }
    }
    flushed.commits = u64::from(!blocks.is_empty());
    flushed.count(&lake.sealing);
    Ok(flushed)
}
