//! Spans. Their events and links are lists of objects in JSON, with the names of OTLP's fields.

use super::super::rows::Rows;
use super::fields::{event, link, span, status};
use super::logs::us_of;
use super::value::{DEPTH_MAX, Text};
use super::{Fault, ID_BYTES_MAX, Reason, Walk};
use crate::wire::{Reader, Tag};
use model::AttributeValue;

impl Walk {
    pub(super) fn span(&mut self, whole: Reader<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let scratch = &mut self.scratch;
        let (mut start_ns, mut end_ns, mut has_events, mut has_links) = (0, 0, false, false);
        let mut record = whole;
        while let Some(tag) = record.tag()? {
            match tag {
                span::TRACE_ID => scratch.put_id("trace_id", record.len_field()?, rows)?,
                span::SPAN_ID => scratch.put_id("span_id", record.len_field()?, rows)?,
                span::PARENT_SPAN_ID => scratch.put_id("parent_span_id", record.len_field()?, rows)?,
                span::TRACE_STATE => scratch.put_text("trace_state", record.len_field()?, rows)?,
                span::NAME => scratch.put_text("name", record.len_field()?, rows)?,
                span::KIND => match kind(record.varint()?) {
                    Ok(name) => rows.put("kind", None, AttributeValue::Text(name))?,
                    Err(number) => scratch.put_number("kind", number, rows)?,
                },
                span::START => start_ns = record.fixed64()?,
                span::END => end_ns = record.fixed64()?,
                span::ATTRIBUTE => scratch.put_attribute(record.message()?, rows)?,
                span::DROPPED_ATTRIBUTES => {
                    scratch.put_number("dropped_attributes_count", record.varint()?, rows)?;
                }
                span::EVENT => {
                    has_events = true;
                    record.len_field()?;
                }
                span::DROPPED_EVENTS => {
                    scratch.put_number("dropped_events_count", record.varint()?, rows)?;
                }
                span::LINK => {
                    has_links = true;
                    record.len_field()?;
                }
                span::DROPPED_LINKS => scratch.put_number("dropped_links_count", record.varint()?, rows)?,
                span::STATUS => status(record.message()?, scratch, rows)?,
                span::FLAGS => scratch.put_number("flags", record.fixed32()?.into(), rows)?,
                other => record.skip_unknown(other, span::KNOWN)?,
            }
        }
        scratch.put_number("start_time_unix_nano", start_ns, rows)?;
        scratch.put_number("end_time_unix_nano", end_ns, rows)?;
        if start_ns > 0
            && let Some(duration_ns) = end_ns.checked_sub(start_ns)
        {
            rows.put("duration_nano", None, scratch.unsigned(duration_ns))?;
        }
        if has_events {
            objects(whole, span::EVENT, &mut scratch.text, rows, event_fields)?;
            rows.put("events", None, AttributeValue::Json(&scratch.text))?;
        }
        if has_links {
            objects(whole, span::LINK, &mut scratch.text, rows, link_fields)?;
            rows.put("links", None, AttributeValue::Json(&scratch.text))?;
        }
        self.origin.put(rows)?;
        match start_ns {
            0 => rows.end(),
            _ => rows.end_at(us_of(start_ns)),
        }
    }
}

/// The name of a kind of span. Fails with the number if it has none.
const fn kind(number: u64) -> Result<&'static str, u64> {
    Ok(match number {
        1 => "internal",
        2 => "server",
        3 => "client",
        4 => "producer",
        5 => "consumer",
        _ => return Err(number),
    })
}

fn status(
    mut status: Reader<'_>,
    scratch: &mut super::Scratch,
    rows: &mut Rows<'_, '_>,
) -> Result<(), Fault> {
    while let Some(tag) = status.tag()? {
        match tag {
            status::MESSAGE => scratch.put_text("status_message", status.len_field()?, rows)?,
            status::CODE => match status.varint()? {
                1 => rows.put("status_code", None, AttributeValue::Text("ok"))?,
                2 => rows.put("status_code", None, AttributeValue::Text("error"))?,
                number => scratch.put_number("status_code", number, rows)?,
            },
            other => status.skip_unknown(other, status::KNOWN)?,
        }
    }
    Ok(())
}

