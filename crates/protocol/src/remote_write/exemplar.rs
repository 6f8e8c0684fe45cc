//! Exemplars of all protocols.

use crate::DecodeError;
use crate::labels::{Total, push_text};
use model::caps::EXEMPLAR_LABEL_CHARS_MAX;
use model::{Batch, Exemplar, Labels, LabelsBuilder, SeriesRefusal};
use stdx::budget::IncrementalReservation;

pub(crate) struct ExemplarLabels<'a> {
    builder: &'a mut LabelsBuilder,
    total: Total,
    chars: usize,
    wrong: Result<(), SeriesRefusal>,
}

impl<'a> ExemplarLabels<'a> {
    pub(crate) fn new(builder: &'a mut LabelsBuilder) -> Self {
        builder.clear();
        Self { builder, total: Total::default(), chars: 0, wrong: Ok(()) }
    }

    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        if self.wrong.is_ok() {
            let Self { builder, total, chars, .. } = self;
            *chars += char_count(name) + char_count(value);
            let counted = total.add(name, value).and_then(|()| total.check()).and_then(|()| check(*chars));
            self.wrong = counted.and_then(|()| push_text(name, value, builder));
        }
    }

    pub(super) fn fail(&mut self, error: SeriesRefusal) {
        self.wrong = Err(error);
    }

    /// Adds the exemplar to the series that will be appended to `batch` next. If its labels are invalid, it
    /// is only counted.
    pub(super) fn keep(
        self,
        timestamp_ms: i64,
        value: f64,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        match self.finish(timestamp_ms, value) {
            Some(exemplar) => {
                reservation.reserve(exemplar.labels.as_bytes().len())?;
                let series = batch.floats.series.len() as u32;
                reservation.push(&mut batch.floats.exemplars, (series, exemplar))?;
            }
            None => batch.refused_exemplars += 1,
        }
        Ok(())
    }

    /// Returns the exemplar, or `None` if its labels are invalid.
    pub(crate) fn finish(self, timestamp_ms: i64, value: f64) -> Option<Exemplar> {
        let labels = self.build().ok()?;
        Some(Exemplar { labels, timestamp_ms, value })
    }

    fn build(self) -> Result<Labels, SeriesRefusal> {
        self.wrong?;
        self.builder.build()
    }
}

/// Counts characters, because that is the unit of the limit in OpenMetrics.
pub(crate) fn char_count(text: &[u8]) -> usize {
    const CONTINUES: u8 = 0b1000_0000;
    text.iter().filter(|byte| **byte & 0b1100_0000 != CONTINUES).count()
}

const fn check(chars: usize) -> Result<(), SeriesRefusal> {
    if chars > EXEMPLAR_LABEL_CHARS_MAX { Err(SeriesRefusal::LabelsTooLong(chars)) } else { Ok(()) }
}
