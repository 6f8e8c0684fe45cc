//! Converts decoded batches to rows, and checks them.

use crate::decimal;
use crate::error::TableError;
use crate::kind::metrics;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, Int8Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray};
use model::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::{METRIC_NAME, put_label};
use model::{LabelsRef, Samples, SeriesKey, TimeRange};

pub(super) fn key(bytes: &[u8]) -> Option<SeriesKey> {
    Some(SeriesKey(u128::from_be_bytes(bytes.try_into().ok()?)))
}

pub(super) struct LabelColumns<'a> {
    names: &'a StringArray,
    values: &'a StringArray,
    offsets: &'a [i32],
}

impl<'a> LabelColumns<'a> {
    pub(super) fn of(labels: &'a MapArray) -> Self {
        let (names, values) = (labels.keys().as_string::<i32>(), labels.values().as_string::<i32>());
        Self { names, values, offsets: labels.value_offsets() }
    }

    /// Passes a row's labels, metric name included, to `put` in canonical order.
    pub(super) fn each(
        &self,
        metric: &str,
        row: usize,
        mut put: impl FnMut(&str, &str),
    ) -> Result<(), &'static str> {
        let entries = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        if entries.len() >= SERIES_LABELS_MAX {
            return Err("a series has too many labels");
        }
        check_label(METRIC_NAME.as_bytes(), metric.as_bytes())?;
        let (mut last, mut named) = ("", false);
        for (name, value) in entries.map(|e| (self.names.value(e), self.values.value(e))) {
            if name <= last || name == METRIC_NAME {
                return Err(UNORDERED);
            }
            check_label(name.as_bytes(), value.as_bytes())?;
            if !named && name > METRIC_NAME {
                put(METRIC_NAME, metric);
                named = true;
            }
            put(name, value);
            last = name;
        }
        if !named {
            put(METRIC_NAME, metric);
        }
        Ok(())
    }
}

pub(super) const fn check_label(name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() || value.is_empty() {
        return Err("a label has no name or no value");
    }
    if name.len() > LABEL_NAME_BYTES_MAX || value.len() > LABEL_VALUE_BYTES_MAX {
        return Err("a label is too long");
    }
    Ok(())
}

pub(super) const UNORDERED: &str = "labels are not in order";
pub(super) const UNPAIRED: &str = "the numbers of label names and values differ";
pub(super) const TOO_LONG: &str = "a series' labels are too long";

pub(super) const fn check_length(labels: &[u8]) -> Result<(), &'static str> {
    match labels.len() <= SERIES_LABEL_BYTES_MAX {
        true => Ok(()),
        false => Err(TOO_LONG),
    }
}

/// Checks that rows ascend by labels and time, as merging needs.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: Option<(Vec<u8>, i64)>,
    is_unchecked: bool,
}

impl Order {
    pub(super) const fn unchecked() -> Self {
        Self { last: None, is_unchecked: true }
    }

    pub(super) fn next(&mut self, labels: &[u8], span: TimeRange) -> Result<(), &'static str> {
        if span.start_ms > span.end_ms {
            return Err("a row ends before it starts");
        }
        if self.is_unchecked {
            return Ok(());
        }
        let this = LabelsRef::from_canonical(labels);
        let ordered = self.last.as_ref().is_none_or(|(last, end)| {
            match LabelsRef::from_canonical(last).cmp_in_tables(this) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => *end < span.start_ms,
                std::cmp::Ordering::Greater => false,
            }
        });
        match ordered {
            true => {
                self.pass(labels, span);
                Ok(())
            }
            false => Err("its rows are not in order"),
        }
    }

    /// Notes a row that is known to be in order, so that the next row is compared with it.
    pub(super) fn pass(&mut self, labels: &[u8], span: TimeRange) {
        let (last, end) = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(labels);
        *end = span.end_ms;
    }
}

pub(super) const HALF_A_FORM: &str = "a row has an exponent without a base, or a base without an exponent";

#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// Canonical labels of all rows, and the end of each row's labels.
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
    base: Int64Array,
    mantissas: ListArray,
    floats: ListArray,
}

