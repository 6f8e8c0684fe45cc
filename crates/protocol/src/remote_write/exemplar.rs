//! Exemplars of both protocol versions.

use crate::DecodeError;
use crate::labels::{Total, push_text};
use model::caps::EXEMPLAR_LABEL_CHARS_MAX;
use model::{Batch, Exemplar, Labels, LabelsBuilder, SeriesRefusal};
use stdx::budget::IncrementalReservation;

pub(super) struct ExemplarLabels<'a> {
    builder: &'a mut LabelsBuilder,
    total: Total,
    chars: usize,
    wrong: Result<(), SeriesRefusal>,
}

impl<'a> ExemplarLabels<'a> {
    pub(super) fn new(builder: &'a mut LabelsBuilder) -> Self {
        builder.clear();
        Self { builder, total: Total::default(), chars: 0, wrong: Ok(()) }
    }

    pub(super) fn push(&mut self, name: &[u8], value: &[u8]) {
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
        match self.build() {
            Ok(labels) => {
                reservation.reserve(labels.as_bytes().len())?;
                let series = batch.floats.series.len() as u32;
                reservation
                    .push(&mut batch.floats.exemplars, (series, Exemplar { labels, timestamp_ms, value }))?;
            }
            Err(_) => batch.refused_exemplars += 1,
        }
        Ok(())
    }

    fn build(self) -> Result<Labels, SeriesRefusal> {
        self.wrong?;
        self.builder.build()
    }
}

/// Counts characters, because that is the unit of the limit in OpenMetrics.
fn char_count(text: &[u8]) -> usize {
    const CONTINUES: u8 = 0b1000_0000;
    text.iter().filter(|byte| **byte & 0b1100_0000 != CONTINUES).count()
}

const fn check(chars: usize) -> Result<(), SeriesRefusal> {
    if chars > EXEMPLAR_LABEL_CHARS_MAX { Err(SeriesRefusal::LabelsTooLong(chars)) } else { Ok(()) }
}
