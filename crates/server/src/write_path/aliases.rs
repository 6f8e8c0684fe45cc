//! Remembers which series the keys of text lines belong to, so that the labels of known series are not parsed.
//!
//! ```text
//!   cpu,host=web1 user=1,sys=2     a head, and the names of its fields
//!   └───upper───┘ └─lower──┘       halves of the key as sent (protocol::influx)
//!
//!   upper ─▶ fields of the head: (lower, key of the series), in the order in which they were first sent
//! ```
//!
//! The key of a series is a hash of its labels, which follow from the text and from what was mixed into its key (rule of
//! names, shared labels). So it stays right when the series leaves memory, and is the same for all tenants with the same
//! rule of names ([ADR 53](../../../../docs/adr/0053-text-is-a-key-of-its-own.md)).

use hashbrown::HashMap;
use model::{BatchSeries, SeriesKey};
use parking_lot::Mutex;
use std::hash::{BuildHasherDefault, Hasher};
use stdx::budget::{Account, Reservation};
use stdx::telemetry::{Counter, Registry};

/// Keys may take 1/`ACCOUNT_PART` of the account `decoders`.
const ACCOUNT_PART: u64 = 2;

/// Number of locks, so that requests rarely wait for each other.
const SHARDS: usize = 16;

/// Fields that are looked up under one lock.
const FIELDS_LOCKED: usize = 256;

/// Limit on the fields that are remembered of one head. More are rare, and have their labels parsed each time.
const FIELDS_MAX: usize = 1024;

/// Fields of a head that are compared with one that does not come in the order in which it was first sent.
const PROBES_MAX: usize = 32;

/// Memory that a head takes besides its fields: its entry in a table that is at least 7/16 full, and the overhead of the
/// allocation of its fields.
const HEAD_BYTES: usize = 128;

#[derive(Debug)]
pub(crate) struct Aliases {
    shards: [Mutex<Shard>; SHARDS],
    account: Account,
    /// Limit on the bytes of one generation of a shard.
    generation_bytes: usize,
    unknown: Counter,
}

/// Heads that are not used any more are forgotten: when the young generation is full, it becomes the old one. Heads of the
/// old generation that are used again move to the young one.
#[derive(Debug, Default)]
struct Shard {
    young: Generation,
    old: Generation,
    memory: Option<Reservation>,
}

#[derive(Debug, Default)]
struct Generation {
    heads: HashMap<u64, Vec<Field>, BuildHasherDefault<Unchanged>>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    lower: u64,
    /// The key of the series, in two halves, which take less memory than a number of 128 bits.
    key: [u64; 2],
}

/// What was learned about a series: its key as sent, and its own.
pub(super) type Learned = (SeriesKey, SeriesKey);

impl Aliases {
    pub(crate) fn new(account: Account, r: &Registry) -> Self {
        let generation_bytes = account.limit_bytes() / ACCOUNT_PART / (2 * SHARDS as u64);
        let help = "Series of text lines whose labels had to be parsed, because they were sent for the first time or were \
            forgotten.";
        Self {
            shards: Default::default(),
            account,
            generation_bytes: generation_bytes as usize,
            unknown: r.counter("floodmark_write_parsed_lines_total", help),
        }
    }

    /// Replaces the keys of series by those of their labels, as far as these are remembered. Appends to `unknown` whether
    /// a series keeps its key.
    pub(super) fn translate(&self, series: &mut [BatchSeries], unknown: &mut Vec<bool>) {
        let mut left = 0;
        for group in series.chunk_by_mut(|a, b| upper(a.key) == upper(b.key)) {
            for chunk in group.chunks_mut(FIELDS_LOCKED) {
                let upper = upper(chunk[0].key);
                let shard = &mut *self.shard(upper).lock();
                let fields = match shard.young.heads.get(&upper) {
                    Some(fields) => fields,
                    None => match shard.recall(upper, self.generation_bytes) {
                        Some(fields) => fields,
                        None => {
                            left += chunk.len();
                            unknown.extend(std::iter::repeat_n(true, chunk.len()));
                            continue;
                        }
                    },
                };
                let mut next = 0;
                for series in chunk {
                    let found = find(fields, series.key.0 as u64, &mut next);
                    unknown.push(found.is_none());
                    match found {
                        Some(key) => series.key = key,
                        None => left += 1,
                    }
                }
            }
        }
        self.unknown.add(left as u64);
    }

