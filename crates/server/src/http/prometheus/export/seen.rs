//! Set of the series that an export has sent.

use crate::query_source::Context;
use model::{LabelsRef, SeriesKey};
use std::collections::HashSet;
use stdx::budget::{Account, Reservation};

/// Series already sent: one that moves from memory into tables during an export must not be sent again.
pub(super) struct SeenSeries {
    keys: HashSet<SeriesKey>,
    seed: u64,
    account: Account,
    /// Memory for the keys, one reservation per [`SERIES_STEP`] series.
    bought: Vec<Reservation>,
    /// False if memory did not suffice for all keys: then an export that restarts cannot skip the series already sent.
    is_whole: bool,
}

/// Series per reservation, and the maximum memory of one: a full hash set doubles, and the old and the new one exist at the
/// same time (17 bytes each, 8/7 of what is used, three times over).
const SERIES_STEP: usize = 1 << 14;

const SERIES_BYTES: u64 = 60;

impl SeenSeries {
    pub(super) fn new(context: &Context) -> Self {
        let (seed, account) = (context.seed, context.answers.clone());
        Self { keys: HashSet::new(), seed, account, bought: Vec::new(), is_whole: true }
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
        if self.is_whole && self.keys.len() == self.bought.len() * SERIES_STEP {
            match self.account.reserve(SERIES_STEP as u64 * SERIES_BYTES) {
                Ok(bought) => self.bought.push(bought),
                Err(_) => {
                    self.is_whole = false;
                    self.keys = HashSet::new();
                    self.bought.clear();
                }
            }
        }
        if self.is_whole {
            self.keys.insert(SeriesKey::of(labels.as_bytes(), self.seed));
        }
    }
}