impl Decoded {
    /// Reads the rows of `batch`, which follow those that `order` has checked.
    pub(super) fn new(
        file: &str,
        batch: &RecordBatch,
        samples: bool,
        order: &mut Order,
    ) -> Result<Self, TableError> {
        let column = |name: &str| {
            let found = batch.column_by_name(name);
            found.ok_or_else(|| TableError::damaged(file, format!("column {name:?} is missing")))
        };
        let damaged = |reason: &str| TableError::damaged(file, reason);
        let series = column(metrics::SERIES)?.as_binary::<i32>();
        let start = column(metrics::START)?.as_primitive::<TimestampMillisecondType>();
        let end = column(metrics::END)?.as_primitive::<TimestampMillisecondType>();
        let names = column(metrics::NAME)?.as_string::<i32>();
        let labels = LabelColumns::of(column(metrics::LABELS)?.as_map());
        let mut decoded = Self::default();
        for row in 0..batch.num_rows() {
            let from = decoded.labels.len();
            labels
                .each(names.value(row), row, |name, value| {
                    put_label(&mut decoded.labels, name.as_bytes(), value.as_bytes());
                })
                .map_err(damaged)?;
            check_length(&decoded.labels[from..]).map_err(damaged)?;
            decoded.ends.push(decoded.labels.len());
            let key = key(series.value(row)).ok_or_else(|| damaged("a series key does not have 16 bytes"))?;
            decoded.keys.push(key);
            let span = TimeRange::new(start.value(row), end.value(row));
            order.next(&decoded.labels[from..], span).map_err(damaged)?;
            decoded.spans.push(span);
        }
        if samples {
            decoded.samples = Some(SampleColumns {
                timestamps: column(metrics::TIMESTAMPS)?.as_list::<i32>().clone(),
                exponent: column(metrics::EXPONENT)?.as_primitive::<Int8Type>().clone(),
                base: column(metrics::BASE)?.as_primitive::<Int64Type>().clone(),
                mantissas: column(metrics::MANTISSAS)?.as_list::<i32>().clone(),
                floats: column(metrics::FLOATS)?.as_list::<i32>().clone(),
            });
        }
        Ok(decoded)
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

    pub(super) fn read(
        &self,
        file: &str,
        row: usize,
        range: TimeRange,
        samples: &mut Samples,
    ) -> Result<(), TableError> {
        let damaged = |reason: &str| TableError::damaged(file, reason);
        let columns = self.samples.as_ref().expect("BUG: the sample columns were not read");
        let list =
            |list: &ListArray| list.value_offsets()[row] as usize..list.value_offsets()[row + 1] as usize;
        let times = columns.timestamps.values().as_primitive::<TimestampMillisecondType>().values();
        let times = &times[list(&columns.timestamps)];
        let span = self.spans[row];
        if times.first() != Some(&span.start_ms) || times.last() != Some(&span.end_ms) {
            return Err(damaged("a row's timestamps do not range from its start to its end"));
        }
        if !times.is_sorted_by(|a, b| a < b) {
            return Err(damaged("a row's timestamps do not ascend"));
        }
        let from = times.partition_point(|t| *t < range.start_ms);
        let to = times.partition_point(|t| *t <= range.end_ms);
        let decimal = columns.exponent.is_valid(row);
        if decimal != columns.base.is_valid(row) {
            return Err(damaged(HALF_A_FORM));
        }
        let values = if decimal { list(&columns.mantissas) } else { list(&columns.floats) };
        if values.len() != times.len() {
            return Err(damaged("the numbers of timestamps and values of a row differ"));
        }
        let wanted = values.start + from..values.start + to.max(from);
        if decimal {
            let mantissas = &columns.mantissas.values().as_primitive::<Int64Type>().values()[wanted];
            let (base, exponent) = (columns.base.value(row), u8::try_from(columns.exponent.value(row)));
            if !exponent.is_ok_and(|exponent| decimal::values(mantissas, base, exponent, &mut samples.values))
            {
                return Err(damaged("a row has an unknown exponent"));
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