/// Writes the messages of a field as a list of objects. `fields` writes the members of an object.
fn objects<'a>(
    mut span: Reader<'a>,
    field: Tag,
    out: &mut String,
    rows: &mut Rows<'_, '_>,
    fields: impl Fn(&mut Object<'_, '_>, Reader<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    out.clear();
    let mut text = Text { out, memory: rows.memory };
    let mut separator = "[";
    while let Some(tag) = span.tag()? {
        if tag != field {
            span.skip(tag)?;
            continue;
        }
        text.raw(separator)?;
        text.raw("{")?;
        fields(
            &mut Object { text: Text { out: text.out, memory: text.memory }, is_empty: true },
            span.message()?,
        )?;
        text.raw("}")?;
        separator = ",";
    }
    text.raw("]")
}

/// An object that is being written.
struct Object<'a, 'm> {
    text: Text<'a, 'm>,
    is_empty: bool,
}

impl Object<'_, '_> {
    fn key(&mut self, key: &str) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.text.raw(",")?;
        }
        self.text.string(key.as_bytes())?;
        self.text.raw(":")
    }

    fn number(&mut self, key: &str, number: u64) -> Result<(), Fault> {
        if number == 0 {
            return Ok(());
        }
        self.key(key)?;
        self.text.display(number)
    }

    fn string(&mut self, key: &str, text: &[u8]) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }
        self.key(key)?;
        self.text.string(text)
    }

    fn id(&mut self, key: &str, id: &[u8]) -> Result<(), Fault> {
        if id.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        if id.len() > ID_BYTES_MAX {
            return Err(Reason::IdTooLong(id.len()).into());
        }
        self.key(key)?;
        self.text.raw("\"")?;
        for byte in id {
            self.text.display(format_args!("{byte:02x}"))?;
        }
        self.text.raw("\"")
    }

    /// Writes the attributes of an event or a link as an object.
    fn attributes(&mut self, mut whole: Reader<'_>, field: Tag) -> Result<(), Fault> {
        self.key("attributes")?;
        let mut separator = "{";
        while let Some(tag) = whole.tag()? {
            if tag != field {
                whole.skip(tag)?;
                continue;
            }
            self.text.raw(separator)?;
            self.text.member(whole.message()?, DEPTH_MAX)?;
            separator = ",";
        }
        self.text.raw("}")
    }
}

fn event_fields(object: &mut Object<'_, '_>, whole: Reader<'_>) -> Result<(), Fault> {
    let (mut fields, mut has_attributes) = (whole, false);
    while let Some(tag) = fields.tag()? {
        match tag {
            event::TIME => object.number("time_unix_nano", fields.fixed64()?)?,
            event::NAME => object.string("name", fields.len_field()?)?,
            event::ATTRIBUTE => {
                has_attributes = true;
                fields.len_field()?;
            }
            event::DROPPED_ATTRIBUTES => object.number("dropped_attributes_count", fields.varint()?)?,
            other => fields.skip_unknown(other, event::KNOWN)?,
        }
    }
    if has_attributes { object.attributes(whole, event::ATTRIBUTE) } else { Ok(()) }
}

fn link_fields(object: &mut Object<'_, '_>, whole: Reader<'_>) -> Result<(), Fault> {
    let (mut fields, mut has_attributes) = (whole, false);
    while let Some(tag) = fields.tag()? {
        match tag {
            link::TRACE_ID => object.id("trace_id", fields.len_field()?)?,
            link::SPAN_ID => object.id("span_id", fields.len_field()?)?,
            link::TRACE_STATE => object.string("trace_state", fields.len_field()?)?,
            link::ATTRIBUTE => {
                has_attributes = true;
                fields.len_field()?;
            }
            link::DROPPED_ATTRIBUTES => object.number("dropped_attributes_count", fields.varint()?)?,
            link::FLAGS => object.number("flags", fields.fixed32()?.into())?,
            other => fields.skip_unknown(other, link::KNOWN)?,
        }
    }
    if has_attributes { object.attributes(whole, link::ATTRIBUTE) } else { Ok(()) }
}
