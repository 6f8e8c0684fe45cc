//! Executes commands of the state machine that concern the heads: freeze, stage, release.

use super::Sealer;
use crate::partition::{Owners, SealedSamples};
use crate::seal::error::SealError;
use crate::seal::fault;
use crate::seal::pins::Ended;
use crate::seal::stage::{self, Workspace};
use crate::seal::state_machine::io::{Event, PerTenant};
use crate::seal::workers::{Batch, Job, Workers};
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tables::stage::{Encoded, Staged};
use tables::{Date, TableError};

/// Time limit for storing the files of one tenant. It is long because files that are not stored in time must be encoded
/// and sent again.
const PUT_PATIENCE: Duration = Duration::from_secs(60);

type Results = BTreeMap<TenantId, Result<Staged, SealError>>;

impl<O: Owners> Sealer<O> {
    pub(super) fn freeze(
        &mut self,
        partition: usize,
        all: bool,
        except: &BTreeSet<TenantId>,
    ) -> Result<Event, SealError> {
        let frozen = self.owners.freeze(partition, all, except).ok_or(SealError::Closed(partition))?;
        fault::point("frozen", &self.context.lake.faults)?;
        let head = self.context.partitions[partition].head.read();
        let tenants = head.tenants().filter(|(_, head)| head.is_frozen());
        let tenants = tenants.map(|(tenant, _)| tenant.clone()).collect();
        Ok(Event::Frozen { frozen, tenants })
    }

    pub(super) fn stage(&mut self, partition: usize, tenants: &BTreeMap<TenantId, Option<Date>>) -> Event {
        let mut results = Results::new();
        let cut_short = self.stage_into(&mut results, partition, tenants).err();
        Event::Staged(PerTenant { results, cut_short })
    }

    /// Encodes and stores the files of several tenants. Tables are opened in parallel with encoding, and small files
    /// of several tenants are stored in parallel.
    fn stage_into(
        &mut self,
        results: &mut Results,
        number: usize,
        tenants: &BTreeMap<TenantId, Option<Date>>,
    ) -> Result<(), SealError> {
        let Self { context, stopping, pacer, workers, .. } = self;
        let workspace = Workspace::reserve(&context.lake.flush)?;
        let partition = &context.partitions[number];
        let mut opening = Batch::new(tenants.keys().cloned(), super::commit::PATIENCE);
        let (mut encoded, mut encoded_bytes) = (BTreeMap::new(), 0);
        let open = |tenant: &TenantId| -> Job<_> {
            let (context, tenant) = (Arc::clone(context), tenant.clone());
            Box::new(move || context.lake.table(&tenant))
        };
        while let Some((tenant, opened)) = opening.next(workers, stopping, open)? {
            let mut go_on = || {
                pacer.yield_to_requests();
                !stopping.load(Ordering::Relaxed)
            };
            let after = tenants[&tenant];
            let done = opened.map_err(SealError::from).and_then(|table| {
                stage::encode_tenant(context, partition, &tenant, &table?, &workspace, after, &mut go_on)
            });
            match done {
                Ok(files) => {
                    encoded_bytes += files.held_bytes();
                    encoded.insert(tenant, files);
                }
                Err(error) if error.is_of_one_table() => drop(results.insert(tenant, Err(error))),
                Err(error) => return Err(error),
            }
            fault::point("staging", &context.lake.faults)?;
            if encoded_bytes > workspace.waiting_bytes {
                put_all(workers, stopping, std::mem::take(&mut encoded), results)?;
                encoded_bytes = 0;
            }
        }
        put_all(workers, stopping, encoded, results)
    }

    pub(super) fn await_readers(&self, since: Option<Ended>, at_most: Duration) -> Result<Event, SealError> {
        let lake = &self.context.lake;
        if since.is_none() {
            fault::point("floodmark_noted", &lake.faults)?;
        }
        let since = since.unwrap_or_else(|| lake.pins.end_generation());
        let are_gone = lake.pins.wait(since, at_most);
        if !are_gone && self.is_stopping() {
            return Err(SealError::Stopping);
        }
        Ok(Event::Readers { since, are_gone })
    }

    pub(super) fn expire_readers(&self, ended: Ended) -> Event {
        self.context.lake.sealing.expired_readers.inc();
        self.context.lake.pins.expire(ended);
        Event::Done
    }

    pub(super) fn release(&mut self, partition: usize, what: SealedSamples) -> Result<Event, SealError> {
        self.owners.release(partition, what).ok_or(SealError::Closed(partition))?;
        fault::point("released", &self.context.lake.faults)?;
        Ok(Event::Done)
    }
}

fn put_all(
    workers: &mut Workers,
    stopping: &AtomicBool,
    mut encoded: BTreeMap<TenantId, Encoded>,
    results: &mut Results,
) -> Result<(), SealError> {
    let tenants: Vec<_> = encoded.keys().cloned().collect();
    let mut batch = Batch::new(tenants, PUT_PATIENCE);
    let mut put = |tenant: &TenantId| -> Job<Result<Staged, TableError>> {
        let files = encoded.remove(tenant).expect("BUG: a tenant's files are put twice");
        Box::new(move || files.put())
    };
    while let Some((tenant, done)) = batch.next(workers, stopping, &mut put)? {
        let staged = done.map_err(SealError::from).and_then(|staged| Ok(staged?));
        results.insert(tenant, staged);
    }
    Ok(())
}
