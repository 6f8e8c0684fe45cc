//! Finds the metrics and label pairs that got the most new series within the last hour, in bounded memory.
//!
//! Each bucket of time has two sketches, for metrics and for other label pairs. A sketch is the
//! *Space-Saving* algorithm of Metwally, Agrawal and El Abbadi (2005). After `n` additions to a sketch of `k`
//! counters:
//!
//! - A count is too high by at most its error, which is at most `n / k`, and never too low.
//! - A pair without a counter was added at most `n / k` times.
//!
//! A counter of the current bucket identifies its pair by number. When the bucket ends or the pair leaves
//! memory, the counter changes to the hash of the pair's text, because numbers are reused.

use crate::pair::PairId;
use hashbrown::HashTable;
use std::collections::{BTreeMap, VecDeque};
use xxhash_rust::xxh3::xxh3_64_with_seed;

#[cfg(test)]
mod tests;

const BUCKET_S: u32 = 600;

/// Number of buckets: the six complete ones of an hour, and the current one.
const BUCKETS: u32 = 7;

/// Numbers of counters in the two sketches of a bucket. The count of a metric is too high by at most 1/32 of
/// the new series. The count of another pair is too high by at most 1/64 of the pairs of all new series. All
/// buckets of a tenant take some 20 KiB.
const METRICS: usize = 32;
const PAIRS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Growth {
    buckets: VecDeque<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Time in units of [`BUCKET_S`].
    number: u32,
    created: u64,
    metrics: Sketch,
    pairs: Sketch,
}

/// Metrics and label pairs that got the most new series within the last hour, in one partition.
#[derive(Debug, PartialEq, Eq)]
pub struct Gained<'a> {
    pub created: u64,
    pub metrics: Gains<'a>,
    /// Label pairs that are not metric names.
    pub pairs: Gains<'a>,
}

/// Number of new series for each pair that is still in memory, unsorted.
#[derive(Debug, PartialEq, Eq)]
pub struct Gains<'a> {
    pub gains: Vec<Gain<'a>>,
    /// Upper bound on the new series of each pair that is not in `gains`.
    pub others_max: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain<'a> {
    pub name: &'a str,
    pub value: &'a str,
    /// The pair got at least this many new series.
    pub least: u64,
    /// The pair got at most this many new series.
    pub most: u64,
}

impl Growth {
    /// Start of the period whose new series [`Self::gained`] counts at the time `now_s`.
    pub(crate) const fn since_s(now_s: u32) -> u32 {
        (now_s / BUCKET_S + 1).saturating_sub(BUCKETS) * BUCKET_S
    }

    /// Counts a new series with these pairs. The pair at `metric_at` is its metric name. `hash` computes
    /// [`hash_of`].
    pub(crate) fn count(
        &mut self,
        ids: &[PairId],
        metric_at: usize,
        now_s: u32,
        hash: impl Fn(PairId) -> u64,
    ) {
        let bucket = self.bucket_at(now_s, &hash);
        bucket.created += 1;
        for (i, id) in ids.iter().enumerate() {
            match i == metric_at {
                true => bucket.metrics.add::<METRICS>(*id, &hash),
                false => bucket.pairs.add::<PAIRS>(*id, &hash),
            }
        }
    }

    pub(crate) fn forget(&mut self, id: PairId, hash: impl Fn() -> u64) {
        if let Some(Bucket { metrics, pairs, .. }) = self.buckets.back_mut() {
            metrics.forget(id, &hash);
            pairs.forget(id, &hash);
        }
    }

    fn bucket_at(&mut self, now_s: u32, hash: &impl Fn(PairId) -> u64) -> &mut Bucket {
        let number = now_s / BUCKET_S;
        if self.buckets.back().is_none_or(|last| last.number != number) {
            if let Some(Bucket { metrics, pairs, .. }) = self.buckets.back_mut() {
                metrics.close(hash);
                pairs.close(hash);
            }
            let first = Self::since_s(now_s) / BUCKET_S;
            self.buckets.retain(|bucket| (first..number).contains(&bucket.number));
            let (metrics, pairs) = (Sketch::default(), Sketch::default());
            self.buckets.push_back(Bucket { number, created: 0, metrics, pairs });
        }
        self.buckets.back_mut().expect("BUG: the bucket just added is missing")
    }

