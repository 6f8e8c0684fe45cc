//! Row-group index: everything about a row group except samples, built once from the small columns and cached.
//!
//! ```text
//!   pairs    job="api"  job="db"  pod="a"  …     each once, by name and then by value
//!   postings    0 1 4      2 3       0     …     of each pair, the rows that have it
//!   rows     labels (numbers of pairs), key, time range, position of the samples in the row group
//! ```
//!
//! Selections test a label's distinct values instead of rows. Label names and values are listed without reading rows.

mod build;
mod pairs;

use super::stop::Pace;
use super::{Matcher, Select, Stop};
use crate::error::TableError;
use model::labels::METRIC_NAME;
use model::{LabelsRef, SeriesKey, TimeRange};
use std::ops::Range;

#[derive(Debug)]
pub struct RowGroupIndex {
    names: Vec<Name>,
    /// Label pairs in canonical form, and where each of them ends.
    texts: Box<[u8]>,
    text_ends: Box<[u32]>,
    /// For each label pair, the rows that have it, ascending.
    postings: Box<[u32]>,
    posting_ends: Box<[u32]>,
    /// For each row, the numbers of its label pairs, ascending.
    pairs: Box<[u32]>,
    pair_ends: Box<[u32]>,
    keys: Box<[SeriesKey]>,
    spans: Box<[TimeRange]>,
    /// For each row, the number of samples in this row and all rows before it. `decimals_ends` counts only the samples
    /// in decimal form.
    samples_ends: Box<[u32]>,
    decimals_ends: Box<[u32]>,
    /// Exponent of each row, or [`FLOATS`].
    exponents: Box<[u8]>,
    /// Number added to the mantissas of each row.
    bases: Box<[i64]>,
    /// Range from the latest start of any row to the earliest end of any row. A selection that overlaps with this range
    /// overlaps with every row.
    common: TimeRange,
}

const FLOATS: u8 = u8::MAX;

#[derive(Debug)]
struct Name {
    text: Box<str>,
    pairs: Range<u32>,
}

