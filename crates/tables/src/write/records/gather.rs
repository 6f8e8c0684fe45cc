//! Copies rows of several batches, in any order, into the columns of a file.
//!
//! ```text
//!   batches, by attribute     runs: rows that follow each other     columns of the file
//!   [0: level, user]      ─▶  (0, rows 0..3) (1, row 7) (0, 3..9) ─▶ level ▮▮▮▮▮▮▮▮▮▮  user ▮▮▮·▮▮▮▮▮▮
//!   [1: level]
//! ```

use super::column::Column;
use super::file::schema;
use super::rest::{Rest, RestColumn};
use super::{Attributes, Row, text_bytes};
use crate::error::TableError;
use crate::kind::attributes::{AttributeColumn, AttributeColumns};
use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::SchemaRef;
use model::Records;
use std::ops::Range;
use std::sync::Arc;

/// Limit on the texts of a record. Requests are much smaller. A column that is encoded at once has less than 2 GiB.
const RECORD_BYTES_MAX: u32 = 1 << 30;

#[derive(Debug)]
pub(super) struct Gather {
    batches: Vec<Batch>,
    /// Sorted names.
    streams: Vec<Arc<str>>,
    columns: Vec<AttributeColumn>,
    schema: SchemaRef,
    /// Bytes of text of each record of all batches.
    row_bytes: Vec<u32>,
    /// Bytes of text that the last rows had in each column. The next have about as many.
    text_bytes: Vec<usize>,
}

#[derive(Debug)]
struct Batch {
    records: Arc<Records>,
    arrival_us: i64,
    id: Option<Arc<[u8]>>,
    /// Attributes that have a column.
    typed: Vec<Typed>,
    rest: Option<Rest>,
    /// Position of the first record in [`Gather::row_bytes`].
    first: usize,
}

#[derive(Debug)]
struct Typed {
    /// Position in the batch.
    attribute: usize,
    column: usize,
    /// Value at which the next run probably begins, as most runs follow the one before.
    next: usize,
}

/// Rows of a batch that follow each other there and in the file.
#[derive(Debug, Clone, Copy)]
struct Run {
    stream: u32,
    batch: u32,
    row: u32,
    len: u32,
}

impl Gather {
    pub(super) fn new(
        batches: &[super::RecordBatch],
        streams: Vec<Arc<str>>,
        attributes: &Attributes<'_>,
        known: &AttributeColumns,
    ) -> Self {
        // only columns of attributes that occur, in the order of the table
        let mut places: Vec<Option<usize>> =
            attributes.seen.iter().map(|seen| known.find(seen.path, seen.kind)).collect();
        let mut wanted: Vec<usize> = places.iter().flatten().copied().collect();
        wanted.sort_unstable();
        for place in places.iter_mut().flatten() {
            *place = wanted.binary_search(place).expect("BUG: a column is missing");
        }
        let columns: Vec<AttributeColumn> =
            wanted.iter().map(|column| known.list()[*column].clone()).collect();
        let mut used = vec![usize::MAX; columns.len()];
        let (mut row_bytes, mut numbers) = (Vec::new(), attributes.numbers.iter());
        let batch = |(number, batch): (usize, &super::RecordBatch)| {
            let (mut typed, mut rest) = (Vec::with_capacity(batch.records.attributes.len()), Vec::new());
            for (at, attribute) in batch.records.attributes.iter().enumerate() {
                assert_eq!(attribute.rows.len(), attribute.values.len(), "BUG: an attribute lacks rows");
                match numbers.next().and_then(|number| places[*number]) {
                    // should the batch have the attribute twice, there is room in a column for only one of them
                    Some(column) if used[column] != number => {
                        used[column] = number;
                        typed.push(Typed { attribute: at, column, next: 0 });
                    }
                    _ => rest.push(at as u32),
                }
            }
            let (records, first) = (&batch.records, row_bytes.len());
            text_bytes(records, &mut row_bytes);
            let rest = Rest::of(records, rest);
            if let Some(rest) = &rest {
                rest.add_bytes(records, &mut row_bytes[first..]);
            }
            let (records, id) = (Arc::clone(records), batch.id.clone());
            Batch { records, arrival_us: batch.arrival_us, id, typed, rest, first }
        };
        let batches = batches.iter().enumerate().map(batch).collect();
        let text_bytes = vec![0; columns.len()];
        let schema = schema(&columns);
        Self { batches, streams, columns, schema, row_bytes, text_bytes }
    }

    /// Bytes of text of a record, with its rest in JSON.
    pub(super) fn bytes_of(&self, row: &Row) -> u32 {
        self.row_bytes[self.batches[row.batch as usize].first + row.row as usize]
    }

    /// Upper bound on the rest of the rows in JSON.
    fn rest_bytes(&self, run: &Run) -> usize {
        let batch = &self.batches[run.batch as usize];
        if batch.rest.is_none() {
            return 0;
        }
        let first = batch.first + run.row as usize;
        self.row_bytes[first..first + run.len as usize].iter().map(|bytes| *bytes as usize).sum()
    }

    pub(super) fn columns(&self) -> &[AttributeColumn] {
        &self.columns
    }

    /// Number of leading rows to convert together, at least one and at most `rows_max`. Their texts and `row_bytes` for each of them
    /// are at most `bytes_max`, unless it is one row.
    pub(super) fn slice_rows(
        &self,
        rows: &[Row],
        rows_max: usize,
        row_bytes: usize,
        bytes_max: usize,
    ) -> usize {
        let mut bytes = 0;
        let fits = |row: &&Row| {
            let is_first = bytes == 0;
            bytes += row_bytes + self.bytes_of(row) as usize;
            is_first || bytes <= bytes_max
        };
        rows.iter().take(rows_max).take_while(fits).count()
    }

