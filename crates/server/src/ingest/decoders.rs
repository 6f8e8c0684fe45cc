//! Warm decoders.

use model::{Batch, LabelsBuilder};
use protocol::remote_write::Decoder;
use std::sync::Mutex;
use stdx::budget::{Account, Reservation};

/// Decoders that wait for the next request.
///
/// What they hold meanwhile is paid for by an account of their own. So a request pays only for what it lets them
/// grow by, and not for what others needed before.
#[derive(Debug)]
pub(crate) struct Decoders {
    seed: u64,
    account: Account,
    idle: Mutex<Vec<Workspace>>,
}

/// How many decoders stay warm: more than can work at once.
const IDLE_MAX: usize = 16;

/// A workspace that grew beyond this is not kept.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// What a request is decoded with.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) decoder: Decoder,
    pub(super) batch: Batch,
    pub(super) labels: LabelsBuilder,
    /// What it held when it was put aside.
    kept: Reservation,
}

impl Decoders {
    pub(crate) const fn new(seed: u64, account: Account) -> Self {
        Self { seed, account, idle: Mutex::new(Vec::new()) }
    }

    /// What pays for decoders that are put aside.
    pub(crate) const fn account(&self) -> &Account {
        &self.account
    }

    /// A decoder, warm if there is one.
    pub(super) fn take(&self) -> Workspace {
        let idle = self.idle.lock().expect("BUG: a decoder panicked").pop();
        idle.unwrap_or_else(|| Workspace {
            decoder: Decoder::new(self.seed),
            batch: Batch::default(),
            labels: LabelsBuilder::new(),
            kept: self.account.reserve(0).expect("BUG: nothing always fits"),
        })
    }

    /// Keeps a decoder for the next request, if there is room for what it holds.
    pub(super) fn put(&self, mut workspace: Workspace) {
        workspace.batch.clear();
        let bytes = workspace.batch.memory_bytes() + workspace.decoder.memory_bytes();
        if bytes > KEPT_BYTES_MAX || workspace.kept.resize(bytes as u64).is_err() {
            return;
        }
        let mut idle = self.idle.lock().expect("BUG: a decoder panicked");
        if idle.len() < IDLE_MAX {
            idle.push(workspace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_paid_for() {
        let account = Account::new("decoders", 100_000);
        let decoders = Decoders::new(1, account.clone());
        let grown = |bytes| {
            let mut workspace = decoders.take();
            workspace.batch.bytes.reserve_exact(bytes);
            workspace
        };
        let (small, large) = (grown(60_000), grown(120_000));
        decoders.put(small);
        assert_eq!(account.used_bytes(), 60_000);
        decoders.put(large);
        assert_eq!((account.used_bytes(), decoders.idle.lock().unwrap().len()), (60_000, 1));
        let warm = decoders.take();
        assert_eq!((warm.batch.memory_bytes(), account.used_bytes()), (60_000, 60_000));
        drop(warm);
        assert_eq!(account.used_bytes(), 0);
    }
}
