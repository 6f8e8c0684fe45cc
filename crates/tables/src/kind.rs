//! Kinds of tables: their differences, as data.
//!
//! Commits, floodmarks, sweeps, repair and upkeep have the same code for every kind. This code needs only the columns
//! that a [`Kind`] names: day, times, and first sort column.
//!
//! # Format versions
//!
//! A file states its format version and holds that version's columns. Columns of later versions are nullable, and null
//! for older files. The Delta table gets a new column with the first file that holds the column.
//!
//! A records table has more columns, which are known only at run time: its [`attributes`].

pub mod attributes;
pub mod metrics;
pub mod records;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};
use parquet::schema::types::ColumnPath;
use std::sync::Arc;

/// Partition column: the day of a row in UTC. The file's path and the log have this column, the file does not.
pub const DATE: &str = "date";

pub const CREATED_BY: &str = "floodmark";

/// Key of the format version in a file's metadata.
pub const FORMAT_KEY: &str = "floodmark.format";

/// Key of the sizes of rows' labels in a file's metadata: of the longest, and the mean. Without it, readers would have to decode few
/// rows at a time, because the labels of one row may take 64 KiB.
pub const LABELS_KEY: &str = "floodmark.label_bytes";

/// First released format version. All files have its columns.
pub const FIRST_VERSION: u32 = 2;

/// Compression level: zstd's default. Level 9 saves 2 % of the size benchmark's `mix`, but takes four times as long.
const ZSTD_LEVEL: i32 = 3;

/// Size of a data page, about 30,000 samples: the least that a read fetches and decodes.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// Maximum bytes of a dictionary. Beyond it, the column chunk is encoded plain.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Format version of new files.
    pub version: u32,
    pub columns: &'static [Column],
    /// Columns by which the rows of a file are sorted. The first is a text column: the log keeps its bounds for each
    /// file, and compaction divides large days by it.
    pub sort_key: &'static [&'static str],
    /// Columns with the first and the last time of a row, which may be one column. The log keeps their bounds.
    pub time: [&'static str; 2],
    pub merge: MergePolicy,
}

/// Which files compaction may merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergePolicy {
    /// Of two samples with the same series and time, the later write wins. Only neighbours in the order of writes are
    /// merged.
    LaterWins,
    /// No two files of a day hold the same sample. All may be merged.
    Disjoint,
}

#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub data_type: Type,
    /// True if a row may lack a value, as in all columns added after [`FIRST_VERSION`].
    pub is_nullable: bool,
    /// First format version with this column.
    pub since: u32,
    pub encoding: Coding,
    /// True if the file keeps the least and the greatest value of each row group and page.
    pub has_bounds: bool,
}

/// Type of a column, which maps to types of Arrow, Parquet and Delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// UTF-8.
    Text,
    Bytes,
    Bool,
    /// 8 bits, signed.
    Byte,
    /// 32 bits, signed.
    Int,
    /// 64 bits, signed.
    Long,
    /// IEEE 754, 64 bits.
    Double,
    /// Milliseconds since the Unix epoch, in UTC.
    Timestamp,
    /// Microseconds since the Unix epoch, in UTC.
    TimestampMicros,
    /// Map from text to text, without nulls.
    TextMap,
    /// List without nulls.
    List(&'static Self),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Dictionary, or plain once the dictionary is full.
    Dictionary,
    Plain,
    /// `DELTA_BINARY_PACKED`.
    Delta,
}

impl Type {
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::Bool => DataType::Boolean,
            Self::Byte => DataType::Int8,
            Self::Int => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            Self::TimestampMicros => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::TextMap => DataType::Map(text_entries(), false),
            Self::List(element) => DataType::List(self::element(element.arrow())),
        }
    }

    /// Paths of the Parquet leaf columns that hold values of this type, relative to the column's name.
    const fn leaves(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::TextMap => &[&["key_value", "key"], &["key_value", "value"]],
            Self::List(_) => &[&["list", "element"]],
            _ => &[&[]],
        }
    }
}

pub(crate) fn element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("element", data_type, false))
}

/// Arrow field for the entries of a [`Type::TextMap`].
pub(crate) fn text_entries() -> FieldRef {
    let fields = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)];
    Arc::new(Field::new("key_value", DataType::Struct(fields.into()), false))
}

impl Column {
    /// True if files of the first version lack the column.
    pub(crate) const fn is_added(&self) -> bool {
        self.since > FIRST_VERSION
    }

    fn paths(&self) -> impl Iterator<Item = ColumnPath> {
        let path = |leaf: &&[&str]| [&[self.name], *leaf].concat().into_iter().map(String::from).collect();
        self.data_type.leaves().iter().map(move |leaf| ColumnPath::new(path(leaf)))
    }
}

impl Kind {
    pub fn schema(&self) -> SchemaRef {
        self.schema_of(self.version)
    }

    /// Columns of a format version, without the partition column.
    pub(crate) fn schema_of(&self, version: u32) -> SchemaRef {
        let columns = self.columns.iter().filter(|column| column.since <= version);
        let field = |c: &Column| Field::new(c.name, c.data_type.arrow(), c.is_nullable);
        Arc::new(Schema::new(columns.map(field).collect::<Vec<_>>()))
    }

    /// First sort column, whose bounds are [`LiveFile::names`](crate::live_file::LiveFile::names).
    pub(crate) const fn leading(&self) -> &'static str {
        self.sort_key[0]
    }

    /// Columns whose least and greatest values the log keeps for each file.
    pub(crate) fn statistics(&self) -> Vec<&'static str> {
        let [start, end] = self.time;
        let mut columns = vec![self.leading(), start];
        columns.extend(Some(end).filter(|end| *end != start));
        columns
    }

    /// Properties of a file's encoder.
    ///
    /// Data pages are of version 1, because pages of version 2 leave the levels of lists uncompressed.
    pub fn writer_properties(&self) -> WriterProperties {
        self.properties().build()
    }

    fn properties(&self) -> WriterPropertiesBuilder {
        let zstd = ZstdLevel::try_new(ZSTD_LEVEL).expect("BUG: the compression level of zstd is invalid");
        let mut properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(Compression::ZSTD(zstd))
            .set_created_by(CREATED_BY.into())
            .set_data_page_size_limit(PAGE_BYTES)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
            .set_statistics_enabled(EnabledStatistics::Page)
            // the writer closes row groups when they reach a size, whatever their number of rows
            .set_max_row_group_row_count(None)
            .set_key_value_metadata(Some(vec![KeyValue::new(FORMAT_KEY.into(), self.version.to_string())]));
        for (column, path) in self.columns.iter().flat_map(|c| c.paths().map(move |path| (c, path))) {
            if column.encoding != Coding::Dictionary {
                properties = properties.set_column_dictionary_enabled(path.clone(), false);
            }
            if column.encoding == Coding::Delta {
                properties = properties.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
            }
            if !column.has_bounds {
                properties = properties.set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
        properties
    }
}
