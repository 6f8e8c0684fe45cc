//! Tenants that cannot be sealed must not retain the journal for everybody: once it is long, their samples are relocated to
//! its end, and it is truncated before them.
//!
//! This is safe only while no commit of theirs is in doubt: then their tables have nothing of the frozen blocks, and the next
//! commit moves their floodmarks beyond the copies.

use super::{Sealer, Stopping};
use crate::partition::{Owners, Relocated};
use crate::seal::Own;
use model::TenantId;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// A journal of so many segments is long.
const SEGMENTS: u64 = 2;

/// A journal that was shortened is long again when it is so many times as long: what is live in it is written again each
/// time. One that could not be shortened is looked at again when it has grown by the segments above.
const GROWTH: u64 = 4;

/// For each partition, the journal's length in bytes from which on it is long.
#[derive(Debug)]
pub(super) struct Relocation(Vec<u64>);

impl Relocation {
    pub(super) fn new(partitions: usize, segment_bytes: u64) -> Self {
        Self(vec![SEGMENTS * segment_bytes; partitions])
    }
}

impl<O: Owners> Sealer<O> {
    /// Shortens long journals that tenants retain which cannot be sealed, if others can.
    pub(super) fn relocate_some(&mut self) -> Result<(), Stopping> {
        if self.behind.is_empty() || !self.node.is_ready() || !self.node.lake.laggards.do_others_get_on() {
            return Ok(());
        }
        for number in 0..self.node.partitions().len() {
            if self.journal_bytes(number) >= self.relocation.0[number] {
                let is_shorter = self.relocate(number)?;
                let (least, bytes) =
                    (SEGMENTS * self.node.settings.segment_bytes, self.journal_bytes(number));
                self.relocation.0[number] =
                    if is_shorter { least.max(GROWTH * bytes) } else { bytes + least };
            }
        }
        Ok(())
    }

    fn journal_bytes(&self, number: usize) -> u64 {
        self.node.partitions()[number].journal_bytes.load(Ordering::Relaxed)
    }

    /// Returns true if the journal was shortened.
    fn relocate(&mut self, number: usize) -> Result<bool, Stopping> {
        let Some(tenants) = self.movable(number) else { return Ok(false) };
        // without an answer the extent of the frozen blocks is unknown, and nothing of them may be committed
        let Relocated { upto, from } = self.owners.relocate(number, &tenants).ok_or(Stopping)?;
        for tenant in &tenants {
            let behind = self.behind.get_mut(tenant).expect("BUG: only such tenants are moved");
            behind.round.relocated(&self.node, number, upto);
        }
        let Some(from) = from else { return Ok(false) };
        let moved = self.node.lake.change_marks(|(n, mark)| {
            for tenant in tenants.iter().filter(|_| n == number) {
                if let Some(own) = mark.tenants.get_mut(tenant.as_str()) {
                    own.upto = own.upto.max(from.0);
                }
            }
        });
        if let Err(error) = moved {
            tracing::warn!(partition = number, %error, "cannot note that the journal is needed less far back");
            return Ok(false);
        }
        self.owners.truncate(number).ok_or(Stopping)?;
        let (partition, bytes, tenants) = (number, self.journal_bytes(number), tenants.len());
        self.node.lake.metrics.relocations.inc();
        tracing::info!(
            partition,
            tenants,
            bytes,
            "samples of tenants that cannot be sealed were moved: the journal is shorter"
        );
        Ok(true)
    }

    /// The tenants that retain the journal; `None` if there are none, or if one of them cannot be relocated: a commit of it
    /// is in doubt or still under way, or it is closed.
    fn movable(&self, number: usize) -> Option<BTreeSet<TenantId>> {
        let mark = self.node.lake.mark(number);
        let pinning = mark.tenants.iter().filter(|(_, own)| own.upto < mark.upto);
        let movable = |(name, own): (&String, &Own)| {
            let tenant = TenantId::parse(name).ok()?;
            let behind = self.behind.get(&tenant)?;
            let is_movable = behind.round.is_movable() && !self.workers.is_busy(&tenant);
            (is_movable && self.is_settled(number, &tenant, own)).then_some(tenant)
        };
        pinning.map(movable).collect::<Option<BTreeSet<_>>>().filter(|tenants| !tenants.is_empty())
    }

    /// True if no commit of the tenant is in doubt. Asks its table if one was begun.
    fn is_settled(&self, number: usize, tenant: &TenantId, own: &Own) -> bool {
        let lake = &self.node.lake;
        if own.attempt.max(own.passes).is_none() {
            return true;
        }
        let floodmark = lake.settled_floodmark(tenant, &own.source);
        if !floodmark.is_ok_and(|floodmark| floodmark.is_none_or(|floodmark| floodmark.end() <= own.upto)) {
            return false;
        }
        let settled = lake.change_marks(|(n, mark)| {
            if n == number
                && let Some(own) = mark.tenants.get_mut(tenant.as_str())
            {
                (own.attempt, own.passes) = (None, None);
            }
        });
        settled.is_ok()
    }
}
