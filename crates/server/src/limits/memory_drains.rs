//! How fast the accounts of the memory budget empty, which tells refused senders when to return.

use admission::RETRY_AFTER;
use admission::retry::Drain;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use stdx::budget::Account;

/// The accounts whose memory requests hold only briefly. An account's position here is its number in [`admission::retry::Wait::Memory`].
const ACCOUNTS: [&str; 7] =
    ["inflight", "grpc", "answers", "records", "record_ids", "stream_names", "loading"];

/// Returns `None` for accounts that are not measured.
pub(crate) fn number_of(account: &str) -> Option<u8> {
    ACCOUNTS.iter().zip(0..).find(|(name, _)| **name == account).map(|(_, number)| number)
}

/// An estimate for each account. A tenant's part of an account waits for the whole one: its share grows with what is free there.
#[derive(Debug)]
pub(crate) struct MemoryDrains([(Account, Mutex<Drain>); ACCOUNTS.len()]);

impl MemoryDrains {
    /// `accounts` are those of [`ACCOUNTS`], in their order.
    pub(crate) fn new(accounts: [Account; ACCOUNTS.len()]) -> Self {
        assert_eq!(accounts.each_ref().map(Account::name), ACCOUNTS, "BUG: accounts in another order");
        Self(accounts.map(|account| (account, Mutex::default())))
    }

    /// Estimates how long a sender should wait whose request for `asked_bytes` of the account is refused now. Call this once for
    /// each refusal, because it also counts the refused bytes.
    pub(crate) fn refused(&self, account: u8, asked_bytes: u64, now: Instant) -> Duration {
        let Some((account, drain)) = self.0.get(usize::from(account)) else { return RETRY_AFTER };
        drain.lock().refused(asked_bytes, account.used_bytes(), account.released_bytes(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of 10 bytes fill an account of 1,000, and five a second end.
    #[test]
    fn a_sender_waits_until_an_account_has_emptied() {
        let accounts = ACCOUNTS.map(|name| Account::new(name, 1_000));
        let account = accounts[0].clone();
        let mut inside: Vec<_> = (0..100).map(|_| account.reserve(10).unwrap()).collect();
        let drains = MemoryDrains::new(accounts);
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..20 {
            assert!(account.reserve(10).is_err());
            waits.push(drains.refused(number_of("inflight").unwrap(), 10, now).as_secs());
            now += Duration::from_millis(200);
            inside.pop();
            inside.push(account.reserve(10).unwrap());
        }
        assert_eq!((waits[0], waits[19]), (3, 21), "100 inside and 5 returning, at 5 a second");
        assert_eq!(number_of("flush"), None);
    }
}
