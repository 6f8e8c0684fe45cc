//! Decodes text without structure. Each line is a record with one attribute, its text. Its time is the time of arrival.

use super::{Decoded, Reason, Request, each_line, without_mark};
use crate::DecodeError;
use model::AttributeValue;
use stdx::budget::Reservation;

/// The attribute that has the text of a line.
pub const MESSAGE: &str = "message";

pub fn decode(request: Request<'_>, memory: &mut Reservation) -> Result<Decoded, DecodeError> {
    let body = without_mark(request.body);
    request.into_records(memory, |rows| {
        each_line(body, request.first_line, rows, |rows, line| {
            let text = std::str::from_utf8(&body[line]).map_err(|_| Reason::NotUtf8)?;
            rows.put(MESSAGE, None, AttributeValue::Text(text))?;
            rows.end()
        })
    })
}