    /// Adds up the new series of the last hour. `text` returns the name and value of a pair, unless it has no
    /// series. `hash` returns the hash of a pair's text ([`hash_of`]).
    pub(crate) fn gained<'a>(
        &self,
        now_s: u32,
        text: impl Fn(PairId) -> Option<(&'a str, &'a str)>,
        hash: impl Fn(PairId) -> u64,
    ) -> Gained<'a> {
        let (first, last) = (Self::since_s(now_s) / BUCKET_S, now_s / BUCKET_S);
        let buckets = || self.buckets.iter().filter(|bucket| (first..=last).contains(&bucket.number));
        Gained {
            created: buckets().map(|bucket| bucket.created).sum(),
            metrics: gains(buckets().map(|bucket| &bucket.metrics), &text, &hash),
            pairs: gains(buckets().map(|bucket| &bucket.pairs), &text, &hash),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let sketches = self.buckets.iter().flat_map(|bucket| [&bucket.metrics, &bucket.pairs]);
        self.buckets.capacity() * size_of::<Bucket>() + sketches.map(Sketch::memory_bytes).sum::<usize>()
    }
}

/// Hash of a pair's text. The seed makes collisions unpredictable.
pub(crate) fn hash_of(name: &str, value: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(value.as_bytes(), xxh3_64_with_seed(name.as_bytes(), seed))
}

/// Adds up the counts of several buckets. Pairs that are no longer in memory are left out.
fn gains<'a, 's>(
    sketches: impl Iterator<Item = &'s Sketch>,
    text: &impl Fn(PairId) -> Option<(&'a str, &'a str)>,
    hash_of_pair: &impl Fn(PairId) -> u64,
) -> Gains<'a> {
    let (mut sums, mut others_max) = (BTreeMap::<u64, Sum>::new(), 0);
    for sketch in sketches {
        others_max += u64::from(sketch.floor);
        for Counter { hash, pair, count, error } in &sketch.counters {
            let hash = hash.unwrap_or_else(|| hash_of_pair(*pair));
            let sum = sums.entry(hash).or_default();
            sum.most += u64::from(*count);
            sum.least += u64::from(count - error);
            sum.floors += u64::from(sketch.floor);
            sum.pair = *pair; // the number in the newest bucket, which comes last
        }
    }
    let gain = |(hash, sum): (u64, Sum)| {
        // the pair may be gone, and its number reused
        let (name, value) = text(sum.pair)?;
        let most = sum.most + others_max - sum.floors;
        (hash_of_pair(sum.pair) == hash).then_some(Gain { name, value, least: sum.least, most })
    };
    Gains { gains: sums.into_iter().filter_map(gain).collect(), others_max }
}

/// Sums for one pair, over the buckets that have a counter for it.
#[derive(Debug, Default)]
struct Sum {
    most: u64,
    least: u64,
    floors: u64,
    pair: PairId,
}

#[derive(Debug, Default)]
struct Sketch {
    counters: Vec<Counter>,
    /// Finds a counter by the number of its pair. The entries are positions in `counters`, without the
    /// counters that identify their pair by hash.
    positions: HashTable<u32>,
    /// Number of counters that identify their pair by hash.
    left: usize,
    /// All counters have at least this value. A pair without a counter was added at most this many times.
    floor: u32,
    /// Position at which the search for the lowest counter continues.
    next: usize,
}

#[derive(Debug)]
struct Counter {
    /// Hash of the pair's text, if the counter identifies the pair by hash.
    hash: Option<u64>,
    /// Number of the pair. If the counter has a hash, this number may identify another pair by now.
    pair: PairId,
    count: u32,
    error: u32,
}

