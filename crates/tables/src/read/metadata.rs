//! Footers of Parquet files, whatever their columns.

use super::{Ranges, fetch, guarded};
use crate::error::TableError;
use parquet::DecodeResult;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};

/// A footer beyond this is refused: ours take some 10 KiB a row group.
const FOOTER_BYTES_MAX: u64 = 64 << 20;

/// Magic bytes at both ends, and the footer's length.
const FILE_BYTES_MIN: u64 = 12;

/// Requests that a footer may take: its length, itself, and the page indexes.
const REQUESTS_MAX: usize = 8;

/// How much of a file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The footer: a file that was cut short has none.
    Footer,
    /// Everything, in memory.
    Rows,
}

/// Sees that a file can be read.
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

/// Reads a file's footer. Call it [`guarded`].
pub(super) fn read(file: &dyn Ranges, page_index: PageIndexPolicy) -> Result<ParquetMetaData, TableError> {
    if file.len() < FILE_BYTES_MIN {
        return Err(TableError::damaged(file.name(), format!("it has {} bytes", file.len())));
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
