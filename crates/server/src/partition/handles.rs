//! Interface through which the sealer sends commands to partition owners.

use super::{
    ClosedBatch, Command, Commands, Freeze, Frozen, Read, Relocate, Relocated, Sealed, SealedSamples,
};
use head::TenantHead;
use journal::Offset;
use model::TenantId;
use std::collections::BTreeSet;
use std::sync::mpsc::sync_channel;

/// Gives the sealer access to the owners of all partitions. Methods return `None` if the partition failed to open or
/// its owner has ended.
pub(crate) trait Owners {
    /// Freezes a partition's head, so that its present samples can be sealed. Tenants in `except` are left out.
    fn freeze(&mut self, number: usize, all: bool, except: &BTreeSet<TenantId>) -> Option<Frozen>;

    fn release(&mut self, number: usize, what: SealedSamples) -> Option<()>;

    /// Opens a reader of a partition's journal. Reading begins with the dictionary in which `from` lies.
    fn read(&mut self, number: usize, from: Offset) -> Option<Read>;

    fn add_closed(&mut self, number: usize, batch: ClosedBatch) -> Option<()>;

    fn discard(&mut self, number: usize, tenant: &TenantId) -> Option<Box<TenantHead>>;

    fn relocate(&mut self, number: usize, tenants: &BTreeSet<TenantId>) -> Option<Relocated>;

    fn truncate(&mut self, number: usize) -> Option<()>;
}

impl Owners for Vec<Commands> {
    fn freeze(&mut self, number: usize, all: bool, except: &BTreeSet<TenantId>) -> Option<Frozen> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Freeze(Freeze { all, except: except.clone(), reply })).ok()?;
        answer.recv().ok()
    }

    fn release(&mut self, number: usize, what: SealedSamples) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Sealed(Sealed { what, reply })).ok()?;
        answer.recv().ok()
    }

    fn read(&mut self, number: usize, from: Offset) -> Option<Read> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Read(from, reply)).ok()?;
        answer.recv().ok()
    }

    fn add_closed(&mut self, number: usize, batch: ClosedBatch) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::AddClosed(batch, reply)).ok()?;
        answer.recv().ok()
    }

    fn discard(&mut self, number: usize, tenant: &TenantId) -> Option<Box<TenantHead>> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Discard(tenant.clone(), reply)).ok()?;
        answer.recv().ok()?
    }

    fn relocate(&mut self, number: usize, tenants: &BTreeSet<TenantId>) -> Option<Relocated> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Relocate(Relocate { tenants: tenants.clone(), reply })).ok()?;
        answer.recv().ok()
    }

    fn truncate(&mut self, number: usize) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Truncate(reply)).ok()?;
        answer.recv().ok()
    }
}
