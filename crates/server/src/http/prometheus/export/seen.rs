//! Remembers the series that an export has sent, so that the export can skip them if it has to start again.

use model::{LabelsRef, SeriesKey};
use std::collections::HashSet;
use stdx::budget::{Account, Reservation};

/// Half of each series' key is kept. Among ten million series, two have the same half with a probability of three in a million.
pub(super) struct SeenSeries {
    /// The last keys. When they are many, they become a run.
    recent: HashSet<u64>,
    recent_max: usize,
    /// Sorted keys.
    runs: Vec<Vec<u64>>,
    len: usize,
    seed: u64,
    account: Account,
    memory: Option<Reservation>,
    /// False after memory became short. The sent series are then no longer known, and cannot be skipped.
    is_whole: bool,
}

/// Smallest number of keys in a run.
const RUN_KEYS_MIN: usize = 1 << 12;

/// A run has at least this part of the keys before it, so that there are few runs.
const RUN_PART: usize = 16;

const KEY_BYTES: usize = size_of::<u64>();

/// Upper bound on the memory of a recent key: 9 bytes, times 8/7 because the set is never full, times 2 because its size is a power
/// of two; and its place in the run that it becomes part of.
const RECENT_BYTES: usize = 21 + KEY_BYTES;

impl SeenSeries {
    /// `account` is for answers, because the keys are kept for as long as the client reads.
    pub(super) fn new(seed: u64, account: &Account) -> Self {
        Self {
            recent: HashSet::new(),
            recent_max: 0,
            runs: Vec::new(),
            len: 0,
            seed,
            account: account.clone(),
            memory: account.reserve(0).ok(),
            is_whole: true,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn has(&self, labels: LabelsRef<'_>) -> bool {
        let key = self.key(labels);
        self.recent.contains(&key) || self.runs.iter().any(|run| run.binary_search(&key).is_ok())
    }

    pub(super) fn add(&mut self, labels: LabelsRef<'_>) {
        if self.is_whole && self.recent.len() == self.recent_max {
            self.begin_run();
        }
        if self.is_whole {
            self.len += usize::from(self.recent.insert(self.key(labels)));
        }
    }

    fn key(&self, labels: LabelsRef<'_>) -> u64 {
        SeriesKey::of(labels.as_bytes(), self.seed).0 as u64
    }

    /// Makes a run of the recent keys, and room for further ones.
    fn begin_run(&mut self) {
        let recent_max = RUN_KEYS_MIN.max(self.len / RUN_PART);
        let bytes = self.len * KEY_BYTES + recent_max.max(self.recent.len()) * RECENT_BYTES;
        if self.memory.as_mut().is_none_or(|memory| memory.resize(bytes as u64).is_err()) {
            *self = Self { is_whole: false, ..Self::new(self.seed, &self.account) };
            return;
        }
        let mut run: Vec<u64> = std::mem::take(&mut self.recent).into_iter().collect();
        if !run.is_empty() {
            run.sort_unstable();
            self.runs.push(run);
        }
        (self.recent, self.recent_max) = (HashSet::with_capacity(recent_max), recent_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;

    #[test]
    fn many_series_take_little_memory_and_are_known() {
        let (account, own) = (Account::new("answers", 4 << 20), |i: usize| {
            Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())])
        });
        let mut seen = SeenSeries::new(7, &account);
        let mut count = 0;
        while seen.is_whole() {
            assert!(!seen.has(own(count).as_ref()));
            seen.add(own(count).as_ref());
            count += 1;
            if count == 200_000 {
                assert!((0..count).step_by(97).all(|i| seen.has(own(i).as_ref())));
                assert!(seen.runs.len() < 80, "{} runs", seen.runs.len());
                let held = seen.runs.iter().map(|run| run.capacity() * KEY_BYTES).sum::<usize>()
                    + (seen.recent.capacity() * 8 / 7).next_power_of_two() * 9;
                assert!(held as u64 <= account.used_bytes(), "{held} bytes");
            }
        }
        assert!(count > 300_000, "{count} series in 4 MiB");
        assert!(!seen.has(own(0).as_ref()) && account.used_bytes() == 0);
    }
}
