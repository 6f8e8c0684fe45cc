//! Remembers the series that an export has sent, so that the export can skip them if it has to start again.

use model::{LabelsRef, SeriesKey};
use std::collections::HashSet;
use stdx::budget::{Account, Reservation};

pub(super) struct SeenSeries {
    keys: HashSet<SeriesKey>,
    seed: u64,
    account: Account,
    /// Reservations for the memory of `keys`. Each is for [`SERIES_STEP`] series.
    reservations: Vec<Reservation>,
    /// False after memory became short. The sent series are then no longer known, and cannot be skipped.
    is_whole: bool,
}

const SERIES_STEP: usize = 1 << 14;

/// Upper bound on the memory of a series: 17 bytes, times 8/7 because the set is never full, times 3 while it
/// doubles.
const SERIES_BYTES: u64 = 60;

impl SeenSeries {
    /// `account` is for answers, because the keys are kept for as long as the client reads.
    pub(super) fn new(seed: u64, account: &Account) -> Self {
        let account = account.clone();
        Self { keys: HashSet::new(), seed, account, reservations: Vec::new(), is_whole: true }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) fn has(&self, labels: LabelsRef<'_>) -> bool {
        self.keys.contains(&SeriesKey::of(labels.as_bytes(), self.seed))
    }

    pub(super) fn add(&mut self, labels: LabelsRef<'_>) {
        if self.is_whole && self.keys.len() == self.reservations.len() * SERIES_STEP {
            match self.account.reserve(SERIES_STEP as u64 * SERIES_BYTES) {
                Ok(reservation) => self.reservations.push(reservation),
                Err(_) => {
                    self.is_whole = false;
                    self.keys = HashSet::new();
                    self.reservations.clear();
                }
            }
        }
        if self.is_whole {
            self.keys.insert(SeriesKey::of(labels.as_bytes(), self.seed));
        }
    }
}