impl RowGroupIndex {
    pub(super) const fn rows(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn put_labels(&self, row: usize, out: &mut Vec<u8>) {
        for pair in self.pairs_of(row) {
            out.extend_from_slice(self.pair(*pair));
        }
    }

    pub(super) fn same_series(&self, a: usize, b: usize) -> bool {
        self.pairs_of(a) == self.pairs_of(b)
    }

    pub(super) fn key(&self, row: usize) -> SeriesKey {
        self.keys[row]
    }

    pub(super) fn span(&self, row: usize) -> TimeRange {
        self.spans[row]
    }

    /// Base and exponent of a row; `None` if its values are floats.
    pub(super) fn decimal(&self, row: usize) -> Option<(i64, u8)> {
        Some((self.bases[row], self.exponents[row])).filter(|(_, exponent)| *exponent != FLOATS)
    }

    /// Returns how many samples the rows before `row` have, and how many of these samples are in decimal form.
    pub(super) fn samples_before(&self, row: usize) -> (usize, usize) {
        let last = row.checked_sub(1);
        last.map_or((0, 0), |last| (self.samples_ends[last] as usize, self.decimals_ends[last] as usize))
    }

    fn pairs_of(&self, row: usize) -> &[u32] {
        &self.pairs[part(&self.pair_ends, row)]
    }

    fn pair(&self, pair: u32) -> &[u8] {
        &self.texts[part(&self.text_ends, pair as usize)]
    }

    fn value(&self, pair: u32) -> &str {
        let label = LabelsRef::from_canonical(self.pair(pair)).iter().next();
        label.expect("BUG: a label pair has no value").1
    }

    fn postings_of(&self, pair: u32) -> &[u32] {
        &self.postings[part(&self.posting_ends, pair as usize)]
    }

    fn name(&self, name: &str) -> Option<&Name> {
        let found = self.names.binary_search_by(|n| (*n.text).cmp(name));
        found.ok().map(|i| &self.names[i])
    }

    /// Rows that may have wanted samples, ascending.
    pub(super) fn select(&self, select: &Select) -> Result<Vec<u32>, TableError> {
        let mut kept = select.restricts_names().then(|| self.named(select));
        for matcher in &select.matchers {
            if let Some(rows) = &mut kept
                && rows.len() < self.values_of(&matcher.label)
            {
                self.retain_matching(rows, matcher, &select.stop)?;
            } else if let Some(rows) = self.matching(matcher, &select.stop)? {
                kept = Some(match kept {
                    Some(kept) => both(&kept, &rows),
                    None => rows,
                });
            }
        }
        let mut rows = kept.unwrap_or_else(|| (0..self.rows() as u32).collect());
        if let Some(series) = &select.series {
            rows.retain(|row| series.contains(&self.keys[*row as usize]));
        }
        if !self.all_overlap(select.range) {
            rows.retain(|row| self.spans[*row as usize].overlaps(&select.range));
        }
        Ok(rows)
    }

    /// Rows whose metric has one of the wanted names. If these are unknown, a name that begins with the wanted prefix.
    fn named(&self, select: &Select) -> Vec<u32> {
        let Some(Name { pairs, .. }) = self.name(METRIC_NAME) else { return Vec::new() };
        let prefix = select.name_prefix.as_str();
        let Some(names) = &select.names else {
            let begin = self.first_from(pairs, |name| name < prefix);
            let end = self.first_from(&(begin..pairs.end), |name| name.starts_with(prefix));
            return self.rows_of(begin..end);
        };
        let mut rest = pairs.clone();
        let mut wanted = Vec::new();
        for name in names {
            rest.start = self.first_from(&rest, |other| other < name.as_str());
            if rest.start < rest.end && self.value(rest.start) == name {
                wanted.push(rest.start);
            }
        }
        self.rows_of(wanted.into_iter())
    }

    /// The first of the pairs for whose value `is_before` is false. It must be true for the first values, and false for all
    /// others.
    fn first_from(&self, pairs: &Range<u32>, is_before: impl Fn(&str) -> bool) -> u32 {
        let (mut begin, mut end) = (pairs.start, pairs.end);
        while begin < end {
            let middle = begin + (end - begin) / 2;
            match is_before(self.value(middle)) {
                true => begin = middle + 1,
                false => end = middle,
            }
        }
        begin
    }

    /// Rows that have one of these pairs of the same label.
    fn rows_of(&self, pairs: impl Iterator<Item = u32>) -> Vec<u32> {
        // a row has only one value of a label, so no row is found twice
        let mut rows: Vec<u32> = pairs.flat_map(|pair| self.postings_of(pair)).copied().collect();
        rows.sort_unstable();
        rows
    }

    fn values_of(&self, label: &str) -> usize {
        self.name(label).map_or(0, |name| name.pairs.len())
    }

    /// Removes the rows that do not pass the matcher. If there are few rows, this takes less than [`Self::matching`].
    fn retain_matching(&self, rows: &mut Vec<u32>, matcher: &Matcher, stop: &Stop) -> Result<(), TableError> {
        let Some(Name { pairs, .. }) = self.name(&matcher.label) else { return Ok(()) };
        let (mut kept, mut pace) = (Vec::with_capacity(rows.len()), Pace::default());
        for row in rows.iter() {
            let pair = self.pairs_of(*row as usize).iter().find(|pair| pairs.contains(pair));
            let value = pair.map_or("", |pair| self.value(*pair));
            pace.check(stop, value.len())?;
            if (matcher.test)(value) {
                kept.push(*row);
            }
        }
        *rows = kept;
        Ok(())
    }

    /// Rows that pass the matcher. `None` if no row fails.
    fn matching(&self, matcher: &Matcher, stop: &Stop) -> Result<Option<Vec<u32>>, TableError> {
        let test = |value: &str| (matcher.test)(value);
        if !test("") {
            return self.with(&matcher.label, stop, test).map(Some);
        }
        // rows without the label pass the test, so only rows that fail it are excluded
        let others = self.with(&matcher.label, stop, |value| !test(value))?;
        Ok((!others.is_empty()).then(|| without(self.rows() as u32, &others)))
    }

    /// Rows with a value of the label that passes `test`.
    fn with(&self, label: &str, stop: &Stop, test: impl Fn(&str) -> bool) -> Result<Vec<u32>, TableError> {
        let Some(name) = self.name(label) else { return Ok(Vec::new()) };
        let (mut passing, mut pace) = (Vec::new(), Pace::default());
        for pair in name.pairs.clone() {
            let value = self.value(pair);
            pace.check(stop, value.len())?;
            if test(value) {
                passing.push(pair);
            }
        }
        Ok(self.rows_of(passing.into_iter()))
    }

    fn all_overlap(&self, range: TimeRange) -> bool {
        range.start_ms <= self.common.end_ms && range.end_ms >= self.common.start_ms
    }

    fn takes_all(&self, select: &Select) -> bool {
        select.takes_all_series() && self.all_overlap(select.range)
    }

    /// Calls `each` once for each label name of the selected rows.
    pub(super) fn label_names(&self, select: &Select, mut each: impl FnMut(&str)) -> Result<(), TableError> {
        if self.takes_all(select) {
            self.names.iter().for_each(|name| each(&name.text));
            return Ok(());
        }
        let among = self.marked(&self.select(select)?);
        for name in &self.names {
            if name.pairs.clone().any(|pair| among[pair as usize]) {
                each(&name.text);
            }
        }
        Ok(())
    }

    /// Passes the label's values of the selected rows to `each`.
    pub(super) fn label_values(
        &self,
        label: &str,
        select: &Select,
        mut each: impl FnMut(&str),
    ) -> Result<(), TableError> {
        let Some(name) = self.name(label) else { return Ok(()) };
        if self.takes_all(select) {
            name.pairs.clone().for_each(|pair| each(self.value(pair)));
            return Ok(());
        }
        let among = self.marked(&self.select(select)?);
        name.pairs.clone().filter(|pair| among[*pair as usize]).for_each(|pair| each(self.value(pair)));
        Ok(())
    }

    fn marked(&self, rows: &[u32]) -> Vec<bool> {
        let mut marked = vec![false; self.text_ends.len()];
        for row in rows {
            self.pairs_of(*row as usize).iter().for_each(|pair| marked[*pair as usize] = true);
        }
        marked
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let names = self.names.iter().map(|name| size_of::<Name>() + name.text.len()).sum::<usize>();
        let columns = [
            &self.text_ends,
            &self.postings,
            &self.posting_ends,
            &self.pairs,
            &self.pair_ends,
            &self.samples_ends,
            &self.decimals_ends,
        ];
        let columns = columns.into_iter().map(|column| size_of_val(&**column)).sum::<usize>();
        let rows = size_of_val(&*self.keys)
            + size_of_val(&*self.spans)
            + size_of_val(&*self.bases)
            + self.exponents.len();
        size_of::<Self>() + names + self.texts.len() + columns + rows
    }
}

/// Range of the i-th part of an array. `ends` has the ends of all parts.
fn part(ends: &[u32], i: usize) -> Range<usize> {
    i.checked_sub(1).map_or(0, |before| ends[before] as usize)..ends[i] as usize
}

fn both(a: &[u32], b: &[u32]) -> Vec<u32> {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let mut rest = many;
    let mut kept = Vec::with_capacity(few.len());
    for row in few {
        // a long gap is skipped in steps that double
        let mut step = 1;
        while step < rest.len() && rest[step] < *row {
            step *= 2;
        }
        let near = rest.len().min(step + 1);
        rest = &rest[rest[..near].partition_point(|r| r < row)..];
        if rest.first() == Some(row) {
            kept.push(*row);
        }
    }
    kept
}

/// Numbers below `rows` that are not in the ascending list.
fn without(rows: u32, list: &[u32]) -> Vec<u32> {
    let mut list = list.iter().copied().peekable();
    (0..rows).filter(|row| list.next_if_eq(row).is_none()).collect()
}

#[cfg(test)]
mod tests;
