//! From the small columns of a row group to its directory.

use super::{Directory, FLOATS, Name};
use crate::error::TableError;
use crate::read::row::{self, Order};
use crate::read::{Footer, Ranges, guarded, prune};
use crate::schema;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use model::labels::put_label;
use model::{LabelsRef, SeriesKey, TimeRange};
use parquet::arrow::ProjectionMask;
use parquet::arrow::push_decoder::ParquetPushDecoderBuilder;
use std::collections::HashMap;
use std::ops::Range;

/// The columns that it is made of.
const COLUMNS: [&str; 8] = [
    schema::NAME,
    schema::LABELS,
    schema::SERIES,
    schema::START,
    schema::END,
    schema::COUNT,
    schema::EXPONENT,
    schema::BASE,
];

/// Rows that are decoded together.
const BATCH_ROWS: usize = 1024;

/// Bytes of a row beside its labels, and of each label (a number among the row's pairs, and one among postings).
const ROW_BYTES: u64 = 16 + 16 + 3 * 4 + 1 + 8;
const ROW_LABEL_BYTES: u64 = 2 * 4;

impl Directory {
    /// About the bytes of memory that the directory of a row group will take.
    pub(in crate::read) fn estimate(footer: &Footer, group: usize) -> u64 {
        let parquet = footer.parquet();
        let rows = u64::try_from(parquet.row_group(group).num_rows()).unwrap_or(u64::MAX);
        let labels = prune::label_count(parquet, group).saturating_add(rows);
        let texts = prune::label_bytes(parquet, group);
        let columns = rows.saturating_mul(ROW_BYTES).saturating_add(labels.saturating_mul(ROW_LABEL_BYTES));
        columns.saturating_add(texts)
    }

    /// Makes the directory of a row group.
    pub(in crate::read) fn read(
        file: &dyn Ranges,
        footer: &Footer,
        group: usize,
    ) -> Result<Self, TableError> {
        guarded(file.name(), || {
            let descriptor = footer.parquet().file_metadata().schema_descr();
            let mut decoder = ParquetPushDecoderBuilder::new_with_metadata(footer.metadata.clone())
                .with_batch_size(BATCH_ROWS)
                .with_row_groups(vec![group])
                .with_projection(ProjectionMask::columns(descriptor, COLUMNS))
                .build()
                .map_err(|e| TableError::damaged(file.name(), e))?;
            let mut builder = Builder::default();
            let mut stats = crate::read::ReadStats::default();
            while let Some(batch) = crate::read::stream::decode(file, &mut decoder, &mut stats)? {
                builder.add(file.name(), &batch)?;
            }
            Ok(builder.finish())
        })
    }
}

/// A directory while it grows; pairs are numbered as they come.
#[derive(Default)]
struct Builder {
    /// Pairs in canonical form, and their numbers.
    known: HashMap<Box<[u8]>, u32>,
    pairs: Vec<u32>,
    pair_ends: Vec<u32>,
    keys: Vec<SeriesKey>,
    spans: Vec<TimeRange>,
    samples_ends: Vec<u32>,
    decimals_ends: Vec<u32>,
    exponents: Vec<u8>,
    bases: Vec<i64>,
    order: Order,
    /// Samples so far, of them how many are decimal.
    samples: u32,
    decimals: u32,
    /// The labels of the last row, and where each pair is in them; likewise of the row before.
    labels: Vec<u8>,
    places: Vec<(Range<usize>, u32)>,
    before: Vec<u8>,
    places_before: Vec<(Range<usize>, u32)>,
}

impl Builder {
    fn add(&mut self, file: &str, batch: &RecordBatch) -> Result<(), TableError> {
        let damaged = |reason: &str| TableError::damaged(file, reason);
        let column = |name: &str| {
            let found = batch.column_by_name(name);
            found.ok_or_else(|| TableError::damaged(file, format!("no column {name:?}")))
        };
        let names = column(schema::NAME)?.as_string::<i32>();
        let labels = row::LabelColumns::of(column(schema::LABELS)?.as_map());
        let series = column(schema::SERIES)?.as_binary::<i32>();
        let start = column(schema::START)?.as_primitive::<TimestampMillisecondType>();
        let end = column(schema::END)?.as_primitive::<TimestampMillisecondType>();
        let count = column(schema::COUNT)?.as_primitive::<Int32Type>();
        let exponent = column(schema::EXPONENT)?.as_primitive::<Int8Type>();
        let base = column(schema::BASE)?.as_primitive::<Int64Type>();
        for i in 0..batch.num_rows() {
            self.add_labels(names.value(i), &labels, i).map_err(damaged)?;
            let key = row::key(series.value(i)).ok_or_else(|| damaged("a series key has not 16 bytes"))?;
            self.keys.push(key);
            let span = TimeRange::new(start.value(i), end.value(i));
            self.order.next(&self.labels, span).map_err(damaged)?;
            self.spans.push(span);
            if exponent.is_valid(i) != base.is_valid(i) {
                return Err(damaged(row::HALF_A_FORM));
            }
            self.bases.push(base.value(i));
            let exponent = match exponent.is_valid(i) {
                true => {
                    u8::try_from(exponent.value(i)).ok().filter(|e| crate::decimal::value(0, *e).is_some())
                }
                false => Some(FLOATS),
            };
            self.exponents.push(exponent.ok_or_else(|| damaged("a row has an exponent that is not known"))?);
            let count = u32::try_from(count.value(i)).ok().filter(|count| *count > 0);
            let samples = count.and_then(|count| self.samples.checked_add(count));
            let samples = samples.ok_or_else(|| damaged("a row has a count that cannot be"))?;
            if exponent != Some(FLOATS) {
                self.decimals += samples - self.samples;
            }
            self.samples = samples;
            self.samples_ends.push(samples);
            self.decimals_ends.push(self.decimals);
        }
        Ok(())
    }

