//! A JSON parser that reads from borrowed bytes. The caller pulls the values that it expects, and nesting is
//! limited.

use crate::scan::{Eight, find};
use std::borrow::Cow;
use std::ops::Range;

/// Limit on the nesting of objects and lists. OTLP has 14 levels, and 3 more for each level of a value.
const DEPTH_MAX: usize = 64;

/// Limit on the length of a key with escape sequences, which has to be copied.
const KEY_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unexpected JSON at byte {at}: {what}")]
pub struct JsonError {
    pub at: usize,
    /// A description, such as `unpaired surrogate` or `expected an object`.
    pub what: &'static str,
}

#[derive(Debug)]
pub(crate) struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0 }
    }

    pub(crate) const fn error(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }

    fn spaces(&mut self) {
        while self.bytes.get(self.at).is_some_and(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Returns the next byte that is not white space, without consuming it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.spaces();
        self.bytes.get(self.at).copied()
    }

    fn is_next(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), JsonError> {
        if self.is_next(byte) { Ok(()) } else { Err(self.error(what)) }
    }

    /// The text from the next byte on that is not white space.
    pub(crate) fn rest(&mut self) -> Option<&'a [u8]> {
        self.spaces();
        self.bytes.get(self.at..).filter(|rest| !rest.is_empty())
    }

    /// Consumes bytes that the caller has parsed.
    pub(crate) const fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Skips an object, and returns where it is.
    pub(crate) fn skipped_object(&mut self) -> Result<Range<usize>, JsonError> {
        if self.peek() != Some(b'{') {
            return Err(self.error("expected an object"));
        }
        let start = self.at;
        self.skip()?;
        Ok(start..self.at)
    }

    /// Where the next value probably ends, if it is an object of strings: at the first brace behind a quote. Consumes it.
    pub(crate) fn guessed_object(&mut self) -> Option<Range<usize>> {
        let rest = self.rest().filter(|rest| rest[0] == b'{')?;
        let brace = memchr::memchr(b'}', rest)?;
        let ends_in_quote = matches!(rest[1..brace], [.., before, b'"'] if before != b'\\');
        let start = self.at;
        self.at += if ends_in_quote { brace + 1 } else { 0 };
        ends_in_quote.then_some(start..self.at)
    }

    pub(crate) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("trailing characters after the end")),
        }
    }

    fn deeper(&mut self) -> Result<(), JsonError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.error("nested too deeply")) } else { Ok(()) }
    }

    /// Parses an object. For each key, calls `member`, which must parse the value.
    pub(crate) fn object<E: From<JsonError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "expected an object")?;
        self.deeper()?;
        if !self.is_next(b'}') {
            loop {
                let key = self.key()?;
                self.expect(b':', "expected a colon")?;
                member(self, &key)?;
                if !self.is_next(b',') {
                    break self.expect(b'}', "expected a comma or the end of the object")?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Parses a list. For each element, calls `element`, which must parse it.
    pub(crate) fn list<E: From<JsonError>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[', "expected a list")?;
        self.deeper()?;
        if !self.is_next(b']') {
            loop {
                element(self)?;
                if !self.is_next(b',') {
                    break self.expect(b']', "expected a comma or the end of the list")?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Parses a key. It is copied only if it has escape sequences.
    fn key(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let too_long = self.error("a key with escape sequences is too long");
        if let Some(plain) = self.plain_string()? {
            return Ok(Cow::Borrowed(plain));
        }
        let mut key = Vec::new();
        self.pieces(|piece| {
            key.extend_from_slice(piece);
            if key.len() > KEY_BYTES_MAX { Err(too_long) } else { Ok(()) }
        })?;
        Ok(Cow::Owned(String::from_utf8(key).expect("BUG: a key is not UTF-8")))
    }

    /// Parses a string that has no escape sequences. Returns `None`, and consumes nothing, if it has some.
    fn plain_string(&mut self) -> Result<Option<&'a str>, JsonError> {
        self.spaces();
        let start = self.at;
        self.expect(b'"', "expected a string")?;
        let rest = &self.bytes[self.at..];
        let plain = find(rest, 0, ends_plain_text);
        let Some(plain) = plain else { return Err(self.error("unterminated string")) };
        if rest[plain] != b'"' {
            self.at = start;
            return Ok(None);
        }
        let text = std::str::from_utf8(&rest[..plain]).map_err(|_| self.error("not UTF-8"))?;
        self.at += plain + 1;
        Ok(Some(text))
    }

    /// Parses a string, and calls `piece` with its parts, one after the other. So it needs no memory of its own.
    pub(crate) fn pieces<E: From<JsonError>>(
        &mut self,
        mut piece: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'"', "expected a string")?;
        loop {
            let rest = &self.bytes[self.at..];
            let plain = find(rest, 0, ends_plain_text);
            let Some(plain) = plain else { return Err(self.error("unterminated string").into()) };
            std::str::from_utf8(&rest[..plain]).map_err(|_| self.error("not UTF-8"))?;
            piece(&rest[..plain])?;
            self.at += plain + 1;
            match rest[plain] {
                b'"' => return Ok(()),
                b'\\' => piece(self.escape()?.encode_utf8(&mut [0; 4]).as_bytes())?,
                _ => return Err(self.error("control character in a string").into()),
            }
        }
    }

    /// Parses a string. It is copied only if it has escape sequences.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        if let Some(plain) = self.plain_string()? {
            return Ok(Cow::Borrowed(plain));
        }
        let mut text = Vec::new();
        self.pieces(|piece| {
            text.extend_from_slice(piece);
            Ok::<_, JsonError>(())
        })?;
        Ok(Cow::Owned(String::from_utf8(text).expect("BUG: a string is not UTF-8")))
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        Ok(match byte {
            Some(b @ (b'"' | b'\\' | b'/')) => b as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut code = self.hex4()?;
                if (0xd800..0xdc00).contains(&code) && self.bytes[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    let low = self.hex4()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(self.error("unpaired surrogate"));
                    }
                    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                }
                char::from_u32(code).ok_or_else(|| self.error("unpaired surrogate"))?
            }
            _ => return Err(self.error("unknown escape sequence in a string")),
        })
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.bytes.get(self.at..self.at + 4).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let text = digits.and_then(|d| std::str::from_utf8(d).ok());
        let code = text.and_then(|t| u32::from_str_radix(t, 16).ok());
        self.at += 4;
        code.ok_or(JsonError { at: self.at - 4, what: "expected four hex digits" })
    }

    /// Returns the next run of digits, signs, decimal points and exponents. The caller checks whether they
    /// form a number.
    pub(crate) fn number(&mut self) -> Result<&'a str, JsonError> {
        self.spaces();
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
        let text = &rest[..end.unwrap_or(rest.len())];
        if text.is_empty() {
            return Err(self.error("expected a number"));
        }
        self.at += text.len();
        Ok(std::str::from_utf8(text).expect("BUG: a number is not ASCII"))
    }

    pub(crate) fn integer(&mut self) -> Result<i64, JsonError> {
        let at = self.at;
        self.number()?.parse().map_err(|_| JsonError { at, what: "expected an integer" })
    }

    pub(crate) fn count(&mut self) -> Result<u64, JsonError> {
        let at = self.at;
        self.number()?.parse().map_err(|_| JsonError { at, what: "expected a non-negative integer" })
    }

    pub(crate) fn word(&mut self) -> Result<&'static str, JsonError> {
        self.spaces();
        let rest = &self.bytes[self.at..];
        let word = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word.as_bytes()));
        let word = word.ok_or_else(|| self.error("expected a value"))?;
        self.at += word.len();
        Ok(word)
    }

    fn skip_object(&mut self) -> Result<(), JsonError> {
        self.expect(b'{', "expected an object")?;
        self.deeper()?;
        if !self.is_next(b'}') {
            loop {
                self.skip_string()?;
                self.expect(b':', "expected a colon")?;
                self.skip()?;
                if !self.is_next(b',') {
                    break self.expect(b'}', "expected a comma or the end of the object")?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn skip_string(&mut self) -> Result<(), JsonError> {
        self.spaces();
        let rest = &self.bytes[self.at..];
        if rest.first() == Some(&b'"')
            && let Some(end) = find(rest, 1, |eight| ends_plain_text(eight) | eight.not_ascii())
            && rest[end] == b'"'
        {
            self.at += end + 1;
            return Ok(());
        }
        self.pieces(|_| Ok(()))
    }

    pub(crate) fn skip(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => self.skip_object(),
            Some(b'[') => self.list(Self::skip),
            Some(b'"') => self.skip_string(),
            Some(b'-' | b'0'..=b'9') => self.number().map(|_| ()),
            _ => self.word().map(|_| ()),
        }
    }
}

/// The bytes at which a part of a string ends that needs no translation.
#[inline(always)]
const fn ends_plain_text(eight: Eight) -> u64 {
    eight.below(0x20) | eight.equal(b'"') | eight.equal(b'\\')
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (i, b) in bytes.iter().enumerate() {
        if *b >= 0x20 && *b != b'"' && *b != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[from..i]);
        from = i + 1;
        match b {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(format!("\\u{b:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}
