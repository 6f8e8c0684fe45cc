//! Memory accounting: bytes are reserved before they are allocated.
//!
//! The process has one budget, split into named [`Account`]s. Code that allocates something whose size a
//! stranger decides reserves the bytes first, and holds the [`Reservation`] as long as the bytes live. If an
//! account is exhausted, [`Account::reserve`] fails at once and the caller sheds load.

mod purse;

pub use purse::{Growing, Purse};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A named share of the process' memory. Cloning gives another handle on the same account.
#[derive(Debug, Clone)]
pub struct Account(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    limit_bytes: u64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

/// A reservation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// The account's name.
    pub account: &'static str,
    /// Requested bytes.
    pub asked_bytes: u64,
    /// Bytes in use at that time.
    pub used_bytes: u64,
    /// Limit of the account.
    pub limit_bytes: u64,
}

impl std::fmt::Display for Exhausted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "memory account {:?} is full: {} bytes asked for, {} of {} in use",
            self.account, self.asked_bytes, self.used_bytes, self.limit_bytes
        )
    }
}

impl std::error::Error for Exhausted {}

impl Exhausted {
    /// True if the request exceeds the account's limit, so that a retry cannot succeed.
    pub const fn is_for_good(&self) -> bool {
        self.asked_bytes > self.limit_bytes
    }
}

impl Account {
    /// An account of `limit_bytes` with nothing reserved.
    pub fn new(name: &'static str, limit_bytes: u64) -> Self {
        Self(Arc::new(Inner {
            name,
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
        }))
    }

    /// Reserves `bytes` until the reservation is dropped.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, Exhausted> {
        self.take(bytes)?;
        Ok(Reservation { account: self.clone(), bytes })
    }

    /// The account's name.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Bytes in use now.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Maximum of [`Self::used_bytes`] since the account was made.
    pub fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Relaxed)
    }

    /// Upper bound of [`Self::used_bytes`].
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// True if the whole limit is in use.
    pub fn is_full(&self) -> bool {
        self.used_bytes() >= self.limit_bytes()
    }

    fn take(&self, bytes: u64) -> Result<(), Exhausted> {
        let inner = &*self.0;
        let taken = inner.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= inner.limit_bytes)
        });
        match taken {
            Ok(before) => {
                inner.peak_bytes.fetch_max(before + bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(used_bytes) => Err(Exhausted {
                account: inner.name,
                asked_bytes: bytes,
                used_bytes,
                limit_bytes: inner.limit_bytes,
            }),
        }
    }
}

/// Bytes taken out of an [`Account`]; dropping it gives them back.
#[derive(Debug)]
pub struct Reservation {
    account: Account,
    bytes: u64,
}

impl Reservation {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows or shrinks the reservation to `bytes`. Growing can fail, and then nothing changes. The error
    /// describes the whole reservation: `asked_bytes` is `bytes`, and `used_bytes` is what others hold.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Exhausted> {
        if bytes > self.bytes {
            let held_bytes = self.bytes;
            let whole = |full: Exhausted| Exhausted {
                asked_bytes: bytes,
                used_bytes: full.used_bytes.saturating_sub(held_bytes),
                ..full
            };
            self.account.take(bytes - held_bytes).map_err(whole)?;
        } else {
            self.account.0.used_bytes.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let before = self.account.0.used_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        assert!(before >= self.bytes, "BUG: account {:?} gave back more than it lent", self.account.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_never_exceed_the_limit_and_come_back() {
        let account = Account::new("inflight", 100);
        let mut a = account.reserve(60).unwrap();
        let refused = account.reserve(41).unwrap_err();
        assert_eq!((refused.used_bytes, refused.limit_bytes), (60, 100));
        let never = a.resize(101).unwrap_err();
        assert_eq!((never.asked_bytes, never.used_bytes, never.is_for_good()), (101, 0, true));
        let other = account.reserve(30).unwrap();
        let later = a.resize(90).unwrap_err();
        assert_eq!((later.asked_bytes, later.used_bytes, later.is_for_good()), (90, 30, false));
        drop(other);
        assert_eq!(account.used_bytes(), 60);
        a.resize(100).unwrap();
        assert!(account.is_full());
        a.resize(10).unwrap();
        drop(a);
        assert_eq!((account.used_bytes(), account.peak_bytes()), (0, 100));
        assert!(account.reserve(u64::MAX).is_err(), "no overflow");
    }

    #[test]
    fn threads_cannot_oversell() {
        let account = Account::new("inflight", 1000);
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for _ in 0..2000 {
                        if let Ok(r) = account.reserve(300) {
                            assert!(account.used_bytes() <= 1000);
                            drop(r);
                        }
                    }
                });
            }
        });
        assert_eq!(account.used_bytes(), 0);
        assert!(account.peak_bytes() <= 1000);
    }
}
