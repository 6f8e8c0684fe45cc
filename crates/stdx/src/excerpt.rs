//! Excerpts of bytes that somebody sent, for messages and logs.

use std::fmt::{Display, Formatter, Result, Write};

/// Limit on the bytes of an excerpt as text, without its quotes.
pub const EXCERPT_BYTES_MAX: usize = 120;

/// Shows the beginning of some bytes in quotes, on one line. Control characters, quotes, and what is not UTF-8 are escaped. If
/// something is left out, it ends with `…`. Lines of HTTP requests are not shown, because they may have credentials. It is formatted only
/// where it is displayed.
#[derive(Debug, Clone, Copy)]
pub struct Excerpt<'a> {
    bytes: &'a [u8],
    bytes_max: usize,
}

impl<'a> Excerpt<'a> {
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, bytes_max: EXCERPT_BYTES_MAX }
    }

    /// Shows at most `bytes_max` bytes of text.
    pub const fn at_most(bytes_max: usize, bytes: &'a [u8]) -> Self {
        Self { bytes, bytes_max }
    }
}

/// True if the bytes may be of an HTTP request: its first line, or a header with credentials.
fn may_have_credentials(bytes: &[u8]) -> bool {
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part));
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let is_request = method > 0 && bytes[method..].starts_with(b" /");
    is_request || [&b"authorization"[..], b"cookie:", b"bearer ", b" http/1."].into_iter().any(has)
}

impl Display for Excerpt<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut left = self.bytes_max;
        let mut fits = |bytes: usize| {
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        };
        // each byte takes at least one, so what follows would not fit
        let bytes = &self.bytes[..self.bytes.len().min(self.bytes_max + 1)];
        if may_have_credentials(bytes) {
            return f.write_str("a line of an HTTP request");
        }
        f.write_char('"')?;
        for chunk in bytes.utf8_chunks() {
            for char in chunk.valid().chars() {
                let escaped = char.escape_debug().skip(usize::from(char == '\'')); // not within double quotes
                if !fits(escaped.clone().map(char::len_utf8).sum()) {
                    return f.write_str("…\"");
                }
                escaped.into_iter().try_for_each(|char| f.write_char(char))?;
            }
            for byte in chunk.invalid() {
                if !fits(r"\x00".len()) {
                    return f.write_str("…\"");
                }
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn what_cannot_be_printed_is_escaped() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(Excerpt::of(bytes).to_string(), expected);
        check(b"a.b 1 x", r#""a.b 1 x""#);
        check("é \u{202e}".as_bytes(), r#""é \u{202e}""#);
        check(b"a\tb\r\n\x1b[31m\0", r#""a\tb\r\n\u{1b}[31m\0""#);
        check(b"\"\\'", r#""\"\\'""#);
        check(b"a\xff\xc3", r#""a\xff\xc3""#);
        check(b"", r#""""#);
        check(&[b'x'; EXCERPT_BYTES_MAX], &format!("\"{}\"", "x".repeat(EXCERPT_BYTES_MAX)));
        check(&[b'x'; EXCERPT_BYTES_MAX + 1], &format!("\"{}…\"", "x".repeat(EXCERPT_BYTES_MAX)));
        assert_eq!(Excerpt::at_most(3, "aéé".as_bytes()).to_string(), "\"aé…\"");
    }

    #[test]
    fn excerpts_are_short_and_on_one_line() {
        let mut rng = Rng::announced();
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..rng.below(300)).map(|_| rng.next_u64() as u8).collect();
            let text = Excerpt::of(&bytes).to_string();
            assert!(text.len() <= EXCERPT_BYTES_MAX + "\"…\"".len(), "{text}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        for line in [
            "POST /write?db=m&u=admin&p=hunter2",
            "Authorization: Basic dXNlcjpwdw==",
            "authorization: token x",
            "Cookie: session=1",
            "x GET /a HTTP/1.1",
            "servers.a bearer eyJhbGciOi",
        ] {
            assert_eq!(Excerpt::of(line.as_bytes()).to_string(), "a line of an HTTP request", "{line}");
        }
        assert_eq!(Excerpt::of(b"auth.tokens 1 x").to_string(), "\"auth.tokens 1 x\"");
    }
}
