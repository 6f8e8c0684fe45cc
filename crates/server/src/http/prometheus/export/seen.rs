//! Set of the series that an export has sent. An export that restarts skips them.

use crate::query_source::Context;
use model::{LabelsRef, SeriesKey};
use std::collections::HashSet;
use stdx::budget::{Account, Reservation};

pub(super) struct SeenSeries {
    keys: HashSet<SeriesKey>,
    seed: u64,
    account: Account,
    /// Reservations for the keys, one per [`SERIES_STEP`] series.
    reservations: Vec<Reservation>,
    /// False once memory did not suffice. The export can no longer skip series.
    is_whole: bool,
}

const SERIES_STEP: usize = 1 << 14;

/// Upper bound on the memory of a series, in bytes: 17, times 8/7 for the load factor, times 3 while the set
/// doubles.
const SERIES_BYTES: u64 = 60;

impl SeenSeries {
    pub(super) fn new(context: &Context) -> Self {
        let (seed, account) = (context.seed, context.answers.clone());
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
