//! The columns of the metrics table, and why they are stored as they are.
//!
//! A row is one series over one stretch of one day. Labels are stored once for all its samples, and the
//! samples are lists, so that any engine gets plain rows by one `UNNEST`.
//!
//! | column | encoding | why |
//! | --- | --- | --- |
//! | `name`, keys and values of `labels` | dictionary | few distinct ones, in sorted order |
//! | `series` | plain, no dictionary | a hash has no pattern |
//! | `start`, `end`, `count` | delta | almost the same from row to row |
//! | `timestamps`, `mantissas` | delta, no dictionary | differences are small; a dictionary of them is not |
//! | `exponent` | dictionary | a handful of values |
//! | `base` | delta, no dictionary | no two rows share one |
//! | `floats` | dictionary, else plain | staleness markers repeat; engines differ on byte-stream-split |
//!
//! `date` is a partition column: it is in the path and in the log, not in the file.
//!
//! Data pages are of version 1 although the encodings are of version 2: version 2 leaves the levels of lists
//! uncompressed, and they are nothing but runs. Statistics and page indexes are kept for the columns that
//! can exclude rows (`name`, `series`, `start`, `end`); those of list elements would say what `start` and
//! `end` say.

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use std::sync::Arc;

/// The partition column.
pub const DATE: &str = "date";
/// The metric's name.
pub const NAME: &str = "name";
/// The other labels.
pub const LABELS: &str = "labels";
/// The 128-bit key of the series, big-endian.
pub const SERIES: &str = "series";
/// Time of the first sample.
pub const START: &str = "start";
/// Time of the last sample.
pub const END: &str = "end";
/// Samples in the row.
pub const COUNT: &str = "count";
/// Times of the samples, ascending.
pub const TIMESTAMPS: &str = "timestamps";
/// The power of ten under the mantissas; null where `floats` is used.
pub const EXPONENT: &str = "exponent";
/// What is to be added to the mantissas of a row; null where `floats` is used.
pub const BASE: &str = "base";
/// Values times `10^exponent`, less `base`.
pub const MANTISSAS: &str = "mantissas";
/// Values that have no exact decimal form.
pub const FLOATS: &str = "floats";

/// The columns that say which series a row is of, and when.
pub(crate) const KEY_COLUMNS: [&str; 5] = [NAME, LABELS, SERIES, START, END];

/// Version of this layout, kept in each file under [`FORMAT_KEY`].
pub const FORMAT_VERSION: &str = "2";
/// Who wrote a file, in its metadata.
pub const CREATED_BY: &str = "floodmark";
/// Key of [`FORMAT_VERSION`] in a file's metadata.
pub const FORMAT_KEY: &str = "floodmark.format";

/// zstd's own default. Measured on the mix of the size benchmark, level 9 saves 2 % and takes four times
/// as long.
const ZSTD_LEVEL: i32 = 3;

/// A page is what a selective read fetches and decodes at least: some 30,000 samples.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// Distinct label values before a column chunk falls back to plain text.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// A column of a day's file.
pub(crate) fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

/// A list's element: never null.
pub(crate) fn element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("element", data_type, false))
}

/// Keys and values of the labels.
pub(crate) fn label_entries() -> FieldRef {
    let fields = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)];
    Arc::new(Field::new("key_value", DataType::Struct(fields.into()), false))
}

/// What a file holds: all columns but the partition column.
pub fn file_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(NAME, DataType::Utf8, false),
        Field::new(LABELS, DataType::Map(label_entries(), false), false),
        Field::new(SERIES, DataType::Binary, false),
        Field::new(START, timestamp(), false),
        Field::new(END, timestamp(), false),
        Field::new(COUNT, DataType::Int32, false),
        Field::new(TIMESTAMPS, DataType::List(element(timestamp())), false),
        Field::new(EXPONENT, DataType::Int8, true),
        Field::new(BASE, DataType::Int64, true),
        Field::new(MANTISSAS, DataType::List(element(DataType::Int64)), true),
        Field::new(FLOATS, DataType::List(element(DataType::Float64)), true),
    ]))
}

/// How a file is written.
pub(crate) fn writer_properties() -> WriterProperties {
    let leaf = |list: &str| ColumnPath::new(vec![list.into(), "list".into(), "element".into()]);
    let label = |part: &str| ColumnPath::new(vec![LABELS.into(), "key_value".into(), part.into()]);
    let zstd = ZstdLevel::try_new(ZSTD_LEVEL).expect("BUG: the level of zstd is valid");
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(zstd))
        .set_created_by(CREATED_BY.into())
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_statistics_enabled(EnabledStatistics::Page)
        // the writer decides by bytes, not by rows
        .set_max_row_group_row_count(None)
        .set_key_value_metadata(Some(vec![KeyValue::new(FORMAT_KEY.into(), FORMAT_VERSION.to_string())]));
    for column in [leaf(TIMESTAMPS), leaf(MANTISSAS), START.into(), END.into(), COUNT.into(), BASE.into()] {
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    properties = properties.set_column_dictionary_enabled(SERIES.into(), false);
    for column in [
        leaf(TIMESTAMPS),
        leaf(MANTISSAS),
        leaf(FLOATS),
        label("key"),
        label("value"),
        COUNT.into(),
        EXPONENT.into(),
        BASE.into(),
    ] {
        properties = properties.set_column_statistics_enabled(column, EnabledStatistics::None);
    }
    properties.build()
}
