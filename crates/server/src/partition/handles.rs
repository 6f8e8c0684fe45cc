//! Interface through which the sealer commands owners.

use super::{
    ClosedBatch, Command, Commands, Freeze, Frozen, Read, Relocate, Relocated, Sealed, SealedSamples,
};
use head::TenantHead;
use journal::Offset;
use model::TenantId;
use std::collections::BTreeSet;
use std::sync::mpsc::sync_channel;

/// The owners of all partitions, as used by the sealer.
pub(crate) trait Owners {
    /// Freezes a partition's head, except the tenants `except`. `None` if the partition is closed.
    fn freeze(&mut self, number: usize, all: bool, except: &BTreeSet<TenantId>) -> Option<Frozen>;

    /// Releases a partition's samples that are durable in tables. `None` if the partition is closed.
    fn release(&mut self, number: usize, what: SealedSamples) -> Option<()>;

    /// Opens a reader of a partition's journal, from the beginning of a record's dictionary on. `None` if the partition is
    /// closed.
    fn read(&mut self, number: usize, from: Offset) -> Option<Read>;

    /// Adds samples of a closed tenant to a partition's head. `None` if the partition is closed.
    fn add_closed(&mut self, number: usize, batch: ClosedBatch) -> Option<()>;

    /// Removes the samples of a closed tenant from a partition's head. `None` if there are none, or if the partition is
    /// closed.
    fn discard(&mut self, number: usize, tenant: &TenantId) -> Option<Box<TenantHead>>;

    /// Rewrites tenants' samples at the end of a partition's journal. `None` if the owner is gone.
    fn relocate(&mut self, number: usize, tenants: &BTreeSet<TenantId>) -> Option<Relocated>;

    /// Truncates a partition's journal to its mark. `None` if the owner is gone.
    fn truncate(&mut self, number: usize) -> Option<()>;
}

/// Owners on threads of their own.
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
