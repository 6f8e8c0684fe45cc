//! Files in the Delta log: writes and reads `add` actions.

use super::{FileSummary, StagedFile};
use crate::date::Date;
use crate::error::TableError;
use crate::kind::{DATE, Kind};
use crate::live_file::LiveFile;
use crate::store::Location;
use crate::store::names;
use arrow_array::builder::{MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_schema::Field;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::{EngineData, FilteredEngineData, KernelResult};
use model::TimeRange;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

impl LiveFile {
    pub(super) fn staged(file: &StagedFile, sequence: i64) -> Self {
        let FileSummary { date, bytes, rows, name_min, name_max, range, .. } = &file.summary;
        Self {
            path: file.path.clone(),
            is_early: names::is_early(&file.path),
            applied: names::applied(&file.path),
            date: *date,
            bytes: *bytes,
            rows: *rows,
            names: Some((name_min.clone(), name_max.clone())),
            sequence,
            range: TimeRange::new(range.start_ms, (range.end_ms + 1).min(date.end_ms())),
        }
    }
}

pub(super) fn add_files(kind: &Kind, files: &[(&StagedFile, i64)]) -> KernelResult<Box<dyn EngineData>> {
    let modified: Int64Array = files.iter().map(|(_, sequence)| *sequence).collect::<Vec<_>>().into();
    let files: Vec<&StagedFile> = files.iter().map(|(file, _)| *file).collect();
    let files = files.as_slice();
    let path: StringArray = files.iter().map(|f| Some(f.path.as_str())).collect();
    let size: Int64Array = files.iter().map(|f| f.summary.bytes as i64).collect::<Vec<_>>().into();
    let partition = partition_values(files);
    let statistics = statistics(kind, files);
    let field = |name: &str, array: &dyn Array| Field::new(name, array.data_type().clone(), false);
    let fields = vec![
        field("path", &path),
        field("partitionValues", &partition),
        field("size", &size),
        field("modificationTime", &modified),
        Field::new("stats", statistics.data_type().clone(), true),
    ];
    let columns: Vec<ArrayRef> =
        vec![Arc::new(path), partition, Arc::new(size), Arc::new(modified), Arc::new(statistics)];
    let batch = RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(fields)), columns)?;
    Ok(Box::new(ArrowEngineData::new(batch)))
}

fn partition_values(files: &[&StagedFile]) -> ArrayRef {
    let names = MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() };
    let mut builder = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for file in files {
        builder.keys().append_value(DATE);
        builder.values().append_value(file.summary.date.to_string());
        builder.append(true).expect("BUG: the numbers of keys and values differ");
    }
    Arc::new(builder.finish())
}

/// Statistics for the log: each file's row count, and the bounds by which readers exclude files.
fn statistics(kind: &Kind, files: &[&StagedFile]) -> StructArray {
    let rows: Int64Array = files.iter().map(|f| f.summary.rows as i64).collect::<Vec<_>>().into();
    let zeros = || -> ArrayRef { Arc::new(Int64Array::from(vec![0; files.len()])) };
    let times = |of: &dyn Fn(&FileSummary) -> i64, exact: usize| -> ArrayRef {
        let micros = |f: &FileSummary| f.range_us.map_or(of(f).saturating_mul(1000), |range| range[exact]);
        let micros: Vec<i64> = files.iter().map(|f| micros(&f.summary)).collect();
        Arc::new(TimestampMicrosecondArray::from(micros).with_timezone("UTC"))
    };
    let names = |of: &dyn Fn(&StagedFile) -> String| -> ArrayRef {
        Arc::new(files.iter().map(|f| Some(of(f))).collect::<StringArray>())
    };
    // a kind may have one column for both times
    let bounds = |[name, start, end]: [ArrayRef; 3]| -> ArrayRef {
        let mut columns = vec![(kind.leading(), name), (kind.time[0], start)];
        columns.extend(Some((kind.time[1], end)).filter(|_| kind.time[0] != kind.time[1]));
        Arc::new(structure(columns))
    };
    let null_count = bounds([zeros(), zeros(), zeros()]);
    let min = bounds([
        names(&|f| f.summary.name_min.clone()),
        times(&|f| f.range.start_ms, 0),
        times(&|f| f.end_min_ms, 0),
    ]);
    let max = bounds([
        names(&|f| f.summary.name_max.clone()),
        times(&|f| f.start_max_ms, 1),
        times(&|f| f.range.end_ms, 1),
    ]);
    let tight: ArrayRef = Arc::new(BooleanArray::from(vec![true; files.len()]));
    structure(vec![
        ("numRecords", Arc::new(rows) as ArrayRef),
        ("nullCount", null_count),
        ("minValues", min),
        ("maxValues", max),
        ("tightBounds", tight),
    ])
}

fn structure(columns: Vec<(&str, ArrayRef)>) -> StructArray {
    let columns = columns
        .into_iter()
        .map(|(name, array)| (Arc::new(Field::new(name, array.data_type().clone(), true)), array));
    StructArray::from(columns.collect::<Vec<_>>())
}

