//! Executes commands of the state machine for blocked tenants (relocation) and closed tenants (replay).

use super::Sealer;
use super::commit::PATIENCE;
use crate::partition::{ClosedReplay, ClosedTurn, Owners, Relocated};
use crate::seal::error::SealError;
use crate::seal::fault;
use crate::seal::state_machine::io::{Event, Moved};
use crate::seal::workers::{Batch, Job};
use head::TenantHead;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tables::delta::Floodmark;

/// The floodmark that each tenant's table has for one journal; `None` if the table has no samples of this journal.
type Floodmarks = BTreeMap<TenantId, Result<Option<Floodmark>, SealError>>;

impl<O: Owners> Sealer<O> {
    pub(super) fn relocate(
        &mut self,
        partition: usize,
        movable: &BTreeSet<TenantId>,
    ) -> Result<Event, SealError> {
        let Some(tenants) = self.retaining(partition, movable)? else { return Ok(Event::Relocated(None)) };
        // without an answer, it is unknown which samples are frozen now
        let Relocated { upto, from } =
            self.owners.relocate(partition, &tenants).ok_or(SealError::Stopping)?;
        let head = self.context.partitions[partition].head.read();
        let is_frozen = |tenant: &TenantId| head.tenant(tenant).is_some_and(TenantHead::is_frozen);
        let tenants = tenants.iter().map(|tenant| (tenant.clone(), is_frozen(tenant))).collect();
        Ok(Event::Relocated(Some(Moved { upto, from, tenants })))
    }

    pub(super) fn truncate(&mut self, partition: usize) -> Result<Event, SealError> {
        self.owners.truncate(partition).ok_or(SealError::Stopping)?;
        Ok(Event::Done)
    }

    /// Returns the tenants because of which the journal cannot be truncated; `None` if there are none, or if one of
    /// them cannot be relocated.
    fn retaining(
        &mut self,
        partition: usize,
        movable: &BTreeSet<TenantId>,
    ) -> Result<Option<BTreeSet<TenantId>>, SealError> {
        let mark = self.context.lake.mark(partition);
        let (mut retaining, mut in_doubt) = (BTreeSet::new(), BTreeMap::new());
        for (name, own) in mark.tenants.iter().filter(|(_, own)| own.upto < mark.upto) {
            let tenant = TenantId::parse(name).ok();
            let is_movable = |t: &TenantId| movable.contains(t) && !self.workers.is_busy(t);
            let Some(tenant) = tenant.filter(is_movable) else { return Ok(None) };
            if own.is_open() {
                in_doubt.insert(tenant.clone(), own.source.clone());
            }
            retaining.insert(tenant);
        }
        for (tenant, floodmark) in self.ask_tables(&in_doubt)? {
            let end = floodmark.map(|floodmark| floodmark.map_or(0, |floodmark| floodmark.end()));
            if end.is_err() || end.is_ok_and(|end| end > mark.of(&tenant).upto) {
                return Ok(None);
            }
        }
        self.context.lake.change_marks(|(number, mark)| {
            for tenant in in_doubt.keys().filter(|_| number == partition) {
                if let Some(own) = mark.tenants.get_mut(tenant.as_str()) {
                    (own.attempt, own.passes) = (None, None);
                }
            }
        })?;
        Ok(Some(retaining).filter(|retaining| !retaining.is_empty()))
    }

    /// Reads the floodmark of one journal in the tables of several tenants. `sources` has the name under which each
    /// table knows the journal. The tables are fenced first.
    fn ask_tables(&mut self, sources: &BTreeMap<TenantId, String>) -> Result<Floodmarks, SealError> {
        let Self { context, workers, stopping, .. } = self;
        let job = |tenant: &TenantId| -> Job<Result<Option<Floodmark>, SealError>> {
            let (context, tenant, source) = (Arc::clone(context), tenant.clone(), sources[tenant].clone());
            Box::new(move || {
                fault::point("asked", &context.lake.faults)?;
                Ok(context.lake.settled_floodmark(&tenant, &source)?)
            })
        };
        let mut batch = Batch::new(sources.keys().cloned(), PATIENCE);
        let mut floodmarks = Floodmarks::new();
        while let Some((tenant, done)) = batch.next(workers, stopping, job)? {
            floodmarks.insert(tenant, done.unwrap_or_else(|overdue| Err(overdue.into())));
        }
        Ok(floodmarks)
    }

