//! Remembers what the rules said about series.
//!
//! Two tables, both read without locks. In one, a series that is stored as sent, dropped or refused takes eight bytes. In the other, a series
//! that is stored under another key takes 24 bytes. A table begins small and grows with its series. If it may not grow,
//! others take the places of series, and the rules decide again.

use model::SeriesKey;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::budget::{Account, Reservation};

/// Each of the two tables takes at most this part of the account.
const ACCOUNT_PART: u64 = 8;

const SETS_MIN: u64 = 64;
const SETS_MAX: u64 = 1 << 22;

/// Series that share a place, so that few series displace others.
const WAYS: usize = 8;

/// The lowest bits of an entry of the first table say what is remembered: 0 that the series is unchanged, otherwise the
/// number of the rule that drops it, counted from 1. The largest says that the series is refused.
const CODE_BITS: u32 = 10;
const CODES: u64 = 1 << CODE_BITS;
const REFUSED: u64 = CODES - 1;

const _: () = assert!((rules::RULES_MAX as u64) < REFUSED, "the numbers of rules exceed their bits");

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Unchanged,
    /// The key under which the series is stored.
    Stored(SeriesKey),
    /// By the rule with this index.
    Dropped(u32),
    /// The rules cannot be applied to the series, or make labels that cannot be stored.
    Refused,
}

#[derive(Debug)]
pub(super) struct Verdicts {
    simple: Growing<1>,
    stored: Growing<3>,
}

/// The verdicts that are remembered at the beginning of a request.
#[derive(Debug)]
pub(super) struct Known {
    simple: Option<Arc<Table<1>>>,
    stored: Option<Arc<Table<3>>>,
}

impl Verdicts {
    pub(super) fn new(account: Account) -> Self {
        Self { simple: Growing::new(account.clone()), stored: Growing::new(account) }
    }

    pub(super) fn known(&self) -> Known {
        Known { simple: self.simple.table(), stored: self.stored.table() }
    }

    pub(super) fn put(&self, key: SeriesKey, verdict: Verdict) {
        let code = match verdict {
            Verdict::Unchanged => 0,
            Verdict::Dropped(rule) => u64::from(rule) + 1,
            Verdict::Refused => REFUSED,
            Verdict::Stored(stored) => {
                let [high, low] = halves(stored);
                // a reader finds either all three words of one writer, or a sum that is not that of the key
                return self
                    .stored
                    .put(key, [high, low, tag(key) ^ high ^ low], |entry| sum(entry) == tag(key));
            }
        };
        let tag = short_tag(key);
        self.simple.put(key, [tag | code], |[word]| word & !(CODES - 1) == tag);
    }
}

impl Known {
    #[inline]
    pub(super) fn get(&self, key: SeriesKey) -> Option<Verdict> {
        if let Some(table) = &self.simple {
            let tag = short_tag(key);
            if let Some([word]) = table.find(key, |[word]| word & !(CODES - 1) == tag) {
                return Some(match word & (CODES - 1) {
                    0 => Verdict::Unchanged,
                    REFUSED => Verdict::Refused,
                    code => Verdict::Dropped(code as u32 - 1),
                });
            }
        }
        let tag = tag(key);
        let [high, low, _] = self.stored.as_ref()?.find(key, |entry| sum(entry) == tag)?;
        Some(Verdict::Stored(SeriesKey(u128::from(high) << 64 | u128::from(low))))
    }
}

const fn halves(key: SeriesKey) -> [u64; 2] {
    [(key.0 >> 64) as u64, key.0 as u64]
}

/// Never zero, which is the sum of an empty entry.
const fn tag(key: SeriesKey) -> u64 {
    halves(key)[0] | 1
}

/// With the place, it has at least 60 bits of the key. Never zero, which is an empty entry.
const fn short_tag(key: SeriesKey) -> u64 {
    (halves(key)[0] | CODES) & !(CODES - 1)
}

const fn sum(entry: [u64; 3]) -> u64 {
    entry[0] ^ entry[1] ^ entry[2]
}

/// A table that is replaced by a larger one when it fills up.
#[derive(Debug)]
struct Growing<const WORDS: usize> {
    account: Account,
    /// `None` if there is no series yet, or no memory.
    table: RwLock<Option<Arc<Table<WORDS>>>>,
    /// Held while a larger table is made, which takes long.
    growing: Mutex<()>,
}

impl<const WORDS: usize> Growing<WORDS> {
    fn new(account: Account) -> Self {
        Self { account, table: RwLock::default(), growing: Mutex::default() }
    }

    fn table(&self) -> Option<Arc<Table<WORDS>>> {
        self.table.read().as_ref().map(Arc::clone)
    }

    fn put(&self, key: SeriesKey, entry: [u64; WORDS], is_same: impl Fn([u64; WORDS]) -> bool) {
        // while somebody else makes a larger table, the old one is used
        let growing = self.growing.try_lock();
        let mut table = self.table();
        if growing.is_some() && table.as_ref().is_none_or(|table| table.is_crowded()) {
            let sets = table.as_ref().map_or(0, |table| table.sets.len() as u64);
            // many megabytes are zeroed, so readers are not locked out meanwhile
            if let Some(larger) = Table::new(&self.account, sets * 2) {
                // the rules decide again on the series that the smaller table had
                let larger = Arc::new(larger);
                *self.table.write() = Some(Arc::clone(&larger));
                table = Some(larger);
            }
        }
        if let Some(table) = table {
            table.put(key, entry, is_same);
        }
    }
}

#[derive(Debug)]
struct Table<const WORDS: usize> {
    sets: Box<[Set<WORDS>]>,
    /// Number of entries.
    used: AtomicU64,
    /// Number of entries that were displaced.
    displaced: AtomicU64,
    _memory: Reservation,
}

