//! Log records.

use super::super::rows::{Rows, check_path};
use super::fields::log;
use super::value::{attribute_value, text};
use super::{Fault, Scratch, Walk};
use crate::otlp::attribute::{read, read_value};
use crate::wire::Reader;

impl Walk {
    pub(super) fn log(&mut self, mut record: Reader<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let scratch = &mut self.scratch;
        let (mut time_ns, mut observed_ns, mut body) = (0, 0, None);
        while let Some(tag) = record.tag()? {
            match tag {
                log::TIME => time_ns = record.fixed64()?,
                log::OBSERVED_TIME => observed_ns = record.fixed64()?,
                log::SEVERITY_NUMBER => scratch.put_number("severity_number", record.varint()?, rows)?,
                log::SEVERITY_TEXT => scratch.put_text("severity_text", record.len_field()?, rows)?,
                log::BODY => body = Some(record.message()?),
                log::ATTRIBUTE => scratch.put_attribute(record.message()?, rows)?,
                log::DROPPED_ATTRIBUTES => {
                    scratch.put_number("dropped_attributes_count", record.varint()?, rows)?;
                }
                log::FLAGS => scratch.put_number("flags", record.fixed32()?.into(), rows)?,
                log::TRACE_ID => scratch.put_id("trace_id", record.len_field()?, rows)?,
                log::SPAN_ID => scratch.put_id("span_id", record.len_field()?, rows)?,
                log::EVENT_NAME => scratch.put_text("event_name", record.len_field()?, rows)?,
                other => record.skip_unknown(other, log::KNOWN)?,
            }
        }
        if let Some(body) = body {
            let message = body.whole();
            let value = attribute_value(read_value(body)?, message, &mut scratch.text, rows.memory)?;
            if let Some(value) = value {
                rows.put("body", None, value)?;
            }
        }
        scratch.put_number("time_unix_nano", time_ns, rows)?;
        scratch.put_number("observed_time_unix_nano", observed_ns, rows)?;
        self.origin.put(rows)?;
        match [time_ns, observed_ns].into_iter().find(|ns| *ns > 0) {
            Some(ns) => rows.end_at(us_of(ns)),
            None => rows.end(),
        }
    }
}

/// Converts a time to microseconds. Any time in nanoseconds since 1970 is before the year 2555, and so within the bounds of times.
pub(super) const fn us_of(ns: u64) -> i64 {
    (ns / 1000) as i64
}

impl Scratch {
    /// Adds a number, unless it is 0.
    pub(super) fn put_number(
        &mut self,
        path: &str,
        number: u64,
        rows: &mut Rows<'_, '_>,
    ) -> Result<(), Fault> {
        if number == 0 {
            return Ok(());
        }
        rows.put(path, None, self.unsigned(number))
    }

    /// Adds a text, unless it is empty.
    pub(super) fn put_text(
        &mut self,
        path: &str,
        bytes: &[u8],
        rows: &mut Rows<'_, '_>,
    ) -> Result<(), Fault> {
        if bytes.is_empty() {
            return Ok(());
        }
        let value = self.text(bytes, rows.memory)?;
        rows.put(path, None, value)
    }

    /// Adds an ID, if there is one.
    pub(super) fn put_id(&mut self, path: &str, id: &[u8], rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        match self.hex(id)? {
            Some(id) => rows.put(path, None, id),
            None => Ok(()),
        }
    }

    /// Adds an attribute from its KeyValue message.
    pub(super) fn put_attribute(
        &mut self,
        attribute: Reader<'_>,
        rows: &mut Rows<'_, '_>,
    ) -> Result<(), Fault> {
        const PREFIX: &str = "attributes.";
        let message = attribute.whole();
        let (key, value) = read(attribute)?;
        check_path(PREFIX.len() + key.len())?;
        self.path.clear();
        self.path.push_str(PREFIX);
        self.path.push_str(text(&message[key], &mut self.text, rows.memory)?);
        check_path(self.path.len())?;
        match attribute_value(value, message, &mut self.text, rows.memory)? {
            Some(value) => rows.put(&self.path, None, value),
            None => Ok(()),
        }
    }
}
