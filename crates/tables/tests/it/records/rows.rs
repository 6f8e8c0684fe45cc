//! Rows in a form that tests compare.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use model::{AttributeKind, AttributeValue};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tables::kind::attributes::AttributeColumns;

#[derive(Debug, Clone, Eq)]
pub(super) struct Row {
    pub(super) stream: String,
    pub(super) time_us: i64,
    pub(super) arrival_us: i64,
    id: Option<Vec<u8>>,
    /// Values by path and type.
    values: BTreeMap<(String, AttributeKind), String>,
    /// Columns from which values come. Not compared.
    pub(super) columns: BTreeSet<String>,
}

impl Row {
    #[allow(clippy::type_complexity, reason = "only for comparing")]
    fn key(&self) -> (&str, i64, i64, &Option<Vec<u8>>, &BTreeMap<(String, AttributeKind), String>) {
        (&self.stream, self.time_us, self.arrival_us, &self.id, &self.values)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The rows of a batch.
pub(super) fn expected(batch: &tables::write::records::RecordBatch) -> Vec<Row> {
    let row = |time_us: &i64| Row {
        stream: batch.stream.to_string(),
        time_us: *time_us,
        arrival_us: batch.arrival_us,
        id: batch.id.as_ref().map(|id| id.to_vec()),
        values: BTreeMap::new(),
        columns: BTreeSet::new(),
    };
    let mut rows: Vec<Row> = batch.records.times_us.iter().map(row).collect();
    for attribute in &batch.records.attributes {
        for (at, row) in attribute.rows.iter().enumerate() {
            let text = match attribute.values.get(at) {
                AttributeValue::Bool(value) => value.to_string(),
                AttributeValue::Int(value) => value.to_string(),
                AttributeValue::Float(value) => format!("{:x}", value.to_bits()),
                AttributeValue::Text(text) | AttributeValue::Json(text) => text.to_string(),
            };
            let key = (attribute.path.to_string(), attribute.kind());
            rows[*row as usize].values.insert(key, text);
        }
    }
    rows
}

/// A row that was read.
pub(super) fn row(batch: &RecordBatch, at: usize, attributes: &AttributeColumns) -> Row {
    let column =
        |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("there is no column {name}"));
    let time = |name| column(name).as_primitive::<TimestampMicrosecondType>().value(at);
    let id = column("id").as_binary::<i32>();
    let mut row = Row {
        stream: column("stream").as_string::<i32>().value(at).into(),
        time_us: time("time"),
        arrival_us: time("arrival"),
        id: id.is_valid(at).then(|| id.value(at).into()),
        values: BTreeMap::new(),
        columns: BTreeSet::new(),
    };
    for known in attributes.list() {
        // a file may lack the column
        let Some(array) = batch.column_by_name(&known.name).filter(|array| array.is_valid(at)) else {
            continue;
        };
        let text = match known.kind {
            AttributeKind::Bool => array.as_boolean().value(at).to_string(),
            AttributeKind::Int => array.as_primitive::<Int64Type>().value(at).to_string(),
            AttributeKind::Float => format!("{:x}", array.as_primitive::<Float64Type>().value(at).to_bits()),
            AttributeKind::Text | AttributeKind::Json => array.as_string::<i32>().value(at).to_string(),
        };
        row.values.insert((known.path.to_string(), known.kind), text);
        row.columns.insert(known.name.to_string());
    }
    let rest = column("attributes").as_string::<i32>();
    if rest.is_valid(at) {
        add_rest(&mut row, &parse(rest.value(at)));
    }
    row
}

/// Keeps numbers beyond 64 bits apart, which `serde_json` would round.
fn parse(text: &str) -> Value {
    const LARGE: &str = "123456789012345678901234567890";
    serde_json::from_str(&text.replace(&format!(":{LARGE}"), &format!(":[{LARGE:?}]"))).unwrap()
}

fn add_rest(row: &mut Row, rest: &Value) {
    for (key, value) in rest.as_object().expect("the rest is an object") {
        let (kind, text) = match value {
            Value::Bool(value) => (AttributeKind::Bool, value.to_string()),
            Value::Number(number) => match number.as_i64() {
                Some(value) => (AttributeKind::Int, value.to_string()),
                None => (AttributeKind::Float, format!("{:x}", number.as_f64().unwrap().to_bits())),
            },
            Value::String(text) => (AttributeKind::Text, text.clone()),
            Value::Array(list) if list.len() == 1 && list[0].is_string() => {
                (AttributeKind::Json, list[0].as_str().unwrap().to_string())
            }
            other => (AttributeKind::Json, other.to_string()),
        };
        // a second type of the path in one record
        let path = key.strip_suffix(kind.name()).and_then(|key| key.strip_suffix('_')).unwrap_or(key);
        assert!(row.values.insert((path.to_string(), kind), text).is_none(), "{key:?} is there twice");
    }
}

/// The rows of a file, in order.
pub(super) fn rows_of(file: Vec<u8>, attributes: &AttributeColumns) -> Vec<Row> {
    let batches =
        ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap().build().unwrap();
    let batches = batches.map(Result::unwrap);
    batches
        .flat_map(|batch| (0..batch.num_rows()).map(|at| row(&batch, at, attributes)).collect::<Vec<_>>())
        .collect()
}

/// A row that another engine has read.
pub(super) fn of_json(line: &str, attributes: &AttributeColumns) -> Row {
    let json: Value = serde_json::from_str(line).unwrap();
    let hex = |text: &str| {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let mut row = Row {
        stream: json["stream"].as_str().unwrap().into(),
        time_us: json["time"].as_i64().unwrap(),
        arrival_us: json["arrival"].as_i64().unwrap(),
        id: json["id"].as_str().map(hex),
        values: BTreeMap::new(),
        columns: BTreeSet::new(),
    };
    let date = tables::Date::of(row.time_us.div_euclid(1000)).to_string();
    assert_eq!(json["date"], date.as_str());
    for known in attributes.list() {
        let text = match &json[&*known.name] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Number(number) if known.kind == AttributeKind::Float => {
                format!("{:x}", number.as_f64().unwrap().to_bits())
            }
            other => other.to_string(),
        };
        row.values.insert((known.path.to_string(), known.kind), text);
    }
    if !json["attributes"].is_null() {
        add_rest(&mut row, &json["attributes"]);
    }
    row
}