/// With one word, a set fills one line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Set<const WORDS: usize>([[AtomicU64; WORDS]; WAYS]);

impl<const WORDS: usize> Table<WORDS> {
    /// Returns `None` if the table would not be larger than half of `sets`, or if there is no memory.
    fn new(account: &Account, sets: u64) -> Option<Self> {
        let set_bytes = size_of::<Set<WORDS>>() as u64;
        let most = (account.limit_bytes() / ACCOUNT_PART / set_bytes).clamp(SETS_MIN, SETS_MAX);
        let before = sets / 2;
        let sets = sets.clamp(SETS_MIN, most);
        if sets <= before {
            return None;
        }
        let memory = account.reserve(sets * set_bytes).ok()?;
        let entry = || std::array::from_fn(|_| AtomicU64::new(0));
        let sets = (0..sets).map(|_| Set(std::array::from_fn(|_| entry()))).collect();
        Some(Self { sets, used: AtomicU64::new(0), displaced: AtomicU64::new(0), _memory: memory })
    }

    /// True if a larger table would displace fewer series.
    fn is_crowded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > (self.sets.len() * WAYS / 2) as u64
    }

    #[inline]
    fn find(&self, key: SeriesKey, is_same: impl Fn([u64; WORDS]) -> bool) -> Option<[u64; WORDS]> {
        let entries = self.set(key).0.iter();
        entries
            .map(|entry| entry.each_ref().map(|word| word.load(Ordering::Relaxed)))
            .find(|entry| is_same(*entry))
    }

    fn put(&self, key: SeriesKey, entry: [u64; WORDS], is_same: impl Fn([u64; WORDS]) -> bool) {
        let set = self.set(key);
        let read = |entry: &[AtomicU64; WORDS]| entry.each_ref().map(|word| word.load(Ordering::Relaxed));
        let place = set.0.iter().position(|found| is_same(read(found)));
        let place = place.or_else(|| {
            let empty = set.0.iter().position(|found| read(found) == [0; WORDS])?;
            self.used.fetch_add(1, Ordering::Relaxed);
            Some(empty)
        });
        // the ways take turns, so that entries of earlier rules and of series that are gone are displaced in the end
        let place = place.unwrap_or_else(|| self.displaced.fetch_add(1, Ordering::Relaxed) as usize % WAYS);
        for (word, value) in set.0[place].iter().zip(entry) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn set(&self, key: SeriesKey) -> &Set<WORDS> {
        let low = key.0 as u32;
        &self.sets[((u64::from(low) * self.sets.len() as u64) >> 32) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::rng::Rng;

    fn key(n: u64) -> SeriesKey {
        SeriesKey::of(&n.to_le_bytes(), 7)
    }

    fn verdict(n: u64) -> Verdict {
        match n % 3 {
            0 if n.is_multiple_of(2) => Verdict::Unchanged,
            0 => Verdict::Refused,
            1 => Verdict::Dropped((n % 1000) as u32),
            _ => Verdict::Stored(key(!n)),
        }
    }

    #[test]
    fn verdicts_are_remembered_within_the_account() {
        let account = Account::new("decoders", 1 << 20);
        let verdicts = Verdicts::new(account.clone());
        assert_eq!(verdicts.known().get(key(0)), None);
        for n in 0..1000 {
            verdicts.put(key(n), verdict(n));
            assert_eq!(verdicts.known().get(key(n)), Some(verdict(n)));
        }
        let known = verdicts.known();
        let remembered = (0..1000).filter(|n| known.get(key(*n)) == Some(verdict(*n))).count();
        assert!(remembered > 300, "{remembered}"); // others were forgotten when the tables grew
        assert!((1000..2000).all(|n| known.get(key(n)).is_none()));
        drop(known); // a request in progress keeps a table that was replaced
        for n in 0..1_000_000 {
            verdicts.put(key(n), verdict(n));
        }
        assert!(account.used_bytes() <= account.limit_bytes() / 4, "{}", account.used_bytes());
        let known = verdicts.known();
        let remembered = |n: &u64| {
            known.get(key(*n)).is_some_and(|found| {
                assert_eq!(found, verdict(*n));
                true
            })
        };
        let count = (0..1_000_000).filter(remembered).count();
        assert!((10_000..25_000).contains(&count), "{count}");
    }

    #[test]
    fn without_memory_nothing_is_remembered() {
        let account = Account::new("decoders", 1 << 20);
        let all = account.reserve(1 << 20).unwrap();
        let verdicts = Verdicts::new(account);
        verdicts.put(key(1), Verdict::Unchanged);
        assert_eq!(verdicts.known().get(key(1)), None);
        drop(all);
        verdicts.put(key(1), Verdict::Unchanged);
        assert_eq!(verdicts.known().get(key(1)), Some(Verdict::Unchanged));
        // a later verdict replaces an earlier one of its table
        verdicts.put(key(1), Verdict::Dropped(7));
        assert_eq!(verdicts.known().get(key(1)), Some(Verdict::Dropped(7)));
    }

    /// Writers overwrite each other's entries while readers look for them. No reader may find half of an entry.
    #[test]
    fn entries_are_whole_for_readers() {
        let account = Account::new("decoders", 1 << 14);
        let verdicts = Verdicts::new(account);
        let seed = Rng::announced().next_u64();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let verdicts = &verdicts;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed ^ thread);
                    for _ in 0..100_000 {
                        let n = rng.below(5000);
                        if rng.below(2) == 0 {
                            verdicts.put(key(n), verdict(n));
                        } else if let Some(found) = verdicts.known().get(key(n)) {
                            assert_eq!(found, verdict(n));
                        }
                    }
                });
            }
        });
    }
}
