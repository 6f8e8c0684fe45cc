//! A series on its way from storage, or from one operation, to the next operation.

use super::QueryError;
use super::float::is_present;
use super::label_set::{is_metadata, keep_into};
use model::{Labels, LabelsRef};

/// Gives the labels of a row. Storage reads them only if an operation needs them.
pub(super) trait RowLabels {
    fn get(&mut self) -> LabelsRef<'_>;
}

impl RowLabels for Labels {
    fn get(&mut self) -> LabelsRef<'_> {
        self.as_ref()
    }
}

/// One series, with a value or absence for each step.
pub(super) struct Row<'r> {
    pub(super) labels: &'r mut dyn RowLabels,
    /// True if the metric name is dropped, although `labels` still has it.
    pub(super) strip: bool,
    /// True if the name is dropped at the end of the evaluation.
    pub(super) drop_name: bool,
    pub(super) values: &'r mut [f64],
}

pub(super) type Sink<'s> = dyn FnMut(Row<'_>) -> Result<(), QueryError> + 's;

impl<'r> Row<'r> {
    /// The labels after all operations so far. They are written to `buffer` if they differ from the series'
    /// own.
    pub(super) fn labels<'b>(&'b mut self, buffer: &'b mut Vec<u8>) -> LabelsRef<'b> {
        let labels = self.labels.get();
        if !self.strip {
            return labels;
        }
        buffer.clear();
        keep_into(buffer, labels, |name| !is_metadata(name));
        LabelsRef::from_canonical(buffer)
    }

    pub(super) fn into_name(mut self) -> (RowName, &'r [f64]) {
        let mut buffer = Vec::new();
        let labels = self.labels(&mut buffer).to_owned();
        (RowName { labels, drop_name: self.drop_name }, self.values)
    }

    pub(super) fn with_values<'s>(self, values: &'s mut [f64]) -> Row<'s>
    where
        'r: 's,
    {
        Row { labels: self.labels, strip: self.strip, drop_name: self.drop_name, values }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.values.iter().copied().any(is_present)
    }

    /// Drops the metric name, now or at the end of the evaluation.
    pub(super) fn without_name(&mut self, delayed: bool) {
        if delayed {
            self.drop_name = true;
        } else {
            self.strip = true;
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct RowName {
    pub(super) labels: Labels,
    pub(super) drop_name: bool,
}
