//! How fast the accounts of the memory budget empty, which tells refused senders when to return.

use admission::RETRY_AFTER;
use admission::retry::Drain;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use stdx::budget::Account;

/// An estimate for each whole account from which requests take memory. A tenant's part of an account waits for the whole one: its
/// share grows with what is free there.
#[derive(Debug)]
pub(crate) struct MemoryDrains(Vec<(Account, Mutex<Drain>)>);

impl MemoryDrains {
    pub(crate) fn new(accounts: impl IntoIterator<Item = Account>) -> Self {
        Self(accounts.into_iter().map(|account| (account, Mutex::default())).collect())
    }

    /// Returns when a request may find memory for which `asked_bytes` of the account are refused now. Call this once for each
    /// refusal. Accounts that are not known get the default.
    pub(crate) fn refused(&self, account: &str, asked_bytes: u64, now: Instant) -> Duration {
        let Some((account, drain)) = self.0.iter().find(|(known, _)| known.name() == account) else {
            return RETRY_AFTER;
        };
        drain.lock().refused(asked_bytes, account.used_bytes(), account.released_bytes(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of 10 bytes fill an account of 1,000, and five a second end.
    #[test]
    fn a_sender_waits_until_an_account_has_emptied() {
        let account = Account::new("inflight", 1_000);
        let mut inside: Vec<_> = (0..100).map(|_| account.reserve(10).unwrap()).collect();
        let drains = MemoryDrains::new([Account::new("grpc", 1), account.clone()]);
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..20 {
            assert!(account.reserve(10).is_err());
            waits.push(drains.refused("inflight", 10, now).as_secs());
            now += Duration::from_millis(200);
            inside.pop();
            inside.push(account.reserve(10).unwrap());
        }
        assert_eq!((waits[0], waits[19]), (3, 21), "100 inside and 5 returning, at 5 a second");
        assert_eq!(drains.refused("other", 10, now), RETRY_AFTER);
    }
}
