//! The labels that entries have in common.

use super::super::otlp::text;
use super::super::rows::check_path;
use super::super::{Fault, Reason, Rows};
use crate::DecodeError;
use model::AttributeValue;
use model::caps::SERIES_LABELS_MAX;
use std::ops::Range;
use stdx::budget::IncrementalReservation;

const PREFIX: &str = "labels.";

/// Labels that may name the service, best first. In this order, Loki finds the name of a service.
const SERVICES: [&str; 14] = [
    "service_name",
    "service",
    "app",
    "application",
    "app_name",
    "name",
    "app_kubernetes_io_name",
    "container",
    "container_name",
    "k8s_container_name",
    "component",
    "workload",
    "job",
    "k8s_job_name",
];

#[derive(Debug, Default)]
pub(super) struct Labels {
    /// Once they are [finished](Self::finish), each name once, in their order.
    all: Vec<Label>,
    /// Paths and values.
    texts: String,
    /// Why no record can have these labels.
    fault: Option<Reason>,
    /// How much is copied for each record.
    copied_bytes: usize,
    scratch: Scratch,
}

#[derive(Debug, Clone)]
struct Label {
    path: Range<usize>,
    value: Range<usize>,
}

/// What is read, before and after it is known to be UTF-8.
#[derive(Debug, Default)]
struct Scratch {
    name: Vec<u8>,
    value: Vec<u8>,
    name_text: String,
    value_text: String,
}

impl Labels {
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.texts.clear();
        (self.fault, self.copied_bytes) = (None, 0);
    }

    pub(super) const fn fault(&self) -> Option<Reason> {
        self.fault
    }

    /// Replaces the labels by those of a text, such as `{app="shop", env="a\"b"}`: names as in Prometheus, or quoted, and values
    /// quoted as in Go. An empty text has none.
    pub(super) fn read(
        &mut self,
        text: &[u8],
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        self.clear();
        let mut scratch = std::mem::take(&mut self.scratch);
        let read = self.pairs(Cursor { text, at: 0 }, &mut scratch, memory);
        self.scratch = scratch;
        self.note(read)?;
        self.finish();
        Ok(())
    }

    fn pairs(
        &mut self,
        mut cursor: Cursor<'_>,
        scratch: &mut Scratch,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        let Scratch { name, value, name_text, value_text } = scratch;
        if cursor.peek().is_none() {
            return Ok(());
        }
        cursor.expect(b'{', "expected an opening brace")?;
        while !cursor.is_next(b'}') {
            cursor.name(name, memory)?;
            cursor.expect(b'=', "expected an equals sign")?;
            cursor.quoted(value, memory)?;
            self.add(text(name, name_text, memory)?, text(value, value_text, memory)?, memory)?;
            if !cursor.is_next(b',') {
                cursor.expect(b'}', "expected a comma or a closing brace")?;
                break;
            }
        }
        match cursor.peek() {
            None => Ok(()),
            Some(_) => Err(cursor.error("expected the end").into()),
        }
    }

    /// Adds a label. If no record can have it, the records are refused when they are read.
    pub(super) fn add_or_fail(
        &mut self,
        name: &str,
        value: &str,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        if self.fault.is_some() {
            return Ok(());
        }
        let added = self.add(name, value, memory);
        self.note(added)
    }

    fn note(&mut self, read: Result<(), Fault>) -> Result<(), DecodeError> {
        match read {
            Ok(()) => Ok(()),
            Err(Fault::Record(reason)) => {
                self.fault = Some(reason);
                Ok(())
            }
            Err(Fault::Request(error)) => Err(error),
        }
    }

    /// Adds a label. They have to be [finished](Self::finish) in the end.
    fn add(&mut self, name: &str, value: &str, memory: &mut IncrementalReservation<'_>) -> Result<(), Fault> {
        if self.all.len() == SERIES_LABELS_MAX {
            return Err(Reason::TooManyLabels.into());
        }
        check_path(PREFIX.len() + name.len())?;
        let start = self.texts.len();
        memory.room(&mut self.texts, PREFIX.len() + name.len() + value.len())?;
        self.texts.push_str(PREFIX);
        self.texts.push_str(name);
        let middle = self.texts.len();
        self.texts.push_str(value);
        let label = Label { path: start..middle, value: middle..self.texts.len() };
        Ok(memory.push(&mut self.all, label)?)
    }

    /// Leaves out labels without a value, as Loki does, and of others with the same name all but the last one.
    pub(super) fn finish(&mut self) {
        let Self { all, texts, .. } = self;
        all.retain(|label| !label.value.is_empty());
        all.sort_by(|a, b| name_of(texts, a).cmp(name_of(texts, b)));
        all.dedup_by(|next, kept| {
            let is_same = name_of(texts, next) == name_of(texts, kept);
            if is_same {
                std::mem::swap(next, kept);
            }
            is_same
        });
        let copied = |label: &Label| size_of::<f64>() + label.path.len() + label.value.len();
        self.copied_bytes = self.all.iter().map(copied).sum();
    }

    /// The name of the service, or an empty text.
    pub(super) fn service(&self) -> &str {
        let find =
            |name: &&str| self.all.binary_search_by(|label| name_of(&self.texts, label).cmp(name)).ok();
        SERVICES.iter().find_map(find).map_or("", |at| &self.texts[self.all[at].value.clone()])
    }

    /// Adds the labels to the present record.
    pub(super) fn put(&self, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        if let Some(reason) = self.fault {
            return Err(reason.into());
        }
        rows.share(self.copied_bytes)?;
        for Label { path, value } in &self.all {
            rows.put(&self.texts[path.clone()], None, AttributeValue::Text(&self.texts[value.clone()]))?;
        }
        Ok(())
    }
}

