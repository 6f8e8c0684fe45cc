//! Footers of Parquet files.

use super::{Ranges, fetch, guarded};
use crate::error::TableError;
use crate::kind::{self, FIRST_VERSION, Kind, metrics};
use arrow_cast::can_cast_types;
use parquet::DecodeResult;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};
use parquet::file::page_index::offset_index::PageLocation;
use std::sync::Arc;

/// Maximum size of a footer. Floodmark's own footers take about 10 KiB per row group.
const FOOTER_BYTES_MAX: u64 = 64 << 20;

/// Minimum size of a file: magic bytes at both ends, and the footer's length.
const FILE_BYTES_MIN: u64 = 12;

/// Maximum number of requests for a footer: its length, its bytes, the page indexes.
const REQUESTS_MAX: usize = 8;

#[derive(Debug, Clone)]
pub struct Footer {
    pub(super) metadata: ArrowReaderMetadata,
    kind: &'static Kind,
    is_foreign: bool,
    /// True if the kind supports the file's format version.
    is_known: bool,
}

impl Footer {
    pub fn read(kind: &'static Kind, file: &dyn Ranges) -> Result<Self, TableError> {
        let name = file.name();
        guarded(name, || Self::check(kind, name, read(file, PageIndexPolicy::Optional)?))
    }

    pub(super) fn check(
        kind: &'static Kind,
        file: &str,
        metadata: ParquetMetaData,
    ) -> Result<Self, TableError> {
        let is_foreign = metadata.file_metadata().created_by() != Some(kind::CREATED_BY);
        let version = checked_version(kind, file, &metadata)?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let options = match is_foreign {
            true => options,
            false => options.with_schema(kind.schema_of(version.unwrap_or(FIRST_VERSION))),
        };
        let unlike = |e: &dyn std::fmt::Display| {
            TableError::damaged(file, format!("not the columns of a {} table: {e}", kind.name))
        };
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), options).map_err(|e| unlike(&e))?;
        for column in kind.columns.iter().filter(|_| is_foreign) {
            let found = match metadata.schema().field_with_name(column.name) {
                Err(_) if column.is_added() => continue,
                found => found.map_err(|e| unlike(&e))?,
            };
            if !can_cast_types(found.data_type(), &column.data_type.arrow()) {
                return Err(unlike(&format_args!("{} is of type {}", column.name, found.data_type())));
            }
        }
        let is_known = version.is_some_and(|version| version >= FIRST_VERSION);
        Ok(Self { metadata, kind, is_foreign, is_known })
    }

    pub(super) const fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// True if another program wrote the file. Its rows may be in any order.
    pub(crate) const fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Sizes of the rows' labels: of the longest, and the mean. `None` if the file does not say.
    pub(super) fn label_bytes(&self) -> Option<(u64, u64)> {
        let mut entries = self.parquet().file_metadata().key_value_metadata()?.iter();
        let text = entries.find(|entry| entry.key == kind::LABELS_KEY)?.value.as_deref()?;
        let (longest, mean) = text.split_once(' ')?;
        Some((longest.parse().ok()?, mean.parse().ok()?))
    }

    pub(crate) fn parquet(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// True if [`crate::parquet`] can decode the file.
    pub(super) const fn is_ours(&self) -> bool {
        self.is_known
    }

    pub(super) fn rows_of(&self, group: usize) -> usize {
        usize::try_from(self.parquet().row_group(group).num_rows()).unwrap_or(0)
    }

    /// Pages of a column, if the file has an offset index.
    pub(super) fn pages(&self, group: usize, leaf: usize) -> Option<&[PageLocation]> {
        let index = self.parquet().offset_index()?.get(group)?.get(leaf)?;
        Some(index.page_locations())
    }

    pub fn rows(&self) -> u64 {
        self.parquet().file_metadata().num_rows().max(0) as u64
    }

    pub fn samples(&self) -> u64 {
        let groups = self.metadata.metadata().row_groups().iter();
        let columns = groups.flat_map(|group| group.columns());
        let times =
            columns.filter(|c| c.column_path().parts().first().is_some_and(|p| p == metrics::TIMESTAMPS));
        times.map(|c| c.num_values().max(0) as u64).sum()
    }

    pub fn row_groups(&self) -> usize {
        self.parquet().num_row_groups()
    }

    pub fn memory_bytes(&self) -> usize {
        self.parquet().memory_size()
    }
}

/// Format version of a file of our own. Fails if it is later than the kind's.
pub(super) fn checked_version(
    kind: &Kind,
    file: &str,
    metadata: &ParquetMetaData,
) -> Result<Option<u32>, TableError> {
    let is_foreign = metadata.file_metadata().created_by() != Some(kind::CREATED_BY);
    let version = format_version(metadata).filter(|_| !is_foreign);
    match version.filter(|version| *version > kind.version) {
        None => Ok(version),
        Some(later) => {
            let reason = format!(
                "its format version is {later}, this version of Floodmark reads versions up to {}",
                kind.version
            );
            Err(TableError::damaged(file, reason))
        }
    }
}

fn format_version(metadata: &ParquetMetaData) -> Option<u32> {
    let mut entries = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    entries.find(|entry| entry.key == kind::FORMAT_KEY)?.value.as_deref()?.parse().ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Checks the footer, which a truncated file lacks.
    Footer,
    /// Checks all rows, which are held in memory.
    Rows,
}

pub(crate) fn check(file: &dyn Ranges, depth: Depth) -> Result<(), TableError> {
    guarded(file.name(), || {
        read(file, PageIndexPolicy::Skip)?;
        if depth == Depth::Footer {
            return Ok(());
        }
        let damaged = |e: &dyn std::fmt::Display| TableError::damaged(file.name(), e);
        let all = 0..file.len();
        let whole = fetch(file, std::slice::from_ref(&all))?.remove(0);
        let rows = ParquetRecordBatchReaderBuilder::try_new(whole).and_then(|rows| rows.build());
        for batch in rows.map_err(|e| damaged(&e))? {
            batch.map_err(|e| damaged(&e))?;
        }
        Ok(())
    })
}

/// Must be called within [`guarded`], because the Parquet library may panic on damaged bytes.
pub(super) fn read(file: &dyn Ranges, page_index: PageIndexPolicy) -> Result<ParquetMetaData, TableError> {
    if file.len() < FILE_BYTES_MIN {
        return Err(TableError::damaged(file.name(), format!("it has only {} bytes", file.len())));
    }
    let damaged = |e: ParquetError| TableError::damaged(file.name(), e);
    let mut decoder =
        ParquetMetaDataPushDecoder::try_new(file.len()).map_err(damaged)?.with_page_index_policy(page_index);
    let mut bytes = 0;
    for _ in 0..REQUESTS_MAX {
        match decoder.try_decode().map_err(damaged)? {
            DecodeResult::NeedsData(ranges) => {
                bytes += ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum::<u64>();
                if bytes > FOOTER_BYTES_MAX {
                    let reason = format!("its footer has more than {FOOTER_BYTES_MAX} bytes");
                    return Err(TableError::damaged(file.name(), reason));
                }
                let data = fetch(file, &ranges)?;
                decoder.push_ranges(ranges, data).map_err(damaged)?;
            }
            DecodeResult::Data(metadata) => return Ok(metadata),
            DecodeResult::Finished => break,
        }
    }
    Err(TableError::damaged(file.name(), "its footer is incomplete"))
}
