//! Kinds of tables: the differences between tables, as data.
//!
//! Commits, floodmarks, the order of writes, sweeping, repair and upkeep have the same code for every kind.
//! Of a row, this code needs only the day, the times and the first column of the sort key; a [`Kind`] names
//! these columns. Only the kind's reader and writer know the *meaning* of a row. [`metrics`] and rollups
//! share them.
//!
//! # Format versions
//!
//! A file states its format version and holds the columns of that version. A column that a later version adds is nullable, and
//! null in every row of an older file. The Delta table gets the column in the same log entry as the first files that hold it.

pub mod metrics;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use std::sync::Arc;

/// Partition column of every kind: the day of a row in UTC. It is part of a file's path and of the log, not of the file.
pub const DATE: &str = "date";

/// Name of this writer in a file's metadata.
pub const CREATED_BY: &str = "floodmark";

/// Key of the format version in a file's metadata.
pub const FORMAT_KEY: &str = "floodmark.format";

/// First format version that was released. All files have its columns.
pub const FIRST_VERSION: u32 = 2;

/// Compression level, zstd's default. On the `mix` of the size benchmark, level 9 saves 2 % and takes four times as long.
const ZSTD_LEVEL: i32 = 3;

/// Size of a data page, which is the least that a selective read fetches and decodes: about 30,000 samples.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// Size in bytes of a column chunk's dictionary beyond which the rest of the chunk is plain.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// Format of the tables of one kind, and how their files may be merged.
#[derive(Debug)]
pub struct Kind {
    /// Name for messages.
    pub name: &'static str,
    /// Format version of new files.
    pub version: u32,
    /// Columns in the order of the file.
    pub columns: &'static [Column],
    /// Columns by which the rows of a file are sorted. The first is a text: the log keeps its bounds for each file, and
    /// compaction divides large days by it.
    pub sort_key: &'static [&'static str],
    /// Columns with the first and the last time of a row, whose bounds the log keeps too. Both are the same column if a row has
    /// one time.
    pub time: [&'static str; 2],
    /// Rule for merging files.
    pub merge: MergePolicy,
}

/// Rule for which files compaction may merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergePolicy {
    /// Two files may hold the same sample, and the one written later wins. Only neighbours in the order of writes are
    /// merged.
    LaterWins,
    /// No two files of a day hold the same sample, so any of them may be merged.
    Disjoint,
}

/// A column of a kind.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Name of the column, in Parquet and in the Delta table.
    pub name: &'static str,
    pub data_type: Type,
    /// True if a row may lack a value. Columns added after [`FIRST_VERSION`] are nullable.
    pub is_nullable: bool,
    /// First format version with this column.
    pub since: u32,
    /// Encoding of the values.
    pub encoding: Coding,
    /// True if row groups and pages keep the least and the greatest value.
    pub has_bounds: bool,
}

/// Type of a column, which maps to types of Arrow, Parquet and Delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// UTF-8.
    Text,
    Bytes,
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
    /// Map from text to text, without nulls.
    TextMap,
    /// List of elements of a type, without nulls.
    List(&'static Self),
}

/// Encoding of a column's values.
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
            Self::Byte => DataType::Int8,
            Self::Int => DataType::Int32,
            Self::Long => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            Self::TextMap => DataType::Map(text_entries(), false),
            Self::List(element) => DataType::List(self::element(element.arrow())),
        }
    }

    /// Paths of the type's Parquet columns, relative to the column's name.
    const fn leaves(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::TextMap => &[&["key_value", "key"], &["key_value", "value"]],
            Self::List(_) => &[&["list", "element"]],
            _ => &[&[]],
        }
    }
}

/// Element of a list.
pub(crate) fn element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("element", data_type, false))
}

/// Keys and values of a [`Type::TextMap`].
pub(crate) fn text_entries() -> FieldRef {
    let fields = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)];
    Arc::new(Field::new("key_value", DataType::Struct(fields.into()), false))
}

impl Column {
    /// True for a column that files of the first version lack.
    pub(crate) const fn is_added(&self) -> bool {
        self.since > FIRST_VERSION
    }

    /// Paths of the column's Parquet columns.
    fn paths(&self) -> impl Iterator<Item = ColumnPath> {
        let path = |leaf: &&[&str]| [&[self.name], *leaf].concat().into_iter().map(String::from).collect();
        self.data_type.leaves().iter().map(move |leaf| ColumnPath::new(path(leaf)))
    }
}

impl Kind {
    /// Columns of a new file.
    pub fn schema(&self) -> SchemaRef {
        self.schema_of(self.version)
    }

    /// Columns of a file of a format version, without the partition column.
    pub(crate) fn schema_of(&self, version: u32) -> SchemaRef {
        let columns = self.columns.iter().filter(|column| column.since <= version);
        let field = |c: &Column| Field::new(c.name, c.data_type.arrow(), c.is_nullable);
        Arc::new(Schema::new(columns.map(field).collect::<Vec<_>>()))
    }

    /// Column whose bounds the log keeps as [`LiveFile::names`](crate::live_file::LiveFile::names).
    pub(crate) const fn leading(&self) -> &'static str {
        self.sort_key[0]
    }

    /// Columns whose bounds the log keeps.
    pub(crate) fn statistics(&self) -> Vec<&'static str> {
        let [start, end] = self.time;
        let mut columns = vec![self.leading(), start];
        columns.extend(Some(end).filter(|end| *end != start));
        columns
    }

    /// Properties of a file's encoder.
    ///
    /// The encodings are of version 2, but data pages are of version 1: pages of version 2 leave the levels
    /// of lists uncompressed, and these are long runs that compress well.
    pub fn writer_properties(&self) -> WriterProperties {
        let zstd = ZstdLevel::try_new(ZSTD_LEVEL).expect("BUG: the compression level of zstd is invalid");
        let mut properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(Compression::ZSTD(zstd))
            .set_created_by(CREATED_BY.into())
            .set_data_page_size_limit(PAGE_BYTES)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
            .set_statistics_enabled(EnabledStatistics::Page)
            // the writer ends row groups by bytes, not by rows
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
        properties.build()
    }
}
