//! Decodes bulk requests of Elasticsearch: lines of JSON, each document behind a line that says what to do with it.
//!
//! ```text
//!   {"index":{"_index":"app"}}             the document becomes a record of the stream `app`
//!   {"@timestamp":"…","message":"…"}
//!   {"create":{"_index":"app","_id":"7"}}   likewise, with the attribute `_id`
//!   {"message":"…"}
//!   {"delete":{"_index":"app","_id":"7"}}   refused, because records can only be added
//! ```
//!
//! The answer has an item for each action. An action that is refused leaves the others as they are; a line that is no action
//! refuses the body, because it is not known which of the following lines are documents.
//!
//! Source: <https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk>.

use super::json::parser::Parser;
use super::json::record::Reader;
use super::streams::{DecodedStreams, StreamsRequest};
use super::{Fault, Place, Reason, Streams};
use crate::json::put_string;
use crate::scan::line_end;
use crate::{DecodeError, JsonError};
use model::caps::STREAM_BYTES_MAX;
use model::{AttributeValue, StreamName};
use stdx::budget::{IncrementalReservation, Reservation};

/// Limit on the actions in one request. The answer has an item for each.
const ACTIONS_MAX: usize = 100_000;

/// Limit on an ID of a document, as in Elasticsearch.
const ID_BYTES_MAX: usize = 512;

/// The attribute that has the ID of a document.
const ID: &str = "_id";

/// An item takes at most this much, besides its names and the text of its error, which may be escaped.
const ITEM_BYTES_MAX: usize = 200;

/// How a request is to be read and answered.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The index of actions that name none.
    pub index: Option<String>,
    /// Whether items of the answer have only what the client needs to find errors.
    pub is_brief: bool,
}

/// What the answer to a request has, if its records are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Items {
    /// A list in JSON, in pieces.
    pub json: Vec<Vec<u8>>,
    pub has_errors: bool,
}

/// Decodes a body. In the end, as much memory is reserved as the records and the items take.
pub fn decode(
    options: &Options,
    request: StreamsRequest<'_>,
    memory: &mut Reservation,
) -> Result<(DecodedStreams, Items), DecodeError> {
    let before = memory.bytes();
    let mut items =
        ItemWriter { pieces: Vec::new(), last: Vec::new(), is_brief: options.is_brief, has_errors: false };
    let decoded = request.decode_keeping(memory, |streams| {
        let mut bulk = Bulk {
            options,
            lines: Lines { body: request.body, at: 0, number: 0 },
            reader: Reader::default(),
            action: Action::default(),
            items: &mut items,
            actions: 0,
        };
        bulk.read(streams)
    })?;
    let items = items.finish();
    let records: usize = decoded.streams.iter().map(|(_, records)| records.memory_bytes()).sum();
    let kept = records + items.json.iter().map(Vec::capacity).sum::<usize>();
    memory.resize(before + kept as u64)?;
    Ok((decoded, items))
}

struct Bulk<'a> {
    options: &'a Options,
    lines: Lines<'a>,
    reader: Reader,
    action: Action,
    items: &'a mut ItemWriter,
    actions: usize,
}

