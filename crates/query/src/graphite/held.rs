//! Series that a function holds, with the charge for their memory.

use super::Series;
use crate::QueryError;
use crate::meter::{Charge, Meter};
use std::ops::{Deref, DerefMut};

/// Series in memory. They are charged until the list is dropped or the series are given away.
#[derive(Debug)]
pub(super) struct Held<'m> {
    series: Vec<Series>,
    charge: Charge<'m>,
}

impl<'m> Held<'m> {
    pub(super) const fn new(meter: &'m Meter<'m>) -> Self {
        Self { series: Vec::new(), charge: meter.charge() }
    }

    pub(super) fn push(&mut self, series: Series) -> Result<(), QueryError> {
        self.charge.add_bytes(series.bytes())?;
        self.series.push(series);
        Ok(())
    }

    /// Passes the series on, each without its charge, because the receiver charges what it holds.
    pub(super) fn drain(
        mut self,
        mut sink: impl FnMut(Series) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        for series in std::mem::take(&mut self.series) {
            self.charge.give_back(series.bytes());
            self.charge.check()?;
            sink(series)?;
        }
        Ok(())
    }

    /// Drops all but the first `len` series.
    pub(super) fn truncate(&mut self, len: usize) {
        for series in self.series.drain(len.min(self.series.len())..) {
            self.charge.give_back(series.bytes());
        }
    }

    /// Takes the series out. They stay charged until the list is dropped.
    pub(super) fn take(&mut self) -> Vec<Series> {
        std::mem::take(&mut self.series)
    }

    pub(super) fn into_series(self) -> Vec<Series> {
        self.series
    }
}

impl Deref for Held<'_> {
    type Target = Vec<Series>;

    fn deref(&self) -> &Vec<Series> {
        &self.series
    }
}

/// Functions may change, sort and remove series. What they add is charged with [`Held::push`].
impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Vec<Series> {
        &mut self.series
    }
}