fn name_of<'a>(texts: &'a str, label: &Label) -> &'a str {
    &texts[label.path.start + PREFIX.len()..label.path.end]
}

/// Reads the text of labels.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    #[cold]
    const fn error(&self, what: &'static str) -> Reason {
        Reason::Labels { at: self.at, what }
    }

    /// Returns the next byte that is not white space, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                next => return next.copied(),
            }
        }
    }

    fn is_next(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Reason> {
        if self.is_next(byte) { Ok(()) } else { Err(self.error(what)) }
    }

    /// Reads a name into `out`.
    fn name(&mut self, out: &mut Vec<u8>, memory: &mut IncrementalReservation<'_>) -> Result<(), Fault> {
        match self.peek() {
            Some(b'"' | b'\'' | b'`') => return self.quoted(out, memory),
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {}
            _ => return Err(self.error("expected the name of a label").into()),
        }
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        out.clear();
        memory.extend(out, &rest[..length])?;
        self.at += length;
        Ok(())
    }

    /// Reads a text in quotes into `out`. There are no escape sequences between backquotes.
    fn quoted(&mut self, out: &mut Vec<u8>, memory: &mut IncrementalReservation<'_>) -> Result<(), Fault> {
        let Some(quote @ (b'"' | b'\'' | b'`')) = self.peek() else {
            return Err(self.error("expected a text in quotes").into());
        };
        self.at += 1;
        out.clear();
        let is_raw = quote == b'`';
        loop {
            let rest = &self.text[self.at..];
            let ends = |byte: &u8| *byte == quote || !is_raw && matches!(byte, b'\\' | b'\n');
            let Some(length) = rest.iter().position(ends) else {
                return Err(self.error("the text in quotes does not end").into());
            };
            memory.extend(out, &rest[..length])?;
            self.at += length;
            match rest[length] {
                b'\\' if !is_raw => self.escape(quote, out, memory)?,
                b'\n' if !is_raw => return Err(self.error("line break in quotes").into()),
                _ => {
                    self.at += 1;
                    return Ok(());
                }
            }
        }
    }

    /// Reads an escape sequence.
    fn escape(
        &mut self,
        quote: u8,
        out: &mut Vec<u8>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        let byte = match self.text.get(self.at + 1).copied() {
            Some(b'a') => 0x07,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'v') => 0x0b,
            Some(b'\\') => b'\\',
            Some(byte) if byte == quote => byte,
            Some(b'x') => self.digits(2, 16, 2)? as u8,
            Some(b'0'..=b'7') => match u8::try_from(self.digits(1, 8, 3)?) {
                Ok(byte) => byte,
                Err(_) => return Err(self.error("escape sequence beyond 255").into()),
            },
            Some(kind @ (b'u' | b'U')) => {
                let digits = if kind == b'u' { 4 } else { 8 };
                let Some(char) = char::from_u32(self.digits(2, 16, digits)?) else {
                    return Err(self.error("escape sequence of no character").into());
                };
                self.at += 2 + digits;
                return Ok(memory.extend(out, char.encode_utf8(&mut [0; 4]).as_bytes())?);
            }
            _ => return Err(self.error("unknown escape sequence").into()),
        };
        self.at += match self.text[self.at + 1] {
            b'x' | b'0'..=b'7' => 4,
            _ => 2,
        };
        Ok(memory.extend(out, &[byte])?)
    }

    /// The number that `count` digits stand for, `from` bytes further on.
    fn digits(&self, from: usize, radix: u32, count: usize) -> Result<u32, Reason> {
        let digits = self.text.get(self.at + from..self.at + from + count);
        let number = digits.and_then(|digits| {
            digits
                .iter()
                .try_fold(0, |number: u32, digit| Some(number * radix + char::from(*digit).to_digit(radix)?))
        });
        number.ok_or_else(|| self.error("escape sequence without its digits"))
    }
}
