//! The small columns of a row group, fetched whole.

use super::{Footer, Ranges, fetch};
use crate::error::TableError;
use crate::kind::metrics;
use crate::parquet::Chunk;
use std::ops::Range;

/// Path of a column in the file's schema, and its maximum repetition and definition level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    path: &'static [&'static str],
    levels: (i16, i16),
}

impl Column {
    const fn new(path: &'static [&'static str], levels: (i16, i16)) -> Self {
        Self { path, levels }
    }
}

pub(super) const NAME: Column = Column::new(&[metrics::NAME], (0, 0));
pub(super) const LABEL_NAMES: Column = Column::new(&[metrics::LABELS, "key_value", "key"], (1, 1));
pub(super) const LABEL_VALUES: Column = Column::new(&[metrics::LABELS, "key_value", "value"], (1, 1));
const SERIES: Column = Column::new(&[metrics::SERIES], (0, 0));
const START: Column = Column::new(&[metrics::START], (0, 0));
const END: Column = Column::new(&[metrics::END], (0, 0));
const COUNT: Column = Column::new(&[metrics::COUNT], (0, 0));
const EXPONENT: Column = Column::new(&[metrics::EXPONENT], (0, 1));
const BASE: Column = Column::new(&[metrics::BASE], (0, 1));

pub(super) const ALL: [Column; 9] =
    [NAME, LABEL_NAMES, LABEL_VALUES, SERIES, START, END, COUNT, EXPONENT, BASE];

pub(super) fn fetch_chunks<const N: usize>(
    file: &dyn Ranges,
    footer: &Footer,
    group: usize,
    columns: [Column; N],
) -> Result<[Chunk; N], TableError> {
    let places = columns.map(|column| place(footer, group, column));
    let damaged =
        || TableError::damaged(file.name(), "its columns do not match its footer, or differ in length");
    if places.iter().any(Option::is_none) {
        return Err(damaged());
    }
    let ranges: Vec<_> = places.iter().flatten().map(|(range, _)| range.clone()).collect();
    let mut fetched = fetch(file, &ranges)?.into_iter();
    let rows = footer.rows_of(group);
    Ok(places.map(|place| Chunk {
        bytes: fetched.next().unwrap_or_default(),
        rows,
        levels: place.map_or(0, |(_, levels)| levels),
    }))
}

/// Position of a column in the file, and its number of values and nulls. `None` if the column is absent, nested
/// differently, or has another number of rows than the row group.
fn place(footer: &Footer, group: usize, column: Column) -> Option<(Range<u64>, usize)> {
    let schema = footer.parquet().file_metadata().schema_descr();
    let leaf = schema.columns().iter().position(|leaf| leaf.path().parts() == column.path)?;
    let chunk = footer.parquet().row_group(group).column(leaf);
    let (start, len) = chunk.byte_range();
    let levels = u32::try_from(chunk.num_values()).ok()? as usize;
    let rows = footer.rows_of(group);
    let fits = if column.levels.0 == 0 { levels == rows } else { levels >= rows };
    let nested = (schema.column(leaf).max_rep_level(), schema.column(leaf).max_def_level());
    Some((start..start.checked_add(len)?, levels)).filter(|_| fits && nested == column.levels)
}

#[cfg(test)]
mod tests;