    pub(super) fn remember(&self, learned: &[Learned]) {
        for group in learned.chunk_by(|(a, _), (b, _)| upper(*a) == upper(*b)) {
            let fields = &group[..group.len().min(FIELDS_MAX)];
            let upper = upper(fields[0].0);
            self.shard(upper).lock().remember(upper, fields, self.generation_bytes, &self.account);
        }
    }

    const fn shard(&self, upper: u64) -> &Mutex<Shard> {
        &self.shards[upper as usize % SHARDS]
    }
}

impl Shard {
    fn recall(&mut self, upper: u64, generation_bytes: usize) -> Option<&Vec<Field>> {
        if !self.young.heads.contains_key(&upper) {
            let fields = self.old.take(upper)?;
            self.make_room(bytes_of(&fields), generation_bytes);
            self.young.put(upper, fields);
        }
        self.young.heads.get(&upper)
    }

    fn remember(&mut self, upper: u64, learned: &[Learned], generation_bytes: usize, account: &Account) {
        let before = self.recall(upper, generation_bytes).map_or(0, Vec::len);
        let learned = &learned[..learned.len().min(FIELDS_MAX - before)];
        let most = HEAD_BYTES + (before + learned.len()) * size_of::<Field>();
        if learned.is_empty() || most > generation_bytes {
            return;
        }
        self.make_room(most, generation_bytes);
        if !self.reserve(most, account) {
            return; // without memory, labels are parsed each time
        }
        // making room may have moved the head to the old generation
        let mut fields =
            [&mut self.young, &mut self.old].into_iter().find_map(|g| g.take(upper)).unwrap_or_default();
        fields.reserve_exact(learned.len());
        let mut next = 0;
        for (sent, SeriesKey(key)) in learned {
            let lower = sent.0 as u64;
            // another request may have learned the same
            if find(&fields, lower, &mut next).is_none() {
                fields.push(Field { lower, key: [(key >> 64) as u64, *key as u64] });
            }
        }
        self.young.put(upper, fields);
    }

