//! Requests in JSON:
//!
//! ```json
//!   {"streams": [{"stream": {"app": "shop"}, "values": [["1795284000000000000", "the line", {"trace_id": "7b"}]]}]}
//! ```
//!
//! Keys may be in any order. Others, and further elements of an entry, are ignored.

use super::super::json::parser::{Mark, Parser};
use super::super::{Fault, Place, Reason, Rows, Streams};
use super::{MESSAGE, Push, text};
use crate::{DecodeError, JsonError};
use model::AttributeValue;
use std::num::IntErrorKind;
use stdx::budget::IncrementalReservation;

impl Push {
    pub(super) fn json(&mut self, body: &[u8], streams: &mut Streams<'_, '_>) -> Result<(), DecodeError> {
        let mut replaced = String::new();
        let body = text(body, &mut replaced, streams.rows.memory).map_err(of_request)?;
        let mut json = Parser::new(body).replacing_surrogates();
        let mut has_more = json.begin_object()?;
        while has_more {
            json.string(&mut self.text, streams.rows.memory).map_err(of_request)?;
            json.expect(b':', "expected a colon")?;
            match &*self.text {
                "streams" if json.peek() != Some(b'n') => {
                    json.list(|json| self.stream_object(json, streams))?;
                }
                _ => json.skip()?,
            }
            has_more = json.next_member()?;
        }
        Ok(json.end()?)
    }

    fn stream_object(
        &mut self,
        json: &mut Parser<'_>,
        streams: &mut Streams<'_, '_>,
    ) -> Result<(), DecodeError> {
        self.count_stream()?;
        self.labels.clear();
        let (mut has_labels, mut has_values) = (false, false);
        let mut later: Option<Mark> = None;
        let mut has_more = json.begin_object()?;
        while has_more {
            json.string(&mut self.text, streams.rows.memory).map_err(of_request)?;
            json.expect(b':', "expected a colon")?;
            match &*self.text {
                "stream" => {
                    once(&mut has_labels, json)?;
                    self.label_object(json, streams.rows.memory)?;
                }
                "values" => {
                    once(&mut has_values, json)?;
                    if has_labels {
                        self.entries(json, streams)?;
                    } else {
                        later = Some(json.mark());
                        json.skip()?;
                    }
                }
                _ => json.skip()?,
            }
            has_more = json.next_member()?;
        }
        if let Some(values) = later {
            let end = json.mark();
            json.return_to(values);
            self.entries(json, streams)?;
            json.return_to(end);
        }
        Ok(())
    }

    fn label_object(
        &mut self,
        json: &mut Parser<'_>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let mut has_more = json.begin_object()?;
        while has_more {
            json.string(&mut self.name, memory).map_err(of_request)?;
            json.expect(b':', "expected a colon")?;
            json.string(&mut self.text, memory).map_err(of_request)?;
            self.labels.add_or_fail(&self.name, &self.text, memory)?;
            has_more = json.next_member()?;
        }
        self.labels.finish();
        Ok(())
    }

    fn entries(&mut self, json: &mut Parser<'_>, streams: &mut Streams<'_, '_>) -> Result<(), DecodeError> {
        if json.peek() == Some(b'n') {
            return Ok(json.skip()?);
        }
        let mut is_selected = false;
        json.list(|json| {
            // a stream without entries makes none
            if !std::mem::replace(&mut is_selected, true) {
                self.select(streams)?;
            }
            self.count += 1;
            let start = json.mark();
            match self.array(json, &mut streams.rows) {
                Ok(()) => Ok(()),
                Err(Fault::Record(Reason::Json(error))) => Err(error.into()),
                Err(fault) => {
                    json.return_to(start);
                    json.skip()?;
                    streams.rows.refuse(Place::Record(self.count), fault)
                }
            }
        })
    }

    /// Reads an entry.
    fn array(&mut self, json: &mut Parser<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        self.labels.put(rows)?;
        let (mut elements, mut time_ns) = (0, None);
        json.list(|json| {
            match elements {
                0 => time_ns = Some(self.time(json, rows.memory)?),
                1 => {
                    let line = value(json, &mut self.text, rows.memory)?;
                    rows.put(MESSAGE, None, AttributeValue::Text(line))?;
                }
                2 => self.metadata_object(json, rows)?,
                _ => json.skip()?,
            }
            elements += 1;
            Ok::<_, Fault>(())
        })?;
        if elements < 2 {
            return Err(json.error("expected an entry with a time and a line").into());
        }
        self.end(time_ns, rows)
    }

    /// Reads a time in nanoseconds.
    fn time(
        &mut self,
        json: &mut Parser<'_>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<i128, Fault> {
        json.peek();
        let malformed = json.error("expected a time in nanoseconds, in quotes");
        let text = value(json, &mut self.text, memory)?;
        text.parse::<i64>().map(i128::from).map_err(|error| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => Reason::Time("timestamp").into(),
            _ => malformed.into(),
        })
    }

    fn metadata_object(&mut self, json: &mut Parser<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let mut has_more = json.begin_object()?;
        while has_more {
            let mut text = std::mem::take(&mut self.name);
            let name = value(json, &mut text, rows.memory);
            let named = name.and_then(|name| self.name_metadata(name.as_bytes(), rows));
            self.name = text;
            named?;
            json.expect(b':', "expected a colon")?;
            let value = value(json, &mut self.text, rows.memory)?;
            rows.put(&self.path, None, AttributeValue::Text(value))?;
            has_more = json.next_member()?;
        }
        Ok(())
    }
}

/// Reads a string. `out` is used if it has escape sequences.
fn value<'o, 'a: 'o>(
    json: &mut Parser<'a>,
    out: &'o mut String,
    memory: &mut IncrementalReservation<'_>,
) -> Result<&'o str, Fault> {
    if let Some(plain) = json.plain()? {
        return Ok(plain);
    }
    json.unescape(out, memory)?;
    Ok(out)
}

fn once(found: &mut bool, json: &Parser<'_>) -> Result<(), JsonError> {
    match std::mem::replace(found, true) {
        true => Err(json.error("a key is there twice")),
        false => Ok(()),
    }
}

/// An error outside of entries is one of the request.
fn of_request(fault: Fault) -> DecodeError {
    match fault {
        Fault::Record(Reason::Json(error)) => error.into(),
        fault => fault.into_error(),
    }
}
