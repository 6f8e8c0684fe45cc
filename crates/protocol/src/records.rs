//! Decodes records of any shape, such as log lines and events, into columns.
//!
//! ```text
//!   body ──▶ json   an object, a list of objects, or lines of objects   ─┐
//!            csv    a table with the names of its columns in a header    ├─▶ Rows ──▶ model::Records
//!            lines  text without structure: the attribute `message`     ─┘     │
//!                                                                              └─▶ Refusals
//!
//!   body ──▶ otlp   OpenTelemetry's logs and traces     ─┬─▶ Streams: Rows for each stream ──▶ DecodedStreams
//!            bulk   bulk requests of Elasticsearch      ─┤
//!            loki   push requests of Loki               ─┘
//! ```
//!
//! [`rows`] has the record that is being read: it reserves memory for each value before it is stored, and finds the record's
//! time ([`time`]). If a record cannot be stored, it is left out with its reason, and the others stay. If the form of the
//! whole body is wrong, nothing is stored.

pub mod bulk;
pub mod csv;
mod days;
pub mod json;
pub mod lines;
pub mod loki;
mod number;
pub mod otlp;
mod refusals;
mod rows;
mod streams;
mod time;

pub use days::{DAYS_MAX, FILES_MAX};
pub use refusals::{Place, Reason, Refusal, Refusals};
pub use streams::{DecodedStreams, LeftOut, STREAMS_MAX, StreamsRequest, stream_name};
pub use time::Times;

use crate::DecodeError;
use crate::scan::line_end;
use model::Records;
use model::caps::BODY_BYTES_MAX;
use rows::{Fault, Rows};
use std::ops::Range;
use stdx::budget::{IncrementalReservation, Reservation};
use streams::Streams;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Csv,
    Lines,
}

/// A body that is not compressed any more.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub body: &'a [u8],
    /// The time of records without a time, in microseconds since the Unix epoch.
    pub arrival_us: i64,
    /// The times that records may have.
    pub times: Times,
    /// Number of the first line, for error messages. It is 1 unless the body is a part of a longer one.
    pub first_line: usize,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decoded {
    pub records: Records,
    pub refused: Refusals,
}

/// Decodes a whole body. Memory is reserved before it is used: more while the body is decoded, and in the end as much as the
/// records take.
pub fn decode(
    format: Format,
    request: Request<'_>,
    memory: &mut Reservation,
) -> Result<Decoded, DecodeError> {
    match format {
        Format::Json => json::decode(request, memory),
        Format::Csv => csv::decode(request, memory),
        Format::Lines => lines::decode(request, memory),
    }
}

impl Request<'_> {
    /// Decodes the body with `read`.
    fn into_records(
        self,
        memory: &mut Reservation,
        read: impl FnOnce(&mut Rows<'_, '_>) -> Result<(), DecodeError>,
    ) -> Result<Decoded, DecodeError> {
        // the texts of a batch have less than 4 GiB, because a body has
        if self.body.len() > BODY_BYTES_MAX {
            return Err(DecodeError::DecodedTooLarge(self.body.len() as u64));
        }
        let before = memory.bytes();
        let mut reservation = IncrementalReservation::new(memory);
        let mut rows = Rows::new(self.arrival_us, self.times, &mut reservation);
        read(&mut rows)?;
        let decoded = rows.finish();
        memory.resize(before + decoded.records.memory_bytes() as u64)?;
        Ok(decoded)
    }
}

/// Calls `read` for each line that is not blank, with its number and its range without the line break. If the line cannot be
/// read, it is left out.
fn each_line(
    body: &[u8],
    first_line: usize,
    rows: &mut Rows<'_, '_>,
    mut read: impl FnMut(&mut Rows<'_, '_>, Range<usize>) -> Result<(), Fault>,
) -> Result<(), DecodeError> {
    let (mut at, mut number) = (0, first_line);
    while at < body.len() {
        let end = line_end(body, at);
        let line = at..end - usize::from(body[at..end].last() == Some(&b'\r'));
        at = end + 1;
        if !body[line.clone()].trim_ascii_start().is_empty() {
            read(rows, line).or_else(|fault| rows.refuse(Place::Line(number), fault))?;
        }
        number += 1;
    }
    Ok(())
}

/// The body without the mark of its byte order, which some programs write at the start of a file.
fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body)
}
