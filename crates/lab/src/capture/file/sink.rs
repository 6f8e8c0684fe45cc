//! Adds series to what a request contains. Parsers of texts and of OpenTelemetry's points use it: they compose labels, which
//! are not parts of the request as they are.

use super::request::{Parsed, SeriesParts};
use anyhow::{Result, ensure};
use model::caps;
use model::labels::METRIC_NAME;
use std::ops::Range;

/// Where the name and the value of a label are.
pub(super) type Label = [Range<usize>; 2];

/// Limit on the text of all labels. It is larger than a body, because several series can share a part of their labels.
const TEXT_BYTES_MAX: usize = 2 * caps::BODY_BYTES_MAX;

/// Limit on the labels of all series.
const LABELS_MAX: usize = caps::REQUEST_SYMBOLS_MAX;

/// Where [`Parsed::begin`] puts the name of the label with the metric.
const NAME: Range<usize> = 0..METRIC_NAME.len();

impl Parsed {
    /// Removes the previous content.
    pub(super) fn begin(&mut self) {
        self.clear();
        self.body.clear();
        self.body.extend_from_slice(METRIC_NAME.as_bytes());
    }

    /// Keeps a text for labels.
    pub(super) fn put_text(&mut self, parts: &[&[u8]]) -> Result<Range<usize>> {
        let start = self.body.len();
        let bytes = start + parts.iter().map(|part| part.len()).sum::<usize>();
        ensure!(
            bytes <= TEXT_BYTES_MAX,
            "labels of {bytes} bytes in one request, the limit is {TEXT_BYTES_MAX}"
        );
        parts.iter().for_each(|part| self.body.extend_from_slice(part));
        Ok(start..self.body.len())
    }

    pub(super) fn put_label(&mut self, name: &[u8], value: &[u8]) -> Result<Label> {
        Ok([self.put_text(&[name])?, self.put_text(&[value])?])
    }

    /// The label with a metric's name.
    pub(super) fn put_name(&mut self, parts: &[&[u8]]) -> Result<Label> {
        Ok([NAME, self.put_text(parts)?])
    }

    /// Adds a series. Of two labels with the same name, the later one wins.
    pub(super) fn put_series(
        &mut self,
        labels: &[Label],
        samples: impl IntoIterator<Item = (i64, f64)>,
    ) -> Result<()> {
        let (first, begin) = (self.labels.len(), self.samples.len());
        ensure!(
            self.series.len() < caps::REQUEST_SERIES_MAX,
            "the request has more than {} series",
            caps::REQUEST_SERIES_MAX
        );
        ensure!(
            labels.len() <= caps::SERIES_LABELS_MAX && first + labels.len() <= LABELS_MAX,
            "a series has {} labels, the limit is {}, or {LABELS_MAX} for all series",
            labels.len(),
            caps::SERIES_LABELS_MAX
        );
        for (at, [name, value]) in labels.iter().enumerate() {
            let text = &self.body[name.clone()];
            let is_replaced = labels[at + 1..].iter().any(|[later, _]| self.body[later.clone()] == *text);
            if !is_replaced && !value.is_empty() {
                self.labels.push([name.clone(), value.clone()]);
            }
        }
        self.samples.extend(samples.into_iter().map(|(timestamp_ms, value)| (timestamp_ms, value.to_bits())));
        ensure!(
            self.samples.len() <= caps::REQUEST_SAMPLES_MAX,
            "the request has more than {} samples",
            caps::REQUEST_SAMPLES_MAX
        );
        self.series.push(SeriesParts {
            labels: first..self.labels.len(),
            samples: begin..self.samples.len(),
            histograms: 0..0,
        });
        Ok(())
    }
}
