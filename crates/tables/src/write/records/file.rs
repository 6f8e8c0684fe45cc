use crate::date::Date;
use crate::delta::FileSummary;
use crate::error::TableError;
use crate::kind::attributes::AttributeColumn;
use crate::kind::records::{self, Effort, RECORDS, STREAM, TIME};
use crate::write::{Counted, Sink};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use model::TimeRange;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use std::sync::Arc;

/// Columns of a file: the fixed ones, then those of attributes.
pub(crate) fn schema(attributes: &[AttributeColumn]) -> SchemaRef {
    let fixed = RECORDS.schema();
    let field = |c: &AttributeColumn| Arc::new(Field::new(&*c.name, c.data_type().arrow(), true));
    let fields = fixed.fields().iter().cloned().chain(attributes.iter().map(field));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Encoder of a file of one day, whose rows come in order of stream and time.
#[derive(Debug)]
pub(crate) struct RecordsFile<W: Sink> {
    encoder: ArrowWriter<Counted<W>>,
    summary: FileSummary,
    row_group_bytes: usize,
}

impl<W: Sink> RecordsFile<W> {
    pub(crate) fn new(
        date: Date,
        sink: W,
        attributes: &[AttributeColumn],
        effort: Effort,
        row_group_bytes: usize,
    ) -> Result<Self, TableError> {
        let options = ArrowWriterOptions::new()
            .with_properties(records::writer_properties(attributes, effort))
            .with_skip_arrow_metadata(true);
        let sink = Counted { sink, bytes: 0 };
        let encoder = ArrowWriter::try_new_with_options(sink, schema(attributes), options);
        let summary = FileSummary { attributes: attributes.into(), ..FileSummary::new(date) };
        Ok(Self { encoder: encoder.map_err(TableError::Write)?, summary, row_group_bytes })
    }

    /// Adds rows, of which there is at least one.
    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<(), TableError> {
        self.sum_up(rows);
        self.encoder.write(rows).map_err(TableError::Write)?;
        // dictionaries of many columns take much more memory than their encoded bytes
        let is_full = self.encoder.in_progress_size() >= self.row_group_bytes
            || self.encoder.memory_size() >= 2 * self.row_group_bytes;
        if is_full { self.encoder.flush().map_err(TableError::Write) } else { Ok(()) }
    }

    fn sum_up(&mut self, rows: &RecordBatch) {
        let streams = rows.column_by_name(STREAM).expect("BUG: rows have no stream").as_string::<i32>();
        let times = rows.column_by_name(TIME).expect("BUG: rows have no time");
        let times = times.as_primitive::<TimestampMicrosecondType>().values();
        let (first, last) = (streams.value(0), streams.value(streams.len() - 1));
        let summary = &mut self.summary;
        assert!(summary.name_max.as_str() <= first && first <= last, "BUG: rows are not in order");
        if summary.rows == 0 {
            summary.name_min = first.into();
        }
        if summary.name_max != last {
            summary.name_max = last.into();
        }
        summary.rows += rows.num_rows() as u64;
        let [mut least, mut greatest] = summary.range_us.unwrap_or([i64::MAX, i64::MIN]);
        for time_us in times {
            least = least.min(*time_us);
            greatest = greatest.max(*time_us);
        }
        summary.range_us = Some([least, greatest]);
    }

    pub(crate) fn written_bytes(&self) -> usize {
        self.encoder.bytes_written() + self.encoder.in_progress_size()
    }

    pub(crate) fn finish(mut self) -> Result<(FileSummary, W), TableError> {
        let Counted { sink, bytes } = self.encoder.into_inner().map_err(TableError::Write)?;
        let [least, greatest] = self.summary.range_us.expect("BUG: a file has no rows");
        let (start_ms, end_ms) = (least.div_euclid(1000), greatest.div_euclid(1000));
        self.summary.bytes = bytes;
        self.summary.range = TimeRange::new(start_ms, end_ms);
        // there is one time for each row
        (self.summary.end_min_ms, self.summary.start_max_ms) = (start_ms, end_ms);
        Ok((self.summary, sink))
    }
}
