//! Accounts for memory. The budget of the process is divided into named [`Account`]s. Before code allocates
//! memory whose size depends on untrusted input, it reserves the bytes. If the account is full,
//! [`Account::reserve`] fails at once instead of waiting.

mod incremental;

pub use incremental::{Growing, IncrementalReservation};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One named part of the process' memory budget. Clones are the same account.
#[derive(Debug, Clone)]
pub struct Account(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    limit_bytes: AtomicU64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    /// Bytes given back since the start. Not counted for parts.
    released_bytes: AtomicU64,
    whole: Option<Whole>,
}

#[derive(Debug)]
struct Whole {
    account: Account,
    /// Limit on the part, as a multiple of the bytes that are free in the whole account.
    multiple: AtomicU64,
}

impl Whole {
    /// How much a part with this limit may hold while `taken_bytes` of the whole account are taken, `held_bytes` of them by
    /// the reservation that asks.
    fn share_bytes(&self, limit_bytes: u64, taken_bytes: u64, held_bytes: u64) -> u64 {
        let is_only_one = taken_bytes <= held_bytes;
        let free_bytes = self.account.limit_bytes().saturating_sub(taken_bytes);
        let fair_bytes = free_bytes.saturating_mul(self.multiple.load(Ordering::Relaxed));
        if is_only_one { limit_bytes } else { limit_bytes.min(fair_bytes) }
    }

    /// How much a part with this limit may hold at most while others hold something.
    fn most_bytes(&self, limit_bytes: u64) -> u64 {
        let all_bytes = self.account.limit_bytes();
        let free_bytes = all_bytes / self.multiple.load(Ordering::Relaxed).saturating_add(1);
        limit_bytes.min(all_bytes - free_bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    pub account: &'static str,
    pub asked_bytes: u64,
    pub used_bytes: u64,
    pub limit_bytes: u64,
    /// If a limit on a part of the account caused the refusal, how many bytes this part may hold at the
    /// moment.
    pub share_bytes: Option<u64>,
}

impl std::fmt::Display for Exhausted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { account, asked_bytes, used_bytes, limit_bytes, share_bytes } = self;
        match share_bytes {
            // what is in use does not matter then
            Some(share_bytes) if asked_bytes > share_bytes => write!(
                f,
                "the tenant's share of memory account {account:?} is too small: {asked_bytes} bytes requested, the share has {share_bytes}"
            ),
            Some(share_bytes) => write!(
                f,
                "the tenant's share of memory account {account:?} is used up: {asked_bytes} bytes requested, {used_bytes} of \
                 {share_bytes} in use"
            ),
            None if self.is_for_good() => write!(
                f,
                "memory account {account:?} is too small: {asked_bytes} bytes requested, the account has {limit_bytes}"
            ),
            None => write!(
                f,
                "memory account {account:?} is full: {asked_bytes} bytes requested, {used_bytes} of {limit_bytes} in use"
            ),
        }
    }
}

impl std::error::Error for Exhausted {}

impl Exhausted {
    /// True if the request is larger than the account, or than a part of it may be beside others, so that no retry can succeed.
    pub const fn is_for_good(&self) -> bool {
        self.asked_bytes > self.limit_bytes
    }

    /// Drops `share_bytes`, for an error that the whole account has returned to a part. If the whole is itself a part, the
    /// error has its share, which says nothing of the part that asked.
    const fn of_whole(self) -> Self {
        Self { share_bytes: None, ..self }
    }
}

impl Account {
    pub fn new(name: &'static str, limit_bytes: u64) -> Self {
        Self::within(name, limit_bytes, None)
    }

    fn within(name: &'static str, limit_bytes: u64, whole: Option<Whole>) -> Self {
        Self(Arc::new(Inner {
            name,
            limit_bytes: AtomicU64::new(limit_bytes),
            used_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            released_bytes: AtomicU64::new(0),
            whole,
        }))
    }

    /// A part of this account for one of its users, such as a tenant. Bytes of the part also count
    /// in the whole account. A part may hold only a multiple of the bytes that are free
    /// ([`Self::share`]), so that other users find some bytes free. The only user of an account may
    /// hold all of it.
    pub fn part(&self) -> Self {
        let whole = Whole { account: self.clone(), multiple: AtomicU64::new(1) };
        Self::within(self.0.name, self.limit_bytes(), Some(whole))
    }

