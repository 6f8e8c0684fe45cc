//! How the sealer tells owners what to do.

use super::{Command, Commands, Freeze, Frozen, Sealed};
use journal::Offset;
use std::sync::mpsc::sync_channel;

/// The owners of all partitions, as the sealer sees them.
pub(crate) trait Owners {
    /// Has a partition freeze what it holds; `None` where it is closed.
    fn freeze(&mut self, number: usize, all: bool) -> Option<Frozen>;

    /// Has a partition let go of what was frozen up to there: it is safe in tables. `None` where it is closed.
    fn release(&mut self, number: usize, upto: Offset) -> Option<()>;
}

/// Each on its own thread.
impl Owners for Vec<Commands> {
    fn freeze(&mut self, number: usize, all: bool) -> Option<Frozen> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Freeze(Freeze { all, reply })).ok()?;
        answer.recv().ok()
    }

    fn release(&mut self, number: usize, upto: Offset) -> Option<()> {
        let (reply, answer) = sync_channel(1);
        self[number].send(Command::Sealed(Sealed { upto, reply })).ok()?;
        answer.recv().ok()
    }
}
