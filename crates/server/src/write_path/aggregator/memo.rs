//! Remembers which outputs a name has.
//!
//! Most names have none. For them, a table has eight bytes each, which are read without a lock, so that they cost little when
//! there are rules. It begins small and grows with the names, because every name reads one line of the processor's cache, and
//! a small table stays there. If it may not grow, others take the places of names, and the rules decide again.

use model::{Labels, SeriesKey};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::budget::{Account, Reservation};

/// The table of names without outputs takes at most this part of the account.
const UNMATCHED_PART: u64 = 4;

/// All names with outputs together usually take at most 1/`MATCHED_PART` of the account.
pub(super) const MATCHED_PART: u64 = 4;

const SETS_MIN: u64 = 256;
const SETS_MAX: u64 = 1 << 21;

/// Names that share a place, so that few names displace others. They fill one line of the cache.
const WAYS: usize = 8;

/// Number of locks, so that requests rarely wait for each other.
const SHARDS: usize = 16;

/// Upper bound on the memory of an entry of a map that is at least 7/16 full.
const ENTRY_BYTES: usize = size_of::<(SeriesKey, Arc<Matched>)>() * 16 / 7;

/// Outputs to which points of a name contribute.
#[derive(Debug)]
pub(super) struct Matched {
    pub(super) outputs: Box<[SeriesKey]>,
    /// The one of the outputs that is the name itself. As in carbon, it replaces the points, which are not stored.
    pub(super) replaced: Option<Replaced>,
    /// Further outputs for which there was no memory.
    pub(super) refused: Box<[RefusedOutput]>,
    /// Number of further outputs whose names are not valid.
    pub(super) invalid: u64,
}

/// The output of a name that is the output itself.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) output: SeriesKey,
    /// Labels of the series in which its points are stored if the output cannot have them.
    pub(super) labels: Labels,
}

/// An output for which there was no memory, with what is needed to know whether there is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RefusedOutput {
    pub(super) key: SeriesKey,
    pub(super) rule: SeriesKey,
    pub(super) interval_s: u32,
    /// Memory of the output if it is not open.
    pub(super) bytes: u32,
}

fn entry_bytes(matched: &Matched) -> u64 {
    (ENTRY_BYTES + matched.bytes()) as u64
}

impl Matched {
    pub(super) fn bytes(&self) -> usize {
        let labels_bytes = self.replaced.as_ref().map_or(0, |replaced| replaced.labels.as_bytes().len());
        size_of_val(self)
            + size_of_val(&*self.outputs)
            + size_of_val(&*self.refused)
            + labels_bytes
            + 6 * size_of::<usize>()
    }
}

#[derive(Debug)]
pub(super) struct Memo {
    account: Account,
    matched_part: u64,
    /// `None` if there is no such name yet, or no memory.
    unmatched: RwLock<Option<Arc<Unmatched>>>,
    /// Held while a larger table is made, which takes long.
    growing: Mutex<()>,
    matched: [Mutex<Shard>; SHARDS],
}

/// Names without outputs.
#[derive(Debug)]
pub(super) struct Unmatched {
    sets: Box<[Set]>,
    /// Number of names.
    names: AtomicU64,
    _memory: Reservation,
}

/// Each slot has the high half of a key. The low half selects the set. Zero means that a slot is empty.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

#[derive(Debug, Default)]
struct Shard {
    names: HashMap<SeriesKey, Arc<Matched>>,
    memory: Option<Reservation>,
}

impl Memo {
    /// All names with outputs together take at most `1 / matched_part` of the account.
    pub(super) fn new(account: Account, matched_part: u64) -> Self {
        let (unmatched, growing, matched) = Default::default();
        Self { account, matched_part, unmatched, growing, matched }
    }

    /// The names without outputs that are known now.
    pub(super) fn unmatched(&self) -> Option<Arc<Unmatched>> {
        self.unmatched.read().as_ref().map(Arc::clone)
    }