/// What to do with a document.
#[derive(Debug, Default)]
struct Action {
    kind: Kind,
    index: String,
    id: String,
    /// Whether the action has an index, and an ID.
    has_index: bool,
    has_id: bool,
    /// For keys that are not needed.
    scratch: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Index,
    Create,
    Update,
    Delete,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

impl Bulk<'_> {
    fn read(&mut self, streams: &mut Streams<'_, '_>) -> Result<(), DecodeError> {
        while let Some(line) = self.lines.next_action() {
            if self.actions == ACTIONS_MAX {
                return Err(DecodeError::TooMany { what: "actions", limit: ACTIONS_MAX });
            }
            self.actions += 1;
            let number = self.lines.number;
            let malformed = |error| DecodeError::BulkAction { line: number, error };
            let text = std::str::from_utf8(line)
                .map_err(|error| malformed(JsonError { at: error.valid_up_to(), what: "not UTF-8" }))?;
            match self.action.read(text, self.options, streams.rows.memory) {
                Ok(()) => {}
                Err(Fault::Record(Reason::Json(error))) => return Err(malformed(error)),
                Err(fault) => return Err(fault.into_error()),
            }
            let document = match self.action.kind {
                Kind::Delete => None,
                _ => Some(self.lines.next().ok_or_else(|| {
                    malformed(JsonError {
                        at: text.len(),
                        what: "expected a line with a document behind the action",
                    })
                })?),
            };
            match self.document(document, streams) {
                Ok(()) => self.items.add(&self.action, None, streams.rows.memory)?,
                Err(Fault::Record(reason)) => {
                    streams.rows.refuse(Place::Line(number), reason.into())?;
                    self.items.add(&self.action, Some(reason), streams.rows.memory)?;
                }
                Err(Fault::Request(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds a document as a record.
    fn document(&mut self, document: Option<&[u8]>, streams: &mut Streams<'_, '_>) -> Result<(), Fault> {
        let (Kind::Index | Kind::Create, Some(document)) = (self.action.kind, document) else {
            return Err(Reason::OnlyAdditions.into());
        };
        match (streams.named().cloned(), self.action.has_index) {
            (Some(name), _) => streams.try_select(&name)?,
            (None, false) => return Err(Reason::NoIndex.into()),
            (None, true) => {
                let name = StreamName::parse(&self.action.index).map_err(|_| Reason::IndexName)?;
                streams.try_select(&name)?;
            }
        }
        let text = std::str::from_utf8(document).map_err(|_| Reason::NotUtf8)?;
        let rows = &mut streams.rows;
        let mut json = Parser::new(text);
        self.reader.object(&mut json, rows)?;
        json.end()?;
        if self.action.has_id {
            if self.action.id.len() > ID_BYTES_MAX {
                return Err(Reason::IdTooLong(self.action.id.len()).into());
            }
            rows.put(ID, None, AttributeValue::Text(&self.action.id))?;
        }
        rows.end()
    }
}

impl Action {
    /// Reads the line of an action.
    fn read(
        &mut self,
        line: &str,
        options: &Options,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        self.id.clear();
        self.index.clear();
        (self.has_id, self.has_index) = (false, options.index.is_some());
        self.index.push_str(options.index.as_deref().unwrap_or_default());
        let mut json = Parser::new(line);
        if !json.begin_object()? {
            return Err(json.error("expected an action").into());
        }
        json.string(&mut self.scratch, memory)?;
        self.kind = match &*self.scratch {
            "index" => Kind::Index,
            "create" => Kind::Create,
            "update" => Kind::Update,
            "delete" => Kind::Delete,
            _ => {
                return Err(json
                    .error("expected one of the actions index, create, update and delete")
                    .into());
            }
        };
        json.expect(b':', "expected a colon")?;
        let mut has_more = json.begin_object()?;
        while has_more {
            json.string(&mut self.scratch, memory)?;
            json.expect(b':', "expected a colon")?;
            let is_text = json.peek() == Some(b'"');
            match &*self.scratch {
                "_index" if is_text => {
                    json.string(&mut self.index, memory)?;
                    self.has_index = true;
                }
                "_id" if is_text => {
                    json.string(&mut self.id, memory)?;
                    self.has_id = true;
                }
                _ => json.skip()?,
            }
            has_more = json.next_member()?;
        }
        if json.next_member()? {
            return Err(json.error("expected the end of the action").into());
        }
        Ok(json.end()?)
    }
}

/// Reads lines.
struct Lines<'a> {
    body: &'a [u8],
    at: usize,
    /// The number of the line that was read last.
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at >= self.body.len() {
            return None;
        }
        let end = line_end(self.body, self.at);
        let line = &self.body[self.at..end];
        self.at = end + 1;
        self.number += 1;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// The next line that is not blank.
    fn next_action(&mut self) -> Option<&'a [u8]> {
        loop {
            let line = self.next()?;
            if !line.trim_ascii_start().is_empty() {
                return Some(line);
            }
        }
    }
}

/// Items are written in pieces of at least this size, so that no large piece has to be moved when it grows.
const PIECE_BYTES: usize = 16 << 10;

struct ItemWriter {
    pieces: Vec<Vec<u8>>,
    last: Vec<u8>,
    is_brief: bool,
    has_errors: bool,
}

impl ItemWriter {
    fn add(
        &mut self,
        action: &Action,
        error: Option<Reason>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let text = error.map(|reason| reason.to_string()).unwrap_or_default();
        // an index that is too long is refused by its length, and so is an ID
        let index = shown(&action.index, STREAM_BYTES_MAX);
        let id = shown(&action.id, ID_BYTES_MAX);
        let bytes = ITEM_BYTES_MAX + 6 * (index.len() + id.len() + text.len());
        if self.last.len() + bytes > self.last.capacity() {
            let full = std::mem::take(&mut self.last);
            if !full.is_empty() {
                memory.push(&mut self.pieces, full)?;
            }
            memory.grow(&mut self.last, bytes.max(PIECE_BYTES))?;
        }
        let out = &mut self.last;
        if !out.is_empty() || !self.pieces.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"");
        out.extend_from_slice(action.kind.name().as_bytes());
        out.extend_from_slice(b"\":{");
        if !self.is_brief {
            out.extend_from_slice(b"\"_index\":");
            put_string(out, index);
            if action.has_id {
                out.extend_from_slice(b",\"_id\":");
                put_string(out, id);
            }
            out.push(b',');
        }
        match error {
            None if self.is_brief => out.extend_from_slice(b"\"status\":201}}"),
            None => out.extend_from_slice(b"\"_version\":1,\"result\":\"created\",\"status\":201}}"),
            Some(reason) => {
                self.has_errors = true;
                out.extend_from_slice(match reason {
                    // clients repeat such actions
                    Reason::TooManyStreams | Reason::TooManyStreamsAtOnce => b"\"status\":429",
                    _ => b"\"status\":400",
                });
                out.extend_from_slice(b",\"error\":{\"type\":\"");
                out.extend_from_slice(kind(reason).as_bytes());
                out.extend_from_slice(b"\",\"reason\":");
                put_string(out, &text);
                out.extend_from_slice(b"}}}");
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Items {
        self.pieces.push(self.last);
        Items { json: self.pieces, has_errors: self.has_errors }
    }
}

/// The name of Elasticsearch's error that is closest.
const fn kind(reason: Reason) -> &'static str {
    match reason {
        Reason::TooManyStreams | Reason::TooManyStreamsAtOnce => "es_rejected_execution_exception",
        Reason::IndexName | Reason::StreamCase => "invalid_index_name_exception",
        Reason::OnlyAdditions | Reason::NoIndex => "illegal_argument_exception",
        _ => "document_parsing_exception",
    }
}

/// The start of a text.
fn shown(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
