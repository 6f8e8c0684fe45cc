//! The records table: its fixed columns and their encodings. [`super::attributes`] are the other columns.
//!
//! | column | encoding | why |
//! | --- | --- | --- |
//! | `stream`, `id` | dictionary | few distinct values |
//! | `time`, `arrival` | delta, no dictionary | almost the same from row to row |
//! | `attributes` | plain | hardly any text occurs twice |
//! | attributes: text, JSON, floats | dictionary, else plain | |
//! | attributes: integers | dictionary, else delta | status codes repeat, counters ascend |

use super::attributes::{AttributeColumn, MAX};
use super::{Coding, Column, FIRST_VERSION, Kind, MergePolicy, Type};
use model::AttributeKind;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

pub const STREAM: &str = "stream";
/// Time of the record, in microseconds.
pub const TIME: &str = "time";
/// Time at which the batch was received, in microseconds.
pub const ARRIVAL: &str = "arrival";
/// Id of the batch, for idempotence; null if it came without one.
pub const ID: &str = "id";
/// JSON object with the attributes that have no column; null if there are none.
pub const ATTRIBUTES: &str = "attributes";

pub static RECORDS: Kind = Kind {
    name: "records",
    version: FIRST_VERSION,
    columns: &COLUMNS,
    sort_key: &[STREAM, TIME],
    time: [TIME, TIME],
    merge: MergePolicy::Disjoint,
};

pub const COLUMNS: [Column; 5] = [
    column(STREAM, Type::Text, Coding::Dictionary, false),
    column(TIME, Type::TimestampMicros, Coding::Delta, false),
    column(ARRIVAL, Type::TimestampMicros, Coding::Delta, false),
    column(ID, Type::Bytes, Coding::Dictionary, true),
    column(ATTRIBUTES, Type::Text, Coding::Plain, true),
];

const fn column(name: &'static str, data_type: Type, encoding: Coding, is_nullable: bool) -> Column {
    Column { name, data_type, is_nullable, since: FIRST_VERSION, encoding, has_bounds: !is_nullable }
}

/// Size of a data page. Rows are larger than those of metrics, and are read in larger portions.
const PAGE_BYTES: usize = 128 << 10;

/// Bounds the memory of the encoder: all columns of a row group together have at most 13 MiB of dictionaries.
const DICTIONARY_BYTES_MAX: usize = 64 << 10;

const _: () = assert!((MAX + COLUMNS.len()) * DICTIONARY_BYTES_MAX <= 13 << 20);

/// How much time the compression may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For files that are merged soon. Level 3, that of the other tables, takes a third more time and saves nothing.
    Fast,
    /// For large files. Takes twice the time of `Fast` and saves 2 to 12 % of the bytes.
    High,
}

impl Effort {
    /// Level of zstd.
    const fn level(self) -> i32 {
        match self {
            Self::Fast => 1,
            Self::High => 6,
        }
    }
}

/// Properties of the encoder of a file with these attributes.
pub(crate) fn writer_properties(attributes: &[AttributeColumn], effort: Effort) -> WriterProperties {
    let zstd = ZstdLevel::try_new(effort.level()).expect("BUG: the compression level of zstd is invalid");
    let mut properties = RECORDS
        .properties()
        .set_compression(Compression::ZSTD(zstd))
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX);
    for column in attributes {
        // the name may have dots, which do not separate names of nested columns
        let path = ColumnPath::new(vec![column.name.to_string()]);
        if column.kind == AttributeKind::Int {
            properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        } else if column.kind == AttributeKind::Json {
            // texts of lists have no useful order
            properties = properties.set_column_statistics_enabled(path, EnabledStatistics::None);
        }
    }
    properties.build()
}
