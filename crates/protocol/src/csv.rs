//! Decodes tables of comma-separated values.
//!
//! ```text
//!   format=1:label:ticker,2:metric:ask,3:metric:bid,4:time:unix_s      columns, counted from 1
//!
//!   GOOG,1.23,4.56,1795284000          ask{ticker="GOOG"} 1.23   bid{ticker="GOOG"} 4.56
//!   "A, B",7.5,,1795284000             ask{ticker="A, B"} 7.5
//! ```
//!
//! The map of columns is read once for a request ([`Columns`]), in the form of VictoriaMetrics. A row takes no memory for
//! the names of its columns, and the labels of known series are not parsed: the key of a series is a hash of the row's
//! labels as they are written, and of the metric's column. These labels are kept behind the rows ([`row`]), so that the work
//! for a series does not depend on the other columns. A row ends with its line, so quoted values have no line breaks.

mod columns;
mod row;
mod time;

pub use columns::{Columns, ColumnsError};

use crate::line_batch::LineBatch;
use crate::raw_keys::RawKeys;
use crate::{DecodeError, LabelForm, Request};
use model::{Batch, SeriesHasher};
use std::sync::Arc;
use stdx::budget::IncrementalReservation;

/// What a request says besides its rows.
#[derive(Debug, Clone)]
pub struct Format {
    pub columns: Arc<Columns>,
    /// The time of rows without a time, in milliseconds since the Unix epoch.
    pub arrival_ms: i64,
    /// Number of the first line, for error messages.
    pub first_line: usize,
}

#[derive(Debug)]
pub struct Decoder {
    seed: u64,
    hasher: SeriesHasher,
    row: row::Row,
}

impl crate::Decoder for Decoder {
    type Format = Format;

    fn new(seed: u64) -> Self {
        Self { seed, hasher: SeriesHasher::new(seed), row: row::Row::default() }
    }

    fn fill(
        &mut self,
        request: Request<'_, Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let Request { format: Format { columns, arrival_ms, first_line }, body } = request;
        body.decompress(&mut batch.bytes, reservation)?;
        // moved out, so that other fields of the batch can be modified while the bytes are borrowed
        let mut bytes = std::mem::take(&mut batch.bytes);
        let keys = RawKeys { hasher: &self.hasher, fingerprint: columns.fingerprint(self.seed) };
        let row = &mut self.row;
        row.begin(bytes.len());
        let lines = LineBatch::new(&bytes, keys, batch, reservation);
        let read = lines.each_line(first_line, |lines, range| row.read(lines, range, &columns, arrival_ms));
        let read = read.and_then(|()| Ok(reservation.extend(&mut bytes, row.labels())?));
        batch.bytes = bytes;
        read
    }

    fn memory_bytes(&self) -> usize {
        self.row.memory_bytes()
    }

    fn label_form(format: &Format) -> &dyn LabelForm {
        &*format.columns
    }
}

#[cfg(test)]
mod tests;
