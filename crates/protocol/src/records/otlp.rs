//! Decodes OpenTelemetry's logs and traces (OTLP 1.x). Each log record, and each span, becomes a record.
//!
//! ```text
//!   JSON ─ transcode ─▶ protobuf ─▶ resource ─▶ scope ─▶ log record or span ─▶ Streams
//!                                      │           │
//!                                      └───────────┴─▶ Origin: values that all of its records have
//! ```
//!
//! | | path |
//! | --- | --- |
//! | field of a record | its name, such as `severity_text` |
//! | attribute of a record | `attributes.` and its key |
//! | attribute of the resource, of the scope | `resource.`, `scope.` and its key |
//! | other fields of resource and scope | `resource_schema_url`, `scope_name`, `scope_version`, `scope_schema_url` |
//!
//! Fields that have their default value in protobuf (empty, 0) are left out, except for bodies and values of attributes.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>.

mod fields;
mod logs;
mod origin;
mod spans;
mod value;

pub(super) use value::text;

use super::streams::{DecodedStreams, StreamsRequest, stream_name};
use super::{Fault, Place, Reason, Streams};
use crate::DecodeError;
use crate::otlp::{Media, json};
use crate::wire::Reader;
use fields::{GROUP, group};
use model::caps::REQUEST_RECORDS_MAX;
use model::{AttributeValue, StreamName};
use origin::Origin;
use std::fmt::Write as _;
use stdx::budget::{IncrementalReservation, Reservation};

/// What a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Logs,
    Traces,
}

/// Longest ID of a trace or a span, in bytes. Those of OpenTelemetry have 16 and 8.
const ID_BYTES_MAX: usize = 32;

impl Signal {
    /// The stream of records for which no other is named.
    pub const fn stream(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Traces => "traces",
        }
    }

    const fn fields(self) -> &'static [json::Field] {
        match self {
            Self::Logs => json::LOGS,
            Self::Traces => json::TRACES,
        }
    }
}

/// Decodes a body. Unless the request names a stream, logs are of the stream of their service, and spans of the stream
/// `traces`, because the spans of a trace come from several services. Logs of more services than a request may have streams are
/// of the stream `logs`.
pub fn decode(
    signal: Signal,
    media: Media,
    request: StreamsRequest<'_>,
    memory: &mut Reservation,
) -> Result<DecodedStreams, DecodeError> {
    request.decode(memory, |streams| {
        let mut message = Vec::new();
        let body = match media {
            Media::Protobuf => request.body,
            Media::Json => {
                json::transcode(request.body, signal.fields(), &mut message, streams.rows.memory)?;
                message.as_slice()
            }
        };
        let mut walk = Walk {
            signal,
            spare: stream_name(b"", signal.stream()),
            origin: Origin::default(),
            scratch: Scratch::default(),
            groups: 0,
            is_selected: false,
            count: 0,
        };
        walk.request(Reader::new(body), streams).map_err(Fault::into_error)
    })
}

struct Walk {
    signal: Signal,
    /// The stream of records for which no other is named.
    spare: StreamName,
    origin: Origin,
    scratch: Scratch,
    /// Resources and scopes so far.
    groups: usize,
    /// Whether the stream of the present resource is the current one.
    is_selected: bool,
    /// Records so far.
    count: usize,
}

/// Working memory.
#[derive(Debug, Default)]
struct Scratch {
    path: String,
    text: String,
}

impl Walk {
    fn request(&mut self, mut request: Reader<'_>, streams: &mut Streams<'_, '_>) -> Result<(), Fault> {
        while let Some(tag) = request.tag()? {
            match tag {
                GROUP => self.resource(request.message()?, streams)?,
                other => request.skip_unknown(other, &[1])?,
            }
        }
        Ok(())
    }

    fn resource(&mut self, whole: Reader<'_>, streams: &mut Streams<'_, '_>) -> Result<(), Fault> {
        self.count_group()?;
        let service = self.origin.read_resource(whole, streams.rows.memory)?.unwrap_or_default();
        let mut scopes = whole;
        self.is_selected = false;
        while let Some(tag) = scopes.tag()? {
            match tag {
                group::MEMBER => self.scope(service, scopes.message()?, streams)?,
                other => scopes.skip(other)?,
            }
        }
        Ok(())
    }

    fn scope(
        &mut self,
        service: &[u8],
        whole: Reader<'_>,
        streams: &mut Streams<'_, '_>,
    ) -> Result<(), Fault> {
        self.count_group()?;
        self.origin.read_scope(whole, streams.rows.memory)?;
        let mut records = whole;
        while let Some(tag) = records.tag()? {
            match tag {
                group::MEMBER => {
                    self.count += 1;
                    // a resource without records makes no stream
                    if !std::mem::replace(&mut self.is_selected, true) {
                        self.select(service, streams)?;
                    }
                    let record = records.message()?;
                    let read = match self.signal {
                        Signal::Logs => self.log(record, &mut streams.rows),
                        Signal::Traces => self.span(record, &mut streams.rows),
                    };
                    read.or_else(|fault| streams.rows.refuse(Place::Record(self.count), fault))?;
                }
                other => records.skip(other)?,
            }
        }
        Ok(())
    }

    fn select(&self, service: &[u8], streams: &mut Streams<'_, '_>) -> Result<(), DecodeError> {
        match self.signal {
            Signal::Logs => streams.select_or(&stream_name(service, self.signal.stream()), &self.spare),
            Signal::Traces => streams.select(&self.spare),
        }
    }

    /// Counts a resource or a scope. If they have no records, very many of them fit into a small body.
    fn count_group(&mut self) -> Result<(), DecodeError> {
        self.groups += 1;
        match self.groups > REQUEST_RECORDS_MAX {
            true => Err(DecodeError::TooMany { what: "resources and scopes", limit: REQUEST_RECORDS_MAX }),
            false => Ok(()),
        }
    }
}

impl Scratch {
    /// Writes an ID in hexadecimal digits. `None` if it is empty or all bytes are 0, which means that there is none.
    fn hex(&mut self, id: &[u8]) -> Result<Option<AttributeValue<'_>>, Reason> {
        if id.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if id.len() > ID_BYTES_MAX {
            return Err(Reason::IdTooLong(id.len()));
        }
        self.text.clear();
        for byte in id {
            write!(self.text, "{byte:02x}").expect("BUG: writing to memory failed");
        }
        Ok(Some(AttributeValue::Text(&self.text)))
    }

    /// An unsigned number. Beyond 63 bits, it is JSON.
    fn unsigned(&mut self, number: u64) -> AttributeValue<'_> {
        match i64::try_from(number) {
            Ok(number) => AttributeValue::Int(number),
            Err(_) => {
                self.text.clear();
                write!(self.text, "{number}").expect("BUG: writing to memory failed");
                AttributeValue::Json(&self.text)
            }
        }
    }

    fn text<'a>(
        &'a mut self,
        bytes: &'a [u8],
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<AttributeValue<'a>, Fault> {
        Ok(AttributeValue::Text(text(bytes, &mut self.text, memory)?))
    }
}