    /// Begins a new generation if `bytes` more do not fit.
    fn make_room(&mut self, bytes: usize, generation_bytes: usize) {
        if self.young.bytes + bytes > generation_bytes {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// Reserves memory for `bytes` more. If there is none, forgets the old generation, and returns whether that helped.
    fn reserve(&mut self, bytes: usize, account: &Account) -> bool {
        let needed = |shard: &Self| (shard.young.bytes + shard.old.bytes + bytes) as u64;
        let first = needed(self);
        let memory =
            self.memory.get_or_insert_with(|| account.reserve(0).expect("BUG: cannot reserve 0 bytes"));
        if first <= memory.bytes() || memory.resize(first).is_ok() {
            return true;
        }
        self.old = Generation::default();
        let second = needed(self);
        let memory = self.memory.as_mut().expect("BUG: the reservation was made before");
        memory.resize(second).is_ok()
    }
}

impl Generation {
    fn take(&mut self, upper: u64) -> Option<Vec<Field>> {
        let fields = self.heads.remove(&upper)?;
        self.bytes -= bytes_of(&fields);
        Some(fields)
    }

    fn put(&mut self, upper: u64, fields: Vec<Field>) {
        self.bytes += bytes_of(&fields);
        self.heads.insert(upper, fields);
    }
}

/// Returns the key of a field. `next` is where the field is probably found; afterwards, this is the place after it.
fn find(fields: &[Field], lower: u64, next: &mut usize) -> Option<SeriesKey> {
    let places = (*next..fields.len()).chain(0..(*next).min(fields.len()));
    let place = places.take(PROBES_MAX).find(|place| fields[*place].lower == lower)?;
    *next = place + 1;
    let [high, low] = fields[place].key;
    Some(SeriesKey(u128::from(high) << 64 | u128::from(low)))
}

const fn upper(key: SeriesKey) -> u64 {
    (key.0 >> 64) as u64
}

const fn bytes_of(fields: &Vec<Field>) -> usize {
    HEAD_BYTES + fields.capacity() * size_of::<Field>()
}

/// A hash function for numbers that are hashes themselves.
#[derive(Debug, Default)]
struct Unchanged(u64);

impl Hasher for Unchanged {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("BUG: only numbers of 64 bits are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        // the lowest bits are the same in a shard; a table uses the lowest and the highest
        self.0 = number.rotate_right(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap as Map;
    use stdx::rng::Rng;

    fn aliases(account: &Account) -> Aliases {
        Aliases::new(account.clone(), &Registry::default())
    }

    fn sent(head: u64, field: u64) -> SeriesKey {
        let mix = |n| u128::from(stdx::rng::mix(n));
        SeriesKey(mix(head) << 64 | mix(head ^ (field << 32)))
    }

    fn own(head: u64, field: u64) -> SeriesKey {
        SeriesKey(u128::from(head) << 64 | u128::from(field))
    }

    fn translated(aliases: &Aliases, lines: &[(u64, u64)]) -> (Vec<SeriesKey>, Vec<bool>) {
        let series =
            |&(head, field): &(u64, u64)| BatchSeries { key: sent(head, field), labels: 0..0, samples: 0..0 };
        let mut series: Vec<_> = lines.iter().map(series).collect();
        let mut unknown = Vec::new();
        aliases.translate(&mut series, &mut unknown);
        (series.into_iter().map(|series| series.key).collect(), unknown)
    }

    #[test]
    fn keys_that_were_learned_are_translated() {
        let aliases = aliases(&Account::new("decoders", 1 << 20));
        let lines: Vec<_> = (0..50).flat_map(|head| (0..10).map(move |field| (head, field))).collect();
        let (keys, unknown) = translated(&aliases, &lines);
        assert_eq!(unknown, [true; 500]);
        assert_eq!(keys, lines.iter().map(|(head, field)| sent(*head, *field)).collect::<Vec<_>>());
        let learned: Vec<_> =
            lines.iter().map(|(head, field)| (sent(*head, *field), own(*head, *field))).collect();
        aliases.remember(&learned);
        aliases.remember(&learned); // by another request
        // fields in another order, fields that are missing, and a new one
        let mixed: Vec<_> = (0..50).flat_map(|head| [7, 3, 11, 4, 5, 0].map(|field| (head, field))).collect();
        let (keys, unknown) = translated(&aliases, &mixed);
        for ((head, field), (key, unknown)) in mixed.iter().zip(keys.iter().zip(&unknown)) {
            assert_eq!(*unknown, *field == 11, "{head} {field}");
            assert_eq!(
                *key,
                if *unknown { sent(*head, *field) } else { own(*head, *field) },
                "{head} {field}"
            );
        }
        assert_eq!(aliases.unknown.get(), 550);
        let fields: usize = aliases
            .shards
            .iter()
            .flat_map(|s| s.lock().young.heads.values().map(Vec::len).collect::<Vec<_>>())
            .sum();
        assert_eq!(fields, 500, "nothing is remembered twice");
    }

    /// Whatever is forgotten for lack of memory, no key is ever translated to the wrong one, and the memory is within its
    /// part of the account.
    #[test]
    fn memory_is_bounded_and_keys_are_right() {
        let account = Account::new("decoders", 400_000);
        let aliases = aliases(&account);
        let mut rng = Rng::announced();
        let (mut known, mut sizes) = (0, Map::new());
        for round in 0..3000 {
            let head = if rng.below(2) == 0 { rng.below(40) } else { rng.below(5000) };
            let count = *sizes
                .entry(head)
                .or_insert_with(|| if rng.below(50) == 0 { 2000 } else { 1 + rng.below(20) });
            let lines: Vec<_> = (0..count).map(|field| (head, field)).collect();
            let (keys, unknown) = translated(&aliases, &lines);
            let mut learned = Vec::new();
            for ((head, field), (key, unknown)) in lines.iter().zip(keys.into_iter().zip(unknown)) {
                known += usize::from(!unknown);
                assert_eq!(
                    key,
                    if unknown { sent(*head, *field) } else { own(*head, *field) },
                    "round {round}"
                );
                if unknown {
                    learned.push((key, own(*head, *field)));
                }
            }
            aliases.remember(&learned);
            assert!(account.used_bytes() <= account.limit_bytes() / ACCOUNT_PART, "round {round}");
            for shard in &aliases.shards {
                let shard = shard.lock();
                for generation in [&shard.young, &shard.old] {
                    assert_eq!(generation.bytes, generation.heads.values().map(bytes_of).sum::<usize>());
                }
                let reserved = shard.memory.as_ref().map_or(0, Reservation::bytes);
                assert!((shard.young.bytes + shard.old.bytes) as u64 <= reserved, "round {round}");
            }
        }
        assert!(known > 1000, "only {known} keys were known");
        let full = Account::new("decoders", 400_000);
        let all = full.reserve(400_000).unwrap();
        let without_memory = Aliases::new(full.clone(), &Registry::default());
        without_memory.remember(&[(sent(1, 1), own(1, 1))]);
        assert_eq!(translated(&without_memory, &[(1, 1)]).1, [true]);
        drop(all);
    }
}
