//! Decoded batches as rows, everything in them checked.

use crate::decimal;
use crate::error::TableError;
use crate::schema;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, Int8Array, ListArray, MapArray, RecordBatch, StringArray};
use model::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::{METRIC_NAME, put_label};
use model::{LabelsRef, Samples, SeriesKey, TimeRange};

/// The key in a `series` value.
pub(super) fn key(bytes: &[u8]) -> Option<SeriesKey> {
    Some(SeriesKey(u128::from_be_bytes(bytes.try_into().ok()?)))
}

/// Rows of one batch.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// Canonical labels of all rows, one after the other, and where each ends.
    labels: Vec<u8>,
    ends: Vec<usize>,
    keys: Vec<SeriesKey>,
    spans: Vec<TimeRange>,
    samples: Option<SampleColumns>,
}

#[derive(Debug)]
struct SampleColumns {
    timestamps: ListArray,
    exponent: Int8Array,
    mantissas: ListArray,
    floats: ListArray,
}

impl Decoded {
    pub(super) fn new(file: &str, batch: &RecordBatch, samples: bool) -> Result<Self, TableError> {
        let column = |name: &str| {
            let found = batch.column_by_name(name);
            found.ok_or_else(|| TableError::damaged(file, format!("no column {name:?}")))
        };
        let damaged = |reason: &str| TableError::damaged(file, reason);
        let series = column(schema::SERIES)?.as_binary::<i32>();
        let start = column(schema::START)?.as_primitive::<TimestampMillisecondType>();
        let end = column(schema::END)?.as_primitive::<TimestampMillisecondType>();
        let mut decoded = Self::default();
        decoded
            .put_labels(column(schema::NAME)?.as_string(), column(schema::LABELS)?.as_map())
            .map_err(damaged)?;
        for row in 0..batch.num_rows() {
            decoded
                .keys
                .push(key(series.value(row)).ok_or_else(|| damaged("a series key has not 16 bytes"))?);
            if start.value(row) > end.value(row) {
                return Err(damaged("a row ends before it starts"));
            }
            decoded.spans.push(TimeRange::new(start.value(row), end.value(row)));
        }
        if samples {
            decoded.samples = Some(SampleColumns {
                timestamps: column(schema::TIMESTAMPS)?.as_list::<i32>().clone(),
                exponent: column(schema::EXPONENT)?.as_primitive::<Int8Type>().clone(),
                mantissas: column(schema::MANTISSAS)?.as_list::<i32>().clone(),
                floats: column(schema::FLOATS)?.as_list::<i32>().clone(),
            });
        }
        Ok(decoded)
    }

