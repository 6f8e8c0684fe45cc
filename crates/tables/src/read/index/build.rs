//! Builds the index of a row group from its small columns.

use super::pairs::{self, Numbered, Pair, Pairs};
use super::{FLOATS, RowGroupIndex};
use crate::decimal;
use crate::error::TableError;
use crate::parquet::{Chunk, Damage};
use crate::read::{Footer, Ranges, guarded, prune, row, small_columns};
use model::caps::{SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::{SeriesKey, TimeRange};
use std::cmp::Ordering;
use std::ops::Range;

/// Memory of a row in the index, besides its labels.
const ROW_BYTES: u64 = 16 + 16 + 3 * 4 + 1 + 8;
/// Memory of one label of a row: the number of the pair, and the row's number in the pair's postings.
const ROW_LABEL_BYTES: u64 = 2 * 4;

impl RowGroupIndex {
    /// Approximate memory of a row group's index, estimated from the footer.
    pub(in crate::read) fn estimate(footer: &Footer, group: usize) -> u64 {
        let parquet = footer.parquet();
        let rows = u64::try_from(parquet.row_group(group).num_rows()).unwrap_or(u64::MAX);
        let labels = prune::label_count(parquet, group).saturating_add(rows);
        let texts = prune::label_bytes(parquet, group).saturating_add(prune::name_bytes(parquet, group));
        let columns = rows.saturating_mul(ROW_BYTES).saturating_add(labels.saturating_mul(ROW_LABEL_BYTES));
        columns.saturating_add(texts)
    }

    pub(in crate::read) fn read(
        file: &dyn Ranges,
        footer: &Footer,
        group: usize,
    ) -> Result<Self, TableError> {
        guarded(file.name(), || {
            let chunks = small_columns::fetch_chunks(file, footer, group, small_columns::ALL)?;
            Self::of(&chunks).map_err(|damage| TableError::damaged(file.name(), damage))
        })
    }

    pub(in crate::read) fn of(columns: &[Chunk; small_columns::ALL.len()]) -> Result<Self, Damage> {
        let [metric, name, value, series, start, end, count, exponent, base] = columns;
        if name.levels != value.levels {
            return Err(row::UNPAIRED);
        }
        let keys = series.keys()?;
        let spans = start.longs()?.into_iter().zip(end.longs()?);
        let spans: Vec<_> = spans.map(|(start, end)| TimeRange::new(start, end)).collect();
        if spans.iter().any(|span| span.start_ms > span.end_ms) {
            return Err("a row ends before it starts");
        }
        let samples = SampleRows::new(&count.longs()?, &exponent.optional_ints()?, &base.optional_longs()?)?;
        let ((names, ends), values) = (name.lists()?, value.listed()?);
        if names.codes.len() != values.codes.len() {
            return Err(row::UNPAIRED);
        }
        let mut labels = LabelRows::new(Pairs::new(metric.texts()?, names, values)?, ends.len());
        let mut entry = 0;
        for (row, end) in ends.into_iter().enumerate() {
            let entries = entry..end as usize;
            entry = entries.end;
            labels.add(row, entries)?;
            if row > 0 && !labels.ascend(spans[row - 1], spans[row]) {
                return Err("the rows of a row group are not in order");
            }
        }
        Ok(labels.finish(keys, spans, samples))
    }
}

struct SampleRows {
    ends: Vec<u32>,
    decimals_ends: Vec<u32>,
    exponents: Vec<u8>,
    bases: Vec<i64>,
}

impl SampleRows {
    fn new(counts: &[i64], exponents: &[Option<i64>], bases: &[Option<i64>]) -> Result<Self, Damage> {
        let room = || Vec::with_capacity(counts.len());
        let mut rows = Self {
            ends: room(),
            decimals_ends: room(),
            exponents: Vec::with_capacity(counts.len()),
            bases: Vec::with_capacity(counts.len()),
        };
        let (mut samples, mut decimals) = (0u32, 0);
        for ((count, exponent), base) in counts.iter().zip(exponents).zip(bases) {
            // deltas wrap at 32 bits, so only the low half is valid
            let count = u32::try_from(*count as i32).ok().filter(|count| *count > 0);
            let count = count.ok_or("a row has an impossible count")?;
            samples = samples.checked_add(count).ok_or("a row group has too many samples")?;
            let exponent = match (exponent, base) {
                (Some(exponent), Some(_)) => {
                    decimals += count;
                    let known = u8::try_from(*exponent).ok().filter(|e| decimal::value(0, *e).is_some());
                    known.ok_or("a row has an unknown exponent")?
                }
                (None, None) => FLOATS,
                _ => return Err(row::HALF_A_FORM),
            };
            rows.ends.push(samples);
            rows.decimals_ends.push(decimals);
            rows.exponents.push(exponent);
            rows.bases.push(base.unwrap_or(0));
        }
        Ok(rows)
    }
}

/// Labels of the rows so far, with pairs numbered in order of appearance.
struct LabelRows {
    pairs: Pairs,
    numbers: Vec<u32>,
    ends: Vec<u32>,
    /// Pairs of the last row and of the row before.
    last: Vec<Pair>,
    before: Vec<Pair>,
}

impl LabelRows {
    fn new(pairs: Pairs, rows: usize) -> Self {
        let numbers = Vec::with_capacity(pairs.len() + rows);
        Self { pairs, numbers, ends: Vec::with_capacity(rows), last: Vec::new(), before: Vec::new() }
    }

    /// Adds the next row. `entries` are its labels other than the metric name.
    fn add(&mut self, row: usize, entries: Range<usize>) -> Result<(), Damage> {
        if entries.len() >= SERIES_LABELS_MAX {
            return Err("a series has too many labels");
        }
        std::mem::swap(&mut self.last, &mut self.before);
        self.last.clear();
        let metric = self.pairs.metric(row);
        let mut least = 0;
        let mut put = |pair: Pair| {
            if u64::from(pairs::name(pair)) < least {
                return Err(row::UNORDERED);
            }
            least = u64::from(pairs::name(pair)) + 1;
            self.last.push(pair);
            Ok(())
        };
        let mut named = false;
        for pair in self.pairs.labels(entries) {
            if !named && pair > metric {
                put(metric)?;
                named = true;
            }
            put(pair)?;
        }
        if !named {
            put(metric)?;
        }
        self.number()
    }

    /// Appends the numbers of the last row's pairs.
    fn number(&mut self) -> Result<(), Damage> {
        let before = self.numbers.len() - self.before.len();
        for (i, pair) in self.last.iter().enumerate() {
            // usually, the row before has the same label at this position
            let number = match self.before.get(i) {
                Some(known) if known == pair => self.numbers[before + i],
                _ => self.pairs.number(*pair)?,
            };
            self.numbers.push(number);
        }
        if self.last.len() * self.pairs.longest() > SERIES_LABEL_BYTES_MAX {
            let numbers = &self.numbers[before + self.before.len()..];
            if numbers.iter().map(|number| self.pairs.canonical(*number).len()).sum::<usize>()
                > SERIES_LABEL_BYTES_MAX
            {
                return Err(row::TOO_LONG);
            }
        }
        self.ends.push(self.numbers.len() as u32);
        Ok(())
    }

    /// True if the last two rows are in table order.
    fn ascend(&self, before: TimeRange, last: TimeRange) -> bool {
        let metrics = self.metric(&self.before).cmp(&self.metric(&self.last));
        match metrics.then_with(|| self.others(&self.before).cmp(self.others(&self.last))) {
            Ordering::Less => true,
            Ordering::Equal => before.end_ms < last.start_ms,
            Ordering::Greater => false,
        }
    }

    fn metric(&self, row: &[Pair]) -> Option<Pair> {
        row.iter().copied().find(|pair| self.pairs.is_metric(*pair))
    }

    fn others(&self, row: &[Pair]) -> impl Iterator<Item = Pair> {
        row.iter().copied().filter(|pair| !self.pairs.is_metric(*pair))
    }

    /// Renumbers the pairs in sorted order, and makes the postings.
    fn finish(mut self, keys: Vec<SeriesKey>, spans: Vec<TimeRange>, samples: SampleRows) -> RowGroupIndex {
        let Numbered { names, texts, text_ends, numbers } = self.pairs.finish();
        let mut posting_ends = vec![0u32; numbers.len()];
        for number in &mut self.numbers {
            *number = numbers[*number as usize];
            posting_ends[*number as usize] += 1;
        }
        let mut total = 0;
        for end in &mut posting_ends {
            // at first, `end` is the position of the pair's first posting; adding the postings moves it to their end
            total += std::mem::replace(end, total);
        }
        let mut postings = vec![0; self.numbers.len()];
        for row in 0..keys.len() {
            for pair in &self.numbers[super::part(&self.ends, row)] {
                let end = &mut posting_ends[*pair as usize];
                postings[*end as usize] = row as u32;
                *end += 1;
            }
        }
        let common = TimeRange::new(
            spans.iter().map(|span| span.start_ms).max().unwrap_or(i64::MIN),
            spans.iter().map(|span| span.end_ms).min().unwrap_or(i64::MAX),
        );
        RowGroupIndex {
            names,
            texts: texts.into(),
            text_ends: text_ends.into(),
            postings: postings.into(),
            posting_ends: posting_ends.into(),
            pairs: self.numbers.into(),
            pair_ends: self.ends.into(),
            keys: keys.into(),
            spans: spans.into(),
            samples_ends: samples.ends.into(),
            decimals_ends: samples.decimals_ends.into(),
            exponents: samples.exponents.into(),
            bases: samples.bases.into(),
            common,
        }
    }
}
