//! Counts a day's omitted series by metric.

use super::labels_omitted;
use super::writer::Writer;
use crate::date::Date;
use crate::error::TableError;
use model::labels::METRIC_NAME;
use model::{LabelsBuilder, LabelsRef, Samples, SeriesKey};

pub(super) struct OmittedSeries {
    date: Date,
    name: String,
    key: SeriesKey,
    series: u64,
}

impl OmittedSeries {
    pub(super) const fn new(date: Date) -> Self {
        Self { date, name: String::new(), key: SeriesKey(0), series: 0 }
    }

    /// Counts an omitted series. Series must come in table order, because a metric's count is written when the next
    /// metric begins.
    pub(super) fn add(
        &mut self,
        labels: LabelsRef<'_>,
        key: SeriesKey,
        writer: &mut Writer<'_>,
    ) -> Result<(), TableError> {
        let name = labels.get(METRIC_NAME).unwrap_or_default();
        if self.name != name {
            self.end(writer)?;
            (self.name, self.key) = (name.into(), key);
        }
        self.series += 1;
        Ok(())
    }

    /// Writes the current metric's count as a sample at the beginning of the day.
    pub(super) fn end(&mut self, writer: &mut Writer<'_>) -> Result<(), TableError> {
        if self.series == 0 {
            return Ok(());
        }
        let mut samples = Samples::default();
        samples.push(self.date.start_ms(), self.series as f64);
        self.series = 0;
        let labels = labels_omitted(&self.name, &mut LabelsBuilder::new());
        writer.push_omitted(labels, self.key, &samples)
    }
}