/// Appends the live files of one batch, which the Delta library returns when it reads the log.
pub(super) fn live_files(
    kind: &Kind,
    location: &Location,
    batch: &FilteredEngineData,
    files: &mut Vec<LiveFile>,
) -> Result<(), TableError> {
    let bad = |reason: &str| TableError::Log { table: location.url().to_string(), reason: reason.into() };
    let rows = Rows::of(batch.data()).ok_or_else(|| bad("its list of files has unexpected columns"))?;
    for row in (0..rows.path.len()).filter(|row| selected(batch.selection_vector(), *row)) {
        let path = rows.path.value(row);
        if rows.deletions.is_some_and(|d| d.is_valid(row)) {
            let reason = format!("another program deleted rows of file {path}");
            return Err(TableError::Foreign { table: location.url().to_string(), reason });
        }
        let date = rows.date(row).ok_or_else(|| bad(&format!("file {path} has no date")))?;
        let statistics = match rows.stats.is_valid(row) {
            true => serde_json::from_str(rows.stats.value(row)).unwrap_or(Value::Null),
            false => Value::Null,
        };
        files.push(LiveFile {
            path: path.into(),
            is_early: names::is_early(path),
            applied: names::applied(path),
            date,
            bytes: u64::try_from(rows.size.value(row)).unwrap_or(0),
            sequence: rows.modified.value(row),
            rows: statistics["numRecords"].as_u64().unwrap_or(0),
            names: names(kind, &statistics),
            range: range(kind, &statistics, date),
        });
    }
    Ok(())
}

/// Deselects all files of the batch except the `wanted` ones. Returns how many stay selected.
pub(super) fn only(
    batch: FilteredEngineData,
    wanted: &HashSet<&str>,
) -> KernelResult<(FilteredEngineData, usize)> {
    let (data, selection) = batch.into_parts();
    let rows = Rows::of(data.as_ref());
    let keep: Vec<bool> = (0..data.len())
        .map(|row| {
            selected(&selection, row)
                && rows.as_ref().is_some_and(|rows| wanted.contains(rows.path.value(row)))
        })
        .collect();
    let files = keep.iter().filter(|keep| **keep).count();
    Ok((FilteredEngineData::try_new(data, keep)?, files))
}

/// True if the row is part of the selection, which may be shorter than the batch: rows beyond its end are selected.
fn selected(selection: &[bool], row: usize) -> bool {
    selection.get(row).copied().unwrap_or(true)
}

struct Rows<'a> {
    path: &'a StringArray,
    size: &'a arrow_array::PrimitiveArray<Int64Type>,
    modified: &'a arrow_array::PrimitiveArray<Int64Type>,
    stats: &'a StringArray,
    deletions: Option<&'a ArrayRef>,
    partition: &'a arrow_array::MapArray,
}

impl<'a> Rows<'a> {
    fn of(data: &'a dyn EngineData) -> Option<Self> {
        let batch = data.any_ref().downcast_ref::<ArrowEngineData>()?.record_batch();
        let constants = batch.column_by_name("fileConstantValues")?.as_struct_opt()?;
        Some(Self {
            path: batch.column_by_name("path")?.as_string_opt()?,
            size: batch.column_by_name("size")?.as_primitive_opt()?,
            modified: batch.column_by_name("modificationTime")?.as_primitive_opt()?,
            stats: batch.column_by_name("stats")?.as_string_opt()?,
            deletions: batch.column_by_name("deletionVector"),
            partition: constants.column_by_name("partitionValues")?.as_map_opt()?,
        })
    }

    fn date(&self, row: usize) -> Option<Date> {
        let entries = self.partition.value(row);
        let [keys, values] = entries.columns() else { return None };
        let (keys, values) = (keys.as_string_opt::<i32>()?, values.as_string_opt::<i32>()?);
        let at = (0..keys.len()).find(|i| keys.value(*i) == DATE)?;
        if values.is_valid(at) { Date::parse(values.value(at)) } else { None }
    }
}

fn names(kind: &Kind, statistics: &Value) -> Option<(String, String)> {
    let bound = |of: &str| statistics[of][kind.leading()].as_str();
    Some((bound("minValues")?.into(), bound("maxValues")?.into()))
}

fn range(kind: &Kind, statistics: &Value, date: Date) -> TimeRange {
    let time = |of: &str, column: &str| statistics[of][column].as_str().and_then(|t| time_ms(t, date));
    let start_ms = time("minValues", kind.time[0]).unwrap_or(date.start_ms());
    // adds a millisecond, because the log may have cut off microseconds
    let end_ms = time("maxValues", kind.time[1]).map_or(date.end_ms(), |end| end.saturating_add(1));
    TimeRange::new(start_ms, end_ms.min(date.end_ms()))
}

/// A time of `date` in the log's form `2026-11-21T16:00:00.123Z`, with any digits of fraction. Returns `None` for other
/// forms: the file must be read.
fn time_ms(text: &str, date: Date) -> Option<i64> {
    let time = text.strip_prefix(&date.to_string())?.strip_prefix('T')?;
    let time = time.strip_suffix('Z').or_else(|| time.strip_suffix("+00:00"))?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = clock.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let millis: String = fraction.chars().chain("000".chars()).take(3).collect();
    let millis: i64 = millis.parse().ok()?;
    Some(date.start_ms() + ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis)
}