    /// Limits a part to `multiple` times the bytes that are free in the whole account, and to
    /// `limit_bytes`.
    pub fn share(&self, multiple: u64, limit_bytes: u64) {
        let Some(whole) = &self.0.whole else { return };
        whole.multiple.store(multiple, Ordering::Relaxed);
        self.0.limit_bytes.store(limit_bytes.min(whole.account.limit_bytes()), Ordering::Relaxed);
    }

    pub fn whole(&self) -> &Self {
        self.0.whole.as_ref().map_or(self, |whole| &whole.account)
    }

    pub fn reserve(&self, bytes: u64) -> Result<Reservation, Exhausted> {
        self.take(bytes, 0)?;
        Ok(Reservation { account: self.clone(), bytes, advance_bytes: None })
    }

    pub fn name(&self) -> &'static str {
        self.0.name
    }

    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    pub fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were given back since the account was created. Only for whole accounts; 0 for parts.
    pub fn released_bytes(&self) -> u64 {
        self.0.released_bytes.load(Ordering::Relaxed)
    }

    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.used_bytes() >= self.limit_bytes()
    }

    /// Takes `bytes` more for a reservation that already has `held_bytes`.
    fn take(&self, bytes: u64, held_bytes: u64) -> Result<(), Exhausted> {
        let limit_bytes = self.limit_bytes();
        let Some(whole) = &self.0.whole else { return self.take_up_to(bytes, limit_bytes, limit_bytes) };
        let asked_bytes = bytes.saturating_add(held_bytes);
        if asked_bytes > limit_bytes {
            // retries cannot succeed, even when nobody else holds anything
            let used_bytes = self.used_bytes();
            let (account, share_bytes) = (self.0.name, Some(limit_bytes));
            return Err(Exhausted { account, asked_bytes, used_bytes, limit_bytes, share_bytes });
        }
        whole.account.take(bytes, held_bytes).map_err(Exhausted::of_whole)?;
        let taken_bytes = whole.account.used_bytes();
        let share_bytes = whole.share_bytes(limit_bytes, taken_bytes, held_bytes.saturating_add(bytes));
        let taken = self.take_up_to(bytes, share_bytes, limit_bytes);
        if taken.is_err() {
            whole.account.undo(bytes);
        }
        taken.map_err(|full| match whole.most_bytes(limit_bytes) {
            // retries could only succeed when nobody else holds anything, which hardly ever happens
            most_bytes if asked_bytes > most_bytes => {
                Exhausted { asked_bytes, limit_bytes: most_bytes, share_bytes: Some(most_bytes), ..full }
            }
            _ => Exhausted { share_bytes: Some(share_bytes), ..full },
        })
    }

    /// Fails if `bytes` more, for a reservation that already has `held_bytes`, would leave less than 1/`part` of what the
    /// account may hold at the moment.
    pub fn leave_room(&self, bytes: u64, held_bytes: u64, part: u64) -> Result<(), Exhausted> {
        let limit_bytes = self.limit_bytes();
        let mut most_bytes = limit_bytes;
        if let Some(whole) = &self.0.whole {
            whole.account.leave_room(bytes, held_bytes, part).map_err(Exhausted::of_whole)?;
            let taken_bytes = whole.account.used_bytes().saturating_add(bytes);
            most_bytes = whole.share_bytes(limit_bytes, taken_bytes, held_bytes.saturating_add(bytes));
        }
        let used_bytes = self.used_bytes();
        match used_bytes.saturating_add(bytes) <= most_bytes - most_bytes / part {
            true => Ok(()),
            false => Err(Exhausted {
                account: self.name(),
                asked_bytes: bytes,
                used_bytes,
                limit_bytes,
                share_bytes: self.0.whole.as_ref().map(|_| most_bytes),
            }),
        }
    }

    fn take_up_to(&self, bytes: u64, most_bytes: u64, limit_bytes: u64) -> Result<(), Exhausted> {
        let inner = &*self.0;
        let taken = inner.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= most_bytes)
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
                limit_bytes,
                share_bytes: None,
            }),
        }
    }

    /// Returns bytes to the account without counting them as released: if a part has no room, the whole account has reserved them in vain.
    fn undo(&self, bytes: u64) {
        let before = self.0.used_bytes.fetch_sub(bytes, Ordering::AcqRel);
        assert!(before >= bytes, "BUG: more bytes returned to account {:?} than were reserved", self.name());
        if let Some(whole) = &self.0.whole {
            whole.account.undo(bytes);
        }
    }

    fn give_back(&self, bytes: u64) {
        self.undo(bytes);
        let mut whole = self;
        while let Some(next) = &whole.0.whole {
            whole = &next.account;
        }
        whole.0.released_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Bytes that are reserved in an [`Account`] until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    account: Account,
    bytes: u64,
    /// Bytes taken by [`Self::advance`] that are not used yet. `None` if nothing was taken in
    /// advance.
    advance_bytes: Option<u64>,
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What this could grow to at most, if nobody else held anything.
    pub fn limit_bytes(&self) -> u64 {
        self.account.limit_bytes().min(self.account.whole().limit_bytes())
    }

    /// Takes `bytes` in advance, which later calls of [`Self::resize`] use up. Without advances,
    /// concurrent requests that grow step by step could fill the account together, so that none of
    /// them can finish. Fails like [`Self::resize`].
    pub fn advance(&mut self, bytes: u64) -> Result<(), Exhausted> {
        let advance_bytes = self.advance_bytes.unwrap_or(0);
        self.take(bytes)?;
        self.advance_bytes = Some(advance_bytes + bytes);
        Ok(())
    }

    /// Takes `bytes` more. If that fails, the error is about what the reservation would hold, because this decides whether a
    /// retry can succeed.
    fn take(&self, bytes: u64) -> Result<(), Exhausted> {
        let held_bytes = self.bytes + self.advance_bytes.unwrap_or(0);
        self.account.take(bytes, held_bytes).map_err(|full| Exhausted {
            asked_bytes: held_bytes.saturating_add(bytes),
            used_bytes: full.used_bytes.saturating_sub(held_bytes),
            ..full
        })
    }

    /// Gives back what is left of the advance beyond `bytes`.
    pub fn keep_ahead(&mut self, bytes: u64) {
        let Some(advance_bytes) = &mut self.advance_bytes else { return };
        let extra_bytes = advance_bytes.saturating_sub(bytes);
        *advance_bytes -= extra_bytes;
        self.account.give_back(extra_bytes);
    }

    /// Gives back the part of the advance that was not used.
    pub fn settle(&mut self) {
        self.account.give_back(self.advance_bytes.take().unwrap_or(0));
    }

    /// Moves `bytes` into a reservation of their own. Panics if this one has fewer.
    pub fn split(&mut self, bytes: u64) -> Self {
        assert!(bytes <= self.bytes, "BUG: {bytes} bytes are split off a reservation of {}", self.bytes);
        self.bytes -= bytes;
        Self { account: self.account.clone(), bytes, advance_bytes: None }
    }

    /// Grows or shrinks the reservation to `bytes`. If that fails, the reservation stays as it was,
    /// and the error's `used_bytes` are those of other reservations.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Exhausted> {
        let advance_bytes = self.advance_bytes.unwrap_or(0);
        let held_bytes = self.bytes + advance_bytes;
        if bytes > held_bytes {
            self.take(bytes - held_bytes)?;
            self.advance_bytes = self.advance_bytes.map(|_| 0);
        } else if self.advance_bytes.is_some() {
            self.advance_bytes = Some(held_bytes - bytes);
        } else {
            self.account.give_back(held_bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.give_back(self.bytes + self.advance_bytes.unwrap_or(0));
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
        assert_eq!(a.limit_bytes(), 100);
        let later = a.resize(90).unwrap_err();
        assert_eq!((later.asked_bytes, later.used_bytes, later.is_for_good()), (90, 30, false));
        drop(other);
        assert_eq!(account.used_bytes(), 60);
        a.resize(100).unwrap();
        assert!(account.is_full());
        a.resize(10).unwrap();
        drop(a);
        assert_eq!((account.used_bytes(), account.peak_bytes(), account.released_bytes()), (0, 100, 130));
        assert!(account.reserve(u64::MAX).is_err(), "no overflow");
    }

    #[test]
    fn one_part_of_an_account_leaves_room_for_others() {
        let account = Account::new("inflight", 900);
        let part = || {
            let part = account.part();
            part.share(8, u64::MAX);
            part
        };
        let (greedy, modest, limited) = (part(), part(), part());
        let mut alone = greedy.reserve(900).expect("the only reservation may take everything");
        assert_eq!((greedy.used_bytes(), account.used_bytes()), (900, 900));
        alone.resize(10).unwrap();
        let mut held = Vec::new();
        let refused = loop {
            match greedy.reserve(10) {
                Ok(reservation) => held.push(reservation),
                Err(refused) => break refused,
            }
        };
        assert_eq!((account.used_bytes(), refused.used_bytes, refused.is_for_good()), (800, 800, false));
        assert_eq!(account.released_bytes(), 890, "what is refused was not given back");
        assert!(refused.to_string().contains("800 of 720 in use"), "{refused}");
        held.clear();
        let mut other = modest.reserve(1).unwrap();
        let never = greedy.reserve(801).unwrap_err();
        assert!(never.is_for_good(), "{never}");
        assert!(never.to_string().contains("801 bytes requested, the share has 800"), "{never}");
        other.resize(80).unwrap();
        limited.share(8, 50);
        let never = limited.reserve(51).unwrap_err();
        assert!(never.is_for_good(), "{never}");
        assert!(never.to_string().contains("51 bytes requested, the share has 50"), "{never}");
        let never = account.reserve(901).unwrap_err();
        assert!(never.to_string().contains("901 bytes requested, the account has 900"), "{never}");
        drop((alone, held, other));
        assert_eq!([&greedy, &modest, &limited, &account].map(Account::used_bytes), [0; 4]);
        assert!(limited.reserve(50).is_ok());
    }

    #[test]
    fn the_last_part_of_an_account_can_be_left_to_others() {
        let account = Account::new("unwritten", 900);
        let part = account.part();
        part.share(2, u64::MAX);
        assert!(account.leave_room(675, 0, 4).is_ok() && account.leave_room(676, 0, 4).is_err());
        let others = account.reserve(300).unwrap();
        // with 200 more, 400 are left in the whole account, so that the part may hold 800
        assert!(part.leave_room(200, 0, 4).is_ok());
        let held = part.reserve(200).unwrap();
        // with 108 more, 292 are left, so that the part may hold 584, of which it leaves 146
        assert!(part.leave_room(108, 200, 4).is_ok() && part.leave_room(200, 200, 4).is_err());
        assert!(part.reserve(33).is_ok());
        drop((others, held));
        assert!(part.leave_room(u64::MAX, 0, 4).is_err(), "no overflow");
    }

    #[test]
    fn a_share_is_that_of_the_part_that_asks() {
        let node = Account::new("inflight", 100);
        let lines = node.part();
        lines.share(u64::MAX, 50);
        let tenants = [lines.part(), lines.part()];
        tenants.iter().for_each(|tenant| tenant.share(8, u64::MAX));
        let held = tenants[0].reserve(44).unwrap();
        let own = tenants[0].reserve(5).unwrap_err();
        assert!(own.share_bytes.is_some(), "{own}");
        let of_all = tenants[1].reserve(7).unwrap_err();
        assert_eq!((of_all.share_bytes, of_all.is_for_good()), (None, false), "{of_all}");
        assert_eq!(tenants[1].leave_room(7, 0, 4).unwrap_err().share_bytes, None);
        drop(held);
        assert_eq!(node.used_bytes(), 0);
    }

    #[test]
    fn an_advance_is_used_before_the_account() {
        let account = Account::new("inflight", 100);
        let mut first = account.reserve(10).unwrap();
        first.advance(60).unwrap();
        assert_eq!((first.bytes(), account.used_bytes()), (10, 70));
        let mut second = account.reserve(30).unwrap();
        let refused = second.advance(1).unwrap_err();
        assert_eq!((refused.asked_bytes, refused.used_bytes, refused.is_for_good()), (31, 70, false));
        assert!(second.advance(71).unwrap_err().is_for_good(), "no retry can hold more than the account");
        for bytes in [70, 20, 70] {
            first.resize(bytes).unwrap();
            assert_eq!((first.bytes(), account.used_bytes()), (bytes, 100));
        }
        assert!(first.resize(71).is_err());
        drop(second);
        first.resize(80).unwrap();
        first.resize(40).unwrap();
        assert_eq!(account.used_bytes(), 80);
        for (ahead, used) in [(50, 80), (30, 70), (40, 70)] {
            first.keep_ahead(ahead);
            assert_eq!((first.bytes(), account.used_bytes()), (40, used));
        }
        first.settle();
        first.keep_ahead(0);
        assert_eq!((first.bytes(), account.used_bytes()), (40, 40));
        first.resize(5).unwrap();
        assert_eq!(account.used_bytes(), 5);
        first.advance(50).unwrap();
        drop(first);
        assert_eq!(account.used_bytes(), 0);
    }

    #[test]
    fn a_part_of_a_reservation_is_given_back_by_itself() {
        let account = Account::new("inflight", 100);
        let mut whole = account.reserve(80).unwrap();
        let part = whole.split(30);
        assert_eq!((whole.bytes(), part.bytes(), account.used_bytes()), (50, 30, 80));
        drop(part);
        assert_eq!(account.used_bytes(), 50);
        whole.resize(100).unwrap();
    }

    #[test]
    fn threads_cannot_overbook_an_account() {
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
