//! Excludes row groups and pages by statistics.

use super::Select;
use crate::kind::metrics;
use model::TimeRange;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;
use std::ops::Range;

/// Returns the row groups that may match, each with the ranges of its rows that may match.
pub(super) fn prune(metadata: &ParquetMetaData, select: &Select) -> Vec<(usize, Vec<Range<usize>>)> {
    let columns = Columns::of(metadata);
    (0..metadata.num_row_groups())
        .filter(|group| columns.group_may_match(metadata, *group, select))
        .map(|group| {
            let rows = usize::try_from(metadata.row_group(group).num_rows()).unwrap_or(0);
            (group, columns.matching_rows(metadata, group, rows, select))
        })
        .filter(|(_, rows)| !rows.is_empty())
        .collect()
}

/// True if the statistics show that each row of the row group overlaps the range.
pub(super) fn all_overlap(metadata: &ParquetMetaData, group: usize, range: TimeRange) -> bool {
    let Columns { start, end, .. } = Columns::of(metadata);
    let last_start = bounds(metadata, group, start).1;
    let first_end = bounds(metadata, group, end).0;
    last_start.is_some_and(|start| start <= range.end_ms)
        && first_end.is_some_and(|end| end >= range.start_ms)
}

pub(super) fn bounds(
    metadata: &ParquetMetaData,
    group: usize,
    column: Option<usize>,
) -> (Option<i64>, Option<i64>) {
    match column.and_then(|column| metadata.row_group(group).column(column).statistics()) {
        Some(Statistics::Int64(s)) => (s.min_opt().copied(), s.max_opt().copied()),
        _ => (None, None),
    }
}

pub(super) fn samples(metadata: &ParquetMetaData, group: usize) -> u64 {
    let column = leaf(metadata, metrics::TIMESTAMPS);
    column.map_or(0, |c| u64::try_from(metadata.row_group(group).column(c).num_values()).unwrap_or(0))
}

/// Number of labels in a row group, without metric names.
pub(super) fn label_count(metadata: &ParquetMetaData, group: usize) -> u64 {
    let column = leaf(metadata, metrics::LABELS);
    column.map_or(0, |c| u64::try_from(metadata.row_group(group).column(c).num_values()).unwrap_or(u64::MAX))
}

/// Size of the label names and values in a row group. A string in a dictionary counts once, however often it is used.
pub(super) fn label_bytes(metadata: &ParquetMetaData, group: usize) -> u64 {
    uncompressed_bytes(metadata, group, metrics::LABELS)
}

/// Size of the metric names in a row group. A name in a dictionary counts once, however often it is used.
pub(super) fn name_bytes(metadata: &ParquetMetaData, group: usize) -> u64 {
    uncompressed_bytes(metadata, group, metrics::NAME)
}

