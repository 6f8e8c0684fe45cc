//! Commands for blocked and closed tenants: relocation of their samples, replay of the journal for them.

use super::Sealer;
use crate::partition::{Late, LateTurn, Owners, Relocated};
use crate::seal::Own;
use crate::seal::error::SealError;
use crate::seal::machine::io::{Event, Moved};
use head::TenantHead;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl<O: Owners> Sealer<O> {
    pub(super) fn relocate(
        &mut self,
        partition: usize,
        movable: &BTreeSet<TenantId>,
    ) -> Result<Event, SealError> {
        let Some(tenants) = self.retaining(partition, movable) else { return Ok(Event::Relocated(None)) };
        // without an answer the extent of the frozen samples is unknown, and nothing of them may be committed
        let Relocated { upto, from } =
            self.owners.relocate(partition, &tenants).ok_or(SealError::Stopping)?;
        let head = self.node.partitions()[partition].head.read();
        let is_frozen = |tenant: &TenantId| head.tenant(tenant).is_some_and(TenantHead::is_frozen);
        let tenants = tenants.iter().map(|tenant| (tenant.clone(), is_frozen(tenant))).collect();
        Ok(Event::Relocated(Some(Moved { upto, from, tenants })))
    }

    pub(super) fn truncate(&mut self, partition: usize) -> Result<Event, SealError> {
        self.owners.truncate(partition).ok_or(SealError::Stopping)?;
        Ok(Event::Done)
    }

    /// The tenants that retain the journal; `None` if there are none, or if one of them cannot be relocated: a commit of it
    /// is in doubt or still under way, or it is closed.
    fn retaining(&self, partition: usize, movable: &BTreeSet<TenantId>) -> Option<BTreeSet<TenantId>> {
        let mark = self.node.lake.mark(partition);
        let retaining = mark.tenants.iter().filter(|(_, own)| own.upto < mark.upto);
        let movable = |(name, own): (&String, &Own)| {
            let tenant = TenantId::parse(name).ok()?;
            let is_movable = movable.contains(&tenant)
                && !self.workers.is_busy(&tenant)
                && self.is_settled(partition, &tenant, own);
            is_movable.then_some(tenant)
        };
        let tenants = retaining.map(movable).collect::<Option<BTreeSet<_>>>();
        tenants.filter(|tenants| !tenants.is_empty())
    }

    /// True if no commit of the tenant is in doubt. Asks its table if one was begun.
    fn is_settled(&self, partition: usize, tenant: &TenantId, own: &Own) -> bool {
        let lake = &self.node.lake;
        if own.attempt.max(own.passes).is_none() {
            return true;
        }
        let floodmark = lake.settled_floodmark(tenant, &own.source);
        if !floodmark.is_ok_and(|floodmark| floodmark.is_none_or(|floodmark| floodmark.end() <= own.upto)) {
            return false;
        }
        let settled = lake.change_marks(|(number, mark)| {
            if number == partition
                && let Some(own) = mark.tenants.get_mut(tenant.as_str())
            {
                (own.attempt, own.passes) = (None, None);
            }
        });
        settled.is_ok()
    }

    /// Asks closed tenants' tables, until some of a partition have answered.
    pub(super) fn ask_closed(&mut self) -> Event {
        let node = Arc::clone(&self.node);
        for partition in 0..node.partitions().len() {
            let mark = node.lake.mark(partition);
            let mut answered = BTreeMap::new();
            for tenant in node.lake.closed.of(partition) {
                if self.is_stopping() {
                    return Event::Failed(SealError::Stopping);
                }
                let (source, upto, _) = mark.look(&tenant);
                match node.lake.settled_floodmark(&tenant, source) {
                    Ok(floodmark) => {
                        let mut floodmark = floodmark.unwrap_or_default();
                        floodmark.upto = floodmark.upto.max(upto);
                        answered.insert(tenant, Arc::new(floodmark));
                    }
                    Err(error) => {
                        tracing::debug!(%tenant, %error, "a closed tenant's table still cannot be read");
                        node.lake.closed.explain(&tenant, format!("its table cannot be read: {error}"));
                    }
                }
            }
            if answered.is_empty() {
                continue;
            }
            match Late::begin(partition, answered, &node.lake.flush, &mut self.owners) {
                Ok(late) => {
                    self.late = Some(late);
                    return Event::Asked { is_replaying: true };
                }
                Err(error) => {
                    tracing::debug!(partition, %error, "cannot read the journal for closed tenants")
                }
            }
        }
        Event::Asked { is_replaying: false }
    }

    pub(super) fn replay_closed(&mut self) -> Event {
        self.courtesy.let_pass(&self.node);
        let mut late = self.late.take().expect("BUG: it was begun");
        let lake = &self.node.lake;
        let turn = match late.turn(&self.node, &mut self.owners) {
            Ok(turn) => turn,
            Err(error) => {
                let partition = late.number;
                tracing::warn!(partition, %error, "cannot replay the journal for closed tenants; it is retried");
                late.tenants.keys().for_each(|tenant| lake.closed.explain(tenant, error.to_string()));
                return Event::Asked { is_replaying: false };
            }
        };
        match turn {
            LateTurn::More => self.late = Some(late),
            LateTurn::NoRoom => {
                let why = "the heads have no room for them; their limit grows with --memory";
                late.tenants.keys().for_each(|tenant| lake.closed.explain(tenant, why.into()));
            }
            LateTurn::Done => {
                for (tenant, floodmark) in &late.tenants {
                    if lake.reopen(late.number, late.end.0, tenant, floodmark) {
                        lake.blocked.remove(tenant);
                        tracing::warn!(%tenant, "a tenant's table can be read again: the tenant is open");
                    }
                }
                let (partition, samples) = (late.number, late.samples);
                tracing::info!(partition, samples, "replayed the journal for closed tenants");
            }
        }
        Event::Replayed(turn)
    }
}
