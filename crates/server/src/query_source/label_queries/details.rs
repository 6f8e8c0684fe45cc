//! When untagged metrics were last written.
//!
//! ```text
//!   names ─▶ heads: newest sample of each ─▶ files, from the newest on, while they may have a newer one ─▶ times
//! ```
//!
//! Metrics that are written all the time have their newest sample in a head, so that no file is read for them.

use super::distinct::Ordered;
use super::{LabelQueries, LabelRequest, TURN_SERIES, refused};
use crate::query_source::{Canceled, LeftOut, list, tables_select};
use crate::refusal::Refusal;
use model::labels::METRIC_NAME;
use model::{LabelsBuilder, LabelsRef, SeriesKey, TimeRange, ValueKind};
use paths::Pattern;
use std::cell::Cell;
use std::sync::Arc;
use tables::Select;

/// If at most so many metrics, and bytes of them, may have newer samples in a file, only these are looked up there.
const LOOKED_UP_MAX: usize = 10_000;
const LOOKED_UP_BYTES_MAX: u64 = 1 << 20;

/// Parts of the memory of a query: names, and the list of those that are looked up in a file. A name takes more than
/// three times as much as its time, so the times fit into the rest.
const NAMES_PARTS: u64 = 5;
const LOOKED_UP_PARTS: u64 = 1;
const PARTS: u64 = 8;

const _: () = assert!(NAMES_PARTS + NAMES_PARTS.div_ceil(3) + LOOKED_UP_PARTS <= PARTS);

/// Metrics, in the order of their paths.
#[derive(Debug)]
pub(crate) struct Details {
    paths: Ordered,
    /// `i64::MIN` if it is not known.
    newest_ms: Vec<i64>,
    /// Warnings about data that could not be read.
    pub(crate) left_out: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Detail<'a> {
    pub(crate) path: &'a str,
    /// Time of the newest sample.
    pub(crate) newest_ms: Option<i64>,
}

impl Details {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Detail<'_>> {
        self.paths.iter().zip(&self.newest_ms).map(|(path, newest_ms)| Detail {
            path: std::str::from_utf8(path).expect("BUG: a path is not UTF-8"),
            newest_ms: Some(*newest_ms).filter(|newest_ms| *newest_ms != i64::MIN),
        })
    }
}

impl LabelQueries<'_> {
    /// The first `limit` metrics behind the path `after` that the pattern selects, with the times of their newest samples.
    pub(crate) fn details(&self, pattern: &Pattern, after: &str, limit: usize) -> Result<Details, Refusal> {
        let part = |parts| self.memory_bytes / PARTS * parts;
        let names =
            LabelQueries { canceled: Arc::clone(&self.canceled), memory_bytes: part(NAMES_PARTS), ..*self };
        let mut found = names.found(&LabelRequest { selectors: &[], range: TimeRange::ALL, limit }, Ord::cmp);
        let mut add = |path: &str, is_leaf| match is_leaf && path > after {
            true => found.add(path.as_bytes()),
            false => Ok(()),
        };
        let mut left_out = names.each_node(pattern, &mut add)?;
        let held_bytes = found.texts.held_bytes() as u64;
        let paths = found.answer(Vec::new()).all;
        let mut newest_ms = vec![i64::MIN; paths.len()];
        let times_bytes = size_of_val(newest_ms.as_slice()) as u64;
        self.usage.hold(held_bytes + times_bytes + part(LOOKED_UP_PARTS));
        self.newest_in_heads(&paths, &mut newest_ms)?;
        let listed_bytes = part(LOOKED_UP_PARTS).min(LOOKED_UP_BYTES_MAX);
        left_out.extend(self.newest_in_tables(&paths, &mut newest_ms, listed_bytes)?);
        left_out.sort_unstable();
        left_out.dedup();
        Ok(Details { paths, newest_ms, left_out })
    }

    fn newest_in_heads(&self, paths: &Ordered, newest_ms: &mut [i64]) -> Result<(), Canceled> {
        let turns: Vec<_> = self.turns().collect();
        let mut builder = LabelsBuilder::new();
        for first in (0..paths.len()).step_by(TURN_SERIES) {
            let some = first..paths.len().min(first + TURN_SERIES);
            let mut keys: Vec<(usize, SeriesKey, usize)> = Vec::with_capacity(some.len());
            for position in some {
                builder.clear();
                builder.push(METRIC_NAME, std::str::from_utf8(paths.at(position)).unwrap_or_default());
                let Ok(labels) = builder.build_series() else { continue };
                let key = SeriesKey::of(labels.as_bytes(), self.context.seed);
                keys.push((key.partition(turns.len()), key, position));
            }
            keys.sort_unstable_by_key(|(partition, ..)| *partition);
            for of_partition in keys.chunk_by(|a, b| a.0 == b.0) {
                turns[of_partition[0].0].turn(|head| {
                    for (_, key, position) in of_partition {
                        let series = head.find(*key).filter(|series| head.kind(*series) == ValueKind::Float);
                        newest_ms[*position] = series.map_or(i64::MIN, |series| head.newest_ms(series));
                    }
                    true
                })?;
            }
        }
        Ok(())
    }

    /// Reads the files that may have newer samples, from the newest on. Returns warnings about data that could not be read.
    fn newest_in_tables(
        &self,
        paths: &Ordered,
        newest_ms: &mut [i64],
        listed_bytes: u64,
    ) -> Result<Vec<String>, Refusal> {
        let Self { context, tenant, canceled, .. } = self;
        let newest_ms = Cell::from_mut(newest_ms).as_slice_of_cells();
        let all = tables_select(&[], TimeRange::ALL, false, canceled);
        let mut wanted = |end_ms: i64| wanted(&all, paths, newest_ms, end_ms, listed_bytes);
        let mut each = |labels: LabelsRef<'_>, end_ms: i64| {
            let mut pairs = labels.iter();
            if let (Some((METRIC_NAME, name)), None) = (pairs.next(), pairs.next())
                && let Some(position) = paths.position(name.as_bytes())
            {
                let newest_ms = &newest_ms[position];
                newest_ms.set(newest_ms.get().max(end_ms));
            }
        };
        let left_out = LeftOut::default();
        let listed = list(context, tenant, &left_out, &**canceled, |table, cache| {
            tables::labels::from_newest(table, cache, &mut wanted, &mut each)
        });
        listed.map_err(refused)?;
        if canceled.is_set() { Err(Canceled.into()) } else { Ok(left_out.texts()) }
    }
}

/// What to read of a file without samples after `end_ms`. `None` if it has no newer samples than those that are known.
fn wanted(
    all: &Select,
    paths: &Ordered,
    newest_ms: &[Cell<i64>],
    end_ms: i64,
    listed_bytes: u64,
) -> Option<Select> {
    let mut open = newest_ms.iter().enumerate().filter(|(_, known_ms)| known_ms.get() < end_ms);
    let mut select = all.clone();
    select.range.start_ms = open.clone().map(|(_, known_ms)| known_ms.get()).min()?.saturating_add(1);
    let (mut names, mut bytes) = (Vec::new(), 0);
    let are_few = open.all(|(position, _)| {
        let name = paths.at(position);
        bytes += (size_of::<String>() + name.len()) as u64;
        // with room for the vector to double
        let fits = names.len() < LOOKED_UP_MAX && 2 * bytes <= listed_bytes;
        if fits {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        fits
    });
    select.names = are_few.then_some(names);
    Some(select)
}