    pub(super) fn batch(&mut self, rows: &[Row]) -> Result<RecordBatch, TableError> {
        if self.bytes_of(&rows[0]) > RECORD_BYTES_MAX {
            return Err(TableError::TooLarge {
                what: "the texts of a record",
                limit_bytes: RECORD_BYTES_MAX as usize,
            });
        }
        let runs = runs(rows);
        let mut columns = self.fixed(rows, &runs)?;
        let new =
            |(column, bytes): (&AttributeColumn, &usize)| Column::new(column.data_type(), rows.len(), *bytes);
        let mut builders: Vec<Column> = self.columns.iter().zip(&self.text_bytes).map(new).collect();
        let mut at = 0;
        for run in &runs {
            let Batch { records, typed, .. } = &mut self.batches[run.batch as usize];
            for typed in typed {
                let attribute = &records.attributes[typed.attribute];
                let values = typed.range(&attribute.rows, run.row, run.len);
                builders[typed.column].append(at, attribute, values, run.row, run.len as usize);
            }
            at += run.len as usize;
        }
        self.text_bytes = builders.iter().map(Column::bytes).collect();
        columns.extend(builders.into_iter().map(|builder| builder.finish(rows.len())));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        Ok(batch.expect("BUG: columns differ from the schema"))
    }

    fn fixed(&self, rows: &[Row], runs: &[Run]) -> Result<Vec<ArrayRef>, TableError> {
        let mut streams = StringBuilder::with_capacity(rows.len(), 16 * rows.len());
        let mut ids = BinaryBuilder::with_capacity(rows.len(), 0);
        let mut arrivals = Vec::with_capacity(rows.len());
        let mut rest = RestColumn::new(rows.len(), runs.iter().map(|run| self.rest_bytes(run)).sum());
        for run in runs {
            let batch = &self.batches[run.batch as usize];
            let (stream, len) = (&self.streams[run.stream as usize], run.len as usize);
            arrivals.extend(std::iter::repeat_n(batch.arrival_us, len));
            for _ in 0..len {
                streams.append_value(stream);
                ids.append_option(batch.id.as_deref());
            }
            rest.append(&batch.records, batch.rest.as_ref(), run.row as usize, len)?;
        }
        let times = |times: Vec<i64>| -> ArrayRef {
            Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"))
        };
        Ok(vec![
            Arc::new(streams.finish()),
            times(rows.iter().map(|row| row.time_us).collect()),
            times(arrivals),
            Arc::new(ids.finish()),
            rest.finish(),
        ])
    }
}

fn runs(rows: &[Row]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for row in rows {
        match runs.last_mut() {
            Some(run) if run.batch == row.batch && run.row + run.len == row.row => run.len += 1,
            _ => runs.push(Run { stream: row.stream, batch: row.batch, row: row.row, len: 1 }),
        }
    }
    runs
}

impl Typed {
    /// Values of `len` rows from `row` on. `rows` are those of the attribute.
    fn range(&mut self, rows: &[u32], row: u32, len: u32) -> Range<usize> {
        let is_next =
            (self.next == 0 || rows[self.next - 1] < row) && rows.get(self.next).is_none_or(|r| *r >= row);
        let from = if is_next { self.next } else { rows.partition_point(|r| *r < row) };
        let most = &rows[from..rows.len().min(from + len as usize)];
        let count = match most.last() {
            Some(last) if *last < row + len => most.len(),
            _ => most.partition_point(|r| *r < row + len),
        };
        self.next = from + count;
        from..from + count
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SLICE_BYTES, SLICE_ROWS};
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use model::{AttributeValue, RecordsBuilder};

    /// Each byte of such texts becomes six.
    #[test]
    fn slices_are_bounded_by_the_json_of_their_rest() {
        let mut builder = RecordsBuilder::new();
        let text = "\u{1}".repeat(2000);
        for n in 0..3000 {
            builder.put("text", AttributeValue::Text(&text)).unwrap();
            builder.put("number", AttributeValue::Int(n)).unwrap();
            builder.end(n);
        }
        let records = Arc::new(builder.finish());
        let batches = [super::super::RecordBatch { stream: "s".into(), arrival_us: 0, id: None, records }];
        let attributes = Attributes::of(&batches);
        let mut gather = Gather::new(&batches, vec!["s".into()], &attributes, &AttributeColumns::default());
        let rows: Vec<_> =
            (0..3000).map(|row| Row { time_us: row.into(), stream: 0, batch: 0, row }).collect();
        let (mut rows, mut slices) = (rows.as_slice(), 0);
        while !rows.is_empty() {
            let (slice, rest) = rows.split_at(gather.slice_rows(rows, SLICE_ROWS, 1, SLICE_BYTES));
            let batch = gather.batch(slice).unwrap();
            let json = batch.column(4).as_string::<i32>();
            let (used, capacity) = (json.value_data().len(), json.values().capacity());
            assert!(used <= SLICE_BYTES && capacity <= SLICE_BYTES + 64, "{used} of {capacity}");
            assert_eq!(json.len(), slice.len());
            (rows, slices) = (rest, slices + 1);
        }
        assert!((9..=10).contains(&slices), "{slices}");
    }
}
