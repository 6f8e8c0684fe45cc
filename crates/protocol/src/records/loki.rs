//! Decodes push requests of Loki. Each entry becomes a record.
//!
//! ```text
//!   protobuf ─┐
//!             ├─▶ labels of a stream ─▶ entries ─▶ Streams
//!   JSON ─────┘
//! ```
//!
//! | | attribute |
//! | --- | --- |
//! | line | `message` |
//! | label | `labels.` and its name |
//! | structured metadata | `metadata.` and its name |
//! | time | `time_unix_nano`, and in microseconds the time of the record |
//!
//! A stream of Loki is a set of labels. Here, a stream is called like the service that the labels name. If the labels of a stream
//! cannot be read, its entries are left out, and those of others stay. A body of another form is refused.
//!
//! Source: <https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs>.

mod json;
mod labels;
mod protobuf;

use super::lines::MESSAGE;
use super::otlp::{Signal, text};
use super::rows::check_path;
use super::streams::{DecodedStreams, StreamsRequest, stream_name};
use super::{Fault, Reason, Rows, Streams, time};
use crate::DecodeError;
use crate::otlp::Media;
use labels::Labels;
use model::AttributeValue;
use model::caps::REQUEST_RECORDS_MAX;
use stdx::budget::Reservation;

/// The stream of entries whose labels name no service.
pub const STREAM: &str = Signal::Logs.stream();

const METADATA: &str = "metadata.";

const TIME: &str = "time_unix_nano";

/// Decodes a body. Unless the request names a stream, entries are of the stream of their service. Those of more services than a
/// request may have streams are of [`STREAM`].
pub fn decode(
    media: Media,
    request: StreamsRequest<'_>,
    memory: &mut Reservation,
) -> Result<DecodedStreams, DecodeError> {
    request.decode(memory, |streams| {
        let mut push = Push::default();
        match media {
            Media::Protobuf => push.protobuf(request.body, streams).map_err(Fault::into_error),
            Media::Json => push.json(request.body, streams),
        }
    })
}

#[derive(Debug, Default)]
struct Push {
    /// The labels of the entries that are being read.
    labels: Labels,
    /// The path of a value.
    path: String,
    /// Texts that are being read, if they are not in the body as they are.
    text: String,
    name: String,
    /// Entries so far.
    count: usize,
    /// Streams so far, also those without entries.
    streams: usize,
}

impl Push {
    /// Streams without entries take time, too.
    fn count_stream(&mut self) -> Result<(), DecodeError> {
        self.streams += 1;
        match self.streams > REQUEST_RECORDS_MAX {
            true => Err(DecodeError::TooMany { what: "streams", limit: REQUEST_RECORDS_MAX }),
            false => Ok(()),
        }
    }

    /// Makes the stream of the present labels the current one.
    fn select(&self, streams: &mut Streams<'_, '_>) -> Result<(), DecodeError> {
        if self.labels.fault().is_some() {
            return Ok(()); // its entries are refused
        }
        let spare = stream_name(b"", STREAM);
        streams.select_or(&stream_name(self.labels.service().as_bytes(), STREAM), &spare)
    }

    fn put_line(&mut self, line: &[u8], rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let line = text(line, &mut self.text, rows.memory)?;
        rows.put(MESSAGE, None, AttributeValue::Text(line))
    }

    fn put_metadata(&mut self, name: &[u8], value: &[u8], rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        self.name_metadata(name, rows)?;
        let value = text(value, &mut self.text, rows.memory)?;
        rows.put(&self.path, None, AttributeValue::Text(value))
    }

    /// Sets the path to that of structured metadata.
    fn name_metadata(&mut self, name: &[u8], rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        check_path(METADATA.len() + name.len())?;
        self.path.clear();
        self.path.push_str(METADATA);
        self.path.push_str(text(name, &mut self.text, rows.memory)?);
        Ok(check_path(self.path.len())?)
    }

    /// Completes a record. Its time is in nanoseconds since 1970; without one, it is the time of arrival.
    fn end(&mut self, time_ns: Option<i128>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let Some(ns) = time_ns else { return rows.end() };
        let us = i64::try_from(ns.div_euclid(1000)).ok().filter(|us| time::is_within_bounds(*us));
        let Some(us) = us else { return Err(Reason::Time("timestamp").into()) };
        match i64::try_from(ns) {
            Ok(ns) => rows.put(TIME, None, AttributeValue::Int(ns))?,
            Err(_) => rows.put(TIME, None, AttributeValue::Json(&ns.to_string()))?,
        }
        rows.end_at(us)
    }
}