    pub(super) fn put_unmatched(&self, key: SeriesKey) {
        // while somebody else makes a larger table, the old one is used
        let growing = self.growing.try_lock();
        let mut table = self.unmatched();
        if growing.is_some() && table.as_ref().is_none_or(|table| table.is_crowded()) {
            let sets = table.as_ref().map_or(0, |table| table.sets.len() as u64);
            // many megabytes are zeroed, so readers are not locked out meanwhile
            if let Some(larger) = Unmatched::new(&self.account, sets * 2) {
                // the rules decide again on the names that the smaller table had
                let larger = Arc::new(larger);
                *self.unmatched.write() = Some(Arc::clone(&larger));
                table = Some(larger);
            }
        }
        if let Some(table) = table {
            table.put(key);
        }
    }

    pub(super) fn matched(&self, key: SeriesKey) -> Option<Arc<Matched>> {
        self.shard(key).lock().names.get(&key).map(Arc::clone)
    }

    /// If there is no room, all names of the shard are forgotten.
    pub(super) fn put_matched(&self, key: SeriesKey, matched: &Arc<Matched>) {
        let bytes_max = self.account.limit_bytes() / self.matched_part / SHARDS as u64;
        let mut shard = self.shard(key).lock();
        for _ in 0..2 {
            let Shard { names, memory } = &mut *shard;
            let memory = match memory {
                Some(memory) => memory,
                None => match self.account.reserve(0) {
                    Ok(new) => memory.insert(new),
                    Err(_) => return,
                },
            };
            let before_bytes = names.get(&key).map_or(0, |before| entry_bytes(before));
            let needed = memory.bytes() - before_bytes + entry_bytes(matched);
            if needed <= bytes_max && memory.resize(needed).is_ok() {
                names.insert(key, Arc::clone(matched));
                return;
            }
            *shard = Shard::default();
        }
    }