    /// Tries to read the tables of closed tenants, one partition after the other beginning with `first`, and stops at
    /// a partition for which some tables can be read.
    pub(super) fn ask_closed(&mut self, first: usize) -> Result<Event, SealError> {
        let context = Arc::clone(&self.context);
        for partition in (first..context.partitions.len()).chain(0..first) {
            let mark = context.lake.mark(partition);
            let closed = context.lake.closed.of(partition).into_iter();
            let sources = closed.map(|tenant| (tenant.clone(), mark.lookup(&tenant).0.to_owned())).collect();
            let mut answered = BTreeMap::new();
            for (tenant, floodmark) in self.ask_tables(&sources)? {
                match floodmark {
                    Ok(floodmark) => {
                        let mut floodmark = floodmark.unwrap_or_default();
                        floodmark.upto = floodmark.upto.max(mark.lookup(&tenant).1);
                        answered.insert(tenant, Arc::new(floodmark));
                    }
                    Err(error) => {
                        tracing::debug!(%tenant, %error, "a closed tenant's table still cannot be read");
                        context.lake.closed.explain(&tenant, format!("its table cannot be read: {error}"));
                    }
                }
            }
            if answered.is_empty() {
                continue;
            }
            context.lake.closed.keep_one_that_may_fit(&mut answered);
            match ClosedReplay::begin(partition, answered, &context.lake.flush, &mut self.owners) {
                Ok(replay) => {
                    self.closed_replay = Some(replay);
                    return Ok(Event::Asked { replaying: Some(partition) });
                }
                Err(error) => {
                    tracing::debug!(partition, %error, "cannot read the journal for closed tenants")
                }
            }
        }
        Ok(Event::Asked { replaying: None })
    }

    pub(super) fn replay_closed(&mut self) -> Event {
        self.pacer.yield_to_requests();
        let mut replay = self.closed_replay.take().expect("BUG: no replay for closed tenants was begun");
        let lake = &self.context.lake;
        let turn = match replay.turn(&self.context.heads, &mut self.owners) {
            Ok(turn) => turn,
            Err(error) => {
                let partition = replay.number;
                tracing::warn!(partition, %error, "cannot replay the journal for closed tenants; the replay will be retried");
                replay.tenants.keys().for_each(|tenant| lake.closed.explain(tenant, error.to_string()));
                return Event::Asked { replaying: None };
            }
        };
        match turn {
            ClosedTurn::More => self.closed_replay = Some(replay),
            ClosedTurn::NoRoom => {
                tracing::warn!(
                    partition = replay.number,
                    tenants = replay.tenants.len(),
                    samples = replay.samples,
                    "the heads have no room for closed tenants; their replay will be retried"
                );
                for tenant in replay.tenants.keys() {
                    let mut partitions = lake.closed.record_no_room(tenant);
                    partitions.insert(replay.number);
                    for partition in partitions {
                        // the samples are freed here, because freeing them takes time that the owner should not spend
                        drop(self.owners.discard(partition, tenant));
                    }
                }
            }
            ClosedTurn::Done => {
                for (tenant, floodmark) in &replay.tenants {
                    if lake.reopen(replay.number, replay.end.0, tenant, floodmark) {
                        lake.blocked.remove(tenant);
                        tracing::warn!(%tenant, "a tenant's table can be read again: the tenant is open");
                    }
                }
                let (partition, samples) = (replay.number, replay.samples);
                tracing::info!(partition, samples, "replayed the journal for closed tenants");
            }
        }
        Event::Replayed(turn)
    }
}