    /// Notes the pairs of a row; its labels are in `self.labels` then.
    fn add_labels(
        &mut self,
        name: &str,
        columns: &row::LabelColumns<'_>,
        row: usize,
    ) -> Result<(), &'static str> {
        std::mem::swap(&mut self.labels, &mut self.before);
        std::mem::swap(&mut self.places, &mut self.places_before);
        self.labels.clear();
        self.places.clear();
        columns.each(name, row, |name, value| {
            let from = self.labels.len();
            put_label(&mut self.labels, name.as_bytes(), value.as_bytes());
            let text = &self.labels[from..];
            // most labels are those of the row before, in the same place
            let pair = match self.places_before.get(self.places.len()) {
                Some((place, pair)) if self.before[place.clone()] == *text => *pair,
                _ => match self.known.get(text) {
                    Some(pair) => *pair,
                    None => {
                        let pair = self.known.len() as u32;
                        self.known.insert(text.into(), pair);
                        pair
                    }
                },
            };
            self.places.push((from..self.labels.len(), pair));
            self.pairs.push(pair);
        })?;
        row::check_length(&self.labels)?;
        self.pair_ends.push(self.pairs.len() as u32);
        Ok(())
    }

    /// Numbers the pairs by name and value, and turns rows' pairs into pairs' rows.
    fn finish(mut self) -> Directory {
        let mut sorted: Vec<(Box<[u8]>, u32)> = self.known.drain().collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| label(a).cmp(&label(b)));
        let mut numbers = vec![0; sorted.len()];
        let (mut names, mut texts, mut text_ends) = (Vec::<Name>::new(), Vec::new(), Vec::new());
        for (number, (text, before)) in sorted.iter().enumerate() {
            let number = number as u32;
            numbers[*before as usize] = number;
            texts.extend_from_slice(text);
            text_ends.push(texts.len() as u32);
            let (name, _) = label(text);
            match names.last_mut().filter(|last| *last.text == *name) {
                Some(last) => last.pairs.end = number + 1,
                None => names.push(Name { text: name.into(), pairs: number..number + 1 }),
            }
        }
        let mut posting_ends = vec![0u32; sorted.len()];
        for pair in &mut self.pairs {
            *pair = numbers[*pair as usize];
            posting_ends[*pair as usize] += 1;
        }
        let mut total = 0;
        for end in &mut posting_ends {
            // first where each list begins; filling it moves that to its end
            total += std::mem::replace(end, total);
        }
        let mut postings = vec![0; self.pairs.len()];
        for row in 0..self.keys.len() {
            for pair in &self.pairs[super::part(&self.pair_ends, row)] {
                let end = &mut posting_ends[*pair as usize];
                postings[*end as usize] = row as u32;
                *end += 1;
            }
        }
        let common = TimeRange::new(
            self.spans.iter().map(|span| span.start_ms).max().unwrap_or(i64::MIN),
            self.spans.iter().map(|span| span.end_ms).min().unwrap_or(i64::MAX),
        );
        Directory {
            names,
            texts: texts.into(),
            text_ends: text_ends.into(),
            postings: postings.into(),
            posting_ends: posting_ends.into(),
            pairs: self.pairs.into(),
            pair_ends: self.pair_ends.into(),
            keys: self.keys.into(),
            spans: self.spans.into(),
            samples_ends: self.samples_ends.into(),
            decimals_ends: self.decimals_ends.into(),
            exponents: self.exponents.into(),
            bases: self.bases.into(),
            common,
        }
    }
}

/// The name and the value of a pair.
fn label(pair: &[u8]) -> (&str, &str) {
    LabelsRef::from_canonical(pair).iter().next().expect("BUG: a pair is a name and a value")
}
