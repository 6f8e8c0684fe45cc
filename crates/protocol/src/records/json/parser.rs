//! A parser of JSON in valid UTF-8. In contrast to [`crate::json`], it checks the grammar of everything that it skips, and
//! need not check the encoding of each string.

use super::super::Fault;
use super::super::number::number;
use crate::JsonError;
use crate::scan::{Eight, find};
use model::AttributeValue;
use stdx::budget::IncrementalReservation;

/// What is read instead of half of a character.
const REPLACEMENT: u32 = char::REPLACEMENT_CHARACTER as u32;

/// Limit on the nesting of objects and lists.
const DEPTH_MAX: usize = 64;

pub(in crate::records) struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    replaces_surrogates: bool,
}

/// A place to which the parser can return.
#[derive(Debug, Clone, Copy)]
pub(in crate::records) struct Mark {
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    pub(in crate::records) const fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0, replaces_surrogates: false }
    }

    /// Reads [`REPLACEMENT`] where an escape sequence is half of a character, as JavaScript writes of a text that was cut.
    pub(in crate::records) const fn replacing_surrogates(self) -> Self {
        Self { replaces_surrogates: true, ..self }
    }

    #[cold]
    pub(in crate::records) const fn error(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }

    pub(in crate::records) const fn mark(&self) -> Mark {
        Mark { at: self.at, depth: self.depth }
    }

    pub(in crate::records) const fn return_to(&mut self, mark: Mark) {
        (self.at, self.depth) = (mark.at, mark.depth);
    }

    /// Returns the next byte that is not white space, without consuming it.
    #[inline(always)]
    pub(in crate::records) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.as_bytes().get(self.at).copied() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                next => return next,
            }
        }
    }

    #[inline(always)]
    fn is_next(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    #[inline(always)]
    pub(in crate::records) fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), JsonError> {
        if self.is_next(byte) { Ok(()) } else { Err(self.error(what)) }
    }

    pub(in crate::records) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("trailing characters after the end")),
        }
    }

    /// Begins an object. Returns whether it has members.
    #[inline]
    pub(in crate::records) fn begin_object(&mut self) -> Result<bool, JsonError> {
        self.expect(b'{', "expected an object")?;
        self.deeper()?;
        Ok(!self.is_closed(b'}'))
    }

    /// Returns whether another member follows, behind a comma.
    #[inline(always)]
    pub(in crate::records) fn next_member(&mut self) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(b'}') => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            _ => Err(self.error("expected a comma or the end of the object")),
        }
    }

    fn deeper(&mut self) -> Result<(), JsonError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.error("nested too deeply")) } else { Ok(()) }
    }

    fn is_closed(&mut self, end: u8) -> bool {
        let is_closed = self.is_next(end);
        self.depth -= usize::from(is_closed);
        is_closed
    }

    /// Parses a list. For each element, calls `element`, which must consume it.
    pub(in crate::records) fn list<E: From<JsonError>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[', "expected a list")?;
        self.deeper()?;
        if self.is_closed(b']') {
            return Ok(());
        }
        loop {
            element(self)?;
            if !self.is_next(b',') {
                self.depth -= 1;
                return Ok(self.expect(b']', "expected a comma or the end of the list")?);
            }
        }
    }

    /// Consumes an object without members, and returns its text.
    pub(in crate::records) fn empty_object(&mut self) -> Option<&'a str> {
        let start = self.at;
        if self.is_next(b'{') && self.is_next(b'}') {
            return Some(&self.text[start..self.at]);
        }
        self.at = start;
        None
    }

    /// Consumes a value, and returns its text.
    pub(in crate::records) fn raw(&mut self) -> Result<&'a str, JsonError> {
        self.peek();
        let start = self.at;
        self.skip()?;
        Ok(&self.text[start..self.at])
    }

    #[inline]
    pub(in crate::records) fn number(&mut self) -> Result<AttributeValue<'a>, JsonError> {
        let Some((value, end)) = number(self.text, self.at) else {
            return Err(self.error("expected a number"));
        };
        self.at = end;
        Ok(value)
    }

    /// Consumes `true`, `false` or `null`, and returns the value that it stands for.
    #[inline]
    pub(in crate::records) fn word(&mut self) -> Result<Option<bool>, JsonError> {
        let rest = &self.text.as_bytes()[self.at..];
        let (value, length) = match rest {
            [b't', b'r', b'u', b'e', ..] => (Some(true), 4),
            [b'f', b'a', b'l', b's', b'e', ..] => (Some(false), 5),
            [b'n', b'u', b'l', b'l', ..] => (None, 4),
            _ => return Err(self.error("expected a value")),
        };
        self.at += length;
        Ok(value)
    }

    /// Consumes a string that has no escape sequences. If it has some, returns `None` and consumes nothing, so that
    /// [`Self::unescape`] has to read it.
    #[inline(always)]
    pub(in crate::records) fn plain(&mut self) -> Result<Option<&'a str>, JsonError> {
        let bytes = self.text.as_bytes();
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a string"));
        }
        let start = self.at + 1;
        let Some(end) = find(bytes, start, ends_plain_text) else { return Err(self.unterminated()) };
        match bytes[end] {
            b'"' => {
                self.at = end + 1;
                Ok(Some(&self.text[start..end]))
            }
            b'\\' => Ok(None),
            _ => Err(self.control(end)),
        }
    }

    /// Replaces the contents of `out` with those of the next string.
    pub(in crate::records) fn unescape(
        &mut self,
        out: &mut String,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        out.clear();
        self.pieces(|piece| {
            memory.room(out, piece.len())?;
            out.push_str(piece);
            Ok(())
        })
    }

    /// Replaces the contents of `out` with those of the next string.
    pub(in crate::records) fn string(
        &mut self,
        out: &mut String,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        match self.plain()? {
            Some(plain) => {
                out.clear();
                memory.room(out, plain.len())?;
                out.push_str(plain);
                Ok(())
            }
            None => self.unescape(out, memory),
        }
    }

    /// Consumes a string, and calls `piece` for its parts, one after the other.
    fn pieces<E: From<JsonError>>(&mut self, mut piece: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.expect(b'"', "expected a string")?;
        loop {
            let (bytes, start) = (self.text.as_bytes(), self.at);
            let Some(end) = find(bytes, start, ends_plain_text) else {
                return Err(self.unterminated().into());
            };
            piece(&self.text[start..end])?;
            match bytes[end] {
                b'"' => {
                    self.at = end + 1;
                    return Ok(());
                }
                b'\\' => {
                    self.at = end + 1;
                    piece(self.escape()?.encode_utf8(&mut [0; 4]))?;
                }
                _ => return Err(self.control(end).into()),
            }
        }
    }

    #[cold]
    const fn unterminated(&self) -> JsonError {
        self.error("unterminated string")
    }

    #[cold]
    const fn control(&self, at: usize) -> JsonError {
        JsonError { at, what: "control character in a string" }
    }

    /// Reads an escape sequence behind its backslash.
    fn escape(&mut self) -> Result<char, JsonError> {
        let byte = self.text.as_bytes().get(self.at).copied();
        let plain = match byte {
            Some(b @ (b'"' | b'\\' | b'/')) => char::from(b),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.error("unknown escape sequence in a string")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// Reads the character of an escape sequence that begins with `u`, or the one of a pair of them.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let high = self.code()?;
        let code = match high {
            0xd800..0xdc00 if self.text.as_bytes()[self.at..].starts_with(b"\\u") => {
                let after = self.at;
                self.at += 1;
                match self.code()? {
                    low @ 0xdc00..0xe000 => 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00),
                    _ if self.replaces_surrogates => {
                        // the second escape sequence is a character of its own
                        self.at = after;
                        REPLACEMENT
                    }
                    _ => return Err(self.error("unpaired surrogate")),
                }
            }
            0xd800..0xe000 if self.replaces_surrogates => REPLACEMENT,
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.error("unpaired surrogate"))
    }

    /// Reads `u` and four hex digits.
    fn code(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at + 1..self.at + 5);
        let code = digits.and_then(|digits| {
            digits.iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))
        });
        let Some(code) = code else { return Err(self.error("expected four hex digits")) };
        self.at += 5;
        Ok(code)
    }

    /// Consumes a value, and checks that it is valid.
    pub(in crate::records) fn skip(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => self.skip_object(),
            Some(b'[') => self.list(Self::skip),
            Some(b'"') => self.skip_string(),
            Some(b'-' | b'0'..=b'9') => self.number().map(|_| ()),
            _ => self.word().map(|_| ()),
        }
    }

    fn skip_object(&mut self) -> Result<(), JsonError> {
        let mut has_more = self.begin_object()?;
        while has_more {
            self.skip_string()?;
            self.expect(b':', "expected a colon")?;
            self.skip()?;
            has_more = self.next_member()?;
        }
        Ok(())
    }

    fn skip_string(&mut self) -> Result<(), JsonError> {
        match self.plain()? {
            Some(_) => Ok(()),
            None => self.pieces(|_| Ok(())),
        }
    }
}

/// The bytes at which a part of a string ends that needs no translation.
#[inline(always)]
const fn ends_plain_text(eight: Eight) -> u64 {
    eight.below(0x20) | eight.equal(b'"') | eight.equal(b'\\')
}
