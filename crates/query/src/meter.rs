//! Memory limit and cancellation of an evaluation.

use crate::QueryError;
use crate::interrupt::Interrupt;
use crate::usage::Usage;
use model::LabelsRef;
use std::cell::Cell;

/// Charge for a series in memory, without its labels and values. The unit is a value of 16 bytes.
pub(crate) const SERIES_VALUES: usize = 12;

/// Size of a value: a timestamp and a number.
pub(crate) const VALUE_BYTES: usize = 16;

/// Number of values that may be computed without asking whether the query is canceled. The slowest computation of a value,
/// rounding its decimal digits, takes a few microseconds.
pub(crate) const VALUES_PER_CHECK: usize = 1 << 13;

/// Counts the values that an evaluation holds, and fails beyond the limit or after cancellation.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    held: Cell<u64>,
    max: u64,
    canceled: &'a dyn Interrupt,
    usage: Option<&'a Usage>,
}

impl<'a> Meter<'a> {
    /// `max` is the number of values that may be held at once.
    pub(crate) const fn new(max: u64, canceled: &'a dyn Interrupt, usage: Option<&'a Usage>) -> Self {
        Self { held: Cell::new(0), max, canceled, usage }
    }

    /// Fails once the query is canceled. Each loop whose length depends on the request calls it.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        if self.canceled.is_set() { Err(QueryError::Canceled) } else { Ok(()) }
    }

    /// Changes each value. Fails in between once the query is canceled.
    pub(crate) fn change_each(
        &self,
        values: &mut [f64],
        mut change: impl FnMut(&mut f64),
    ) -> Result<(), QueryError> {
        for run in values.chunks_mut(VALUES_PER_CHECK) {
            self.check()?;
            run.iter_mut().for_each(&mut change);
        }
        Ok(())
    }

    /// Computes `count` values, for which the caller has charged. Asks before each run of `per_check` values whether the
    /// query is canceled.
    pub(crate) fn collect(
        &self,
        count: usize,
        per_check: usize,
        mut value_at: impl FnMut(usize) -> f64,
    ) -> Result<Vec<f64>, QueryError> {
        // an iterator of results does not know its length, so collecting it would take twice the memory
        let mut values = Vec::with_capacity(count);
        for place in 0..count {
            if place.is_multiple_of(per_check) {
                self.check()?;
            }
            values.push(value_at(place));
        }
        Ok(values)
    }

    /// Like [`Self::check`], but asks only at each [`VALUES_PER_CHECK`]th place.
    #[inline]
    pub(crate) fn check_at(&self, place: usize) -> Result<(), QueryError> {
        if place.is_multiple_of(VALUES_PER_CHECK) { self.check() } else { Ok(()) }
    }

    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    pub(crate) const fn left(&self) -> u64 {
        self.max.saturating_sub(self.held.get())
    }

    pub(crate) const fn left_bytes(&self) -> u64 {
        self.left().saturating_mul(VALUE_BYTES as u64)
    }

    pub(crate) const fn charge(&self) -> Charge<'_> {
        Charge { meter: self, values: 0 }
    }

    fn set_held(&self, values: u64) {
        self.held.set(values);
        if let Some(usage) = self.usage {
            usage.hold(values * VALUE_BYTES as u64);
        }
    }

    pub(crate) fn count_samples(&self, samples: usize) {
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
pub(crate) struct Charge<'m> {
    pub(crate) meter: &'m Meter<'m>,
    values: u64,
}

impl<'m> Charge<'m> {
    pub(crate) const fn values(&self) -> u64 {
        self.values
    }

    /// Charges `values` more. Call it before they are allocated.
    pub(crate) fn add(&mut self, values: usize) -> Result<(), QueryError> {
        let values = values as u64;
        if self.meter.would_exceed(values) {
            return Err(QueryError::TooLarge);
        }
        self.meter.set_held(self.meter.held.get() + values);
        self.values += values;
        Ok(())
    }

    /// Charges `values` in place of what is charged now.
    pub(crate) fn set(&mut self, values: u64) -> Result<(), QueryError> {
        match values.checked_sub(self.values) {
            Some(more) => self.add(more as usize),
            None => {
                self.meter.set_held(self.meter.held.get() - (self.values - values));
                self.values = values;
                Ok(())
            }
        }
    }

    /// Fails once the query is canceled.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        self.meter.check()
    }

    /// Gives back what [`Self::add_bytes`] charged for as many bytes, or all if less is charged.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let values = self.values.min(bytes.div_ceil(VALUE_BYTES) as u64);
        self.meter.set_held(self.meter.held.get() - values);
        self.values -= values;
    }

    pub(crate) fn add_bytes(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.add(bytes.div_ceil(VALUE_BYTES))
    }

    /// Charges a series and its labels, without its values.
    pub(crate) fn add_series(&mut self, labels: LabelsRef<'_>) -> Result<(), QueryError> {
        self.add(SERIES_VALUES + labels.as_bytes().len().div_ceil(8))
    }

    /// Charges the memory until the end of the evaluation.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.meter.set_held(self.meter.held.get() - self.values);
    }
}