    /// Puts name and labels together again. They are stored in the order of their names.
    fn put_labels(&mut self, names: &StringArray, labels: &MapArray) -> Result<(), &'static str> {
        let (keys, values) = (labels.keys().as_string::<i32>(), labels.values().as_string::<i32>());
        let offsets = labels.value_offsets();
        for row in 0..names.len() {
            let from = self.labels.len();
            let name = names.value(row);
            let entries = offsets[row] as usize..offsets[row + 1] as usize;
            if entries.len() >= SERIES_LABELS_MAX {
                return Err("a series has too many labels");
            }
            let (mut last, mut named) = ("", false);
            for (key, value) in entries.map(|e| (keys.value(e), values.value(e))) {
                if key <= last || key == METRIC_NAME || value.is_empty() {
                    return Err("labels are not in order");
                }
                if key.len() > LABEL_NAME_BYTES_MAX || value.len() > LABEL_VALUE_BYTES_MAX {
                    return Err("a label is too long");
                }
                if !named && key > METRIC_NAME {
                    self.put_name(name)?;
                    named = true;
                }
                put_label(&mut self.labels, key.as_bytes(), value.as_bytes());
                last = key;
            }
            if !named {
                self.put_name(name)?;
            }
            if self.labels.len() - from > SERIES_LABEL_BYTES_MAX {
                return Err("a series' labels are too long");
            }
            self.ends.push(self.labels.len());
        }
        Ok(())
    }

    fn put_name(&mut self, name: &str) -> Result<(), &'static str> {
        if name.is_empty() || name.len() > LABEL_VALUE_BYTES_MAX {
            return Err("a metric's name is empty or too long");
        }
        put_label(&mut self.labels, METRIC_NAME.as_bytes(), name.as_bytes());
        Ok(())
    }

    pub(super) const fn rows(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn labels(&self, row: usize) -> LabelsRef<'_> {
        let from = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        LabelsRef::from_canonical(&self.labels[from..self.ends[row]])
    }

    pub(super) fn key(&self, row: usize) -> SeriesKey {
        self.keys[row]
    }

    pub(super) fn span(&self, row: usize) -> TimeRange {
        self.spans[row]
    }

    /// Labels and end of the last row.
    pub(super) fn last(&self) -> Option<(Vec<u8>, i64)> {
        let last = self.rows().checked_sub(1)?;
        Some((self.labels(last).as_bytes().to_vec(), self.spans[last].end_ms))
    }

    /// Sees that rows ascend by labels, and those of one series in time: merging relies on it.
    pub(super) fn check_order(&self, file: &str, before: Option<&(Vec<u8>, i64)>) -> Result<(), TableError> {
        let mut last = before.map(|(labels, end)| (LabelsRef::from_canonical(labels), *end));
        for row in 0..self.rows() {
            let (labels, span) = (self.labels(row), self.spans[row]);
            let ordered = last.is_none_or(|(last, end)| match last.cmp_in_tables(labels) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => end < span.start_ms,
                std::cmp::Ordering::Greater => false,
            });
            if !ordered {
                return Err(TableError::damaged(file, "its rows are not in order"));
            }
            last = Some((labels, span.end_ms));
        }
        Ok(())
    }

    /// Appends the samples of a row that lie in `range`.
    pub(super) fn read(
        &self,
        file: &str,
        row: usize,
        range: TimeRange,
        samples: &mut Samples,
    ) -> Result<(), TableError> {
        let damaged = |reason: &str| TableError::damaged(file, reason);
        let columns = self.samples.as_ref().expect("BUG: the sample columns were read");
        let list =
            |list: &ListArray| list.value_offsets()[row] as usize..list.value_offsets()[row + 1] as usize;
        let times = columns.timestamps.values().as_primitive::<TimestampMillisecondType>().values();
        let times = &times[list(&columns.timestamps)];
        let span = self.spans[row];
        if times.first() != Some(&span.start_ms) || times.last() != Some(&span.end_ms) {
            return Err(damaged("a row's timestamps are not from its start to its end"));
        }
        if !times.is_sorted_by(|a, b| a < b) {
            return Err(damaged("a row's timestamps do not ascend"));
        }
        let from = times.partition_point(|t| *t < range.start_ms);
        let to = times.partition_point(|t| *t <= range.end_ms);
        let decimal = columns.exponent.is_valid(row);
        let values = if decimal { list(&columns.mantissas) } else { list(&columns.floats) };
        if values.len() != times.len() {
            return Err(damaged("a row has more timestamps than values, or fewer"));
        }
        let wanted = values.start + from..values.start + to.max(from);
        if decimal {
            let mantissas = &columns.mantissas.values().as_primitive::<Int64Type>().values()[wanted];
            let exponent = u8::try_from(columns.exponent.value(row));
            if !exponent.is_ok_and(|exponent| decimal::values(mantissas, exponent, &mut samples.values)) {
                return Err(damaged("a row has an exponent that is not known"));
            }
        } else {
            let floats = columns.floats.values().as_primitive::<Float64Type>().values();
            samples.values.extend_from_slice(&floats[wanted]);
        }
        samples.timestamps.extend_from_slice(&times[from..to.max(from)]);
        Ok(())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let columns = self.samples.as_ref().map_or(0, |s| {
            s.timestamps.get_array_memory_size()
                + s.mantissas.get_array_memory_size()
                + s.floats.get_array_memory_size()
        });
        columns
            + self.labels.capacity()
            + self.ends.capacity() * 8
            + (self.keys.capacity() + self.spans.capacity()) * 16
    }
}
