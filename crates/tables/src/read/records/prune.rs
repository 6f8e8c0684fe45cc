//! Excludes row groups and pages by the bounds of stream and time.

use super::RecordSelect;
use crate::kind::records::{STREAM, TIME};
use crate::read::prune::{bounds, intersect, leaf};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use std::ops::Range;

/// The rows of a row group that may match. `times` says whether the file's times are of microseconds.
pub(super) fn rows(
    metadata: &ParquetMetaData,
    group: usize,
    select: &RecordSelect,
    times: bool,
) -> Vec<Range<usize>> {
    let [from, to] = select.range_us;
    let rows = usize::try_from(metadata.row_group(group).num_rows()).unwrap_or(0);
    let mut kept = Vec::from_iter(std::iter::once(0..rows));
    let time = leaf(metadata, TIME).filter(|_| times);
    let (first, last) = bounds(metadata, group, time);
    if rows == 0 || first.is_some_and(|first| first > to) || last.is_some_and(|last| last < from) {
        return Vec::new();
    }
    let by_time = |index: &ColumnIndexMetaData, page| match index {
        ColumnIndexMetaData::INT64(i) => {
            i.min_value(page).is_none_or(|first| *first <= to)
                && i.max_value(page).is_none_or(|last| *last >= from)
        }
        _ => true,
    };
    if let Some(ranges) = pages(metadata, group, rows, time, &by_time) {
        kept = intersect(&kept, ranges);
    }
    let Some(stream) = select.stream.as_deref().map(str::as_bytes) else { return kept };
    let may_match = |min: Option<&[u8]>, max: Option<&[u8]>| {
        // the bound may be truncated; every text that begins with it may match
        min.is_none_or(|min| min <= stream) && max.is_none_or(|max| max >= stream || stream.starts_with(max))
    };
    let column = leaf(metadata, STREAM);
    if let Some(statistics) = column.and_then(|column| metadata.row_group(group).column(column).statistics())
        && !may_match(statistics.min_bytes_opt(), statistics.max_bytes_opt())
    {
        return Vec::new();
    }
    let by_stream = |index: &ColumnIndexMetaData, page| match index {
        ColumnIndexMetaData::BYTE_ARRAY(i) => may_match(i.min_value(page), i.max_value(page)),
        _ => true,
    };
    if let Some(ranges) = pages(metadata, group, rows, column, &by_stream) {
        kept = intersect(&kept, ranges);
    }
    kept
}

/// True if the statistics show that the time of every row is wanted.
pub(super) fn all_match(
    metadata: &ParquetMetaData,
    group: usize,
    select: &RecordSelect,
    times: bool,
) -> bool {
    let [from, to] = select.range_us;
    let (first, last) = bounds(metadata, group, leaf(metadata, TIME).filter(|_| times));
    let is_within = first.is_some_and(|first| first >= from) && last.is_some_and(|last| last <= to);
    select.stream.is_none() && (is_within || select.range_us == RecordSelect::ALL.range_us)
}

/// Rows of the pages that may match. `None` if the file has no index of the column.
fn pages(
    metadata: &ParquetMetaData,
    group: usize,
    rows: usize,
    column: Option<usize>,
    may_match: &dyn Fn(&ColumnIndexMetaData, usize) -> bool,
) -> Option<Vec<Range<usize>>> {
    let index = metadata.column_index()?.get(group)?.get(column?)?;
    let locations = metadata.offset_index()?.get(group)?.get(column?)?.page_locations();
    if matches!(index, ColumnIndexMetaData::NONE) || index.num_pages() as usize != locations.len() {
        return None;
    }
    let start = |page: usize| match locations.get(page) {
        Some(location) => usize::try_from(location.first_row_index).unwrap_or(0).min(rows),
        None => rows,
    };
    let pages = (0..locations.len()).filter(|page| may_match(index, *page));
    Some(pages.map(|page| start(page)..start(page + 1)).filter(|r| r.start < r.end).collect())
}