    /// Forgets a name with outputs.
    pub(super) fn remove_matched(&self, key: SeriesKey) {
        let Shard { names, memory } = &mut *self.shard(key).lock();
        if let (Some(before), Some(memory)) = (names.remove(&key), memory) {
            let left_bytes = memory.bytes() - entry_bytes(&before);
            memory.resize(left_bytes).expect("BUG: cannot shrink a reservation");
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
    /// Returns `None` if the table would be too large, or if there is no memory.
    fn new(account: &Account, sets: u64) -> Option<Self> {
        let set_bytes = size_of::<Set>() as u64;
        let most = (account.limit_bytes() / UNMATCHED_PART / set_bytes).clamp(SETS_MIN, SETS_MAX);
        let sets = sets.max(SETS_MIN);
        if sets > most {
            return None;
        }
        let memory = account.reserve(sets * set_bytes).ok()?;
        let sets = (0..sets).map(|_| Set::default()).collect();
        Some(Self { sets, names: AtomicU64::new(0), _memory: memory })
    }

    /// True if a larger table would displace fewer names.
    fn is_crowded(&self) -> bool {
        self.names.load(Ordering::Relaxed) > (self.sets.len() * WAYS / 2) as u64
    }

    #[inline]
    pub(super) fn contains(&self, key: SeriesKey) -> bool {
        let tag = tag(key);
        // without an early end, because the processor would guess wrong
        self.set(key).0.iter().fold(false, |found, slot| found | (slot.load(Ordering::Relaxed) == tag))
    }

    fn put(&self, key: SeriesKey) {
        let (set, tag) = (self.set(key), tag(key));
        for slot in &set.0 {
            match slot.compare_exchange(0, tag, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => _ = self.names.fetch_add(1, Ordering::Relaxed),
                Err(found) if found != tag => continue,
                Err(_) => {}
            }
            return;
        }
        set.0[(key.0 >> 32) as usize % WAYS].store(tag, Ordering::Relaxed);
    }

    #[inline]
    fn set(&self, key: SeriesKey) -> &Set {
        &self.sets[key.0 as usize & (self.sets.len() - 1)]
    }
}

/// Two names with the same tag and set have a probability below 2^-60.
const fn tag(key: SeriesKey) -> u64 {
    (key.0 >> 64) as u64 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> SeriesKey {
        SeriesKey::of(&n.to_le_bytes(), 7)
    }

    fn matched(outputs: &[SeriesKey]) -> Arc<Matched> {
        Arc::new(Matched { outputs: outputs.into(), replaced: None, refused: [].into(), invalid: 0 })
    }

    fn is_unmatched(memo: &Memo, key: SeriesKey) -> bool {
        memo.unmatched().is_some_and(|table| table.contains(key))
    }

    #[test]
    fn names_are_remembered_within_the_account() {
        let account = Account::new("aggregator", 256 << 10);
        let memo = Memo::new(account.clone(), MATCHED_PART);
        assert!(!is_unmatched(&memo, key(1)));
        memo.put_unmatched(key(1));
        assert!(is_unmatched(&memo, key(1)) && !is_unmatched(&memo, key(2)));
        assert_eq!(account.used_bytes(), SETS_MIN * 64);
        let matched = matched(&[key(9), key(8)]);
        memo.put_matched(key(0), &matched);
        let bytes = account.used_bytes();
        memo.put_matched(key(0), &matched);
        assert_eq!(account.used_bytes(), bytes, "a name that is decided again takes no more");
        memo.remove_matched(key(0));
        memo.remove_matched(key(1));
        assert_eq!((account.used_bytes(), memo.matched(key(0)).is_none()), (SETS_MIN * 64, true));
        for n in 0..10_000 {
            memo.put_matched(key(n), &matched);
            assert!(memo.matched(key(n)).is_some(), "the newest is always remembered");
            assert!(account.used_bytes() <= 128 << 10);
        }
        assert!(memo.matched(key(0)).is_none());
        memo.forget();
        assert!(memo.matched(key(9_999)).is_none());
        assert_eq!(account.used_bytes(), SETS_MIN * 64);
    }

    #[test]
    fn the_table_of_names_without_outputs_grows_to_its_limit() {
        let account = Account::new("aggregator", 4 << 20);
        let memo = Memo::new(account.clone(), MATCHED_PART);
        for n in 0..1_000_000 {
            memo.put_unmatched(key(n));
            assert!(is_unmatched(&memo, key(n)), "the newest is always remembered");
            if n == 40_000 {
                // as each is sent again; the table may grow once more meanwhile
                for _ in 0..2 {
                    (0..n).for_each(|n| memo.put_unmatched(key(n)));
                }
                let known = (0..n).filter(|n| is_unmatched(&memo, key(*n))).count();
                assert!(known > 39_900, "{known}");
            }
        }
        assert_eq!(account.used_bytes(), 1 << 20);
        assert!((1_000_000..2_000_000).all(|n| !is_unmatched(&memo, key(n))));
    }

    /// Waiting would never end here.
    #[test]
    fn nobody_waits_while_the_table_grows() {
        let account = Account::new("aggregator", 4 << 20);
        let memo = Memo::new(account.clone(), MATCHED_PART);
        memo.put_unmatched(key(0));
        let (growing, reading) = (memo.growing.lock(), memo.unmatched.read());
        for n in 0..100_000 {
            memo.put_unmatched(key(n));
            assert!(is_unmatched(&memo, key(n)), "the newest is always remembered");
        }
        assert_eq!(account.used_bytes(), SETS_MIN * 64);
        drop((growing, reading));
        memo.put_unmatched(key(1));
        assert_eq!(account.used_bytes(), 2 * SETS_MIN * 64);
    }

    #[test]
    fn without_memory_nothing_is_remembered() {
        let account = Account::new("aggregator", 256 << 10);
        let all = account.reserve(256 << 10).unwrap();
        let memo = Memo::new(account, MATCHED_PART);
        memo.put_unmatched(key(1));
        memo.put_matched(key(2), &matched(&[key(9)]));
        assert!(!is_unmatched(&memo, key(1)) && memo.matched(key(2)).is_none());
        drop(all);
    }
}