fn uncompressed_bytes(metadata: &ParquetMetaData, group: usize, root: &str) -> u64 {
    let columns = metadata.row_group(group).columns().iter();
    let columns = columns.filter(|c| c.column_path().parts().first().is_some_and(|first| first == root));
    columns.map(|c| u64::try_from(c.uncompressed_size()).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
}

/// Compressed size of the row group's columns that a read needs, with or without samples.
pub(super) fn wanted_bytes(metadata: &ParquetMetaData, group: usize, samples: bool) -> u64 {
    let columns = metadata.row_group(group).columns().iter().filter(|column| {
        let root = column.column_path().parts().first().map_or("", String::as_str);
        samples || metrics::KEY_COLUMNS.contains(&root)
    });
    columns.map(|c| u64::try_from(c.compressed_size()).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// First row of each page in the largest column that is read.
pub(super) fn page_starts(metadata: &ParquetMetaData, group: usize, samples: bool) -> Vec<usize> {
    let column = leaf(metadata, if samples { metrics::TIMESTAMPS } else { metrics::LABELS });
    let pages = || {
        let index = metadata.offset_index()?.get(group)?.get(column?)?;
        Some(index.page_locations().iter().map(|p| usize::try_from(p.first_row_index).unwrap_or(0)).collect())
    };
    pages().unwrap_or_default()
}

/// Index of the last leaf column that belongs to the column `root` of the schema.
pub(super) fn leaf(metadata: &ParquetMetaData, root: &str) -> Option<usize> {
    let schema = metadata.file_metadata().schema_descr();
    schema.columns().iter().rposition(|c| c.path().parts().first().is_some_and(|first| first == root))
}

struct Columns {
    name: Option<usize>,
    start: Option<usize>,
    end: Option<usize>,
}

impl Columns {
    fn of(metadata: &ParquetMetaData) -> Self {
        let schema = metadata.file_metadata().schema_descr();
        let find = |name: &str| schema.columns().iter().position(|c| c.path().parts() == [name]);
        Self { name: find(metrics::NAME), start: find(metrics::START), end: find(metrics::END) }
    }

    fn group_may_match(&self, metadata: &ParquetMetaData, group: usize, select: &Select) -> bool {
        let name = match self.name.and_then(|name| metadata.row_group(group).column(name).statistics()) {
            Some(s) => select.names_may_match(s.min_bytes_opt(), s.max_bytes_opt()),
            None => true,
        };
        name && bounds(metadata, group, self.start).0.is_none_or(|first| first <= select.range.end_ms)
            && bounds(metadata, group, self.end).1.is_none_or(|last| last >= select.range.start_ms)
    }

    /// Rows in pages whose bounds do not exclude them in any column.
    fn matching_rows(
        &self,
        metadata: &ParquetMetaData,
        group: usize,
        rows: usize,
        select: &Select,
    ) -> Vec<Range<usize>> {
        let mut kept = Vec::from_iter(std::iter::once(0..rows));
        let pages = |column: Option<usize>, matches: &dyn Fn(&ColumnIndexMetaData, usize) -> bool| {
            let index = metadata.column_index()?.get(group)?.get(column?)?;
            if matches!(index, ColumnIndexMetaData::NONE) {
                return None;
            }
            let locations = metadata.offset_index()?.get(group)?.get(column?)?.page_locations();
            if index.num_pages() as usize != locations.len() {
                return None;
            }
            let start = |page: usize| match locations.get(page) {
                Some(location) => usize::try_from(location.first_row_index).unwrap_or(0).min(rows),
                None => rows,
            };
            let pages = (0..locations.len()).filter(|page| matches(index, *page));
            Some(pages.map(|page| start(page)..start(page + 1)).filter(|r| r.start < r.end).collect())
        };
        let name = |index: &ColumnIndexMetaData, page| match index {
            ColumnIndexMetaData::BYTE_ARRAY(i) => {
                select.names_may_match(i.min_value(page), i.max_value(page))
            }
            _ => true,
        };
        let start = |index: &ColumnIndexMetaData, page| match index {
            ColumnIndexMetaData::INT64(i) => {
                i.min_value(page).is_none_or(|first| *first <= select.range.end_ms)
            }
            _ => true,
        };
        let end = |index: &ColumnIndexMetaData, page| match index {
            ColumnIndexMetaData::INT64(i) => {
                i.max_value(page).is_none_or(|last| *last >= select.range.start_ms)
            }
            _ => true,
        };
        if select.restricts_names()
            && let Some(ranges) = pages(self.name, &name)
        {
            kept = intersect(&kept, ranges);
        }
        if let Some(ranges) = pages(self.start, &start) {
            kept = intersect(&kept, ranges);
        }
        if let Some(ranges) = pages(self.end, &end) {
            kept = intersect(&kept, ranges);
        }
        kept
    }
}

/// Intersection of ordered, disjoint ranges.
pub(super) fn intersect(a: &[Range<usize>], b: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let both = a[i].start.max(b[j].start)..a[i].end.min(b[j].end);
        if both.start < both.end {
            match out.last_mut() {
                Some(last) if last.end == both.start => last.end = both.end,
                _ => out.push(both),
            }
        }
        if a[i].end < b[j].end { i += 1 } else { j += 1 }
    }
    out
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use super::*;

    #[test]
    fn intersects() {
        let check = |a: &[Range<usize>], b: &[Range<usize>], expected: &[Range<usize>]| {
            assert_eq!(intersect(a, b.to_vec()), expected);
            assert_eq!(intersect(b, a.to_vec()), expected);
        };
        check(&[0..10], &[], &[]);
        check(&[0..10], &[2..4, 6..12], &[2..4, 6..10]);
        check(&[0..3, 5..9], &[2..6, 8..20], &[2..3, 5..6, 8..9]);
        check(&[0..5, 5..9], &[0..9], &[0..9]);
    }

    #[test]
    fn names() {
        let check = |wanted: &[&str], min: &str, max: &str| {
            let names = Some(wanted.iter().map(ToString::to_string).collect());
            Select { names, ..Select::ALL }.names_may_match(Some(min.as_bytes()), Some(max.as_bytes()))
        };
        assert!(check(&["b"], "a", "c"));
        assert!(check(&["b"], "b", "b"));
        assert!(!check(&["a", "d"], "b", "c"));
        assert!(check(&["a", "c", "d"], "b", "c"));
        assert!(!check(&[], "b", "c"));
    }

    #[test]
    fn prefixes_of_names() {
        let check = |prefix: &str, min: &str, max: &str| {
            let select = Select { name_prefix: prefix.into(), ..Select::ALL };
            select.names_may_match(Some(min.as_bytes()), Some(max.as_bytes()))
        };
        for (min, max) in [("a", "c"), ("b.", "c"), ("b.x", "b.y"), ("a", "b."), ("b.9", "b.9"), ("", "b.a")]
        {
            assert!(check("b.", min, max), "{min:?} to {max:?}");
        }
        for (min, max) in [("a", "b"), ("b/", "c"), ("c", "d"), ("", "a")] {
            assert!(!check("b.", min, max), "{min:?} to {max:?}");
        }
        assert!(check("", "a", "c"));
        let unknown = Select { name_prefix: "b".into(), ..Select::ALL };
        assert!(unknown.names_may_match(None, None) && unknown.names_may_match(Some(b"a"), None));
        assert!(!unknown.names_may_match(None, Some(b"a")));
    }
}
