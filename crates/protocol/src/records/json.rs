//! Decodes JSON: an object, a list of objects, or lines of objects.
//!
//! A list begins with a bracket. Other bodies are lines, each with an object, unless the whole body is a single object: if
//! its first line is an opening brace, or if the line does not end in a brace and the body is valid.
//!
//! - Objects are flattened: the path of a value is the keys that lead to it, joined by dots. Null is left out.
//! - Lists, empty objects, integers beyond 64 bits and numbers that are too large for a float are kept as JSON text, as they
//!   were written.
//! - A wrong line is left out. In a list, an element is left out if it is no object or cannot be stored, but an error in the
//!   JSON itself refuses the body, because it is not known what follows. The same goes for a single object.

pub(super) mod parser;
pub(super) mod record;

use super::{Decoded, Fault, Place, Reason, Request, Rows, each_line, without_mark};
use crate::scan::line_end;
use crate::{DecodeError, JsonError};
use parser::Parser;
use record::Reader;
use stdx::budget::Reservation;

pub fn decode(request: Request<'_>, memory: &mut Reservation) -> Result<Decoded, DecodeError> {
    let body = without_mark(request.body);
    request.into_records(memory, |rows| {
        if body.trim_ascii_start().first() == Some(&b'[') {
            return list(whole(body)?, rows);
        }
        match first_line(body) {
            b"{" => object(whole(body)?, rows),
            [.., b'}'] => lines(body, request.first_line, rows),
            _ => match object(whole(body).unwrap_or_default(), rows) {
                Err(DecodeError::Json(_)) => lines(body, request.first_line, rows),
                read => read,
            },
        }
    })
}

fn whole(body: &[u8]) -> Result<&str, JsonError> {
    std::str::from_utf8(body).map_err(|error| JsonError { at: error.valid_up_to(), what: "not UTF-8" })
}

/// The first line that is not blank, without white space around it.
fn first_line(body: &[u8]) -> &[u8] {
    let body = body.trim_ascii_start();
    body[..line_end(body, 0)].trim_ascii_end()
}

/// A single object.
fn object(body: &str, rows: &mut Rows<'_, '_>) -> Result<(), DecodeError> {
    match only_record(&mut Reader::default(), body, rows) {
        Err(Fault::Record(Reason::Json(error))) => {
            rows.abandon();
            Err(error.into())
        }
        read => read.or_else(|fault| rows.refuse(Place::Record(1), fault)),
    }
}

/// A list of objects.
fn list(body: &str, rows: &mut Rows<'_, '_>) -> Result<(), DecodeError> {
    let mut reader = Reader::default();
    let mut json = Parser::new(body);
    let mut number = 0;
    json.list(|json| {
        number += 1;
        let start = json.mark();
        let read = match json.peek() {
            Some(b'{') => reader.object(json, rows).and_then(|()| rows.end()),
            _ => Err(Fault::Record(Reason::NotAnObject)),
        };
        match read {
            Ok(()) => Ok(()),
            Err(Fault::Record(Reason::Json(error))) => Err(error.into()),
            Err(fault) => {
                json.return_to(start);
                json.skip()?;
                rows.refuse(Place::Record(number), fault)
            }
        }
    })?;
    Ok(json.end()?)
}

fn lines(body: &[u8], first_line: usize, rows: &mut Rows<'_, '_>) -> Result<(), DecodeError> {
    let mut reader = Reader::default();
    // it is faster to look for bytes that are not UTF-8 in all lines at once
    let valid = std::str::from_utf8(body).ok();
    each_line(body, first_line, rows, |rows, line| {
        let text = match valid {
            Some(valid) => &valid[line],
            None => std::str::from_utf8(&body[line]).map_err(|_| Reason::NotUtf8)?,
        };
        only_record(&mut reader, text, rows)
    })
}

/// Reads a text that has one object and nothing else.
fn only_record(reader: &mut Reader, text: &str, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
    let mut json = Parser::new(text);
    reader.object(&mut json, rows)?;
    json.end()?;
    rows.end()
}
