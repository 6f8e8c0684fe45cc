//! Selects the rows to decode, by the small columns.

use super::stop::Pace;
use super::{Matcher, Select, Stop, row};
use crate::error::TableError;
use crate::kind::metrics;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_array::{ArrayRef, BooleanArray, MapArray, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use model::TimeRange;
use model::labels::METRIC_NAME;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicateFn, RowFilter};
use parquet::file::metadata::ParquetMetaData;
use std::sync::Arc;

/// Returns an empty filter if every row is wanted.
pub(super) fn row_filter(metadata: &ParquetMetaData, select: &Arc<Select>) -> RowFilter {
    let named = select.names.is_some() || select.matchers.iter().any(|m| m.label == METRIC_NAME);
    let wanted = metrics::KEY_COLUMNS.into_iter().filter(|column| match *column {
        metrics::NAME => named,
        metrics::LABELS => select.matchers.iter().any(|m| m.label != METRIC_NAME),
        metrics::SERIES => select.series.is_some(),
        _ => select.range != TimeRange::ALL,
    });
    let wanted: Vec<&str> = wanted.collect();
    if wanted.is_empty() {
        return RowFilter::new(Vec::new());
    }
    let projection = ProjectionMask::columns(metadata.file_metadata().schema_descr(), wanted);
    let select = Arc::clone(select);
    let predicate = ArrowPredicateFn::new(projection, move |batch| matching(&batch, &select));
    RowFilter::new(vec![Box::new(predicate)])
}

/// Marks the wanted rows of a batch. Fails if the read was canceled.
pub(super) fn matching(batch: &RecordBatch, select: &Select) -> Result<BooleanArray, ArrowError> {
    select.stop.check().map_err(interrupted)?;
    let mut keep = vec![true; batch.num_rows()];
    if let Some(column) = batch.column_by_name(metrics::NAME) {
        let names: &StringArray = text(column)?;
        if let Some(wanted) = &select.names {
            retain(&mut keep, |i| Ok(wanted.binary_search_by(|n| n.as_str().cmp(names.value(i))).is_ok()))?;
        }
        for matcher in select.matchers.iter().filter(|m| m.label == METRIC_NAME) {
            let mut test = Remembered::new(matcher, &select.stop);
            retain(&mut keep, |i| test.passes(names.value(i)))?;
        }
    }
    if let Some((wanted, column)) = select.series.as_ref().zip(batch.column_by_name(metrics::SERIES)) {
        let column = column.as_binary_opt::<i32>().ok_or_else(unexpected)?;
        retain(&mut keep, |i| Ok(row::key(column.value(i)).is_some_and(|key| wanted.contains(&key))))?;
    }
    if let Some((start, end)) = batch.column_by_name(metrics::START).zip(batch.column_by_name(metrics::END)) {
        let start = start.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(unexpected)?;
        let end = end.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(unexpected)?;
        let TimeRange { start_ms, end_ms } = select.range;
        retain(&mut keep, |i| Ok(start.value(i) <= end_ms && end.value(i) >= start_ms))?;
    }
    if let Some(column) = batch.column_by_name(metrics::LABELS) {
        let labels = column.as_map_opt().ok_or_else(unexpected)?;
        for matcher in select.matchers.iter().filter(|m| m.label != METRIC_NAME) {
            match_label(labels, matcher, &select.stop, &mut keep)?;
        }
    }
    Ok(BooleanArray::from(keep))
}

fn retain(
    keep: &mut [bool],
    mut test: impl FnMut(usize) -> Result<bool, ArrowError>,
) -> Result<(), ArrowError> {
    for (i, keep) in keep.iter_mut().enumerate().filter(|(_, keep)| **keep) {
        *keep = test(i)?;
    }
    Ok(())
}

fn match_label(
    labels: &MapArray,
    matcher: &Matcher,
    stop: &Stop,
    keep: &mut [bool],
) -> Result<(), ArrowError> {
    let (keys, values) = (text(labels.keys())?, text(labels.values())?);
    let offsets = labels.value_offsets();
    let mut test = Remembered::new(matcher, stop);
    retain(keep, |i| {
        let mut entries = offsets[i] as usize..offsets[i + 1] as usize;
        let entry = entries.find(|e| keys.value(*e) == matcher.label);
        test.passes(entry.map_or("", |entry| values.value(entry)))
    })
}

/// A matcher with the last value that it tested and the result. Neighbouring rows often have equal values, and regular
/// expressions are slow.
struct Remembered<'a> {
    matcher: &'a Matcher,
    stop: &'a Stop,
    pace: Pace,
    last: Option<(String, bool)>,
}

impl<'a> Remembered<'a> {
    fn new(matcher: &'a Matcher, stop: &'a Stop) -> Self {
        Self { matcher, stop, pace: Pace::default(), last: None }
    }

    fn passes(&mut self, value: &str) -> Result<bool, ArrowError> {
        match &mut self.last {
            Some((last, passes)) if last == value => Ok(*passes),
            last => {
                self.pace.check(self.stop, value.len()).map_err(interrupted)?;
                let passes = (self.matcher.test)(value);
                *last = Some((value.into(), passes));
                Ok(passes)
            }
        }
    }
}

fn text(column: &ArrayRef) -> Result<&StringArray, ArrowError> {
    column.as_string_opt().ok_or_else(unexpected)
}

fn interrupted(error: TableError) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

fn unexpected() -> ArrowError {
    ArrowError::SchemaError("a column has an unexpected type".into())
}
