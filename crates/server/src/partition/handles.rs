//! How the sealer tells owners what to do.

use super::{Command, Commands, Freeze, Frozen, LateBatch, Read, Relocate, Relocated, Safe, Sealed};
use journal::Offset;
use model::TenantId;
use std::collections::BTreeSet;
use std::sync::mpsc::sync_channel;

/// The owners of all partitions, as the sealer sees them.
pub(crate) trait Owners {
    /// Has a partition freeze what it holds, but for some tenants; `None` where it is closed.
    fn freeze(&mut self, number: usize, all: bool, except: &BTreeSet<TenantId>) -> Option<Frozen>;

    /// Has a partition let go of what is safe in tables. `None` where it is closed.
    fn release(&mut self, number: usize, what: Safe) -> Option<()>;

    /// Asks for a reader of a partition's journal, from the beginning of the dictionary of a record on. `None` where it is closed.
    fn read(&mut self, number: usize, from: Offset) -> Option<Read>;

    /// Has a partition take samples of a closed tenant into its head. `None` where it is closed.
    fn take_late(&mut self, number: usize, batch: LateBatch) -> Option<()>;

    /// Has a partition rewrite tenants' samples at its journal's end. `None` if the owner is gone.
    fn relocate(&mut self, number: usize, tenants: &BTreeSet<TenantId>) -> Option<Relocated>;

    /// Has a partition truncate its journal to its mark. `None` if the owner is gone.
    fn truncate(&mut self, number: usize) -> Option<()>;
}

/// Each on its own thread.
impl Owners for Vec<Commands> {
    fn freeze(&mut self, number: usize, all: bool, except: &BTreeSet<TenantId>) -> Option<Frozen> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Freeze(Freeze { all, except: except.clone(), reply })).ok()?;
        answer.recv().ok()
    }

    fn release(&mut self, number: usize, what: Safe) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Sealed(Sealed { what, reply })).ok()?;
        answer.recv().ok()
    }

    fn read(&mut self, number: usize, from: Offset) -> Option<Read> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Read(from, reply)).ok()?;
        answer.recv().ok()
    }

    fn take_late(&mut self, number: usize, batch: LateBatch) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Late(batch, reply)).ok()?;
        answer.recv().ok()
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
