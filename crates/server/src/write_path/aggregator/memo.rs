//! Remembers which outputs a name has.
//!
//! Most names have none. For them, a table has eight bytes each, which are read without a lock, so that they cost little when
//! there are rules. If the table is full, others take their places, and the rules decide again.

use model::SeriesKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::budget::{Account, Reservation};

/// The table of names without outputs takes at most this part of the account.
const UNMATCHED_PART: u64 = 4;

/// All names with outputs together take at most this part of the account.
const MATCHED_PART: u64 = 4;

const SLOTS_MIN: u64 = 1024;
const SLOTS_MAX: u64 = 1 << 24;

/// Number of locks, so that requests rarely wait for each other.
const SHARDS: usize = 16;

/// Upper bound on the memory of an entry of a map that is at least 7/16 full.
const ENTRY_BYTES: usize = size_of::<(SeriesKey, Arc<Matched>)>() * 16 / 7;

/// Outputs to which points of a name contribute.
#[derive(Debug)]
pub(super) struct Matched {
    pub(super) outputs: Box<[SeriesKey]>,
    pub(super) replaced: Option<Replaced>,
}

/// The name itself is one of the outputs. As in carbon, the output then replaces the points, which are not stored.
#[derive(Debug)]
pub(super) struct Replaced {
    /// Intervals that began before the rule was in force are incomplete.
    pub(super) since_ms: i64,
    pub(super) interval_s: u32,
}

impl Replaced {
    /// True if the output can have a point of this time. Otherwise, the point is stored as it is.
    pub(super) fn is_kept(&self, at_ms: i64, now_ms: i64, kept: u32) -> bool {
        let interval_ms = i64::from(self.interval_s) * 1000;
        let start_of = |at_ms: i64| at_ms.saturating_sub(at_ms.rem_euclid(interval_ms));
        let (start_ms, present_ms, kept_ms) =
            (start_of(at_ms), start_of(now_ms), i64::from(kept) * interval_ms);
        start_ms >= self.since_ms && (present_ms - kept_ms..=present_ms + kept_ms).contains(&start_ms)
    }
}

impl Matched {
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.outputs) + 4 * size_of::<usize>()
    }
}

#[derive(Debug)]
pub(super) struct Memo {
    account: Account,
    /// `None` if there was no memory for it.
    unmatched: OnceLock<Option<Unmatched>>,
    matched: [Mutex<Shard>; SHARDS],
}

#[derive(Debug)]
struct Unmatched {
    /// Each has the high half of a key. The low half selects the slot.
    slots: Box<[AtomicU64]>,
    _memory: Reservation,
}

#[derive(Debug, Default)]
struct Shard {
    names: HashMap<SeriesKey, Arc<Matched>>,
    memory: Option<Reservation>,
}

impl Memo {
    pub(super) fn new(account: Account) -> Self {
        Self { account, unmatched: OnceLock::new(), matched: Default::default() }
    }

    pub(super) fn is_unmatched(&self, key: SeriesKey) -> bool {
        let table = self.unmatched.get().and_then(Option::as_ref);
        table.is_some_and(|table| table.slot(key).load(Ordering::Relaxed) == tag(key))
    }

    pub(super) fn put_unmatched(&self, key: SeriesKey) {
        let table = self.unmatched.get_or_init(|| Unmatched::new(&self.account));
        if let Some(table) = table {
            table.slot(key).store(tag(key), Ordering::Relaxed);
        }
    }

    pub(super) fn matched(&self, key: SeriesKey) -> Option<Arc<Matched>> {
        self.shard(key).lock().names.get(&key).map(Arc::clone)
    }

    /// If there is no room, all names of the shard are forgotten.
    pub(super) fn put_matched(&self, key: SeriesKey, matched: &Arc<Matched>) {
        let bytes_max = self.account.limit_bytes() / MATCHED_PART / SHARDS as u64;
        let bytes = (ENTRY_BYTES + matched.bytes()) as u64;
        let mut shard = self.shard(key).lock();
        for _ in 0..2 {
            let memory = match &mut shard.memory {
                Some(memory) => memory,
                None => match self.account.reserve(0) {
                    Ok(memory) => shard.memory.insert(memory),
                    Err(_) => return,
                },
            };
            let needed = memory.bytes() + bytes;
            if needed <= bytes_max && memory.resize(needed).is_ok() {
                shard.names.insert(key, Arc::clone(matched));
                return;
            }
            *shard = Shard::default();
        }
    }

    /// Forgets all names with outputs. Those without are forgotten because their keys depend on the rules.
    pub(super) fn forget(&self) {
        self.matched.iter().for_each(|shard| *shard.lock() = Shard::default());
    }

    const fn shard(&self, key: SeriesKey) -> &Mutex<Shard> {
        &self.matched[key.0 as usize % SHARDS]
    }
}

impl Unmatched {
    fn new(account: &Account) -> Option<Self> {
        let slot_bytes = size_of::<AtomicU64>() as u64;
        let slots = (account.limit_bytes() / UNMATCHED_PART / slot_bytes).clamp(SLOTS_MIN, SLOTS_MAX);
        let slots = 1 << slots.ilog2(); // rounded down to a power of two
        let memory = account.reserve(slots * slot_bytes).ok()?;
        Some(Self { slots: (0..slots).map(|_| AtomicU64::new(0)).collect(), _memory: memory })
    }

    fn slot(&self, key: SeriesKey) -> &AtomicU64 {
        &self.slots[key.0 as usize & (self.slots.len() - 1)]
    }
}

/// Zero means that a slot is empty. Two names with the same tag and slot have a probability below 2^-80.
const fn tag(key: SeriesKey) -> u64 {
    (key.0 >> 64) as u64 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> SeriesKey {
        SeriesKey::of(&n.to_le_bytes(), 7)
    }

    #[test]
    fn names_are_remembered_within_the_account() {
        let account = Account::new("aggregator", 256 << 10);
        let memo = Memo::new(account.clone());
        assert!(!memo.is_unmatched(key(1)));
        memo.put_unmatched(key(1));
        assert!(memo.is_unmatched(key(1)) && !memo.is_unmatched(key(2)));
        assert_eq!(account.used_bytes(), 64 << 10);
        let matched = Arc::new(Matched { outputs: [key(9), key(8)].into(), replaced: None });
        for n in 0..10_000 {
            memo.put_matched(key(n), &matched);
            assert!(memo.matched(key(n)).is_some(), "the newest is always remembered");
            assert!(account.used_bytes() <= 128 << 10);
        }
        assert!(memo.matched(key(0)).is_none());
        memo.forget();
        assert!(memo.matched(key(9_999)).is_none());
        assert_eq!(account.used_bytes(), 64 << 10);
    }

    #[test]
    fn without_memory_nothing_is_remembered() {
        let account = Account::new("aggregator", 256 << 10);
        let all = account.reserve(256 << 10).unwrap();
        let memo = Memo::new(account);
        memo.put_unmatched(key(1));
        memo.put_matched(key(2), &Arc::new(Matched { outputs: [key(9)].into(), replaced: None }));
        assert!(!memo.is_unmatched(key(1)) && memo.matched(key(2)).is_none());
        drop(all);
    }
}
