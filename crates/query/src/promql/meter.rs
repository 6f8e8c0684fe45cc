//! Memory limit and cancellation of an evaluation.

use super::{Options, QueryError};
use crate::interrupt::Interrupt;
use crate::usage::Usage;
use model::LabelsRef;
use std::cell::Cell;

/// Charge for a series in memory, without its labels and values. The unit is a value of 16 bytes.
pub(super) const SERIES_VALUES: usize = 12;

/// Size of a value: a timestamp and a number.
pub(crate) const VALUE_BYTES: usize = 16;

/// Counts the values that an evaluation holds, and fails beyond the limit or after cancellation.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    held: Cell<u64>,
    max: u64,
    canceled: &'a dyn Interrupt,
    usage: Option<&'a Usage>,
}

impl<'a> Meter<'a> {
    pub(super) const fn new(options: &Options<'a>) -> Self {
        let Options { samples_max: max, canceled, usage, .. } = *options;
        Self { held: Cell::new(0), max, canceled, usage }
    }

    /// Fails once the query is canceled. Each loop whose length depends on the request calls it.
    #[inline]
    pub(super) fn check(&self) -> Result<(), QueryError> {
        if self.canceled.is_set() { Err(QueryError::Canceled) } else { Ok(()) }
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    pub(super) const fn left(&self) -> u64 {
        self.max.saturating_sub(self.held.get())
    }

    pub(super) const fn charge(&self) -> Charge<'_> {
        Charge { meter: self, values: 0 }
    }

    fn set_held(&self, values: u64) {
        self.held.set(values);
        if let Some(usage) = self.usage {
            usage.hold(values * VALUE_BYTES as u64);
        }
    }

    pub(super) fn count_samples(&self, samples: usize) {
        if let Some(usage) = self.usage {
            usage.read(samples as u64);
        }
    }

    const fn would_exceed(&self, values: u64) -> bool {
        self.held.get().saturating_add(values) > self.max
    }
}

/// Memory that an evaluation is charged for, counted in values. Dropping the charge gives it back.
#[derive(Debug)]
pub(super) struct Charge<'m> {
    pub(super) meter: &'m Meter<'m>,
    values: u64,
}

impl<'m> Charge<'m> {
    pub(super) const fn values(&self) -> u64 {
        self.values
    }

    /// Charges `values` more. Call it before they are allocated.
    pub(super) fn add(&mut self, values: usize) -> Result<(), QueryError> {
        let values = values as u64;
        if self.meter.would_exceed(values) {
            return Err(QueryError::TooLarge);
        }
        self.meter.set_held(self.meter.held.get() + values);
        self.values += values;
        Ok(())
    }

    pub(super) fn add_bytes(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.add(bytes.div_ceil(VALUE_BYTES))
    }

    /// Charges a series and its labels, without its values.
    pub(super) fn add_series(&mut self, labels: LabelsRef<'_>) -> Result<(), QueryError> {
        self.add(SERIES_VALUES + labels.as_bytes().len().div_ceil(8))
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.meter.set_held(self.meter.held.get() - self.values);
    }
}