impl Sketch {
    #[inline]
    fn add<const MOST: usize>(&mut self, pair: PairId, hash: &impl Fn(PairId) -> u64) {
        match self.position(pair) {
            Some(position) => {
                let count = &mut self.counters[position].count;
                *count = count.saturating_add(1);
            }
            None => self.add_counter::<MOST>(pair, hash),
        }
    }

    /// Position of the counter that identifies this pair by number.
    #[inline]
    fn position(&self, pair: PairId) -> Option<usize> {
        let is_its = |i: &u32| self.counters[*i as usize].pair == pair;
        self.positions.find(spread(pair), is_its).map(|position| *position as usize)
    }

    fn add_counter<const MOST: usize>(&mut self, pair: PairId, hash: &impl Fn(PairId) -> u64) {
        let position = self.back(pair, hash).unwrap_or_else(|| {
            let is_room = self.counters.len() < MOST;
            let (position, error) = if is_room { (self.counters.len(), 0) } else { self.take_lowest() };
            let counter = Counter { hash: None, pair, count: error, error };
            match self.counters.get_mut(position) {
                Some(lowest) => *lowest = counter,
                None => self.counters.push(counter),
            }
            position
        });
        let counters = &mut self.counters;
        counters[position].count = counters[position].count.saturating_add(1);
        let hash_at = |i: &u32| spread(counters[*i as usize].pair);
        self.positions.insert_unique(spread(pair), position as u32, hash_at);
    }

    /// Finds the counter of a pair that came back into memory. From now on, the counter identifies the pair
    /// by number.
    fn back(&mut self, pair: PairId, hash: &impl Fn(PairId) -> u64) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        let hash = Some(hash(pair));
        let position = self.counters.iter().position(|counter| counter.hash == hash)?;
        self.left -= 1;
        let counter = &mut self.counters[position];
        (counter.hash, counter.pair) = (None, pair);
        Some(position)
    }

    /// Takes the lowest counter away from its pair, for another pair. Returns the counter's position and
    /// count.
    fn take_lowest(&mut self) -> (usize, u32) {
        // if no counter has this value any more, the lowest count has risen
        let is_lowest = |counter: &Counter| counter.count == self.floor;
        let (before, after) = self.counters.split_at(self.next);
        let found = after.iter().position(is_lowest).map(|i| self.next + i);
        let position = found.or_else(|| before.iter().position(is_lowest)).unwrap_or_else(|| {
            let lowest = self.counters.iter().enumerate().min_by_key(|(_, counter)| counter.count);
            lowest.expect("BUG: a sketch has no counters").0
        });
        let Counter { hash, pair, count, .. } = self.counters[position];
        (self.floor, self.next) = (count, position + 1);
        match hash {
            Some(_) => self.left -= 1,
            None => self.remove_position(pair, position),
        }
        (position, count)
    }

    fn remove_position(&mut self, pair: PairId, position: usize) {
        let entry = self.positions.find_entry(spread(pair), |i| *i as usize == position);
        entry.expect("BUG: the position of a counter is missing").remove();
    }

    /// The pair leaves memory. From now on, the counter identifies the pair by hash.
    fn forget(&mut self, pair: PairId, hash: &impl Fn() -> u64) {
        let Some(position) = self.position(pair) else { return };
        self.remove_position(pair, position);
        self.counters[position].hash = Some(hash());
        self.left += 1;
    }

    /// The bucket ends. From now on, all counters identify their pairs by hash.
    fn close(&mut self, hash: &impl Fn(PairId) -> u64) {
        for counter in &mut self.counters {
            counter.hash.get_or_insert_with(|| hash(counter.pair));
        }
        self.positions = HashTable::new();
        self.left = self.counters.len();
    }

    fn memory_bytes(&self) -> usize {
        self.counters.capacity() * size_of::<Counter>() + self.positions.allocation_size()
    }
}

/// Hash of a pair's number (Fibonacci hashing).
const fn spread(pair: PairId) -> u64 {
    (pair.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
